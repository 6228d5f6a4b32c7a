// Local response normalisation over the channels of x [n, c, spatial...]: y = x * (bias + alpha / size * sum of squares
// of the surrounding channels) ^ -beta, with (size - 1) / 2 channels before and size / 2 after. Each thread computes
// one element; adjacent threads access adjacent memory.
//
// CHANNELS_LAST: 1 if channels are innermost. T: the stored type. Below 2^31 elements; strides are in elements.
struct LrnArgs {
  const T* x;
  T* y;
  i64 x_others[AXES], y_others[AXES];  // all axes but the channels
  i64 x_channel, y_channel;
  Axes others;
  u32 elems, channels, count;  // count: elements along the other axes
  u32 behind, before;
  f32 factor, bias, beta;
};

KERNEL(lrn, 256, LrnArgs) {
  typedef COMPUTE(T) C;
  u64 number = ((u64)blockIdx.y * gridDim.x + blockIdx.x) * 256 + threadIdx.x;
  if (number >= a.elems) return;
#if CHANNELS_LAST
  u32 channel = (u32)number % a.channels, other = (u32)number / a.channels;
#else
  // Image by image would follow the order of memory; within a wave, position by position is just as contiguous.
  u32 other = (u32)number % a.count, channel = (u32)number / a.count;
#endif
  i64 x_at, y_at;
  offsets_at(other, a.others, a.x_others, a.y_others, x_at, y_at);
  u32 first = channel > a.before ? channel - a.before : 0, last = min_of(channel + a.behind, a.channels - 1);
  C sum = 0;
  for (u32 at = first; at <= last; at++) {
    C value = get(a.x[x_at + (i64)at * a.x_channel]);
    sum += value * value;
  }
  C value = get(a.x[x_at + (i64)channel * a.x_channel]);
  C scale = exp_of(-(C)a.beta * log_of((C)a.bias + (C)a.factor * sum));
  a.y[y_at + (i64)channel * a.y_channel] = put<T>(value * scale);
}
