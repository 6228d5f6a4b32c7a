// One direction of a recurrent layer: x [steps, batch, input], w [gates * hidden, input], r [gates * hidden, hidden].
//
// The state h, and c of an LSTM, are dense arrays [batch, hidden] in scratch memory, in the compute type.
// `recurrent_begin` initialises them. `recurrent_step` computes one step of all sequences, from one buffer of h to
// another, since every unit reads all of h. `recurrent_end` writes the last state. A GRU that resets before the product
// takes two launches per step: update and reset gates first, then the candidate from reset * h.
//
// 32 threads compute one unit of up to 4 sequences: they share the rows of w and r.
//
// CELL: 0 LSTM, 1 GRU that resets after the product, 2 the first and 3 the second launch of one that resets before it,
// 4 RNN. MODE: 0 begin, 1 step, 2 end. T: the stored type. Below 2^31 units of all sequences; strides are in elements.
typedef COMPUTE(T) C;

struct Activation {
  u32 kind;
  f32 alpha, beta;
};
struct RecurrentArgs {
  const T* x;
  const T* w;
  const T* r;
  const T* bias;       // or NULL: [2 * gates * hidden]
  const i32* lengths;  // or NULL: [batch]
  const T* initial_h;  // or NULL
  const T* initial_c;  // or NULL
  const T* peepholes;  // or NULL: [3 * hidden], of input, output and forget gate
  T* y;
  T* last_h;  // or NULL
  T* last_c;  // or NULL
  const C* h_from;
  C* h_to;
  C* c;
  C* update;  // results of a GRU's first launch for the second
  C* reset;
  i64 x_strides[3], w_strides[2], r_strides[2], bias_stride, lengths_stride;
  i64 initial_h_strides[2], initial_c_strides[2], peepholes_stride;
  i64 y_strides[3], last_h_strides[2], last_c_strides[2];
  u32 steps, batch, input, hidden;
  u32 at;  // the step's number
  u32 reverse, input_forget, clips;
  f32 clip;
  Activation activations[3];
};

#if MODE == 0
KERNEL(recurrent_begin, 256, RecurrentArgs) {
  u64 number = (u64)blockIdx.x * 256 + threadIdx.x;
  if (number >= (u64)a.batch * a.hidden) return;
  i64 sequence = (u32)number / a.hidden, unit = (u32)number % a.hidden;
  a.h_to[number] = a.initial_h ? get(a.initial_h[sequence * a.initial_h_strides[0] + unit * a.initial_h_strides[1]]) : 0;
  if (a.c)
    a.c[number] = a.initial_c ? get(a.initial_c[sequence * a.initial_c_strides[0] + unit * a.initial_c_strides[1]]) : 0;
}
#elif MODE == 2
KERNEL(recurrent_end, 256, RecurrentArgs) {
  u64 number = (u64)blockIdx.x * 256 + threadIdx.x;
  if (number >= (u64)a.batch * a.hidden) return;
  i64 sequence = (u32)number / a.hidden, unit = (u32)number % a.hidden;
  if (a.last_h) a.last_h[sequence * a.last_h_strides[0] + unit * a.last_h_strides[1]] = put<T>(a.h_from[number]);
  if (a.last_c) a.last_c[sequence * a.last_c_strides[0] + unit * a.last_c_strides[1]] = put<T>(a.c[number]);
}
#else
DEV C activated(const Activation& activation, C v) {
  C alpha = (C)activation.alpha, beta = (C)activation.beta;
  switch (activation.kind) {
    case 0: return sigmoid_of(v);
    case 1: return tanh_of(v);
    case 2: return v < 0 ? 0 : v;
    case 3: return alpha * v + beta;
    case 4: return v < 0 ? alpha * v : v;
    case 5: return v < alpha ? 0 : v;
    case 6: return alpha * tanh_of(beta * v);
    case 7: {
      C made = alpha * v + beta;
      return made < 0 ? (C)0 : made > 1 ? (C)1 : made;
    }
    case 8: return v < 0 ? alpha * expm1_of(v) : v;
    case 9: return v / (1 + (v < 0 ? -v : v));
    default: {
      // log(1 + e^v) without overflow: the larger of v and 0, plus the rest.
      C left = log1p_of(exp_of(v < 0 ? v : -v));
      return v > 0 ? v + left : left;
    }
  }
}
// The output of a gate, given its sum.
DEV C opened(const RecurrentArgs& a, int activation, C v) {
  if (a.clips) v = v < -(C)a.clip ? -(C)a.clip : v > (C)a.clip ? (C)a.clip : v;
  return activated(a.activations[activation], v);
}

#if CELL == 0
#define GATES 4
#define FIRST_GATE 0
#define MADE_GATES 4
#define SUMS 4
#elif CELL == 1
#define GATES 3
#define FIRST_GATE 0
#define MADE_GATES 3
#define SUMS 4  // the last one is the state's part of the candidate
#elif CELL == 2
#define GATES 3
#define FIRST_GATE 0
#define MADE_GATES 2
#define SUMS 2
#elif CELL == 3
#define GATES 3
#define FIRST_GATE 2
#define MADE_GATES 1
#define SUMS 1
#else
#define GATES 1
#define FIRST_GATE 0
#define MADE_GATES 1
#define SUMS 1
#endif
#define SEQUENCES 4

