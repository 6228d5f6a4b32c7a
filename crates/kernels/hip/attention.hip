// Attention of many rows with matrix instructions. See tiles.h for the algorithm and its settings. Q_PACKED, K_PACKED,
// V_PACKED, OUT_PACKED: 1 if eight elements of a row are read or written at once. BY_KEY: 1 if scores are computed in
// the same way for all rows of a batch, so that the mask of a key is read once for all rows of a lane.

// The end of the keys that all of `count` rows of a batch see, and of those that any of them sees.
struct Ends { u32 all, any; };
DEV Ends ends_of(const AttentionArgs& a, u32 batch, u32 first, u32 count) {
  const u32 index = (batch * a.rows + first) % a.axis[2], last = index + count - 1;
  // Heads that share keys are stacked as rows: each starts again at its first row.
  if (last >= a.axis[2]) return {end_of(a, 0), end_of(a, a.axis[2] - 1)};
  return {end_of(a, index), end_of(a, last)};
}

KERNEL(attention, THREADS, AttentionArgs) {
  SHARED(Eight, k_tile, KEY_CHUNKS);
  SHARED(Eight, v_tile, VALUE_PLACE);
  SHARED(RowSpot, spots, BLOCK_ROWS);
  u32 batch = blockIdx.x / a.groups, group = blockIdx.x - batch * a.groups;
  if (end_of(a, 0) < a.total) {
    // The last rows see the most keys, so those of all batches come first.
    const u32 behind = blockIdx.x / a.batches;
    batch = blockIdx.x - behind * a.batches;
    group = a.groups - 1 - behind;
  }
  const u32 first = group * BLOCK_ROWS;
  for (u32 row = threadIdx.x; row < BLOCK_ROWS; row += THREADS)
    spots[row] = row_spot(a, batch, min_of(first + row, a.rows - 1));
  const T* q = a.q + batch_at(a, batch, a.q_outer, a.q_batch);
  const Rows<K_PACKED> k = {a.k + batch_at(a, batch, a.k_outer, a.k_batch), a.k_key, a.k_at, a.total, a.size};
  const Rows<V_PACKED> v = {a.v + batch_at(a, batch, a.v_outer, a.v_batch), a.v_key, a.v_at, a.total, a.width};
  // Rows past the end repeat the last one.
  auto query = [&](u32 row) {
    return Rows<Q_PACKED>{q + (i64)min_of(first + row, a.rows - 1) * a.q_row, 0, a.q_at, 1, a.size};
  };
  auto score_at = [&](f32 product, u32 row, u32 key) {
    // Branch-free: keys past the end repeat the last one.
    f32 value = score(a, PLAIN ? product : product * a.alpha, spots[BY_KEY ? 0 : row], min_of(key, a.total - 1));
    return key < a.total ? value : -INFINITY_OF(f32);
  };
  const Ends ends = ends_of(a, batch, first, min_of((u32)BLOCK_ROWS, a.rows - first));
  const Seen seen = {0, ends.any, 0, ends.all};
  Attended s;
  attend(s, (u16*)k_tile, (u16*)v_tile, query, k, v, seen, PLAIN ? a.alpha * LOG2_E : LOG2_E, score_at);

#pragma unroll
  for (int f = 0; f < QUERIES; f++)
#pragma unroll
    for (int r = 0; r < CHAIN_ROWS; r++) {
      const u32 row = row_of(f, r);
      if (first + row >= a.rows) continue;
      put_row<OUT_PACKED>(s, f, r, a.out + spots[row].out, a.out_at, a.width, factor_of(a, s.sum[f][r]));
    }
}
