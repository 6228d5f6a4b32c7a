// Rows times the weights of an expert, which each row chooses: y[r] = x[r / share] times the transpose of weights[expert
// of r], plus its bias. A wave computes one column of a row: adjacent lanes read adjacent units of the column.
//
// X_T: the stored type of x and bias. Y_T: that of y. I: i32 or i64. BITS: the width of packed weights, or 0 if they are
// X_T. FLOAT4: 1 if packed weights are 4-bit floats (E2M1). SCALE_T: the stored type of scales. ZEROS: 1 if there are zero points. UNIT: bytes of weights that a lane reads
// at once. V: elements of x that it reads at once. blockIdx.y counts rows. An expert that does not exist is a fault, and
// its rows are not written.
#if BITS
#define NUMBERS (UNIT * 8 / BITS)
#define STEP (NUMBERS < 16 ? NUMBERS : 16)
#else
#define NUMBERS (UNIT / (int)sizeof(X_T))
#define STEP NUMBERS
#endif

struct ExpertArgs {
  const X_T* x;
  const I* experts;
  const u8* weights;     // [count, columns, units * UNIT]
  const SCALE_T* scales; // [count, columns, blocks]
  const u8* zeros;       // [count, columns, zero_row]; may be NULL
  const X_T* bias;       // [count, columns]; may be NULL
  Y_T* y;
  u32* fault;
  i64 x_row, y_row, experts_step;
  u32 rows, share, count, columns;
  u32 units;  // of a column
  u32 blocks, block_shift, zero_row;
};

typedef Pack<u8, UNIT> Unit;
typedef Pack<X_T, V> Some;

#if BITS
DEV f32 number_at(const Unit& unit, int at) {
  const u32 code = unit.at[at * BITS / 8] >> at * BITS % 8 & ((1 << BITS) - 1);
#if FLOAT4
  // A digit is twice the magnitude of its place: 0, 0.5, 1, 1.5, 2, 3, 4 and 6.
  const f32 magnitude = 0.5f * (f32)(0xC8643210u >> 4 * (code & 7) & 15);
  return code & 8 ? -magnitude : magnitude;
#else
  return (f32)code;
#endif
}
DEV f32 zero_at(const ExpertArgs& a, u64 column, u32 block) {
#if FLOAT4
  return 0;
#elif ZEROS
  return (f32)(a.zeros[column * a.zero_row + block * BITS / 8] >> block * BITS % 8 & ((1 << BITS) - 1));
#else
  return (f32)(1 << (BITS - 1));
#endif
}
#endif

// The products of STEP numbers of a unit, starting at `first`, with the same elements of x.
DEV f32 multiplied(const Unit& unit, int first, f32 zero, const X_T* x) {
#if !BITS
  X_T weights[NUMBERS];
  COPY_BYTES(weights, unit.at, UNIT);
#endif
  f32 sum = 0;
#pragma unroll
  for (int at = 0; at < STEP; at += V) {
    const Some some = *(const Some*)(x + first + at);
#pragma unroll
    for (int e = 0; e < V; e++) {
#if BITS
      sum += (number_at(unit, first + at + e) - zero) * get(some.at[e]);
#else
      sum += get(weights[first + at + e]) * get(some.at[e]);
#endif
    }
  }
  return sum;
}

KERNEL(experts, 256, ExpertArgs) {
  const u32 lane = threadIdx.x % WARP, column = blockIdx.x * (256 / WARP) + threadIdx.x / WARP;
  if (column >= a.columns) return;
  for (u32 row = blockIdx.y; row < a.rows; row += gridDim.y) {
    const i64 expert = (i64)a.experts[(i64)row * a.experts_step];
    if (expert < 0 || expert >= (i64)a.count) {
      if (lane == 0) report_fault(a.fault, 1);
      continue;
    }
    const u64 at = (u64)expert * a.columns + column;
    const u8* weights = a.weights + at * a.units * UNIT;
    const X_T* x = a.x + (i64)(row / a.share) * a.x_row;
    f32 sum = 0;
#pragma unroll 2
    for (u32 unit = lane; unit < a.units; unit += WARP) {
      const Unit held = *(const Unit*)(weights + (u64)unit * UNIT);
      const X_T* from = x + (u64)unit * NUMBERS;
#if BITS
#pragma unroll
      for (int first = 0; first < NUMBERS; first += STEP) {
        const u32 block = (unit * NUMBERS + first) >> a.block_shift;
        sum += multiplied(held, first, zero_at(a, at, block), from) * get(a.scales[at * a.blocks + block]);
      }
#else
      sum += multiplied(held, 0, 0, from);
#endif
    }
    sum = wave_sum(sum);
    if (lane == 0) {
      if (a.bias) sum += get(a.bias[at]);
      a.y[(i64)row * a.y_row + column] = put<Y_T>(sum);
    }
  }
}
