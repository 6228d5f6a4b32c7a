// Elementwise: y[i] = map_of(x0[i], x1[i], ..), where every operand has its own strides; a stride of 0 repeats an element.
//
// Written for each expression: the function map_of, and these macros, in which an operand is an input or the index along an
// axis, whose "address" is the index itself:
//   POINTERS        the inputs as fields of the arguments
//   OPERANDS        how many operands there are
//   LOADED          a field for each operand, of a type below
//   LOAD(l, a, at, count)  loads them all from the offsets `at`
//   VALUE(l, j)     the result's element j from the loaded operands
//   Y               the output's stored type
//   OFFSET          i32 where every offset fits, else i64
//
// The host has merged and ordered the axes: axis 0 is the innermost one of the output. map_rows cuts axis 0 into packs of
// V elements and gives every thread up to K of them: all are loaded, then all are stored. map_tile is for inputs that are
// contiguous along axis 1 instead: they go through LDS in tiles, so that both sides are read and written in whole lines.
// Fewer than 2^31 packs and tiles.
#define AXES 6
#if defined(GPU_SIM)
#define DEV_MEMBER
#else
#define DEV_MEMBER __device__ __forceinline__
#endif

// n / divisor for n < 2^31, as in walk.h; unrolled, so that each axis costs no more than its arithmetic.
struct Divider { u32 divisor, factor, shift; };
DEV u32 divide(Divider by, u32 n) { return (u32)((u64)n * by.factor >> by.shift); }

struct MapArgs {
  POINTERS
  Y* y;
  u32 packs;       // in all
  u32 per_thread;  // how many packs a thread has
  u32 columns;     // extent of axis 0
  u32 rows;        // extent of axis 1
  u32 axes;        // how many axes there are
  Divider by[AXES];  // packs or tiles along an axis; of axes 2 and up, the extent
  OFFSET strides[OPERANDS + 1][AXES];  // of the operands, then of y
  OFFSET first[OPERANDS ? OPERANDS : 1];  // of the operands
};

#if TILE
// One element of an operand, from memory or from a tile.
template <class T> struct Element {
  T v;
  DEV_MEMBER void load(const T* p) { v = *p; }
  DEV_MEMBER COMPUTE(T) at(int) const { return get(v); }
};
struct Index {
  OFFSET v;
  DEV_MEMBER void load(OFFSET offset) { v = offset; }
  DEV_MEMBER i64 at(int) const { return v; }
};
#define PITCH(T) (TILE + (sizeof(T) < 4 ? 4 / sizeof(T) : 1))  // rows begin in different banks

struct Loaded { LOADED };

KERNEL(map_tile, 256, MapArgs) {
  TILES
  u32 rest = blockIdx.x;
  u32 next = divide(a.by[0], rest);
  u32 column = (rest - next * a.by[0].divisor) * TILE;
  rest = next;
  next = divide(a.by[1], rest);
  u32 row = (rest - next * a.by[1].divisor) * TILE;
  rest = next;
  OFFSET at[OPERANDS + 1];
#pragma unroll
  for (int o = 0; o <= OPERANDS; o++)
    at[o] = (OFFSET)column * a.strides[o][0] + (OFFSET)row * a.strides[o][1] + (o < OPERANDS ? a.first[o] : 0);
#pragma unroll
  for (int axis = 2; axis < AXES; axis++) {
    if (axis < a.axes) {
      next = divide(a.by[axis], rest);
      OFFSET index = (OFFSET)(rest - next * a.by[axis].divisor);
      rest = next;
#pragma unroll
      for (int o = 0; o <= OPERANDS; o++) at[o] += index * a.strides[o][axis];
    }
  }
  u32 columns = min_of((u32)TILE, a.columns - column), rows = min_of((u32)TILE, a.rows - row);
  u32 low = threadIdx.x % TILE;
  if (low < rows) {
#pragma unroll
    for (u32 step = 0; step < TILE * TILE / 256; step++) {
      u32 c = threadIdx.x / TILE + step * (256 / TILE);
      if (c < columns) { FILL(a, at, c, low) }
    }
  }
  __syncthreads();
  if (low >= columns) return;
#pragma unroll 4
  for (u32 step = 0; step < TILE * TILE / 256; step++) {
    u32 r = threadIdx.x / TILE + step * (256 / TILE);
    if (r >= rows) return;
    Loaded l;
    LOAD(l, a, at, low, r)
    a.y[at[OPERANDS] + (OFFSET)low * a.strides[OPERANDS][0] + (OFFSET)r * a.strides[OPERANDS][1]] = put<Y>(VALUE(l, 0));
  }
}

