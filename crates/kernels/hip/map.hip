// Elementwise: y[i] = map_of(x0[i], x1[i], ..). Every operand has its own strides; a stride of 0 repeats an element.
//
// Generated for each expression: the function map_of, and the macros below. An operand is an input, or the index along
// an axis, whose "address" is the index itself:
//   POINTERS            the inputs as fields of the arguments
//   OPERANDS            the number of operands
//   PACKS, ELEMENTS     a field for each operand, of a type below: V elements, or one
//   LOAD_PACK(l, a, at), LOAD_ELEMENT(l, a, at)  loads them all from the offsets `at`
//   VALUE(l, j)         the result's element j from the loaded operands
//   IS_PACKED(a)        whether addresses of dense operands are aligned to packs
//   TILES, FETCH(k, c, r), FILL(k, c, r), LOAD_TILED(l, a, at, c, r)  for map_tile: see text.rs
//   LOAD_TURNED(l, a, at), LOAD_ROW(l, a, at, r)  for map_turned: see text.rs
//   LOAD_DENSE(l, a, e), LOAD_LOOSE(l, a, at, j)  for map_flat: see text.rs
//   Y                   the output's stored type
//   OFFSET              i32 if every offset fits, else i64
//
// The host has merged and ordered the axes: axis 0 is the innermost one of the output. map_rows splits axis 0 into
// packs of V elements and gives every thread up to K of them: all are loaded, then all are stored. map_flat is for a
// dense output whose rows are not a multiple of a pack: packs continue into the next row, and operands with another
// layout than the output are read element by element. The other two are for inputs that are contiguous along axis 1
// instead. map_turned gives a thread V x V elements, V packs on either side, which it transposes in registers; a block
// has 16 x 16 of these. map_tile transposes through LDS, element by element, for extents and addresses that are not
// aligned to packs and for long expressions. Fewer than 2^31 packs and tiles.
#define AXES 6
#if defined(GPU_SIM)
#define DEV_MEMBER
#else
#define DEV_MEMBER __device__ __forceinline__
#endif

// n / divisor for n < 2^31, as in walk.h; unrolled, so that each axis costs only its arithmetic.
struct Divider { u32 divisor, factor, shift; };
DEV u32 divide(Divider by, u32 n) { return (u32)((u64)n * by.factor >> by.shift); }

struct MapArgs {
  POINTERS
  Y* y;
  u32 packs;       // total
  u32 per_thread;  // packs per thread
  u32 columns;     // extent of axis 0; for map_flat, all elements
  u32 rows;        // extent of axis 1
  u32 axes;        // number of axes
  Divider by[AXES];  // packs or tiles along an axis; for axes 2 and up, and for map_flat, the extent
  OFFSET strides[OPERANDS + 1][AXES];  // of the operands, then of y
  OFFSET first[OPERANDS ? OPERANDS : 1];  // of the operands
};

template <class T> struct Element {
  T v;
  DEV_MEMBER void load(const T* p) { v = *p; }
  DEV_MEMBER COMPUTE(T) at(int) const { return get(v); }
};
struct IndexElement {
  OFFSET v;
  DEV_MEMBER void load(OFFSET offset) { v = offset; }
  DEV_MEMBER i64 at(int) const { return v; }
};
struct OneElement { ELEMENTS };

// The offsets of the first elements of block blockIdx.x in the operands and the output, for blocks of `side` x `side`
// elements.
DEV void locate_tile(const MapArgs& a, u32 side, u32& column, u32& row, OFFSET (&at)[OPERANDS + 1]) {
  u32 rest = divide(a.by[0], blockIdx.x);
  column = (blockIdx.x - rest * a.by[0].divisor) * side;
  u32 next = divide(a.by[1], rest);
  row = (rest - next * a.by[1].divisor) * side;
  rest = next;
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
}

#if TILE
#define PITCH(T) (TILE + (sizeof(T) < 4 ? 4 / sizeof(T) : 1))  // rows start in different banks

