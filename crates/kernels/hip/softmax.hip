// Softmax or its logarithm along the last axis: y[r, c] = exp(x[r, c] - m) / s, with m the row's largest and s the sum of
// exp(x - m); the logarithm is x - m - log s. One block a row, three passes over it: the row stays in cache.
//
// T: the stored type. LOG: 1 for the logarithm. Rows are any number, columns below 2^31. Strides are in elements.
struct SoftmaxArgs {
  const T* x;
  T* y;
  u32 columns;
  u32 outer;  // rows are [.., outer]: row = high * outer + low
  i64 x_high, x_low, x_column;
  i64 y_high, y_low, y_column;
};

KERNEL(softmax, 256, SoftmaxArgs) {
  typedef COMPUTE(T) C;
  SHARED(C, lds, 256 / MIN_WARP);
  u32 high = blockIdx.x / a.outer, low = blockIdx.x % a.outer;
  const T* x = a.x + (i64)high * a.x_high + (i64)low * a.x_low;
  T* y = a.y + (i64)high * a.y_high + (i64)low * a.y_low;
  C top = -INFINITY_OF(C);
  for (u32 c = threadIdx.x; c < a.columns; c += 256) top = max_of(top, get(x[(i64)c * a.x_column]));
  top = block_max<256>(top, lds);
  C sum = 0;
  for (u32 c = threadIdx.x; c < a.columns; c += 256) sum += exp_of(get(x[(i64)c * a.x_column]) - top);
  sum = block_sum<256>(sum, lds);
#if LOG
  C shift = top + log_of(sum);
  for (u32 c = threadIdx.x; c < a.columns; c += 256)
    y[(i64)c * a.y_column] = put<T>(get(x[(i64)c * a.x_column]) - shift);
#else
  C scale = 1 / sum;
  for (u32 c = threadIdx.x; c < a.columns; c += 256)
    y[(i64)c * a.y_column] = put<T>(exp_of(get(x[(i64)c * a.x_column]) - top) * scale);
#endif
}
