// Normalisation over the last axes: y[r, c] = (x[r, c] - mean) / sqrt(mean square of the differences + epsilon), then
// times scale[c] and plus bias[c] if present. RMS norm does not subtract the mean. A team of threads handles a row.
//
// HELD: packs of a row that a thread holds in registers, so that x is read once; or 0: rows of any length, and x is
// read three times, mostly from cache. VEC: columns per pack; they are contiguous in all views. FLAT: all columns are
// contiguous. T, TY, TS, TB: the stored types of x, y, scale and bias. Below 2^31 rows and columns; strides are in
// elements.
struct NormArgs {
  const T* x;
  TY* y;
  const TS* scale;  // or NULL
  const TB* bias;   // or NULL
  i64 x_rows[AXES], y_rows[AXES];
  i64 x_columns[AXES], y_columns[AXES], scale_columns[AXES], bias_columns[AXES];
  i64 count;  // columns
  Axes rows;
  Axes columns;  // packs of them
  u32 row_count, packs;
  u32 lanes;
  f32 epsilon;
  u32 centre;
  u32 round;  // to x's type, before scaling
};

typedef COMPUTE(T) C;

// The offset of a pack of columns. FLAT: all columns are contiguous in every view.
#if FLAT
#define PACK_AT(at, strides) ((at) * VEC)
#else
#define PACK_AT(at, strides) offset_at(at, a.columns, strides)
#endif
typedef Pack<T, VEC> P;
DEV f32 inverse_root(f32 v) { return rsqrtf(v); }
DEV f64 inverse_root(f64 v) { return 1 / sqrt(v); }

// Runs `what` for each of the team's packs of a row; `pack` is the pack and `at` its number.
#if HELD
#define EACH_PACK(what)                                                                                                \
  _Pragma("unroll") for (u32 h = 0; h < HELD; h++) {                                                                   \
    u32 at = lane + h * lanes;                                                                                         \
    P& pack = held.packs[h];                                                                                               \
    if (at < packs) { what }                                                                                           \
  }
#else
#define EACH_PACK(what)                                                                                                \
  for (u32 at = lane; at < packs; at += lanes) {                                                                       \
    P pack = *(const P*)(x + PACK_AT(at, a.x_columns));                                                                \
    what                                                                                                               \
  }
#endif

DEV void store_pack(const NormArgs& a, TY* y, u32 at, const P& x, C mean, C factor) {
  C made[VEC];
#pragma unroll
  for (int v = 0; v < VEC; v++) made[v] = (get(x.at[v]) - mean) * factor;
  if (a.round)
#pragma unroll
    for (int v = 0; v < VEC; v++) made[v] = get(put<T>(made[v]));
  if (a.scale) {
    Pack<TS, VEC> scale = *(const Pack<TS, VEC>*)(a.scale + PACK_AT(at, a.scale_columns));
#pragma unroll
    for (int v = 0; v < VEC; v++) made[v] *= (C)get(scale.at[v]);
  }
  if (a.bias) {
    Pack<TB, VEC> bias = *(const Pack<TB, VEC>*)(a.bias + PACK_AT(at, a.bias_columns));
#pragma unroll
    for (int v = 0; v < VEC; v++) made[v] += (C)get(bias.at[v]);
  }
  Pack<TY, VEC> pack;
#pragma unroll
  for (int v = 0; v < VEC; v++) pack.at[v] = put<TY>(made[v]);
  *(Pack<TY, VEC>*)(y + PACK_AT(at, a.y_columns)) = pack;
}

#if HELD
// The part of a row that a thread needs. AHEAD: it is loaded while the previous row is processed, because teams that
// wait at barriers issue no loads.
struct Row {
  P packs[HELD];
  T first;
};
DEV void load_row(const NormArgs& a, u32 row, u32 lane, Row& to) {
  if (row >= a.row_count) return;
  const T* x = a.x + offset_at(row, a.rows, a.x_rows);
  to.first = *x;
#pragma unroll
  for (u32 h = 0; h < HELD; h++) {
    u32 at = lane + h * a.lanes;
    if (at < a.packs) to.packs[h] = *(const P*)(x + PACK_AT(at, a.x_columns));
  }
}
#endif

KERNEL(normalise, 256, NormArgs) {
  SHARED(C, lds, 256);
  u32 lanes = a.lanes, lane = LANE(lanes), teams = 256 / lanes, blocks = (a.row_count + teams - 1) / teams;
  u32 turn = 0;
  C share = 1 / (C)a.count;
#if AHEAD
  Row next;
  load_row(a, blockIdx.x * teams + TEAM(lanes), lane, next);
#endif
  for (u32 block = blockIdx.x; block < blocks; block += gridDim.x) {
    u32 row = block * teams + TEAM(lanes);
    u32 packs = row < a.row_count ? a.packs : 0;
    i64 x_at, y_at;
    offsets_at(packs ? row : 0, a.rows, a.x_rows, a.y_rows, x_at, y_at);
    const T* x = a.x + x_at;
    TY* y = a.y + y_at;
    C mean = 0, sum = 0;
#if HELD
    Row held;
#if AHEAD
    held = next;
    load_row(a, row + gridDim.x * teams, lane, next);
#else
    load_row(a, row, lane, held);
#endif
    T first = held.first;
#else
    T first = *x;
#endif
    // Subtracting a pivot first preserves precision if all elements are far from zero.
    C pivot = a.centre && packs ? get(first) : 0;
    if (a.centre) {
      EACH_PACK(_Pragma("unroll") for (int v = 0; v < VEC; v++) sum += get(pack.at[v]) - pivot;)
      mean = pivot + team_all<Sum>(sum, lanes, lds, turn) * share;
      sum = 0;
    }
    EACH_PACK(_Pragma("unroll") for (int v = 0; v < VEC; v++) {
      C left = get(pack.at[v]) - mean;
      sum += left * left;
    })
    sum = team_all<Sum>(sum, lanes, lds, turn);
    C factor = inverse_root(sum * share + (C)a.epsilon);
    EACH_PACK(store_pack(a, y, at, pack, mean, factor);)
  }
}
