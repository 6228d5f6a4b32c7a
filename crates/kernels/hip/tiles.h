// Attention of many rows with matrix instructions, as both families of attention do it: a block of WAVES waves has
// BLOCK_ROWS rows, and walks over the keys, KEYS at a time. A wave has 16 * QUERIES rows; its sums are scaled down
// whenever a larger score appears. Weights stay in their lanes between the two products (see mma.h).
//
// SPLIT: 2 if two waves share their rows, because one does not have enough registers: each has half of the elements of
// a query and of a value. Both add up the two partial products with a key.
//
// SIZE, WIDTH: of a query and of a value, rounded up to multiples of 16, or of 32 if either is above 128. PLAIN: 1 if
// scores are products times a factor above 0. Keys are stored in LDS unchanged, values so that they can be the second
// factor of a chain. While products with the keys are computed, values are loaded, and while values are multiplied, the
// next keys are loaded: into registers, or on the twin by asynchronous copies.
//
// AHEAD: 1 if scores are computed before the values of the previous keys are added, so that matrix instructions work on
// these while scores become weights. Keys and values then have two buffers each, and waves synchronise once for KEYS
// keys instead of twice.
#define QUERIES (BLOCK_ROWS * SPLIT / 16 / WAVES)
#define K_PITCH (SIZE + 8)
#define V_PITCH ((CHAIN_TURNS ? WIDTH : KEYS) + 8)
// Elements of its rows that a wave has.
#define OWN_SIZE (SIZE / SPLIT)
#define OWN_WIDTH (WIDTH / SPLIT)
// In chunks of eight elements. Sums pass through the buffer of the keys if both waves need them, and queries through
// that of the values, 16 of each wave at a time, or half of long ones. The twin reads queries directly from memory.
#define SUM_CHUNKS (SPLIT > 1 ? BLOCK_ROWS * SPLIT * KEYS / 4 : 0)
#define PLACES (AHEAD ? 2 : 1)
#define KEY_CHUNKS (PLACES * KEYS * K_PITCH / 8 > SUM_CHUNKS ? PLACES * KEYS * K_PITCH / 8 : SUM_CHUNKS)
#define QUERY_ROWS (16 * WAVES / SPLIT)
#define QUERY_PARTS (SIZE > 128 || SPLIT > 1 ? 2 : 1)
#define PART_SIZE (SIZE / QUERY_PARTS)
#define PART_PITCH (PART_SIZE + 8)
#define QUERY_CHUNKS (MATRIX == 4 ? 0 : QUERY_ROWS * PART_PITCH / 8)
#define VALUE_CHUNKS (PLACES * (CHAIN_TURNS ? KEYS : WIDTH) * V_PITCH / 8)
#define VALUE_PLACE (VALUE_CHUNKS > QUERY_CHUNKS ? VALUE_CHUNKS : QUERY_CHUNKS)
// Nothing is moved across it: WMMA's fragments leave no registers for early loads.
#if (MATRIX == 2 || MATRIX == 3) && !defined(GPU_SIM)
#define TILE_FENCE() __builtin_amdgcn_sched_barrier(0)
#else
#define TILE_FENCE()
#endif

// A wave's rows: their largest scores, and sums of weights and of weighted values, by a chain's rows and columns.
struct Attended {
  f32 top[QUERIES][CHAIN_ROWS], sum[QUERIES][CHAIN_ROWS];
  Sums result[QUERIES][OWN_WIDTH / 16];
};
// The rows of a wave, and which part of their elements it has.
DEV u32 team_of() { return threadIdx.x / WAVE / SPLIT; }
DEV u32 part_of() { return threadIdx.x / WAVE % SPLIT; }
// A lane's row r of fragment f, as a row of the block.
DEV u32 row_of(int f, int r) { return (team_of() * QUERIES + f) * 16 + chain_row(threadIdx.x % WAVE, r); }

// Keys from `start` to `end`; all rows of the block see all keys from inner_start to inner_end.
struct Seen { u32 start, end, inner_start, inner_end; };

