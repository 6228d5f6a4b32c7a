// Convolutions of images with channels innermost, and products of two matrices that are both contiguous along k: a
// block computes TILE_ROWS x TILE_COLUMNS sums with matrix instructions.
//
// A row is an output position (image, y, x), a column an output channel. k is a tap and a channel of it, channels
// innermost, in both operands; a chunk is 8 adjacent k, which belong to one tap. A step is DEPTH of k. A thread always
// loads the same chunk of a step, so it computes the chunk's tap once for all of its rows. Loads have no branches: a
// chunk outside the image is read from the start of the tensor and replaced by zeros when it is stored to LDS, so all
// loads of a step are in flight while the step before it is multiplied.
//
// GATHER: 1 for few channels, where chunks are not contiguous or not aligned: they are read element by element, from
// positions in a table of all k at TAPS_AT in LDS, and weights too.
//
// IS_DIRECT, for the twin: chunks are copied into LDS asynchronously, and STAGES steps are there at a time. Otherwise one
// step is in registers and one in LDS, which leaves room for several blocks on a compute unit.
//
// Sums pass through LDS once more, so that a lane finishes 8 adjacent channels of a position: `operands_at` reads what
// the epilogue needs as packs, before the sums are there, and the result is stored as one.
//
// T: the operands' type. BIAS_T, OUT_T: stored types, 2 bytes each. CONV: 0 for matrices, whose rows are a.x_row apart.
// THREADS, WAVE; WAVES_ACROSS: waves along columns. MATRIX: see mma.h. PARTIAL: 1 to store plain sums of a part of k,
// which conv_join adds up. BIAS, OPERANDS, FUSED: as in product.h, with `epilogue` for one element of a pack. Offsets
// of operands are below 2^30 bytes.
#define CHUNK 8
#define CHUNKS (DEPTH / CHUNK)
#define PITCH (DEPTH + CHUNK)
#define STAGE ((TILE_ROWS + TILE_COLUMNS) * PITCH)
#define ROW_STEP (THREADS / CHUNKS)
#define X_EACH (TILE_ROWS / ROW_STEP)
#define W_EACH (TILE_COLUMNS / ROW_STEP)
#define WAVE_ROWS (TILE_ROWS / (THREADS / WAVE / WAVES_ACROSS))
#define WAVE_COLUMNS (TILE_COLUMNS / WAVES_ACROSS)
// Rows of a wave's sums in LDS; 4 more words keep adjacent rows in different banks.
#define SUMS_PITCH (WAVE_COLUMNS + 4)
// The packs that a lane finishes of 16 rows.
#define PACKS (WAVE_COLUMNS / CHUNK)
#define FINISHED (16 * PACKS / WAVE)

typedef Pack<u32, 4> Chunk;

// The thread's chunk of k: its distance from the first tap's first channel, in coordinates and in bytes.
struct Cursor {
  u32 k, channel, tap_x;
  i32 move_y, move_x, bytes;
};
DEV void place(Cursor& c, const ConvArgs& a) { c.bytes = (c.move_y * a.x_y + c.move_x * a.x_x + (i32)c.channel) * 2; }
DEV Cursor cursor_at(const ConvArgs& a, u32 k) {
  Cursor c = {};
  c.k = k;
#if CONV
  u32 tap = k / a.channels, tap_y = tap / a.taps_x;
  c.channel = k - tap * a.channels;
  c.tap_x = tap - tap_y * a.taps_x;
  c.move_y = (i32)tap_y * a.dilation_y;
  c.move_x = (i32)c.tap_x * a.dilation_x;
  place(c, a);
#else
  c.bytes = (i32)k * 2;
#endif
  return c;
}
DEV void advance(Cursor& c, const ConvArgs& a) {
  c.k += DEPTH;
#if CONV
  c.channel += DEPTH;
  while (c.channel >= a.channels) {
    c.channel -= a.channels;
    c.move_x += a.dilation_x;
    if (++c.tap_x == a.taps_x) {
      c.tap_x = 0;
      c.move_x = 0;
      c.move_y += a.dilation_y;
    }
  }
  place(c, a);
#else
  c.bytes += DEPTH * 2;
#endif
}

