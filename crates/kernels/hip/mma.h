// One product of 16 x 16 x 16 by a wave, for every family of matrix instructions: f16 or bf16, summed in f32.
//
// MATRIX: 1 MFMA of gfx9 (64 lanes), 2 WMMA of gfx11, 3 WMMA of gfx12, 4 mma.sync of the twin (32 lanes each). Both
// operands are read from LDS as rows of k, aligned to 16 bytes: left[row][k] and right[column][k]. A lane holds
// MMA_ROWS rows of MMA_COLUMNS columns of the sums. In the simulator, the lanes of a wave exchange their fragments and
// compute the sums themselves.
//
// A chain is two products: the sums of the first one, 16 rows of 16 columns, become an operand of the second without
// leaving their lanes. On AMD the operands are swapped for this, so that a lane has one row of the sums.
#if MATRIX == 1
#define FRAGMENT 4
#define MMA_ROWS 4
#define MMA_COLUMNS 1
#elif MATRIX == 2
#define FRAGMENT 16
#define MMA_ROWS 8
#define MMA_COLUMNS 1
#elif MATRIX == 3
#define FRAGMENT 8
#define MMA_ROWS 8
#define MMA_COLUMNS 1
#else
#define FRAGMENT 8
#define MMA_ROWS 2
#define MMA_COLUMNS 4
#endif
#define MMA_SUMS (MMA_ROWS * MMA_COLUMNS)
// Adjacent columns of a chain's row (see below) that a lane has.
#define CHAIN_RUN (MATRIX == 1 ? 4 : MATRIX == 2 ? 1 : MATRIX == 3 ? 8 : 2)
#define CHAIN_ROWS (MATRIX == 4 ? 2 : 1)
#define CHAIN_COLUMNS (MMA_SUMS / CHAIN_ROWS)
// Prevents later loads from moving before it: with many fragments in registers, early loads would be spilled.
#if MATRIX == 2 && !defined(GPU_SIM)
#define MMA_FENCE() __builtin_amdgcn_sched_barrier(0)
#else
#define MMA_FENCE()
#endif

// Aligned to the size of one move.
struct __align__(MATRIX == 2 || MATRIX == 3 ? 16 : 8) Fragment { u16 at[FRAGMENT]; };
struct Sums { f32 at[MMA_SUMS]; };

// The position of a lane's row r and column c in the 16 x 16 sums, and the index of that sum in the lane.
DEV u32 mma_row(u32 lane, u32 r) {
#if MATRIX == 1
  return lane / 16 * 4 + r;
#elif MATRIX == 2
  return r * 2 + lane / 16;
#elif MATRIX == 3
  return lane / 16 * 8 + r;
#else
  return lane / 4 + r * 8;
#endif
}
DEV u32 mma_column(u32 lane, u32 c) {
#if MATRIX == 4
  return lane % 4 * 2 + c % 2 + c / 2 * 8;
#else
  return lane % 16;
#endif
}
DEV constexpr u32 mma_at(u32 r, u32 c) { return MATRIX == 4 ? c / 2 * 4 + r * 2 + c % 2 : r; }

template <int BYTES> DEV void move_bytes(void* to, const void* from) {
  typedef Pack<u32, BYTES / 4> Whole;
  *(Whole*)to = *(const Whole*)from;
}

#if MATRIX == 4 && !defined(GPU_SIM)
template <class T> struct Twin;
template <> struct Twin<f16> {
  DEV void mma(f32* d, const u32* a, const u32* b) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  }
  DEV u32 two(f32 x, f32 y) {
    u32 r;
    asm("cvt.rn.f16x2.f32 %0, %2, %1;" : "=r"(r) : "f"(x), "f"(y));
    return r;
  }
};
template <> struct Twin<bf16> {
  DEV void mma(f32* d, const u32* a, const u32* b) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
        "%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  }
  DEV u32 two(f32 x, f32 y) {
    u32 r;
    asm("cvt.rn.bf16x2.f32 %0, %2, %1;" : "=r"(r) : "f"(x), "f"(y));
    return r;
  }
};

// Four squares of 8 x 8, as they are or transposed: lane n gives the address of row n % 8 of square n / 8.
#define LOAD_SQUARES(how)                                                                                              \
  asm volatile("ldmatrix.sync.aligned.m8n8.x4" how ".shared.b16 {%0, %1, %2, %3}, [%4];"                               \
               : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])                                        \
               : "r"((u32)__cvta_generic_to_shared(row)))
