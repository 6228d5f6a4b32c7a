// One token whose key and value are not in the cache yet. Blocks rotate its queries as they read them. The blocks of
// the last part take its key and value from the product's output, rotate the key, and write both to the cache. Nothing
// reads them there before the launch has ended: blocks read only earlier keys. If the cache is not updated in place,
// `k` and `v` are the past, and blocks also copy it.
//
// P: the type of positions, i32 or i64. All rows consist of packs of V elements. A batch that has no space or no angles
// is left unchanged.
struct Newest {
  const T* key;
  const T* value;
  Angles angles;
  bool is_stored;  // this block stores it
};

DEV bool has_newest(const Task& t) { return blockIdx.y == t.parts - 1; }
// Where the newest row of a cache is.
DEV T* newest_row(const CachedArgs& a, const Task& t, T* out, u32 extent) {
  return out + (((i64)t.batch * a.shared + t.head) * a.total + t.before) * extent;
}
DEV const T* newest_value(const CachedArgs& a, const Task& t) {
  return a.new_v + (i64)t.batch * a.new_v_batch + (i64)t.head * a.new_v_head;
}

DEV Newest newest_of(const CachedArgs& a, const Task& t) {
  Newest n;
  const i64 position = position_from((i64)a.positions[(i64)t.batch * a.position_step], a.position_shift, 0, a.count);
  const bool fits = position >= 0 && t.before < a.total;
  n.key = a.new_k + (i64)t.batch * a.new_k_batch + (i64)t.head * a.new_k_head;
  n.value = newest_value(a, t);
  n.angles = {a.cosines + position * a.cosine_row, a.sines + position * a.sine_row, 1, 1, position < 0 ? 0 : a.half};
  n.is_stored = has_newest(t) && t.first == 0 && fits;
  if (!fits && threadIdx.x == 0) report_fault(a.fault, 1);
  return n;
}

// The score of the newest key.
DEV f32 newest_score(const CachedArgs& a, const Task& t, f32 product, i64 bias) {
  return score_of(a, product, bias, min_of(t.before, a.total - 1));
}

// The rows of a head in order. The newest one comes from elsewhere, and rows after it are zeros.
template <int THREADS, int N> DEV void copy_rows(const CachedArgs& a, const Task& t, const T* from, T* to, u32 extent) {
  const u32 packs = extent / N;
  const i64 first = ((i64)t.batch * a.shared + t.head) * a.total * extent;
  for (u32 at = blockIdx.y * THREADS + threadIdx.x; at < a.total * packs; at += gridDim.y * THREADS) {
    const u32 row = at / packs;
    if (row == t.before) continue;
    Pack<T, N>* place = (Pack<T, N>*)(to + first + (i64)at * N);
    if (row < t.before)
      *place = *(const Pack<T, N>*)(from + first + (i64)at * N);
    else
      *place = Pack<T, N>{};
  }
}
// Called by all blocks of a head, with or without keys.
template <int THREADS, int N> DEV void copy_past(const CachedArgs& a, const Task& t) {
  if (t.first != 0 || t.before >= a.total) return;
  if ((const T*)a.out_k != a.k) copy_rows<THREADS, N>(a, t, a.k, a.out_k, a.size);
  if ((const T*)a.out_v != a.v) copy_rows<THREADS, N>(a, t, a.v, a.out_v, a.width);
}
