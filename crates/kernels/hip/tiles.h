// Attention of many rows with matrix instructions, as both families of attention do it: a block of WAVES waves has
// BLOCK_ROWS rows, and walks over the keys, KEYS at a time. A wave has 16 * QUERIES rows; what it has summed up is scaled down
// whenever a larger score turns up. Weights stay in their lanes between the two products (see mma.h).
//
// SPLIT: 2 if two waves have their rows together, because one has no room for them: each has half of a query's elements, and of
// a value's. What each one's products with a key add up to, both add up.
//
// SIZE, WIDTH: of a query and of a value, rounded up to multiples of 16, and of 32 where either is above 128. PLAIN: 1 if
// scores are products times a factor above 0. Keys lie in LDS as they are, values so that they can be the second factor of a chain. While products with the keys are
// made, values are on their way, and while these are multiplied, the next keys are: in registers, or on the twin by the
// copies it has for that.
#define QUERIES (BLOCK_ROWS * SPLIT / 16 / WAVES)
#define THREADS (WAVES * WAVE)
#define K_PITCH (SIZE + 8)
#define V_PITCH ((CHAIN_TURNS ? WIDTH : KEYS) + 8)
// Elements that a wave has of its rows.
#define OWN_SIZE (SIZE / SPLIT)
#define OWN_WIDTH (WIDTH / SPLIT)
// Chunks of eight elements. Sums go through the keys' place if both waves need them, and queries through the values', 16 of
// each wave at a time, of long ones half.
#define SUM_CHUNKS (SPLIT > 1 ? BLOCK_ROWS * SPLIT * KEYS / 4 : 0)
#define KEY_CHUNKS (KEYS * K_PITCH / 8 > SUM_CHUNKS ? KEYS * K_PITCH / 8 : SUM_CHUNKS)
#define QUERY_ROWS (16 * WAVES / SPLIT)
#define QUERY_PARTS (SIZE > 128 || SPLIT > 1 ? 2 : 1)
#define PART_SIZE (SIZE / QUERY_PARTS)
#define PART_PITCH (PART_SIZE + 8)
#define QUERY_CHUNKS (QUERY_ROWS * PART_PITCH / 8)
#define VALUE_CHUNKS ((CHAIN_TURNS ? KEYS : WIDTH) * V_PITCH / 8)
#define VALUE_PLACE (VALUE_CHUNKS > QUERY_CHUNKS ? VALUE_CHUNKS : QUERY_CHUNKS)
// Nothing is moved across it: WMMA's fragments leave no room for what would be read too early.
#if (MATRIX == 2 || MATRIX == 3) && !defined(GPU_SIM)
#define TILE_FENCE() __builtin_amdgcn_sched_barrier(0)
#else
#define TILE_FENCE()
#endif
typedef Pack<T, 8> Eight;

// Rows of `elems` elements, of which those from `end` on are zeros. EIGHTS: eight elements can be read at once.
template <bool EIGHTS> struct Rows {
  const T* start;
  i64 row, at;
  u32 end, elems;
};
template <bool EIGHTS> DEV Eight eight_of(const Rows<EIGHTS>& from, u32 row, u32 at) {
  Eight r = {};
  if (row >= from.end) return r;
  const T* start = from.start + (i64)row * from.row;
  if (EIGHTS) {
    if (at < from.elems) r = *(const Eight*)(start + at);
    return r;
  }
#pragma unroll
  for (u32 i = 0; i < 8; i++)
    if (at + i < from.elems) r.at[i] = start[(i64)(at + i) * from.at];
  return r;
}