// Adds up the two waves' parts of the same scores. All waves have already read the keys.
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

typedef Fragment Queries[QUERIES][OWN_SIZE / 16];
typedef Sums Scores[QUERIES][KEYS / 16];
typedef Fragment Weights[QUERIES][KEYS / 16];

#if MATRIX == 4
// Reads a wave's queries directly into its fragments: lanes do not wait for each other, and there is one wait for
// memory.
template <class Query> DEV void read_queries(Queries& queries, u16*, Query query_of) {
#pragma unroll
  for (int f = 0; f < QUERIES; f++)
#pragma unroll
    for (int r = 0; r < CHAIN_ROWS; r++) {
      const auto query = query_of(row_of(f, r));
#pragma unroll
      for (int n = 0; n < SIZE / 8; n++) {
        const Pack<T, 2> two = pack_of<2>(query, 0, n * 8 + threadIdx.x % 4 * 2);
        COPY_BYTES(queries[f][n / 2].at + n % 2 * 4 + r * 2, two.at, 4);
      }
    }
  // Makes earlier writes to LDS visible, even if there is no key.
  __syncthreads();
}
#else
// Reads a wave's queries through the buffer of the values.
template <class Query> DEV void read_queries(Queries& queries, u16* place, Query query_of) {
  const u32 lane = threadIdx.x % WAVE, part = part_of();
#pragma unroll
  for (int f = 0; f < QUERIES; f++)
#pragma unroll
    for (int p = 0; p < QUERY_PARTS; p++) {
      // All loads are issued before the first store.
      constexpr int CHUNKS = PART_SIZE / 8, TASKS = QUERY_ROWS * CHUNKS, EACH = (TASKS + THREADS - 1) / THREADS;
      Eight held[EACH];
#pragma unroll
      for (int n = 0; n < EACH; n++) {
        u32 task = threadIdx.x + n * THREADS, row = task / CHUNKS;
        if (task >= TASKS) continue;
        held[n] = pack_of<8>(query_of((row / 16 * QUERIES + f) * 16 + row % 16), 0, p * PART_SIZE + task % CHUNKS * 8);
      }
      if (f || p) __syncthreads();
#pragma unroll
      for (int n = 0; n < EACH; n++) {
        u32 task = threadIdx.x + n * THREADS;
        if (task < TASKS) *(Eight*)(place + task / CHUNKS * PART_PITCH + task % CHUNKS * 8) = held[n];
      }
      __syncthreads();
      if (SPLIT > 1 && part != p) continue;
#pragma unroll
      for (int i = 0; i < PART_SIZE / 16; i++)
        queries[f][(SPLIT > 1 ? 0 : p * PART_SIZE / 16) + i] =
            load_left(place + team_of() * 16 * PART_PITCH + i * 16, PART_PITCH, lane);
    }
}
#endif

// Adds the scores of the keys from `base` on, which are in LDS, to zeros. Scores of inner keys stay products if they
// are plain.
template <class Score>
DEV void score_keys(Scores& scores, const Queries& queries, u16* keys, u32 base, const Seen& seen, Score score) {
  const u32 lane = threadIdx.x % WAVE;
#pragma unroll
  for (int i = 0; i < OWN_SIZE / 16; i++) {
#pragma unroll
    for (int j = 0; j < KEYS / 16; j++) {
      Fragment key = load_right(keys + j * 16 * K_PITCH + part_of() * OWN_SIZE + i * 16, K_PITCH, lane);
#pragma unroll
      for (int f = 0; f < QUERIES; f++) mma_chain<T>(scores[f][j], queries[f][i], key);
    }
    TILE_FENCE();
  }
  if (SPLIT > 1) join(scores, keys);
  if (PLAIN && base >= seen.inner_start && base + KEYS <= seen.inner_end) return;
#pragma unroll
  for (int f = 0; f < QUERIES; f++)
#pragma unroll
    for (int j = 0; j < KEYS / 16; j++)
#pragma unroll
      for (int r = 0; r < CHAIN_ROWS; r++)
#pragma unroll
        for (int c = 0; c < CHAIN_COLUMNS; c++) {
          f32& at = scores[f][j].at[chain_at(r, c)];
          at = score(at, row_of(f, r), base + j * 16 + chain_column(lane, c));
          if (c % 4 == 3) TILE_FENCE();
        }
}

