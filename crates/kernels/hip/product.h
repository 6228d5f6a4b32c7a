// Shared by all kernels of products: the argument structure, the layout of elements, and what happens to a sum.
//
// A product is out[b, r, n] = sum over k of left[b, r, k] * right[b, k, n]. For a matrix product, left is a and right
// is b. For a convolution, left is the weights and right the input: r is an output channel, n an image and a position
// in it, k an input channel and a tap, b the group.
//
// LEFT_T, RIGHT_T, BIAS_T, OUT_T: stored types. SUM: the type of sums; u32 and u64 for integers, whose sums wrap.
// SIGNED: its signed version. CONV: 0 matrix product, 1 convolution, 2 transposed convolution. BIAS: 1 if there is one.
// OPERANDS: the number of further tensors that `epilogue` reads, which exists if FUSED is 1. PARTIAL: 1 to store plain
// sums. Strides are in elements. Rows, columns and the depth are below 2^31.

// Strides of a tensor with the output's shape; a matrix product's column is at[2].
struct Place { i64 high, low, row, image, at[3]; };

struct ProductArgs {
  const LEFT_T* left;
  const RIGHT_T* right;
  const BIAS_T* bias;
  OUT_T* out;
  SUM* partial;  // [splits, batches, rows, columns]
#if OPERANDS
  const void* operand[OPERANDS];
#endif
  Place out_place;
#if OPERANDS
  Place operand_place[OPERANDS];
#endif
  i64 bias_low, bias_row, bias_column;
  i64 left_high, left_low, left_row, left_k, left_tap[3];
  i64 left_step;  // the stride along k, if there is a single one
  i64 right_high, right_low, right_image, right_k, right_at[3];
  f32 alpha;
  i32 left_zero, right_zero;
  u32 batches, low_extent;  // batch = high * low_extent + low
  u32 rows, columns;        // columns of all phases together
  u32 depth;                // of all taps together
  u32 channels;
  u32 splits, split_depth;
  u32 tiles_down, tiles_across;
  // For convolutions only.
  u32 images, taps_inside;  // k = channel * taps + tap if taps_inside, else tap * channels + channel
  u32 out_extent[3], right_extent[3], taps[3];
  i32 stride[3], pad[3], dilation[3];
  u32 tap_step[3], phases[3];
};

// The positions and taps that belong together. In a convolution these are all; in a transposed one, those whose output
// position has the same remainder by the stride (its phase): this is a convolution with every tap_step-th tap.
struct Window {
  u32 count[3], plane, columns, depth;
  i32 first[3], step[3];  // the input's coordinate at position 0, and its step between positions
  u32 taps[3], tap_count;
  i32 move[3];  // the step of the input's coordinate between taps
  u32 tap_first[3], tap_step[3], out_first[3], out_step[3];
};

DEV Window window(const ProductArgs& a, u32 phase) {
  Window w;
  for (int i = 2; i >= 0; i--) {
#if CONV == 2
    i32 remainder = (i32)(phase % a.phases[i]), stride = a.stride[i];
    phase /= a.phases[i];
    w.out_first[i] = (u32)remainder;
    w.out_step[i] = (u32)stride;
    w.count[i] = (a.out_extent[i] - (u32)remainder + (u32)stride - 1) / (u32)stride;
    u32 first = 0;
    while (first < a.tap_step[i] && (remainder + a.pad[i] - (i32)first * a.dilation[i]) % stride != 0) first++;
    bool reached = first < a.tap_step[i] && first < a.taps[i];
    w.taps[i] = reached ? (a.taps[i] - 1 - first) / a.tap_step[i] + 1 : 0;
    w.tap_first[i] = first;
    w.tap_step[i] = a.tap_step[i];
    w.first[i] = (remainder + a.pad[i] - (i32)first * a.dilation[i]) / stride;
    w.step[i] = 1;
    w.move[i] = -(i32)((i64)a.dilation[i] * a.tap_step[i] / stride);
#else
    w.count[i] = a.out_extent[i];
    w.out_first[i] = w.tap_first[i] = 0;
    w.out_step[i] = w.tap_step[i] = 1;
    w.taps[i] = a.taps[i];
    w.first[i] = -a.pad[i];
    w.step[i] = a.stride[i];
    w.move[i] = a.dilation[i];
#endif
  }
  w.plane = w.count[0] * w.count[1] * w.count[2];
  w.columns = a.images * w.plane;
  w.tap_count = w.taps[0] * w.taps[1] * w.taps[2];
  w.depth = a.channels * w.tap_count;
  return w;
}