// A tile on its way into LDS: COUNT rows of ELEMS elements. TURNED: elements become rows, and two rows two elements. What
// can't be read in chunks, or has no room, is read when it is needed.
template <int COUNT, int ELEMS, int PITCH, bool TURNED, bool EIGHTS> struct Flight {
  static constexpr int ROWS = COUNT, LENGTH = ELEMS, LDS_PITCH = PITCH;
  static constexpr bool IS_TURNED = TURNED, IS_FULL = !PLAIN || (SPLIT > 1 && !TURNED);
  static constexpr bool IS_LATE = !EIGHTS || (MATRIX == 2 && IS_FULL && ELEMS > 64);
#ifdef __CUDACC_RTC__
  static constexpr bool IS_DIRECT = EIGHTS && !TURNED;
#else
  static constexpr bool IS_DIRECT = false;
#endif
  static constexpr int TOGETHER = TURNED ? 2 : 1;
  static constexpr int TASKS = COUNT / TOGETHER * (ELEMS / 8);
  static constexpr int EACH = (TASKS + THREADS - 1) / THREADS;
  // Whether a thread's tasks are the same elements of every STEP-th row.
  static constexpr bool IS_EVEN = TASKS % THREADS == 0 && THREADS % (ELEMS / 8) == 0;
  static constexpr int STEP = THREADS / (ELEMS / 8);
  Eight held[IS_DIRECT || IS_LATE ? 1 : EACH][TOGETHER];
};
// A task's row and element: neighbours write neighbours.
template <class F> DEV void place_of(const F&, u32 task, u32& row, u32& at) {
  row = F::IS_TURNED ? task % (F::ROWS / 2) * 2 : task / (F::LENGTH / 8);
  at = (F::IS_TURNED ? task / (F::ROWS / 2) : task % (F::LENGTH / 8)) * 8;
}
#ifdef __CUDACC_RTC__
// A chunk, or zeros, into LDS; nothing waits for it.
DEV void copy_chunk(u32 to, const T* from, bool is_in) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" : : "r"(to), "l"(from), "r"(is_in ? 16 : 0) : "memory");
}
#endif
template <class F> DEV void put_task(const F&, u16* tile, u32 row, u32 at, const Eight* held) {
  if (!F::IS_TURNED) {
    *(Eight*)(tile + row * F::LDS_PITCH + at) = held[0];
    return;
  }
#pragma unroll
  for (int i = 0; i < 8; i++)
    *(u32*)(tile + (at + i) * F::LDS_PITCH + row) = (u32)held[0].at[i].bits | (u32)held[F::TOGETHER - 1].at[i].bits << 16;
}
template <class F, bool EIGHTS> DEV void start(F& flight, u16* tile, const Rows<EIGHTS>& from, u32 first) {
  if (F::IS_LATE) return;
#ifdef __CUDACC_RTC__
  if (F::IS_DIRECT && F::IS_EVEN) {
    u32 row, at;
    place_of(flight, threadIdx.x, row, at);
    const T* source = from.start + (i64)(first + row) * from.row + at;
    u32 left = at < from.elems && first + row < from.end ? from.end - first - row : 0;
    const u32 target = (u32)__cvta_generic_to_shared(tile + row * F::LDS_PITCH + at);
#pragma unroll
    for (int n = 0; n < F::EACH; n++) {
      copy_chunk(target + n * F::STEP * F::LDS_PITCH * 2, source, n * F::STEP < left);
      source += F::STEP * from.row;
    }
    return;
  }
#endif
#pragma unroll
  for (int n = 0; n < F::EACH; n++) {
    u32 task = threadIdx.x + n * THREADS, row, at;
    place_of(flight, task, row, at);
    if (F::TASKS % THREADS && task >= F::TASKS) continue;
    if (!F::IS_DIRECT) {
#pragma unroll
      for (int i = 0; i < F::TOGETHER; i++) flight.held[n][i] = eight_of(from, first + row + i, at);
      continue;
    }
#ifdef __CUDACC_RTC__
    copy_chunk((u32)__cvta_generic_to_shared(tile + row * F::LDS_PITCH + at), from.start + (i64)(first + row) * from.row + at,
               first + row < from.end && at < from.elems);
#endif
  }
}
// What start() was given, once more.
template <class F, bool EIGHTS> DEV void land(const F& flight, u16* tile, const Rows<EIGHTS>& from, u32 first) {
#ifdef __CUDACC_RTC__
  if (F::IS_DIRECT) asm volatile("cp.async.wait_all;" ::: "memory");
#endif
  if (F::IS_DIRECT) return;
  if (F::IS_LATE) {
#pragma unroll 1
    for (u32 task = threadIdx.x; task < F::TASKS; task += THREADS) {
      u32 row, at;
      place_of(flight, task, row, at);
      Eight held[F::TOGETHER];
#pragma unroll
      for (int i = 0; i < F::TOGETHER; i++) held[i] = eight_of(from, first + row + i, at);
      put_task(flight, tile, row, at, held);
    }
    return;
  }
#pragma unroll
  for (int n = 0; n < F::EACH; n++) {
    u32 task = threadIdx.x + n * THREADS, row, at;
    place_of(flight, task, row, at);
    if (F::TASKS % THREADS == 0 || task < F::TASKS) put_task(flight, tile, row, at, flight.held[n]);
  }
}

// A wave's rows: their largest scores, sums of weights and of weighted values, by a chain's rows and columns.
struct Attended {
  f32 top[QUERIES][CHAIN_ROWS], sum[QUERIES][CHAIN_ROWS];
  Sums result[QUERIES][OWN_WIDTH / 16];
};
// Which rows a wave has, and which part of their elements.
DEV u32 team_of() { return threadIdx.x / WAVE / SPLIT; }
DEV u32 part_of() { return threadIdx.x / WAVE % SPLIT; }
// A lane's row r of fragment f, as the block's rows count.
DEV u32 row_of(int f, int r) { return (team_of() * QUERIES + f) * 16 + chain_row(threadIdx.x % WAVE, r); }