// The shift of a row's weights, and the factor for its sums so far.
struct Step { f32 shift, before; };
// Updates row r of fragment f with the scores of more keys.
DEV Step step_of(Attended& s, const Scores& scores, int f, int r, f32 unit) {
  // Two, to shorten the chain of dependent operations.
  f32 tops[2] = {s.top[f][r], s.top[f][r]};
#pragma unroll
  for (int j = 0; j < KEYS / 16; j++)
#pragma unroll
    for (int c = 0; c < CHAIN_COLUMNS; c++) tops[j % 2] = fmaxf(tops[j % 2], scores[f][j].at[chain_at(r, c)]);
  const f32 top = chain_max(fmaxf(tops[0], tops[1])), shift = shift_of(top) * unit;
  const Step step = {shift, exp2_near(fmaf(s.top[f][r], unit, -shift))};
  s.top[f][r] = top;
  s.sum[f][r] *= step.before;
  return step;
}
// Turns the scores of 16 keys into weights, which are summed over the lanes of the row at the end.
DEV void weigh(Attended& s, Scores& scores, const Step& step, int f, int r, int j, f32 unit) {
  // Two on the twin, to shorten the chain of dependent operations; on the others there are no free registers.
  constexpr int RUN = MATRIX == 4 ? CHAIN_COLUMNS / 2 : CHAIN_COLUMNS;
  f32 sums[2] = {};
#pragma unroll
  for (int c = 0; c < CHAIN_COLUMNS; c++) {
    f32& at = scores[f][j].at[chain_at(r, c)];
    at = exp2_near(fmaf(at, unit, -step.shift));
    sums[c / RUN] = c % RUN ? sums[c / RUN] + at : at;
  }
  s.sum[f][r] += RUN < CHAIN_COLUMNS ? sums[0] + sums[1] : sums[0];
}
DEV void scale_down(Attended& s, const Step& step, int f, int r) {
#pragma unroll
  for (int n = 0; n < OWN_WIDTH / 16; n++)
#pragma unroll
    for (int c = 0; c < CHAIN_COLUMNS; c++) s.result[f][n].at[chain_at(r, c)] *= step.before;
}
// Adds the values of 16 keys.
DEV void add_values(Attended& s, const Weights& weights, const u16* values, int j) {
#pragma unroll
  for (int n = 0; n < OWN_WIDTH / 16; n++) {
    const u32 at = part_of() * OWN_WIDTH + n * 16;
    Fragment value = load_chained(CHAIN_TURNS ? values + j * 16 * V_PITCH + at : values + at * V_PITCH + j * 16, V_PITCH,
                                  threadIdx.x % WAVE);
#pragma unroll
    for (int f = 0; f < QUERIES; f++) mma_chain<T>(s.result[f][n], weights[f][j], value);
    if (n % 4 == 3) TILE_FENCE();
  }
}

// Turns scores into weights, 16 keys at a time, and calls `beside(j)` before each: other work to overlap with.
template <class Beside> DEV void weigh_all(Attended& s, Scores& scores, Weights& weights, f32 unit, Beside beside) {
  Step steps[QUERIES][CHAIN_ROWS];
#pragma unroll
  for (int f = 0; f < QUERIES; f++)
#pragma unroll
    for (int r = 0; r < CHAIN_ROWS; r++) steps[f][r] = step_of(s, scores, f, r, unit);
#pragma unroll
  for (int j = 0; j < KEYS / 16; j++) {
    beside(j);
#pragma unroll
    for (int f = 0; f < QUERIES; f++)
#pragma unroll
      for (int r = 0; r < CHAIN_ROWS; r++) weigh(s, scores, steps[f][r], f, r, j, unit);
  }
#pragma unroll
  for (int f = 0; f < QUERIES; f++)
#pragma unroll
    for (int r = 0; r < CHAIN_ROWS; r++) scale_down(s, steps[f][r], f, r);
#pragma unroll
  for (int f = 0; f < QUERIES; f++)
#pragma unroll
    for (int j = 0; j < KEYS / 16; j++) weights[f][j] = chain<T>(scores[f][j], threadIdx.x % WAVE);
}

