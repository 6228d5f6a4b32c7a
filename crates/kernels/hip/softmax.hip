// Softmax or its logarithm along the last axis: y[r, c] = exp(x[r, c] - m) / s, where m is the row's largest element
// and s the sum of exp(x - m); the logarithm is x - m - log s. A team of threads handles a row.
//
// HELD: packs of a row that a thread holds in registers, so that x is read once; or 0: rows of any length, and x is
// read twice, the second time from cache. VEC: columns per pack; they are contiguous. T, TY: the stored types. LOG: 1
// for the logarithm. FAST: 1 if x and y are halves. Below 2^31 rows and columns; strides are in elements.
struct SoftmaxArgs {
  const T* x;
  TY* y;
  i64 x_rows[AXES], y_rows[AXES];
  i64 x_step, y_step;  // stride between packs if VEC is 1; otherwise packs are contiguous
  Axes rows;
  u32 row_count;
  u32 packs;  // of a row
  u32 lanes;
  u32 columns;  // elements of a row
};

// The offset of a pack.
#if VEC > 1
#define PACK_AT(at, step) ((at) * VEC)
#else
#define PACK_AT(at, step) ((i64)(at) * (step))
#endif

// exp(v). For results in half precision, the device's own power of two is accurate enough, and takes a few instructions
// less.
template <class C> DEV C power_of(C v) { return exp_of(v); }
#if FAST
DEV f32 power_of(f32 v) { return exp2_near(v * 1.44269504f); }
#endif

// A shift of minus infinity would turn the whole row into NaN.
template <class C> DEV C shift_of(C largest) { return largest == -INFINITY_OF(C) ? 0 : largest; }

#if RAGGED
// Rows that are contiguous in x and y but do not all start at a multiple of a pack: see ragged.h. HELD is not 0. LANES:
// the threads of a team, as a constant, because dividing by a variable would cost as much as the elements of a pack.
KERNEL(softmax_ragged, 256, SoftmaxArgs) {
  typedef COMPUTE(T) C;
  SHARED(C, lds, 256);
  const u32 lanes = LANES, lane = LANE(lanes), teams = 256 / lanes, blocks = (a.row_count + teams - 1) / teams;
  u32 turn = 0;
  for (u32 block = blockIdx.x; block < blocks; block += gridDim.x) {
    const RaggedRow row = ragged_row(block * teams + TEAM(lanes), a.row_count, a.columns);
    C values[HELD * VEC];
    C top = -INFINITY_OF(C), sum = 0;
    load_row<HELD>(row, a.x, lane * VEC, lanes * VEC, top, values);
#pragma unroll
    for (int i = 0; i < HELD * VEC; i++) top = Largest::of(top, values[i]);
    C shift = shift_of(team_all<Largest>(top, lanes, lds, turn));
#pragma unroll
    for (int i = 0; i < HELD * VEC; i++) {
      C power = power_of(values[i] - shift);
      sum += power;
      values[i] = LOG ? values[i] - shift : power;
    }
    sum = team_all<Sum>(sum, lanes, lds, turn);
    C rest = LOG ? log_of(sum) : 1 / sum;
#pragma unroll
    for (u32 h = 0; h < HELD; h++) {
      RowPack pack;
#pragma unroll
      for (int v = 0; v < VEC; v++) pack.at[v] = put<T>(LOG ? values[h * VEC + v] - rest : values[h * VEC + v] * rest);
      store_pack(row, a.y, (lane + h * lanes) * VEC, pack);
    }
  }
}
#else
typedef Pack<T, VEC> P;

#if HELD
// A thread's packs of a row. AHEAD: they are loaded while the previous row is processed, because teams that wait at
// barriers issue no loads.
DEV void load_row(const SoftmaxArgs& a, u32 row, u32 lane, P (&held)[HELD]) {
  if (row >= a.row_count) return;
  const T* x = a.x + offset_at(row, a.rows, a.x_rows);
#pragma unroll
  for (u32 h = 0; h < HELD; h++) {
    u32 at = lane + h * a.lanes;
    if (at < a.packs) held[h] = *(const P*)(x + PACK_AT(at, a.x_step));
  }
}
#endif