template <bool TURNED> DEV Fragment load_squares(const u16* row) {
  u32 words[4];
  if (TURNED)
    LOAD_SQUARES(".trans");
  else
    LOAD_SQUARES("");
  Fragment f;
  COPY_BYTES(f.at, words, 16);
  return f;
}
#endif

// The fragments of 16 rows with a stride of `pitch` elements, at k = 0.
DEV Fragment load_left(const u16* rows, u32 pitch, u32 lane) {
#if MATRIX == 4 && !defined(GPU_SIM)
  return load_squares<false>(rows + lane % 16 * pitch + lane / 16 * 8);
#else
  Fragment f;
#if MATRIX == 1
  move_bytes<8>(f.at, rows + lane % 16 * pitch + lane / 16 * 4);
#elif MATRIX == 2
  move_bytes<16>(f.at, rows + lane % 16 * pitch);
  move_bytes<16>(f.at + 8, rows + lane % 16 * pitch + 8);
#elif MATRIX == 3
  move_bytes<16>(f.at, rows + lane % 16 * pitch + lane / 16 * 8);
#else
  for (u32 i = 0; i < 4; i++) move_bytes<4>(f.at + i * 2, rows + (lane / 4 + i % 2 * 8) * pitch + lane % 4 * 2 + i / 2 * 8);
#endif
  return f;
#endif
}
DEV Fragment load_right(const u16* rows, u32 pitch, u32 lane) {
#if MATRIX == 4 && !defined(GPU_SIM)
  return load_squares<false>(rows + (lane % 8 + lane / 16 * 8) * pitch + lane / 8 % 2 * 8);
#elif MATRIX == 4
  Fragment f;
  for (u32 i = 0; i < 4; i++) move_bytes<4>(f.at + i * 2, rows + (lane / 4 + i / 2 * 8) * pitch + lane % 4 * 2 + i % 2 * 8);
  return f;
#else
  return load_left(rows, pitch, lane);
#endif
}

// The second factor of a chain's second product, for 16 columns. The twin transposes it while reading, so there `rows`
// are those of k; for the others they are the columns.
#define CHAIN_TURNS (MATRIX == 4)
DEV Fragment load_chained(const u16* rows, u32 pitch, u32 lane) {
#if MATRIX == 4 && !defined(GPU_SIM)
  return load_squares<true>(rows + lane % 16 * pitch + lane / 16 * 8);
#elif MATRIX == 4
  Fragment f;
  for (u32 i = 0; i < 8; i++) f.at[i] = rows[(lane % 4 * 2 + i % 2 + i / 2 % 2 * 8) * pitch + lane / 4 + i / 4 * 8];
  return f;
#else
  return load_left(rows, pitch, lane);
#endif
}

// The position of a lane's row r and column c in a chain's sums, and the index of that sum in the lane.
DEV u32 chain_row(u32 lane, u32 r) { return MATRIX == 4 ? mma_row(lane, r) : lane % 16; }
DEV u32 chain_column(u32 lane, u32 c) { return MATRIX == 4 ? mma_column(lane, c) : mma_row(lane, c); }
DEV constexpr u32 chain_at(u32 r, u32 c) { return MATRIX == 4 ? mma_at(r, c) : c; }
// Reduces over the lanes that share a chain's rows: their distances are the powers of two below this.
#define CHAIN_LANES (MATRIX == 1 ? 64 : MATRIX == 4 ? 4 : 32)
DEV f32 chain_max(f32 v) {
#pragma unroll
  for (int mask = MATRIX == 4 ? 1 : 16; mask < CHAIN_LANES; mask *= 2) v = fmaxf(v, SHFL_XOR(v, mask));
  return v;
}
DEV f32 chain_sum(f32 v) {
#pragma unroll
  for (int mask = MATRIX == 4 ? 1 : 16; mask < CHAIN_LANES; mask *= 2) v += SHFL_XOR(v, mask);
  return v;
}

// Two numbers of a fragment.
template <class T> DEV u32 two_of(f32 x, f32 y) {
#if MATRIX == 4 && !defined(GPU_SIM)
  return Twin<T>::two(x, y);
#else
  return put<T>(x).bits | (u32)put<T>(y).bits << 16;
#endif
}

// The sums of a chain's first product as an operand of the second.
template <class T> DEV Fragment chain(const Sums& sums, u32 lane) {
  Fragment f;
  u32 words[MMA_SUMS / 2];
  for (int i = 0; i < MMA_SUMS / 2; i++) words[i] = two_of<T>(sums.at[2 * i], sums.at[2 * i + 1]);
#if MATRIX == 2
  // Every other column is in the lane 16 positions further.
  for (int i = 0; i < 4; i++) {
    u32 other = SHFL_XOR(words[i], 16), even = lane < 16 ? words[i] : other, odd = lane < 16 ? other : words[i];
    f.at[4 * i] = (u16)even;
    f.at[4 * i + 1] = (u16)odd;
    f.at[4 * i + 2] = (u16)(even >> 16);
    f.at[4 * i + 3] = (u16)(odd >> 16);
  }
#else
  COPY_BYTES(f.at, words, sizeof(words));
#endif
  return f;
}

