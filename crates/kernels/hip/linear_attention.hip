// Attention with a state S of size x width for each head, token by token: S = exp(decay) * S, then S += k (x) u with u =
// v or, with DELTA, u = rate * (v - S^T k), and y = scale * q^T S.
//
// PARTS threads share a column of the state: thread `part` holds the rows part, part + PARTS, ..., E of them. The threads
// of a wave with one part have adjacent columns, so that they access adjacent memory. A block has COLUMNS columns of one
// head, and blocks do not need each other: the new state may overwrite the old one. T: the stored type of queries, keys,
// values, decay, rate and y. S_T: that of the states. WHOLE: whether PARTS divides the size. DECAY: 1 if all rows of a
// head decay alike, 2 if each has its own factor, else 0. All strides are in elements; the innermost of queries, keys, values
// and y is 1, and the states are dense, except for the old one.
#define COLUMNS (256 / PARTS)
#define SPAN (WARP / PARTS)

struct LinearArgs {
  const T* q;
  const T* k;
  const T* v;
  const S_T* past;  // may be NULL
  const T* decay;
  const T* rate;
  T* y;
  S_T* present;
  i64 q_axis[3], k_axis[3], v_axis[3], y_axis[3];  // strides of batch, head, token
  i64 past_axis[4], decay_axis[4], rate_axis[3];
  f32 scale;
  u32 queries, keys, heads;  // numbers of heads
  u32 length, size, width;
  u32 tiles;  // blocks per head
};

// Whether a row exists.
DEV bool is_row(const LinearArgs& a, u32 row) { return WHOLE || row < a.size; }

// Adds up over the parts of a column.
DEV f32 over_parts(f32 v) {
  for (int mask = SPAN; mask < WARP; mask *= 2) v += SHFL_XOR(v, mask);
  return v;
}

KERNEL(linear_attention, 256, LinearArgs) {
  const u32 lane = threadIdx.x % WARP, part = lane / SPAN;
  const u32 tile = blockIdx.x % a.tiles, number = blockIdx.x / a.tiles;
  const u32 column = tile * COLUMNS + threadIdx.x / WARP * SPAN + lane % SPAN;
  const u32 batch = number / a.heads, head = number - batch * a.heads;
  const bool is_column = column < a.width;
  f32 state[E];
#pragma unroll
  for (int i = 0; i < E; i++) {
    const u32 row = i * PARTS + part;
    state[i] = 0;
    if (a.past && is_column && is_row(a, row))
      state[i] = get(a.past[(i64)batch * a.past_axis[0] + (i64)head * a.past_axis[1] + (i64)row * a.past_axis[2] +
                            (i64)column * a.past_axis[3]]);
  }
  const u32 key_head = head * a.keys / a.heads;
  const T* k = a.k + (i64)batch * a.k_axis[0] + (i64)key_head * a.k_axis[1];
  const T* v = a.v + (i64)batch * a.v_axis[0] + (i64)head * a.v_axis[1];
  const u32 group = max_of(a.queries / a.heads, 1u), most = max_of(a.queries, a.heads);
  for (u32 token = 0; token < a.length; token++) {
    f32 key[E];
#pragma unroll
    for (int i = 0; i < E; i++) {
      const u32 row = i * PARTS + part;
      key[i] = is_row(a, row) ? get(k[(i64)token * a.k_axis[2] + row]) : 0.0f;
    }
    f32 update = is_column ? get(v[(i64)token * a.v_axis[2] + column]) : 0.0f;
#if DECAY
    const T* decay =
        a.decay + (i64)batch * a.decay_axis[0] + (i64)head * a.decay_axis[1] + (i64)token * a.decay_axis[2];
#if DECAY == 1
    const f32 factor = expf(get(decay[0]));
#endif
#pragma unroll
    for (int i = 0; i < E; i++) {
#if DECAY == 2
      const u32 row = i * PARTS + part;
      const f32 factor = is_row(a, row) ? expf(get(decay[(i64)row * a.decay_axis[3]])) : 0.0f;
#endif
      state[i] *= factor;
    }
#endif
#if DELTA
    f32 known = 0;
#pragma unroll
    for (int i = 0; i < E; i++) known += state[i] * key[i];
    known = over_parts(known);
    update = get(a.rate[(i64)batch * a.rate_axis[0] + (i64)head * a.rate_axis[1] + (i64)token * a.rate_axis[2]]) *
             (update - known);
#endif
#pragma unroll
    for (int i = 0; i < E; i++) state[i] += key[i] * update;
    for (u32 shown = head * group; shown < (head + 1) * group; shown++) {
      const T* q = a.q + (i64)batch * a.q_axis[0] + (i64)((u64)shown * a.queries / most) * a.q_axis[1] +
                   (i64)token * a.q_axis[2];
      f32 sum = 0;
#pragma unroll
      for (int i = 0; i < E; i++) {
        const u32 row = i * PARTS + part;
        if (is_row(a, row)) sum += state[i] * get(q[row]);
      }
      sum = over_parts(sum) * a.scale;
      if (part == 0 && is_column)
        a.y[(i64)batch * a.y_axis[0] + (i64)shown * a.y_axis[1] + (i64)token * a.y_axis[2] + column] = put<T>(sum);
    }
  }
  S_T* present = a.present + (u64)number * a.size * a.width;
#pragma unroll
  for (int i = 0; i < E; i++) {
    const u32 row = i * PARTS + part;
    if (is_column && is_row(a, row)) present[(u64)row * a.width + column] = put<S_T>(state[i]);
  }
}
