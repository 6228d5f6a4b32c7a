// Keeps the newest rows of a cache, for keys and values: row r of an output is row start + r of its source, and zeros
// after the source's end.
//
// T: any type of the same width as an element. I: i32 or i64. V: elements moved at once, if the elements of rows are
// contiguous and a multiple of it; else 1. blockIdx.z is 0 for keys and 1 for values. blockIdx.y counts the heads of all
// batches. A batch whose start is out of range is left unchanged. A head has fewer than 2^31 packs.
struct RetainArgs {
  const I* starts;
  const T* from[2];
  T* out[2];
  u32* fault;
  i64 starts_step;
  i64 from_axis[2][4];  // strides of batch, head, row, element
  u32 packs[2];         // of a row
  u32 batches, heads, rows, total;
};

typedef Pack<T, V> Some;

KERNEL(retain, 256, RetainArgs) {
  const u32 part = blockIdx.z, packs = a.packs[part], tasks = a.total * packs;
  const i64* axis = a.from_axis[part];
  for (u32 number = blockIdx.y; number < a.batches * a.heads; number += gridDim.y) {
    const u32 batch = number / a.heads, head = number - batch * a.heads;
    const i64 start = (i64)a.starts[(i64)batch * a.starts_step];
    if (start < 0 || start > (i64)a.rows) {
      if (threadIdx.x == 0) report_fault(a.fault, 1);
      continue;
    }
    const u32 kept = a.rows - (u32)start;
    const T* from = a.from[part] + (i64)batch * axis[0] + (i64)head * axis[1] + start * axis[2];
    T* out = a.out[part] + (i64)number * tasks * V;
#pragma unroll 4
    for (u32 task = blockIdx.x * 256 + threadIdx.x; task < tasks; task += gridDim.x * 256) {
      const u32 row = task / packs, at = (task - row * packs) * V;
      Some value = {};
      if (row < kept) value = *(const Some*)(from + (i64)row * axis[2] + (i64)at * axis[3]);
      *(Some*)(out + (i64)task * V) = value;
    }
  }
}
