// Attention of up to 16 rows over a cache with matrix instructions: the 16 keys of a wave are loaded from memory
// directly into fragments, without LDS, and the next ones are loaded while these are processed. Waves combine their
// results at the end.
//
// SIZE, WIDTH: size and width, 64 or 128. ROWS: rows per block, a power of two; the remaining rows of a matrix are
// ignored. MATRIX: 1 or 4, whose lanes hold four keys of a value's fragment. WAVE: lanes per wave. The order in which
// the elements of a row are summed does not matter, so lanes read 16 bytes of queries and keys at a time. The columns
// of the result may be in any order too: a lane reads adjacent elements of a value, one for each tile in which it has a
// column. With N parts, part p processes STEP keys from p * STEP on, and then after every N * STEP.
#define THREADS (4 * WAVE)
#define STEP 64
#if defined(GPU_SIM)
#define WAVE_SYNC() SHFL(0u, 0)
#elif !defined(__CUDACC_RTC__)
#define WAVE_SYNC()                                                                                                    \
  __builtin_amdgcn_fence(__ATOMIC_ACQ_REL, "wavefront");                                                               \
  __builtin_amdgcn_wave_barrier()
#endif
#if NEWEST && defined(__CUDACC_RTC__)
// Four blocks share a multiprocessor, or two with twice the elements, as they would without the rotation here.
#undef KERNEL_BOUNDS
#define KERNEL_BOUNDS(threads) __launch_bounds__(threads, SIZE + WIDTH > 128 ? 2 : 4)
#endif
typedef Pack<T, 8> Eight;
typedef Meeting<THREADS, 4, WIDTH> Ends;
// Rows for which a lane has sums.
constexpr int LIVE = MATRIX == 4 && ROWS <= 8 ? 1 : MMA_ROWS;

// How a lane reads an operand of 16 rows: LINES of its rows, in packs of 8.
constexpr int LINES = MATRIX == 4 ? 2 : 1;
constexpr int PACKS = SIZE / 32;
struct Operand { Eight at[LINES][PACKS]; };
// The row of line `line`, and the offset of its pack `pack`.
DEV u32 line_of(u32 lane, u32 line) { return MATRIX == 4 ? lane / 4 + line * 8 : lane % 16; }
DEV u32 pack_at(u32 lane, u32 pack) { return pack * 32 + (MATRIX == 4 ? lane % 4 : lane / 16) * 8; }
// The fragment of 16 elements of each row.
DEV Fragment left_of(const Operand& x, int i) {
  Fragment f;
#pragma unroll
  for (int at = 0; at < FRAGMENT; at++) {
#if MATRIX == 4
    f.at[at] = x.at[at / 2 % 2][i / 2].at[i % 2 * 4 + at / 4 * 2 + at % 2].bits;
#else
    f.at[at] = x.at[0][i / 2].at[i % 2 * 4 + at].bits;
#endif
  }
  return f;
}
DEV Fragment right_of(const Operand& x, int i) {
#if MATRIX == 4
  Fragment f;
#pragma unroll
  for (int at = 0; at < FRAGMENT; at++) f.at[at] = x.at[at / 4][i / 2].at[i % 2 * 4 + at / 2 % 2 * 2 + at % 2].bits;
  return f;
#else
  return left_of(x, i);
#endif
}

// How a lane reads 16 values: those of its keys, SPAN adjacent elements at a time.
constexpr int VALUE_KEYS = 4;
constexpr int SPAN = MATRIX == 4 ? 8 : WIDTH / 16;
constexpr int SPANS = MATRIX == 4 ? WIDTH / 64 : 1;
struct Values { Pack<T, SPAN> at[VALUE_KEYS][SPANS]; };
DEV u32 value_key(u32 lane, u32 i) { return MATRIX == 4 ? lane % 4 * 2 + i % 2 + i / 2 * 8 : lane / 16 * 4 + i; }
DEV u32 span_at(u32 lane, u32 span) { return MATRIX == 4 ? span * 64 + lane / 4 * 8 : lane % 16 * SPAN; }
// The fragment of tile n: a column of it is one element of each span.
DEV Fragment values_of(const Values& v, int n) {
  Fragment f;
#pragma unroll
  for (int at = 0; at < FRAGMENT; at++) {
#if MATRIX == 4
    f.at[at] = v.at[at / 2 % 2 * 2 + at % 2][n / 4].at[n % 4 * 2 + at / 4].bits;
#else
    f.at[at] = v.at[at][0].at[n].bits;
#endif
  }
  return f;
}

