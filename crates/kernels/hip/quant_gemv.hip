// Products of few rows with packed weights: every byte of the weights is read once, 16 at a time if rows allow it. See
// quant_product.h.
//
// A lane reads a unit of BYTES bytes from each of COLUMNS columns; the lanes of a wave read adjacent units, so that
// whole cache lines are used. Numbers are not dequantised one by one: sums of x * q and of x are scaled block by block,
//     sum of x * (q - zero) * scale = scale * (sum of x * q - zero * sum of x),
// so that each number costs only its share of a mask, a conversion, and one multiplication per row. SPLIT: blocks per
// unit. ROWS: 1, 2 or 4 rows, from blockIdx.z * ROWS on. LEFT_PACK: 1 if rows can be read in packs, and their length is
// a multiple of 8. The waves of a block share k in a.parts parts, and with splits blockIdx.y is a part of those; sums
// are added up in a fixed order.
#define WORDS (BYTES / 4)
#define UNIT (WORDS * PER_WORD)
#define PART_WORDS (WORDS / SPLIT)
#define CHUNK (PER_WORD < 8 ? PER_WORD : 8)
#define LEFT_WORDS (CHUNK * (int)sizeof(LEFT_T) / 4)

// Elements of a row from k on, with zeros past its end. Branch-free, so that loads can be issued early.
DEV void load_row(const QuantArgs& a, const LEFT_T* from, u32 k, f32* x) {
#if LEFT_PACK
  const bool inside = k < a.depth;
  const u32* words = (const u32*)(from + (inside ? k : 0));
  u32 raw[LEFT_WORDS];
  const int most = LEFT_WORDS < 4 ? LEFT_WORDS : 4;
#pragma unroll
  for (int i = 0; i < LEFT_WORDS; i += most) {
    Pack<u32, most> pack = *(const Pack<u32, most>*)(words + i);
#pragma unroll
    for (int e = 0; e < most; e++) raw[i + e] = inside ? pack.at[e] : 0;
  }
  LEFT_T elems[CHUNK];
  COPY_BYTES(elems, raw, sizeof(elems));
#pragma unroll
  for (int e = 0; e < CHUNK; e++) x[e] = (f32)get(elems[e]);
#else
#pragma unroll
  for (int e = 0; e < CHUNK; e++) {
    const bool inside = k + e < a.depth;
    const f32 value = (f32)get(from[(i64)(inside ? k + e : 0) * (NORM ? 1 : a.left_k)]);
    x[e] = inside ? value : 0.0f;
  }
#endif
}

