// Products of few rows with packed weights. Included after quant.h.
//
// LEFT_T, OUT_T: stored types. OPERANDS: the number of further tensors that `epilogue` reads, which exists if FUSED is
// 1. PARTIAL: 1 to store plain sums. Strides are in elements. NORM: 0, or rows of the left operand are normalised
// first, that many elements at a time: each element is divided by the root of the mean of its row's squares, and
// scaled. Every block does this in LDS for all rows that it reads, while its first weights are loaded: rows are short,
// and stay in caches that all blocks share.
//
// GATED: 1 if the weights have twice as many columns as the output, and `gated` combines the sums of columns n and n +
// columns into an element.
//
// Arguments are few, so that a block gets them with one or two reads of memory.
#define MADE_OF (GATED + 1)

struct Place { i64 row, column; };
struct QuantArgs {
  const LEFT_T* left;
  const u8* right;
  OUT_T* out;
  f32* partial;  // [splits, rows, columns]
  Quant quant;
#if OPERANDS
  const void* operand[OPERANDS];
  Place operand_place[OPERANDS];
#endif
  Place out_place;
  i64 left_row, left_k;
  u32 rows, columns, depth;
  u32 units;   // units that lanes read at a time, per column
  u32 parts;   // waves of a block that share k
  u32 splits;  // blocks that share k
#if NORM
  const LEFT_T* scale;
  f32 epsilon;
  u32 round;  // 1 to round before scaling
#endif
};

#if NORM
typedef Pack<LEFT_T, NORM> Some;
// Calls `keep(row, k, elements)` for all elements of at most `most` rows; `squares` has space for one number per row
// and wave.
template <class Keep> DEV void normed_rows(const QuantArgs& a, u32 top, u32 most, f32* squares, const Keep& keep) {
  const u32 count = min_of(a.rows - top, most), waves = THREADS / WARP, wave = threadIdx.x / WARP;
  const LEFT_T* left = a.left + (i64)top * a.left_row;
  // Most rows are no longer than this: their scale is loaded while squares are summed.
  const u32 own = threadIdx.x * NORM;
  const Some first = *(const Some*)(a.scale + (own < a.depth ? own : 0));
  for (u32 r = 0; r < count; r++) {
    f32 sum = 0;
    for (u32 k = own; k < a.depth; k += THREADS * NORM) {
      Some x = *(const Some*)(left + (i64)r * a.left_row + k);
#pragma unroll
      for (int i = 0; i < NORM; i++) sum += (f32)get(x.at[i]) * (f32)get(x.at[i]);
    }
    sum = wave_sum(sum);
    if (threadIdx.x % WARP == 0) squares[r * waves + wave] = sum;
  }
  __syncthreads();
  for (u32 r = 0; r < count; r++) {
    f32 sum = 0;
    for (u32 w = 0; w < waves; w++) sum += squares[r * waves + w];
    const f32 factor = rsqrtf(sum / (f32)a.depth + a.epsilon);
    for (u32 k = own; k < a.depth; k += THREADS * NORM) {
      Some x = *(const Some*)(left + (i64)r * a.left_row + k), scale = first;
      if (k != own) scale = *(const Some*)(a.scale + k);
#pragma unroll
      for (int i = 0; i < NORM; i++) {
        f32 made = (f32)get(x.at[i]) * factor;
        if (a.round) made = (f32)get(put<LEFT_T>(made));
        x.at[i] = put<LEFT_T>(made * (f32)get(scale.at[i]));
      }
      keep(r, k, x);
    }
  }
  __syncthreads();
}
#endif

// The offset of a column in the epilogue's operands.
struct Spot {
#if OPERANDS
  i64 operand[OPERANDS];
#endif
};
// Passes on the sums of a block's part of k.
DEV void give(const QuantArgs& a, const f32* sums, u32 row, u32 column) {
#if PARTIAL
  a.partial[((u64)blockIdx.y * a.rows + row) * a.columns + column] = sums[0];
#else
  OUT_T* out = a.out + (i64)row * a.out_place.row + (i64)column * a.out_place.column;
#if GATED
  *out = gated(sums[0], sums[1]);
#elif FUSED
  Spot s;
#if OPERANDS
  for (int i = 0; i < OPERANDS; i++) s.operand[i] = (i64)column * a.operand_place[i].column;
#endif
  *out = epilogue(a, sums[0], row, s);
#else
  *out = put<OUT_T>(sums[0]);
#endif
#endif
}