KERNEL(recurrent_step, 256, RecurrentArgs) {
  u32 lane = threadIdx.x % 32, tiles = (a.batch + SEQUENCES - 1) / SEQUENCES;
  u32 item = blockIdx.x * 8 + threadIdx.x / 32;
  // Teams without work take part too, because shuffles need all lanes of a wave.
  bool live = item < a.hidden * tiles;
  u32 unit = live ? item % a.hidden : 0, first = live ? item / a.hidden * SEQUENCES : 0;
  C sums[SUMS][SEQUENCES];
  const T* x[SEQUENCES];
  const C* h[SEQUENCES];
#pragma unroll
  for (u32 s = 0; s < SEQUENCES; s++) {
    u32 sequence = min_of(first + s, a.batch - 1);
    u32 length = a.lengths ? (u32)min_of(max_of(a.lengths[sequence * a.lengths_stride], 0), (i32)a.steps) : a.steps;
    // After the end of a sequence, the result is not used.
    u32 time = a.at >= length ? 0 : a.reverse ? length - 1 - a.at : a.at;
    x[s] = a.x + time * a.x_strides[0] + sequence * a.x_strides[1];
    h[s] = (CELL == 3 ? a.reset : a.h_from) + (u64)sequence * a.hidden;
#pragma unroll
    for (int sum = 0; sum < SUMS; sum++) sums[sum][s] = 0;
  }
  for (u32 d = lane; d < a.input; d += 32) {
    C values[SEQUENCES];
#pragma unroll
    for (int s = 0; s < SEQUENCES; s++) values[s] = get(x[s][d * a.x_strides[2]]);
#pragma unroll
    for (int gate = 0; gate < MADE_GATES; gate++) {
      C weight = get(a.w[(i64)((FIRST_GATE + gate) * a.hidden + unit) * a.w_strides[0] + d * a.w_strides[1]]);
#pragma unroll
      for (int s = 0; s < SEQUENCES; s++) sums[gate][s] += weight * values[s];
    }
  }
  for (u32 d = lane; d < a.hidden; d += 32) {
    C values[SEQUENCES];
#pragma unroll
    for (int s = 0; s < SEQUENCES; s++) values[s] = h[s][d];
#pragma unroll
    for (int gate = 0; gate < MADE_GATES; gate++) {
      C weight = get(a.r[(i64)((FIRST_GATE + gate) * a.hidden + unit) * a.r_strides[0] + d * a.r_strides[1]]);
#pragma unroll
      for (int s = 0; s < SEQUENCES; s++) sums[CELL == 1 && gate == 2 ? 3 : gate][s] += weight * values[s];
    }
  }
  // Each of the first lanes gets the sums of its sequence.
  C v[4];
#pragma unroll
  for (int sum = 0; sum < SUMS; sum++) {
#pragma unroll
    for (int s = 0; s < SEQUENCES; s++) {
      C total = sums[sum][s];
      for (int mask = 16; mask; mask >>= 1) total += SHFL_XOR(total, mask);
      if (s == 0 || lane == (u32)s) v[sum] = total;
    }
  }
  u32 sequence = first + lane;
  if (!live || lane >= SEQUENCES || sequence >= a.batch) return;
  if (a.bias) {
#pragma unroll
    for (int gate = 0; gate < MADE_GATES; gate++) {
      i64 at = (i64)(FIRST_GATE + gate) * a.hidden + unit;
      v[gate] += get(a.bias[at * a.bias_stride]);
      v[CELL == 1 && gate == 2 ? 3 : gate] += get(a.bias[(at + (i64)GATES * a.hidden) * a.bias_stride]);
    }
  }
  u32 length = a.lengths ? (u32)min_of(max_of(a.lengths[sequence * a.lengths_stride], 0), (i32)a.steps) : a.steps;
  u32 time = a.at >= length ? a.at : a.reverse ? length - 1 - a.at : a.at;
  u64 place = (u64)sequence * a.hidden + unit;
  C before = a.h_from[place], made;
#if CELL == 2
  a.update[place] = opened(a, 0, v[0]);
  a.reset[place] = opened(a, 0, v[1]) * before;
#else
#if CELL == 0
  C c = a.c[place];
  C input_peep = 0, output_peep = 0, forget_peep = 0;
  if (a.peepholes) {
    input_peep = get(a.peepholes[(i64)unit * a.peepholes_stride]);
    output_peep = get(a.peepholes[((i64)a.hidden + unit) * a.peepholes_stride]);
    forget_peep = get(a.peepholes[(2 * (i64)a.hidden + unit) * a.peepholes_stride]);
  }
  C input = opened(a, 0, v[0] + input_peep * c);
  C forget = a.input_forget ? 1 - input : opened(a, 0, v[2] + forget_peep * c);
  C next = forget * c + input * opened(a, 1, v[3]);
  C output = opened(a, 0, v[1] + output_peep * next);
  made = output * activated(a.activations[2], next);
  if (a.at < length) a.c[place] = next;
#elif CELL == 1
  C update = opened(a, 0, v[0]), reset = opened(a, 0, v[1]);
  C candidate = opened(a, 1, v[3] * reset + v[2]);
  made = (1 - update) * candidate + update * before;
#elif CELL == 3
  C update = a.update[place], candidate = opened(a, 1, v[0]);
  made = (1 - update) * candidate + update * before;
#else
  made = opened(a, 0, v[0]);
#endif
  bool is_over = a.at >= length;
  a.h_to[place] = is_over ? before : made;
  a.y[time * a.y_strides[0] + sequence * a.y_strides[1] + unit * a.y_strides[2]] = put<T>(is_over ? 0 : made);
#endif
}
#endif
