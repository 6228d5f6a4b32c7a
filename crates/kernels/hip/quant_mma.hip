// Products of few rows with packed weights and matrix instructions: every byte of the weights is read once for 16 rows,
// and a number costs little more than its conversion to a float, however many rows there are. See quant_product.h and
// mma.h.
//
// A wave computes 16 columns. In each round a lane reads PACKS packs of 16 bytes of its own columns (OWNED of them),
// and the lanes that share a column (GROUPS of them) read adjacent packs. An instruction may multiply any k, as long as
// both operands agree. So the numbers of a word are used in pairs: numbers i and i + H of a word are 16 bits apart, and
// with an exponent above them they are two floats. They are rounded once, when they are scaled, to the type of the
// activations; that error is far below the rounding of the result. FEW: 1 if there are at most 8 rows. Rows start at
// blockIdx.z * 16. Waves and blocks share k as in quant_gemv.hip.
//
// Each round is read while the previous one is multiplied. SHORT: 1 to read nothing after the last round, which is
// worth a branch if there are few rounds; 0 reads the last one again. STAGED: 1 if rows are first copied to LDS, in the
// order in which lanes read them; normalised rows always are.
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
#define OWNED (MATRIX == 4 ? 2 : 1)
#define HALVES (MATRIX == 4 && !FEW ? 2 : 1)
// Pairs of a column per instruction, and words that fill a whole number of instructions.
#define PAIRS (8 / GROUPS)
#define STEP_WORDS (PAIRS > H ? PAIRS / H : 1)
// The number of a wave's sums that are kept.
#define TILE (FEW ? 128 : 256)
// Padding between rows in LDS, in elements, so that lanes of different rows access different banks.
#define ROW_PAD (MATRIX == 4 ? 32 : 8)
#define FIELD_MASK (((1u << BITS) - 1) * 0x00010001u)

typedef Pack<u32, 4> Word4;
// The data that a lane reads in a round, before it is used.
struct Round {
  Word4 y[PACKS][OWNED];
  Shared shared[PACKS][OWNED][SPLIT];
};

// Two floats of type LEFT_T in a word: a field of the word below an exponent is the integer `magic` + q, or `magic` + q
// times a power of two for a higher field, which saves shifts. FIELDS of them fit below the exponent. They become (q -
// zero) * scale; adding `base` removes `magic` and the zero point.
template <class T> struct Pair;
template <> struct Pair<f16> {
  static const u32 magic = 0x64006400u;
  static const int FIELDS = BITS == 8 ? 1 : 8 / BITS;
  typedef u32 Number;
  DEV Number number(f32 v) { return to_f16(v).bits * 0x00010001u; }
  DEV Number base(f32 zero, int field) { return number(-zero - (f32)(1024 >> field * BITS)); }
  DEV u32 scaled(u32 bits, int field, Number base, Number scale) {
    const u32 part = field == 0 ? 0x3c003c00u : number(1.0f / (f32)(1 << field * BITS));
#if defined(__CUDACC_RTC__)
    u32 r;
    if (field == 0)
      asm("add.rn.f16x2 %0, %1, %2;" : "=r"(r) : "r"(bits), "r"(base));
    else
      asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(r) : "r"(bits), "r"(part), "r"(base));
    asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(r) : "r"(r), "r"(scale));
    return r;
#elif defined(GPU_SIM)
    u32 r = 0;
    for (int i = 0; i < 32; i += 16) {
      f16 x, p, b, s;
      x.bits = (u16)(bits >> i), p.bits = (u16)(part >> i), b.bits = (u16)(base >> i), s.bits = (u16)(scale >> i);
      r |= (u32)to_f16(get(to_f16(get(x) * get(p) + get(b))) * get(s)).bits << i;
    }
    return r;
#else
    typedef _Float16 Two __attribute__((ext_vector_type(2)));
    Two x, p, b, s;
    __builtin_memcpy(&x, &bits, 4), __builtin_memcpy(&p, &part, 4);
    __builtin_memcpy(&b, &base, 4), __builtin_memcpy(&s, &scale, 4);
    x = (field == 0 ? x + b : x * p + b) * s;
    u32 r;
    __builtin_memcpy(&r, &x, 4);
    return r;
