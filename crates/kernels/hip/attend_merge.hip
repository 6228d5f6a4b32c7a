// The second pass of attention whose keys were split: one thread per element of the output.
KERNEL(attend_merge, 256, AttentionArgs) {
  const u64 rows = (u64)a.batches * a.rows, at = (u64)blockIdx.x * 256 + threadIdx.x;
  if (at >= rows * a.width) return;
  u64 row = at / a.width;
  u32 e = (u32)(at - row * a.width);
  const f32* part = a.partial + row * (a.width + 2);
  const u64 step = rows * (a.width + 2);
  f32 top = -INFINITY_OF(f32);
  for (u32 s = 0; s < a.splits; s++) top = max_of(top, part[s * step + a.width]);
  f32 shift = shift_of(top), sum = 0, weights = 0;
  for (u32 s = 0; s < a.splits; s++) {
    f32 share = weight_of(part[s * step + a.width], shift);
    sum += part[s * step + e] * share;
    weights += part[s * step + a.width + 1] * share;
  }
  u32 batch = (u32)(row / a.rows);
  RowSpot spot = row_spot(a, batch, (u32)(row - (u64)batch * a.rows));
  a.out[spot.out + (i64)e * a.out_at] = put<T>(sum * factor_of(a, weights));
}
