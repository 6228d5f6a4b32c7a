// Tiled products: a block of 256 threads computes TILE_ROWS x TILE_COLUMNS sums. See product.h for the definition of a
// product.
//
// Both operands pass through LDS in tiles of 64 bytes per row, which is DEPTH elements of k: while one tile is
// multiplied, the next is being loaded into registers. An LDS row has 80 bytes, so that reads of adjacent rows use
// different banks. A task is 16 bytes of a row (a chunk), or of the few rows that one word holds. Tasks are assigned by
// memory layout, so that adjacent lanes read adjacent addresses.
//
// LEFT_MODE, RIGHT_MODE: 0 element by element, lanes along rows; 1 element by element, lanes along k; 2 a chunk at
// once, k is contiguous and chunks are aligned; 3 a word at once, rows are contiguous and words are aligned.
// LEFT_TABLE: 1 if the left operand's k is not a single stride. MATRIX: 0 to multiply one by one, else see mma.h. WAVE:
// lanes per wave. ROWS_ACROSS: 1 if adjacent lanes have adjacent rows, if multiplying one by one. DOT4: 1 for bytes, four at a time; unsigned bytes are stored in LDS minus 128, so that all are
// signed.
//
// With splits, blockIdx.y is the part of k that a block sums; for a transposed convolution it is the phase.
#if defined(__gfx906__) || defined(__gfx908__) || defined(__gfx90a__) || defined(__gfx942__) || defined(__gfx950__) || \
    defined(__gfx9_4_generic__) || defined(__gfx1030__) || defined(__gfx1031__) || defined(__gfx1032__) || \
    defined(__gfx1033__) || defined(__gfx1034__) || defined(__gfx1035__) || defined(__gfx1036__) || \
    defined(__gfx10_3_generic__)
#define SIGNED_DOT4 1
#elif defined(__GFX11__) || defined(__GFX12__)
#define MIXED_DOT4 1
#endif
#define ELEMS (16 / (int)sizeof(LEFT_T))
#define DEPTH (4 * ELEMS)
#define PITCH (5 * ELEMS)
typedef Pack<u32, 4> Chunk;

// A step along k: its distance in both operands, and in the input's coordinates.
struct Tap { i64 left, right; i32 move[3]; u32 is_in; };

DEV Tap tap_of(const ProductArgs& a, const Window& w, u32 k) {
  Tap t;
  t.is_in = k < w.depth;
  u32 channel, tap;
  if (a.taps_inside) {
    channel = t.is_in ? k / w.tap_count : 0;
    tap = t.is_in ? k - channel * w.tap_count : 0;
  } else {
    tap = k / a.channels;
    channel = k - tap * a.channels;
    if (!t.is_in) tap = 0;
  }
  u32 at[3] = {0, 0, 0};
  if (t.is_in) {
    at[2] = tap % w.taps[2];
    tap /= w.taps[2];
    at[1] = tap % w.taps[1];
    at[0] = tap / w.taps[1];
  }
  t.left = (i64)channel * a.left_k;
  t.right = (i64)channel * a.right_k;
  for (int i = 0; i < 3; i++) {
    t.move[i] = (i32)at[i] * w.move[i];
    t.left += (i64)(w.tap_first[i] + at[i] * w.tap_step[i]) * a.left_tap[i];
    t.right += (i64)t.move[i] * a.right_at[i];
  }
  return t;
}