KERNEL(map_tile, 256, MapArgs) {
  const u32 EACH = TILE * TILE / 256;
  TILES
  u32 column, row;
  OFFSET at[OPERANDS + 1];
  locate_tile(a, TILE, column, row, at);
  u32 columns = min_of((u32)TILE, a.columns - column), rows = min_of((u32)TILE, a.rows - row);
  u32 low = threadIdx.x % TILE, high = threadIdx.x / TILE;
  // All loads of this thread are issued before the first element is needed.
#pragma unroll
  for (u32 k = 0; k < EACH; k++) {
    u32 c = high + k * (256 / TILE);
    if (low < rows && c < columns) { FETCH(k, c, low) }
  }
#pragma unroll
  for (u32 k = 0; k < EACH; k++) {
    u32 c = high + k * (256 / TILE);
    if (low < rows && c < columns) { FILL(k, c, low) }
  }
  __syncthreads();
  if (low >= columns) return;
#pragma unroll 4
  for (u32 k = 0; k < EACH; k++) {
    u32 r = high + k * (256 / TILE);
    if (r >= rows) return;
    OneElement l;
    LOAD_TILED(l, a, at, low, r)
    a.y[at[OPERANDS] + (OFFSET)low * a.strides[OPERANDS][0] + (OFFSET)r * a.strides[OPERANDS][1]] = put<Y>(VALUE(l, 0));
  }
}

#else
// V elements of an operand: contiguous, a single repeated one, or at any stride.
template <class T> struct Dense {
  Pack<T, V> v;
  DEV_MEMBER void load(const T* p, OFFSET) { v = *(const Pack<T, V>*)p; }
  DEV_MEMBER COMPUTE(T) at(int j) const { return get(v.at[j]); }
};
template <class T> struct Uniform {
  T v;
  DEV_MEMBER void load(const T* p, OFFSET) { v = *p; }
  DEV_MEMBER COMPUTE(T) at(int) const { return get(v); }
};
template <class T> struct Strided {
  T v[V];
  DEV_MEMBER void load(const T* p, OFFSET stride) {
#pragma unroll
    for (int j = 0; j < V; j++) v[j] = p[(OFFSET)j * stride];
  }
  DEV_MEMBER COMPUTE(T) at(int j) const { return get(v[j]); }
};
struct Index {
  OFFSET v, step;
  DEV_MEMBER void load(OFFSET offset, OFFSET stride) {
    v = offset;
    step = stride;
  }
  DEV_MEMBER i64 at(int j) const { return (i64)(v + (OFFSET)j * step); }
};
// V packs along axis 1; at(j) is element `r` of pack j. Short elements stay together in words: separately, each would
// take a register.
template <class T, int BYTES> struct Held {
  Pack<T, V> v;
  DEV_MEMBER void load(const T* p) { v = *(const Pack<T, V>*)p; }
  DEV_MEMBER T at(int r) const { return v.at[r]; }
};
template <class T> struct OfBits { DEV T value(u32 bits) { return (T)bits; } };
template <> struct OfBits<f16> { DEV f16 value(u32 bits) { f16 v; v.bits = (u16)bits; return v; } };
template <> struct OfBits<bf16> { DEV bf16 value(u32 bits) { bf16 v; v.bits = (u16)bits; return v; } };
template <> struct OfBits<b8> { DEV b8 value(u32 bits) { b8 v; v.bits = (u8)bits; return v; } };
template <class T, int BYTES> struct HeldInWords {
  Pack<u32, V * BYTES / 4> v;
  DEV_MEMBER void load(const T* p) { v = *(const Pack<u32, V * BYTES / 4>*)p; }
  DEV_MEMBER T at(int r) const { return OfBits<T>::value(v.at[r * BYTES / 4] >> (r * BYTES % 4 * 8)); }
};
template <class T> struct Held<T, 1> : HeldInWords<T, 1> {};
template <class T> struct Held<T, 2> : HeldInWords<T, 2> {};
template <class T> struct Turned {
  Held<T, sizeof(T)> packs[V];
  int r;
  DEV_MEMBER void load(const T* p, OFFSET stride) {
#pragma unroll
    for (int j = 0; j < V; j++) packs[j].load(p + (OFFSET)j * stride);
  }
  DEV_MEMBER COMPUTE(T) at(int j) const { return get(packs[j].at(r)); }
};
#if !FLAT
struct OnePack { PACKS };
#endif

