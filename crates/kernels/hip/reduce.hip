// Reductions: y[r] = finish(fold of x[r, i] over i). Results r and elements i are numbered along strided axes, in the
// order of x's memory, so that adjacent threads read adjacent elements:
//
//   COLUMNS 0: `lanes` adjacent threads compute one result, each from every lanes-th pack of VEC elements;
//   COLUMNS 1: adjacent threads compute adjacent packs of VEC results, with `lanes` threads each.
//
// If a few results come from many elements, the blocks along y handle a segment each and store their partial results in
// `parts` [results, segments], which reduce_join combines, always in the same order.
//
// T: x's type. TY: y's. N: the type in which elements are folded. W: the type in which partial results are combined.
// FOLD: 0 sum, 1 squares, 2 magnitudes, 3 product, 4 largest, 5 smallest, 6 exponentials minus a shift. Integers wrap;
// NaN wins as the largest and as the smallest. LINE: 1 if the elements of a result are along one axis. Below 2^31
// results and elements per result.
enum { FOLD_SUM, FOLD_SQUARES, FOLD_MAGNITUDES, FOLD_PRODUCT, FOLD_LARGEST, FOLD_SMALLEST, FOLD_EXPONENTIALS };
enum { FINISH_NOTHING, FINISH_MEAN, FINISH_ROOT, FINISH_LOG, FINISH_LOG_SHIFTED };

struct ReduceArgs {
  const T* x;
  TY* y;
  W* parts;         // NULL if y is written directly
  const N* shifts;  // the largest element of every result, for FOLD_EXPONENTIALS
  i64 x_kept[AXES], y_kept[AXES], x_gone[AXES];
  i64 y_step;  // stride between results of a pack
  i64 count;   // elements per result
  Axes kept;   // packs of results if COLUMNS
  Axes gone;   // packs of elements if not
  u32 results, elems;  // of `kept` and `gone`
  u32 lanes;           // a power of two
  u32 segment;         // elements of `gone` per block
  u32 finish;
};

// The bounds of a type.
template <class V> struct Bounds;
template <> struct Bounds<f32> {
  DEV f32 lowest() { return -INFINITY_OF(f32); }
  DEV f32 highest() { return INFINITY_OF(f32); }
};
template <> struct Bounds<f64> {
  DEV f64 lowest() { return -INFINITY_OF(f64); }
  DEV f64 highest() { return INFINITY_OF(f64); }
};
template <> struct Bounds<i64> {
  DEV i64 lowest() { return (i64)(1ull << 63); }
  DEV i64 highest() { return (i64)~(1ull << 63); }
};
template <> struct Bounds<u64> {
  DEV u64 lowest() { return 0; }
  DEV u64 highest() { return ~0ull; }
};

// A number without its fraction, clamped to the type's range; 0 for NaN.
template <class V> DEV V whole(f64 v) {
  if (v != v) return 0;
  if (v <= (f64)Bounds<V>::lowest()) return Bounds<V>::lowest();
  return v >= (f64)Bounds<V>::highest() ? Bounds<V>::highest() : (V)v;
}
DEV f64 log_wide(f64 v) {
#if defined(BARE_CLANG)
  return (f64)log_of((f32)v);
#else
  return log_of(v);
#endif
}

// The offset of element i of a result. LINE: along one axis.
#if !LINE
#define ELEMENT_AT(i) offset_at(i, a.gone, a.x_gone)
#elif COLUMNS || VEC == 1
#define ELEMENT_AT(i) ((i64)(i) * a.x_gone[AXES - 1])
#else
#define ELEMENT_AT(i) ((i) * VEC)
#endif
// Loads in flight per thread. Walks over several axes and comparisons need scalar registers; packs of columns are half
// as wide if elements are halves.
enum { LOADS = !LINE || FOLD == 4 || FOLD == 5 ? 2 : COLUMNS && sizeof(T) == 2 ? 8 : 4 };

template <class A, class B> struct Same { enum { yes = 0 }; };
template <class A> struct Same<A, A> { enum { yes = 1 }; };

template <class V> DEV V first_value() {
#if FOLD == 3
  return 1;
#elif FOLD == 4
  return Bounds<V>::lowest();
#elif FOLD == 5
  return Bounds<V>::highest();
#else
  return 0;
#endif
}
template <class V> DEV V joined(V a, V b) {
#if FOLD == 3
  return a * b;
#elif FOLD == 4
  return a > b || a != a ? a : b;
#elif FOLD == 5
  return a < b || a != a ? a : b;
#else
  return a + b;
#endif
}
DEV N folded(N sum, N v, N shift) {
#if FOLD == 1
  return sum + v * v;
#elif FOLD == 2
  return sum + (v < 0 ? 0 - v : v);
#elif FOLD == 6
  return sum + exp_of(v - shift);
#else
  return joined(v, sum);
#endif
}