// The part of an operand that one thread loads.
template <class T, int ROWS, int MODE> struct Tasks {
  static constexpr int R = MODE == 3 ? 4 / (int)sizeof(T) : 1;
  static constexpr int COUNT = ROWS / R * 4;
  static constexpr int EACH = (COUNT + 255) / 256;
  const T* start[EACH];  // of the first row, at k = 0
  bool is_in[EACH];
  i32 coordinate[EACH][3];  // of convolutions' inputs
  Chunk held[EACH][R];
};
// The task's first row, and its chunk.
template <int ROWS, int R, int MODE> DEV void task_of(int number, u32& row, u32& chunk) {
  u32 task = threadIdx.x + 256 * number;
  if (MODE == 1 || MODE == 2) {
    chunk = task % 4;
    row = task / 4;
  } else {
    row = task % (ROWS / R) * R;
    chunk = task / (ROWS / R);
  }
}
DEV u32 byte_sign(i8*) { return 0; }
DEV u32 byte_sign(u8*) { return 0x80808080u; }
// The padding value: zero, or the zero point.
template <class T> DEV Chunk nothing(i32 zero) {
  u32 word = sizeof(T) == 1 ? ((u32)zero & 255) * 0x01010101u : 0;
  return Chunk{{word, word, word, word}};
}
template <class T> DEV void set_elem(Chunk& chunk, int at, T value) {
  T elems[16 / sizeof(T)];
  COPY_BYTES(elems, &chunk, 16);
  elems[at] = value;
  COPY_BYTES(&chunk, elems, 16);
}

// For a k with a stride of `step` elements.
template <class T, int ROWS, int MODE>
DEV void fetch(Tasks<T, ROWS, MODE>& t, i64 step, u32 k0, u32 end, i32 zero) {
  typedef Tasks<T, ROWS, MODE> S;
  for (int n = 0; n < S::EACH; n++) {
    u32 row, chunk;
    task_of<ROWS, S::R, MODE>(n, row, chunk);
    u32 k = k0 + chunk * ELEMS;
    for (int r = 0; r < S::R; r++) t.held[n][r] = nothing<T>(zero);
    if (!t.is_in[n] || (S::COUNT % 256 && threadIdx.x + 256 * n >= S::COUNT)) continue;
    const T* from = t.start[n] + (i64)k * step;
    if (MODE == 2) {
      if (k < end) t.held[n][0] = *(const Chunk*)from;
    } else {
#pragma unroll
      for (int e = 0; e < ELEMS; e++)
        if (k + e < end) {
          Pack<T, S::R> word = *(const Pack<T, S::R>*)(from + (i64)e * step);
          for (int r = 0; r < S::R; r++) set_elem(t.held[n][r], e, word.at[r]);
        }
    }
  }
}
// For a k whose offsets are in the table.
template <class T, int ROWS, int MODE, bool IS_LEFT>
DEV void fetch_taps(Tasks<T, ROWS, MODE>& t, const Tap* taps, const ProductArgs& a, i32 zero) {
  typedef Tasks<T, ROWS, MODE> S;
  for (int n = 0; n < S::EACH; n++) {
    u32 row, chunk;
    task_of<ROWS, S::R, MODE>(n, row, chunk);
    Chunk held = nothing<T>(zero);
    auto reaches = [&](const Tap& tap) {
      bool is_in = tap.is_in && t.is_in[n];
      if (!IS_LEFT)
        for (int i = 0; i < 3; i++) is_in = is_in && (u32)(t.coordinate[n][i] + tap.move[i]) < a.right_extent[i];
      return is_in;
    };
    if (MODE == 2) {
      const Tap& tap = taps[chunk * ELEMS];
      if (reaches(tap)) held = *(const Chunk*)(t.start[n] + (IS_LEFT ? tap.left : tap.right));
    } else {
#pragma unroll
      for (int e = 0; e < ELEMS; e++) {
        const Tap& tap = taps[chunk * ELEMS + e];
        if (reaches(tap)) set_elem(held, e, t.start[n][IS_LEFT ? tap.left : tap.right]);
      }
    }
    t.held[n][0] = held;
  }
}
template <class T, int ROWS, int MODE> DEV void put_tile(const Tasks<T, ROWS, MODE>& t, T* lds) {
  typedef Tasks<T, ROWS, MODE> S;
  for (int n = 0; n < S::EACH; n++) {
    u32 row, chunk;
    task_of<ROWS, S::R, MODE>(n, row, chunk);
    if (S::COUNT % 256 && threadIdx.x + 256 * n >= S::COUNT) continue;
    for (int r = 0; r < S::R; r++) {
      Chunk held = t.held[n][r];
#if DOT4
      for (int i = 0; i < 4; i++) held.at[i] ^= byte_sign((T*)0);
#endif
      *(Chunk*)(lds + (row + r) * PITCH + chunk * ELEMS) = held;
    }
  }
}

