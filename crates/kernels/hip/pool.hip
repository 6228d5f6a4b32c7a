// Pooling over up to three spatial axes of x [n, c, d, h, w]; with fewer, leading axes of extent 1 are added. Each
// thread computes one element of y, or VEC adjacent channels of it; adjacent threads write adjacent memory.
//
// Max: the largest element of the window, or the lowest value if the window is entirely in the padding; NaN never wins,
// unless it comes first and INDEX requests the position too. Average: the sum divided by the number of elements that
// count. Lp: the p-norm.
//
// WINDOW: 2 or 3 for square windows of that size, STRIDE apart, for maxima or averages: each thread computes RUN
// vertically adjacent elements of y, and the contribution of a row of x to them is computed once. Otherwise 0. ACROSS:
// 2 if a thread does this for two adjacent columns of y, from pairs of elements of x that start at even columns; ODD
// says whether the windows of even columns start at odd ones. Rows of x and y then consist of whole pairs.
//
// KIND: 0 max, 1 average, 2 Lp. INDEX: 1 with positions. CHANNELS_LAST: 1 if channels are innermost in y. T: the stored
// type; C: the compute type. Below 2^31 elements of y and along each axis; strides are in elements.
struct PoolArgs {
  const T* x;
  T* y;
  i64* index;
  i64 x_strides[5], y_strides[5], index_strides[5];  // n, c, d, h, w
  i64 plane;                                         // elements per channel
  i64 channels;
  i64 counts[3];  // what a step along d, h, w adds to a position
  Axes order;     // n, c, d, h, w or, if CHANNELS_LAST, n, d, h, w, c, after one axis of extent 1; without d if WINDOW
  u32 elems;      // of y, in packs and runs
  i32 input[3], kernel[3], step[3], dilation[3], pad[3];
  i32 first[3], end[3];  // the range that counts for an average
  f32 p;
  u32 rows;  // rows of y, if WINDOW
};

#if KIND == 2
DEV f32 abs_of(f32 v) { return fabsf(v); }
DEV f64 abs_of(f64 v) { return fabs(v); }
#endif

// The number of elements of the window before a bound.
DEV i32 before(i32 bound, i32 start, i32 dilation, i32 kernel) {
  i32 distance = bound - start;
  if (distance <= 0) return 0;
  return min_of(dilation == 1 ? distance : (distance + dilation - 1) / dilation, kernel);
}

#if WINDOW
template <class V> DEV V larger(V a, V b) { return max_of(a, b); }
DEV f32 larger(f32 a, f32 b) { return fmaxf(a, b); }

// The nearest position in x.
DEV u32 near(i32 at, i32 extent) { return (u32)max_of(0, min_of(at, extent - 1)); }
// The number of elements of a window that count.
DEV i32 counted(const PoolArgs& a, int axis, i32 start) {
  return max_of(before(a.end[axis], start, 1, WINDOW) - before(a.first[axis], start, 1, WINDOW), 0);
}

// The columns of x that a thread's windows cover, and their positions: LOADED positions per row.
enum { REACH = (ACROSS - 1) * STRIDE + WINDOW, LOADED = ACROSS == 1 ? REACH : (REACH + ODD + 1) / 2 };
#if ACROSS == 1
DEV void find_columns(const PoolArgs& a, i32 left, u32 (&at)[LOADED]) {
#pragma unroll
  for (int k = 0; k < LOADED; k++) at[k] = near(left + k, a.input[2]) * (u32)a.x_strides[4];
}
// A position outside x becomes the nearest one inside, which is in the window too, unless the window is entirely
// outside x. Averages skip it.
DEV bool is_taken(const PoolArgs& a, i32 column, bool is_row) {
  return KIND == 0 || (is_row & ((u32)column < (u32)a.input[2]));
}
typedef Pack<T, VEC> P;
DEV void load_columns(const T* x, u32 row, const u32 (&at)[LOADED], P (&packs)[REACH]) {
#pragma unroll
  for (int k = 0; k < REACH; k++) packs[k] = *(const P*)(x + (row + at[k]));
}
#else
DEV void find_columns(const PoolArgs& a, i32 left, u32 (&at)[LOADED]) {
#pragma unroll
  for (int k = 0; k < LOADED; k++) at[k] = near(left - ODD + 2 * k, a.input[2] - 1);
}
DEV bool is_taken(const PoolArgs& a, i32 column, bool is_row) {
  return (KIND == 0 || is_row) & ((u32)column < (u32)a.input[2]);
}
typedef Pack<T, 1> P;
DEV void load_columns(const T* x, u32 row, const u32 (&at)[LOADED], P (&packs)[REACH]) {
  Pack<T, 2> pairs[LOADED];
  x += row;
#pragma unroll
  for (int k = 0; k < LOADED; k++) pairs[k] = *(const Pack<T, 2>*)(x + at[k]);
#pragma unroll
  for (int k = 0; k < REACH; k++) packs[k].at[0] = pairs[(k + ODD) / 2].at[(k + ODD) % 2];
}
#endif