// What the thread loads of every step: where its rows and columns start, and the input's coordinates there.
struct Lines {
  i32 x[X_EACH], w[W_EACH];
#if CONV
  i32 at_y[X_EACH], at_x[X_EACH];
#endif
};
DEV Lines lines_of(const ConvArgs& a, u32 row0, u32 column0) {
  Lines lines;
#pragma unroll
  for (int n = 0; n < X_EACH; n++) {
    u32 row = row0 + threadIdx.x / CHUNKS + n * ROW_STEP;
#if CONV
    u32 image = row / a.plane, rest = row - image * a.plane, y = rest / a.out_x, x = rest - y * a.out_x;
    lines.at_y[n] = (i32)y * a.stride_y - a.pad_y;
    lines.at_x[n] = (i32)x * a.stride_x - a.pad_x;
    lines.x[n] = ((i32)image * a.x_row + lines.at_y[n] * a.x_y + lines.at_x[n] * a.x_x) * 2;
    if (row >= a.rows) lines.at_y[n] = -(1 << 30);
#else
    lines.x[n] = (i32)min_of(row, a.rows - 1) * a.x_row * 2;
#endif
  }
#pragma unroll
  for (int n = 0; n < W_EACH; n++) {
    u32 column = column0 + threadIdx.x / CHUNKS + n * ROW_STEP;
    lines.w[n] = (i32)min_of(column, a.columns - 1) * a.w_column * 2;
  }
  return lines;
}
#if GATHER
// An element of k: the distance from the first one in bytes, and in coordinates.
struct Tap {
  i32 bytes;
  i16 y, x;
};
// Fills the table up to a whole step; elements past the last are outside every image.
DEV void fill_taps(Tap* taps, const ConvArgs& a) {
  for (u32 k = threadIdx.x; k < (a.depth + DEPTH - 1) / DEPTH * DEPTH; k += THREADS) {
    u32 tap = k / a.channels, channel = k - tap * a.channels, y = tap / a.taps_x, x = tap - y * a.taps_x;
    i32 move_y = (i32)y * a.dilation_y, move_x = (i32)x * a.dilation_x;
    bool is_in = k < a.depth;
    taps[k].bytes = is_in ? (move_y * a.x_y + move_x * a.x_x + (i32)channel * a.x_channel) * 2 : 0;
    taps[k].y = is_in ? (i16)move_y : (i16)-32768;
    taps[k].x = (i16)move_x;
  }
}
// A step in registers, and which of its elements exist: a byte for each row, and one for all columns.
struct Held {
  u16 x[X_EACH][CHUNK], w[W_EACH][CHUNK];
  u32 rows, columns;
};
DEV void fetch(Held& held, const Lines& lines, u32 k, const Tap* taps, const ConvArgs& a) {
  held.rows = held.columns = 0;
#pragma unroll
  for (int e = 0; e < CHUNK; e++) {
    const Tap tap = taps[k + e];
#pragma unroll
    for (int n = 0; n < X_EACH; n++) {
      bool is_in = ((u32)(lines.at_y[n] + tap.y) < a.in_y) & ((u32)(lines.at_x[n] + tap.x) < a.in_x);
      held.rows |= (u32)is_in << (n * CHUNK + e);
      held.x[n][e] = *(const u16*)((const u8*)a.x + (is_in ? (u32)(lines.x[n] + tap.bytes) : 0));
    }
    bool is_in = k + e < a.depth;
    held.columns |= (u32)is_in << e;
#pragma unroll
    for (int n = 0; n < W_EACH; n++) held.w[n][e] = *(const u16*)((const u8*)a.w + (is_in ? (u32)lines.w[n] + (k + e) * 2 : 0));
  }
}
DEV void put(u16* to, const u16* elems, u32 is_in) {
  Pack<u32, 4> chunk;
#pragma unroll
  for (int i = 0; i < 4; i++)
    chunk.at[i] = (is_in >> (2 * i) & 1 ? elems[2 * i] : 0u) | (is_in >> (2 * i + 1) & 1 ? elems[2 * i + 1] : 0u) << 16;
  *(Pack<u32, 4>*)to = chunk;
}
DEV void put_step(u16* stage, const Held& held) {
  u16* to = stage + threadIdx.x / CHUNKS * PITCH + threadIdx.x % CHUNKS * CHUNK;
#pragma unroll
  for (int n = 0; n < X_EACH; n++) put(to + n * ROW_STEP * PITCH, held.x[n], held.rows >> (n * CHUNK));
  to += TILE_ROWS * PITCH;
#pragma unroll
  for (int n = 0; n < W_EACH; n++) put(to + n * ROW_STEP * PITCH, held.w[n], held.columns);
}
#else
// Whether a row's chunk exists.
DEV bool reaches(const Lines& lines, int n, const Cursor& c, const ConvArgs& a, u32 end) {
#if CONV
  return (c.k < end) & ((u32)(lines.at_y[n] + c.move_y) < a.in_y) & ((u32)(lines.at_x[n] + c.move_x) < a.in_x);
#else
  return c.k < end;
#endif
}
DEV const void* at_bytes(const void* start, u32 bytes) { return (const u8*)start + bytes; }
#endif

