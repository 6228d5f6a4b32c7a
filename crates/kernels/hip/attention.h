// Shared by the attention kernels. out[r] = sum over keys of softmax(score(alpha * q[r] . k[key], r, key)) * v[key].
//
// Rows come in batches that share keys and values. `inner` batches are a stride `*_batch` apart, and groups of that
// many are `*_outer` apart. The scores have up to three leading axes, whose index follows from a row's number, and the
// key as the last axis. `score` is generated for each kernel, and reads OPERANDS tensors of that shape. T: the stored
// type; sums and scores are f32. Strides are in elements. There are fewer than 2^31 rows in all batches, and fewer than
// 2^31 keys.
struct AttentionArgs {
  const T* q;
  const T* k;
  const T* v;
  T* out;
  f32* partial;  // [splits, rows of all batches, width + 2]: sums, the largest score, the sum of weights
#if OPERANDS
  const void* operand[OPERANDS];
#endif
  i64 q_batch, q_row, q_at;
  i64 k_batch, k_at, k_key;
  i64 v_batch, v_key, v_at;
  i64 q_outer, k_outer, v_outer;
  i64 out_axis[3], out_at;
#if OPERANDS
  i64 operand_axis[OPERANDS][4];  // the last one is the key's stride
#endif
  i64 past;  // keys before the first row's own; no row sees keys after its own
  f32 alpha;
  u32 zero_if_hidden;
  u32 batches, rows;  // rows per batch
  u32 total, size, width;
  u32 axis[3];
  u32 groups;  // groups of rows per batch
  u32 splits, split_keys;
  u32 inner;   // batches
};

// Where a batch starts.
DEV i64 batch_at(const AttentionArgs& a, u32 batch, i64 outer, i64 stride) {
  return (i64)(batch / a.inner) * outer + (i64)(batch % a.inner) * stride;
}

#define LOG2_E 1.44269504088896340736f

// A row of the scores: its index, and the offset of its first key in each operand.
struct RowSpot {
  u32 index[3];
  i64 out;
#if OPERANDS
  i64 operand[OPERANDS];
#endif
};

DEV RowSpot row_spot(const AttentionArgs& a, u32 batch, u32 row) {
  u32 rest = batch * a.rows + row;
  RowSpot s;
  s.index[2] = rest % a.axis[2];
  rest /= a.axis[2];
  s.index[1] = rest % a.axis[1];
  s.index[0] = rest / a.axis[1];
  s.out = 0;
  for (int i = 0; i < 3; i++) s.out += (i64)s.index[i] * a.out_axis[i];
#if OPERANDS
  for (int n = 0; n < OPERANDS; n++) {
    s.operand[n] = 0;
    for (int i = 0; i < 3; i++) s.operand[n] += (i64)s.index[i] * a.operand_axis[n][i];
  }
#endif
  return s;
}

// The end of the keys that the row with this index may see; a mask may hide more of them.
DEV u32 end_of(const AttentionArgs& a, u32 index) {
  const i64 end = (i64)index + a.past + 1;
  return end < 0 ? 0 : (u32)min_of(end, (i64)a.total);
}

// The shift of the exponents: 0 for a row without any score so far.
DEV f32 shift_of(f32 top) { return top == -INFINITY_OF(f32) ? 0.0f : top; }
DEV f32 weight_of(f32 score, f32 shift) { return exp2f((score - shift) * LOG2_E); }
DEV f32 factor_of(const AttentionArgs& a, f32 sum) { return a.zero_if_hidden && sum == 0 ? 0.0f : 1.0f / sum; }