KERNEL(pool_window, 256, PoolArgs) {
  u64 number = ((u64)blockIdx.y * gridDim.x + blockIdx.x) * 256 + threadIdx.x;
  if (number >= a.elems) return;
  u32 at[AXES], rest = (u32)number;
#pragma unroll
  for (int axis = AXES - 1; axis > AXES - 4; axis--) {
    u32 above = quotient(rest, a.order, axis);
    at[axis] = rest - above * a.order.extent[axis];
    rest = above;
  }
#if CHANNELS_LAST
  const u32 c = at[5] * VEC, h = at[3] * RUN, w = at[4];
#else
  const u32 c = at[3], h = at[4] * RUN, w = at[5] * ACROSS;
#endif
  const T* x = a.x + (i64)rest * a.x_strides[0] + (i64)c * a.x_strides[1];
  T* y = a.y + (i64)rest * a.y_strides[0] + (i64)c * a.y_strides[1] + (i64)w * a.y_strides[4];
  const i32 top = (i32)h * STRIDE - a.pad[1], left = (i32)w * STRIDE - a.pad[2];
  u32 columns[LOADED];
  find_columns(a, left, columns);
  enum { ROWS = (RUN - 1) * STRIDE + WINDOW, MADE = ACROSS * VEC };
  C rows[ROWS][MADE];
#pragma unroll
  for (int r = 0; r < ROWS; r++) {
    const u32 row = near(top + r, a.input[1]);
    P packs[REACH];
    load_columns(x, row * (u32)a.x_strides[3], columns, packs);
#pragma unroll
    for (int m = 0; m < MADE; m++) {
      rows[r][m] = KIND == 0 ? LOWEST : (C)0;
#pragma unroll
      for (int k = 0; k < WINDOW; k++) {
        const int column = m / VEC * STRIDE + k;
        const C value = get(packs[column].at[m % VEC]);
        const C taken = is_taken(a, left + column, (i32)row == top + r) ? value : KIND == 0 ? LOWEST : (C)0;
        rows[r][m] = KIND == 0 ? larger(rows[r][m], taken) : rows[r][m] + taken;
      }
    }
  }
#pragma unroll
  for (u32 n = 0; n < RUN; n++) {
    const i32 start = top + (i32)n * STRIDE;
    Pack<T, MADE> made;
#pragma unroll
    for (int m = 0; m < MADE; m++) {
      const i32 from = left + m / VEC * STRIDE;
      const bool is_empty = (start <= -WINDOW) | (start >= a.input[1]) | (from <= -WINDOW) | (from >= a.input[2]);
      const i32 count = KIND == 1 ? max_of(counted(a, 1, start) * counted(a, 2, from), 1) : 1;
      C value = rows[n * STRIDE][m];
#pragma unroll
      for (int k = 1; k < WINDOW; k++) {
        const C row = rows[n * STRIDE + k][m];
        value = KIND == 0 ? larger(value, row) : value + row;
      }
      made.at[m] = put<T>(KIND == 1 ? value / (C)count : is_empty ? LOWEST : value);
    }
    if (h + n < a.rows) *(Pack<T, MADE>*)(y + (i64)(h + n) * a.y_strides[3]) = made;
  }
}
#else
KERNEL(pool, 256, PoolArgs) {
  typedef Pack<T, VEC> P;
  u64 number = ((u64)blockIdx.y * gridDim.x + blockIdx.x) * 256 + threadIdx.x;
  if (number >= a.elems) return;
  u32 at[AXES], rest = (u32)number;
#pragma unroll
  for (int axis = AXES - 1; axis > 0; axis--) {
    u32 above = quotient(rest, a.order, axis);
    at[axis] = rest - above * a.order.extent[axis];
    rest = above;
  }
#if CHANNELS_LAST
  u32 o[5] = {at[1], at[5] * VEC, at[2], at[3], at[4]};
#else
  u32 o[5] = {at[1], at[2], at[3], at[4], at[5]};
#endif
  const T* x = a.x + (i64)o[0] * a.x_strides[0] + (i64)o[1] * a.x_strides[1];
  i32 start[3], low[3], high[3];
#pragma unroll
  for (int axis = 0; axis < 3; axis++) {
    start[axis] = (i32)o[2 + axis] * a.step[axis] - a.pad[axis];
    low[axis] = before(0, start[axis], a.dilation[axis], a.kernel[axis]);
    high[axis] = before(a.input[axis], start[axis], a.dilation[axis], a.kernel[axis]);
  }
  C made[VEC];
#pragma unroll
  for (int v = 0; v < VEC; v++) made[v] = KIND == 0 ? LOWEST : (C)0;
  bool found = false;
  i64 place = 0;
  for (i32 k0 = low[0]; k0 < high[0]; k0++) {
    i32 i0 = start[0] + k0 * a.dilation[0];
    for (i32 k1 = low[1]; k1 < high[1]; k1++) {
      i32 i1 = start[1] + k1 * a.dilation[1];
      i32 i2 = start[2] + low[2] * a.dilation[2];
      const T* from = x + i0 * a.x_strides[2] + i1 * a.x_strides[3] + i2 * a.x_strides[4];
      i64 step = a.dilation[2] * a.x_strides[4];
      for (i32 k2 = low[2]; k2 < high[2]; k2++, i2 += a.dilation[2], from += step) {
        P pack = *(const P*)from;
#pragma unroll
        for (int v = 0; v < VEC; v++) {
          C value = get(pack.at[v]);
#if INDEX
          if (!found || value > made[v]) {
            made[v] = value;
            place = i0 * a.counts[0] + i1 * a.counts[1] + i2 * a.counts[2];
            found = true;
          }
#elif KIND == 0
          made[v] = max_of(made[v], value);
#elif KIND == 1
          made[v] += value;
#else
          made[v] += a.p == 1 ? abs_of(value) : a.p == 2 ? value * value : pow_of(abs_of(value), (C)a.p);
#endif
        }
      }
    }
  }
#if KIND == 1
  i32 count = 1;
#pragma unroll
  for (int axis = 0; axis < 3; axis++) {
    i32 end = before(a.end[axis], start[axis], a.dilation[axis], a.kernel[axis]);
    count *= max_of(end - before(a.first[axis], start[axis], a.dilation[axis], a.kernel[axis]), 0);
  }
#pragma unroll
  for (int v = 0; v < VEC; v++) made[v] /= (C)max_of(count, 1);
#elif KIND == 2
#pragma unroll
  for (int v = 0; v < VEC; v++)
    made[v] = a.p == 1 ? made[v] : a.p == 2 ? sqrt_of(made[v]) : pow_of(made[v], 1 / (C)a.p);
#endif
  i64 y_at = 0, index_at = 0;
#pragma unroll
  for (int axis = 0; axis < 5; axis++) {
    y_at += (i64)o[axis] * a.y_strides[axis];
    if (INDEX) index_at += (i64)o[axis] * a.index_strides[axis];
  }
  P pack;
#pragma unroll
  for (int v = 0; v < VEC; v++) pack.at[v] = put<T>(made[v]);
  *(P*)(a.y + y_at) = pack;
  if (INDEX) a.index[index_at] = ((i64)o[0] * a.channels + o[1]) * a.plane + place;
}
#endif
