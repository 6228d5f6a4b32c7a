// Matrix products of few rows: the right operand is read once, as fast as memory gives it. See product.h.
//
// ROWS: 1, 2, 4 or 8, of which a.rows are there. ALONG_K: 1 if the right operand's k lies one behind the other, and a wave
// makes COLUMNS columns at a time; 0 if its columns do, and each of 32 threads has PACK neighbouring ones, while the
// block's eight groups of 32 share k. PACK: elements that are read at once. With splits, blockIdx.y is the part of k.
#define COLUMNS (ROWS <= 2 ? 4 : 2)

DEV SUM left_at(const ProductArgs& a, const LEFT_T* left, u32 row, u32 k) {
  return (SUM)get(left[(i64)row * a.left_row + (i64)k * a.left_k]) - (SUM)a.left_zero;
}
DEV void give(const ProductArgs& a, SUM sum, u32 batch, u32 row, u32 column) {
#if PARTIAL
  a.partial[(((u64)blockIdx.y * a.batches + batch) * a.rows + row) * a.columns + column] = sum;
#else
  Window w;
  finish(a, sum, row, spot(a, w, batch, column));
#endif
}

KERNEL(gemv, 256, ProductArgs) {
  u32 begin = blockIdx.y * a.split_depth, end = min_of(a.depth, begin + a.split_depth);
#if ALONG_K
  const u32 group = 256 / WARP * COLUMNS, lane = threadIdx.x % WARP;
#else
  const u32 group = 32 * PACK;
  SHARED(SUM, parts, 8 * 32 * PACK);
#endif
  const u64 blocks = (u64)a.tiles_across * a.batches;
  const u64 block = block_number();
  if (block >= blocks) return;
  u32 batch = (u32)(block / a.tiles_across), across = (u32)(block - (u64)batch * a.tiles_across);
  u32 high = batch / a.low_extent, low = batch - high * a.low_extent;
  const LEFT_T* left = a.left + (i64)high * a.left_high + (i64)low * a.left_low;
  const RIGHT_T* right = a.right + (i64)high * a.right_high + (i64)low * a.right_low;
#if ALONG_K
  u32 first = across * group + threadIdx.x / WARP * COLUMNS;
  SUM sums[ROWS][COLUMNS];
  for (int r = 0; r < ROWS; r++)
    for (int c = 0; c < COLUMNS; c++) sums[r][c] = 0;
  const RIGHT_T* column[COLUMNS];
  // Columns beyond the last are the last once more.
  for (u32 c = 0; c < COLUMNS; c++) column[c] = right + (i64)min_of(first + c, a.columns - 1) * a.right_at[2];
#pragma unroll 2
  for (u32 k = begin + lane * PACK; k < end; k += WARP * PACK) {
    Pack<RIGHT_T, PACK> y[COLUMNS];
#pragma unroll
    for (int c = 0; c < COLUMNS; c++) y[c] = *(const Pack<RIGHT_T, PACK>*)(column[c] + k);
#pragma unroll
    for (u32 r = 0; r < ROWS; r++) {
      u32 row = min_of(r, a.rows - 1);
#pragma unroll
      for (int e = 0; e < PACK; e++) {
        SUM x = left_at(a, left, row, k + e);
#pragma unroll
        for (int c = 0; c < COLUMNS; c++) sums[r][c] += x * ((SUM)get(y[c].at[e]) - (SUM)a.right_zero);
      }
    }
  }
#pragma unroll
  for (u32 r = 0; r < ROWS; r++)
#pragma unroll
    for (u32 c = 0; c < COLUMNS; c++) {
      SUM sum = wave_sum(sums[r][c]);
      if (lane == 0 && r < a.rows && first + c < a.columns) give(a, sum, batch, r, first + c);
    }
#else
  u32 lane = threadIdx.x % 32, slice = threadIdx.x / 32, first = across * group + lane * PACK;
  SUM sums[ROWS][PACK];
  for (int r = 0; r < ROWS; r++)
    for (int c = 0; c < PACK; c++) sums[r][c] = 0;
  if (first < a.columns) {
#pragma unroll 4
    for (u32 k = begin + slice; k < end; k += 8) {
      Pack<RIGHT_T, PACK> y = *(const Pack<RIGHT_T, PACK>*)(right + (i64)k * a.right_k + first);
#pragma unroll
      for (u32 r = 0; r < ROWS; r++) {
        SUM x = left_at(a, left, min_of(r, a.rows - 1), k);
#pragma unroll
        for (int c = 0; c < PACK; c++) sums[r][c] += x * ((SUM)get(y.at[c]) - (SUM)a.right_zero);
      }
    }
  }
#pragma unroll
  for (u32 r = 0; r < ROWS; r++) {
#pragma unroll
    for (int c = 0; c < PACK; c++) parts[slice * group + lane * PACK + c] = sums[r][c];
    __syncthreads();
    for (u32 at = threadIdx.x; at < group; at += 256) {
      SUM sum = parts[at];
      for (u32 s = 1; s < 8; s++) sum += parts[s * group + at];
      if (r < a.rows && across * group + at < a.columns) give(a, sum, batch, r, across * group + at);
    }
    __syncthreads();
  }
#endif
}