#else
// V elements of an operand: neighbours in memory, one that is repeated, or any others. `count` of them are there.
template <class T> struct Dense {
  Pack<T, V> v;
  DEV_MEMBER void load(const T* p, OFFSET, int count) {
    if (count == V && is_pack<V>(p)) v = *(const Pack<T, V>*)p;
    else
#pragma unroll
      for (int j = 0; j < V; j++)
        if (j < count) v.at[j] = p[j];
  }
  DEV_MEMBER COMPUTE(T) at(int j) const { return get(v.at[j]); }
};
template <class T> struct Uniform {
  T v;
  DEV_MEMBER void load(const T* p, OFFSET, int) { v = *p; }
  DEV_MEMBER COMPUTE(T) at(int) const { return get(v); }
};
template <class T> struct Strided {
  T v[V];
  DEV_MEMBER void load(const T* p, OFFSET stride, int count) {
#pragma unroll
    for (int j = 0; j < V; j++)
      if (j < count) v[j] = p[(OFFSET)j * stride];
  }
  DEV_MEMBER COMPUTE(T) at(int j) const { return get(v[j]); }
};
struct Index {
  OFFSET v, step;
  DEV_MEMBER void load(OFFSET offset, OFFSET stride, int) {
    v = offset;
    step = stride;
  }
  DEV_MEMBER i64 at(int j) const { return (i64)(v + (OFFSET)j * step); }
};

struct Loaded { LOADED };

KERNEL(map_rows, 256, MapArgs) {
  u32 first = blockIdx.x * (256 * a.per_thread) + threadIdx.x;
  Loaded l[K];
  OFFSET target[K];
  int counts[K];
#pragma unroll
  for (int k = 0; k < K; k++) {
    u32 pack = first + k * 256;
    counts[k] = 0;
    if (k < a.per_thread && pack < a.packs) {
      u32 rest = divide(a.by[0], pack);
      u32 column = (pack - rest * a.by[0].divisor) * V;
      counts[k] = (int)min_of((u32)V, a.columns - column);
      OFFSET at[OPERANDS + 1];
#pragma unroll
      for (int o = 0; o <= OPERANDS; o++) at[o] = (OFFSET)column * a.strides[o][0] + (o < OPERANDS ? a.first[o] : 0);
#pragma unroll
      for (int axis = 1; axis < AXES; axis++) {
        if (axis < a.axes) {
          u32 next = divide(a.by[axis], rest);
          OFFSET index = (OFFSET)(rest - next * a.by[axis].divisor);
          rest = next;
#pragma unroll
          for (int o = 0; o <= OPERANDS; o++) at[o] += index * a.strides[o][axis];
        }
      }
      target[k] = at[OPERANDS];
      LOAD(l[k], a, at, counts[k])
    }
  }
#pragma unroll
  for (int k = 0; k < K; k++) {
    if (counts[k] == 0) continue;
    Y* y = a.y + target[k];
    Pack<Y, V> made;
#pragma unroll
    for (int j = 0; j < V; j++) made.at[j] = put<Y>(VALUE(l[k], j));
#if V > 1
    if (counts[k] == V && is_pack<V>(y)) *(Pack<Y, V>*)y = made;
    else
#endif
#pragma unroll
      for (int j = 0; j < V; j++)
        if (j < counts[k]) y[j] = made.at[j];
  }
}
#endif