KERNEL(quant_gemv, THREADS, QuantArgs) {
  SHARED(f32, staged, THREADS / MIN_WARP * ROWS * COLUMNS);
  const u32 lane = threadIdx.x % WARP, wave = threadIdx.x / WARP, groups = THREADS / WARP / a.parts;
  const u32 part = wave % a.parts, group = blockIdx.x * groups + wave / a.parts;
#if GATED
  const u32 first = group / 2 * COLUMNS, half = group % 2 * a.columns;
#else
  const u32 first = group * COLUMNS, half = 0;
#endif
  const u32 top = blockIdx.z * ROWS;
#if NORM
  SHARED(f32, squares, ROWS * THREADS / MIN_WARP);
  DYN_SHARED(LEFT_T, normed);
  normed_rows(a, top, ROWS, squares, [&](u32 r, u32 k, const Some& made) { *(Some*)(normed + r * a.depth + k) = made; });
#endif
  const LEFT_T* row[ROWS];
#pragma unroll
  for (u32 r = 0; r < ROWS; r++) {
    const u32 own = min_of(top + r, a.rows - 1);
#if NORM
    row[r] = normed + (own - top) * a.depth;
#else
    row[r] = a.left + (i64)own * a.left_row;
#endif
  }
  f32 sums[ROWS][COLUMNS];
#pragma unroll
  for (int r = 0; r < ROWS; r++)
#pragma unroll
    for (int c = 0; c < COLUMNS; c++) sums[r][c] = 0;
  u32 column[COLUMNS];
  const u8* from[COLUMNS];
  // Columns past the end repeat the last one.
#pragma unroll
  for (u32 c = 0; c < COLUMNS; c++) {
    column[c] = min_of(first + c, a.columns - 1) + half;
    from[c] = a.right + (u64)column[c] * a.quant.row_bytes;
  }
  const u32 step = WARP * a.parts * a.splits;
  for (u32 unit = (blockIdx.y * a.parts + part) * WARP + lane; unit < a.units; unit += step) {
    const u32 begin = unit * UNIT;
    Pack<u32, WORDS> y[COLUMNS];
#pragma unroll
    for (int c = 0; c < COLUMNS; c++) y[c] = *(const Pack<u32, WORDS>*)(from[c] + (u64)unit * BYTES);
#if SPLIT == 1
    Shared shared[COLUMNS];
#pragma unroll
    for (u32 c = 0; c < COLUMNS; c++)
      shared[c] = load_shared(a.quant, column[c], begin >> a.quant.block_shift);
#endif
    f32 parts[ROWS][COLUMNS], totals[ROWS];
    // Not unrolled: with several rows, issuing all loads early would spill registers.
#pragma unroll 1
    for (u32 word = 0; word < WORDS; word++) {
      if (word % PART_WORDS == 0) {
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
          totals[r] = 0;
#pragma unroll
          for (int c = 0; c < COLUMNS; c++) parts[r][c] = 0;
        }
      }
#pragma unroll 1
      for (u32 at = 0; at < PER_WORD; at += CHUNK) {
        f32 q[COLUMNS][CHUNK];
#pragma unroll
        for (int c = 0; c < COLUMNS; c++)
#pragma unroll
          for (int e = 0; e < CHUNK; e++) q[c][e] = field_f32(y[c].at[0] >> at * BITS, e);
#pragma unroll
        for (u32 r = 0; r < ROWS; r++) {
          f32 x[CHUNK];
          load_row(a, row[r], begin + word * PER_WORD + at, x);
#pragma unroll
          for (int e = 0; e < CHUNK; e++) {
            totals[r] += x[e];
#pragma unroll
            for (int c = 0; c < COLUMNS; c++) parts[r][c] += x[e] * q[c][e];
          }
        }
      }
#pragma unroll
      for (int c = 0; c < COLUMNS; c++)
#pragma unroll
        for (int i = 1; i < WORDS; i++) y[c].at[i - 1] = y[c].at[i];
      if (word % PART_WORDS == PART_WORDS - 1) {
        const u32 block = (begin + word * PER_WORD) >> a.quant.block_shift;
#pragma unroll
        for (u32 c = 0; c < COLUMNS; c++) {
#if SPLIT == 1
          const Shared own = shared[c];
#else
          const Shared own = load_shared(a.quant, column[c], block);
#endif
          const f32 scale = (f32)get(own.scale), zero = zero_of(own, block);
#pragma unroll
          for (int r = 0; r < ROWS; r++) sums[r][c] += scale * (parts[r][c] - zero * totals[r]);
        }
      }
    }
  }
#pragma unroll
  for (int r = 0; r < ROWS; r++)
#pragma unroll
    for (int c = 0; c < COLUMNS; c++) {
      f32 sum = wave_sum(sums[r][c]);
      if (lane == 0) staged[(wave * ROWS + r) * COLUMNS + c] = sum;
    }
  __syncthreads();
  const u32 width = groups * COLUMNS / MADE_OF, start = blockIdx.x * width;
  for (u32 at = threadIdx.x; at < ROWS * width; at += THREADS) {
    const u32 row = at / width, across = at - row * width;
    if (top + row >= a.rows || start + across >= a.columns) continue;
    f32 made[MADE_OF];
#pragma unroll
    for (u32 half = 0; half < MADE_OF; half++) {
      const u32 from = (across / COLUMNS * MADE_OF + half) * a.parts;
      const f32* sum = staged + (from * ROWS + row) * COLUMNS + across % COLUMNS;
      made[half] = sum[0];
      for (u32 i = 1; i < a.parts; i++) made[half] += sum[i * ROWS * COLUMNS];
    }
    give(a, made, top + row, start + across);
  }
}
