// Shared by the kernels of conv.hip and conv_join.hip: their arguments, and what happens to 8 adjacent sums.
struct ConvArgs {
  const T* x;
  const T* w;
  const BIAS_T* bias;
  OUT_T* out;
  f32* partial;  // [splits, rows, columns]
#if OPERANDS
  const void* operand[OPERANDS];
  i64 operand_row[OPERANDS];
#endif
  i64 out_row;
  f32 alpha;
  u32 rows, columns, depth;
  u32 splits, split_depth;
  u32 tiles_across;
  // Elements between images, or the rows of a matrix; between lines, and between positions; between columns of w.
  i32 x_row, x_y, x_x, w_column;
  // For convolutions only: channels, taps in a line, positions of an output image and of its lines, the input's extents.
  u32 channels, taps_x, plane, out_x, in_y, in_x;
  i32 stride_y, stride_x, pad_y, pad_x, dilation_y, dilation_x;
  i32 x_channel;  // elements between channels, 1 unless they are gathered
};

// 8 sums of a row.
struct Eight { Pack<f32, 4> low, high; };

// Stores the elements of 8 adjacent columns.
DEV void finish(const ConvArgs& a, const Eight& eight, const Operands& operands, u32 row, u32 column) {
  Pack<OUT_T, 8> made;
#pragma unroll
  for (int i = 0; i < 8; i++) {
    f32 sum = (i < 4 ? eight.low.at[i % 4] : eight.high.at[i % 4]) * a.alpha;
#if BIAS
    sum += get(operands.bias.at[i]);
#endif
#if FUSED
    made.at[i] = epilogue(sum, operands, i);
#else
    made.at[i] = put<OUT_T>(sum);
#endif
  }
  store_whole((Pack<OUT_T, 8>*)(a.out + (i64)row * a.out_row + column), made);
}
