// Appends new rows to a cache, for keys and values: row p + t of an output is row t of the new ones, rows before p come
// from the past, and rows after the new ones are zeros. If the output is the past itself, only the new rows are
// written. With TURN, new keys are rotated by the angles of their tokens' positions, and so are queries, which have
// their own output.
//
// T: the element type; without TURN, any type of the same width. I, P: the types of lengths and positions, i32 or i64.
// V: elements moved at once, if the elements of rows are contiguous and a multiple of it; else 1. BEHIND, INTERLEAVED:
// as in turn.h. blockIdx.z is 0 for keys, 1 for values and 2 for queries. blockIdx.y counts the heads of all batches;
// the heads of queries share all blocks of their z. A batch whose rows do not fit is left unchanged. A head has fewer
// than 2^31 packs, and so do all queries together.
struct AppendArgs {
  const I* lengths;
  const T* fresh[2];
  const T* past[2];
  T* out[2];
  u32* fault;
  i64 lengths_step, shift;
  i64 fresh_axis[2][4], past_axis[2][4];  // strides of batch, head, row, element
  u32 packs[2];                           // of a row
  u32 batches, heads, rows, held, total;
  u32 same_shape;  // of past and output
#if TURN
  const T* queries;
  const T* cosines;
  const T* sines;
  const P* positions;
  T* turned;
  i64 query_axis[4], turned_axis[4];
  i64 cosine_axis[2], sine_axis[2], position_axis[2];
  i64 position_shift;
  i64 count;  // of positions
  u32 query_packs, query_heads, half;
#endif
};

typedef Pack<T, V> Some;

#if TURN
// The row of angles for a token; negative if there is none.
DEV i64 position_of(const AppendArgs& a, u32 batch, u32 row) {
  const i64 at = (i64)batch * a.position_axis[0] + (BEHIND ? 0 : (i64)row * a.position_axis[1]);
  i64 position = position_from((i64)a.positions[at], a.position_shift, row, a.count);
  if (position < 0) report_fault(a.fault, 1);
  return position;
}

// Rotated elements of a head, from `at` on.
DEV Some turned_at(const AppendArgs& a, const T* head, i64 step, u32 at, i64 position) {
  const Angles angles = {a.cosines + position * a.cosine_axis[0], a.sines + position * a.sine_axis[0], a.cosine_axis[1],
                         a.sine_axis[1], a.half};
  return turned_pack<V>(head, step, at, angles);
}

DEV void turn_queries(const AppendArgs& a) {
  const u32 threads = gridDim.x * gridDim.y * 256, tasks = a.batches * a.query_heads * a.rows * a.query_packs;
  for (u32 task = (blockIdx.y * gridDim.x + blockIdx.x) * 256 + threadIdx.x; task < tasks; task += threads) {
    u32 rest = task / a.query_packs, at = (task - rest * a.query_packs) * V;
    u32 token = rest / a.query_heads, head = rest - token * a.query_heads;
    u32 batch = token / a.rows, row = token - batch * a.rows;
    i64 position = position_of(a, batch, row);
    if (position < 0) continue;
    const T* from = a.queries + (i64)batch * a.query_axis[0] + (i64)head * a.query_axis[1] + (i64)row * a.query_axis[2];
    T* to = a.turned + (i64)batch * a.turned_axis[0] + (i64)head * a.turned_axis[1] + (i64)row * a.turned_axis[2];
    *(Some*)(to + (i64)at * a.turned_axis[3]) = turned_at(a, from, a.query_axis[3], at, position);
  }
}
#endif

KERNEL(append, 256, AppendArgs) {
#if TURN
  if (blockIdx.z == 2) {
    turn_queries(a);
    return;
  }
#endif
  const u32 part = blockIdx.z, packs = a.packs[part];
  const i64* fresh_axis = a.fresh_axis[part];
  const i64* past_axis = a.past_axis[part];
  const bool in_place = a.same_shape && (const T*)a.out[part] == a.past[part];
  const u32 tasks = (in_place ? a.rows : a.total) * packs;
  for (u32 number = blockIdx.y; number < a.batches * a.heads; number += gridDim.y) {
    u32 batch = number / a.heads, head = number - batch * a.heads;
    u32 before = filled_before((i64)a.lengths[(i64)batch * a.lengths_step], a.shift);
    if (before > a.held || before > a.total || a.total - before < a.rows) {
      if (threadIdx.x == 0) report_fault(a.fault, 1);
      continue;
    }
    const T* fresh = a.fresh[part] + (i64)batch * fresh_axis[0] + (i64)head * fresh_axis[1];
    const T* past = a.past[part] + (i64)batch * past_axis[0] + (i64)head * past_axis[1];
    T* out = a.out[part] + (i64)number * a.total * packs * V;
#pragma unroll 4
    for (u32 task = blockIdx.x * 256 + threadIdx.x; task < tasks; task += gridDim.x * 256) {
      u32 row = task / packs, at = (task - row * packs) * V;
      if (in_place) row += before;
      Some value = {};
      if (row < before)
        value = *(const Some*)(past + (i64)row * past_axis[2] + (i64)at * past_axis[3]);
      else if (row - before < a.rows) {
        const T* from = fresh + (i64)(row - before) * fresh_axis[2];
#if TURN
        if (part == 0) {
          i64 position = position_of(a, batch, row - before);
          if (position < 0) continue;
          value = turned_at(a, from, fresh_axis[3], at, position);
        } else
#endif
          value = *(const Some*)(from + (i64)at * fresh_axis[3]);
      }
      *(Some*)(out + (i64)row * packs * V + at) = value;
    }
  }
}
