// Normalisation over the last axes: y[r, c] = (x[r, c] - mean) / sqrt(mean square of what is left + epsilon), then times
// scale[c] and plus bias[c] where they are there. RMS norm leaves the mean alone. A team of threads makes a row.
//
// HELD: packs of a row that a thread holds in registers, which reads x once; or 0: rows of any length, x is read three
// times, mostly from cache. VEC: columns of a pack; they lie side by side in all views. T, TY, TS, TB: the stored types of
// x, y, scale and bias. Below 2^31 rows and columns; strides are in elements.
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

DEV Pack<C, VEC> load_pack(const NormArgs& a, const T* x, u32 at) {
  Pack<T, VEC> pack = *(const Pack<T, VEC>*)(x + offset_at(at, a.columns, a.x_columns));
  Pack<C, VEC> values;
#pragma unroll
  for (int v = 0; v < VEC; v++) values.at[v] = get(pack.at[v]);
  return values;
}
DEV void store_pack(const NormArgs& a, TY* y, u32 at, const C* values, C mean, C factor) {
  C made[VEC];
#pragma unroll
  for (int v = 0; v < VEC; v++) made[v] = (values[v] - mean) * factor;
  if (a.round)
#pragma unroll
    for (int v = 0; v < VEC; v++) made[v] = get(put<T>(made[v]));
  if (a.scale) {
    Pack<TS, VEC> scale = *(const Pack<TS, VEC>*)(a.scale + offset_at(at, a.columns, a.scale_columns));
#pragma unroll
    for (int v = 0; v < VEC; v++) made[v] *= (C)get(scale.at[v]);
  }
  if (a.bias) {
    Pack<TB, VEC> bias = *(const Pack<TB, VEC>*)(a.bias + offset_at(at, a.columns, a.bias_columns));
#pragma unroll
    for (int v = 0; v < VEC; v++) made[v] += (C)get(bias.at[v]);
  }
  Pack<TY, VEC> pack;
#pragma unroll
  for (int v = 0; v < VEC; v++) pack.at[v] = put<TY>(made[v]);
  *(Pack<TY, VEC>*)(y + offset_at(at, a.columns, a.y_columns)) = pack;
}

KERNEL(normalise, 256, NormArgs) {
  SHARED(C, lds, 256);
  u32 lanes = a.lanes, lane = LANE(lanes), teams = 256 / lanes, blocks = (a.row_count + teams - 1) / teams;
  for (u32 block = blockIdx.x; block < blocks; block += gridDim.x) {
    u32 row = block * teams + TEAM(lanes);
    u32 packs = row < a.row_count ? a.packs : 0;
    i64 x_at, y_at;
    offsets_at(packs ? row : 0, a.rows, a.x_rows, a.y_rows, x_at, y_at);
    const T* x = a.x + x_at;
    TY* y = a.y + y_at;
    C mean = 0, sum = 0;
    // Sums of what is left of an element keep their digits where all lie far from zero.
    C pivot = a.centre && packs ? get(*x) : 0;
#if HELD
    C values[HELD * VEC];
#pragma unroll
    for (u32 h = 0; h < HELD; h++) {
      u32 at = lane + h * lanes;
      Pack<C, VEC> pack;
      if (at < packs) pack = load_pack(a, x, at);
#pragma unroll
      for (int v = 0; v < VEC; v++) values[h * VEC + v] = at < packs ? pack.at[v] : pivot;
    }
    if (a.centre) {
#pragma unroll
      for (int i = 0; i < HELD * VEC; i++) sum += values[i] - pivot;
      mean = pivot + team_all<Sum>(sum, lanes, lds) / (C)a.count;
    }
    sum = 0;
#pragma unroll
    for (u32 h = 0; h < HELD; h++)
#pragma unroll
      for (int v = 0; v < VEC; v++) {
        C left = values[h * VEC + v] - mean;
        if (lane + h * lanes < packs) sum += left * left;
      }
#else
    if (a.centre) {
      for (u32 at = lane; at < packs; at += lanes) {
        Pack<C, VEC> pack = load_pack(a, x, at);
#pragma unroll
        for (int v = 0; v < VEC; v++) sum += pack.at[v] - pivot;
      }
      mean = pivot + team_all<Sum>(sum, lanes, lds) / (C)a.count;
    }
    sum = 0;
    for (u32 at = lane; at < packs; at += lanes) {
      Pack<C, VEC> pack = load_pack(a, x, at);
#pragma unroll
      for (int v = 0; v < VEC; v++) sum += (pack.at[v] - mean) * (pack.at[v] - mean);
    }
#endif
    sum = team_all<Sum>(sum, lanes, lds);
    C factor = 1 / sqrt_of(sum / (C)a.count + (C)a.epsilon);
#if HELD
#pragma unroll
    for (u32 h = 0; h < HELD; h++)
      if (lane + h * lanes < packs) store_pack(a, y, lane + h * lanes, values + h * VEC, mean, factor);
#else
    for (u32 at = lane; at < packs; at += lanes) {
      Pack<C, VEC> pack = load_pack(a, x, at);
      store_pack(a, y, at, pack.at, mean, factor);
    }
#endif
  }
}
