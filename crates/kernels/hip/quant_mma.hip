// Products of few rows with packed weights, by matrix instructions: every byte of the weights is read once for 16 rows,
// and a number costs little more than what makes it a float, however many rows there are. See quant_product.h and mma.h.
//
// A wave makes 16 columns. In a round a lane reads PACKS packs of 16 bytes of the columns that it owns (OWNED of them), and
// the lanes that share a column (GROUPS of them) read neighbouring packs. Which k an instruction
// multiplies is free as long as both operands agree, so the numbers of a word are taken in the order in which they come in
// pairs: number i and number i + H of a word lie 16 bits apart, and with an exponent above them they are two floats. They
// are rounded once, when they are scaled, to the type of the activations: far below the rounding of the result. FEW: 1 if
// there are 8 rows at most. Rows are those from blockIdx.z * 16 on. Waves and blocks share k as in quant_gemv.hip.
#define H (PER_WORD / 2)
#define UNIT (4 * PER_WORD)
#define PART_WORDS (4 / SPLIT)
#if MATRIX == 1
#define GROUPS 4
#elif MATRIX == 2
#define GROUPS 1
#elif MATRIX == 3
#define GROUPS 2
#else
#define GROUPS 4
#endif
#define PACKS (MATRIX == 1 || MATRIX == 4 ? 1 : 2)
#define OWNED (MATRIX == 4 ? 2 : 1)
#define HALVES (MATRIX == 4 && !FEW ? 2 : 1)
// Pairs of a column in one instruction, and words that make a whole number of instructions.
#define PAIRS (8 / GROUPS)
#define STEP_WORDS (PAIRS > H ? PAIRS / H : 1)
#define FIELD_MASK (((1u << BITS) - 1) * 0x00010001u)

typedef Pack<u32, 4> Word4;
// What a lane reads in a round, before it is used.
struct Round {
  Word4 y[PACKS][OWNED];
  Shared shared[PACKS][OWNED][SPLIT];
};

// Two floats of type LEFT_T in a word, with the whole number `magic` + q each, as (that - base) * scale.
template <class T> struct Pair;
template <> struct Pair<f16> {
  static const u32 magic = 0x64006400u;
  typedef u32 Number;
  DEV Number number(f32 v) { return to_f16(v).bits * 0x00010001u; }
  DEV Number base(f32 zero) { return number(1024.0f + zero); }
  DEV u32 scaled(u32 bits, Number base, Number scale) {
#if defined(__CUDACC_RTC__)
    u32 r;
    asm("sub.rn.f16x2 %0, %1, %2;" : "=r"(r) : "r"(bits), "r"(base));
    asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(r) : "r"(r), "r"(scale));
    return r;
#elif defined(GPU_SIM)
    u32 r = 0;
    for (int i = 0; i < 32; i += 16) {
      f16 x, b, s;
      x.bits = (u16)(bits >> i), b.bits = (u16)(base >> i), s.bits = (u16)(scale >> i);
      r |= (u32)to_f16(get(to_f16(get(x) - get(b))) * get(s)).bits << i;
    }
    return r;
#else
    typedef _Float16 Two __attribute__((ext_vector_type(2)));
    Two x, b, s;
    __builtin_memcpy(&x, &bits, 4), __builtin_memcpy(&b, &base, 4), __builtin_memcpy(&s, &scale, 4);
    x = (x - b) * s;
    u32 r;
    __builtin_memcpy(&r, &x, 4);
    return r;
#endif
  }
};
template <> struct Pair<bf16> {
  static const u32 magic = 0x43004300u;
  typedef f32 Number;
  DEV Number number(f32 v) { return v; }
  DEV Number base(f32 zero) { return 128.0f + zero; }
  DEV u32 scaled(u32 bits, Number base, Number scale) {
    f32 low = (bits_f32(bits << 16) - base) * scale, high = (bits_f32(bits & 0xffff0000u) - base) * scale;
#if defined(__CUDACC_RTC__)
    u32 r;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
    return r;
#else
    return (f32_bits(low) + 0x8000u) >> 16 | ((f32_bits(high) + 0x8000u) & 0xffff0000u);
#endif
  }
};
typedef Pair<LEFT_T> Two;

