// Shared by the kernels of attention over caches. If a batch's cache has p rows before the step, according to its
// length, row t sees the keys up to p + t, or all; with a window, only the last of these. Query heads share key heads:
// here, a row is one of the `rows * group` rows of a key head, token by token.
//
// T: the stored type; sums and scores are f32. I: i32 or i64. EXTRA: scores have a soft cap or a bias. The elements of
// a row are contiguous. BLOCK_ROWS: rows per block, which is blockIdx.x; blockIdx.y is its part of the keys that these
// rows see. The grid depends on extents only. Lengths are read here: blocks of parts that are not needed exit at once,
// and the last block to finish for its rows adds up what the others stored in `partial`. NEWEST: the key and value of
// the current token are not in the cache yet (newest.h). PAGED: the cache is in blocks of PAGE rows, which a table
// assigns to sequences; each token is a batch of its own, with its place in `places`.
#ifndef NEWEST
#define NEWEST 0
#endif
#ifndef PAGED
#define PAGED 0
#endif
struct CachedArgs {
  const T* q;
  const T* k;
  const T* v;
  const I* lengths;
  const T* bias;   // may be NULL
  const T* sinks;  // may be NULL
  T* out;
  f32* partial;   // [parts, blocks, BLOCK_ROWS, width + 2]: sums, the largest score, the sum of weights
  u32* counters;  // [blocks]: zero before and after
  i64 q_batch, q_head, q_row;
  i64 k_batch, k_head, k_key;
  i64 v_batch, v_head, v_key;
  i64 out_batch, out_head, out_row;
  i64 bias_batch, bias_head, bias_row, bias_key;
  i64 lengths_step, sinks_step, shift;
  f32 alpha, softcap;  // 0: no cap
  u32 causal, window;
  u32 has_sink;
  u32 shared, group, rows;
  u32 total, size, width;
  u32 groups;  // blocks per key head
  u32 parts;   // the most parts of the keys
#if NEWEST
  const T* new_k;
  const T* new_v;
  const T* cosines;
  const T* sines;
  const P* positions;
  T* out_k;
  T* out_v;
  u32* fault;
  i64 new_k_batch, new_k_head;
  i64 new_v_batch, new_v_head;
  i64 cosine_row, sine_row;
  i64 position_step, position_shift;
  i64 count;  // number of positions
  u32 half;
#endif
#if PAGED
  const i32* places;  // [4, tokens]: position, slot, sequence, number of keys
  const i32* table;
  u32* fault;
  i64 table_row, table_step;
  u32 tokens, blocks;
#endif
};

// All rows belong to one token.
#ifndef ONE
#define ONE 0
#endif
#define LOG2_E 1.44269504088896340736f

struct Range { u32 start, end; };

// The keys that a token sees.
DEV Range seen_by(const CachedArgs& a, u32 before, u32 token) {
  u32 own = before + token;
  Range r;
  r.end = min_of(a.total, a.causal ? own + 1 : before + a.rows);
  r.start = own + 1 > a.window ? min_of(r.end, own + 1 - a.window) : 0;
  return r;
}

DEV u32 token_of(const CachedArgs& a, u32 row) { return ONE ? 0 : row / a.group; }

// The work of a block.
struct Task {
  u32 batch, head;   // key head
  u32 first, count;  // rows of the key head
  u32 before;
  Range keys;  // keys of this part
  u32 parts;   // parts that these rows need
#if PAGED
  const i32* pages;  // the blocks of the sequence
#endif
};

// The rows of a block, and all keys in the cache that they see.
DEV Task rows_of(const CachedArgs& a) {
  Task t;
  // The last rows of a causal prompt see the most keys, so those of all heads come first.
  const u32 heads = gridDim.x / a.groups, behind = a.groups == 1 ? 0 : blockIdx.x / heads;
  const u32 number = blockIdx.x - behind * heads;
  t.batch = number / a.shared;
  t.head = number - t.batch * a.shared;
  t.first = (a.groups - 1 - behind) * BLOCK_ROWS;
  t.count = min_of((u32)BLOCK_ROWS, a.rows * a.group - t.first);
#if PAGED
  const i32* place = a.places + t.batch;
  t.before = (u32)place[0];
  t.pages = a.table + (i64)place[2 * (i64)a.tokens] * a.table_row;
  t.keys.end = min_of(a.total, (u32)place[3 * (i64)a.tokens]);
  t.keys.start = t.before + 1 > a.window ? min_of(t.keys.end, t.before + 1 - a.window) : 0;
  t.parts = 1;
  return t;
#else
  t.before = filled_before((i64)a.lengths[(i64)t.batch * a.lengths_step], a.shift);
  t.keys.start = seen_by(a, t.before, token_of(a, t.first)).start;
  t.keys.end = seen_by(a, t.before, token_of(a, t.first + t.count - 1)).end;
  if (NEWEST) t.keys.end = min_of(t.keys.end, t.before);
  t.parts = 1;
  return t;
#endif
}

