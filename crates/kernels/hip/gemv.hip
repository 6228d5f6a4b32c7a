// Matrix products of few rows: the right operand is read once, at the speed of memory. See product.h.
//
// ROWS: 1, 2, 4 or 8, of which a.rows exist. PACK: elements of the right operand that are read at once. LEFT_PACK: the
// same for the left operand, whose k is then contiguous. With SPLIT, blockIdx.y is a part of k, and the last block of a
// tile to finish adds up the parts in order: one launch computes the product.
//
// ALONG_K: 1 if the right operand is contiguous along k; a wave then computes COLUMNS columns at a time. 0 if its
// columns are contiguous: LANES threads have PACK adjacent columns each, and the other threads of a block of BLOCK
// share k with them, DEEP adjacent ones at a time, which are all loaded before the first is used. EARLY: 1 if the first
// loads are issued before earlier launches have ended, on devices that allow that; then DEEP divides the depth.
//
// NORM: 1 if rows of the left operand are scaled, and divided by the root of the mean of their squares. The divisor is
// one number per row, so it is applied to the sums; threads sum the squares while they walk along k. Nothing is rounded
// between the norm and the product.
//
// GATED: 1 if the right operand has twice as many columns as the output, and `gated` combines the sums of columns n and
// n + a.columns into an element: half of the lanes read the first half, half the second. Not with ALONG_K or SPLIT.
//
// Arguments are few and in the order of their use: a block gets the first ones with a single read of memory.
struct GemvPlace { i64 high, low, row, column; };
struct GemvArgs {
  const LEFT_T* left;
  const RIGHT_T* right;
  i64 left_row, left_k;
  i64 right_next;  // stride between contiguous pieces: rows of the right operand, or columns
  u32 rows, columns, depth, split_depth, splits, tiles;
  u32 batches, low_extent;  // batch = high * low_extent + low
  i32 left_zero, right_zero;
  f32 alpha;
  OUT_T* out;
  GemvPlace out_place;
  SUM* partial;   // [splits, batches, rows, columns]
  u32* counters;  // [batches, tiles]: zero before and after
#if NORM
  const LEFT_T* scale;
  f32* squares;  // [splits, tiles, rows]
  f32 epsilon;
#endif
#if OPERANDS
  const void* operand[OPERANDS];
  GemvPlace operand_place[OPERANDS];
#endif
#if BIAS
  const BIAS_T* bias;
  i64 bias_low, bias_row, bias_column;
#endif
  i64 left_high, left_low, right_high, right_low;
};

typedef Pack<LEFT_T, LEFT_PACK> LeftPack;
typedef Pack<RIGHT_T, PACK> Some;

// COUNT elements of a row from k on; elements from `end` on are zeros.
template <int COUNT>
DEV void load_left(const GemvArgs& a, const LEFT_T* left, u32 row, u32 k, u32 end, SUM* x, SUM& squares) {
  const LEFT_T* from = left + (i64)row * a.left_row;
#pragma unroll
  for (int i = 0; i < COUNT; i += LEFT_PACK) {
    const bool inside = k + i < end;
    LeftPack some;
    if (inside) some = *(const LeftPack*)(from + (i64)(k + i) * (LEFT_PACK > 1 ? 1 : a.left_k));
#if NORM
    LeftPack scale;
    if (inside) scale = *(const LeftPack*)(a.scale + k + i);
#endif
#pragma unroll
    for (int e = 0; e < LEFT_PACK; e++) {
      x[i + e] = inside ? (SUM)get(some.at[e]) - (SUM)a.left_zero : 0;
#if NORM
      squares += x[i + e] * x[i + e];
      if (inside) x[i + e] *= (SUM)get(scale.at[e]);
#endif
    }
  }
}

// The factor for the sums of a row with these squares.
DEV SUM factor_of(const GemvArgs& a, SUM squares) {
#if NORM
  return rsqrtf(squares / (f32)a.depth + a.epsilon);
#else
  return 1;
#endif
}

struct GemvSpot {
#if OPERANDS
  i64 operand[OPERANDS];
#else
  u32 none;
#endif
};

DEV i64 place_at(const GemvPlace& place, u32 high, u32 low, u32 column) {
  return (i64)high * place.high + (i64)low * place.low + (i64)column * place.column;
}

#define MADE_OF (GATED + 1)

// Stores the elements computed from sums.
DEV void store_sum(const GemvArgs& a, const SUM* sums, SUM factor, u32 batch, u32 row, u32 column) {
  const u32 high = batch ? batch / a.low_extent : 0, low = batch - high * a.low_extent;
  SUM sum = scaled(NORM ? sums[0] * factor : sums[0], a.alpha);
#if BIAS
  sum += (SUM)get(a.bias[(i64)low * a.bias_low + (i64)row * a.bias_row + (i64)column * a.bias_column]);
#endif
  OUT_T* out = a.out + place_at(a.out_place, high, low, column) + (i64)row * a.out_place.row;
#if GATED
  *out = gated(sum, scaled(NORM ? sums[1] * factor : sums[1], a.alpha));
#elif FUSED
  GemvSpot s;
#if OPERANDS
  for (int i = 0; i < OPERANDS; i++) s.operand[i] = place_at(a.operand_place[i], high, low, column);
#endif
  *out = epilogue(a, (SIGNED)sum, row, s);
#else
  *out = put<OUT_T>((SIGNED)sum);
#endif
}