// Keys from `start` to `end`; of these from inner_start to inner_end all rows of the block see all.
struct Seen { u32 start, end, inner_start, inner_end; };

// Adds up what two waves have of the same scores. All have read the keys before.
DEV void join(Sums (&scores)[QUERIES][KEYS / 16], u16* keys) {
  typedef Pack<f32, 4> Four;
  constexpr int EACH = MMA_SUMS / 4, FRAGMENTS = QUERIES * KEYS / 16;
  Four* places = (Four*)keys + threadIdx.x % WAVE;
  const u32 wave = threadIdx.x / WAVE;
  __syncthreads();
#pragma unroll
  for (int n = 0; n < FRAGMENTS * EACH; n++) {
    const f32* sums = scores[n / EACH / (KEYS / 16)][n / EACH % (KEYS / 16)].at + n % EACH * 4;
    places[(wave * FRAGMENTS * EACH + n) * WAVE] = {{sums[0], sums[1], sums[2], sums[3]}};
  }
  __syncthreads();
#pragma unroll
  for (int n = 0; n < FRAGMENTS * EACH; n++) {
    f32* sums = scores[n / EACH / (KEYS / 16)][n / EACH % (KEYS / 16)].at + n % EACH * 4;
    const Four others = places[((wave ^ 1) * FRAGMENTS * EACH + n) * WAVE];
#pragma unroll
    for (int i = 0; i < 4; i++) sums[i] += others.at[i];
  }
}