#if DOT4
DEV i32 dot4(u32 x, u32 y, i32 sum) {
#if defined(__CUDACC_RTC__)
  return __dp4a((i32)x, (i32)y, sum);
#elif SIGNED_DOT4
  return __builtin_amdgcn_sdot4((i32)x, (i32)y, sum, false);
#elif MIXED_DOT4
  return __builtin_amdgcn_sudot4(true, (i32)x, true, (i32)y, sum, false);
#else
  for (int i = 0; i < 4; i++) sum = (i32)((u32)sum + (u32)((i32)(i8)(x >> (8 * i)) * (i32)(i8)(y >> (8 * i))));
  return sum;
#endif
}
// Eight bytes times eight bytes.
typedef Pack<u32, 2> Eight;
#define ONES (Eight{{0x01010101u, 0x01010101u}})
template <class X, class Y> DEV i32 dot_part(const X& x, const Y& y, i32 sum) {
  Eight l, r;
  COPY_BYTES(&l, &x, 8);
  COPY_BYTES(&r, &y, 8);
  return dot4(l.at[1], r.at[1], dot4(l.at[0], r.at[0], sum));
}
#endif

#if MATRIX
#define WAVES_ACROSS (WAVE == 64 ? 2 : 4)
#define WAVE_ROWS (TILE_ROWS / 2)
#define WAVE_COLUMNS (TILE_COLUMNS / WAVES_ACROSS)
struct Totals { Sums at[WAVE_ROWS / 16][WAVE_COLUMNS / 16]; };
DEV void multiply(Totals& totals, const LEFT_T* left, const RIGHT_T* right) {
  u32 lane = threadIdx.x % WAVE, wave = threadIdx.x / WAVE;
  const u16* l = (const u16*)left + wave / WAVES_ACROSS * WAVE_ROWS * PITCH;
  const u16* r = (const u16*)right + wave % WAVES_ACROSS * WAVE_COLUMNS * PITCH;
#pragma unroll 1
  for (int k = 0; k < DEPTH; k += 16) {
    Fragment x[WAVE_ROWS / 16], y[WAVE_COLUMNS / 16];
#pragma unroll
    for (int i = 0; i < WAVE_ROWS / 16; i++) x[i] = load_left(l + i * 16 * PITCH + k, PITCH, lane);
#pragma unroll
    for (int j = 0; j < WAVE_COLUMNS / 16; j++) y[j] = load_right(r + j * 16 * PITCH + k, PITCH, lane);
#pragma unroll
    for (int i = 0; i < WAVE_ROWS / 16; i++)
#pragma unroll
      for (int j = 0; j < WAVE_COLUMNS / 16; j++) mma<LEFT_T>(totals.at[i][j], x[i], y[j]);
  }
}
// Calls `column(n)` for each column of a thread's sums, then `element(r, sum)` for the rows in it.
template <class Column, class Element> DEV void each_sum(const ProductArgs&, Totals& totals, Column column, Element element) {
  u32 lane = threadIdx.x % WAVE, wave = threadIdx.x / WAVE;
#pragma unroll
  for (int j = 0; j < WAVE_COLUMNS / 16; j++)
#pragma unroll
    for (int c = 0; c < MMA_COLUMNS; c++) {
      if (!column(wave % WAVES_ACROSS * WAVE_COLUMNS + j * 16 + mma_column(lane, c))) continue;
#pragma unroll
      for (int i = 0; i < WAVE_ROWS / 16; i++)
#pragma unroll
        for (int r = 0; r < MMA_ROWS; r++)
          element(wave / WAVES_ACROSS * WAVE_ROWS + i * 16 + mma_row(lane, r), totals.at[i][j].at[mma_at(r, c)]);
    }
}
#else
// A thread's rows and columns are 16 apart. PART: elements of a row that are read at once.
#define PART (sizeof(LEFT_T) <= 2 ? ELEMS / 2 : ELEMS)
#define THREAD_ROW (ROWS_ACROSS ? threadIdx.x % 16 : threadIdx.x / 16)
#define THREAD_COLUMN (ROWS_ACROSS ? threadIdx.x / 16 : threadIdx.x % 16)
#define THREAD_ROWS (TILE_ROWS / 16)
#define THREAD_COLUMNS (TILE_COLUMNS / 16)
struct Totals {
  SUM at[THREAD_ROWS][THREAD_COLUMNS];
#if DOT4
  i32 left[THREAD_ROWS], right[THREAD_COLUMNS];
#endif
};
DEV void multiply(Totals& totals, const LEFT_T* left, const RIGHT_T* right) {
  left += THREAD_ROW * PITCH;
  right += THREAD_COLUMN * PITCH;
  // Not unrolled: data read for later parts would fill the registers.
#pragma unroll 1
  for (int k = 0; k < DEPTH; k += PART) {
    Pack<LEFT_T, PART> x[THREAD_ROWS];
#pragma unroll
    for (int i = 0; i < THREAD_ROWS; i++) x[i] = *(const Pack<LEFT_T, PART>*)(left + i * 16 * PITCH + k);
#if DOT4
    for (int i = 0; i < THREAD_ROWS; i++) totals.left[i] = dot_part(x[i], ONES, totals.left[i]);
#endif
#pragma unroll
    for (int j = 0; j < THREAD_COLUMNS; j++) {
      Pack<RIGHT_T, PART> y = *(const Pack<RIGHT_T, PART>*)(right + j * 16 * PITCH + k);
#if DOT4
      totals.right[j] = dot_part(y, ONES, totals.right[j]);
      for (int i = 0; i < THREAD_ROWS; i++) totals.at[i][j] = (SUM)dot_part(x[i], y, (i32)totals.at[i][j]);
#else
#pragma unroll
      for (int i = 0; i < THREAD_ROWS; i++)
#pragma unroll
        for (int e = 0; e < PART; e++) totals.at[i][j] += (SUM)get(x[i].at[e]) * (SUM)get(y.at[e]);
#endif
    }
  }
}
template <class Column, class Element>
DEV void each_sum(const ProductArgs& a, Totals& totals, u32 steps, Column column, Element element) {
#if DOT4
  // Unsigned bytes were stored minus 128, and so are their zero points.
  u32 left_zero = (u32)(a.left_zero - (byte_sign((LEFT_T*)0) ? 128 : 0));
  u32 right_zero = (u32)(a.right_zero - (byte_sign((RIGHT_T*)0) ? 128 : 0));
#endif
#pragma unroll
  for (int j = 0; j < THREAD_COLUMNS; j++) {
    if (!column(THREAD_COLUMN + j * 16)) continue;
#pragma unroll
    for (int i = 0; i < THREAD_ROWS; i++) {
      SUM sum = totals.at[i][j];
#if DOT4
      sum += steps * left_zero * right_zero - (u32)totals.left[i] * right_zero - (u32)totals.right[j] * left_zero;
#endif
      element(THREAD_ROW + i * 16, sum);
    }
  }
}
#endif

