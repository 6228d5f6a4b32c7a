// Elements by index: y[i] = data[base(i) + sum over k of along[k] * index(i, k)], where base and the index tuple of an
// output element have their own strides along the output's axes. This covers gather (one index, which depends on one
// axis), gather_elements (one index, which depends on all axes) and gather_nd.
//
// T: any type of the same width as an element. I: i32 or i64. V: adjacent elements that share their tuple and are moved
// at once; the axes then count packs. Fewer than 2^31 packs.
struct GatherArgs {
  T* y;
  const I* indices;
  const T* data;
  u32* fault;
  u32 packs;
  u32 depth;
  Axes axes;
  i64 strides[3][AXES];  // strides of y, indices, data
  i64 index_step;
  i64 along[DEPTH];
  i64 extent[DEPTH];
};

// The source and the target of a pack; false if there is none or its tuple is out of range.
DEV bool find(const GatherArgs& a, u32 pack, const T*& from, T*& to) {
  if (pack >= a.packs) return false;
  i64 at[3];
  offsets_at(pack, a.axes, a.strides, at);
  to = a.y + at[0];
  bool inside = place_of(a, a.indices + at[1], at[2]);
  from = a.data + at[2];
  return inside;
}

KERNEL(gather, 256, GatherArgs) {
  bool whole = is_pack<V>(a.y) && is_pack<V>(a.data);
  // Two packs at a time, so that their loads overlap.
  for (u32 first = blockIdx.x * 512 + threadIdx.x; first < a.packs; first += gridDim.x * 512) {
    const T *from, *other_from;
    T *to, *other_to;
    bool found = find(a, first, from, to), other = find(a, first + 256, other_from, other_to);
    if (whole) {
      if (found && other) {
        Pack<T, V> held = *(const Pack<T, V>*)from, other_held = *(const Pack<T, V>*)other_from;
        *(Pack<T, V>*)to = held;
        *(Pack<T, V>*)other_to = other_held;
      } else if (found) {
        *(Pack<T, V>*)to = *(const Pack<T, V>*)from;
      } else if (other) {
        *(Pack<T, V>*)other_to = *(const Pack<T, V>*)other_from;
      }
    } else {
#pragma unroll 1
      for (int j = 0; j < V; j++) {
        if (found) to[j] = from[j];
        if (other) other_to[j] = other_from[j];
      }
    }
  }
}