#if TURN
// Without it, schedulers keep the packs of all rows in registers at once.
#if defined(__AMDGCN__) && defined(__has_builtin)
#if __has_builtin(__builtin_amdgcn_sched_barrier)
#define END_OF_ROW() __builtin_amdgcn_sched_barrier(0)
#endif
#endif
#if !defined(END_OF_ROW)
#define END_OF_ROW()
#endif

KERNEL(map_turned, 256, MapArgs) {
  // A wave covers 8 or 16 packs along axis 1 by 4 along axis 0: it reads whole cache lines, and writes large parts of
  // them.
  u32 along = (threadIdx.x & 7) | (threadIdx.x >> 5 & 1) << 3, across = (threadIdx.x >> 3 & 3) | threadIdx.x >> 6 << 2;
  u32 column, row;
  OFFSET at[OPERANDS + 1];
  locate_tile(a, 16 * V, column, row, at);
  if (column + across * V >= a.columns || row + along * V >= a.rows) return;
#pragma unroll
  for (int o = 0; o <= OPERANDS; o++)
    at[o] += (OFFSET)(across * V) * a.strides[o][0] + (OFFSET)(along * V) * a.strides[o][1];
  if (!(IS_PACKED(a))) {
#pragma unroll 1
    for (u32 r = 0; r < V; r++) {
#pragma unroll 1
      for (u32 j = 0; j < V; j++) {
        OFFSET here[OPERANDS + 1];
#pragma unroll
        for (int o = 0; o <= OPERANDS; o++)
          here[o] = at[o] + (OFFSET)r * a.strides[o][1] + (OFFSET)j * a.strides[o][0];
        OneElement l;
        LOAD_ELEMENT(l, a, here)
        a.y[here[OPERANDS]] = put<Y>(VALUE(l, 0));
      }
    }
    return;
  }
  OnePack l;
  LOAD_TURNED(l, a, at)
#pragma unroll
  for (int r = 0; r < V; r++) {
    LOAD_ROW(l, a, at, r)
    Pack<Y, V> made;
#pragma unroll
    for (int j = 0; j < V; j++) made.at[j] = put<Y>(VALUE(l, j));
    *(Pack<Y, V>*)(a.y + at[OPERANDS] + (OFFSET)r * a.strides[OPERANDS][1]) = made;
    END_OF_ROW();
  }
}

#elif FLAT
template <class T> struct Loose {
  T v[V];
  DEV_MEMBER void set(const T* p, int j) { v[j] = *p; }
  DEV_MEMBER COMPUTE(T) at(int j) const { return get(v[j]); }
};
struct LooseIndex {
  OFFSET v[V];
  DEV_MEMBER void set(OFFSET offset, int j) { v[j] = offset; }
  DEV_MEMBER i64 at(int j) const { return (i64)v[j]; }
};
struct FlatPack { FLAT_PACKS };

// The offsets of the first element of an output row in the operands.
DEV void locate_row(const MapArgs& a, u32 row, OFFSET (&at)[OPERANDS + 1]) {
#pragma unroll
  for (int o = 0; o <= OPERANDS; o++) at[o] = o < OPERANDS ? a.first[o] : 0;
#pragma unroll
  for (int axis = 1; axis < AXES; axis++) {
    if (axis < a.axes) {
      u32 next = divide(a.by[axis], row);
      OFFSET index = (OFFSET)(row - next * a.by[axis].divisor);
      row = next;
#pragma unroll
      for (int o = 0; o <= OPERANDS; o++) at[o] += index * a.strides[o][axis];
    }
  }
}

