// The second pass of a product whose depth was split: adds up the parts in order and finishes. One thread per sum.
KERNEL(combine, 256, ProductArgs) {
  Window w;
#if CONV
  w = window(a, 0);
#endif
  const u64 plane = (u64)a.rows * a.columns, count = plane * a.batches;
  const u64 at = block_number() * 256 + threadIdx.x;
  if (at < count) {
    SUM sum = a.partial[at];
    for (u32 part = 1; part < a.splits; part++) sum += a.partial[part * count + at];
    u32 batch = (u32)(at / plane), rest = (u32)(at - batch * plane);
    u32 row = rest / a.columns;
    finish(a, sum, row, spot(a, w, batch, rest - row * a.columns));
  }
}
