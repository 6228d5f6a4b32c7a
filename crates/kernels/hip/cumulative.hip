// Running sums or products along an axis: y[line, i] = x[line, 0] + .. + x[line, i], without x[line, i] where EXCLUSIVE is
// 1, from the end where REVERSE is 1, products where PRODUCT is 1.
//
// cumulative_lines gives a line to a thread, for many lines or short ones. cumulative_line gives it to a block, which scans
// 1024 elements at a time. T: the stored type; halves are summed in single precision. Fewer than 2^31 lines and elements of
// a line.
struct CumulativeArgs {
  const T* x;
  T* y;
  u32 lines;
  u32 extent;
  i64 x_step, y_step;  // along a line
  Axes axes;           // of lines
  i64 x_strides[AXES], y_strides[AXES];
};
typedef COMPUTE(T) C;
#if PRODUCT
typedef Product<C> Join;
#define NEUTRAL ((C)1)
#else
typedef Sum<C> Join;
#define NEUTRAL ((C)0)
#endif

DEV i64 turned(u32 at, u32 extent) { return REVERSE ? (i64)(extent - 1 - at) : (i64)at; }

KERNEL(cumulative_lines, 256, CumulativeArgs) {
  for (u32 line = blockIdx.x * 256 + threadIdx.x; line < a.lines; line += gridDim.x * 256) {
    i64 x, y;
    offsets_at(line, a.axes, a.x_strides, a.y_strides, x, y);
    C total = NEUTRAL;
#pragma unroll 4
    for (u32 i = 0; i < a.extent; i++) {
      i64 at = turned(i, a.extent);
      C next = Join::of(total, get(a.x[x + at * a.x_step]));
      a.y[y + at * a.y_step] = put<T>(EXCLUSIVE ? total : next);
      total = next;
    }
  }
}

#define EACH 4
KERNEL(cumulative_line, 256, CumulativeArgs) {
  SHARED(C, totals, 256 / MIN_WARP);
  u32 lane = threadIdx.x % WARP, wave = threadIdx.x / WARP;
  for (u32 line = blockIdx.x; line < a.lines; line += gridDim.x) {
    i64 x, y;
    offsets_at(line, a.axes, a.x_strides, a.y_strides, x, y);
    C carry = NEUTRAL;
    for (u32 first = 0; first < a.extent; first += 256 * EACH) {
      C value[EACH], total = NEUTRAL;
#pragma unroll
      for (u32 k = 0; k < EACH; k++) {
        u32 i = first + threadIdx.x * EACH + k;
        value[k] = i < a.extent ? get(a.x[x + turned(i, a.extent) * a.x_step]) : NEUTRAL;
        total = Join::of(total, value[k]);
      }
      // What the lanes up to this one have, then the waves before this one.
      C upto = total;
      for (u32 delta = 1; delta < WARP; delta *= 2) {
        C below = SHFL_UP(upto, delta);
        if (lane >= delta) upto = Join::of(below, upto);
      }
      C before = SHFL_UP(upto, 1);
      if (lane == 0) before = NEUTRAL;
      if (lane == WARP - 1) totals[wave] = upto;
      __syncthreads();
      C running = carry;
      for (u32 other = 0; other < 256 / WARP; other++) {
        if (other == wave) before = Join::of(running, before);
        running = Join::of(running, totals[other]);
      }
      carry = running;
      __syncthreads();
#pragma unroll
      for (u32 k = 0; k < EACH; k++) {
        u32 i = first + threadIdx.x * EACH + k;
        C next = Join::of(before, value[k]);
        if (i < a.extent) a.y[y + turned(i, a.extent) * a.y_step] = put<T>(EXCLUSIVE ? before : next);
        before = next;
      }
    }
  }
}
