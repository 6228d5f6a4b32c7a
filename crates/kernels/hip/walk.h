// The positions of elements in strided views. Numbers count a view's elements in the order of its axes, the last one
// fastest; axes before `first` have an extent of 1. A quotient by extent[i] is factor[i] times the number, shifted:
// exact below 2^31.
#define AXES 6
struct Axes { u32 first, extent[AXES], factor[AXES], shift[AXES]; };

DEV u32 quotient(u32 number, const Axes& axes, u32 axis) {
  return (u32)(((u64)number * axes.factor[axis]) >> axes.shift[axis]);
}
// These loops are not unrolled: fields are loaded when they are needed, and take no registers.
DEV i64 offset_at(u32 number, const Axes& axes, const i64 (&strides)[AXES]) {
  i64 offset = 0;
#pragma unroll 1
  for (u32 axis = AXES - 1; axis > axes.first; axis--) {
    u32 above = quotient(number, axes, axis);
    offset += (i64)(number - above * axes.extent[axis]) * strides[axis];
    number = above;
  }
  return offset + (i64)number * strides[axes.first];
}
// The same for two views.
DEV void offsets_at(u32 number, const Axes& axes, const i64 (&x_strides)[AXES], const i64 (&y_strides)[AXES], i64& x,
                    i64& y) {
  x = y = 0;
#pragma unroll 1
  for (u32 axis = AXES - 1; axis > axes.first; axis--) {
    u32 above = quotient(number, axes, axis), at = number - above * axes.extent[axis];
    x += (i64)at * x_strides[axis];
    y += (i64)at * y_strides[axis];
    number = above;
  }
  x += (i64)number * x_strides[axes.first];
  y += (i64)number * y_strides[axes.first];
}
// The same for any number of views.
template <int N> DEV void offsets_at(u32 number, const Axes& axes, const i64 (&strides)[N][AXES], i64 (&at)[N]) {
#pragma unroll
  for (int view = 0; view < N; view++) at[view] = 0;
#pragma unroll 1
  for (u32 axis = AXES - 1; axis > axes.first; axis--) {
    u32 above = quotient(number, axes, axis), index = number - above * axes.extent[axis];
#pragma unroll
    for (int view = 0; view < N; view++) at[view] += (i64)index * strides[view][axis];
    number = above;
  }
#pragma unroll
  for (int view = 0; view < N; view++) at[view] += (i64)number * strides[view][axes.first];
}
