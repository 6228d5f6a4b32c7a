// One product of 16 x 16 x 16 by a wave, for every family of matrix instructions: f16 or bf16, summed in f32.
//
// MATRIX: 1 MFMA of gfx9 (64 lanes), 2 WMMA of gfx11, 3 WMMA of gfx12, 4 mma.sync of the twin (32 lanes each). Both
// operands are read from LDS as rows of k: left[row][k] and right[column][k]. A lane holds MMA_ROWS rows of MMA_COLUMNS
// columns of the sums. In the simulator the lanes of a wave show one another their fragments and add up by themselves.
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
// Loads behind it are not moved before it: where many fragments are held, those read too early would be spilled.
#if MATRIX == 2 && !defined(GPU_SIM)
#define MMA_FENCE() __builtin_amdgcn_sched_barrier(0)
#else
#define MMA_FENCE()
#endif

struct __align__(8) Fragment { u16 at[FRAGMENT]; };
struct Sums { f32 at[MMA_SUMS]; };

// Where in the 16 x 16 sums a lane's row r and column c are, and which of its sums that is.
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

// The fragments of 16 rows, each `pitch` elements behind the one before, at k = 0.
DEV Fragment load_left(const u16* rows, u32 pitch, u32 lane) {
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
}
DEV Fragment load_right(const u16* rows, u32 pitch, u32 lane) {
#if MATRIX == 4
  Fragment f;
  for (u32 i = 0; i < 4; i++) move_bytes<4>(f.at + i * 2, rows + (lane / 4 + i / 2 * 8) * pitch + lane % 4 * 2 + i % 2 * 8);
  return f;
#else
  return load_left(rows, pitch, lane);
#endif
}

#ifdef GPU_SIM
// Which lane holds an element of the left operand, and where.
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
template <class T> struct Twin;
template <> struct Twin<f16> {
  DEV void mma(f32* d, const u32* a, const u32* b) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  }
};
template <> struct Twin<bf16> {
  DEV void mma(f32* d, const u32* a, const u32* b) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
        "%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  }
};
template <class T> DEV void mma(Sums& sums, const Fragment& left, const Fragment& right) {
  u32 a[4], b[4];
  for (int i = 0; i < 4; i++) {
    a[i] = left.at[2 * i] | (u32)left.at[2 * i + 1] << 16;
    b[i] = right.at[2 * i] | (u32)right.at[2 * i + 1] << 16;
  }
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