// The row of the cache that holds a key.
DEV i64 row_of_key(const CachedArgs& a, const Task& t, u32 key) {
#if PAGED
  u32 block = (u32)t.pages[(i64)(key / PAGE) * a.table_step];
  if (block >= a.blocks) {
    // Nothing is wrong with the table of a token without keys.
    if (t.keys.end > 0) report_fault(a.fault, 1);
    block = 0;
  }
  return (i64)block * PAGE + key % PAGE;
#else
  return (i64)key;
#endif
}

// STEP: the number of keys that justifies a part.
template <int STEP> DEV Task task_of(const CachedArgs& a) {
  Task t = rows_of(a);
  const u32 start = t.keys.start, end = t.keys.end;
  u32 keys = end > start ? end - start : 0, share = ((keys + a.parts - 1) / a.parts + STEP - 1) / STEP * STEP;
  t.parts = keys > share ? (keys + share - 1) / share : 1;
  t.keys.start = min_of(end, start + blockIdx.y * share);
  t.keys.end = min_of(end, t.keys.start + share);
  return t;
}

DEV u32 head_of(const CachedArgs& a, const Task& t, u32 row) { return t.head * a.group + (ONE ? row : row % a.group); }
DEV i64 query_at(const CachedArgs& a, const Task& t, u32 row) {
  return (i64)t.batch * a.q_batch + (i64)head_of(a, t, row) * a.q_head + (i64)token_of(a, row) * a.q_row;
}
DEV i64 out_at(const CachedArgs& a, const Task& t, u32 row) {
  return (i64)t.batch * a.out_batch + (i64)head_of(a, t, row) * a.out_head + (i64)token_of(a, row) * a.out_row;
}
DEV i64 bias_at(const CachedArgs& a, const Task& t, u32 row) {
  return (i64)t.batch * a.bias_batch + (i64)head_of(a, t, row) * a.bias_head + (i64)token_of(a, row) * a.bias_row;
}

// Exponents are powers of two. The factor for products of queries and keys, and the score of a product.
DEV f32 factor_of(const CachedArgs& a) { return EXTRA ? a.alpha : a.alpha * LOG2_E; }
DEV f32 score_of(const CachedArgs& a, f32 product, i64 bias, u32 key) {
#if EXTRA
  if (a.softcap != 0) product = a.softcap * tanh_of(product / a.softcap);
  if (a.bias) product += get(a.bias[bias + (i64)key * a.bias_key]);
  return product * LOG2_E;
#else
  return product;
#endif
}

// The shift of the exponents: 0 for a row without any score so far.
DEV f32 shift_of(f32 top) { return top == -INFINITY_OF(f32) ? 0.0f : top; }

// The final factor for the sums of a row. A row that sees no key gives zeros.
DEV f32 share_of(const CachedArgs& a, const Task& t, u32 row, f32 top, f32 sum) {
  f32 share = 1.0f;
  if (a.has_sink) {
    f32 sink = a.sinks ? get(a.sinks[(i64)head_of(a, t, row) * a.sinks_step]) * LOG2_E : 0.0f;
    f32 shift = shift_of(max_of(top, sink));
    share = exp2f(top - shift);
    sum = sum * share + exp2f(sink - shift);
  }
  return sum == 0 ? 0.0f : share / sum;
}

DEV f32* partial_at(const CachedArgs& a, u32 part, u32 row) {
  return a.partial + (((u64)part * gridDim.x + blockIdx.x) * BLOCK_ROWS + row) * (a.width + 2);
}

// Called after all parts have written to `partial`: the last block of these rows adds them up. `shares` is LDS for one
// number per row and part, `is_last` for a single one.
template <int THREADS> DEV void merge(const CachedArgs& a, const Task& t, f32* shares, u32* is_last) {
  if (!is_last_block(a.counters + blockIdx.x, t.parts, is_last)) return;
  for (u32 row = threadIdx.x; row < t.count; row += THREADS) {
    f32 top = -INFINITY_OF(f32), sum = 0;
#pragma unroll 4
    for (u32 part = 0; part < t.parts; part++) top = max_of(top, partial_at(a, part, row)[a.width]);
    f32 shift = shift_of(top);
#pragma unroll 4
    for (u32 part = 0; part < t.parts; part++) {
      const f32* from = partial_at(a, part, row) + a.width;
      f32 share = exp2f(from[0] - shift);
      shares[row * a.parts + part] = share;
      sum += from[1] * share;
    }
    f32 factor = share_of(a, t, t.first + row, top, sum);
    for (u32 part = 0; part < t.parts; part++) shares[row * a.parts + part] *= factor;
  }
  __syncthreads();
  for (u32 at = threadIdx.x; at < t.count * a.width; at += THREADS) {
    u32 row = at / a.width, e = at - row * a.width;
    f32 value = 0;
#pragma unroll 8
    for (u32 part = 0; part < t.parts; part++) value += partial_at(a, part, row)[e] * shares[row * a.parts + part];
    a.out[out_at(a, t, t.first + row) + e] = put<T>(value);
  }
}
