// Attention of many rows with matrix instructions: a block of four waves has 64 rows of a batch, and walks over the keys
// 64 at a time. A wave has 16 rows; what it has summed up is scaled down whenever a larger score turns up.
//
// SIZE, WIDTH: size and width, rounded up to multiples of 16, at most 128. K_CHUNKS, V_CHUNKS: 1 if eight elements of a
// key or value are read at once. WAVE: lanes. Keys lie in LDS as they are, values turned, so that both are rows of what
// is summed over; weights pass through LDS to become an operand.
#define K_PITCH (SIZE + 8)
#define V_PITCH 72
typedef Pack<T, 8> Eight;
// Loads on their way at a time; fragments of gfx11 leave less room.
constexpr int LOADS = MATRIX == 2 ? 2 : 4;

DEV Eight eight_of(const T* from, i64 step, u32 at, u32 count, bool whole) {
  Eight r;
  if (whole) {
    if (at < count) return *(const Eight*)(from + at);
    for (int i = 0; i < 8; i++) r.at[i].bits = 0;
    return r;
  }
#pragma unroll
  for (u32 i = 0; i < 8; i++) {
    T none;
    none.bits = 0;
    r.at[i] = at + i < count ? from[(i64)(at + i) * step] : none;
  }
  return r;
}

