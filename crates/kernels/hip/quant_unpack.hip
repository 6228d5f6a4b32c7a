// Unpacks weights to a matrix [columns, pitch] of T, for products of many rows. Each thread unpacks eight adjacent
// numbers along k, from BITS bytes. The pitch is a multiple of eight, and the elements between a row's end and the
// pitch are never read. See quant.h.
struct UnpackArgs {
  const u8* packed;
  T* out;
  Quant quant;
  u32 columns, eights;  // eights of a row
};

KERNEL(quant_unpack, 256, UnpackArgs) {
  const u32 at = blockIdx.x * 256 + threadIdx.x;
  if (at >= a.columns * a.eights) return;
  const u32 column = at / a.eights, k = (at - column * a.eights) * 8, block = k >> a.quant.block_shift;
  const u8* from = a.packed + (u64)column * a.quant.row_bytes + k * BITS / 8;
  const Shared shared = load_shared(a.quant, column, block);
  const f32 scale = (f32)get(shared.scale), zero = zero_of(shared, block);
  const Pack<u8, BITS> raw = *(const Pack<u8, BITS>*)from;
  u32 words[(BITS + 3) / 4] = {0};
  COPY_BYTES(words, &raw, BITS);
  Pack<T, 16 / (int)sizeof(T)> made[8 * sizeof(T) / 16];
#pragma unroll
  for (int e = 0; e < 8; e++)
    made[e * sizeof(T) / 16].at[e % (16 / (int)sizeof(T))] = put<T>((field_f32(words[e / PER_WORD], e % PER_WORD) - zero) * scale);
  Pack<T, 16 / (int)sizeof(T)>* to = (Pack<T, 16 / (int)sizeof(T)>*)(a.out + (u64)at * 8);
#pragma unroll
  for (int i = 0; i < 8 * (int)sizeof(T) / 16; i++) to[i] = made[i];
}
