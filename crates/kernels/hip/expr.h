// Building blocks of generated expressions, besides the language's own operators: integers that wrap, division by zero
// that gives zero, comparisons that propagate NaN, and conversions between all types.
// The type that integer arithmetic wraps in.
template <class T> struct Wrap { typedef u32 type; };
template <> struct Wrap<i64> { typedef u64 type; };
template <> struct Wrap<u64> { typedef u64 type; };
#define WRAP(T) typename Wrap<T>::type

template <class T> DEV T add_of(T a, T b) { return (T)((WRAP(T))a + (WRAP(T))b); }
template <class T> DEV T sub_of(T a, T b) { return (T)((WRAP(T))a - (WRAP(T))b); }
template <class T> DEV T mul_of(T a, T b) { return (T)((WRAP(T))a * (WRAP(T))b); }
template <class T> DEV T neg_of(T a) { return (T)((WRAP(T))0 - (WRAP(T))a); }
template <class T> DEV T abs_of(T a) { return a < (T)0 ? neg_of(a) : a; }
template <class T> DEV T sign_of(T a) { return (T)(a > (T)0) - (T)(a < (T)0); }
DEV f32 sign_of(f32 a) { return a != a ? a : (f32)((a > 0.0f) - (a < 0.0f)); }
DEV f64 sign_of(f64 a) { return a != a ? a : (f64)((a > 0.0) - (a < 0.0)); }

// The smallest number divided by -1 does not fit. Any number divided by -1 is its negative, with remainder 0.
template <class T> DEV bool by_minus_one(T b) { return (T)-1 < (T)0 && b == (T)-1; }
template <class T> DEV T div_of(T a, T b) { return b == (T)0 ? (T)0 : by_minus_one(b) ? neg_of(a) : (T)(a / b); }
template <class T> DEV T rem_of(T a, T b) { return b == (T)0 || by_minus_one(b) ? (T)0 : (T)(a % b); }
template <class T> DEV T mod_of(T a, T b) {
  T r = rem_of(a, b);
  return r != (T)0 && (r < (T)0) != (b < (T)0) ? (T)(r + b) : r;
}
template <class T> DEV T power_of(T a, T b) {
  if (b < (T)0) return a == (T)1 ? (T)1 : a == (T)-1 ? (b & 1 ? (T)-1 : (T)1) : (T)0;
  u64 exponent = (u64)b < 0xffffffffull ? (u64)b : 0xffffffffull;
  WRAP(T) power = 1, square = (WRAP(T))a;
  for (; exponent; exponent >>= 1) {
    if (exponent & 1) power *= square;
    square *= square;
  }
  return (T)power;
}
// A shift by 64 or more, or by a negative number, gives 0.
template <class T> DEV T shl_of(T a, T b) { return b < (T)0 || (u64)b > 63 ? (T)0 : (T)((u64)a << (u32)b); }
template <class T> struct Wide { typedef i64 type; };
template <> struct Wide<u64> { typedef u64 type; };
template <class T> DEV T shr_of(T a, T b) {
  return b < (T)0 || (u64)b > 63 ? (T)0 : (T)((typename Wide<T>::type)a >> (u32)b);
}

// If the right operand is NaN, the comparison fails and it wins; the left one is checked explicitly.
template <class T> DEV T larger_of(T a, T b) { return a > b || a != a ? a : b; }
template <class T> DEV T smaller_of(T a, T b) { return a < b || a != a ? a : b; }

// Floats are truncated and clamped to 64 bits, and NaN becomes 0; then the lowest bits are taken. Most numbers fit in
// 32 bits, for which the conversion is faster.
template <class F> DEV i64 whole_of(F v) {
  if (v != v) return 0;
  if (v >= (F)9223372036854775808.0) return 0x7fffffffffffffffll;
  if (v <= (F)-9223372036854775808.0) return -0x7fffffffffffffffll - 1;
  return (i64)v;
}
template <class F> DEV u64 natural_of(F v) {
  if (v >= (F)18446744073709551616.0) return ~0ull;
  return v >= (F)9223372036854775808.0 ? (u64)v : (u64)whole_of(v);
}
template <class T, class V> struct CastTo { DEV T of(V v) { return (T)v; } };
template <class T, class F> struct CutOff {
  DEV T of(F v) {
    if (v > (F)-2147483648.0 && v < (F)2147483648.0) return (T)(i32)v;
    return (T)-1 < (T)0 ? (T)whole_of(v) : (T)natural_of(v);
  }
};
#define CUT_OFF(T)                                                                                                     \
  template <> struct CastTo<T, f32> : CutOff<T, f32> {};                                                               \
  template <> struct CastTo<T, f64> : CutOff<T, f64> {};
CUT_OFF(i8)
CUT_OFF(u8)
CUT_OFF(i16)
CUT_OFF(u16)
CUT_OFF(i32)
CUT_OFF(u32)
CUT_OFF(i64)
CUT_OFF(u64)
template <class V> struct CastTo<bool, V> { DEV bool of(V v) { return v != (V)0; } };
template <class T, class V> DEV T cast(V v) { return CastTo<T, V>::of(v); }

// The nearest number of a half type, in single precision. Wider types are rounded only once: if single precision loses
// bits, its last bit is set to 1, so that no false tie appears.
DEV f32 odd_f32(f64 v) {
  f32 near = (f32)v;
  if ((f64)near == v || near - near != 0.0f) return near;
  u32 bits = f32_bits(near);
  bool beyond = fabs((f64)near) > fabs(v);
  return bits_f32((bits - (beyond ? 1u : 0u)) | 1u);
}
template <class V> DEV f32 narrow(V v) { return odd_f32((f64)v); }
DEV f32 narrow(f32 v) { return v; }
DEV f32 narrow(bool v) { return v ? 1.0f : 0.0f; }
DEV f32 narrow(i8 v) { return (f32)v; }
DEV f32 narrow(u8 v) { return (f32)v; }
DEV f32 narrow(i16 v) { return (f32)v; }
DEV f32 narrow(u16 v) { return (f32)v; }
template <class V> DEV f32 round_f16(V v) { return get(to_f16(narrow(v))); }
template <class V> DEV f32 round_bf16(V v) { return get(to_bf16(narrow(v))); }

// Sums and products of any type; integers wrap.
template <class C> struct Sum { DEV C of(C a, C b) { return add_of(a, b); } };
template <> struct Sum<f32> { DEV f32 of(f32 a, f32 b) { return a + b; } };
template <> struct Sum<f64> { DEV f64 of(f64 a, f64 b) { return a + b; } };
template <class C> struct Product { DEV C of(C a, C b) { return mul_of(a, b); } };
template <> struct Product<f32> { DEV f32 of(f32 a, f32 b) { return a * b; } };
template <> struct Product<f64> { DEV f64 of(f64 a, f64 b) { return a * b; } };