// Passes on a block's sums of its part of k.
DEV void give(const GemvArgs& a, const SUM* sums, SUM factor, u32 batch, u32 row, u32 column) {
#if SPLIT
  a.partial[(((u64)blockIdx.y * a.batches + batch) * a.rows + row) * a.columns + column] = sums[0];
#else
  store_sum(a, sums, factor, batch, row, column);
#endif
}

#if SPLIT
// Called after all of a block's sums, for `width` columns from `first` on.
DEV void add_parts(const GemvArgs& a, u32 batch, u64 block, u32 first, u32 width) {
  SHARED(u32, is_last, 1);
  // Like `is_last_block` of the prelude, but values that are needed after the first barrier stay in memory until then:
  // scalar registers are scarce here.
  publish();
  __syncthreads();
  if (threadIdx.x == 0) {
    is_last[0] = count_up(a.counters + block) == a.splits - 1;
    if (is_last[0]) a.counters[block] = 0;
  }
  __syncthreads();
  if (!is_last[0]) return;
  receive();
  for (u32 at = threadIdx.x; at < a.rows * width; at += BLOCK) {
    const u32 row = at / width, column = first + at - row * width;
    if (column >= a.columns) continue;
    const SUM* from = a.partial + ((u64)batch * a.rows + row) * a.columns + column;
    SUM sum = 0, squares = 0;
#pragma unroll 8
    for (u32 part = 0; part < a.splits; part++) {
      sum += from[(u64)part * a.batches * a.rows * a.columns];
#if NORM
      squares += a.squares[(part * a.tiles + block) * a.rows + row];
#endif
    }
    store_sum(a, &sum, factor_of(a, squares), batch, row, column);
  }
}
#endif

