// Products of one row with packed 4-bit weights and matrix instructions, at the speed of memory. See quant_product.h,
// mma.h (MATRIX is 4) and ahead.h. BITS is 4, ZEROS 0, and 32 numbers share a scale. THREADS: threads per block. PARTS:
// waves of a block that share k.
//
// A wave computes 16 columns, in rounds of 8 blocks of 32 numbers. Weights and scales pass through LDS, DEPTH rounds at
// a time, and the first loads are issued before earlier launches have ended. In LDS they are arranged so that an
// instruction gives each lane a word of a block: everything that is multiplied at once then has the same scale, and the
// sums are scaled instead of the numbers.
//
// A number below an exponent is a float: `magic` + q, or `magic` + 16 q in the next higher field. It is multiplied in
// this form: the excess in the sums depends on the row alone, and is subtracted together with the scaling. So nothing
// is rounded before f32. An infinite element of the row makes all of its results NaN, even where the formula gives an
// infinity.
#define BLOCKS 8
#define COLUMNS 16
#define ROUND (BLOCKS * 32)

typedef Pack<u32, 4> Word4;
typedef Pack<LEFT_T, 8> Eight;

// FIELDS: the numbers that fit below an exponent. FIRST, SECOND: the excess that each x adds to the sums of either
// field, including 8 for the zero point; SHARE: the factor of the second field's sums.
template <class T> struct Whole;
template <> struct Whole<f16> {
  static constexpr u32 magic = 0x64006400u;
  static constexpr int FIELDS = 2;
  static constexpr f32 FIRST = 1024 + 8, SECOND = 1024 / 16 + 8, SHARE = 1.0f / 16;
};
template <> struct Whole<bf16> {
  static constexpr u32 magic = 0x43004300u;
  static constexpr int FIELDS = 1;
  static constexpr f32 FIRST = 128 + 8, SECOND = 128 + 8, SHARE = 1;
};
typedef Whole<LEFT_T> Own;

// The data that a wave multiplies in a round. A block's packs of 8 columns are in different banks; data that is
// adjacent in memory stays within 64 bytes.
struct Slot {
  Word4 packs[2 * BLOCKS * 8];
  Pack<SCALE_T, BLOCKS> scales[COLUMNS];
};
DEV u32 pack_at(u32 half, u32 block, u32 line) {
  return ((half * 2 + block / 4) * 8 + line) * 4 + (block % 4 ^ line / 2 % 4);
}

// Word `lane % 4` of two blocks, for columns `lane / 4` and `lane / 4 + 8`: [block][column].
DEV void load_words(const Slot& slot, u32 block, u32 lane, u32* words) {
#if defined(GPU_SIM)
  for (u32 i = 0; i < 4; i++) words[i] = slot.packs[pack_at(i % 2, block + i / 2, lane / 4)].at[lane % 4];
#else
  const Fragment f = load_squares<false>((const u16*)&slot.packs[pack_at(lane / 8 % 2, block + lane / 16, lane % 8)]);
  COPY_BYTES(words, f.at, 16);
#endif
}

// The numbers of a word in pairs that are 16 bits apart, each below an exponent.
DEV u32 pair_of(u32 word, u32 at) {
  const u32 field = at % Own::FIELDS, moved = word >> (at - field) * 4, mask = 0x000f000fu << field * 4;
#if defined(__CUDACC_RTC__)
  u32 r;
  asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(r) : "r"(moved), "r"(mask), "r"(Own::magic));
  return r;
#else
  return (moved & mask) | Own::magic;
#endif
}

// The products of 16 columns with one row, for four pairs of each column.
DEV Sums multiplied(const u32* columns, const u32* row) {
  Sums sums;
  for (int i = 0; i < MMA_SUMS; i++) sums.at[i] = 0;
#if defined(GPU_SIM)
  Fragment left, right;
  COPY_BYTES(left.at, columns, 16);
  COPY_BYTES(right.at, row, 8);
  for (int i = 4; i < FRAGMENT; i++) right.at[i] = 0;
  mma<LEFT_T>(sums, left, right);
#else
  Twin<LEFT_T>::mma(sums.at, columns, row);
#endif
  return sums;
}

