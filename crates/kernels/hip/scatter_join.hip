// Updates that are combined with existing values: y[place] = y[place] + updates[..], or the product, the larger or the
// smaller, one after the other. Places of different columns are different, so columns run in parallel; the steps of a
// column run in order, each rounded to T. scatter_columns assigns a column to a thread. scatter_steps assigns it to a
// block, which processes 256 steps at a time: if several of them update the same place, the thread of the first one
// does all of them.
//
// T: the stored type, except bool. I: i32 or i64. KIND: 0 sum, 1 product, 2 the larger, 3 the smaller. Fewer than 2^31
// columns and steps.
struct ScatterJoinArgs {
  T* y;
  const I* indices;
  const T* updates;
  u32* fault;
  u32 columns;
  u32 steps;
  u32 depth;
  Axes by_column;
  i64 column_strides[3][AXES];  // of y, indices, updates
  Axes by_step;
  i64 step_strides[2][AXES];  // of indices, updates
  i64 index_step;
  i64 along[DEPTH];
  i64 extent[DEPTH];
};
typedef COMPUTE(T) C;

// Rounded to T as if it were stored.
DEV C join(C before, C update) {
#if KIND == 0
  return get(put<T>(Sum<C>::of(before, update)));
#elif KIND == 1
  return get(put<T>(Product<C>::of(before, update)));
#elif KIND == 2
  return update > before || update != update ? update : before;
#else
  return update < before || update != update ? update : before;
#endif
}

KERNEL(scatter_columns, 256, ScatterJoinArgs) {
  for (u32 column = blockIdx.x * 256 + threadIdx.x; column < a.columns; column += gridDim.x * 256) {
    i64 base[3];
    offsets_at(column, a.by_column, a.column_strides, base);
    for (u32 step = 0; step < a.steps; step++) {
      i64 at[2], place = base[0];
      offsets_at(step, a.by_step, a.step_strides, at);
      if (!place_of(a, a.indices + base[1] + at[0], place)) continue;
      a.y[place] = put<T>(join(get(a.y[place]), get(a.updates[base[2] + at[1]])));
    }
  }
}

KERNEL(scatter_steps, 256, ScatterJoinArgs) {
  SHARED(i64, places, 256);
  SHARED(C, values, 256);
  SHARED(u8, is_there, 256);
  for (u32 column = blockIdx.x; column < a.columns; column += gridDim.x) {
    i64 base[3];
    offsets_at(column, a.by_column, a.column_strides, base);
    for (u32 first = 0; first < a.steps; first += 256) {
      u32 step = first + threadIdx.x;
      i64 at[2], place = base[0];
      bool mine = false;
      if (step < a.steps) {
        offsets_at(step, a.by_step, a.step_strides, at);
        mine = place_of(a, a.indices + base[1] + at[0], place);
        if (mine) values[threadIdx.x] = get(a.updates[base[2] + at[1]]);
      }
      places[threadIdx.x] = place;
      is_there[threadIdx.x] = mine;
      __syncthreads();
      for (u32 other = 0; mine && other < threadIdx.x; other++) mine = !is_there[other] || places[other] != place;
      if (mine) {
        C value = get(a.y[place]);
        for (u32 other = threadIdx.x; other < 256; other++)
          if (is_there[other] && places[other] == place) value = join(value, values[other]);
        a.y[place] = put<T>(value);
      }
      // Also orders these writes before the reads of the next round.
      __syncthreads();
    }
  }
}
