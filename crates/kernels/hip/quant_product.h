// Products of few rows with packed weights. See product.h and quant.h, which come before it.
//
// NORM: 0, or rows of the left operand are normalised first, that many elements at a time: each is divided by the root of the
// mean of its squares, and scaled. Every block does so for all rows that it reads, in LDS, while its first weights are on
// their way: rows are short, and stay in caches that all blocks share.
struct QuantArgs {
  ProductArgs product;
  Quant quant;
  u32 units;  // what lanes read at a time, in a column
  u32 parts;  // waves of a block that share k
#if NORM
  const LEFT_T* scale;
  f32 epsilon;
  u32 round;  // before scaling
#endif
};

#if NORM
// Where normalised rows lie, those from `first` on.
struct Rows {
  const LEFT_T* at;
  u32 pitch, first;
};
DEV u32 row_at(const Rows& rows, u32 row) { return (row - rows.first) * rows.pitch; }

typedef Pack<LEFT_T, NORM> Some;
// `out` has room for the rows, `squares` for a number of each row and wave; at most `most` rows are made.
DEV Rows normed_rows(const QuantArgs& a, u32 top, u32 most, LEFT_T* out, f32* squares) {
  const ProductArgs& p = a.product;
  const u32 count = min_of(p.rows - top, most), waves = 256 / WARP, wave = threadIdx.x / WARP;
  const LEFT_T* left = p.left + (i64)top * p.left_row;
  for (u32 r = 0; r < count; r++) {
    f32 sum = 0;
    for (u32 k = threadIdx.x * NORM; k < p.depth; k += 256 * NORM) {
      Some x = *(const Some*)(left + (i64)r * p.left_row + k);
#pragma unroll
      for (int i = 0; i < NORM; i++) sum += (f32)get(x.at[i]) * (f32)get(x.at[i]);
    }
    sum = wave_sum(sum);
    if (threadIdx.x % WARP == 0) squares[r * waves + wave] = sum;
  }
  __syncthreads();
  for (u32 r = 0; r < count; r++) {
    f32 sum = 0;
    for (u32 w = 0; w < waves; w++) sum += squares[r * waves + w];
    const f32 factor = rsqrtf(sum / (f32)p.depth + a.epsilon);
    for (u32 k = threadIdx.x * NORM; k < p.depth; k += 256 * NORM) {
      Some x = *(const Some*)(left + (i64)r * p.left_row + k), scale = *(const Some*)(a.scale + k);
#pragma unroll
      for (int i = 0; i < NORM; i++) {
        f32 made = (f32)get(x.at[i]) * factor;
        if (a.round) made = (f32)get(put<LEFT_T>(made));
        x.at[i] = put<LEFT_T>(made * (f32)get(scale.at[i]));
      }
      *(Some*)(out + r * p.depth + k) = x;
    }
  }
  __syncthreads();
  Rows rows;
  rows.at = out;
  rows.pitch = p.depth;
  rows.first = top;
  return rows;
}
#else
struct Rows {};
#endif

// What becomes of the sum of a block's part of k.
DEV void give(const ProductArgs& p, f32 sum, u32 row, u32 column) {
#if PARTIAL
  p.partial[((u64)blockIdx.y * p.rows + row) * p.columns + column] = sum;
#else
  Window w;
  finish(p, sum, row, spot(p, w, 0, column));
#endif
}
