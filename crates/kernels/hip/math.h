// Elementary functions beyond those of the prelude. In single precision they use code that every compiler accepts, so
// that all targets agree; in double precision they use the compiler's library, which bare clang lacks.
//
// Largest errors in units in the last place over all finite arguments with a normal result: expm1 3, log1p 4, tanh 3,
// sigmoid 4, erf 3, sin and cos 3, tan 5, asin and acos 4, atan 3, atan2 4, sinh and cosh 4, asinh, acosh and atanh 6,
// pow 4, fmod and mod 0.
#if defined(GPU_SIM)
#define LIBRARY(name) __builtin_##name
#else
#define LIBRARY(name) name
#endif

#define NAN_F32 bits_f32(0x7fc00000u)
#define PI_2 1.57079637e+00f

DEV f32 recip_of(f32 v) { return 1.0f / v; }
DEV f32 rsqrt_of(f32 v) { return 1.0f / sqrtf(v); }
DEV f32 sigmoid_of(f32 v) { return 1.0f / (1.0f + expf(-v)); }

DEV f32 expm1_of(f32 v) {
  if (!(fabsf(v) < 0.5f)) return expf(v) - 1.0f;
  f32 p = 1.998963562e-04f;
  p = fmaf(p, v, 1.399757573e-03f);
  p = fmaf(p, v, 8.333085105e-03f);
  p = fmaf(p, v, 4.166531190e-02f);
  p = fmaf(p, v, 1.666666716e-01f);
  p = fmaf(p, v, 5.000000596e-01f);
  return fmaf(p * v, v, v);
}

// The ratio corrects the rounding error of 1 + v.
DEV f32 log1p_of(f32 v) {
  f32 u = 1.0f + v;
  if (u == 1.0f || u == INFINITY_OF(f32)) return v;
  return logf(u) * (v / (u - 1.0f));
}

DEV f32 tanh_of(f32 v) {
  f32 a = fabsf(v);
  if (a < 0.625f) {
    f32 z = v * v;
    f32 p = -5.704943091e-03f;
    p = fmaf(p, z, 2.063904330e-02f);
    p = fmaf(p, z, -5.373970047e-02f);
    p = fmaf(p, z, 1.333144158e-01f);
    p = fmaf(p, z, -3.333328068e-01f);
    return fmaf(p * z, v, v);
  }
  return copysignf(1.0f - 2.0f / (expf(2.0f * a) + 1.0f), v);
}

// v times a polynomial of its square, or 1 minus the exponential of a polynomial that approximates log(1 - erf).
DEV f32 erf_of(f32 v) {
  f32 a = fabsf(v);
  if (a < 0.93f) {
    f32 z = v * v;
    f32 p = -5.953727523e-04f;
    p = fmaf(p, z, 4.985937383e-03f);
    p = fmaf(p, z, -2.676171809e-02f);
    p = fmaf(p, z, 1.128168255e-01f);
    p = fmaf(p, z, -3.761247993e-01f);
    p = fmaf(p, z, 1.283791065e-01f);
    return fmaf(p, v, v);
  }
  f32 b = a < 4.0f ? a : 4.0f;
  f32 p = 1.938120986e-04f;
  p = fmaf(p, b, -3.022474470e-03f);
  p = fmaf(p, b, 2.214469761e-02f);
  p = fmaf(p, b, -1.037620828e-01f);
  p = fmaf(p, b, -6.373741031e-01f);
  p = fmaf(p, b, -1.127562523e+00f);
  p = fmaf(p, b, -2.228420781e-04f);
  return v != v ? v : copysignf(1.0f - expf(p), v);
}

// Word `at` of 32 zero bits followed by the binary digits of 2/pi.
DEV u32 two_over_pi(u32 at) {
  return at == 0   ? 0u
         : at == 1 ? 0xa2f9836eu
         : at == 2 ? 0x4e441529u
         : at == 3 ? 0xfc2757d1u
         : at == 4 ? 0xf534ddc0u
         : at == 5 ? 0xdb629599u
         : at == 6 ? 0x3c439041u
                   : 0xfe5163abu;
}