// Stores 8 numbers of the row in LDS, as pairs 0, 2, 1, 3, and the excess of its block.
DEV void keep(const Eight& x, u32 word, u16* row, f32* excess) {
  Word4 pairs;
  f32 sums[2] = {0, 0};
#pragma unroll
  for (int e = 0; e < 4; e++) {
    pairs.at[e / 2 + e % 2 * 2] = x.at[e].bits | (u32)x.at[e + 4].bits << 16;
    sums[e % 2] += (f32)get(x.at[e]) + (f32)get(x.at[e + 4]);
  }
  *(Word4*)(row + word * 8) = pairs;
  f32 sum = sums[0] * Own::FIRST + sums[1] * Own::SECOND;
  for (int mask = 1; mask < 4; mask *= 2) sum += SHFL_XOR(sum, mask);
  if (word % 4 == 0) excess[word / 4] = sum;
}

#if NORM
DEV f32 squares_of(const Eight& x) {
  f32 sums[2] = {0, 0};
#pragma unroll
  for (int i = 0; i < 8; i++) sums[i % 2] += (f32)get(x.at[i]) * (f32)get(x.at[i]);
  return sums[0] + sums[1];
}
DEV Eight normed(Eight x, const Eight& scale, f32 factor, bool round) {
#pragma unroll
  for (int i = 0; i < 8; i++) {
    f32 made = (f32)get(x.at[i]) * factor;
    if (round) made = (f32)get(put<LEFT_T>(made));
    x.at[i] = put<LEFT_T>(made * (f32)get(scale.at[i]));
  }
  return x;
}
#endif

