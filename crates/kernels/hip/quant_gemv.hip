// Products of few rows with packed weights: every byte of the weights is read once, 16 at a time where rows allow it.
// See quant.h.
//
// A lane reads a unit of BYTES bytes of COLUMNS columns; the lanes of a wave read neighbouring units, so that whole lines
// of memory are used. Numbers stay as they are: sums of x * q and of x are scaled block by block,
//     sum of x * (q - zero) * scale = scale * (sum of x * q - zero * sum of x),
// so that a number costs its share of a mask, a conversion and a multiplication for each row. SPLIT: blocks of a unit.
// ROWS: 1, 2, 4 or 8, those from blockIdx.z * ROWS on. LEFT_PACK: 1 if rows can be read in packs. The waves of a block share k
// in a.parts parts, and with splits blockIdx.y is a part of those; sums are added up in a fixed order.
#define WORDS (BYTES / 4)
#define UNIT (WORDS * PER_WORD)
#define PART_WORDS (WORDS / SPLIT)
#define CHUNK (PER_WORD < 8 ? PER_WORD : 8)
#define LEFT_ELEMS (16 / (int)sizeof(LEFT_T) < CHUNK ? 16 / (int)sizeof(LEFT_T) : CHUNK)

// Elements of a row from k on; those behind its end are zeros. `whole` if they are all there.
DEV void load_row(const ProductArgs& p, u32 row, u32 k, bool whole, f32* x) {
  const LEFT_T* from = p.left + (i64)row * p.left_row;
#if LEFT_PACK
  if (whole) {
#pragma unroll
    for (int i = 0; i < CHUNK; i += LEFT_ELEMS) {
      Pack<LEFT_T, LEFT_ELEMS> pack = *(const Pack<LEFT_T, LEFT_ELEMS>*)(from + k + i);
#pragma unroll
      for (int e = 0; e < LEFT_ELEMS; e++) x[i + e] = (f32)get(pack.at[e]);
    }
    return;
  }
#endif
#pragma unroll
  for (int e = 0; e < CHUNK; e++) x[e] = k + e < p.depth ? (f32)get(from[(i64)(k + e) * p.left_k]) : 0.0f;
}

KERNEL(quant_gemv, 256, QuantArgs) {
  SHARED(f32, shared, 256 / MIN_WARP * ROWS * COLUMNS);
  const ProductArgs& p = a.product;
  const u32 lane = threadIdx.x % WARP, wave = threadIdx.x / WARP, groups = 256 / WARP / a.parts;
  const u32 part = wave % a.parts, start = blockIdx.x * groups * COLUMNS, first = start + wave / a.parts * COLUMNS;
  const u32 top = blockIdx.z * ROWS;
  f32 sums[ROWS][COLUMNS];
#pragma unroll
  for (int r = 0; r < ROWS; r++)
#pragma unroll
    for (int c = 0; c < COLUMNS; c++) sums[r][c] = 0;
  const u8* from[COLUMNS];
  // Columns beyond the last are the last once more.
#pragma unroll
  for (u32 c = 0; c < COLUMNS; c++) from[c] = p.right + (u64)min_of(first + c, p.columns - 1) * a.row_bytes;
  const u32 step = WARP * a.parts * p.splits;
  for (u32 unit = (blockIdx.y * a.parts + part) * WARP + lane; unit < a.units; unit += step) {
    const u32 begin = unit * UNIT;
    const bool whole = begin + UNIT <= p.depth;
    Pack<u32, WORDS> y[COLUMNS];
#pragma unroll
    for (int c = 0; c < COLUMNS; c++) y[c] = *(const Pack<u32, WORDS>*)(from[c] + (u64)unit * BYTES);
#pragma unroll
    for (int s = 0; s < SPLIT; s++) {
      const u32 block = (begin + s * PART_WORDS * PER_WORD) >> a.block_shift;
      f32 parts[ROWS][COLUMNS], totals[ROWS];
#pragma unroll
      for (int r = 0; r < ROWS; r++) {
        totals[r] = 0;
#pragma unroll
        for (int c = 0; c < COLUMNS; c++) parts[r][c] = 0;
      }
#pragma unroll
      for (int at = 0; at < PART_WORDS * PER_WORD; at += CHUNK) {
        const int word = s * PART_WORDS + at / PER_WORD;
        f32 q[COLUMNS][CHUNK];
#pragma unroll
        for (int c = 0; c < COLUMNS; c++)
#pragma unroll
          for (int e = 0; e < CHUNK; e++) q[c][e] = field_f32(y[c].at[word], at % PER_WORD + e);
#pragma unroll
        for (u32 r = 0; r < ROWS; r++) {
          f32 x[CHUNK];
          load_row(p, min_of(top + r, p.rows - 1), begin + s * PART_WORDS * PER_WORD + at, whole, x);
#pragma unroll
          for (int e = 0; e < CHUNK; e++) {
            totals[r] += x[e];
#pragma unroll
            for (int c = 0; c < COLUMNS; c++) parts[r][c] += x[e] * q[c][e];
          }
        }
      }
#pragma unroll
      for (u32 c = 0; c < COLUMNS; c++) {
        const u32 column = min_of(first + c, p.columns - 1);
        const f32 scale = scale_of(a, column, block), zero = zero_of(a, column, block);
#pragma unroll
        for (int r = 0; r < ROWS; r++) sums[r][c] += scale * (parts[r][c] - zero * totals[r]);
      }
    }
  }
#pragma unroll
  for (int r = 0; r < ROWS; r++)
#pragma unroll
    for (int c = 0; c < COLUMNS; c++) {
      f32 sum = wave_sum(sums[r][c]);
      if (lane == 0) shared[(wave * ROWS + r) * COLUMNS + c] = sum;
    }
  __syncthreads();
  const u32 width = groups * COLUMNS;
  for (u32 at = threadIdx.x; at < ROWS * width; at += 256) {
    const u32 row = at / width, across = at - row * width, column = start + across;
    if (top + row >= p.rows || column >= p.columns) continue;
    const f32* sum = shared + (across / COLUMNS * a.parts * ROWS + row) * COLUMNS + across % COLUMNS;
    f32 total = sum[0];
    for (u32 i = 1; i < a.parts; i++) total += sum[i * ROWS * COLUMNS];
    give(p, total, top + row, column);
  }
}
