// The k largest or smallest elements along the last axis with their positions, best first; of equal elements, the first
// one comes first. NaN is above all numbers. Elements are converted to integers K of the same order, the best being the
// smallest.
//
// top_k_sort: rows are split into runs of `chunk` elements, a power of two; a block sorts as many runs as fit (bitonic
// sort in LDS) and keeps the best `keep` of each. top_k_merge: merges pairs of adjacent runs; each element finds its
// position by counting the elements of the other run before it. The launch that leaves one run per row writes the
// results.
//
// T: the stored type. N: its number type. K: u32 or u64. Below 2^31 rows and columns; strides are in elements.
struct TopKArgs {
  const T* x;
  T* y;
  i64* index;  // or NULL
  const K* from_keys;
  const u32* from_places;
  K* to_keys;  // NULL if the results are written
  u32* to_places;
  i64 x_rows[AXES], y_rows[AXES], index_rows[AXES];
  i64 x_step, y_step, index_step;
  Axes rows;
  u32 columns;
  u32 items;  // rows times runs
  u32 runs;   // input runs per row
  u32 chunk;  // elements per input run: of x, or those that were kept
  u32 keep;   // elements per output run
  u32 slots;  // runs that a block sorts
  u32 largest;
};
#define NOWHERE 0xffffffffu

DEV u32 rank_of(f32 v) {
  if (v != v) return ~0u;
  u32 bits = f32_bits(v + 0.0f);  // makes both zeros equal
  return bits >> 31 ? ~bits : bits | 0x80000000u;
}
#if DOUBLE
DEV u64 rank_of(f64 v) {
  if (v != v) return ~0ull;
  u64 bits = f64_bits(v + 0.0);
  return bits >> 63 ? ~bits : bits | 1ull << 63;
}
#elif WIDE
DEV u64 rank_of(i64 v) { return (u64)v ^ 1ull << 63; }
DEV u64 rank_of(u64 v) { return v; }
#else
DEV u32 rank_of(i64 v) { return (u32)v ^ 0x80000000u; }
DEV u32 rank_of(u64 v) { return (u32)v; }
#endif

DEV bool precedes(K a, u32 a_place, K b, u32 b_place) { return a < b || (a == b && a_place < b_place); }

DEV void write_out(const TopKArgs& a, u32 row, u32 at, u32 place) {
  i64 x_at, y_at;
  offsets_at(row, a.rows, a.x_rows, a.y_rows, x_at, y_at);
  a.y[y_at + (i64)at * a.y_step] = a.x[x_at + (i64)place * a.x_step];
  if (a.index) a.index[offset_at(row, a.rows, a.index_rows) + (i64)at * a.index_step] = place;
}

KERNEL(top_k_sort, 256, TopKArgs) {
  DYN_SHARED(K, keys);
  u32 room = a.slots * a.chunk;
  u32* places = (u32*)(keys + room);
  u32 blocks = (a.items + a.slots - 1) / a.slots;
  for (u32 block = blockIdx.x; block < blocks; block += gridDim.x) {
    for (u32 at = threadIdx.x; at < room; at += 256) {
      u32 item = block * a.slots + at / a.chunk, row = item / a.runs;
      u32 column = item % a.runs * a.chunk + at % a.chunk;
      bool live = item < a.items && column < a.columns;
      K key = ~(K)0;
      if (live) {
        K rank = rank_of((N)get(a.x[offset_at(row, a.rows, a.x_rows) + (i64)column * a.x_step]));
        key = a.largest ? ~rank : rank;
      }
      keys[at] = key;
      places[at] = live ? column : NOWHERE;
    }
    for (u32 size = 2; size <= a.chunk; size *= 2)
      for (u32 step = size / 2; step; step /= 2) {
        __syncthreads();
        for (u32 pair = threadIdx.x; pair < room / 2; pair += 256) {
          u32 low = 2 * pair - (pair & (step - 1)), high = low + step;
          bool ascends = (low & (a.chunk - 1) & size) == 0;
          K key = keys[low], other = keys[high];
          u32 place = places[low], other_place = places[high];
          if (precedes(other, other_place, key, place) == ascends) {
            keys[low] = other, keys[high] = key;
            places[low] = other_place, places[high] = place;
          }
        }
      }
    __syncthreads();
    for (u32 at = threadIdx.x; at < a.slots * a.keep; at += 256) {
      u32 item = block * a.slots + at / a.keep, from = at / a.keep * a.chunk + at % a.keep;
      if (item >= a.items) break;
      if (a.to_keys) {
        a.to_keys[(u64)item * a.keep + at % a.keep] = keys[from];
        a.to_places[(u64)item * a.keep + at % a.keep] = places[from];
      } else {
        write_out(a, item, at % a.keep, places[from]);
      }
    }
    __syncthreads();
  }
}

KERNEL(top_k_merge, 256, TopKArgs) {
  u64 elems = (u64)a.items * a.chunk;
  for (u64 number = (u64)blockIdx.x * 256 + threadIdx.x; number < elems; number += (u64)gridDim.x * 256) {
    u32 item = (u32)(number / a.chunk), at = (u32)(number % a.chunk);
    u32 row = item / a.runs, run = item % a.runs, other = run ^ 1;
    K key = a.from_keys[number];
    u32 place = a.from_places[number];
    u32 low = 0, high = other < a.runs ? a.chunk : 0;
    u64 others = ((u64)row * a.runs + other) * a.chunk;
    // Of equal elements, those of the first run come first: only padding is equal.
    while (low < high) {
      u32 middle = (low + high) / 2;
      K found = a.from_keys[others + middle];
      u32 found_place = a.from_places[others + middle];
      bool before = run & 1 ? !precedes(key, place, found, found_place) : precedes(found, found_place, key, place);
      if (before) low = middle + 1;
      else high = middle;
    }
    u32 to = at + low;
    if (to >= a.keep) continue;
    if (a.to_keys) {
      u64 out = ((u64)row * ((a.runs + 1) / 2) + run / 2) * a.keep + to;
      a.to_keys[out] = key;
      a.to_places[out] = place;
      // A run without a partner is padded.
      if (other >= a.runs && to + a.chunk < a.keep) {
        a.to_keys[out + a.chunk] = ~(K)0;
        a.to_places[out + a.chunk] = NOWHERE;
      }
    } else {
      write_out(a, row, to, place);
    }
  }
}
