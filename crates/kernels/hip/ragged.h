// Contiguous rows of `columns` elements that do not all start at a multiple of a pack of VEC. The packs of a row are
// those that overlap it; the first and the last one may also overlap its neighbours. Positions count from the start of
// the first pack. All rows together have at least one pack.
#if RAGGED
typedef Pack<T, VEC> RowPack;
struct RaggedRow {
  u64 start;      // start of the first pack, in elements from the first row
  u32 skip, end;  // elements of the previous row in it, and the end of the row; 0 if there is no row
  i32 last;       // the row's last pack; excludes the very last one if that is incomplete
};

// Rows from `rows` on are empty.
DEV RaggedRow ragged_row(u32 row, u32 rows, u32 columns) {
  RaggedRow r;
  const u64 all = (u64)rows * columns, from = row < rows ? (u64)row * columns : 0;
  r.skip = (u32)from % VEC;
  r.start = from - r.skip;
  r.end = row < rows ? r.skip + columns : 0;
  const i32 last = (i32)((r.skip + columns - 1) / VEC * VEC);
  r.last = r.start + last + VEC <= all ? last : last - VEC;
  return r;
}
// The part of a pack that belongs to a row.
struct Share { u32 first, end; };
DEV Share share_of(const RaggedRow& r, u32 at) {
  Share s;
  s.first = at ? 0 : r.skip;
  s.end = at < r.end ? min_of(r.end - at, (u32)VEC) : 0;
  return s;
}
DEV bool is_in(u32 v, const Share& s) { return (v >= s.first) & (v < s.end); }
DEV bool is_whole(const RaggedRow& r, u32 at) { return (at >= r.skip) & (at + VEC <= r.end); }

// A row's elements in COUNT packs with a stride of `step`, and `other` for elements of other rows.
template <int COUNT, class C>
DEV void load_row(const RaggedRow& r, const T* x, u32 first, u32 step, C other, C (&values)[COUNT * VEC]) {
  RowPack packs[COUNT], tail = {};
  const u32 behind = (u32)(r.last + VEC);
  x += r.start;
  // The very last elements may not fill a pack: they are read one by one, before all packs.
  if (behind < r.end)
#pragma unroll
    for (u32 v = 0; v < VEC; v++) tail.at[v] = x[min_of(behind + v, r.end - 1)];
#pragma unroll
  for (int n = 0; n < COUNT; n++) packs[n] = *(const RowPack*)(x + min_of((i32)(first + n * step), r.last));
#pragma unroll
  for (int n = 0; n < COUNT; n++) {
    const u32 at = first + n * step;
#pragma unroll
    for (u32 v = 0; v < VEC; v++) values[n * VEC + v] = get(packs[n].at[v]);
    // Few packs are shared with other rows.
    if (!is_whole(r, at)) {
      const Share share = share_of(r, at);
#pragma unroll
      for (u32 v = 0; v < VEC; v++) {
        const C value = at == behind ? get(tail.at[v]) : values[n * VEC + v];
        values[n * VEC + v] = is_in(v, share) ? value : other;
      }
    }
  }
}

// Stores the elements of a pack that belong to the row.
DEV void store_pack(const RaggedRow& r, T* y, u32 at, const RowPack& pack) {
  y += r.start + at;
  if (is_whole(r, at)) {
    store_whole((RowPack*)y, pack);
    return;
  }
  const Share share = share_of(r, at);
#pragma unroll
  for (u32 v = 0; v < VEC; v++)
    if (is_in(v, share)) y[v] = pack.at[v];
}

// Loads `count` elements, at least a pack, starting at a pack, into LDS: each thread of a block loads BATCH packs at a
// time.
template <int BATCH> DEV void load_span(const T* x, u32 count, T* span) {
  const u32 whole = count / VEC * VEC;
  for (u32 first = threadIdx.x * VEC; first < whole; first += BATCH * 256 * VEC) {
    RowPack packs[BATCH];
#pragma unroll
    for (u32 b = 0; b < BATCH; b++) packs[b] = *(const RowPack*)(x + min_of(first + b * 256 * VEC, whole - VEC));
#pragma unroll
    for (u32 b = 0; b < BATCH; b++)
      if (first + b * 256 * VEC < whole) *(RowPack*)(span + first + b * 256 * VEC) = packs[b];
  }
  if (threadIdx.x < count - whole) span[whole + threadIdx.x] = x[whole + threadIdx.x];
}
#endif