KERNEL(gemm, 256, ProductArgs) {
  SHARED(Chunk, tiles, 2 * (TILE_ROWS + TILE_COLUMNS) * 5);
#if CONV
  SHARED(Tap, taps, 2 * DEPTH);
#endif
  const u32 half = (TILE_ROWS + TILE_COLUMNS) * PITCH;
  LEFT_T* left_tile = (LEFT_T*)tiles;
  RIGHT_T* right_tile = (RIGHT_T*)tiles + TILE_ROWS * PITCH;
  const u64 blocks = (u64)a.tiles_down * a.tiles_across * a.batches;
  Window w;
#if CONV
  w = window(a, CONV == 2 ? blockIdx.y : 0);
#else
  w.columns = a.columns;
  w.depth = a.depth;
#endif
  u32 begin = CONV == 2 ? 0 : blockIdx.y * a.split_depth;
  u32 end = CONV == 2 ? w.depth : min_of(w.depth, begin + a.split_depth);
  u32 steps = end > begin ? (end - begin + DEPTH - 1) / DEPTH : 0;
  const u64 block = block_number();
  if (block >= blocks) return;
  u32 down = (u32)(block % a.tiles_down), rest = (u32)(block / a.tiles_down);
  u32 across = rest % a.tiles_across, batch = rest / a.tiles_across;
  u32 high = batch / a.low_extent, low = batch - high * a.low_extent;
  u32 row0 = down * TILE_ROWS, column0 = across * TILE_COLUMNS;
  if (column0 >= w.columns) return;

  typedef Tasks<LEFT_T, TILE_ROWS, LEFT_MODE> Left;
  typedef Tasks<RIGHT_T, TILE_COLUMNS, RIGHT_MODE> Right;
  Left left;
  Right right;
  for (int n = 0; n < Left::EACH; n++) {
    u32 row, chunk;
    task_of<TILE_ROWS, Left::R, LEFT_MODE>(n, row, chunk);
    left.is_in[n] = row0 + row < a.rows;
    left.start[n] = a.left + (i64)high * a.left_high + (i64)low * a.left_low + (i64)(row0 + row) * a.left_row;
  }
  for (int n = 0; n < Right::EACH; n++) {
    u32 column, chunk;
    task_of<TILE_COLUMNS, Right::R, RIGHT_MODE>(n, column, chunk);
    column += column0;
    right.is_in[n] = column < w.columns;
    right.start[n] = a.right + (i64)high * a.right_high + (i64)low * a.right_low;
#if CONV
    Position p = position(w, right.is_in[n] ? column : 0);
    right.start[n] += (i64)p.image * a.right_image;
    for (int i = 0; i < 3; i++) {
      right.coordinate[n][i] = w.first[i] + (i32)p.at[i] * w.step[i];
      right.start[n] += (i64)right.coordinate[n][i] * a.right_at[i];
    }
#else
    right.start[n] += (i64)column * a.right_at[2];
#endif
  }
  auto look_up = [&](u32 step) {
#if CONV
    if (threadIdx.x < DEPTH && step < steps) {
      u32 k = begin + step * DEPTH + threadIdx.x;
      Tap tap = tap_of(a, w, k);
      tap.is_in = tap.is_in && k < end;
      taps[step % 2 * DEPTH + threadIdx.x] = tap;
    }
#endif
  };
  auto fetch_tiles = [&](u32 step) {
    u32 k = begin + step * DEPTH;
#if CONV
    fetch_taps<RIGHT_T, TILE_COLUMNS, RIGHT_MODE, false>(right, taps + step % 2 * DEPTH, a, a.right_zero);
#else
    fetch(right, a.right_k, k, end, a.right_zero);
#endif
#if LEFT_TABLE
    fetch_taps<LEFT_T, TILE_ROWS, LEFT_MODE, true>(left, taps + step % 2 * DEPTH, a, a.left_zero);
#else
    fetch(left, a.left_step, k, end, a.left_zero);
#endif
  };
  Totals totals = {};
  look_up(0);
  __syncthreads();
  if (steps) {
    fetch_tiles(0);
    put_tile(left, left_tile);
    put_tile(right, right_tile);
    look_up(1);
  }
  __syncthreads();
  for (u32 step = 0; step < steps; step++) {
    bool more = step + 1 < steps;
    u32 now = step % 2 * half, next = half - now;
    if (more) fetch_tiles(step + 1);
    multiply(totals, left_tile + now, right_tile + now);
    if (more) {
      put_tile(left, left_tile + next);
      put_tile(right, right_tile + next);
      look_up(step + 2);
    }
    __syncthreads();
  }

  u32 column_now = 0;
  Spot s;
  auto column = [&](u32 at) {
    column_now = column0 + at;
    if (column_now >= w.columns) return false;
#if !PARTIAL
    s = spot(a, w, batch, column_now);
#endif
    return true;
  };
  auto element = [&](u32 at, SUM sum) {
    u32 row = row0 + at;
    if (row >= a.rows) return;
#if PARTIAL
    a.partial[(((u64)blockIdx.y * a.batches + batch) * a.rows + row) * a.columns + column_now] = sum;
#else
    finish(a, sum, row, s);
#endif
  };
#if MATRIX
  each_sum(a, totals, column, element);
#else
  each_sum(a, totals, steps * DEPTH, column, element);
#endif
}
