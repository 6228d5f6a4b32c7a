// Packed weights, for all kernels that read them.
//
// Weights are in the model's layout: weights[column] is a row of row_bytes bytes along k, with the first number in the
// lowest bits of each byte; every 2^block_shift numbers share scales[column][block] and a zero point. BITS: 2, 4 or 8.
// ZEROS: the kind of zero points: 0 the middle of the range, 1 numbers of as many bits, 2 floats. SCALE_T, ZERO_T: the
// stored types of scales and zero points.
#define PER_WORD (32 / BITS)

struct Quant {
  const SCALE_T* scales;
  const ZERO_T* zeros;
  u32 blocks;     // blocks per column
  u32 zero_row;   // elements between the zero points of columns
  u32 row_bytes;  // bytes of weights per column
  u32 block_shift;
};

// The scale and zero point of a block, as stored: they can be loaded long before they are used.
struct Shared {
  SCALE_T scale;
  ZERO_T zero;
};
DEV Shared load_shared(const Quant& quant, u32 column, u32 block) {
  Shared shared;
  shared.scale = quant.scales[(u64)column * quant.blocks + block];
#if ZEROS == 1
  shared.zero = quant.zeros[(u64)column * quant.zero_row + block * BITS / 8];
#elif ZEROS == 2
  shared.zero = quant.zeros[(u64)column * quant.zero_row + block];
#endif
  return shared;
}
DEV f32 zero_of(const Shared& shared, u32 block) {
#if ZEROS == 0
  return (f32)(1 << (BITS - 1));
#elif ZEROS == 1
  return (f32)((u32)shared.zero >> block * BITS % 8 & ((1u << BITS) - 1));
#else
  return (f32)get(shared.zero);
#endif
}

// A byte of a word as a float. The twin converts integers slowly, but can place a byte behind the exponent of 2^23 in
// one instruction.
DEV f32 byte_f32(u32 word, int at) {
#if defined(__CUDACC_RTC__)
  return bits_f32(__byte_perm(word, 0x4b000000u, 0x7650u | (u32)at)) - 8388608.0f;
#else
  return (f32)(word >> at * 8 & 0xff);
#endif
}
// A number of a word as a float, before zero point and scale are applied.
DEV f32 field_f32(u32 word, int at) {
#if BITS == 8
  return byte_f32(word, at);
#elif BITS == 4
  return byte_f32(word >> at % 2 * 4 & 0x0f0f0f0fu, at / 2);
#else
  return byte_f32(word >> at % 4 * 2 & 0x03030303u, at / 4);
#endif
}