DEV void set_pair(Fragment& f, int at, u32 two) {
  f.at[2 * at] = (u16)two;
  f.at[2 * at + 1] = (u16)(two >> 16);
}

// The pairs of a row that meet those of a word of weights from k on; zeros behind the row's end, which is a multiple of a
// word's numbers. Without a branch, so that loads can be made ahead.
DEV void load_pairs(const ProductArgs& p, const Rows& rows, u32 row, u32 k, u32* pairs) {
  u32 x[H];
  const bool inside = row < p.rows && k < p.depth;
#if NORM
  const u16* from = (const u16*)rows.at + (inside ? row_at(rows, row) + k : 0);
#else
  const u16* from = (const u16*)p.left + (inside ? (i64)row * p.left_row + k : 0);
#endif
  const int most = H < 4 ? H : 4;
#pragma unroll
  for (int i = 0; i < H; i += most) {
    Pack<u32, most> pack = *(const Pack<u32, most>*)(from + 2 * i);
#pragma unroll
    for (int e = 0; e < most; e++) x[i + e] = inside ? pack.at[e] : 0;
  }
#pragma unroll
  for (int i = 0; i < H; i++) {
    u32 low = x[i / 2], high = x[i / 2 + H / 2];
    pairs[i] = i % 2 ? low >> 16 | (high & 0xffff0000u) : (low & 0xffffu) | high << 16;
  }
}

DEV void multiply(Sums& sums, const Fragment& x, const Fragment& w) {
#if MATRIX == 4 && FEW && !defined(GPU_SIM)
  u32 left[4], right[2];
  for (int i = 0; i < 4; i++) left[i] = w.at[2 * i] | (u32)w.at[2 * i + 1] << 16;
  for (int i = 0; i < 2; i++) right[i] = x.at[2 * i] | (u32)x.at[2 * i + 1] << 16;
  Twin<LEFT_T>::mma(sums.at, left, right);
#elif MATRIX == 4
  mma<LEFT_T>(sums, w, x);
#else
  mma<LEFT_T>(sums, x, w);
#endif
}