// v as quadrant * pi/2 + the result, which is within pi/4 of zero. Large arguments are multiplied only by the relevant
// digits of 2/pi: those before give whole turns.
DEV f32 reduce_angle(f32 v, i32& quadrant) {
  if (fabsf(v) < 40000.0f) {
    f32 k = rintf(v * 6.366197467e-01f);
    quadrant = (i32)k;
    f32 r = fmaf(k, -1.570796371e+00f, v);
    r = fmaf(k, 4.371138829e-08f, r);
    return fmaf(k, 1.715124510e-15f, r);
  }
  u32 bits = f32_bits(v) & 0x7fffffffu;
  if (bits >= 0x7f800000u) {
    quadrant = 0;
    return NAN_F32;
  }
  u32 mantissa = (bits & 0x7fffffu) | 0x800000u, first = (bits >> 23) - 120;
  u32 word = first >> 5, shift = first & 31;
  u32 window[3];
  for (u32 i = 0; i < 3; i++) {
    u64 pair = (u64)two_over_pi(word + i) << 32 | two_over_pi(word + i + 1);
    window[i] = (u32)(pair << shift >> 32);
  }
  u64 low = (u64)mantissa * window[2];
  u64 middle = (u64)mantissa * window[1] + (low >> 32);
  u32 high = mantissa * window[0] + (u32)(middle >> 32);
  u64 turns = (u64)high << 32 | (u32)middle;
  i64 part = (i64)(turns << 2 | (u32)low >> 30);
  i32 q = (i32)(turns >> 62) + (part < 0 ? 1 : 0);
  f32 r = (f32)part * 8.515303950e-20f;  // pi/2 / 2^64
  bool negative = v < 0.0f;
  quadrant = negative ? -q : q;
  return negative ? -r : r;
}
DEV f32 sin_reduced(f32 r) {
  f32 z = r * r;
  f32 p = 2.718311180e-06f;
  p = fmaf(p, z, -1.983933471e-04f);
  p = fmaf(p, z, 8.333329111e-03f);
  p = fmaf(p, z, -1.666666716e-01f);
  return fmaf(p * z, r, r);
}
DEV f32 cos_reduced(f32 r) {
  f32 z = r * r;
  f32 p = 2.443849735e-05f;
  p = fmaf(p, z, -1.388736768e-03f);
  p = fmaf(p, z, 4.166664556e-02f);
  p = fmaf(p, z, -0.5f);
  return fmaf(p, z, 1.0f);
}
DEV f32 sin_quadrant(f32 r, i32 quadrant) {
  f32 s = quadrant & 1 ? cos_reduced(r) : sin_reduced(r);
  return quadrant & 2 ? -s : s;
}
DEV f32 sin_of(f32 v) {
  i32 quadrant;
  f32 r = reduce_angle(v, quadrant);
  return sin_quadrant(r, quadrant);
}
DEV f32 cos_of(f32 v) {
  i32 quadrant;
  f32 r = reduce_angle(v, quadrant);
  return sin_quadrant(r, quadrant + 1);
}
DEV f32 tan_of(f32 v) {
  i32 quadrant;
  f32 r = reduce_angle(v, quadrant);
  f32 s = sin_reduced(r), c = cos_reduced(r);
  return quadrant & 1 ? -c / s : s / c;
}