#ifdef GPU_SIM
// The lane that holds an element of the left operand, and its position there.
DEV u32 left_lane(u32 row, u32 k) {
  return MATRIX == 1 ? row + k / 4 * 16 : MATRIX == 2 ? row : MATRIX == 3 ? row + k / 8 * 16 : row % 8 * 4 + k % 8 / 2;
}
DEV u32 left_at(u32 row, u32 k) {
  return MATRIX == 1 ? k % 4 : MATRIX == 2 ? k : MATRIX == 3 ? k % 8 : (row / 8 + k / 8 * 2) * 2 + k % 2;
}
DEV u32 right_at(u32 column, u32 k) { return MATRIX == 4 ? (column / 8 * 2 + k / 8) * 2 + k % 2 : left_at(column, k); }
static struct { Fragment left, right; } shown_fragments[1024];
template <class T> DEV void mma(Sums& sums, const Fragment& left, const Fragment& right) {
  u32 lane = (u32)wavesim_lane(), wave = threadIdx.x - lane;
  shown_fragments[threadIdx.x] = {left, right};
  SHFL(lane, 0);
  for (u32 r = 0; r < MMA_ROWS; r++)
    for (u32 c = 0; c < MMA_COLUMNS; c++) {
      f32 sum = 0;
      u32 row = mma_row(lane, r), column = mma_column(lane, c);
      for (u32 k = 0; k < 16; k++) {
        T x, y;
        x.bits = shown_fragments[wave + left_lane(row, k)].left.at[left_at(row, k)];
        y.bits = shown_fragments[wave + left_lane(column, k)].right.at[right_at(column, k)];
        sum += get(x) * get(y);
      }
      sums.at[mma_at(r, c)] += sum;
    }
  SHFL(lane, 0);
}
#elif MATRIX == 4
template <class T> DEV void mma(Sums& sums, const Fragment& left, const Fragment& right) {
  u32 a[4], b[4];
  COPY_BYTES(a, left.at, 16);
  COPY_BYTES(b, right.at, 16);
  Twin<T>::mma(sums.at, a, b);
  Twin<T>::mma(sums.at + 4, a, b + 2);
}
#else
typedef f32 SumVector __attribute__((ext_vector_type(MMA_SUMS)));
typedef _Float16 HalfVector __attribute__((ext_vector_type(FRAGMENT)));
typedef short BrainVector __attribute__((ext_vector_type(FRAGMENT)));
template <class T> struct Wave;
template <> struct Wave<f16> {
  typedef HalfVector Vector;
  DEV SumVector mma(Vector x, Vector y, SumVector sums) {
#if MATRIX == 1
    return __builtin_amdgcn_mfma_f32_16x16x16f16(x, y, sums, 0, 0, 0);
#elif MATRIX == 2
    return __builtin_amdgcn_wmma_f32_16x16x16_f16_w32(x, y, sums);
#else
    return __builtin_amdgcn_wmma_f32_16x16x16_f16_w32_gfx12(x, y, sums);
#endif
  }
};
#ifndef __gfx908__
template <> struct Wave<bf16> {
  typedef BrainVector Vector;
  DEV SumVector mma(Vector x, Vector y, SumVector sums) {
#if MATRIX == 1
    return __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(x, y, sums, 0, 0, 0);
#elif MATRIX == 2
    return __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32(x, y, sums);
#else
    return __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32_gfx12(x, y, sums);
#endif
  }
};
#endif
template <class T> DEV void mma(Sums& sums, const Fragment& left, const Fragment& right) {
  typename Wave<T>::Vector x, y;
  SumVector s;
  __builtin_memcpy(&x, left.at, sizeof(x));
  __builtin_memcpy(&y, right.at, sizeof(y));
  __builtin_memcpy(&s, sums.at, sizeof(s));
  s = Wave<T>::mma(x, y, s);
  __builtin_memcpy(sums.at, &s, sizeof(s));
}
#endif

// A product of a chain: 16 rows times the factor for the columns.
template <class T> DEV void mma_chain(Sums& sums, const Fragment& rows, const Fragment& columns) {
  if (MATRIX == 4)
    mma<T>(sums, rows, columns);
  else
    mma<T>(sums, columns, rows);
}