KERNEL(quant_mma, 256, QuantArgs) {
  SHARED(f32, staged, 256 / MIN_WARP * 256);
  const ProductArgs& p = a.product;
  const u32 lane = threadIdx.x % WARP, wave = threadIdx.x / WARP, tiles = 256 / WARP / a.parts;
  const u32 top = blockIdx.z * 16, start = blockIdx.x * tiles * 16, first = start + wave / a.parts * 16;
  const u32 line = MATRIX == 4 ? lane / 4 : lane % 16, group = MATRIX == 4 ? lane % 4 : MATRIX == 2 ? 0 : lane / 16;
  Sums sums[2];
#pragma unroll
  for (int i = 0; i < MMA_SUMS; i++) sums[0].at[i] = sums[1].at[i] = 0;
  const u32 rounds = (a.units + PACKS * GROUPS - 1) / (PACKS * GROUPS), step = a.parts * p.splits;
  u32 column[OWNED];
  const u8* from[OWNED];
#pragma unroll
  for (u32 o = 0; o < OWNED; o++) {
    column[o] = min_of(first + line + o * 8, p.columns - 1);
    from[o] = p.right + (u64)column[o] * a.quant.row_bytes;
  }
  // A pack beyond the last is the last once more, which meets zeros.
  auto unit_of = [&](u32 round, u32 i) { return min_of((round * PACKS + i) * GROUPS + group, a.units - 1); };
  auto block_of = [&](u32 unit, u32 s) { return (unit * UNIT + s * PART_WORDS * PER_WORD) >> a.quant.block_shift; };
  auto load = [&](u32 round, Round& to) {
#pragma unroll
    for (u32 i = 0; i < PACKS; i++)
#pragma unroll
      for (u32 o = 0; o < OWNED; o++) {
        const u32 unit = unit_of(round, i);
        to.y[i][o] = *(const Word4*)(from[o] + (u64)unit * 16);
#pragma unroll
        for (u32 s = 0; s < SPLIT; s++) to.shared[i][o][s] = load_shared(a.quant, column[o], block_of(unit, s));
      }
  };
  Round now;
  u32 round = blockIdx.y * a.parts + wave % a.parts;
  if (round < rounds) load(round, now);
#if NORM
  SHARED(f32, squares, 16 * 256 / MIN_WARP);
  DYN_SHARED(LEFT_T, normed);
  const Rows rows = normed_rows(a, top, 16, normed, squares);
#else
  const Rows rows = {};
#endif
  for (; round < rounds; round += step) {
    Round next;
    load(round + step < rounds ? round + step : round, next);
#pragma unroll
    for (u32 i = 0; i < PACKS; i++) {
      const u32 begin = ((round * PACKS + i) * GROUPS + group) * UNIT;
      typename Two::Number base[OWNED][SPLIT], scale[OWNED][SPLIT];
#pragma unroll
      for (u32 o = 0; o < OWNED; o++)
#pragma unroll
        for (u32 s = 0; s < SPLIT; s++) {
          const Shared& shared = now.shared[i][o][s];
          base[o][s] = Two::base(zero_of(shared, block_of(unit_of(round, i), s)));
          scale[o][s] = Two::number((f32)get(shared.scale));
        }
#pragma unroll
      for (u32 word = 0; word < 4; word += STEP_WORDS) {
        u32 x[HALVES][STEP_WORDS * H], w[OWNED][STEP_WORDS * H];
#pragma unroll
        for (u32 more = 0; more < STEP_WORDS; more++) {
#pragma unroll
          for (u32 h = 0; h < HALVES; h++)
            load_pairs(p, rows, top + line + h * 8, begin + (word + more) * PER_WORD, x[h] + more * H);
#pragma unroll
          for (u32 o = 0; o < OWNED; o++)
#pragma unroll
            for (u32 e = 0; e < H; e++) {
              const u32 part = (word + more) / PART_WORDS;
              const u32 bits = (now.y[i][o].at[word + more] >> e * BITS & FIELD_MASK) | Two::magic;
              w[o][more * H + e] = Two::scaled(bits, base[o][part], scale[o][part]);
            }
        }
#pragma unroll
        for (u32 at = 0; at < STEP_WORDS * H; at += PAIRS) {
          Fragment fx, fw;
#pragma unroll
          for (u32 e = 0; e < PAIRS; e++) {
#if MATRIX == 4
            set_pair(fx, e, x[0][at + e]);
            set_pair(fx, 2 + e, HALVES == 2 ? x[HALVES - 1][at + e] : 0);
            set_pair(fw, e * 2, w[0][at + e]);
            set_pair(fw, e * 2 + 1, w[OWNED - 1][at + e]);
#else
            set_pair(fx, e, x[0][at + e]);
            set_pair(fw, e, w[0][at + e]);
#endif
          }
          multiply(sums[at / PAIRS % 2], fx, fw);
        }
        MMA_FENCE();
      }
    }
    now = next;
  }
  f32* tile = staged + wave * 256;
#pragma unroll
  for (u32 r = 0; r < MMA_ROWS; r++)
#pragma unroll
    for (u32 c = 0; c < MMA_COLUMNS; c++) {
      const u32 down = mma_row(lane, r), across = mma_column(lane, c);
      const f32 sum = sums[0].at[mma_at(r, c)] + sums[1].at[mma_at(r, c)];
      // Of a tile as [row of the product][column].
      tile[MATRIX == 4 ? across * 16 + down : down * 16 + across] = sum;
    }
  __syncthreads();
  const u32 width = tiles * 16;
  for (u32 at = threadIdx.x; at < min_of(p.rows - top, 16u) * width; at += 256) {
    const u32 row = at / width, across = at - row * width;
    if (start + across >= p.columns) continue;
    const f32* sum = staged + across / 16 * a.parts * 256 + row * 16 + across % 16;
    f32 total = sum[0];
    for (u32 i = 1; i < a.parts; i++) total += sum[i * 256];
    give(p, total, top + row, start + across);
  }
}
