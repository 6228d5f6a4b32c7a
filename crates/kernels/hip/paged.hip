// Caches in pages. PLACES: the place of each token (see graph::paged): position, slot, sequence, and the number of keys
// up to the last one that it sees. Otherwise: writes keys and values of tokens to their slots; if the output is not the
// past itself, the past is copied first, by a launch of its own (COPY).
//
// All indices are i32. A table entry, a length or a slot out of range is a fault; such a token is not written.
#if PLACES
struct PlacesArgs {
  const i32* starts;
  const i32* lengths;
  const i32* table;
  const i32* slots;  // may be NULL
  i32* out;          // [4, tokens]
  u32* fault;
  i64 starts_step, lengths_step, table_row, table_step, slots_step;
  u32 tokens, sequences, most, block, blocks, causal;
};

KERNEL(paged_places, 256, PlacesArgs) {
  const u32 token = blockIdx.x * 256 + threadIdx.x;
  if (token >= a.tokens) return;
  i32 position = 0, slot = -1, sequence = 0, end = 0;
  // The last sequence that starts at the token or before.
  u32 low = 0, high = a.sequences;
  while (low < high) {
    const u32 middle = (low + high) / 2;
    if (a.starts[(i64)middle * a.starts_step] <= (i32)token) low = middle + 1;
    else high = middle;
  }
  if (low > 0 && (i32)token < a.starts[(i64)low * a.starts_step]) {
    const u32 own = low - 1;
    const i32 first = max_of(0, a.starts[(i64)own * a.starts_step]), last = a.starts[(i64)low * a.starts_step];
    const i64 before = a.lengths[(i64)own * a.lengths_step], at = before + (i64)(token - (u32)first);
    const i64 page = at / a.block;
    i64 entry = -1;
    if (before >= 0 && page < (i64)a.most) entry = a.table[(i64)own * a.table_row + page * a.table_step];
    if (entry < 0 || entry >= (i64)a.blocks) {
      report_fault(a.fault, 1);
    } else {
      position = (i32)at;
      slot = a.slots ? a.slots[(i64)token * a.slots_step] : (i32)(entry * a.block + at % a.block);
      sequence = (i32)own;
      end = (i32)(a.causal ? at + 1 : before + min_of((i64)last, (i64)a.tokens) - first);
    }
  }
  a.out[token] = position;
  a.out[a.tokens + token] = slot;
  a.out[2 * a.tokens + token] = sequence;
  a.out[3 * a.tokens + token] = end;
}
#else
// T: any type of the same width as an element. V: elements moved at once, if the elements of rows are contiguous and a
// multiple of it; else 1. blockIdx.y is 0 for keys and 1 for values. Fewer than 2^31 packs of new keys.
struct PagedAppendArgs {
  const i32* places;  // [4, tokens]
  const T* fresh[2];
  const T* past[2];
  T* out[2];
  u32* fault;
  i64 fresh_axis[2][3];  // strides of token, head, element
  u64 packs[2];          // of a whole cache
  u32 head_packs[2];
  u32 tokens, heads, slots;
};

typedef Pack<T, V> Some;

KERNEL(paged_append, 256, PagedAppendArgs) {
  const u32 part = blockIdx.y;
#if COPY
  if ((const T*)a.out[part] == a.past[part]) return;
  for (u64 at = (u64)blockIdx.x * 256 + threadIdx.x; at < a.packs[part]; at += (u64)gridDim.x * 256)
    *(Some*)(a.out[part] + at * V) = *(const Some*)(a.past[part] + at * V);
#else
  const u32 packs = a.head_packs[part], tasks = a.tokens * a.heads * packs;
  const i64* axis = a.fresh_axis[part];
  for (u32 task = blockIdx.x * 256 + threadIdx.x; task < tasks; task += gridDim.x * 256) {
    const u32 rest = task / packs, at = (task - rest * packs) * V;
    const u32 token = rest / a.heads, head = rest - token * a.heads;
    const i32 slot = a.places[a.tokens + token];
    if (slot < 0) continue;
    if ((u32)slot >= a.slots) {
      report_fault(a.fault, 1);
      continue;
    }
    const T* from = a.fresh[part] + (i64)token * axis[0] + (i64)head * axis[1] + (i64)at * axis[2];
    *(Some*)(a.out[part] + (((i64)slot * a.heads + head) * packs * V + at)) = *(const Some*)from;
  }
#endif
}
#endif