#endif
  }
};
template <> struct Pair<bf16> {
  static const u32 magic = 0x43004300u;
  static const int FIELDS = 1;
  typedef f32 Number;
  DEV Number number(f32 v) { return v; }
  DEV Number base(f32 zero, int) { return -128.0f - zero; }
  DEV u32 scaled(u32 bits, int, Number base, Number scale) {
    f32 low = (bits_f32(bits << 16) + base) * scale, high = (bits_f32(bits & 0xffff0000u) + base) * scale;
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

// The bits of a word that `mask` selects, combined with `more`. By default, the twin's compiler uses two instructions
// for this, of a kind that has half as many execution units.
DEV u32 masked(u32 word, u32 mask, u32 more) {
#if defined(__CUDACC_RTC__)
  u32 r;
  asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(r) : "r"(word), "r"(mask), "r"(more));
  return r;
#else
  return (word & mask) | more;
#endif
}

DEV void set_pair(Fragment& f, int at, u32 two) {
  f.at[2 * at] = (u16)two;
  f.at[2 * at + 1] = (u16)(two >> 16);
}

// The elements of a row for a word of weights from k on, in memory order; zeros past the row's end, which is a multiple
// of a word's numbers. Branch-free, so that loads can be issued early. Rows past the end repeat the first one, and
// their results are not used.
DEV void load_word(const QuantArgs& a, u32 row, u32 k, u32* x) {
  const bool inside = k < a.depth;
  const u16* from = (const u16*)a.left + (i64)row * a.left_row + (inside ? k : 0);
  const int most = H < 4 ? H : 4;
#pragma unroll
  for (int i = 0; i < H; i += most) {
    Pack<u32, most> pack = *(const Pack<u32, most>*)(from + 2 * i);
#pragma unroll
    for (int e = 0; e < most; e++) x[i + e] = inside ? pack.at[e] : 0;
  }
}
// The same in the order of the word's pairs.
DEV void pairs_of(const u32* x, u32* pairs) {
#pragma unroll
  for (int i = 0; i < H; i++) {
    u32 low = x[i / 2], high = x[i / 2 + H / 2];
    pairs[i] = i % 2 ? low >> 16 | (high & 0xffff0000u) : (low & 0xffffu) | high << 16;
  }
}

#if STAGED
// Rows are stored in LDS in the order in which they are read: words that the lanes of a group read at the same time are
// adjacent, and the numbers of a word are ordered as its pairs. Zeros follow the end of a row.
DEV u32 word_at(u32 word) {
  const u32 unit = word / 4;
  return ((unit / GROUPS * 4 + word % 4) * GROUPS + unit % GROUPS) * PER_WORD;
}
DEV void store_pairs(const u32* x, u16* to) {
  u32 pairs[H];
  pairs_of(x, pairs);
  Pack<u32, H> pack;
  COPY_BYTES(&pack, pairs, sizeof(pack));
  *(Pack<u32, H>*)to = pack;
}
DEV void stage_rows(const QuantArgs& a, u32 top, u32 pitch, u16* out, f32* squares) {
  const u32 most = FEW ? 8 : 16, words = (pitch - ROW_PAD) / PER_WORD;
#if NORM
  for (u32 r = 0, count = min_of(a.rows - top, most); r < count; r++)
    for (u32 k = a.depth + threadIdx.x; k < words * PER_WORD; k += THREADS)
      out[r * pitch + word_at(k / PER_WORD) + k % PER_WORD] = 0;
  normed_rows(a, top, most, squares, [&](u32 r, u32 k, const Some& made) {
    u16* row = out + r * pitch;
#if PER_WORD == NORM
    u32 x[H];
    COPY_BYTES(x, &made, sizeof(x));
    store_pairs(x, row + word_at(k / PER_WORD));
#else
#pragma unroll
    for (u32 i = 0; i < NORM; i++) {
      const u32 at = (k + i) % PER_WORD;
      row[word_at((k + i) / PER_WORD) + at % H * 2 + at / H] = made.at[i].bits;
    }
#endif
  });
#else
  for (u32 r = 0, count = min_of(a.rows - top, most); r < count; r++)
    for (u32 word = threadIdx.x; word < words; word += THREADS) {
      u32 x[H];
      load_word(a, top + r, word * PER_WORD, x);
      store_pairs(x, out + r * pitch + word_at(word));
    }
  __syncthreads();
#endif
}
#endif

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

KERNEL_EARLY(quant_mma, THREADS, QuantArgs) {
  SHARED(f32, staged, THREADS / MIN_WARP * TILE);
  const u32 lane = threadIdx.x % WARP, wave = threadIdx.x / WARP, tiles = THREADS / WARP / a.parts;
  const u32 top = blockIdx.z * 16, tile = blockIdx.x * tiles + wave / a.parts;
#if GATED
  const u32 first = tile / 2 * 16, half = tile % 2 * a.columns;
#else
  const u32 first = tile * 16, half = 0;
#endif
  const u32 line = MATRIX == 4 ? lane / 4 : lane % 16, group = MATRIX == 4 ? lane % 4 : MATRIX == 2 ? 0 : lane / 16;
  Sums sums[2];
#pragma unroll
  for (int i = 0; i < MMA_SUMS; i++) sums[0].at[i] = sums[1].at[i] = 0;
  const u32 rounds = (a.units + PACKS * GROUPS - 1) / (PACKS * GROUPS), step = a.parts * a.splits;
  u32 column[OWNED], row[HALVES];
  const u8* from[OWNED];
#pragma unroll
  for (u32 o = 0; o < OWNED; o++) {
    column[o] = min_of(first + line + o * 8, a.columns - 1) + half;
    from[o] = a.right + (u64)column[o] * a.quant.row_bytes;
  }
#pragma unroll
  for (u32 h = 0; h < HALVES; h++) row[h] = top + line + h * 8 < a.rows ? top + line + h * 8 : top;
  // A pack past the end repeats the last one, and is multiplied by zeros.
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
  EARLIER_DONE();
#if STAGED
  SHARED(f32, squares, NORM ? (FEW ? 8 : 16) * THREADS / MIN_WARP : 1);
  DYN_SHARED(u16, lines);
  const u32 pitch = rounds * PACKS * GROUPS * UNIT + ROW_PAD;
  stage_rows(a, top, pitch, lines, squares);
#endif
  for (; round < rounds; round += step) {
    Round next;
#if SHORT
    if (round + step < rounds) load(round + step, next);
#else
    load(round + step < rounds ? round + step : round, next);
#endif
#pragma unroll
    for (u32 i = 0; i < PACKS; i++) {
      const u32 begin = ((round * PACKS + i) * GROUPS + group) * UNIT;
      typename Two::Number base[OWNED][SPLIT][Two::FIELDS], scale[OWNED][SPLIT];
#pragma unroll
      for (u32 o = 0; o < OWNED; o++)
#pragma unroll
        for (u32 s = 0; s < SPLIT; s++) {
          const Shared& shared = now.shared[i][o][s];
          const f32 zero = zero_of(shared, block_of(unit_of(round, i), s));
#pragma unroll
          for (int f = 0; f < Two::FIELDS; f++) base[o][s][f] = Two::base(zero, f);
          scale[o][s] = Two::number((f32)get(shared.scale));
        }
#pragma unroll
      for (u32 word = 0; word < 4; word += STEP_WORDS) {
        u32 x[HALVES][STEP_WORDS * H], w[OWNED][STEP_WORDS * H];
#pragma unroll
        for (u32 more = 0; more < STEP_WORDS; more++) {
#pragma unroll
          for (u32 h = 0; h < HALVES; h++) {
#if STAGED
            const u32 at = ((round * PACKS + i) * 4 + word + more) * GROUPS + group;
            const Pack<u32, H> pack = *(const Pack<u32, H>*)(lines + (row[h] - top) * pitch + at * PER_WORD);
            COPY_BYTES(x[h] + more * H, &pack, sizeof(pack));
#else
            u32 raw[H];
            load_word(a, row[h], begin + (word + more) * PER_WORD, raw);
            pairs_of(raw, x[h] + more * H);
#endif
          }
#pragma unroll
          for (u32 o = 0; o < OWNED; o++)
#pragma unroll
            for (u32 e = 0; e < H; e++) {
              const u32 part = (word + more) / PART_WORDS, field = e % Two::FIELDS;
              const u32 moved = now.y[i][o].at[word + more] >> (e - field) * BITS;
              const u32 bits = masked(moved, FIELD_MASK << field * BITS, Two::magic);
              w[o][more * H + e] = Two::scaled(bits, field, base[o][part][field], scale[o][part]);
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
  f32* own = staged + wave * TILE;
#pragma unroll
  for (u32 r = 0; r < MMA_ROWS; r++)
#pragma unroll
    for (u32 c = 0; c < MMA_COLUMNS; c++) {
      // The tile is indexed as [row of the product][column].
      const u32 down = mma_row(lane, r), across = mma_column(lane, c);
      const u32 at = MATRIX == 4 ? across * 16 + down : down * 16 + across;
      if (at < TILE) own[at] = sums[0].at[mma_at(r, c)] + sums[1].at[mma_at(r, c)];
    }
  __syncthreads();
  const u32 width = tiles * 16 / MADE_OF, start = blockIdx.x * width;
  for (u32 at = threadIdx.x; at < min_of(a.rows - top, 16u) * width; at += THREADS) {
    const u32 row = at / width, across = at - row * width;
    if (start + across >= a.columns) continue;
    f32 sums[MADE_OF];
#pragma unroll
    for (u32 half = 0; half < MADE_OF; half++) {
      const f32* sum = staged + (across / 16 * MADE_OF + half) * a.parts * TILE + row * 16 + across % 16;
      sums[half] = sum[0];
#pragma unroll 4
      for (u32 i = 1; i < a.parts; i++) sums[half] += sum[i * TILE];
    }
    give(a, sums, top + row, start + across);
  }
}
