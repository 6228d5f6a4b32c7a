// Matrix products of few rows: the right operand is read once, as fast as memory gives it. See product.h.
//
// ROWS: 1, 2, 4 or 8, of which p.rows are there. PACK: elements of the right operand that are read at once. LEFT_PACK: the
// same of the left one, whose k then lie one behind the other. With SPLIT, blockIdx.y is a part of k, and the last block of a
// tile to come that far adds the parts up in order: one launch makes the product.
//
// ALONG_K: 1 if the right operand's k lies one behind the other, and a wave makes COLUMNS columns at a time. 0 if its columns
// do: LANES threads have PACK neighbouring ones each, and the others of a block's BLOCK share k with them, DEEP neighbours at
// a time, which are all on their way before the first is used.
//
// NORM: 1 if rows of the left operand are scaled, and divided by the root of the mean of their squares. That is one number
// for a row, so it is the sums that are divided: whoever walks along k sums the squares on the way. What lies between the norm
// and the product is not rounded.
struct GemvArgs {
  ProductArgs product;
  u32* counters;  // [batches, tiles_across]: zero before and after
#if NORM
  const LEFT_T* scale;
  f32* squares;  // [splits, tiles_across, rows]
  f32 epsilon;
#endif
};

typedef Pack<LEFT_T, LEFT_PACK> LeftSome;
typedef Pack<RIGHT_T, PACK> Some;

// COUNT elements of a row from k on; those from `end` on are zeros.
template <int COUNT>
DEV void load_left(const GemvArgs& a, const LEFT_T* left, u32 row, u32 k, u32 end, SUM* x, SUM& squares) {
  const ProductArgs& p = a.product;
  const LEFT_T* from = left + (i64)row * p.left_row;
#pragma unroll
  for (int i = 0; i < COUNT; i += LEFT_PACK) {
    const bool inside = k + i < end;
    LeftSome some;
    if (inside) some = *(const LeftSome*)(from + (i64)(k + i) * (LEFT_PACK > 1 ? 1 : p.left_k));
#if NORM
    LeftSome scale;
    if (inside) scale = *(const LeftSome*)(a.scale + k + i);
#endif
#pragma unroll
    for (int e = 0; e < LEFT_PACK; e++) {
      x[i + e] = inside ? (SUM)get(some.at[e]) - (SUM)p.left_zero : 0;
#if NORM
      squares += x[i + e] * x[i + e];
      if (inside) x[i + e] *= (SUM)get(scale.at[e]);
#endif
    }
  }
}

// What the sums of a row with these squares are multiplied with.
DEV SUM factor_of(const GemvArgs& a, SUM squares) {
#if NORM
  return rsqrtf(squares / (f32)a.product.depth + a.epsilon);
#else
  return 1;
#endif
}

DEV void finish_sum(const ProductArgs& p, SUM sum, SUM factor, u32 batch, u32 row, u32 column) {
  Window w;
  finish(p, NORM ? sum * factor : sum, row, spot(p, w, batch, column));
}

// A block's sum of its part of k.
DEV void give(const ProductArgs& p, SUM sum, SUM factor, u32 batch, u32 row, u32 column) {
#if SPLIT
  p.partial[(((u64)blockIdx.y * p.batches + batch) * p.rows + row) * p.columns + column] = sum;
#else
  finish_sum(p, sum, factor, batch, row, column);
#endif
}

#if SPLIT
// Behind all of a block's sums, of `width` columns from `first` on.
DEV void add_parts(const GemvArgs& a, u32 batch, u64 block, u32 first, u32 width) {
  SHARED(u32, is_last, 1);
  const ProductArgs& p = a.product;
  publish();
  __syncthreads();
  if (threadIdx.x == 0) {
    is_last[0] = count_up(a.counters + block) == p.splits - 1;
    if (is_last[0]) a.counters[block] = 0;
  }
  __syncthreads();
  if (!is_last[0]) return;
  receive();
  for (u32 at = threadIdx.x; at < p.rows * width; at += BLOCK) {
    const u32 row = at / width, column = first + at - row * width;
    if (column >= p.columns) continue;
    const SUM* from = p.partial + ((u64)batch * p.rows + row) * p.columns + column;
    SUM sum = 0, squares = 0;
#pragma unroll 8
    for (u32 part = 0; part < p.splits; part++) {
      sum += from[(u64)part * p.batches * p.rows * p.columns];
#if NORM
      squares += a.squares[(part * p.tiles_across + block) * p.rows + row];
#endif
    }
    finish_sum(p, sum, factor_of(a, squares), batch, row, column);
  }
}
#endif