DEV f32 asin_half(f32 v) {  // up to 1/2
  f32 z = v * v;
  f32 p = 4.221818969e-02f;
  p = fmaf(p, z, 2.414781600e-02f);
  p = fmaf(p, z, 4.547705874e-02f);
  p = fmaf(p, z, 7.495242357e-02f);
  p = fmaf(p, z, 1.666675359e-01f);
  return fmaf(p * z, v, v);
}
DEV f32 asin_of(f32 v) {
  f32 a = fabsf(v);
  if (a <= 0.5f) return asin_half(v);
  return copysignf(fmaf(-2.0f, asin_half(sqrtf(0.5f * (1.0f - a))), PI_2), v);
}
DEV f32 acos_of(f32 v) {
  if (fabsf(v) <= 0.5f) return PI_2 - (asin_half(v) + 4.371138829e-08f);
  f32 h = 2.0f * asin_half(sqrtf(0.5f * (1.0f - fabsf(v))));
  return v < 0.0f ? 3.141592741e+00f - (h + 8.742277657e-08f) : h;
}
DEV f32 atan_unit(f32 v) {  // up to 1
  f32 z = v * v;
  f32 p = -1.793470001e-03f;
  p = fmaf(p, z, 1.091392431e-02f);
  p = fmaf(p, z, -3.117657267e-02f);
  p = fmaf(p, z, 5.795631185e-02f);
  p = fmaf(p, z, -8.403375000e-02f);
  p = fmaf(p, z, 1.095215976e-01f);
  p = fmaf(p, z, -1.426423639e-01f);
  p = fmaf(p, z, 1.999854743e-01f);
  p = fmaf(p, z, -3.333329856e-01f);
  return fmaf(p * z, v, v);
}
DEV f32 atan_of(f32 v) {
  f32 a = fabsf(v);
  f32 r = a > 1.0f ? PI_2 - (atan_unit(1.0f / a) + 4.371138829e-08f) : atan_unit(a);
  return copysignf(r, v);
}
DEV f32 atan2_of(f32 y, f32 x) {
  if (x != x || y != y) return x + y;
  f32 ax = fabsf(x), ay = fabsf(y);
  f32 small = min_of(ax, ay), large = max_of(ax, ay);
  f32 r = atan_unit(large == 0.0f ? 0.0f : small == large ? 1.0f : small / large);
  if (ay > ax) r = PI_2 - (r + 4.371138829e-08f);
  if (f32_bits(x) >> 31) r = 3.141592741e+00f - (r + 8.742277657e-08f);
  return copysignf(r, y);
}

// Above 88 the exponential overflows before its half does.
DEV f32 half_exp(f32 a) {
  f32 h = expf(0.5f * a);
  return 0.5f * h * h;
}
DEV f32 sinh_of(f32 v) {
  f32 a = fabsf(v);
  if (a < 1.0f) {
    f32 z = v * v;
    f32 p = 2.817440190e-06f;
    p = fmaf(p, z, 1.983606635e-04f);
    p = fmaf(p, z, 8.333350532e-03f);
    p = fmaf(p, z, 1.666666716e-01f);
    return fmaf(p * z, v, v);
  }
  f32 e = expf(a);
  return copysignf(a > 88.0f ? half_exp(a) : 0.5f * (e - 1.0f / e), v);
}
DEV f32 cosh_of(f32 v) {
  f32 a = fabsf(v), e = expf(a);
  return a > 88.0f ? half_exp(a) : 0.5f * (e + 1.0f / e);
}
DEV f32 asinh_of(f32 v) {
  f32 a = fabsf(v), z = a * a;
  f32 r = a > 4096.0f ? logf(a) + 6.931471825e-01f : log1p_of(a + z / (1.0f + sqrtf(1.0f + z)));
  return copysignf(r, v);
}
DEV f32 acosh_of(f32 v) {
  f32 t = v - 1.0f;
  if (!(t >= 0.0f)) return NAN_F32;
  return v > 4096.0f ? logf(v) + 6.931471825e-01f : log1p_of(t + sqrtf(t * (t + 2.0f)));
}
DEV f32 atanh_of(f32 v) {
  f32 a = fabsf(v);
  return copysignf(0.5f * log1p_of(2.0f * a / (1.0f - a)), v);
}

