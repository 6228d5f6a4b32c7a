// How blocks of few rows finish: the waves' sums become the result, or, with several parts, the last block combines all
// of them.

typedef Pack<f32, 4> Quad;
// The largest score of a row, and the sum of its weights.
struct __align__(8) Scale { f32 top, sum; };
// Sums of four elements of a row.
struct Summed {
  Quad value;
  Scale scale;
};

DEV Summed no_sums() {
  Summed s = {};
  s.scale.top = -INFINITY_OF(f32);
  return s;
}
DEV void rescale(Summed& s, f32 top) {
  f32 share = exp2_near(s.scale.top - shift_of(top));
  s.scale.top = top;
  s.scale.sum *= share;
#pragma unroll
  for (int i = 0; i < 4; i++) s.value.at[i] *= share;
}
// Adds sums whose largest score is not above this one's.
DEV void add(Summed& s, const Quad& value, Scale scale) {
  f32 share = exp2_near(scale.top - shift_of(s.scale.top));
  s.scale.sum += scale.sum * share;
#pragma unroll
  for (int i = 0; i < 4; i++) s.value.at[i] += value.at[i] * share;
}

// For blocks with THREADS threads in at most WAVES waves, and rows of ROOM elements, a power of two.
template <int THREADS, int WAVES, int ROOM> struct Meeting {
  static constexpr u32 QUADS = ROWS * ROOM / 4;
  // Threads that share the parts of a row.
  static constexpr u32 SPLIT = QUADS < THREADS ? THREADS / QUADS : 1;
  // The size of the arrays in LDS.
  static constexpr u32 SUMS = WAVES * QUADS > THREADS ? WAVES * QUADS : THREADS;
  static constexpr u32 WAVE_SCALES = (WAVES + NEWEST) * ROWS;
  static constexpr u32 SCALES = WAVE_SCALES > THREADS ? WAVE_SCALES : THREADS;

  DEV void store(const CachedArgs& a, const Task& t, u32 quad, const Summed& s) {
    u32 row = quad / (ROOM / 4), e = quad % (ROOM / 4) * 4;
    if (row >= t.count) return;
    f32 factor = share_of(a, t, t.first + row, s.scale.top, s.scale.sum);
    T* out = a.out + out_at(a, t, t.first + row) + e;
#pragma unroll
    for (u32 i = 0; i < 4; i++)
      if (e + i < a.width) out[i] = put<T>(s.value.at[i] * factor);
  }

  // Adds COUNT parts from `part` on, all loaded at once; parts past the end repeat the last one, with a weight of 0.
  template <int COUNT>
  DEV void add_parts(Summed& s, const Task& t, const Quad* partial, const Scale* scales, u32 part, u32 quad) {
    Quad value[COUNT];
    Scale other[COUNT];
#pragma unroll
    for (u32 i = 0; i < COUNT; i++) {
      u32 from = min_of(part + i * SPLIT, t.parts - 1);
      value[i] = partial[from * QUADS + quad];
      other[i] = scales[from * ROWS + quad / (ROOM / 4)];
    }
    f32 top = s.scale.top;
#pragma unroll
    for (u32 i = 0; i < COUNT; i++) {
      if (part + i * SPLIT >= t.parts) other[i].top = -INFINITY_OF(f32);
      top = max_of(top, other[i].top);
    }
    rescale(s, top);
#pragma unroll
    for (u32 i = 0; i < COUNT; i++) add(s, value[i], other[i]);
  }

  // Called after a barrier: `sums` has [waves, QUADS] and `scales` [waves, ROWS], followed by the weights of the newest
  // key in blocks that have it. Both arrays and `is_last` are in LDS.
  DEV void meet(const CachedArgs& a, const Task& t, u32 waves, Quad* sums, Scale* scales, u32* is_last) {
    // [blocks, parts, QUADS] sums, then [blocks, parts, ROWS] scales.
    const u64 parts_before = (u64)blockIdx.x * a.parts;
    Quad* partial = (Quad*)a.partial + parts_before * QUADS;
    Scale* partial_scales = (Scale*)((Quad*)a.partial + (u64)gridDim.x * a.parts * QUADS) + parts_before * ROWS;
    for (u32 at = threadIdx.x; at < QUADS; at += THREADS) {
      const u32 row = at / (ROOM / 4);
      Summed s = no_sums();
#pragma unroll
      for (u32 w = 0; w < waves; w++) s.scale.top = max_of(s.scale.top, scales[w * ROWS + row].top);
#if NEWEST
      if (has_newest(t)) {
        const u32 e = at % (ROOM / 4) * 4;
        const Scale newest = scales[waves * ROWS + row];
        s.scale.top = max_of(s.scale.top, newest.top);
        Quad value = {};
        if (e < a.width) {
          const Pack<T, 4> stored = *(const Pack<T, 4>*)(newest_value(a, t) + e);
#pragma unroll
          for (int i = 0; i < 4; i++) value.at[i] = get(stored.at[i]);
        }
        add(s, value, newest);
      }
#endif
#pragma unroll
      for (u32 w = 0; w < waves; w++) add(s, sums[w * QUADS + at], scales[w * ROWS + row]);
      if (t.parts == 1) {
        store(a, t, at, s);
      } else {
        partial[blockIdx.y * QUADS + at] = s.value;
        if (at % (ROOM / 4) == 0) partial_scales[blockIdx.y * ROWS + row] = s.scale;
      }
    }
    if (t.parts == 1) return;
    if (!is_last_block(a.counters + blockIdx.x, t.parts, is_last)) return;
    for (u32 at = threadIdx.x; at < SPLIT * QUADS; at += THREADS) {
      const u32 quad = at % QUADS;
      Summed s = no_sums();
      u32 part = at / QUADS;
      for (; part + 8 * SPLIT < t.parts; part += 16 * SPLIT) add_parts<16>(s, t, partial, partial_scales, part, quad);
      if (part < t.parts) add_parts<8>(s, t, partial, partial_scales, part, quad);
      if constexpr (SPLIT > 1) {
        sums[at] = s.value;
        scales[at] = s.scale;
        __syncthreads();
        if (at >= QUADS) return;
        f32 top = s.scale.top;
#pragma unroll
        for (u32 i = 1; i < SPLIT; i++) top = max_of(top, scales[i * QUADS + quad].top);
        rescale(s, top);
#pragma unroll
        for (u32 i = 1; i < SPLIT; i++) add(s, sums[i * QUADS + quad], scales[i * QUADS + quad]);
      }
      store(a, t, quad, s);
    }
  }
};
