// Attention of few rows over a cache, or without matrix instructions: a block reads the keys and values of its part once for
// all of its rows. LANES lanes share a key, 16 bytes of it each or twice that, and every such team has a softmax of its own,
// until they meet at the end.
//
// ROWS: rows of a block. KEYS: keys of a team at a time. LANES: a power of two, at most 32. E: elements of a lane.
// PACKED: 16 bytes of a key or value are read at once. ONE: all rows are of one token, and see the same keys. Queries lie in
// LDS; those of few rows are kept in registers too.
#define THREADS 128
#define V (16 / (int)sizeof(T))
#define ROOM (LANES * E)
#define TEAMS (THREADS / LANES)
#if defined(__CUDACC_RTC__)
// Left alone, the twin's compiler spills a few registers for blocks that the grid does not have.
#undef KERNEL_BOUNDS
#define KERNEL_BOUNDS(threads) __launch_bounds__(threads, ROWS > 4 ? 2 : 4)
#endif
typedef Pack<T, V> Chunk;
struct __align__(16) Numbers { f32 at[E]; };
// What a row sees, and where its bias begins.
struct __align__(16) RowSpot { Range seen; i64 bias; };
struct Part { Chunk at[E / V]; };

// The elements of a lane: chunks of a row, with those of the other lanes between them.
DEV Part load_part(const T* row, u32 lane, u32 extent) {
  Part r = {};
#pragma unroll
  for (u32 c = 0; c < E / V; c++) {
    u32 d = (c * LANES + lane) * V;
#if PACKED
    if (d < extent) r.at[c] = *(const Chunk*)(row + d);
#else
#pragma unroll
    for (u32 i = 0; i < V; i++)
      if (d + i < extent) r.at[c].at[i] = row[d + i];
#endif
  }
  return r;
}
DEV f32 part_at(const Part& p, int e) { return get(p.at[e / V].at[e % V]); }

KERNEL(cached_rows, THREADS, CachedArgs) {
  SHARED(Numbers, queries, ROWS * LANES);
  SHARED(RowSpot, spots, ROWS);
  SHARED(f32, tops, THREADS / MIN_WARP * ROWS);
  SHARED(f32, sums, THREADS / MIN_WARP * ROWS);
  SHARED(f32, parts, THREADS / MIN_WARP * ROOM);
  SHARED(f32, shares, ROWS * MOST_PARTS);
  SHARED(u32, is_last, 1);
  const Task t = task_of<TEAMS * KEYS>(a);
  if (blockIdx.y >= t.parts) return;
  const u32 team = threadIdx.x / LANES, lane = threadIdx.x % LANES;
  const T* k = a.k + (i64)t.batch * a.k_batch + (i64)t.head * a.k_head;
  const T* v = a.v + (i64)t.batch * a.v_batch + (i64)t.head * a.v_head;

  // Rows beyond the last are the last once more.
  for (u32 at = threadIdx.x; at < ROWS * LANES; at += THREADS) {
    Part p = load_part(a.q + query_at(a, t, t.first + min_of(at / LANES, t.count - 1)), at % LANES, a.size);
#pragma unroll
    for (int e = 0; e < E; e++) queries[at].at[e] = part_at(p, e) * factor_of(a);
  }
  if (threadIdx.x < ROWS) {
    u32 row = t.first + min_of((u32)threadIdx.x, t.count - 1);
    RowSpot spot;
    spot.seen = seen_by(a, t.before, token_of(a, row));
    spot.bias = bias_at(a, t, row);
    spots[threadIdx.x] = spot;
  }
  f32 o[ROWS][E], top[ROWS], sum[ROWS];
#pragma unroll
  for (u32 r = 0; r < ROWS; r++) {
#pragma unroll
    for (int e = 0; e < E; e++) o[r][e] = 0;
    top[r] = -INFINITY_OF(f32);
    sum[r] = 0;
  }
  __syncthreads();
  for (u32 base = t.keys.start; base < t.keys.end; base += TEAMS * KEYS) {
    Part x[KEYS], y[KEYS];
    f32 s[ROWS][KEYS];
    // Keys beyond the last are the last once more, and weigh nothing.
#pragma unroll
    for (u32 j = 0; j < KEYS; j++) {
      u32 key = min_of(base + j * TEAMS + team, t.keys.end - 1);
      x[j] = load_part(k + (i64)key * a.k_key, lane, a.size);
      y[j] = load_part(v + (i64)key * a.v_key, lane, a.width);
    }
    // Compilers do not know that this is 0, and leave what belongs to many rows in LDS.
    const u32 none = ROWS > 2 ? base >> 31 : 0;
    const Numbers* mine = queries + lane + none;
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
      const Numbers q = mine[r * LANES];
#pragma unroll
      for (int j = 0; j < KEYS; j++) {
        s[r][j] = 0;
#pragma unroll
        for (int e = 0; e < E; e++) s[r][j] += q.at[e] * part_at(x[j], e);
      }
    }
#pragma unroll
    for (int mask = LANES / 2; mask; mask >>= 1)
#pragma unroll
      for (int r = 0; r < ROWS; r++)
#pragma unroll
        for (int j = 0; j < KEYS; j++) s[r][j] += SHFL_XOR(s[r][j], mask);
#pragma unroll
    for (u32 r = 0; r < ROWS; r++) {
      const RowSpot spot = spots[r + none];
      f32 larger = top[r];
#pragma unroll
      for (u32 j = 0; j < KEYS; j++) {
        u32 key = base + j * TEAMS + team;
        bool is_seen = key < t.keys.end && (ONE || (key >= spot.seen.start && key < spot.seen.end));
        s[r][j] = is_seen ? score_of(a, s[r][j], spot.bias, key) : -INFINITY_OF(f32);
        larger = max_of(larger, s[r][j]);
      }
      f32 shift = shift_of(larger), before = exp2f(top[r] - shift);
      top[r] = larger;
      sum[r] *= before;
#pragma unroll
      for (int e = 0; e < E; e++) o[r][e] *= before;
#pragma unroll
      for (int j = 0; j < KEYS; j++) {
        s[r][j] = exp2f(s[r][j] - shift);
        sum[r] += s[r][j];
      }
    }
#pragma unroll
    for (int j = 0; j < KEYS; j++) {
      f32 value[E];
#pragma unroll
      for (int e = 0; e < E; e++) value[e] = part_at(y[j], e);
#pragma unroll
      for (int r = 0; r < ROWS; r++)
#pragma unroll
        for (int e = 0; e < E; e++) o[r][e] += s[r][j] * value[e];
    }
  }
  // The teams of a wave meet, then the waves.
  for (int mask = LANES; mask < WARP; mask <<= 1)
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
      f32 larger = max_of(top[r], SHFL_XOR(top[r], mask)), share = exp2f(top[r] - shift_of(larger));
      top[r] = larger;
      sum[r] *= share;
      sum[r] += SHFL_XOR(sum[r], mask);
