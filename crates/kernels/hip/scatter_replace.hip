// Updates that replace: y[place of tuple t, element e of its slice] = updates[t, e]. If several tuples refer to one
// place, the last one wins: `marks` has a word for every place, in which scatter_mark stores 1 + the largest number of
// a tuple that refers to it, and scatter_write writes the slices of those tuples.
//
// T: any type of the same width as an element. I: i32 or i64. V: adjacent elements of a slice that are moved at once.
// Fewer than 2^31 tuples, packs and places.
struct ScatterReplaceArgs {
  T* y;
  const I* indices;
  const T* updates;
  u32* marks;
  u32* fault;
  u32 places;
  u32 tuples;
  u32 packs;  // of a slice
  u32 depth;
  Axes by_tuple;
  i64 tuple_strides[4][AXES];  // of indices, updates, y, places
  Axes by_pack;
  i64 pack_strides[2][AXES];  // of updates, y
  i64 index_step;
  i64 along[DEPTH];
  i64 extent[DEPTH];
  i64 place_along[DEPTH];
};

// The offsets of a tuple's slice in `y` and among the places.
DEV bool find_place(const ScatterReplaceArgs& a, const I* tuple, i64& y, i64& place) {
#pragma unroll 1
  for (u32 k = 0; k < a.depth; k++) {
    i64 position;
    if (!position_of(a, tuple, k, position)) return false;
    y += position * a.along[k];
    place += position * a.place_along[k];
  }
  return true;
}

KERNEL(scatter_clear, 256, ScatterReplaceArgs) {
  for (u32 at = blockIdx.x * 256 + threadIdx.x; at < a.places; at += gridDim.x * 256) a.marks[at] = 0;
}

KERNEL(scatter_mark, 256, ScatterReplaceArgs) {
  for (u32 tuple = blockIdx.x * 256 + threadIdx.x; tuple < a.tuples; tuple += gridDim.x * 256) {
    i64 at[4];
    offsets_at(tuple, a.by_tuple, a.tuple_strides, at);
    if (find_place(a, a.indices + at[0], at[2], at[3])) atomicMax(&a.marks[at[3]], tuple + 1);
  }
}

KERNEL(scatter_write, 256, ScatterReplaceArgs) {
  u32 all = a.tuples * a.packs;
  bool whole = is_pack<V>(a.updates) && is_pack<V>(a.y);
  for (u32 number = blockIdx.x * 256 + threadIdx.x; number < all; number += gridDim.x * 256) {
    u32 tuple = number / a.packs;
    i64 at[4], within[2];
    offsets_at(tuple, a.by_tuple, a.tuple_strides, at);
    if (!find_place(a, a.indices + at[0], at[2], at[3]) || a.marks[at[3]] != tuple + 1) continue;
    offsets_at(number - tuple * a.packs, a.by_pack, a.pack_strides, within);
    const T* from = a.updates + at[1] + within[0];
    T* to = a.y + at[2] + within[1];
    if (whole) *(Pack<T, V>*)to = *(const Pack<T, V>*)from;
    else
#pragma unroll 1
      for (int j = 0; j < V; j++) to[j] = from[j];
  }
}