DEV void finish(const ReduceArgs& a, TY* y, W value, N shift) {
  if (a.finish == FINISH_NOTHING) {
    *y = put<TY>((N)value);
  } else {
#if FLOATS
    if (a.finish == FINISH_MEAN) value /= (W)a.count;
    else if (a.finish == FINISH_ROOT) value = sqrt_of(value);
    else value = log_wide(value) + (W)shift;
    *y = put<TY>((N)value);
#else
    N result;
    if (a.finish == FINISH_MEAN) result = a.count == 0 ? 0 : value / (N)a.count;
    else if (a.finish == FINISH_ROOT) result = whole<N>(sqrt((f64)value));
    else result = whole<N>(log_wide((f64)value));
    *y = put<TY>(result);
#endif
  }
}
DEV N shift_of(const ReduceArgs& a, u32 result) {
#if FOLD == 6
  N top = a.shifts[result];
  return top - top == 0 ? top : 0;  // finite
#else
  return 0;
#endif
}

#if JOIN
// 32 threads per result.
KERNEL(reduce_join, 256, ReduceArgs) {
  u32 lane = threadIdx.x % 32, blocks = (a.results + 7) / 8;
  for (u32 block = blockIdx.x; block < blocks; block += gridDim.x) {
    u32 result = block * 8 + threadIdx.x / 32;
    W sum = first_value<W>();
    if (result < a.results)
      for (u32 i = lane; i < a.segment; i += 32) sum = joined(sum, a.parts[(u64)result * a.segment + i]);
    for (int mask = 16; mask; mask >>= 1) sum = joined(sum, SHFL_XOR(sum, mask));
    if (result < a.results && lane == 0)
      finish(a, a.y + offset_at(result, a.kept, a.y_kept), sum, shift_of(a, result));
  }
}
#elif SPANS
// Short contiguous rows that do not all start at a multiple of a pack: a block loads one row per team of `lanes`
// threads, at most 32, into LDS, as whole packs; then each team folds one row.
KERNEL(reduce_spans, 256, ReduceArgs) {
  DYN_SHARED(T, span);
  const u32 teams = 256 / a.lanes, team = threadIdx.x / a.lanes, lane = threadIdx.x % a.lanes;
  const u32 blocks = (a.results + teams - 1) / teams;
  for (u32 block = blockIdx.x; block < blocks; block += gridDim.x) {
    const u32 rows = min_of(teams, a.results - block * teams);
    if (block != blockIdx.x) __syncthreads();
    load_span<4>(a.x + (u64)block * teams * a.elems, rows * a.elems, span);
    __syncthreads();
    // Rows are short enough to fold in one pass.
    N sum = first_value<N>();
    // Halves are processed in pairs, except those that share a pair with the neighbouring rows.
    enum { PAIR = sizeof(T) == 2 ? 2 : 1 };
    const u32 begin = team * a.elems, end = begin + a.elems;
    if (team < rows) {
      if (begin % PAIR && lane == 0) sum = folded(sum, get(span[begin]), 0);
      if (end % PAIR && lane == a.lanes - 1) sum = folded(sum, get(span[end - 1]), 0);
#pragma unroll 8
      for (u32 i = (begin + PAIR - 1) / PAIR + lane; i < end / PAIR; i += a.lanes) {
        const Pack<T, PAIR> pair = *(const Pack<T, PAIR>*)(span + i * PAIR);
#pragma unroll
        for (int v = 0; v < PAIR; v++) sum = folded(sum, get(pair.at[v]), 0);
      }
    }
    W wide = (W)sum;
    for (u32 mask = a.lanes / 2; mask; mask >>= 1) wide = joined(wide, SHFL_XOR(wide, mask));
    if (team < rows && lane == 0) finish(a, a.y + offset_at(block * teams + team, a.kept, a.y_kept), wide, 0);
  }
}
#elif RAGGED
// Longer contiguous rows that do not all start at a multiple of a pack: see ragged.h. There are `results` rows of
// `elems` elements from x on; `lanes` is at most 32.
KERNEL(reduce_ragged, 256, ReduceArgs) {
  enum { HELD = 2 };
  u32 teams = 256 / a.lanes, team = threadIdx.x / a.lanes, lane = threadIdx.x % a.lanes;
  u32 blocks = (a.results + teams - 1) / teams;
  for (u32 block = blockIdx.x; block < blocks; block += gridDim.x) {
    const u32 result = block * teams + team;
    const RaggedRow row = ragged_row(result, a.results, a.elems);
    // Rows are short enough to fold in one pass.
    N sum = first_value<N>();
    for (u32 first = lane * VEC; first < row.end; first += HELD * a.lanes * VEC) {
      N values[HELD * VEC];
      load_row<HELD>(row, a.x, first, a.lanes * VEC, first_value<N>(), values);
#pragma unroll
      for (int i = 0; i < HELD * VEC; i++) sum = folded(sum, values[i], 0);
    }
    W wide = (W)sum;
    for (u32 mask = a.lanes / 2; mask; mask >>= 1) wide = joined(wide, SHFL_XOR(wide, mask));
    if (row.end && lane == 0) finish(a, a.y + offset_at(result, a.kept, a.y_kept), wide, 0);
  }
}
#else
KERNEL(reduce, 256, ReduceArgs) {
  typedef Pack<T, VEC> P;
#if COLUMNS
  enum { RESULTS = VEC };
#else
  enum { RESULTS = 1 };
#endif
  SHARED(W, lds, 256 * RESULTS);
  u32 teams = 256 / a.lanes;  // of threads that compute a result, or a pack of them
#if COLUMNS
  u32 team = threadIdx.x % teams, lane = threadIdx.x / teams;
#else
  u32 team = threadIdx.x / a.lanes, lane = threadIdx.x % a.lanes;
#endif
  u32 blocks = (a.results + teams - 1) / teams;
  for (u32 block = blockIdx.x; block < blocks; block += gridDim.x) {
    u32 result = block * teams + team;
    bool live = result < a.results;
    u32 begin = blockIdx.y * a.segment, end = live ? min_of(a.elems, begin + a.segment) : begin;
    i64 x_at, y_at;
    offsets_at(live ? result : 0, a.kept, a.x_kept, a.y_kept, x_at, y_at);
    const T* x = a.x + x_at;
    N shifts[VEC];
#pragma unroll
    for (int v = 0; v < VEC; v++) shifts[v] = live ? shift_of(a, result * RESULTS + (COLUMNS ? v : 0)) : 0;
    N sums[VEC];
    W wide[RESULTS];
#pragma unroll
    for (int v = 0; v < VEC; v++) sums[v] = first_value<N>(), wide[v % RESULTS] = first_value<W>();
    u32 i = begin + lane, depth = 0;
    for (; i < end && end - i > (LOADS - 1) * a.lanes; i += LOADS * a.lanes) {
      P packs[LOADS];
#pragma unroll
      for (int u = 0; u < LOADS; u++) packs[u] = *(const P*)(x + ELEMENT_AT(i + u * a.lanes));
#pragma unroll
      for (int u = 0; u < LOADS; u++)
#pragma unroll
        for (int v = 0; v < VEC; v++) sums[v] = folded(sums[v], get(packs[u].at[v]), shifts[v]);
      if (!Same<N, W>::yes && ++depth % 16 == 0)
#pragma unroll
        for (int v = 0; v < VEC; v++) {
          W& to = wide[v % RESULTS];
          to = joined(to, (W)sums[v]), sums[v] = first_value<N>();
        }
    }
    for (; i < end; i += a.lanes) {
      P pack = *(const P*)(x + ELEMENT_AT(i));
#pragma unroll
      for (int v = 0; v < VEC; v++) sums[v] = folded(sums[v], get(pack.at[v]), shifts[v]);
    }
#pragma unroll
    for (int v = 0; v < VEC; v++) wide[v % RESULTS] = joined(wide[v % RESULTS], (W)sums[v]);
#if COLUMNS
    if (a.lanes > 1) {
      __syncthreads();
#pragma unroll
      for (int v = 0; v < VEC; v++) lds[v * 256 + threadIdx.x] = wide[v];
      __syncthreads();
      if (lane == 0)
#pragma unroll
        for (int v = 0; v < VEC; v++)
          for (u32 l = 1; l < a.lanes; l++) wide[v] = joined(wide[v], lds[v * 256 + l * teams + team]);
    }
#else
    for (u32 mask = min_of(a.lanes, 32u) / 2; mask; mask >>= 1) wide[0] = joined(wide[0], SHFL_XOR(wide[0], mask));
    if (a.lanes > 32) {
      __syncthreads();
      if (threadIdx.x % 32 == 0) lds[threadIdx.x / 32] = wide[0];
      __syncthreads();
      if (lane == 0)
        for (u32 l = 1; l < a.lanes / 32; l++) wide[0] = joined(wide[0], lds[threadIdx.x / 32 + l]);
    }
#endif
    if (live && lane == 0) {
#pragma unroll
      for (int v = 0; v < RESULTS; v++) {
        if (a.parts) a.parts[(u64)(result * RESULTS + v) * gridDim.y + blockIdx.y] = wide[v];
        else finish(a, a.y + y_at + v * a.y_step, wide[v], shifts[v]);
      }
    }
  }
}
#endif