KERNEL_EARLY(quant_row, THREADS, QuantArgs) {
  // The row, the excess of its blocks, the sums of waves, and the data in flight.
  DYN_SHARED(u16, row);
  f32* excess = (f32*)(row + a.depth);
  f32* sums = excess + a.depth / 32;
  const u32 lane = threadIdx.x % WARP, line = lane / 4, group = lane % 4;
  const u32 wave = threadIdx.x / WARP, part = wave % PARTS, tiles = THREADS / WARP / PARTS;
  Slot* ring = (Slot*)(sums + THREADS / WARP * COLUMNS) + wave * DEPTH;
  const u32 tile = blockIdx.x * tiles + wave / PARTS, rounds = a.depth / ROUND;
#if GATED
  const u32 first = tile / 2 * COLUMNS, half = tile % 2 * a.columns;
#else
  const u32 first = tile * COLUMNS, half = 0;
#endif
  // Columns past the end repeat the last one.
  auto column = [&](u32 at) { return (u64)(min_of(first + at, a.columns - 1) + half); };
  const u8* from[2];
  for (u32 h = 0; h < 2; h++) from[h] = a.right + column(line + h * 8) * a.quant.row_bytes + group * 16;
  const SCALE_T* scales = a.quant.scales + column(lane % COLUMNS) * a.quant.blocks;
  auto load = [&](u32 round, Slot& to) {
#pragma unroll
    for (u32 h = 0; h < 2; h++)
#pragma unroll
      for (u32 block = 0; block < BLOCKS; block += 4)
        copy_ahead(&to.packs[pack_at(h, block + group, line)], from[h] + (round * BLOCKS + block) * 16);
    if (lane < COLUMNS) copy_ahead(&to.scales[lane], scales + round * BLOCKS);
  };
#pragma unroll
  for (u32 i = 0; i < DEPTH; i++) {
    if (part + i * PARTS < rounds) load(part + i * PARTS, ring[i]);
    end_group();
  }

  const u32 words = a.depth / 8;
#if NORM
  const Eight* scale = (const Eight*)a.scale;
  const bool has_word = threadIdx.x < words;
  const u32 own = has_word ? threadIdx.x : 0;
  const Eight own_scale = scale[own];
#endif
  EARLIER_DONE();
  const Eight* left = (const Eight*)a.left;
#if NORM
  const Eight own_x = left[own];
  f32 square = has_word ? squares_of(own_x) : 0;
  for (u32 word = threadIdx.x + THREADS; word < words; word += THREADS) {
    const Eight x = left[word];
    square += squares_of(x);
  }
  square = block_sum<THREADS>(square, sums);
  const f32 factor = rsqrtf(square / (f32)a.depth + a.epsilon);
  if (has_word) keep(normed(own_x, own_scale, factor, a.round), own, row, excess);
  for (u32 word = threadIdx.x + THREADS; word < words; word += THREADS) {
    const Eight x = left[word], more = scale[word];
    keep(normed(x, more, factor, a.round), word, row, excess);
  }
#else
  for (u32 word = threadIdx.x; word < words; word += THREADS) {
    const Eight x = left[word];
    keep(x, word, row, excess);
  }
#endif
  __syncthreads();

  f32 low[2], high[2], over[2];
  for (u32 h = 0; h < 2; h++) low[h] = high[h] = over[h] = 0;
  u32 at = 0;
#pragma unroll 1
  for (u32 round = part; round < rounds; round += PARTS) {
    await_groups<DEPTH - 1>();
    wave_sync();
    const Slot& slot = ring[at];
    const Pack<SCALE_T, BLOCKS> shared[2] = {slot.scales[line], slot.scales[line + 8]};
    const Pack<f32, 4>* from_row = (const Pack<f32, 4>*)(excess + round * BLOCKS);
    const Pack<f32, 4> extra[2] = {from_row[0], from_row[1]};
#pragma unroll
    for (u32 two = 0; two < BLOCKS; two += 2) {
      u32 words[4];
      load_words(slot, two, lane, words);
#pragma unroll
      for (u32 i = 0; i < 2; i++) {
        const u32 block = two + i;
        const Word4 x = *(const Word4*)(row + ((round * BLOCKS + block) * 4 + group) * 8);
        Sums made[2];
#pragma unroll
        for (u32 m = 0; m < 2; m++) {
          u32 columns[4];
#pragma unroll
          for (u32 p = 0; p < 4; p++) columns[p] = pair_of(words[i * 2 + p % 2], m + p / 2 * 2);
          made[m] = multiplied(columns, x.at + m * 2);
        }
#pragma unroll
        for (u32 h = 0; h < 2; h++) {
          const f32 factor = (f32)get(shared[h].at[block]);
          low[h] += factor * made[0].at[mma_at(h, 0)];
          high[h] += factor * made[1].at[mma_at(h, 0)];
          over[h] += factor * extra[block / 4].at[block % 4];
        }
      }
    }
    // All lanes have read the slot before it is written again.
    wave_sync();
    if (round + DEPTH * PARTS < rounds) load(round + DEPTH * PARTS, ring[at]);
    end_group();
    at = at + 1 == DEPTH ? 0 : at + 1;
  }
  if (group == 0)
    for (u32 h = 0; h < 2; h++) sums[wave * COLUMNS + line + h * 8] = low[h] + high[h] * Own::SHARE - over[h];
  __syncthreads();
  const u32 width = tiles * COLUMNS / MADE_OF, across = threadIdx.x, made = blockIdx.x * width + across;
  if (across >= width || made >= a.columns) return;
  f32 total[MADE_OF];
#pragma unroll
  for (u32 h = 0; h < MADE_OF; h++) {
    const f32* of = sums + (across / COLUMNS * MADE_OF + h) * PARTS * COLUMNS + across % COLUMNS;
    total[h] = of[0];
#pragma unroll
    for (u32 i = 1; i < PARTS; i++) total[h] += of[i * COLUMNS];
  }
  give(a, total, 0, made);
}