// 2^(y log2 x). The logarithm and the product are each kept as a sum of two numbers, because an error in the exponent
// becomes an error in the result.
DEV f32 pow_positive(f32 x, f32 y) {
  bool tiny = x < 1.17549435e-38f;
  u32 bits = f32_bits(tiny ? x * 16777216.0f : x);
  i32 e = (i32)(bits - 0x3f3504f3u) >> 23;
  f32 m = bits_f32(bits - ((u32)e << 23));
  f32 exponent = (f32)(tiny ? e - 24 : e);
  // log m = 2 atanh s, s = (m - 1) / (m + 1)
  f32 f = m - 1.0f, g = m + 1.0f, g_low = m - (g - 1.0f);
  f32 s = f / g;
  f32 s_low = (fmaf(-s, g, f) - s * g_low) / g;
  f32 z = s * s;
  f32 p = 2.333226502e-01f;
  p = fmaf(p, z, 2.855074108e-01f);
  p = fmaf(p, z, 4.000012279e-01f);
  p = fmaf(p, z, 6.666666865e-01f);
  f32 tail = fmaf(p * z, s, 2.0f * s_low);
  f32 ln = 2.0f * s + tail;
  f32 ln_low = tail - (ln - 2.0f * s);
  f32 l = ln * 1.442695022e+00f;
  f32 l_low = fmaf(ln, 1.442695022e+00f, -l) + fmaf(ln, 1.925963034e-08f, ln_low * 1.442695022e+00f);
  f32 log2 = exponent + l;
  f32 log2_low = (l - (log2 - exponent)) + l_low;
  f32 product = y * log2;
  if (product >= 129.0f) return INFINITY_OF(f32);
  if (product <= -151.0f) return 0.0f;
  f32 product_low = fmaf(y, log2, -product) + y * log2_low;
  // 2^k e^t, where t is the rest times log 2; 1 + t is also a sum of two numbers, so that exact results stay exact.
  f32 k = rintf(product), whole = product - k;
  f32 r = whole + product_low, part = r - whole;
  f32 r_low = (whole - (r - part)) + (product_low - part);
  f32 t = r * 6.931471825e-01f;
  f32 t_low = fmaf(r, 6.931471825e-01f, -t) + fmaf(r_low, 6.931471825e-01f, r * -1.904654212e-09f);
  f32 q = 1.393951825e-03f;
  q = fmaf(q, t, 8.369101211e-03f);
  q = fmaf(q, t, 4.166641459e-02f);
  q = fmaf(q, t, 1.666651666e-01f);
  f32 head = 1.0f + t;
  f32 rest = (t - (head - 1.0f)) + fmaf(t_low, head, fmaf(q * t, t * t, 0.5f * t * t));
  return ldexpf(head + rest, (i32)k);
}
DEV f32 pow_of(f32 x, f32 y) {
  if (y == 0.0f || x == 1.0f) return 1.0f;
  if (x != x || y != y) return x + y;
  f32 a = fabsf(x), inf = INFINITY_OF(f32), magnitude;
  bool whole = fabsf(y) >= 16777216.0f || rintf(y) == y;
  bool odd = fabsf(y) < 16777216.0f && whole && ((i32)y & 1);
  if (a == 0.0f || a == inf) magnitude = (a == 0.0f) == (y > 0.0f) ? 0.0f : inf;
  else if (fabsf(y) == inf) magnitude = a == 1.0f ? 1.0f : (a > 1.0f) == (y > 0.0f) ? inf : 0.0f;
  else if (x < 0.0f && !whole) return NAN_F32;
  // Roots of square numbers must be exact: after a cast to integers, an error in the last bit would show, and the code
  // below may have one.
  else if (y == 0.5f) magnitude = sqrt_of(a);
  else magnitude = pow_positive(a, y);
  return odd && f32_bits(x) >> 31 ? -magnitude : magnitude;
}