KERNEL(map_flat, 256, MapArgs) {
  u32 pack = blockIdx.x * 256 + threadIdx.x;
  if (pack >= a.packs) return;
  u32 element = pack * V, extent = a.by[0].divisor;
  u32 row = divide(a.by[0], element), column = element - row * extent;
  // A row is at least as long as a pack, so a pack ends in this row or in the next one.
  OFFSET here[OPERANDS + 1], after[OPERANDS + 1];
  locate_row(a, row, here);
  locate_row(a, row + 1, after);
#pragma unroll
  for (int o = 0; o <= OPERANDS; o++) {
    here[o] += (OFFSET)column * a.strides[o][0];
    after[o] -= (OFFSET)(extent - column) * a.strides[o][0];
  }
  if (!(IS_PACKED(a)) || (a.columns % V != 0 && blockIdx.x == gridDim.x - 1)) {
    u32 count = min_of((u32)V, a.columns - element);
#pragma unroll 1
    for (u32 j = 0; j < count; j++) {
      OFFSET at[OPERANDS + 1];
#pragma unroll
      for (int o = 0; o <= OPERANDS; o++) at[o] = (column + j < extent ? here[o] : after[o]) + (OFFSET)j * a.strides[o][0];
      OneElement l;
      LOAD_ELEMENT(l, a, at)
      a.y[element + j] = put<Y>(VALUE(l, 0));
    }
    return;
  }
  FlatPack l;
  LOAD_DENSE(l, a, element)
#pragma unroll
  for (int j = 0; j < V; j++) {
    OFFSET at[OPERANDS + 1];
#pragma unroll
    for (int o = 0; o <= OPERANDS; o++) at[o] = (column + j < extent ? here[o] : after[o]) + (OFFSET)j * a.strides[o][0];
    LOAD_LOOSE(l, a, at, j)
  }
  Pack<Y, V> made;
#pragma unroll
  for (int j = 0; j < V; j++) made.at[j] = put<Y>(VALUE(l, j));
  *(Pack<Y, V>*)(a.y + element) = made;
}

#else
// The offsets of a pack in the operands and the output; returns the pack's first column.
DEV u32 locate(const MapArgs& a, u32 pack, OFFSET (&at)[OPERANDS + 1]) {
  u32 rest = divide(a.by[0], pack);
  u32 column = (pack - rest * a.by[0].divisor) * V;
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
  return column;
}

KERNEL(map_rows, 256, MapArgs) {
  u32 first = blockIdx.x * (256 * a.per_thread) + threadIdx.x;
#if V > 1
  // Element by element if addresses are not aligned to packs, and in the block with the rest of a row.
  if (!(IS_PACKED(a)) || (a.columns % V != 0 && blockIdx.x == gridDim.x - 1)) {
#pragma unroll 1
    for (u32 k = 0; k < a.per_thread; k++) {
      u32 pack = first + k * 256;
      if (pack >= a.packs) return;
      OFFSET at[OPERANDS + 1];
      u32 count = min_of((u32)V, a.columns - locate(a, pack, at));
#pragma unroll 1
      for (u32 j = 0; j < count; j++) {
        OneElement l;
        LOAD_ELEMENT(l, a, at)
        a.y[at[OPERANDS]] = put<Y>(VALUE(l, 0));
#pragma unroll
        for (int o = 0; o <= OPERANDS; o++) at[o] += a.strides[o][0];
      }
    }
    return;
  }
#endif
  OnePack l[K];
  OFFSET target[K];
#pragma unroll
  for (int k = 0; k < K; k++) {
    u32 pack = first + k * 256;
    if (k < a.per_thread && pack < a.packs) {
      OFFSET at[OPERANDS + 1];
      locate(a, pack, at);
      target[k] = at[OPERANDS];
      LOAD_PACK(l[k], a, at)
    }
  }
#pragma unroll
  for (int k = 0; k < K; k++) {
    if (k < a.per_thread && first + k * 256 < a.packs) {
      Pack<Y, V> made;
#pragma unroll
      for (int j = 0; j < V; j++) made.at[j] = put<Y>(VALUE(l[k], j));
      *(Pack<Y, V>*)(a.y + target[k]) = made;
    }
  }
}
#endif
#endif
