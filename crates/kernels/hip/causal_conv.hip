// A depthwise convolution along a sequence with a state: y[t] = bias + sum over taps j of weights[j] * s[t + j *
// dilation], where s is the old state followed by x, and the new state is the end of s.
//
// A block has ROWS rows, each a channel of a batch, and LANES threads for each. The new state may overwrite the old one:
// a row belongs to one block, which writes after all its threads have read. T: the stored type. HELD: elements of the new
// state that a thread holds. ALONG: 1 if adjacent threads have adjacent tokens instead of adjacent rows. SILU: whether y
// is multiplied by its sigmoid. Fewer than 2^31 rows and tokens.
#define ROWS (256 / LANES)

struct ConvArgs {
  const T* x;
  const T* weights;
  const T* past;  // may be NULL
  const T* bias;  // may be NULL
  T* y;
  T* present;
  i64 x_axis[3], y_axis[3], past_axis[3], present_axis[3];  // strides of batch, channel, token
  i64 weights_axis[2], bias_step;
  u32 rows, channels, length;
  u32 taps, dilation, reach;  // reach: elements of the state
};

struct ConvRow {
  const T* x;
  const T* past;
};

// An element of the old state followed by x.
DEV f32 seen_at(const ConvArgs& a, const ConvRow& row, u32 at) {
  if (at >= a.reach) return get(row.x[(i64)(at - a.reach) * a.x_axis[2]]);
  return a.past ? get(row.past[(i64)at * a.past_axis[2]]) : 0.0f;
}

KERNEL(causal_conv, 256, ConvArgs) {
  const u32 lane = ALONG ? threadIdx.x % LANES : threadIdx.x / ROWS;
  const u32 number = blockIdx.x * ROWS + (ALONG ? threadIdx.x / LANES : threadIdx.x % ROWS);
  const bool is_row = number < a.rows;
  const u32 batch = is_row ? number / a.channels : 0, channel = is_row ? number - batch * a.channels : 0;
  const ConvRow row = {a.x + (i64)batch * a.x_axis[0] + (i64)channel * a.x_axis[1],
                       a.past + (i64)batch * a.past_axis[0] + (i64)channel * a.past_axis[1]};
  const T* weights = a.weights + (i64)channel * a.weights_axis[0];
  T* y = a.y + (i64)batch * a.y_axis[0] + (i64)channel * a.y_axis[1];
  const f32 bias = a.bias ? get(a.bias[(i64)channel * a.bias_step]) : 0.0f;
  if (is_row) {
    for (u32 token = lane; token < a.length; token += LANES) {
      f32 sum = bias;
      for (u32 tap = 0; tap < a.taps; tap++)
        sum += get(weights[(i64)tap * a.weights_axis[1]]) * seen_at(a, row, token + tap * a.dilation);
      if (SILU) sum = sum / (1.0f + expf(-sum));
      y[(i64)token * a.y_axis[2]] = put<T>(sum);
    }
  }
  f32 held[HELD];
#pragma unroll
  for (int i = 0; i < HELD; i++) {
    const u32 at = lane + i * LANES;
    held[i] = is_row && at < a.reach ? seen_at(a, row, a.length + at) : 0.0f;
  }
  __syncthreads();
  T* present = a.present + (i64)batch * a.present_axis[0] + (i64)channel * a.present_axis[1];
#pragma unroll
  for (int i = 0; i < HELD; i++) {
    const u32 at = lane + i * LANES;
    if (is_row && at < a.reach) present[(i64)at * a.present_axis[2]] = put<T>(held[i]);
  }
}
