// Where index tuples lead. The arguments `a` of a kernel have
//   u32 depth;            how many indices a tuple has
//   i64 index_step;       from one to the next
//   i64 along[DEPTH];     elements per position along the axis of each index
//   i64 extent[DEPTH];    positions there
//   u32* fault;
// An index below zero counts from the end.
#define DEPTH 8

// Position `k` of a tuple of indices; false, and a fault, if it is outside.
template <class A, class I> DEV bool position_of(const A& a, const I* tuple, u32 k, i64& position) {
  position = (i64)tuple[(i64)k * a.index_step];
  if (position < 0) position += a.extent[k];
  if ((u64)position < (u64)a.extent[k]) return true;
  report_fault(a.fault, 1);
  return false;
}
// Adds to `at` where a tuple leads.
template <class A, class I> DEV bool place_of(const A& a, const I* tuple, i64& at) {
#pragma unroll 1
  for (u32 k = 0; k < a.depth; k++) {
    i64 position;
    if (!position_of(a, tuple, k, position)) return false;
    at += position * a.along[k];
  }
  return true;
}
