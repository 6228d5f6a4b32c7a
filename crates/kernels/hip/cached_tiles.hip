// Attention of many rows over a cache with matrix instructions: a block of four waves has 64 rows, and walks over the keys
// that these see, 64 at a time. A wave has 16 rows; what it has summed up is scaled down whenever a larger score turns up.
//
// SIZE, WIDTH: size and width, rounded up to multiples of 16, at most 128. PACKED: eight elements of a row are read at once.
// WAVE: lanes. Keys lie in LDS as they are, values turned, so that both are rows of what is summed over; weights pass
// through LDS to become an operand.
#define K_PITCH (SIZE + 8)
#define V_PITCH 72
typedef Pack<T, 8> Eight;
// Loads on their way at a time; fragments of gfx11 leave less room.
constexpr int LOADS = MATRIX == 2 ? 2 : 4;

struct RowSpot {
  Range seen;
  i64 bias;
};

DEV Eight eight_of(const T* from, u32 at, u32 count) {
  Eight r = {};
#if PACKED
  if (at < count) r = *(const Eight*)(from + at);
#else
#pragma unroll
  for (u32 i = 0; i < 8; i++)
    if (at + i < count) r.at[i] = from[at + i];
#endif
  return r;
}

KERNEL(cached_tiles, 4 * WAVE, CachedArgs) {
  SHARED(Eight, k_tile, 64 * K_PITCH / 8);
  SHARED(Eight, v_tile, WIDTH * V_PITCH / 8);
  SHARED(Eight, p_tile, 64 * V_PITCH / 8);
  SHARED(RowSpot, row_spots, 64);
  SHARED(u32, is_last, 1);
  const Task t = task_of<64>(a);
  if (blockIdx.y >= t.parts) return;
  u16* keys = (u16*)k_tile;
  u16* values = (u16*)v_tile;
  const u32 lane = threadIdx.x % WAVE, wave = threadIdx.x / WAVE, threads = 4 * WAVE;
  u16* weights = (u16*)p_tile + wave * 16 * V_PITCH;
  const T* k = a.k + (i64)t.batch * a.k_batch + (i64)t.head * a.k_head;
  const T* v = a.v + (i64)t.batch * a.v_batch + (i64)t.head * a.v_head;

  if (threadIdx.x < 64) {
    // Rows beyond the last are the last once more.
    u32 row = t.first + min_of((u32)threadIdx.x, t.count - 1);
    RowSpot spot;
    spot.seen = seen_by(a, t.before, token_of(a, row));
    spot.bias = bias_at(a, t, row);
    row_spots[threadIdx.x] = spot;
  }
  // The queries go through the keys' place.
#pragma unroll 1
  for (u32 task = threadIdx.x; task < 64 * SIZE / 8; task += threads) {
    u32 row = task / (SIZE / 8), d = task % (SIZE / 8) * 8;
    const T* from = a.q + query_at(a, t, t.first + min_of(row, t.count - 1));
    *(Eight*)(keys + row * K_PITCH + d) = eight_of(from, d, a.size);
  }
  __syncthreads();
  Fragment query[SIZE / 16];
#pragma unroll
  for (int i = 0; i < SIZE / 16; i++) query[i] = load_left(keys + wave * 16 * K_PITCH + i * 16, K_PITCH, lane);

  const RowSpot* spots = row_spots + wave * 16;
  const f32 factor = factor_of(a);
  f32 top[MMA_ROWS], sum[MMA_ROWS];
#pragma unroll
  for (int r = 0; r < MMA_ROWS; r++) {
    top[r] = -INFINITY_OF(f32);
    sum[r] = 0;
  }
  Sums result[WIDTH / 16] = {};
  for (u32 base = t.keys.start; base < t.keys.end; base += 64) {
    __syncthreads();
#pragma unroll LOADS
    for (u32 task = threadIdx.x; task < 64 * SIZE / 8; task += threads) {
      u32 key = task / (SIZE / 8), d = task % (SIZE / 8) * 8;
      u32 size = base + key < t.keys.end ? a.size : 0;
      *(Eight*)(keys + key * K_PITCH + d) = eight_of(k + (i64)(base + key) * a.k_key, d, size);
    }
    MMA_FENCE();
#pragma unroll LOADS
    for (u32 task = threadIdx.x; task < 32 * WIDTH / 8; task += threads) {
      u32 key = task % 32 * 2, e = task / 32 * 8;
      Eight x = eight_of(v + (i64)(base + key) * a.v_key, e, base + key < t.keys.end ? a.width : 0);
      Eight y = eight_of(v + (i64)(base + key + 1) * a.v_key, e, base + key + 1 < t.keys.end ? a.width : 0);
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
      const RowSpot& spot = spots[mma_row(lane, r)];
      const u32 start = spot.seen.start, end = min_of(spot.seen.end, t.keys.end);
      f32 larger = top[r];
#pragma unroll
      for (int j = 0; j < 4; j++)
#pragma unroll
        for (int c = 0; c < MMA_COLUMNS; c++) {
          u32 key = base + j * 16 + mma_column(lane, c);
          f32& at = s[j].at[mma_at(r, c)];
          // Without a branch: keys beyond the last are the last once more.
          f32 value = score_of(a, at * factor, spot.bias, min_of(key, t.keys.end - 1));
          at = key >= start && key < end ? value : -INFINITY_OF(f32);
          larger = max_of(larger, at);
        }
#pragma unroll
      for (int mask = MMA_COLUMNS == 1 ? 8 : 2; mask; mask >>= 1) larger = max_of(larger, SHFL_XOR(larger, mask));
      f32 shift = shift_of(larger), before = exp2f(top[r] - shift), more = 0;
      top[r] = larger;
#pragma unroll
      for (int j = 0; j < 4; j++)
#pragma unroll
        for (int c = 0; c < MMA_COLUMNS; c++) {
          f32 weight = exp2f(s[j].at[mma_at(r, c)] - shift);
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
    const u32 row = wave * 16 + mma_row(lane, r);
    if (row >= t.count) continue;
    f32 share = t.parts == 1 ? share_of(a, t, t.first + row, top[r], sum[r]) : 1.0f;
    T* out = a.out + out_at(a, t, t.first + row);
    f32* partial = partial_at(a, blockIdx.y, row);
#pragma unroll
    for (int n = 0; n < WIDTH / 16; n++)
#pragma unroll
      for (int c = 0; c < MMA_COLUMNS; c++) {
        u32 e = n * 16 + mma_column(lane, c);
        f32 value = result[n].at[mma_at(r, c)];
        if (e >= a.width) continue;
        if (t.parts == 1)
          out[e] = put<T>(value * share);
        else
          partial[e] = value;
      }
    if (t.parts > 1 && mma_column(lane, 0) == 0) {
      partial[a.width] = top[r];
      partial[a.width + 1] = sum[r];
    }
  }
  // The numbers of all rows and parts fit where keys or weights were.
  if (t.parts > 1) merge<4 * WAVE>(a, t, (f32*)p_tile, is_last);
}