#if GATHER
#elif IS_DIRECT
// Starts copies of a step into LDS.
DEV void start_step(u16* stage, const Lines& lines, const Cursor& c, const ConvArgs& a, u32 end) {
  u16* to = stage + threadIdx.x / CHUNKS * PITCH + threadIdx.x % CHUNKS * CHUNK;
#pragma unroll
  for (int n = 0; n < X_EACH; n++) {
    bool is_in = reaches(lines, n, c, a, end);
    copy_ahead_or_zeros(to + n * ROW_STEP * PITCH, at_bytes(a.x, is_in ? (u32)(lines.x[n] + c.bytes) : 0), is_in);
  }
  to += TILE_ROWS * PITCH;
  bool is_in = c.k < end;
#pragma unroll
  for (int n = 0; n < W_EACH; n++)
    copy_ahead_or_zeros(to + n * ROW_STEP * PITCH, at_bytes(a.w, is_in ? (u32)lines.w[n] + c.k * 2 : 0), is_in);
}
#else
// A step in registers, and which of its chunks exist: a bit for each row, and one for all columns.
struct Held {
  Chunk x[X_EACH], w[W_EACH];
  u32 is_in;
};
DEV void fetch(Held& held, const Lines& lines, const Cursor& c, const ConvArgs& a, u32 end) {
  held.is_in = 0;
#pragma unroll
  for (int n = 0; n < X_EACH; n++) {
    bool is_in = reaches(lines, n, c, a, end);
    held.is_in |= (u32)is_in << n;
    held.x[n] = *(const Chunk*)(at_bytes(a.x, is_in ? (u32)(lines.x[n] + c.bytes) : 0));
  }
  bool is_in = c.k < end;
  held.is_in |= (u32)is_in << X_EACH;
#pragma unroll
  for (int n = 0; n < W_EACH; n++) held.w[n] = *(const Chunk*)(at_bytes(a.w, is_in ? (u32)lines.w[n] + c.k * 2 : 0));
}
DEV void put(u16* to, Chunk chunk, u32 is_in) {
#pragma unroll
  for (int i = 0; i < 4; i++) chunk.at[i] = is_in ? chunk.at[i] : 0;
  *(Chunk*)to = chunk;
}
DEV void put_step(u16* stage, const Held& held) {
  u16* to = stage + threadIdx.x / CHUNKS * PITCH + threadIdx.x % CHUNKS * CHUNK;
#pragma unroll
  for (int n = 0; n < X_EACH; n++) put(to + n * ROW_STEP * PITCH, held.x[n], held.is_in >> n & 1);
  to += TILE_ROWS * PITCH;
#pragma unroll
  for (int n = 0; n < W_EACH; n++) put(to + n * ROW_STEP * PITCH, held.w[n], held.is_in >> X_EACH);
}
#endif

struct Totals { Sums at[WAVE_ROWS / 16][WAVE_COLUMNS / 16]; };
DEV void multiply(Totals& totals, const u16* stage) {
  u32 lane = threadIdx.x % WAVE, wave = threadIdx.x / WAVE;
  const u16* l = stage + wave / WAVES_ACROSS * WAVE_ROWS * PITCH;
  const u16* r = stage + (TILE_ROWS + wave % WAVES_ACROSS * WAVE_COLUMNS) * PITCH;
#pragma unroll
  for (int k = 0; k < DEPTH; k += 16) {
    Fragment x[WAVE_ROWS / 16], y[WAVE_COLUMNS / 16];
#pragma unroll
    for (int i = 0; i < WAVE_ROWS / 16; i++) x[i] = load_left(l + i * 16 * PITCH + k, PITCH, lane);
#pragma unroll
    for (int j = 0; j < WAVE_COLUMNS / 16; j++) y[j] = load_right(r + j * 16 * PITCH + k, PITCH, lane);
#pragma unroll
    for (int i = 0; i < WAVE_ROWS / 16; i++)
#pragma unroll
      for (int j = 0; j < WAVE_COLUMNS / 16; j++) mma<T>(totals.at[i][j], x[i], y[j]);
    MMA_FENCE();
  }
}

