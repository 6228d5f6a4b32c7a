// Products without tiles, one thread per sum: convolutions with few channels per group, and tiny matrices. ROWS_FIRST: 1
// if adjacent threads have adjacent rows and groups, else adjacent columns.
KERNEL(direct, 256, ProductArgs) {
  Window w;
#if CONV
  w = window(a, CONV == 2 ? blockIdx.y : 0);
#else
  w.columns = a.columns;
#endif
  const u64 count = (u64)a.rows * w.columns * a.batches;
  const u64 at = block_number() * 256 + threadIdx.x;
  if (at < count) {
#if ROWS_FIRST
    u64 lines = (u64)a.rows * a.batches, rest = at % lines;
    u32 column = (u32)(at / lines);
#else
    u64 rest = at / w.columns;
    u32 column = (u32)(at - rest * w.columns);
#endif
    u32 batch = (u32)(rest / a.rows), row = (u32)(rest - (u64)batch * a.rows);
    u32 high = batch / a.low_extent, low = batch - high * a.low_extent;
    const LEFT_T* left = a.left + (i64)high * a.left_high + (i64)low * a.left_low + (i64)row * a.left_row;
    const RIGHT_T* right = a.right + (i64)high * a.right_high + (i64)low * a.right_low;
    SUM sum = 0;
    auto add = [&](const LEFT_T* l, const RIGHT_T* r) {
      for (u32 c = 0; c < a.channels; c++) {
        sum += ((SUM)get(*l) - (SUM)a.left_zero) * ((SUM)get(*r) - (SUM)a.right_zero);
        l += a.left_k;
        r += a.right_k;
      }
    };
#if CONV
    Position p = position(w, column);
    right += (i64)p.image * a.right_image;
    i32 y[3];
    for (int i = 0; i < 3; i++) {
      y[i] = w.first[i] + (i32)p.at[i] * w.step[i];
      left += (i64)w.tap_first[i] * a.left_tap[i];
    }
    for (u32 t0 = 0; t0 < w.taps[0]; t0++) {
      i32 y0 = y[0] + (i32)t0 * w.move[0];
      if ((u32)y0 >= a.right_extent[0]) continue;
      for (u32 t1 = 0; t1 < w.taps[1]; t1++) {
        i32 y1 = y[1] + (i32)t1 * w.move[1];
        if ((u32)y1 >= a.right_extent[1]) continue;
        const LEFT_T* l = left + (i64)(t0 * w.tap_step[0]) * a.left_tap[0] + (i64)(t1 * w.tap_step[1]) * a.left_tap[1];
        const RIGHT_T* r = right + (i64)y0 * a.right_at[0] + (i64)y1 * a.right_at[1];
        for (u32 t2 = 0; t2 < w.taps[2]; t2++) {
          i32 y2 = y[2] + (i32)t2 * w.move[2];
          if ((u32)y2 >= a.right_extent[2]) continue;
          add(l + (i64)(t2 * w.tap_step[2]) * a.left_tap[2], r + (i64)y2 * a.right_at[2]);
        }
      }
    }
#else
    add(left, right + (i64)column * a.right_at[2]);
#endif
    finish(a, sum, row, spot(a, w, batch, column));
  }
}
