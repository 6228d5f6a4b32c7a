// The index of the largest or smallest element along the last axis. NaN beats any number; of equal elements the first
// one wins, or the last. A team of threads handles a row. If rows are few and long, the blocks along y handle a segment
// each and store the best element of each segment in `parts` and `places` [rows, segments], which a second launch
// (JOIN) reads as its rows.
//
// T: x's type. N: the type in which elements are compared. Below 2^31 rows and columns; strides are in elements.
struct ArgReduceArgs {
  const T* x;
  i64* y;
  N* parts;     // NULL if y is written directly
  u32* places;
  i64 x_rows[AXES], y_rows[AXES];
  i64 x_step;
  Axes rows;
  u32 row_count, columns;
  u32 segment, segments;
  u32 lanes;
  u32 largest, last;
};

struct Best {
  N value;
  u32 at;
};
#define NOWHERE 0xffffffffu

DEV bool beats(const ArgReduceArgs& a, Best one, Best other) {
  if (other.at == NOWHERE) return true;
  if (one.at == NOWHERE) return false;
  bool is_nan = one.value != one.value;
  if (is_nan != (other.value != other.value)) return is_nan;
  if (!is_nan && one.value != other.value) return (one.value > other.value) == (a.largest != 0);
  return (one.at > other.at) == (a.last != 0);
}
DEV Best better(const ArgReduceArgs& a, Best one, Best other) { return beats(a, one, other) ? one : other; }

DEV Best load_best(const ArgReduceArgs& a, const T* x, u32 row, u32 at) {
  Best best;
#if JOIN
  best.value = a.parts[(u64)row * a.segments + at];
  best.at = a.places[(u64)row * a.segments + at];
#else
  best.value = get(x[(i64)at * a.x_step]);
  best.at = at;
#endif
  return best;
}

KERNEL(arg_reduce, 256, ArgReduceArgs) {
  SHARED(N, values, 256);
  SHARED(u32, places, 256);
  u32 lanes = a.lanes, lane = LANE(lanes), teams = 256 / lanes, blocks = (a.row_count + teams - 1) / teams;
  for (u32 block = blockIdx.x; block < blocks; block += gridDim.x) {
    u32 row = block * teams + TEAM(lanes);
    bool live = row < a.row_count;
    u32 begin = blockIdx.y * a.segment, end = live ? min_of(a.columns, begin + a.segment) : begin;
    i64 x_at, y_at;
    offsets_at(live ? row : 0, a.rows, a.x_rows, a.y_rows, x_at, y_at);
    Best best;
    best.at = NOWHERE;
    best.value = 0;
#pragma unroll 4
    for (u32 at = begin + lane; at < end; at += lanes) best = better(a, load_best(a, a.x + x_at, row, at), best);
#if !TURNED
    for (u32 mask = min_of(lanes, 32u) / 2; mask; mask >>= 1) {
      Best other;
      other.value = SHFL_XOR(best.value, mask);
      other.at = SHFL_XOR(best.at, mask);
      best = better(a, best, other);
    }
#endif
    if (lanes > (TURNED ? 1 : 32)) {
      __syncthreads();
      values[threadIdx.x] = best.value;
      places[threadIdx.x] = best.at;
      __syncthreads();
      if (lane == 0)
        for (u32 l = TURNED ? 1 : 32; l < lanes; l += TURNED ? 1 : 32) {
          u32 from = threadIdx.x + l * (TURNED ? teams : 1);
          Best other;
          other.value = values[from];
          other.at = places[from];
          best = better(a, best, other);
        }
    }
    if (live && lane == 0) {
      if (a.parts && !JOIN) {
        a.parts[(u64)row * a.segments + blockIdx.y] = best.value;
        a.places[(u64)row * a.segments + blockIdx.y] = best.at;
      } else {
        a.y[y_at] = best.at;
      }
    }
  }
}
