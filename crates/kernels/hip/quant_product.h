// Products of few rows with packed weights. See product.h and quant.h, which come before it.
struct QuantArgs {
  ProductArgs product;
  Quant quant;
  u32 units;  // what lanes read at a time, in a column
  u32 parts;  // waves of a block that share k
};

// What becomes of the sum of a block's part of k.
DEV void give(const ProductArgs& p, f32 sum, u32 row, u32 column) {
#if PARTIAL
  p.partial[((u64)blockIdx.y * p.rows + row) * p.columns + column] = sum;
#else
  Window w;
  finish(p, sum, row, spot(p, w, 0, column));
#endif
}
