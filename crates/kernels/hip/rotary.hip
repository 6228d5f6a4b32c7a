// Rotary position embeddings of x [batch, rows, heads, size]: in each head, `half` pairs are rotated by the angles of
// the token's position, and the rest is copied. Sums are f32.
//
// T: the stored type. I: i32 or i64. V: pairs per thread, or elements that it copies, if the elements of heads, cosines
// and sines are contiguous and a multiple of it; else 1. BEHIND: positions follow from lengths [batch], else they are
// given as [batch, rows]. INTERLEAVED: pairs are adjacent, else `half` apart. Fewer than 2^31 units.
struct RotaryArgs {
  const T* x;
  const T* cosines;
  const T* sines;
  const I* positions;
  T* y;
  u32* fault;
  i64 x_axis[4], y_axis[4];  // strides of batch, row, head, element
  i64 cosine_axis[2], sine_axis[2], position_axis[2];
  i64 shift;
  i64 count;  // of positions
  u32 units, rows, heads, head_units, half;
};

typedef Pack<T, V> Some;

KERNEL(rotary, 256, RotaryArgs) {
  for (u32 unit = blockIdx.x * 256 + threadIdx.x; unit < a.units; unit += gridDim.x * 256) {
    u32 rest = unit / a.head_units, at = (unit - rest * a.head_units) * V;
    u32 head = rest % a.heads, token = rest / a.heads, batch = token / a.rows, row = token - batch * a.rows;
    const T* x = a.x + (i64)batch * a.x_axis[0] + (i64)row * a.x_axis[1] + (i64)head * a.x_axis[2];
    T* y = a.y + (i64)batch * a.y_axis[0] + (i64)row * a.y_axis[1] + (i64)head * a.y_axis[2];
    const i64 x_step = a.x_axis[3], y_step = a.y_axis[3];
    if (at >= a.half) {
      i64 d = (i64)at + a.half;
      *(Some*)(y + d * y_step) = *(const Some*)(x + d * x_step);
      continue;
    }
    i64 position = (i64)a.positions[(i64)batch * a.position_axis[0] + (BEHIND ? 0 : (i64)row * a.position_axis[1])];
    if (BEHIND) position = (i64)filled_before(position, a.shift) + row;
    if (position < 0 || position >= a.count) {
      report_fault(a.fault, 1);
      continue;
    }
    Some c = *(const Some*)(a.cosines + position * a.cosine_axis[0] + (i64)at * a.cosine_axis[1]);
    Some s = *(const Some*)(a.sines + position * a.sine_axis[0] + (i64)at * a.sine_axis[1]);
    i64 first = INTERLEAVED ? 2 * (i64)at : (i64)at, second = INTERLEAVED ? first + V : first + a.half;
    Some p = *(const Some*)(x + first * x_step), q = *(const Some*)(x + second * x_step);
    T pairs[2 * V];
#pragma unroll
    for (int i = 0; i < V; i++) {
      pairs[i] = p.at[i];
      pairs[V + i] = q.at[i];
    }
#pragma unroll
    for (int i = 0; i < V; i++) {
      const int left = INTERLEAVED ? 2 * i : i, right = INTERLEAVED ? 2 * i + 1 : V + i;
      f32 u = get(pairs[left]), v = get(pairs[right]), cosine = get(c.at[i]), sine = get(s.at[i]);
      pairs[left] = put<T>(u * cosine - v * sine);
      pairs[right] = put<T>(v * cosine + u * sine);
    }
#pragma unroll
    for (int i = 0; i < V; i++) {
      p.at[i] = pairs[i];
      q.at[i] = pairs[V + i];
    }
    *(Some*)(y + first * y_step) = p;
    *(Some*)(y + second * y_step) = q;
  }
}
