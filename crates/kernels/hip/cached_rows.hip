// Attention of few rows over a cache, or without matrix instructions: a block reads the keys and values of its part
// once for all of its rows. LANES lanes share a key, with 16 or 32 bytes each. Every such team computes its own
// softmax, and the teams combine their results at the end. A token usually waits for this kernel alone, so waves do
// little work each, and load the next data while they compute.
//
// ROWS: rows per block. KEYS: keys that a team processes at a time. LANES: a power of two, at most 32. E: elements per
// lane. PACKED: 16 bytes of a key or value are read at once. ONE: all rows belong to one token, and see the same keys.
// Queries are in LDS. With N parts, part p processes STEP keys from p * STEP on, and then after every N * STEP.
#define BLOCK 128
#define V (16 / (int)sizeof(T))
#define ROOM (LANES * E)
#define TEAMS (BLOCK / LANES)
#define STEP (TEAMS * KEYS)
#if defined(GPU_SIM)
#define WAVES (BLOCK / MIN_WARP)
#else
#define WAVES (BLOCK / WARP)
#endif
#if defined(__CUDACC_RTC__)
// By default, the twin's compiler spills a few registers to allow for more blocks than the grid has.
#undef KERNEL_BOUNDS
#define KERNEL_BOUNDS(threads) __launch_bounds__(threads, ROWS > 4 ? 2 : 4)
#endif
typedef Pack<T, V> Chunk;
struct __align__(16) Numbers { f32 at[E]; };
// The keys that a row sees, and the offset of its bias.
struct __align__(16) RowSpot { Range seen; i64 bias; };
struct Part { Chunk at[E / V]; };
typedef Meeting<BLOCK, WAVES, ROOM> Ends;

// The elements of a lane: chunks of a row, interleaved with those of the other lanes.
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
#if NEWEST
DEV Part turned_part(const T* row, u32 lane, u32 extent, const Angles& angles) {
  Part r = {};
#pragma unroll
  for (u32 c = 0; c < E / V; c++) {
    const u32 d = (c * LANES + lane) * V;
    if (d < extent) r.at[c] = turned_pack<V>(row, 1, d, angles);
  }
  return r;
}
DEV void store_part(T* row, const Part& p, u32 lane, u32 extent) {
#pragma unroll
  for (u32 c = 0; c < E / V; c++) {
    const u32 d = (c * LANES + lane) * V;
    if (d < extent) *(Chunk*)(row + d) = p.at[c];
  }
}
#endif
DEV f32 part_at(const Part& p, int e) { return get(p.at[e / V].at[e % V]); }

// The keys of a team from `base` on; keys past the end repeat the last one, with a weight of zero.
DEV void load_keys(Part* parts, const CachedArgs& a, const Task& t, const T* rows, i64 pitch, u32 base, u32 last,
                   u32 extent) {
#pragma unroll
  for (u32 j = 0; j < KEYS; j++) {
    u32 key = min_of(base + j * TEAMS + threadIdx.x / LANES, last);
    parts[j] = load_part(rows + row_of_key(a, t, key) * pitch, threadIdx.x % LANES, extent);
  }
}