// Processes a block's rows over the keys that they see. `query_of(row)` returns one of the block's rows as Rows, and
// `score(product, row, key)` a score; for inner keys it is the product if scores are plain. Weights are powers of two
// of scores times `unit`.
template <class Query, bool K_EIGHTS, bool V_EIGHTS, class Score>
DEV void attend(Attended& s, u16* keys, u16* values, Query query_of, const Rows<K_EIGHTS>& k, const Rows<V_EIGHTS>& v,
                const Seen& seen, f32 unit, Score score) {
  Flight<KEYS, SIZE, K_PITCH, false, K_EIGHTS> k_flight;
  Flight<KEYS, WIDTH, V_PITCH, !CHAIN_TURNS, V_EIGHTS> v_flight;
  start(k_flight, keys, k, seen.start);
  Queries queries;
  read_queries(queries, values, query_of);
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
  auto nothing = [](int) {};
  if constexpr (AHEAD) {
    if (seen.start < seen.end) {
      constexpr u32 K_TILE = KEYS * K_PITCH, V_TILE = KEYS * V_PITCH;
      land(k_flight, keys, k, seen.start);
      __syncthreads();
      start(v_flight, values, v, seen.start);
      if (seen.start + KEYS < seen.end) start(k_flight, keys + K_TILE, k, seen.start + KEYS);
      Scores scores = {};
      score_keys(scores, queries, keys, seen.start, seen, score);
      Weights weights;
      weigh_all(s, scores, weights, unit, nothing);
      // The buffer with the values of these weights; the next keys are in the other buffer.
      u32 place = 0, base = seen.start + KEYS;
#pragma unroll 1
      for (; base < seen.end; base += KEYS, place ^= 1) {
        land(k_flight, keys + (place ^ 1) * K_TILE, k, base);
        land(v_flight, values + place * V_TILE, v, base - KEYS);
        __syncthreads();
        start(v_flight, values + (place ^ 1) * V_TILE, v, base);
        if (base + KEYS < seen.end) start(k_flight, keys + place * K_TILE, k, base + KEYS);
        Scores next = {};
        score_keys(next, queries, keys + (place ^ 1) * K_TILE, base, seen, score);
        weigh_all(s, next, weights, unit, [&](int j) { add_values(s, weights, values + place * V_TILE, j); });
      }
      land(v_flight, values + place * V_TILE, v, base - KEYS);
      __syncthreads();
#pragma unroll
      for (int j = 0; j < KEYS / 16; j++) add_values(s, weights, values + place * V_TILE, j);
    }
  } else {
#pragma unroll 1
    for (u32 base = seen.start; base < seen.end; base += KEYS) {
      land(k_flight, keys, k, base);
      __syncthreads();
      start(v_flight, values, v, base);
      TILE_FENCE();
      Scores scores = {};
      score_keys(scores, queries, keys, base, seen, score);
      Weights weights;
      weigh_all(s, scores, weights, unit, nothing);
      TILE_FENCE();
      land(v_flight, values, v, base);
      __syncthreads();
      if (base + KEYS < seen.end) start(k_flight, keys, k, base + KEYS);
      TILE_FENCE();
#pragma unroll
      for (int j = 0; j < KEYS / 16; j++) add_values(s, weights, values, j);
    }
  }
#pragma unroll
  for (int f = 0; f < QUERIES; f++)
#pragma unroll
    for (int r = 0; r < CHAIN_ROWS; r++) s.sum[f][r] = chain_sum(s.sum[f][r]);
}

// Writes the result of row r of fragment f, times `factor`. EIGHTS: rows are aligned to eight elements.
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