KERNEL(attention, 4 * WAVE, AttentionArgs) {
  SHARED(Eight, k_tile, 64 * K_PITCH / 8);
  SHARED(Eight, v_tile, WIDTH * V_PITCH / 8);
  SHARED(Eight, p_tile, 64 * V_PITCH / 8);
  SHARED(RowSpot, row_spots, 64);
  u16* keys = (u16*)k_tile;
  u16* values = (u16*)v_tile;
  const u32 lane = threadIdx.x % WAVE, wave = threadIdx.x / WAVE, threads = 4 * WAVE;
  u16* weights = (u16*)p_tile + wave * 16 * V_PITCH;
  const u32 batch = blockIdx.x / a.groups, first = (blockIdx.x - batch * a.groups) * 64;
  const T* q = a.q + batch_at(a, batch, a.q_outer, a.q_batch);
  const T* k = a.k + batch_at(a, batch, a.k_outer, a.k_batch);
  const T* v = a.v + batch_at(a, batch, a.v_outer, a.v_batch);

  if (threadIdx.x < 64) row_spots[threadIdx.x] = row_spot(a, batch, min_of(first + threadIdx.x, a.rows - 1));
  // The queries go through the keys' place.
#pragma unroll 1
  for (u32 task = threadIdx.x; task < 64 * SIZE / 8; task += threads) {
    u32 row = task / (SIZE / 8), d = task % (SIZE / 8) * 8;
    u32 size = first + row < a.rows ? a.size : 0;
    *(Eight*)(keys + row * K_PITCH + d) = eight_of(q + (i64)(first + row) * a.q_row, a.q_at, d, size, false);
  }
  __syncthreads();
  Fragment query[SIZE / 16];
#pragma unroll
  for (int i = 0; i < SIZE / 16; i++) query[i] = load_left(keys + wave * 16 * K_PITCH + i * 16, K_PITCH, lane);

  const RowSpot* spots = row_spots + wave * 16;
  f32 top[MMA_ROWS], sum[MMA_ROWS];
#pragma unroll
  for (int r = 0; r < MMA_ROWS; r++) {
    top[r] = -INFINITY_OF(f32);
    sum[r] = 0;
  }
  Sums result[WIDTH / 16] = {};
  for (u32 base = 0; base < a.total; base += 64) {
    __syncthreads();
#pragma unroll LOADS
    for (u32 task = threadIdx.x; task < 64 * SIZE / 8; task += threads) {
      u32 key = task / (SIZE / 8), d = task % (SIZE / 8) * 8;
      u32 size = base + key < a.total ? a.size : 0;
      *(Eight*)(keys + key * K_PITCH + d) = eight_of(k + (i64)(base + key) * a.k_key, a.k_at, d, size, K_CHUNKS);
    }
    MMA_FENCE();
#pragma unroll LOADS
    for (u32 task = threadIdx.x; task < 32 * WIDTH / 8; task += threads) {
      u32 key = task % 32 * 2, e = task / 32 * 8;
      Eight x = eight_of(v + (i64)(base + key) * a.v_key, a.v_at, e, base + key < a.total ? a.width : 0, V_CHUNKS);
      Eight y =
          eight_of(v + (i64)(base + key + 1) * a.v_key, a.v_at, e, base + key + 1 < a.total ? a.width : 0, V_CHUNKS);
#pragma unroll
      for (int i = 0; i < 8; i++)
        *(u32*)(values + (e + i) * V_PITCH + key) = (u32)x.at[i].bits | (u32)y.at[i].bits << 16;
    }
    __syncthreads();
    Sums s[4] = {};
#pragma unroll
    for (int i = 0; i < SIZE / 16; i++) {
#pragma unroll
      for (int j = 0; j < 4; j++) mma<T>(s[j], query[i], load_right(keys + j * 16 * K_PITCH + i * 16, K_PITCH, lane));
      MMA_FENCE();
    }
#pragma unroll
    for (int r = 0; r < MMA_ROWS; r++) {
      f32 larger = top[r];
#pragma unroll
      for (int j = 0; j < 4; j++)
#pragma unroll
        for (int c = 0; c < MMA_COLUMNS; c++) {
          u32 key = base + j * 16 + mma_column(lane, c);
          f32& at = s[j].at[mma_at(r, c)];
          // Without a branch: keys beyond the last are the last once more.
          f32 value = score(a, at * a.alpha, spots[mma_row(lane, r)], min_of(key, a.total - 1));
          at = key < a.total ? value : -INFINITY_OF(f32);
          larger = max_of(larger, at);
        }
#pragma unroll
      for (int mask = MMA_COLUMNS == 1 ? 8 : 2; mask; mask >>= 1) larger = max_of(larger, SHFL_XOR(larger, mask));
      f32 shift = shift_of(larger), before = weight_of(top[r], shift), more = 0;
      top[r] = larger;
#pragma unroll
      for (int j = 0; j < 4; j++)
#pragma unroll
        for (int c = 0; c < MMA_COLUMNS; c++) {
          f32 weight = weight_of(s[j].at[mma_at(r, c)], shift);
          more += weight;
          weights[mma_row(lane, r) * V_PITCH + j * 16 + mma_column(lane, c)] = put<T>(weight).bits;
        }
      // Summed over the lanes of the row at the end.
      sum[r] = sum[r] * before + more;
#pragma unroll
      for (int n = 0; n < WIDTH / 16; n++)
#pragma unroll
        for (int c = 0; c < MMA_COLUMNS; c++) result[n].at[mma_at(r, c)] *= before;
      MMA_FENCE();
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 4; i++) {
      Fragment weight = load_left(weights + i * 16, V_PITCH, lane);
#pragma unroll
      for (int n = 0; n < WIDTH / 16; n++) {
        mma<T>(result[n], weight, load_right(values + n * 16 * V_PITCH + i * 16, V_PITCH, lane));
        if (n % 4 == 3) MMA_FENCE();
      }
    }
  }
#pragma unroll
  for (int r = 0; r < MMA_ROWS; r++) {
#pragma unroll
    for (int mask = MMA_COLUMNS == 1 ? 8 : 2; mask; mask >>= 1) sum[r] += SHFL_XOR(sum[r], mask);
    if (first + wave * 16 + mma_row(lane, r) >= a.rows) continue;
    f32 factor = factor_of(a, sum[r]);
#pragma unroll
    for (int n = 0; n < WIDTH / 16; n++)
#pragma unroll
      for (int c = 0; c < MMA_COLUMNS; c++) {
        u32 e = n * 16 + mma_column(lane, c);
        if (e < a.width) a.out[spots[mma_row(lane, r)].out + (i64)e * a.out_at] = put<T>(result[n].at[mma_at(r, c)] * factor);
      }
  }
}
