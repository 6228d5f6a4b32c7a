// Attention of few rows, or without matrix instructions: a block has ROWS rows of a batch, and its waves share the
// keys.
//
// First each lane computes the scores of one key. Then the lanes of a wave are spread over the width of the values, and
// the weight of each key is broadcast to them. Waves combine their results at the end. With splits, blockIdx.y is the
// part of the keys, and a second pass follows. SIZE, WIDTH: size and width, rounded up to multiples of 64. PACK:
// elements of a key that are read at once.
KERNEL(attend_rows, 256, AttentionArgs) {
  SHARED(f32, q, ROWS * SIZE);
  SHARED(f32, tops, 256 / MIN_WARP * ROWS);
  SHARED(f32, sums, 256 / MIN_WARP * ROWS);
  SHARED(f32, parts, 256 / MIN_WARP * WIDTH);
  SHARED(RowSpot, spots, ROWS);
  const u32 lane = threadIdx.x % WARP, wave = threadIdx.x / WARP, waves = 256 / WARP;
  const u32 batch = blockIdx.x / a.groups, first = (blockIdx.x - batch * a.groups) * ROWS;
  const T* queries = a.q + batch_at(a, batch, a.q_outer, a.q_batch);
  const T* k = a.k + batch_at(a, batch, a.k_outer, a.k_batch);
  const T* v = a.v + batch_at(a, batch, a.v_outer, a.v_batch);
  for (u32 at = threadIdx.x; at < ROWS * SIZE; at += 256) {
    u32 row = first + at / SIZE, d = at % SIZE;
    bool is_in = row < a.rows && d < a.size;
    q[at] = is_in ? get(queries[(i64)row * a.q_row + (i64)d * a.q_at]) * a.alpha : 0.0f;
  }
  // Rows past the end repeat the last one.
  if (threadIdx.x < ROWS) spots[threadIdx.x] = row_spot(a, batch, min_of(first + threadIdx.x, a.rows - 1));
  __syncthreads();
  f32 top[ROWS], sum[ROWS], o[ROWS][WIDTH / MIN_WARP];
#pragma unroll
  for (u32 r = 0; r < ROWS; r++) {
    top[r] = -INFINITY_OF(f32);
    sum[r] = 0;
    for (int c = 0; c < WIDTH / MIN_WARP; c++) o[r][c] = 0;
  }
  u32 furthest = 0;
  for (u32 r = 0; r < ROWS; r++) furthest = max_of(furthest, spots[r].index[2]);
  const u32 seen = end_of(a, furthest);
  const u32 begin = blockIdx.y * a.split_keys, end = min_of(seen, begin + a.split_keys);
  for (u32 base = begin + wave * WARP; base < end; base += 256) {
    u32 key = base + lane;
    f32 p[ROWS];
    for (int r = 0; r < ROWS; r++) p[r] = 0;
    if (key < end) {
      const T* from = k + (i64)key * a.k_key;
#pragma unroll 2
      for (u32 d = 0; d < a.size; d += PACK) {
        Pack<T, PACK> x = *(const Pack<T, PACK>*)(from + (i64)d * a.k_at);
#pragma unroll
        for (int e = 0; e < PACK; e++)
#pragma unroll
          for (int r = 0; r < ROWS; r++) p[r] += q[r * SIZE + d + e] * get(x.at[e]);
      }
    }
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
      f32 s = key < end ? score(a, p[r], spots[r], key) : -INFINITY_OF(f32);
      f32 larger = max_of(top[r], wave_max(s)), shift = shift_of(larger);
      p[r] = weight_of(s, shift);
      f32 before = weight_of(top[r], shift);
      sum[r] = sum[r] * before + wave_sum(p[r]);
      top[r] = larger;
      for (u32 c = 0; c < WIDTH / WARP; c++) o[r][c] *= before;
    }
    u32 count = min_of((u32)WARP, end - base);
    for (u32 j = 0; j < count; j += 4) {
      // Keys past the end repeat the last one, with a weight of zero.
      f32 x[4][WIDTH / MIN_WARP];
#pragma unroll
      for (u32 n = 0; n < 4; n++) {
        const T* from = v + (i64)min_of(base + j + n, end - 1) * a.v_key;
#pragma unroll
        for (u32 c = 0; c < WIDTH / WARP; c++) {
          u32 e = lane + c * WARP;
          x[n][c] = e < a.width ? get(from[(i64)e * a.v_at]) : 0.0f;
        }
      }
#pragma unroll
      for (u32 n = 0; n < 4; n++)
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
          f32 weight = SHFL(p[r], j + n);
#pragma unroll
          for (u32 c = 0; c < WIDTH / WARP; c++) o[r][c] += weight * x[n][c];
        }
    }
  }
  if (lane == 0)
    for (int r = 0; r < ROWS; r++) {
      tops[wave * ROWS + r] = top[r];
      sums[wave * ROWS + r] = sum[r];
    }
  __syncthreads();
#pragma unroll
  for (u32 r = 0; r < ROWS; r++) {
    f32 largest = tops[r], weights = 0;
    for (u32 w = 1; w < waves; w++) largest = max_of(largest, tops[w * ROWS + r]);
    f32 shift = shift_of(largest);
    for (u32 w = 0; w < waves; w++) weights += sums[w * ROWS + r] * weight_of(tops[w * ROWS + r], shift);
    f32 share = weight_of(top[r], shift);
#pragma unroll
    for (u32 c = 0; c < WIDTH / WARP; c++) parts[wave * WIDTH + lane + c * WARP] = o[r][c] * share;
    __syncthreads();
    if (first + r < a.rows) {
      u64 row = (u64)batch * a.rows + first + r;
      f32* partial = a.partial + ((u64)blockIdx.y * a.batches * a.rows + row) * (a.width + 2);
      for (u32 e = threadIdx.x; e < a.width; e += 256) {
        f32 value = parts[e];
        for (u32 w = 1; w < waves; w++) value += parts[w * WIDTH + e];
        if (a.splits > 1)
          partial[e] = value;
        else
          a.out[spots[r].out + (i64)e * a.out_at] = put<T>(value * factor_of(a, weights));
      }
      if (a.splits > 1 && threadIdx.x == 0) {
        partial[a.width] = largest;
        partial[a.width + 1] = weights;
      }
    }
    __syncthreads();
  }
}