KERNEL_EARLY(conv, THREADS, ConvArgs) {
  DYN_SHARED(u16, tiles);
  u32 down = blockIdx.x / a.tiles_across, across = blockIdx.x - down * a.tiles_across;
  u32 row0 = down * TILE_ROWS, column0 = across * TILE_COLUMNS;
  u32 begin = blockIdx.y * a.split_depth, end = min_of(a.depth, begin + a.split_depth);
  u32 steps = (end - begin + DEPTH - 1) / DEPTH;
  Lines lines = lines_of(a, row0, column0);
  Totals totals = {};
  EARLIER_DONE();
#if GATHER
  Tap* taps = (Tap*)((u8*)tiles + TAPS_AT);
  fill_taps(taps, a);
  __syncthreads();
  u32 k = threadIdx.x % CHUNKS * CHUNK;
  Held held;
  fetch(held, lines, k, taps, a);
#pragma unroll 1
  for (u32 step = 0; step < steps; step++) {
    put_step(tiles, held);
    __syncthreads();
    k += DEPTH;
    if (step + 1 < steps) fetch(held, lines, k, taps, a);
    multiply(totals, tiles);
    __syncthreads();
  }
#elif IS_DIRECT
  Cursor cursor = cursor_at(a, begin + threadIdx.x % CHUNKS * CHUNK);
#pragma unroll
  for (u32 step = 0; step < STAGES - 1; step++) {
    if (step < steps) start_step(tiles + step * STAGE, lines, cursor, a, end);
    advance(cursor, a);
    end_group();
  }
  u32 now = 0, next = STAGES - 1;
#pragma unroll 1
  for (u32 step = 0; step < steps; step++) {
    await_groups<STAGES - 2>();
    // The step has arrived, and no wave still reads the one before it.
    __syncthreads();
    if (step + STAGES - 1 < steps) start_step(tiles + next * STAGE, lines, cursor, a, end);
    advance(cursor, a);
    end_group();
    multiply(totals, tiles + now * STAGE);
    next = now;
    now = now + 1 == STAGES ? 0 : now + 1;
  }
  await_groups<0>();
#else
  Cursor cursor = cursor_at(a, begin + threadIdx.x % CHUNKS * CHUNK);
  Held held;
  fetch(held, lines, cursor, a, end);
#pragma unroll 1
  for (u32 step = 0; step < steps; step++) {
    put_step(tiles, held);
    __syncthreads();
    advance(cursor, a);
    // Past the last step, this reads the start of the tensors.
    fetch(held, lines, cursor, a, end);
    multiply(totals, tiles);
    __syncthreads();
  }
#endif

  // 16 rows of a wave at a time.
  u32 lane = threadIdx.x % WAVE, wave = threadIdx.x / WAVE;
  f32* sums = (f32*)tiles + wave * 16 * SUMS_PITCH;
  u32 first_row = row0 + wave / WAVES_ACROSS * WAVE_ROWS, first_column = column0 + wave % WAVES_ACROSS * WAVE_COLUMNS;
#pragma unroll
  for (int i = 0; i < WAVE_ROWS / 16; i++) {
    u32 row[FINISHED], column[FINISHED];
    bool is_in[FINISHED];
#if !PARTIAL
    Operands operands[FINISHED];
#endif
#pragma unroll
    for (int n = 0; n < FINISHED; n++) {
      u32 task = lane + n * WAVE;
      row[n] = first_row + i * 16 + task / PACKS;
      column[n] = first_column + task % PACKS * CHUNK;
      is_in[n] = row[n] < a.rows && column[n] < a.columns;
#if !PARTIAL
      operands[n] = operands_at(a, min_of(row[n], a.rows - 1), min_of(column[n], a.columns - CHUNK));
#endif
    }
    // All waves have read the tiles, or the rows before these.
    __syncthreads();
#pragma unroll
    for (int j = 0; j < WAVE_COLUMNS / 16; j++)
#pragma unroll
      for (int r = 0; r < MMA_ROWS; r++)
#pragma unroll
        for (int c = 0; c < MMA_COLUMNS; c++)
          sums[mma_row(lane, r) * SUMS_PITCH + j * 16 + mma_column(lane, c)] = totals.at[i][j].at[mma_at(r, c)];
    __syncthreads();
#pragma unroll
    for (int n = 0; n < FINISHED; n++) {
      u32 task = lane + n * WAVE;
      Eight eight;
      const f32* from = sums + task / PACKS * SUMS_PITCH + task % PACKS * CHUNK;
      eight.low = *(const Pack<f32, 4>*)from;
      eight.high = *(const Pack<f32, 4>*)(from + 4);
      if (!is_in[n]) continue;
#if PARTIAL
      f32* to = a.partial + ((u64)blockIdx.y * a.rows + row[n]) * a.columns + column[n];
      store_whole((Pack<f32, 4>*)to, eight.low);
      store_whole((Pack<f32, 4>*)(to + 4), eight.high);
#else
      finish(a, eight, operands[n], row[n], column[n]);
#endif
    }
  }
}
