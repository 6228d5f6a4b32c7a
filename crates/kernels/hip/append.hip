// New rows behind those of a cache, for keys and values alike: row p + t of an output is row t of what is new, rows before p
// are the past's, and rows behind are zeros. If the output is the past itself, only the new rows are written.
//
// T: a type as wide as an element. I: i32 or i64. V: elements moved as one: of rows whose elements are neighbours
// and multiples of it, else 1.
// blockIdx.z is 0 for keys and 1 for values, blockIdx.y counts heads of all batches. A batch whose rows do not fit stays as
// it was. Fewer than 2^31 packs in a head.
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
};

typedef Pack<T, V> Some;

KERNEL(append, 256, AppendArgs) {
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
      else if (row - before < a.rows)
        value = *(const Some*)(fresh + (i64)(row - before) * fresh_axis[2] + (i64)at * fresh_axis[3]);
      *(Some*)(out + (i64)row * packs * V + at) = value;
    }
  }
}
