// Rotates heads by the angles of a position: `half` pairs of each head are rotated, and the rest is unchanged. Sums are
// f32.
//
// T: the stored type. BEHIND: positions follow from lengths, else they are given. INTERLEAVED: pairs are adjacent, else
// `half` apart.

// The row of angles for a token; `number` is its position or the length of its cache. Negative if there is none.
DEV i64 position_from(i64 number, i64 shift, u32 row, i64 count) {
  i64 position = BEHIND ? (i64)filled_before(number, shift) + row : number;
  return position >= 0 && position < count ? position : -1;
}

// The angles of one position.
struct Angles {
  const T* cosines;
  const T* sines;
  i64 cosine_step, sine_step;
  u32 half;
};

// N rotated elements of a head, from `at` on. Each is the sum of its own part and its partner's, which other threads
// read too.
template <int N> DEV Pack<T, N> turned_pack(const T* head, i64 step, u32 at, const Angles& angles) {
  Pack<T, N> x = *(const Pack<T, N>*)(head + (i64)at * step);
  if (at >= 2 * angles.half) return x;
  if constexpr (INTERLEAVED && N > 1) {
    Pack<T, N / 2> c = *(const Pack<T, N / 2>*)(angles.cosines + (i64)(at / 2) * angles.cosine_step);
    Pack<T, N / 2> s = *(const Pack<T, N / 2>*)(angles.sines + (i64)(at / 2) * angles.sine_step);
#pragma unroll
    for (int i = 0; i < N; i += 2) {
      f32 u = get(x.at[i]), v = get(x.at[i + 1]), cosine = get(c.at[i / 2]), sine = get(s.at[i / 2]);
      x.at[i] = put<T>(u * cosine - v * sine);
      x.at[i + 1] = put<T>(v * cosine + u * sine);
    }
  } else {
    const bool second = INTERLEAVED ? at % 2 : at >= angles.half;
    const u32 distance = INTERLEAVED ? 1 : angles.half, first = second ? at - distance : at;
    const i64 angle = INTERLEAVED ? first / 2 : first;
    Pack<T, N> y = *(const Pack<T, N>*)(head + (i64)(second ? first : at + distance) * step);
    Pack<T, N> c = *(const Pack<T, N>*)(angles.cosines + angle * angles.cosine_step);
    Pack<T, N> s = *(const Pack<T, N>*)(angles.sines + angle * angles.sine_step);
#pragma unroll
    for (int i = 0; i < N; i++) {
      f32 own = get(x.at[i]) * get(c.at[i]), other = get(y.at[i]) * get(s.at[i]);
      x.at[i] = put<T>(second ? own + other : own - other);
    }
  }
  return x;
}