// Blocks that do not fit along x continue along z; those past the last one have nothing to do.
DEV u64 block_number() { return (u64)blockIdx.z * gridDim.x + blockIdx.x; }

// A column of a convolution.
struct Position { u32 image, at[3]; };

DEV Position position(const Window& w, u32 column) {
  Position p;
  p.image = column / w.plane;
  u32 rest = column - p.image * w.plane;
  p.at[2] = rest % w.count[2];
  rest /= w.count[2];
  p.at[1] = rest % w.count[1];
  p.at[0] = rest / w.count[1];
  return p;
}

// A column of the output and of the epilogue's operands: the offsets of its row 0.
struct Spot {
  i64 out, bias;
#if OPERANDS
  i64 operand[OPERANDS];
#endif
};

DEV i64 place_of(const Place& place, u32 high, u32 low, const Position& p) {
  i64 batch = (i64)high * place.high + (i64)low * place.low;
#if CONV
  return batch + (i64)p.image * place.image + (i64)p.at[0] * place.at[0] + (i64)p.at[1] * place.at[1] +
         (i64)p.at[2] * place.at[2];
#else
  return batch + (i64)p.at[2] * place.at[2];
#endif
}

DEV Spot spot(const ProductArgs& a, const Window& w, u32 batch, u32 column) {
  u32 high = batch / a.low_extent, low = batch - high * a.low_extent;
  Position p;
#if CONV
  p = position(w, column);
  for (int i = 0; i < 3; i++) p.at[i] = w.out_first[i] + p.at[i] * w.out_step[i];
#else
  p.at[2] = column;
#endif
  Spot s;
  s.out = place_of(a.out_place, high, low, p);
  s.bias = (i64)low * a.bias_low;
#if !CONV
  s.bias += (i64)column * a.bias_column;
#endif
#if OPERANDS
  for (int i = 0; i < OPERANDS; i++) s.operand[i] = place_of(a.operand_place[i], high, low, p);
#endif
  return s;
}

DEV f32 scaled(f32 v, f32 alpha) { return v * alpha; }
DEV f64 scaled(f64 v, f32 alpha) { return v * (f64)alpha; }
DEV u32 scaled(u32 v, f32 alpha) {
  if (alpha == 1) return v;
  f64 r = (f64)(i32)v * (f64)alpha;
  return r >= 2147483647.0 ? 0x7fffffffu : r <= -2147483648.0 ? 0x80000000u : (u32)(i32)r;
}
DEV u64 scaled(u64 v, f32 alpha) {
  if (alpha == 1) return v;
  f64 r = (f64)(i64)v * (f64)alpha;
  return r >= 9223372036854775807.0 ? ~0ull >> 1 : r <= -9223372036854775808.0 ? 1ull << 63 : (u64)(i64)r;
}

// Stores the element computed from a sum.
DEV void finish(const ProductArgs& a, SUM sum, u32 row, const Spot& s) {
  sum = scaled(sum, a.alpha);
#if BIAS
  sum += (SUM)get(a.bias[s.bias + (i64)row * a.bias_row]);
#endif
  OUT_T* out = a.out + s.out + (i64)row * a.out_place.row;
#if FUSED
  *out = epilogue(a, (SIGNED)sum, row, s);
#else
  *out = put<OUT_T>((SIGNED)sum);
#endif
}