#pragma unroll
      for (int e = 0; e < E; e++) {
        o[r][e] *= share;
        o[r][e] += SHFL_XOR(o[r][e], mask);
      }
    }
  const u32 wave = threadIdx.x / WARP, waves = THREADS / WARP;
  if (threadIdx.x % WARP == 0)
    for (int r = 0; r < ROWS; r++) {
      tops[wave * ROWS + r] = top[r];
      sums[wave * ROWS + r] = sum[r];
    }
  __syncthreads();
#pragma unroll
  for (u32 r = 0; r < ROWS; r++) {
    f32 largest = tops[r], weights = 0;
    for (u32 w = 1; w < waves; w++) largest = max_of(largest, tops[w * ROWS + r]);
    f32 shift = shift_of(largest), share = exp2f(top[r] - shift);
    for (u32 w = 0; w < waves; w++) weights += sums[w * ROWS + r] * exp2f(tops[w * ROWS + r] - shift);
    if (threadIdx.x % WARP < LANES)
#pragma unroll
      for (u32 e = 0; e < E; e++) parts[wave * ROOM + (e / V * LANES + lane) * V + e % V] = o[r][e] * share;
    __syncthreads();
    if (r < t.count) {
      f32 factor = t.parts == 1 ? share_of(a, t, t.first + r, largest, weights) : 1.0f;
      T* out = a.out + out_at(a, t, t.first + r);
      f32* partial = partial_at(a, blockIdx.y, r);
      for (u32 e = threadIdx.x; e < a.width; e += THREADS) {
        f32 value = parts[e];
        for (u32 w = 1; w < waves; w++) value += parts[w * ROOM + e];
        if (t.parts == 1)
          out[e] = put<T>(value * factor);
        else
          partial[e] = value;
      }
      if (t.parts > 1 && threadIdx.x == 0) {
        partial[a.width] = largest;
        partial[a.width + 1] = weights;
      }
    }
    __syncthreads();
  }
  if (t.parts > 1) merge<THREADS>(a, t, shares, is_last);
}