DEV Operand load_rows(const T* rows, i64 pitch, u32 first, u32 last, u32 lane) {
  Operand x;
#pragma unroll
  for (int line = 0; line < LINES; line++) {
    const T* row = rows + (i64)min_of(first + line_of(lane, line), last) * pitch;
#pragma unroll
    for (int pack = 0; pack < PACKS; pack++) x.at[line][pack] = *(const Eight*)(row + pack_at(lane, pack));
  }
  return x;
}
DEV Values load_values(const T* rows, i64 pitch, u32 first, u32 last, u32 lane) {
  Values v;
#pragma unroll
  for (int i = 0; i < VALUE_KEYS; i++) {
    const T* row = rows + (i64)min_of(first + value_key(lane, i), last) * pitch;
#pragma unroll
    for (int span = 0; span < SPANS; span++) v.at[i][span] = *(const Pack<T, SPAN>*)(row + span_at(lane, span));
  }
  return v;
}

// Four adjacent sums of a lane's row r, and the indices of their elements.
constexpr int LANE_QUADS = WIDTH / 16 * MMA_COLUMNS / 4;
DEV Quad quad_of(const Sums* result, int r, int i) {
  Quad quad;
#pragma unroll
  for (int e = 0; e < 4; e++) {
#if MATRIX == 4
    quad.at[e] = result[i / 4 * 4 + i % 2 * 2 + e / 2].at[mma_at(r, i / 2 % 2 + e % 2 * 2)];
#else
    quad.at[e] = result[i * 4 + e].at[r];
#endif
  }
  return quad;
}
DEV u32 quad_at(u32 lane, u32 i) {
  return MATRIX == 4 ? i / 4 * 64 + (lane % 4 * 2 + i / 2 % 2) * 8 + i % 2 * 4 : lane % 16 * SPAN + i * 4;
}

// Converts weights to a left operand. They pass through the wave's own LDS if lanes hold other elements of operands
// than of sums.
DEV Fragment weights_of(const Sums& s, u16* lds, u32 lane) {
  Fragment f = {};
#if MATRIX == 4
#pragma unroll
  for (int r = 0; r < LIVE; r++)
#pragma unroll
    for (int c = 0; c < 4; c++) f.at[(r + c / 2 * 2) * 2 + c % 2] = put<T>(s.at[mma_at(r, c)]).bits;
#else
#pragma unroll
  for (int r = 0; r < MMA_ROWS; r++) lds[mma_row(lane, r) * 24 + lane % 16] = put<T>(s.at[r]).bits;
  WAVE_SYNC();
  f = load_left(lds, 24, lane);
  WAVE_SYNC();
#endif
  return f;
}

#if NEWEST
// The weight of the newest key for each row, whose elements are spread over four lanes. The lanes of the first row
// store the key.
DEV void meet_newest(const CachedArgs& a, const Task& t, const Newest& n, const Operand& q, Scale* scales, u32 lane) {
  f32 product[LINES] = {};
#pragma unroll
  for (int pack = 0; pack < PACKS; pack++) {
    const Eight key = turned_pack<8>(n.key, 1, pack_at(lane, pack), n.angles);
    if (n.is_stored && line_of(lane, 0) == 0) *(Eight*)(newest_row(a, t, a.out_k, SIZE) + pack_at(lane, pack)) = key;
#pragma unroll
    for (int line = 0; line < LINES; line++)
#pragma unroll
      for (int e = 0; e < 8; e++) product[line] += get(q.at[line][pack].at[e]) * get(key.at[e]);
  }
  if (n.is_stored && lane < WIDTH / 8) {
    const Eight value = *(const Eight*)(n.value + lane * 8);
    *(Eight*)(newest_row(a, t, a.out_v, WIDTH) + lane * 8) = value;
  }
  const u32 step = MATRIX == 4 ? 1 : 16;
#pragma unroll
  for (int line = 0; line < LINES; line++) {
    product[line] += SHFL_XOR(product[line], step);
    product[line] += SHFL_XOR(product[line], 2 * step);
    const u32 row = line_of(lane, line);
    if (row >= ROWS || lane / step % 4 != 0) continue;
    const i64 bias = EXTRA ? bias_at(a, t, t.first + min_of(row, t.count - 1)) : 0;
    scales[row] = {newest_score(a, t, product[line] * factor_of(a), bias), 1.0f};
  }
}
#endif

