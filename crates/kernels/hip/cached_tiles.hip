// Attention of many rows over a cache with matrix instructions. See tiles.h for the algorithm and its settings. PACKED:
// eight elements of a row are read and written at once.
struct RowSpot {
  Range seen;
  i64 bias;
};

// Holds values, or one number for each row and part.
#define MOST_TILE_PARTS 16
#define PLACE (VALUE_PLACE > BLOCK_ROWS * MOST_TILE_PARTS / 4 ? VALUE_PLACE : BLOCK_ROWS * MOST_TILE_PARTS / 4)

KERNEL(cached_tiles, THREADS, CachedArgs) {
  SHARED(Eight, k_tile, KEY_CHUNKS);
  SHARED(Eight, v_tile, PLACE);
  SHARED(RowSpot, spots, BLOCK_ROWS);
  SHARED(u32, is_last, 1);
  const Task t = task_of<KEYS>(a);
  if (blockIdx.y >= t.parts) return;
  for (u32 row = threadIdx.x; row < BLOCK_ROWS; row += THREADS) {
    // Rows past the end repeat the last one.
    u32 at = t.first + min_of(row, t.count - 1);
    RowSpot spot;
    spot.seen = seen_by(a, t.before, token_of(a, at));
    spot.seen.end = min_of(spot.seen.end, t.keys.end);
    spot.bias = bias_at(a, t, at);
    spots[row] = spot;
  }
  const Rows<PACKED> k = {a.k + (i64)t.batch * a.k_batch + (i64)t.head * a.k_head, a.k_key, 1, t.keys.end, a.size};
  const Rows<PACKED> v = {a.v + (i64)t.batch * a.v_batch + (i64)t.head * a.v_head, a.v_key, 1, t.keys.end, a.width};
  auto query = [&](u32 row) {
    return Rows<PACKED>{a.q + query_at(a, t, t.first + min_of(row, t.count - 1)), 0, 1, 1, a.size};
  };
  auto score = [&](f32 product, u32 row, u32 key) {
    const RowSpot spot = spots[row];
    // Branch-free: keys past the end repeat the last one.
    f32 value = PLAIN ? product : score_of(a, product * factor_of(a), spot.bias, min_of(key, t.keys.end - 1));
    const bool is_seen = (key >= spot.seen.start) & (key < spot.seen.end);
    return is_seen ? value : -INFINITY_OF(f32);
  };
  // The first token sees the fewest keys at the end, the last token the fewest at the start.
  const Seen seen = {t.keys.start, t.keys.end, seen_by(a, t.before, token_of(a, t.first + t.count - 1)).start,
                     min_of(t.keys.end, seen_by(a, t.before, token_of(a, t.first)).end)};
  const f32 unit = PLAIN ? factor_of(a) : 1.0f;
  Attended s;
  attend(s, (u16*)k_tile, (u16*)v_tile, query, k, v, seen, unit, score);

#pragma unroll
  for (int f = 0; f < QUERIES; f++)
#pragma unroll
    for (int r = 0; r < CHAIN_ROWS; r++) {
      const u32 row = row_of(f, r);
      if (row >= t.count) continue;
      f32* partial = partial_at(a, blockIdx.y, row);
      const f32 top = s.top[f][r] * unit;
      if (t.parts == 1) {
        const f32 share = share_of(a, t, t.first + row, top, s.sum[f][r]);
        put_row<PACKED>(s, f, r, a.out + out_at(a, t, t.first + row), 1, a.width, share);
        continue;
      }
      put_row<false>(s, f, r, partial, 1, a.width, 1.0f);
      if (part_of() == 0 && chain_column(threadIdx.x % WAVE, 0) == 0) {
        partial[a.width] = top;
        partial[a.width + 1] = s.sum[f][r];
      }
    }
  if (t.parts > 1) merge<THREADS>(a, t, (f32*)v_tile, is_last);
}