KERNEL_EARLY(gemv, BLOCK, GemvArgs) {
#if !EARLY
  EARLIER_DONE();
#endif
  const u32 begin = blockIdx.y * a.split_depth, end = min_of(a.depth, begin + a.split_depth);
  const u64 block = block_number();
  if (block >= (u64)a.tiles * a.batches) return;
  u32 batch = 0;
  const LEFT_T* left = a.left;
  const RIGHT_T* right = a.right;
  if (a.batches > 1) {
    batch = (u32)(block / a.tiles);
    const u32 high = batch / a.low_extent, low = batch - high * a.low_extent;
    left += (i64)high * a.left_high + (i64)low * a.left_low;
    right += (i64)high * a.right_high + (i64)low * a.right_low;
  }
  const u32 across = (u32)(block - (u64)batch * a.tiles);
#if ALONG_K
  const u32 width = BLOCK / WARP * COLUMNS, lane = threadIdx.x % WARP;
  const u32 first = across * width + threadIdx.x / WARP * COLUMNS;
  SUM sums[ROWS][COLUMNS], squares[ROWS];
  for (int r = 0; r < ROWS; r++) {
    squares[r] = 0;
    for (int c = 0; c < COLUMNS; c++) sums[r][c] = 0;
  }
  const RIGHT_T* column[COLUMNS];
  // Columns past the end repeat the last one.
  for (u32 c = 0; c < COLUMNS; c++) column[c] = right + (i64)min_of(first + c, a.columns - 1) * a.right_next;
#pragma unroll 2
  for (u32 k = begin + lane * PACK; k < end; k += WARP * PACK) {
    Some y[COLUMNS];
#pragma unroll
    for (int c = 0; c < COLUMNS; c++) y[c] = *(const Some*)(column[c] + k);
#pragma unroll
    for (u32 r = 0; r < ROWS; r++) {
      SUM x[PACK];
      load_left<PACK>(a, left, min_of(r, a.rows - 1), k, end, x, squares[r]);
#pragma unroll
      for (int e = 0; e < PACK; e++)
#pragma unroll
        for (int c = 0; c < COLUMNS; c++) sums[r][c] += x[e] * ((SUM)get(y[c].at[e]) - (SUM)a.right_zero);
    }
  }
#pragma unroll
  for (u32 r = 0; r < ROWS; r++) {
#if NORM
    squares[r] = wave_sum(squares[r]);
#if SPLIT
    if (threadIdx.x == 0 && r < a.rows) a.squares[(blockIdx.y * a.tiles + block) * a.rows + r] = squares[r];
#endif
#endif
#pragma unroll
    for (u32 c = 0; c < COLUMNS; c++) {
      SUM sum = wave_sum(sums[r][c]);
      if (lane == 0 && r < a.rows && first + c < a.columns) give(a, &sum, factor_of(a, squares[r]), batch, r, first + c);
    }
  }
#else
  const u32 width = LANES * PACK / MADE_OF;
  SHARED(SUM, parts, BLOCK / MIN_WARP * ROWS * LANES * PACK);
#if NORM
  SHARED(SUM, row_squares, BLOCK / MIN_WARP * ROWS);
#endif
  const u32 lane = threadIdx.x % LANES, first = across * width + lane % (LANES / MADE_OF) * PACK;
  SUM sums[ROWS][PACK], squares[ROWS];
  for (int r = 0; r < ROWS; r++) {
    squares[r] = 0;
    for (int c = 0; c < PACK; c++) sums[r][c] = 0;
  }
#if EARLY
  const RIGHT_T* from = right + lane / (LANES / MADE_OF) * a.columns + first;
  const u32 step = BLOCK / LANES * DEEP;
  // As words: for parts of registers, the compiler would insert moves here, and wait for them.
  typedef Pack<u32, sizeof(Some) / 4> Words;
  Words y[DEEP];
  auto load = [&](u32 k) {
    const RIGHT_T* next = from + (i64)k * a.right_next;
#pragma unroll
    for (int d = 0; d < DEEP; d++) y[d] = *(const Words*)(next + (i64)d * a.right_next);
  };
  u32 k = first < a.columns ? begin + threadIdx.x / LANES * DEEP : end;
  if (k < end) load(k);
  EARLIER_DONE();
#pragma unroll 1
  for (; k < end; k += step) {
#pragma unroll
    for (u32 r = 0; r < ROWS; r++) {
      SUM x[DEEP];
      load_left<DEEP>(a, left, min_of(r, a.rows - 1), k, end, x, squares[r]);
#pragma unroll
      for (int d = 0; d < DEEP; d++) {
        Some some;
        COPY_BYTES(&some, &y[d], sizeof(some));
#pragma unroll
        for (int c = 0; c < PACK; c++) sums[r][c] += x[d] * ((SUM)get(some.at[c]) - (SUM)a.right_zero);
      }
    }
    if (k + step < end) load(k + step);
  }
#else
  if (first < a.columns) {
    for (u32 k = begin + threadIdx.x / LANES * DEEP; k < end; k += BLOCK / LANES * DEEP) {
      Some y[DEEP];
      const RIGHT_T* from = right + (i64)k * a.right_next + lane / (LANES / MADE_OF) * a.columns + first;
#pragma unroll
      for (int d = 0; d < DEEP; d++)
        if (k + d < end) y[d] = *(const Some*)(from + (i64)d * a.right_next);
#pragma unroll
      for (u32 r = 0; r < ROWS; r++) {
        SUM x[DEEP];
        load_left<DEEP>(a, left, min_of(r, a.rows - 1), k, end, x, squares[r]);
#pragma unroll
        for (int d = 0; d < DEEP; d++)
          if (k + d < end)
#pragma unroll
            for (int c = 0; c < PACK; c++) sums[r][c] += x[d] * ((SUM)get(y[d].at[c]) - (SUM)a.right_zero);
      }
    }
  }
#endif
  // First the lanes of a wave with the same columns, then its waves.
  const u32 wave = threadIdx.x / WARP;
#pragma unroll
  for (int r = 0; r < ROWS; r++) {
#pragma unroll
    for (int c = 0; c < PACK; c++) {
      for (int mask = LANES; mask < WARP; mask <<= 1) sums[r][c] += SHFL_XOR(sums[r][c], mask);
      if (threadIdx.x % WARP < LANES) parts[(wave * ROWS + r) * (LANES * PACK) + lane * PACK + c] = sums[r][c];
    }
#if NORM
    for (int mask = LANES; mask < WARP; mask <<= 1) squares[r] += SHFL_XOR(squares[r], mask);
    if (threadIdx.x % WARP == 0) row_squares[wave * ROWS + r] = squares[r];
#endif
  }
  __syncthreads();
  for (u32 at = threadIdx.x; at < a.rows * width; at += BLOCK) {
    const u32 row = at / width, c = at - row * width;
    SUM made[MADE_OF], square = 0;
    for (int m = 0; m < MADE_OF; m++) made[m] = 0;
    for (u32 w = 0; w < BLOCK / WARP; w++) {
#pragma unroll
      for (int m = 0; m < MADE_OF; m++) made[m] += parts[(w * ROWS + row) * (LANES * PACK) + m * width + c];
#if NORM
      square += row_squares[w * ROWS + row];
#endif
    }
#if NORM && SPLIT
    if (c == 0) a.squares[(blockIdx.y * a.tiles + block) * a.rows + row] = square;
#endif
    if (across * width + c < a.columns) give(a, made, factor_of(a, square), batch, row, across * width + c);
  }
#endif
#if SPLIT
  add_parts(a, batch, block, across * width, width);
#endif
}
