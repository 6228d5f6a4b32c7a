// The second pass of a convolution whose depth was split: adds up the parts in order and finishes. 8 sums per thread.
KERNEL_EARLY(conv_join, 256, ConvArgs) {
  const u32 packs = a.columns / 8, at = blockIdx.x * 256 + threadIdx.x, row = at / packs, column = (at - row * packs) * 8;
  EARLIER_DONE();
  if (row >= a.rows) return;
  Operands operands = operands_at(a, row, column);
  const u64 plane = (u64)a.rows * a.columns;
  const f32* from = a.partial + (u64)row * a.columns + column;
  Eight eight = {};
#pragma unroll 4
  for (u32 part = 0; part < a.splits; part++) {
    Pack<f32, 4> low = *(const Pack<f32, 4>*)(from + part * plane), high = *(const Pack<f32, 4>*)(from + part * plane + 4);
    for (int i = 0; i < 4; i++) {
      eight.low.at[i] += low.at[i];
      eight.high.at[i] += high.at[i];
    }
  }
  finish(a, eight, operands, row, column);
}