KERNEL(softmax, 256, SoftmaxArgs) {
  typedef COMPUTE(T) C;
  typedef Pack<TY, VEC> Q;
  SHARED(C, lds, 256);
  u32 lanes = a.lanes, lane = LANE(lanes), teams = 256 / lanes, blocks = (a.row_count + teams - 1) / teams;
  u32 turn = 0;
#if AHEAD
  P held[HELD];
  load_row(a, blockIdx.x * teams + TEAM(lanes), lane, held);
#endif
  for (u32 block = blockIdx.x; block < blocks; block += gridDim.x) {
    u32 row = block * teams + TEAM(lanes);
    u32 packs = row < a.row_count ? a.packs : 0;
    i64 x_at, y_at;
    offsets_at(packs ? row : 0, a.rows, a.x_rows, a.y_rows, x_at, y_at);
    const T* x = a.x + x_at;
    TY* y = a.y + y_at;
#if HELD
    C values[HELD * VEC];
    C top = -INFINITY_OF(C), sum = 0;
#if !AHEAD
    P held[HELD];
    load_row(a, row, lane, held);
#endif
#pragma unroll
    for (u32 h = 0; h < HELD; h++)
#pragma unroll
      for (int v = 0; v < VEC; v++)
        values[h * VEC + v] = lane + h * lanes < packs ? get(held[h].at[v]) : -INFINITY_OF(C);
#if AHEAD
    load_row(a, row + gridDim.x * teams, lane, held);
#endif
#pragma unroll
    for (int i = 0; i < HELD * VEC; i++) top = Largest::of(top, values[i]);
    C shift = shift_of(team_all<Largest>(top, lanes, lds, turn));
#pragma unroll
    for (int i = 0; i < HELD * VEC; i++) {
      C power = power_of(values[i] - shift);
      sum += power;
      values[i] = LOG ? values[i] - shift : power;
    }
    sum = team_all<Sum>(sum, lanes, lds, turn);
    C rest = LOG ? log_of(sum) : 1 / sum;
#pragma unroll
    for (u32 h = 0; h < HELD; h++) {
      u32 at = lane + h * lanes;
      Q pack;
#pragma unroll
      for (int v = 0; v < VEC; v++) pack.at[v] = put<TY>(LOG ? values[h * VEC + v] - rest : values[h * VEC + v] * rest);
      if (at < packs) *(Q*)(y + PACK_AT(at, a.y_step)) = pack;
    }
#else
    C top = -INFINITY_OF(C), sum = 0;
    for (u32 at = lane; at < packs; at += lanes) {
      P pack = *(const P*)(x + PACK_AT(at, a.x_step));
      C larger = top;
#pragma unroll
      for (int v = 0; v < VEC; v++) larger = Largest::of(larger, (C)get(pack.at[v]));
      // The sum so far used a smaller shift.
      if (larger != top) sum *= power_of(top - larger), top = larger;
      C shift = shift_of(top);
#pragma unroll
      for (int v = 0; v < VEC; v++) sum += power_of(get(pack.at[v]) - shift);
    }
    C row_top = team_all<Largest>(top, lanes, lds, turn);
    C shift = shift_of(row_top);
    if (row_top != top) sum *= power_of(top - row_top);
    sum = team_all<Sum>(sum, lanes, lds, turn);
    C rest = LOG ? log_of(sum) : 1 / sum;
    for (u32 at = lane; at < packs; at += lanes) {
      P pack = *(const P*)(x + PACK_AT(at, a.x_step));
      Q made;
#pragma unroll
      for (int v = 0; v < VEC; v++) {
        C value = get(pack.at[v]) - shift;
        made.at[v] = put<TY>(LOG ? value - rest : power_of(value) * rest);
      }
      *(Q*)(y + PACK_AT(at, a.y_step)) = made;
    }
#endif
  }
}
#endif