// A block's rows over the keys that they see. `query_of(row, at)` gives eight elements of one of the block's rows, and
// `score(product, row, key)` a score; of inner keys it is the product if scores are plain. Powers of two of scores times `unit`
// are weights.
template <class Query, bool K_EIGHTS, bool V_EIGHTS, class Score>
DEV void attend(Attended& s, u16* keys, u16* values, Query query_of, const Rows<K_EIGHTS>& k, const Rows<V_EIGHTS>& v,
                const Seen& seen, f32 unit, Score score) {
  const u32 lane = threadIdx.x % WAVE, part = part_of();
  Flight<KEYS, SIZE, K_PITCH, false, K_EIGHTS> k_flight;
  Flight<KEYS, WIDTH, V_PITCH, !CHAIN_TURNS, V_EIGHTS> v_flight;
  start(k_flight, keys, k, seen.start);
  Fragment query[QUERIES][OWN_SIZE / 16];
#pragma unroll
  for (int f = 0; f < QUERIES; f++)
#pragma unroll
    for (int p = 0; p < QUERY_PARTS; p++) {
      // All are read before the first is put.
      constexpr int CHUNKS = PART_SIZE / 8, TASKS = QUERY_ROWS * CHUNKS, EACH = (TASKS + THREADS - 1) / THREADS;
      Eight held[EACH];
#pragma unroll
      for (int n = 0; n < EACH; n++) {
        u32 task = threadIdx.x + n * THREADS, row = task / CHUNKS;
        if (task < TASKS) held[n] = query_of((row / 16 * QUERIES + f) * 16 + row % 16, p * PART_SIZE + task % CHUNKS * 8);
      }
      if (f || p) __syncthreads();
#pragma unroll
      for (int n = 0; n < EACH; n++) {
        u32 task = threadIdx.x + n * THREADS;
        if (task < TASKS) *(Eight*)(values + task / CHUNKS * PART_PITCH + task % CHUNKS * 8) = held[n];
      }
      __syncthreads();
      if (SPLIT > 1 && part != p) continue;
#pragma unroll
      for (int i = 0; i < PART_SIZE / 16; i++)
        query[f][(SPLIT > 1 ? 0 : p * PART_SIZE / 16) + i] =
            load_left(values + team_of() * 16 * PART_PITCH + i * 16, PART_PITCH, lane);
    }
#pragma unroll
  for (int f = 0; f < QUERIES; f++) {
#pragma unroll
    for (int r = 0; r < CHAIN_ROWS; r++) {
      s.top[f][r] = -INFINITY_OF(f32);
      s.sum[f][r] = 0;
    }
#pragma unroll
    for (int n = 0; n < OWN_WIDTH / 16; n++) s.result[f][n] = {};
  }
#pragma unroll 1
  for (u32 base = seen.start; base < seen.end; base += KEYS) {
    land(k_flight, keys, k, base);
    __syncthreads();
    start(v_flight, values, v, base);
    TILE_FENCE();
    Sums scores[QUERIES][KEYS / 16] = {};
#pragma unroll
    for (int i = 0; i < OWN_SIZE / 16; i++) {
#pragma unroll
      for (int j = 0; j < KEYS / 16; j++) {
        Fragment key = load_right(keys + j * 16 * K_PITCH + part * OWN_SIZE + i * 16, K_PITCH, lane);
#pragma unroll
        for (int f = 0; f < QUERIES; f++) mma_chain<T>(scores[f][j], query[f][i], key);
      }
      TILE_FENCE();
    }
    if (SPLIT > 1) join(scores, keys);
    if (!PLAIN || base < seen.inner_start || base + KEYS > seen.inner_end) {
#pragma unroll
      for (int f = 0; f < QUERIES; f++)
#pragma unroll
        for (int j = 0; j < KEYS / 16; j++) {
#pragma unroll
          for (int r = 0; r < CHAIN_ROWS; r++)
#pragma unroll
            for (int c = 0; c < CHAIN_COLUMNS; c++) {
              f32& at = scores[f][j].at[chain_at(r, c)];
              at = score(at, row_of(f, r), base + j * 16 + chain_column(lane, c));
              if (c % 4 == 3) TILE_FENCE();
            }
        }
    }
    Fragment weights[QUERIES][KEYS / 16];
#pragma unroll
    for (int f = 0; f < QUERIES; f++) {
#pragma unroll
      for (int r = 0; r < CHAIN_ROWS; r++) {
        // Two of each, so that fewer wait for one another.
        f32 tops[2] = {s.top[f][r], s.top[f][r]};
#pragma unroll
        for (int j = 0; j < KEYS / 16; j++)
#pragma unroll
          for (int c = 0; c < CHAIN_COLUMNS; c++) tops[j % 2] = fmaxf(tops[j % 2], scores[f][j].at[chain_at(r, c)]);
        const f32 top = chain_max(fmaxf(tops[0], tops[1]));
        const f32 shift = shift_of(top) * unit, before = exp2_near(fmaf(s.top[f][r], unit, -shift));
        s.top[f][r] = top;
        f32 sums[2] = {s.sum[f][r] * before, 0};
#pragma unroll
        for (int j = 0; j < KEYS / 16; j++)
#pragma unroll
          for (int c = 0; c < CHAIN_COLUMNS; c++) {
            f32& at = scores[f][j].at[chain_at(r, c)];
            at = exp2_near(fmaf(at, unit, -shift));
            sums[j % 2] += at;
          }
        // Summed over the lanes of the row at the end.
        s.sum[f][r] = sums[0] + sums[1];
#pragma unroll
        for (int n = 0; n < OWN_WIDTH / 16; n++)
#pragma unroll
          for (int c = 0; c < CHAIN_COLUMNS; c++) s.result[f][n].at[chain_at(r, c)] *= before;
      }
#pragma unroll
      for (int j = 0; j < KEYS / 16; j++) weights[f][j] = chain<T>(scores[f][j], lane);
    }
    TILE_FENCE();
    land(v_flight, values, v, base);
    __syncthreads();
    if (base + KEYS < seen.end) start(k_flight, keys, k, base + KEYS);
    TILE_FENCE();
#pragma unroll
    for (int j = 0; j < KEYS / 16; j++)
#pragma unroll
      for (int n = 0; n < OWN_WIDTH / 16; n++) {
        const u32 at = part * OWN_WIDTH + n * 16;
        Fragment value = load_chained(CHAIN_TURNS ? values + j * 16 * V_PITCH + at : values + at * V_PITCH + j * 16, V_PITCH,
                                      lane);
#pragma unroll
        for (int f = 0; f < QUERIES; f++) mma_chain<T>(s.result[f][n], weights[f][j], value);
        if (n % 4 == 3) TILE_FENCE();
      }
  }
#pragma unroll
  for (int f = 0; f < QUERIES; f++)
#pragma unroll
    for (int r = 0; r < CHAIN_ROWS; r++) s.sum[f][r] = chain_sum(s.sum[f][r]);
}

// Writes the results of a wave's row, which is row r of fragment f, times `factor`. EIGHTS: rows are aligned to eight elements.
template <bool EIGHTS, class To> DEV void put_row(const Attended& s, int f, int r, To* to, i64 step, u32 width, f32 factor) {
  const u32 lane = threadIdx.x % WAVE;
#pragma unroll
  for (int n = 0; n < OWN_WIDTH / 16; n++)
#pragma unroll
    for (int c = 0; c < CHAIN_COLUMNS; c += CHAIN_RUN) {
      const u32 e = part_of() * OWN_WIDTH + n * 16 + chain_column(lane, c);
      Pack<To, CHAIN_RUN> run;
#pragma unroll
      for (int i = 0; i < CHAIN_RUN; i++) run.at[i] = put<To>(s.result[f][n].at[chain_at(r, c + i)] * factor);
      if (EIGHTS) {
        if (e < width) *(Pack<To, CHAIN_RUN>*)(to + e) = run;
        continue;
      }
#pragma unroll
      for (int i = 0; i < CHAIN_RUN; i++)
        if (e + i < width) to[(i64)(e + i) * step] = run.at[i];
    }
}
