// Running sums or products along an axis: y[line, i] = x[line, 0] + .. + x[line, i]; without x[line, i] if EXCLUSIVE is
// 1, from the end if REVERSE is 1, products if PRODUCT is 1.
//
// cumulative_lines assigns a line to a thread, for many lines or short ones. cumulative_line assigns it to a block,
// which scans 256 parts of V elements at a time. T: the stored type; halves are summed in single precision. PACKED: 1
// if lines are dense and parts are packs. Fewer than 2^31 lines, and elements per line.
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

// V consecutive elements of a line in the direction of the scan, from element i on: a pack or single elements.
struct Part { C v[V]; };
template <bool PACKS> DEV Part part_at(const CumulativeArgs& a, const T* x, u32 i) {
  Part part;
  if constexpr (PACKS) {
    Pack<T, V> pack;
    if (i < a.extent) pack = *(const Pack<T, V>*)(x + (REVERSE ? a.extent - V - i : i));
#pragma unroll
    for (u32 k = 0; k < V; k++) part.v[k] = i < a.extent ? get(pack.at[REVERSE ? V - 1 - k : k]) : NEUTRAL;
  } else {
#pragma unroll
    for (u32 k = 0; k < V; k++) part.v[k] = i + k < a.extent ? get(x[turned(i + k, a.extent) * a.x_step]) : NEUTRAL;
  }
  return part;
}
template <bool PACKS> DEV void put_part(const CumulativeArgs& a, T* y, u32 i, const Part& part) {
  if constexpr (PACKS) {
    Pack<T, V> pack;
#pragma unroll
    for (u32 k = 0; k < V; k++) pack.at[REVERSE ? V - 1 - k : k] = put<T>(part.v[k]);
    if (i < a.extent) *(Pack<T, V>*)(y + (REVERSE ? a.extent - V - i : i)) = pack;
  } else {
#pragma unroll
    for (u32 k = 0; k < V; k++)
      if (i + k < a.extent) y[turned(i + k, a.extent) * a.y_step] = put<T>(part.v[k]);
  }
}

template <bool PACKS> DEV void scan(const CumulativeArgs& a, C* shared) {
  u32 lane = threadIdx.x % WARP, wave = threadIdx.x / WARP;
  for (u32 line = blockIdx.x; line < a.lines; line += gridDim.x) {
    i64 x_at, y_at;
    offsets_at(line, a.axes, a.x_strides, a.y_strides, x_at, y_at);
    const T* x = a.x + x_at;
    C carry = NEUTRAL;
    u32 turn = 0;
    Part next = part_at<PACKS>(a, x, threadIdx.x * V);
    for (u32 first = 0; first < a.extent; first += 256 * V) {
      Part part = next;
      // Loaded while this part is scanned.
      if (first + 256 * V < a.extent) next = part_at<PACKS>(a, x, first + (256 + threadIdx.x) * V);
      C total = part.v[0];
#pragma unroll
      for (u32 k = 1; k < V; k++) total = Join::of(total, part.v[k]);
      // The total of the lanes up to this one, then of the waves before this one.
      C upto = total;
      for (u32 delta = 1; delta < WARP; delta *= 2) {
        C below = SHFL_UP(upto, delta);
        if (lane >= delta) upto = Join::of(below, upto);
      }
      C before = SHFL_UP(upto, 1);
      if (lane == 0) before = NEUTRAL;
      // Two sets of totals alternate, so that one barrier is enough.
      C* totals = shared + turn * (256 / MIN_WARP);
      turn ^= 1;
      if (lane == WARP - 1) totals[wave] = upto;
      __syncthreads();
      C running = carry;
      for (u32 other = 0; other < 256 / WARP; other++) {
        if (other == wave) before = Join::of(running, before);
        running = Join::of(running, totals[other]);
      }
      carry = running;
#pragma unroll
      for (u32 k = 0; k < V; k++) {
        C sum = Join::of(before, part.v[k]);
        part.v[k] = EXCLUSIVE ? before : sum;
        before = sum;
      }
      put_part<PACKS>(a, a.y + y_at, first + threadIdx.x * V, part);
    }
    __syncthreads();
  }
}

KERNEL(cumulative_line, 256, CumulativeArgs) {
  SHARED(C, shared, 2 * (256 / MIN_WARP));
#if PACKED
  if (is_pack<V>(a.x) && is_pack<V>(a.y)) {
    scan<true>(a, shared);
    return;
  }
#endif
  scan<false>(a, shared);
}
