// What the texts of products with packed weights share. See product.h, which comes before it.
//
// Weights lie as in the model: weights[column] is a row of a.row_bytes bytes along k, the first number in the lowest bits
// of each; every 2^block_shift numbers share scales[column][block] and a zero point. BITS: 2, 4 or 8. ZEROS: what stands
// for zero: 0 the middle of the range, 1 numbers of as many bits, 2 floats. SCALE_T, ZERO_T: how scales and zero points
// are stored.
#define PER_WORD (32 / BITS)

struct QuantArgs {
  ProductArgs product;
  const SCALE_T* scales;
  const ZERO_T* zeros;
  u32 blocks;      // of a column
  u32 zero_row;    // elements between the zero points of columns
  u32 row_bytes;   // of weights
  u32 block_shift;
  u32 units;       // what lanes read at a time, in a column
  u32 parts;       // waves of a block that share k
};

DEV f32 scale_of(const QuantArgs& a, u32 column, u32 block) {
  return (f32)get(a.scales[(u64)column * a.blocks + block]);
}
DEV f32 zero_of(const QuantArgs& a, u32 column, u32 block) {
#if ZEROS == 0
  return (f32)(1 << (BITS - 1));
#elif ZEROS == 1
  u32 bit = block * BITS;
  return (f32)((u32)a.zeros[(u64)column * a.zero_row + bit / 8] >> bit % 8 & ((1u << BITS) - 1));
#else
  return (f32)get(a.zeros[(u64)column * a.zero_row + block]);
#endif
}

// A byte of a word. The twin converts integers slowly, but puts a byte behind the exponent of 2^23 in one instruction.
DEV f32 byte_f32(u32 word, int at) {
#if defined(__CUDACC_RTC__)
  return bits_f32(__byte_perm(word, 0x4b000000u, 0x7650u | (u32)at)) - 8388608.0f;
#else
  return (f32)(word >> at * 8 & 0xff);
#endif
}
// A number of a word, before its zero point and scale.
DEV f32 field_f32(u32 word, int at) {
#if BITS == 8
  return byte_f32(word, at);
#elif BITS == 4
  return byte_f32(word >> at % 2 * 4 & 0x0f0f0f0fu, at / 2);
#else
  return byte_f32(word >> at % 4 * 2 & 0x03030303u, at / 4);
#endif
}

// What becomes of the sum of a block's part of k.
DEV void give(const ProductArgs& p, f32 sum, u32 row, u32 column) {
#if PARTIAL
  p.partial[((u64)blockIdx.y * p.rows + row) * p.columns + column] = sum;
#else
  Window w;
  finish(p, sum, row, spot(p, w, 0, column));
#endif
}