KERNEL(gemv, BLOCK, GemvArgs) {
  const ProductArgs& p = a.product;
  const u32 begin = blockIdx.y * p.split_depth, end = min_of(p.depth, begin + p.split_depth);
  const u64 block = block_number();
  if (block >= (u64)p.tiles_across * p.batches) return;
  // A division of 64 bits takes as long as a read of memory.
  const u32 batch = p.batches == 1 ? 0 : (u32)(block / p.tiles_across);
  const u32 across = (u32)(block - (u64)batch * p.tiles_across);
  const u32 high = batch / p.low_extent, low = batch - high * p.low_extent;
  const LEFT_T* left = p.left + (i64)high * p.left_high + (i64)low * p.left_low;
  const RIGHT_T* right = p.right + (i64)high * p.right_high + (i64)low * p.right_low;
#if ALONG_K
  const u32 width = BLOCK / WARP * COLUMNS, lane = threadIdx.x % WARP;
  const u32 first = across * width + threadIdx.x / WARP * COLUMNS;
  SUM sums[ROWS][COLUMNS], squares[ROWS];
  for (int r = 0; r < ROWS; r++) {
    squares[r] = 0;
    for (int c = 0; c < COLUMNS; c++) sums[r][c] = 0;
  }
  const RIGHT_T* column[COLUMNS];
  // Columns beyond the last are the last once more.
  for (u32 c = 0; c < COLUMNS; c++) column[c] = right + (i64)min_of(first + c, p.columns - 1) * p.right_at[2];
#pragma unroll (COLUMNS > 4 ? 1 : 8 / COLUMNS)
  for (u32 k = begin + lane * PACK; k < end; k += WARP * PACK) {
    Some y[COLUMNS];
#pragma unroll
    for (int c = 0; c < COLUMNS; c++) y[c] = *(const Some*)(column[c] + k);
#pragma unroll
    for (u32 r = 0; r < ROWS; r++) {
      SUM x[PACK];
      load_left<PACK>(a, left, min_of(r, p.rows - 1), k, end, x, squares[r]);
#pragma unroll
      for (int e = 0; e < PACK; e++)
#pragma unroll
        for (int c = 0; c < COLUMNS; c++) sums[r][c] += x[e] * ((SUM)get(y[c].at[e]) - (SUM)p.right_zero);
    }
  }
#pragma unroll
  for (u32 r = 0; r < ROWS; r++) {
#if NORM
    squares[r] = wave_sum(squares[r]);
#if SPLIT
    if (threadIdx.x == 0 && r < p.rows) a.squares[(blockIdx.y * p.tiles_across + block) * p.rows + r] = squares[r];
#endif
#endif
#pragma unroll
    for (u32 c = 0; c < COLUMNS; c++) {
      SUM sum = wave_sum(sums[r][c]);
      if (lane == 0 && r < p.rows && first + c < p.columns) give(p, sum, factor_of(a, squares[r]), batch, r, first + c);
    }
  }
#else
  const u32 width = LANES * PACK;
  SHARED(SUM, parts, BLOCK / MIN_WARP * ROWS * LANES * PACK);
#if NORM
  SHARED(SUM, row_squares, BLOCK / MIN_WARP * ROWS);
#endif
  const u32 lane = threadIdx.x % LANES, first = across * width + lane * PACK;
  SUM sums[ROWS][PACK], squares[ROWS];
  for (int r = 0; r < ROWS; r++) {
    squares[r] = 0;
    for (int c = 0; c < PACK; c++) sums[r][c] = 0;
  }
  if (first < p.columns) {
    for (u32 k = begin + threadIdx.x / LANES * DEEP; k < end; k += BLOCK / LANES * DEEP) {
      Some y[DEEP];
      const RIGHT_T* from = right + (i64)k * p.right_k + first;
#pragma unroll
      for (int d = 0; d < DEEP; d++)
        if (k + d < end) y[d] = *(const Some*)(from + (i64)d * p.right_k);
#pragma unroll
      for (u32 r = 0; r < ROWS; r++) {
        SUM x[DEEP];
        load_left<DEEP>(a, left, min_of(r, p.rows - 1), k, end, x, squares[r]);
#pragma unroll
        for (int d = 0; d < DEEP; d++)
          if (k + d < end)
#pragma unroll
            for (int c = 0; c < PACK; c++) sums[r][c] += x[d] * ((SUM)get(y[d].at[c]) - (SUM)p.right_zero);
      }
    }
  }
  // The lanes of a wave that have the same columns, then its waves.
  const u32 wave = threadIdx.x / WARP;
#pragma unroll
  for (int r = 0; r < ROWS; r++) {
#pragma unroll
    for (int c = 0; c < PACK; c++) {
      for (int mask = LANES; mask < WARP; mask <<= 1) sums[r][c] += SHFL_XOR(sums[r][c], mask);
      if (threadIdx.x % WARP < LANES) parts[(wave * ROWS + r) * width + lane * PACK + c] = sums[r][c];
    }
#if NORM
    for (int mask = LANES; mask < WARP; mask <<= 1) squares[r] += SHFL_XOR(squares[r], mask);
    if (threadIdx.x % WARP == 0) row_squares[wave * ROWS + r] = squares[r];
#endif
  }
  __syncthreads();
  for (u32 at = threadIdx.x; at < p.rows * width; at += BLOCK) {
    const u32 row = at / width, c = at - row * width;
    SUM sum = 0, square = 0;
    for (u32 w = 0; w < BLOCK / WARP; w++) {
      sum += parts[w * ROWS * width + at];
#if NORM
      square += row_squares[w * ROWS + row];
#endif
    }
#if NORM && SPLIT
    if (c == 0) a.squares[(blockIdx.y * p.tiles_across + block) * p.rows + row] = square;
#endif
    if (across * width + c < p.columns) give(p, sum, factor_of(a, square), batch, row, across * width + c);
  }
#endif
#if SPLIT
  add_parts(a, batch, block, across * width, width);
#endif
}
