// Elements by index: y[i] = data[base(i) + sum over k of along[k] * index(i, k)], where base and the tuple of indices of
// an output's element have strides of their own along the output's axes. That is gather (one index, which depends on one
// axis), gather_elements (one index, which depends on all) and gather_nd.
//
// T: any type as wide as an element. I: i32 or i64. V: neighbours that have their tuple in common and are moved as one; the
// axes then count packs. Fewer than 2^31 packs.
struct GatherArgs {
  T* y;
  const I* indices;
  const T* data;
  u32* fault;
  u32 packs;
  u32 depth;
  Axes axes;
  i64 strides[3][AXES];  // of y, indices, data
  i64 index_step;
  i64 along[DEPTH];
  i64 extent[DEPTH];
};

KERNEL(gather, 256, GatherArgs) {
  const u32 EACH = 2;  // packs of a thread, so that one's loads hide the other's
  bool whole = is_pack<V>(a.y) && is_pack<V>(a.data);
  for (u32 block = blockIdx.x * (256 * EACH); block < a.packs; block += gridDim.x * (256 * EACH)) {
    Pack<T, V> held[EACH];
    T* to[EACH];
#pragma unroll
    for (u32 k = 0; k < EACH; k++) {
      u32 pack = block + k * 256 + threadIdx.x;
      to[k] = 0;
      if (pack < a.packs) {
        i64 at[3];
        offsets_at(pack, a.axes, a.strides, at);
        if (place_of(a, a.indices + at[1], at[2])) {
          if (whole) {
            to[k] = a.y + at[0];
            held[k] = *(const Pack<T, V>*)(a.data + at[2]);
          } else {
#pragma unroll 1
            for (int j = 0; j < V; j++) a.y[at[0] + j] = a.data[at[2] + j];
          }
        }
      }
    }
#pragma unroll
    for (u32 k = 0; k < EACH; k++)
      if (to[k]) *(Pack<T, V>*)to[k] = held[k];
  }
}