KERNEL(cached_few, THREADS, CachedArgs) {
  SHARED(Quad, sums, Ends::SUMS);
  SHARED(Scale, scales, Ends::SCALES);
  SHARED(Eight, p_tile, MATRIX == 4 ? 1 : 4 * 16 * 24 / 8);
  SHARED(u32, is_last, 1);
  Task t = rows_of(a);
  const u32 end = t.keys.end, last = NEWEST && end == 0 ? 0 : end - 1;
  const u32 lane = threadIdx.x % WAVE, wave = threadIdx.x / WAVE;
  t.parts = max_of(1u, min_of(a.parts, (end - t.keys.start + STEP - 1) / STEP));
#if NEWEST
  copy_past<THREADS, 8>(a, t);
#endif
  if (blockIdx.y >= t.parts) return;
  u16* weights = (u16*)p_tile + (MATRIX == 4 ? 0 : wave * 16 * 24);
  const T* k = a.k + (i64)t.batch * a.k_batch + (i64)t.head * a.k_head;
  const T* v = a.v + (i64)t.batch * a.v_batch + (i64)t.head * a.v_head;
  u32 base = t.keys.start + blockIdx.y * STEP;
  Operand x = load_rows(k, a.k_key, base + wave * 16, last, lane);
  Values y = load_values(v, a.v_key, base + wave * 16, last, lane);
#if NEWEST
  const Newest newest = newest_of(a, t);
#endif
  Operand q;
#pragma unroll
  for (int line = 0; line < LINES; line++) {
    const T* row = a.q + query_at(a, t, t.first + min_of(line_of(lane, line), t.count - 1));
#pragma unroll
    for (int pack = 0; pack < PACKS; pack++) {
      q.at[line][pack] = {};
#if NEWEST
      if (line < LIVE) q.at[line][pack] = turned_pack<8>(row, 1, pack_at(lane, pack), newest.angles);
#else
      if (line < LIVE) q.at[line][pack] = *(const Eight*)(row + pack_at(lane, pack));
#endif
    }
  }
  Range seen[LIVE];
  i64 bias[LIVE];
  f32 top[LIVE], sum[LIVE];
#pragma unroll
  for (int r = 0; r < LIVE; r++) {
    u32 row = t.first + min_of(mma_row(lane, r), t.count - 1);
    seen[r] = ONE ? t.keys : seen_by(a, t.before, token_of(a, row));
    bias[r] = EXTRA ? bias_at(a, t, row) : 0;
    top[r] = -INFINITY_OF(f32);
    sum[r] = 0;
  }
  const f32 factor = factor_of(a);
#if NEWEST
  if (has_newest(t) && wave == 0) meet_newest(a, t, newest, q, scales + 4 * ROWS, lane);
#endif
  Sums result[WIDTH / 16] = {};
#pragma unroll 1
  while (base < end) {
    const u32 next = base + a.parts * STEP, first = base + wave * 16;
    Sums s = {};
#pragma unroll
    for (int i = 0; i < SIZE / 16; i++) mma<T>(s, left_of(q, i), right_of(x, i));
    if (next < end) x = load_rows(k, a.k_key, next + wave * 16, last, lane);
#pragma unroll
    for (int r = 0; r < LIVE; r++) {
      f32 larger = top[r];
#pragma unroll
      for (int c = 0; c < MMA_COLUMNS; c++) {
        u32 key = first + mma_column(lane, c);
        f32& at = s.at[mma_at(r, c)];
        f32 value = score_of(a, at * factor, bias[r], min_of(key, end - 1));
        at = key >= seen[r].start && key < min_of(end, seen[r].end) ? value : -INFINITY_OF(f32);
        larger = max_of(larger, at);
      }
#pragma unroll
      for (int mask = MMA_COLUMNS == 1 ? 8 : 2; mask; mask >>= 1) larger = max_of(larger, SHFL_XOR(larger, mask));
      f32 shift = shift_of(larger), before = exp2_near(top[r] - shift);
      top[r] = larger;
      // Summed over the lanes of the row at the end.
      sum[r] *= before;
#pragma unroll
      for (int c = 0; c < MMA_COLUMNS; c++) {
        f32& at = s.at[mma_at(r, c)];
        at = exp2_near(at - shift);
        sum[r] += at;
      }
#pragma unroll
      for (int n = 0; n < WIDTH / 16; n++)
#pragma unroll
        for (int c = 0; c < MMA_COLUMNS; c++) result[n].at[mma_at(r, c)] *= before;
    }
    const Fragment p = weights_of(s, weights, lane);
#pragma unroll
    for (int n = 0; n < WIDTH / 16; n++) mma<T>(result[n], p, values_of(y, n));
    if (next < end) y = load_values(v, a.v_key, next + wave * 16, last, lane);
    base = next;
  }
#pragma unroll
  for (int r = 0; r < LIVE; r++) {
#pragma unroll
    for (int mask = MMA_COLUMNS == 1 ? 8 : 2; mask; mask >>= 1) sum[r] += SHFL_XOR(sum[r], mask);
    const u32 row = mma_row(lane, r);
    if (row >= ROWS) continue;
    Quad* own = sums + wave * Ends::QUADS + row * (WIDTH / 4);
#pragma unroll
    for (int i = 0; i < LANE_QUADS; i++) own[quad_at(lane, i) / 4] = quad_of(result, r, i);
    if (mma_column(lane, 0) == 0) scales[wave * ROWS + row] = {top[r], sum[r]};
  }
  __syncthreads();
  Ends::meet(a, t, 4, sums, scales, is_last);
}
