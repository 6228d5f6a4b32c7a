// Tiles in flight from memory to LDS. The settings are those of tiles.h.
//
// What is in flight is words, and is loaded without branches: a compiler that finds a load of halves behind a branch
// takes them apart in that branch, and so waits for the load at once. Rows and elements that do not exist are read from
// those that do, and become zeros when they land.
#define THREADS (WAVES * WAVE)
typedef Pack<T, 8> Eight;
typedef Pack<u32, 4> Words;

// Rows of `elems` elements; rows from `end` on are zeros. EIGHTS: eight elements can be read at once.
template <bool EIGHTS> struct Rows {
  const T* start;
  i64 row, at;
  u32 end, elems;
};
// N elements of a row, all of them within eight that can be read at once.
template <int N, bool EIGHTS> DEV Pack<T, N> pack_of(const Rows<EIGHTS>& from, u32 row, u32 at) {
  Pack<T, N> r = {};
  if (row >= from.end) return r;
  const T* start = from.start + (i64)row * from.row;
  if (EIGHTS) {
    if (at < from.elems) r = *(const Pack<T, N>*)(start + at);
    return r;
  }
#pragma unroll
  for (u32 i = 0; i < N; i++)
    if (at + i < from.elems) r.at[i] = start[(i64)(at + i) * from.at];
  return r;
}

// A tile in flight to LDS: COUNT rows of ELEMS elements. TURNED: the tile is transposed, two rows becoming two adjacent
// elements. Data that cannot be read in chunks, or does not fit in registers, is read when it is needed.
template <int COUNT, int ELEMS, int PITCH, bool TURNED, bool EIGHTS> struct Flight {
  static constexpr int ROWS = COUNT, LENGTH = ELEMS, LDS_PITCH = PITCH;
  static constexpr bool IS_TURNED = TURNED, IS_FULL = !PLAIN || (SPLIT > 1 && !TURNED);
  static constexpr bool IS_LATE = !EIGHTS || (MATRIX == 2 && IS_FULL && ELEMS > 64);
#ifdef __CUDACC_RTC__
  static constexpr bool IS_DIRECT = EIGHTS && !TURNED;
#else
  static constexpr bool IS_DIRECT = false;
#endif
  static constexpr int TOGETHER = TURNED ? 2 : 1;
  static constexpr int TASKS = COUNT / TOGETHER * (ELEMS / 8);
  static constexpr int EACH = (TASKS + THREADS - 1) / THREADS;
  // Whether a thread's tasks are the same elements of every STEP-th row.
  static constexpr bool IS_EVEN = TASKS % THREADS == 0 && THREADS % (ELEMS / 8) == 0;
  static constexpr int STEP = THREADS / (ELEMS / 8);
  Words held[IS_DIRECT || IS_LATE ? 1 : EACH][TOGETHER];
};
// The row and element of a task: adjacent tasks write adjacent elements.
template <class F> DEV void place_of(const F&, u32 task, u32& row, u32& at) {
  row = F::IS_TURNED ? task % (F::ROWS / 2) * 2 : task / (F::LENGTH / 8);
  at = (F::IS_TURNED ? task / (F::ROWS / 2) : task % (F::LENGTH / 8)) * 8;
}
#ifdef __CUDACC_RTC__
// Copies a chunk, or zeros, into LDS asynchronously.
DEV void copy_chunk(u32 to, const T* from, bool is_in) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" : : "r"(to), "l"(from), "r"(is_in ? 16 : 0) : "memory");
}
#endif
template <class F> DEV void put_task(const F&, u16* tile, u32 row, u32 at, const Words* held) {
  if (!F::IS_TURNED) {
    *(Words*)(tile + row * F::LDS_PITCH + at) = held[0];
    return;
  }
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const u32 one = held[0].at[i], other = held[F::TOGETHER - 1].at[i];
    *(u32*)(tile + (at + 2 * i) * F::LDS_PITCH + row) = (one & 0xffffu) | other << 16;
    *(u32*)(tile + (at + 2 * i + 1) * F::LDS_PITCH + row) = one >> 16 | (other & 0xffff0000u);
  }
}
template <class F, bool EIGHTS> DEV void start(F& flight, u16* tile, const Rows<EIGHTS>& from, u32 first) {
  // Without any row there is nothing to read.
  if (F::IS_LATE || (!F::IS_DIRECT && first >= from.end)) return;
#ifdef __CUDACC_RTC__
  if (F::IS_DIRECT && F::IS_EVEN) {
    u32 row, at;
    place_of(flight, threadIdx.x, row, at);
    const T* source = from.start + (i64)(first + row) * from.row + at;
    u32 left = at < from.elems && first + row < from.end ? from.end - first - row : 0;
    const u32 target = (u32)__cvta_generic_to_shared(tile + row * F::LDS_PITCH + at);
#pragma unroll
    for (int n = 0; n < F::EACH; n++) {
      copy_chunk(target + n * F::STEP * F::LDS_PITCH * 2, source, n * F::STEP < left);
      source += F::STEP * from.row;
    }
    return;
  }
#endif
#pragma unroll
  for (int n = 0; n < F::EACH; n++) {
    u32 task = threadIdx.x + n * THREADS, row, at;
    place_of(flight, task, row, at);
    if (F::TASKS % THREADS && task >= F::TASKS) continue;
    if (!F::IS_DIRECT) {
#pragma unroll
      for (int i = 0; i < F::TOGETHER; i++) {
        const u32 near = first + row + i < from.end ? first + row + i : first;
        flight.held[n][i] = *(const Words*)(from.start + (i64)near * from.row + (at < from.elems ? at : 0));
      }
      continue;
    }
#ifdef __CUDACC_RTC__
    copy_chunk((u32)__cvta_generic_to_shared(tile + row * F::LDS_PITCH + at), from.start + (i64)(first + row) * from.row + at,
               first + row < from.end && at < from.elems);
#endif
  }
}
// Takes the same arguments as start().
template <class F, bool EIGHTS> DEV void land(const F& flight, u16* tile, const Rows<EIGHTS>& from, u32 first) {
#ifdef __CUDACC_RTC__
  if (F::IS_DIRECT) asm volatile("cp.async.wait_all;" ::: "memory");
#endif
  if (F::IS_DIRECT) return;
  if (F::IS_LATE) {
#pragma unroll 1
    for (u32 task = threadIdx.x; task < F::TASKS; task += THREADS) {
      u32 row, at;
      place_of(flight, task, row, at);
      Words held[F::TOGETHER];
#pragma unroll
      for (int i = 0; i < F::TOGETHER; i++) {
        const Eight pack = pack_of<8>(from, first + row + i, at);
        COPY_BYTES(&held[i], &pack, 16);
      }
      put_task(flight, tile, row, at, held);
    }
    return;
  }
#pragma unroll
  for (int n = 0; n < F::EACH; n++) {
    u32 task = threadIdx.x + n * THREADS, row, at;
    place_of(flight, task, row, at);
    if (F::TASKS % THREADS && task >= F::TASKS) continue;
    Words held[F::TOGETHER];
#pragma unroll
    for (int i = 0; i < F::TOGETHER; i++) {
      const bool is_in = first + row + i < from.end && at < from.elems;
#pragma unroll
      for (int w = 0; w < 4; w++) held[i].at[w] = is_in ? flight.held[n][i].at[w] : 0;
    }
    put_task(flight, tile, row, at, held);
  }
}
