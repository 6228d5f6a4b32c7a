// Interpolation along up to three axes: y[o] = the weighted sum of the elements around x's coordinate, or the value of
// the nearest one.
//
// resize_table: for every output index of an axis, `taps` input indices and weights; an index of -1 means that the
// coordinate is outside and gets the extrapolation value. Output index o has the coordinate pre + (o + shift) * factor
// * factor2 / divisor + post. This formula adds no products, so no compiler can fuse operations that the host does not,
// and rounding to the nearest element agrees.
//
// resize: each thread computes one element of y, or VEC adjacent ones along an axis that is not resized. WEIGHTS: 0 if
// elements are copied. T: the stored type; C: the compute type. LOW, HIGH: bounds of integer types. Below 2^31 elements
// of y.
struct ResizeAxis {
  u32 input, output;
  u32 taps;
  i32 first;   // first tap, relative to the coordinate's integer part
  u32 table;   // start of its indices and weights
  u32 is_cropped;
  f32 pre, shift, factor, factor2, divisor, post;
  f32 stretch;  // stretches distances
};
struct ResizeArgs {
  const T* x;
  T* y;
  i32* indices;
  f32* weights;
  i64 x_others[AXES], y_others[AXES];
  i64 x_axes[4], y_axes[4];  // the three axes, then the one of adjacent elements
  Axes others;
  Axes order;  // the others merged, three axes, adjacent elements in packs; after one axis of extent 1
  u32 elems;   // of y, in packs
  ResizeAxis axes[3];
  u32 rounding;  // 0 half down, 1 half up, 2 down, 3 up
  u32 is_cubic, excludes, normalises;
  f32 cubic;
  f32 extrapolation;
};

#if TABLE
DEV f32 weight_at(const ResizeArgs& a, f32 distance) {
  f32 x = fabsf(distance), c = a.cubic;
  if (!a.is_cubic) return fmaxf(1 - x, 0);
  if (x <= 1) return ((c + 2) * x - (c + 3)) * x * x + 1;
  return x < 2 ? ((c * x - 5 * c) * x + 8 * c) * x - 4 * c : 0;
}

KERNEL(resize_table, 256, ResizeArgs) {
  const ResizeAxis& axis = a.axes[blockIdx.y];
  i32 last = (i32)axis.input - 1;
  for (u32 at = blockIdx.x * 256 + threadIdx.x; at < axis.output; at += gridDim.x * 256) {
    f32 x = axis.pre + ((f32)at + axis.shift) * axis.factor * axis.factor2 / axis.divisor + axis.post;
    bool outside = axis.is_cropped && !(x >= 0 && x <= (f32)last);
    f32 floor = floorf(x), fraction = x - floor;
    i32* indices = a.indices + axis.table + (u64)at * axis.taps;
    i32 base = (i32)fminf(fmaxf(floor, -1e9f), 1e9f);
#if WEIGHTS
    f32* weights = a.weights + axis.table + (u64)at * axis.taps;
    f32 sum = 0;
    for (u32 tap = 0; tap < axis.taps; tap++) {
      i32 index = base + axis.first + (i32)tap;
      bool dropped = a.excludes && (index < 0 || index > last);
      f32 weight = dropped ? 0 : weight_at(a, ((f32)(axis.first + (i32)tap) - fraction) * axis.stretch);
      weights[tap] = weight;
      sum += weight;
      indices[tap] = outside ? -1 : min_of(max_of(index, 0), last);
    }
    if (a.normalises && sum != 0)
      for (u32 tap = 0; tap < axis.taps; tap++) weights[tap] /= sum;
#else
    bool up = a.rounding == 0 ? fraction > 0.5f : a.rounding == 1 ? fraction >= 0.5f : a.rounding == 3 && fraction > 0;
    indices[0] = outside ? -1 : min_of(max_of(base + (up ? 1 : 0), 0), last);
#endif
  }
}
#else
// Integers are truncated and clamped to their range.
DEV T stored(C value) {
#ifdef LOW
  if (value != value) return put<T>(0);
  if (value <= (C)LOW) return put<T>(LOW);
  return value >= (C)HIGH ? put<T>(HIGH) : put<T>(value);
#else
  return put<T>(value);
#endif
}
DEV f32 product_sum(f32 a, f32 b, f32 c) { return fmaf(a, b, c); }
DEV f64 product_sum(f64 a, f64 b, f64 c) { return fma(a, b, c); }

KERNEL(resize, 256, ResizeArgs) {
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
  i64 x_at, y_at;
  offsets_at(at[1], a.others, a.x_others, a.y_others, x_at, y_at);
  x_at += (i64)(at[5] * VEC) * a.x_axes[3];
  y_at += (i64)(at[5] * VEC) * a.y_axes[3];
  u32 tables[3];
#pragma unroll
  for (int axis = 0; axis < 3; axis++) {
    tables[axis] = a.axes[axis].table + at[2 + axis] * a.axes[axis].taps;
    y_at += (i64)at[2 + axis] * a.y_axes[axis];
  }
  const T* x = a.x + x_at;
  P made;
  if (a.indices[tables[0]] < 0 || a.indices[tables[1]] < 0 || a.indices[tables[2]] < 0) {
#pragma unroll
    for (int v = 0; v < VEC; v++) made.at[v] = stored((C)a.extrapolation);
  } else {
#if WEIGHTS
    C sums[VEC] = {};
#pragma unroll 1
    for (u32 k0 = tables[0]; k0 < tables[0] + a.axes[0].taps; k0++) {
      const T* x0 = x + (i64)a.indices[k0] * a.x_axes[0];
      C sums0[VEC] = {};
#pragma unroll 1
      for (u32 k1 = tables[1]; k1 < tables[1] + a.axes[1].taps; k1++) {
        const T* x1 = x0 + (i64)a.indices[k1] * a.x_axes[1];
        C sums1[VEC] = {};
#pragma unroll 1
        for (u32 k2 = tables[2]; k2 < tables[2] + a.axes[2].taps; k2++) {
          P pack = *(const P*)(x1 + (i64)a.indices[k2] * a.x_axes[2]);
          C weight = (C)a.weights[k2];
#pragma unroll
          for (int v = 0; v < VEC; v++) sums1[v] = product_sum((C)get(pack.at[v]), weight, sums1[v]);
        }
        C weight = (C)a.weights[k1];
#pragma unroll
        for (int v = 0; v < VEC; v++) sums0[v] = product_sum(sums1[v], weight, sums0[v]);
      }
      C weight = (C)a.weights[k0];
#pragma unroll
      for (int v = 0; v < VEC; v++) sums[v] = product_sum(sums0[v], weight, sums[v]);
    }
#pragma unroll
    for (int v = 0; v < VEC; v++) made.at[v] = stored(sums[v]);
#else
#pragma unroll
    for (int axis = 0; axis < 3; axis++) x += (i64)a.indices[tables[axis]] * a.x_axes[axis];
    made = *(const P*)x;
#endif
  }
  *(P*)(a.y + y_at) = made;
}
#endif