KERNEL(cached_rows, BLOCK, CachedArgs) {
  SHARED(Numbers, queries, ROWS * LANES);
  SHARED(RowSpot, spots, ROWS);
  SHARED(Scale, scales, Ends::SCALES);
  SHARED(Quad, sums, Ends::SUMS);
  SHARED(u32, is_last, 1);
  Task t = rows_of(a);
  const u32 end = t.keys.end, last = (NEWEST || PAGED) && end == 0 ? 0 : end - 1;
  t.parts = max_of(1u, min_of(a.parts, (end - t.keys.start + STEP - 1) / STEP));
#if NEWEST
  copy_past<BLOCK, V>(a, t);
#endif
  if (blockIdx.y >= t.parts) return;
  const u32 lane = threadIdx.x % LANES, team = threadIdx.x / LANES;
  const T* k = a.k + (i64)t.batch * a.k_batch + (i64)t.head * a.k_head;
  const T* v = a.v + (i64)t.batch * a.v_batch + (i64)t.head * a.v_head;
  u32 base = t.keys.start + blockIdx.y * STEP;
  Part x[KEYS], y[KEYS];
  load_keys(x, a, t, k, a.k_key, base, last, a.size);
  load_keys(y, a, t, v, a.v_key, base, last, a.width);

#if NEWEST
  const Newest newest = newest_of(a, t);
  Part newest_key = {};
  if (has_newest(t)) newest_key = turned_part(newest.key, lane, a.size, newest.angles);
#endif
  // Rows past the end repeat the last one.
  for (u32 at = threadIdx.x; at < ROWS * LANES; at += BLOCK) {
    const T* row = a.q + query_at(a, t, t.first + min_of(at / LANES, t.count - 1));
#if NEWEST
    Part p = turned_part(row, at % LANES, a.size, newest.angles);
#else
    Part p = load_part(row, at % LANES, a.size);
#endif
#pragma unroll
    for (int e = 0; e < E; e++) queries[at].at[e] = part_at(p, e) * factor_of(a);
  }
#if !ONE || EXTRA
  if (threadIdx.x < ROWS) {
    u32 row = t.first + min_of((u32)threadIdx.x, t.count - 1);
    RowSpot spot;
    spot.seen = seen_by(a, t.before, token_of(a, row));
    spot.bias = bias_at(a, t, row);
    spots[threadIdx.x] = spot;
  }
#endif
  f32 o[ROWS][E];
  Scale scale[ROWS];
#pragma unroll
  for (u32 r = 0; r < ROWS; r++) {
#pragma unroll
    for (u32 e = 0; e < E; e++) o[r][e] = 0;
    scale[r].top = -INFINITY_OF(f32);
    scale[r].sum = 0;
  }
  __syncthreads();
  const u32 wave = threadIdx.x / WARP, waves = BLOCK / WARP;
#if NEWEST
  if (has_newest(t)) {
    // Its weight for each row; a team handles one row at a time.
#pragma unroll
    for (u32 first = 0; first < ROWS; first += TEAMS) {
      const u32 row = min_of(first + team, ROWS - 1u);
      f32 product = 0;
#pragma unroll
      for (int e = 0; e < E; e++) product += queries[row * LANES + lane].at[e] * part_at(newest_key, e);
#pragma unroll
      for (int mask = LANES / 2; mask; mask >>= 1) product += SHFL_XOR(product, mask);
      const i64 bias = EXTRA ? spots[row].bias : 0;
      if (lane == 0) scales[waves * ROWS + row] = {newest_score(a, t, product, bias), 1.0f};
    }
    if (newest.is_stored && team == 0) {
      store_part(newest_row(a, t, a.out_k, a.size), newest_key, lane, a.size);
      store_part(newest_row(a, t, a.out_v, a.width), load_part(newest.value, lane, a.width), lane, a.width);
    }
  }
#endif
#pragma unroll 1
  while (base < end) {
    const u32 next = base + a.parts * STEP;
    f32 s[ROWS][KEYS];
    // Always 0, but compilers do not know that, so they keep the data of many rows in LDS.
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
    if (next < end) load_keys(x, a, t, k, a.k_key, next, last, a.size);
#pragma unroll
    for (int mask = LANES / 2; mask; mask >>= 1)
#pragma unroll
      for (int r = 0; r < ROWS; r++)
#pragma unroll
        for (int j = 0; j < KEYS; j++) s[r][j] += SHFL_XOR(s[r][j], mask);
#pragma unroll
    for (u32 r = 0; r < ROWS; r++) {
      RowSpot spot = {};
#if !ONE || EXTRA
      spot = spots[r + none];
#endif
      f32 larger = scale[r].top;
#pragma unroll
      for (u32 j = 0; j < KEYS; j++) {
        u32 key = base + j * TEAMS + team;
        bool is_seen = key < end && (ONE || (key >= spot.seen.start && key < spot.seen.end));
        s[r][j] = is_seen ? score_of(a, s[r][j], spot.bias, key) : -INFINITY_OF(f32);
        larger = max_of(larger, s[r][j]);
      }
      f32 shift = shift_of(larger), before = exp2_near(scale[r].top - shift);
      scale[r].top = larger;
      scale[r].sum *= before;
#pragma unroll
      for (int e = 0; e < E; e++) o[r][e] *= before;
#pragma unroll
      for (int j = 0; j < KEYS; j++) {
        s[r][j] = exp2_near(s[r][j] - shift);
        scale[r].sum += s[r][j];
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
    if (next < end) load_keys(y, a, t, v, a.v_key, next, last, a.width);
    base = next;
  }

  // Combines the teams of a wave. At each step a lane keeps half of its sums, and exchanges the other half for its
  // partner's.
#pragma unroll
  for (int r = 0; r < ROWS; r++) {
    const f32 own = scale[r].top;
#pragma unroll
    for (int mask = LANES; mask < WARP; mask <<= 1) scale[r].top = max_of(scale[r].top, SHFL_XOR(scale[r].top, mask));
    const f32 share = exp2_near(own - shift_of(scale[r].top));
    scale[r].sum *= share;
#pragma unroll
    for (int mask = LANES; mask < WARP; mask <<= 1) scale[r].sum += SHFL_XOR(scale[r].sum, mask);
#pragma unroll
    for (int e = 0; e < E; e++) o[r][e] *= share;
    if (threadIdx.x % WARP == 0) scales[wave * ROWS + r] = scale[r];
  }
  f32 kept[ROWS * E];
#pragma unroll
  for (u32 i = 0; i < ROWS * E; i++) kept[i] = o[i / E][i % E];
  u32 first = 0;
#pragma unroll
  for (u32 mask = LANES; mask < WARP; mask <<= 1) {
    const u32 half = ROWS * E * LANES / 2 / mask;
    const bool is_upper = (threadIdx.x & mask) != 0;
#pragma unroll
    for (u32 i = 0; i < ROWS * E / 2; i++)
      if (i < half) {
        const f32 lower = kept[i], upper = kept[i + half];
        kept[i] = (is_upper ? upper : lower) + SHFL_XOR(is_upper ? lower : upper, mask);
      }
    if (half == 0) kept[0] += SHFL_XOR(kept[0], mask);
    if (is_upper) first += half;
  }
  f32* own = (f32*)(sums + wave * Ends::QUADS);
#pragma unroll
  for (u32 i = 0; i < ROWS * E; i++)
    if (i < max_of(1u, (u32)(ROWS * E * LANES / WARP))) {
      u32 at = first + i, e = at % E;
      own[at / E * ROOM + (e / V * LANES + lane) * V + e % V] = kept[i];
    }
  __syncthreads();
  Ends::meet(a, t, waves, sums, scales, is_last);
}
