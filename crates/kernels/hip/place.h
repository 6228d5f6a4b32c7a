// Resolves index tuples. The arguments `a` of a kernel have
//   u32 depth;            number of indices in a tuple
//   i64 index_step;       stride between them
//   i64 along[DEPTH];     elements per position along the axis of each index
//   i64 extent[DEPTH];    number of positions along that axis
//   u32* fault;
// A negative index counts from the end.
#define DEPTH 8

// Position `k` of an index tuple; if it is out of range, returns false and reports a fault.
template <class A, class I> DEV bool position_of(const A& a, const I* tuple, u32 k, i64& position) {
  position = (i64)tuple[(i64)k * a.index_step];
  if (position < 0) position += a.extent[k];
  if ((u64)position < (u64)a.extent[k]) return true;
  report_fault(a.fault, 1);
  return false;
}
// Adds the offset that a tuple refers to, to `at`.
template <class A, class I> DEV bool place_of(const A& a, const I* tuple, i64& at) {
#pragma unroll 1
  for (u32 k = 0; k < a.depth; k++) {
    i64 position;
    if (!position_of(a, tuple, k, position)) return false;
    at += position * a.along[k];
  }
  return true;
}