// Exact: a binary long division of the mantissas.
DEV u64 fmod_bits(u64 x, u64 y, i32 mantissa_bits) {  // of positive finite numbers
  if (x < y) return x;
  u64 hidden = 1ull << mantissa_bits;
  i32 ex = (i32)(x >> mantissa_bits), ey = (i32)(y >> mantissa_bits);
  u64 mx = ex ? (x & (hidden - 1)) | hidden : x << 1, my = ey ? (y & (hidden - 1)) | hidden : y << 1;
  for (; mx < hidden; ex--) mx <<= 1;
  for (; my < hidden; ey--) my <<= 1;
  for (; ex > ey; ex--) {
    if (mx >= my) mx -= my;
    mx <<= 1;
  }
  if (mx >= my) mx -= my;
  if (mx == 0) return 0;
  for (; mx < hidden; ex--) mx <<= 1;
  return ex > 0 ? (mx & (hidden - 1)) | ((u64)ex << mantissa_bits) : mx >> (1 - ex);
}
DEV f32 fmod_of(f32 x, f32 y) {
  u32 a = f32_bits(x) & 0x7fffffffu, b = f32_bits(y) & 0x7fffffffu;
  if (a >= 0x7f800000u || b > 0x7f800000u || b == 0) return NAN_F32;
  return copysignf(bits_f32((u32)fmod_bits(a, b, 23)), x);
}
#if defined(__CUDACC_RTC__)
DEV u64 f64_bits(f64 v) { return (u64)__double_as_longlong(v); }
DEV f64 bits_f64(u64 v) { return __longlong_as_double((i64)v); }
#else
DEV u64 f64_bits(f64 v) { u64 r; __builtin_memcpy(&r, &v, 8); return r; }
DEV f64 bits_f64(u64 v) { f64 r; __builtin_memcpy(&r, &v, 8); return r; }
#endif
DEV f64 fmod_of(f64 x, f64 y) {
  u64 top = 0x7ff0000000000000ull, a = f64_bits(x) & ~(1ull << 63), b = f64_bits(y) & ~(1ull << 63);
  if (a >= top || b > top || b == 0) return (f64)NAN_F32;
  return copysign(bits_f64(fmod_bits(a, b, 52)), x);
}
// The remainder with the divisor's sign.
template <class C> DEV C floor_mod(C x, C y) {
  C r = fmod_of(x, y);
  return r != 0 && (r < 0) != (y < 0) ? r + y : r;
}

#if !defined(BARE_CLANG)
DEV f64 expm1_of(f64 v) { return LIBRARY(expm1)(v); }
DEV f64 log1p_of(f64 v) { return LIBRARY(log1p)(v); }
DEV f64 tanh_of(f64 v) { return LIBRARY(tanh)(v); }
DEV f64 erf_of(f64 v) { return LIBRARY(erf)(v); }
DEV f64 sin_of(f64 v) { return LIBRARY(sin)(v); }
DEV f64 cos_of(f64 v) { return LIBRARY(cos)(v); }
DEV f64 tan_of(f64 v) { return LIBRARY(tan)(v); }
DEV f64 asin_of(f64 v) { return LIBRARY(asin)(v); }
DEV f64 acos_of(f64 v) { return LIBRARY(acos)(v); }
DEV f64 atan_of(f64 v) { return LIBRARY(atan)(v); }
DEV f64 atan2_of(f64 y, f64 x) { return LIBRARY(atan2)(y, x); }
DEV f64 sinh_of(f64 v) { return LIBRARY(sinh)(v); }
DEV f64 cosh_of(f64 v) { return LIBRARY(cosh)(v); }
DEV f64 asinh_of(f64 v) { return LIBRARY(asinh)(v); }
DEV f64 acosh_of(f64 v) { return LIBRARY(acosh)(v); }
DEV f64 atanh_of(f64 v) { return LIBRARY(atanh)(v); }
// The vendors' functions may be off by one bit for exact roots, which a cast to integers would show.
DEV f64 pow_of(f64 x, f64 y) { return y == 0.5 && x > 0.0 ? sqrt_of(x) : LIBRARY(pow)(x, y); }
DEV f64 sigmoid_of(f64 v) { return 1.0 / (1.0 + exp_of(-v)); }
#endif
DEV f64 recip_of(f64 v) { return 1.0 / v; }
DEV f64 rsqrt_of(f64 v) { return 1.0 / sqrt(v); }
