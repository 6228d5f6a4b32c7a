// The start of every kernel source: names that mean the same for hiprtc, bare clang, nvrtc and the wave simulator.
//
// A kernel is written as
//     struct FooArgs { const T* x; T* y; u32 rows; };
//     KERNEL(foo, 256, FooArgs) { ... a.rows ... }
// and takes this one structure, `a`. It is launched with blocks of exactly that many threads along x.
//
// The dialect: no includes, no `warpSize`, no lane masks. WARP is the wave's width. It is not a constant expression in
// the simulator, so arrays are sized for the narrowest wave (threads / MIN_WARP). All threads of the wave or block
// reach shuffles and barriers. LDS comes from SHARED and DYN_SHARED only: at most 48 KiB in total, or everything a
// target has if that is more and all of it is dynamic (`Arch::lds_bytes`).
//
// On devices where a launch may begin before the previous one has ended (the twin from sm_90 on), a kernel first waits
// for that end. KERNEL_EARLY leaves this to the source: every thread calls EARLIER_DONE() before it accesses memory
// that earlier launches read or write. Before that it reads only constants, which the launcher names
// (`Args::constant`).

#if defined(GPU_SIM)
#include "wavesim.h"
#define DEV static inline
#define KERNEL(name, threads, Args)                                                                                    \
  static void name##_body(const Args& a);                                                                              \
  static void name##_thread(const void* args) { name##_body(*(const Args*)args); }                                    \
  extern "C" {                                                                                                         \
  unsigned name##_args_bytes = sizeof(Args);                                                                           \
  void name(const HostLaunch* launch) { wavesim_run(#name, launch, name##_thread, threads); }                          \
  }                                                                                                                    \
  static void name##_body(const Args& a)
#define KERNEL_EARLY KERNEL
#define EARLIER_DONE()
#elif defined(__CUDACC_RTC__)
#define DEV static __device__ __forceinline__
#define KERNEL_BOUNDS(threads) __launch_bounds__(threads)
#if __CUDA_ARCH__ >= 900
#define EARLIER_DONE() asm volatile("griddepcontrol.wait;" ::: "memory")
// The next launch may begin as soon as all blocks of this one have begun.
#define NEXT_MAY_BEGIN() asm volatile("griddepcontrol.launch_dependents;")
#else
#define EARLIER_DONE()
#define NEXT_MAY_BEGIN()
#endif
#define KERNEL_BEGUN(name, threads, Args, begin)                                                                       \
  DEV void name##_body(const Args& a);                                                                                 \
  extern "C" __global__ void KERNEL_BOUNDS(threads) name(const __grid_constant__ Args a) {                             \
    NEXT_MAY_BEGIN();                                                                                                  \
    begin;                                                                                                             \
    name##_body(a);                                                                                                    \
  }                                                                                                                    \
  DEV void name##_body(const Args& a)
#define KERNEL(name, threads, Args) KERNEL_BEGUN(name, threads, Args, EARLIER_DONE())
#define KERNEL_EARLY(name, threads, Args) KERNEL_BEGUN(name, threads, Args, )
#define DYN_SHARED(T, name)                                                                                            \
  extern __shared__ __align__(16) unsigned char dyn_shared_bytes[];                                                    \
  T* name = (T*)dyn_shared_bytes
#define SHARED(T, name, count) __shared__ T name[count]
#define WARP 32
#define SHFL_XOR(v, mask) __shfl_xor_sync(0xffffffffu, (v), (mask))
#define SHFL_UP(v, delta) __shfl_up_sync(0xffffffffu, (v), (delta))
#define SHFL(v, lane) __shfl_sync(0xffffffffu, (v), (lane))
#else
// hiprtc has no device library for generic targets. BARE_HIP makes it compile like bare clang, without one.
#if !defined(__HIPCC_RTC__) || defined(BARE_HIP)
#define BARE_CLANG 1
// Bare clang has no HIP headers, so the parts that kernels use are defined here.
#if defined(BARE_HIP)
#define threadIdx bare_thread_idx
#define blockIdx bare_block_idx
#define gridDim bare_grid_dim
#define __syncthreads bare_syncthreads
#define __shfl bare_shfl
#define __shfl_xor bare_shfl_xor
#define __shfl_up bare_shfl_up
#define atomicMax bare_atomic_max
#else
#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __shared__ __attribute__((shared))
#define __forceinline__ inline __attribute__((always_inline))
#define __align__(n) __attribute__((aligned(n)))
#endif
struct HipDim { unsigned x, y, z; };
struct HipThreadIdx {
  __device__ unsigned get_x() const { return __builtin_amdgcn_workitem_id_x(); }
  __declspec(property(get = get_x)) unsigned x;
};
struct HipBlockIdx {
  __device__ unsigned get_x() const { return __builtin_amdgcn_workgroup_id_x(); }
  __device__ unsigned get_y() const { return __builtin_amdgcn_workgroup_id_y(); }
  __device__ unsigned get_z() const { return __builtin_amdgcn_workgroup_id_z(); }
  __declspec(property(get = get_x)) unsigned x;
  __declspec(property(get = get_y)) unsigned y;
  __declspec(property(get = get_z)) unsigned z;
};
struct HipGridDim {
  __device__ unsigned get_x() const { return __builtin_amdgcn_grid_size_x() / __builtin_amdgcn_workgroup_size_x(); }
  __device__ unsigned get_y() const { return __builtin_amdgcn_grid_size_y() / __builtin_amdgcn_workgroup_size_y(); }
  __device__ unsigned get_z() const { return __builtin_amdgcn_grid_size_z() / __builtin_amdgcn_workgroup_size_z(); }
  __declspec(property(get = get_x)) unsigned x;
  __declspec(property(get = get_y)) unsigned y;
  __declspec(property(get = get_z)) unsigned z;
};
extern const __device__ __attribute__((weak)) HipThreadIdx threadIdx;
extern const __device__ __attribute__((weak)) HipBlockIdx blockIdx;
extern const __device__ __attribute__((weak)) HipGridDim gridDim;
static __device__ inline __attribute__((always_inline)) void __syncthreads() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}
static __device__ inline __attribute__((always_inline)) int hip_lane() {
#ifdef __GFX9__
  return __builtin_amdgcn_mbcnt_hi(~0u, __builtin_amdgcn_mbcnt_lo(~0u, 0));
#else
  return __builtin_amdgcn_mbcnt_lo(~0u, 0);
#endif
}
template <class T> static __device__ inline __attribute__((always_inline)) T __shfl(T v, int lane) {
  int words[(sizeof(T) + 3) / 4];
  __builtin_memcpy(words, &v, sizeof(T));
  for (unsigned i = 0; i < sizeof(words) / 4; i++) words[i] = __builtin_amdgcn_ds_bpermute(lane << 2, words[i]);
  __builtin_memcpy(&v, words, sizeof(T));
  return v;
}
template <class T> static __device__ inline __attribute__((always_inline)) T __shfl_xor(T v, int mask) {
  return __shfl(v, hip_lane() ^ mask);
}
template <class T> static __device__ inline __attribute__((always_inline)) T __shfl_up(T v, int delta) {
  int lane = hip_lane();
  return __shfl(v, lane >= delta ? lane - delta : lane);
}
#define KERNEL_BOUNDS(threads) __attribute__((amdgpu_flat_work_group_size(1, threads)))
#define rsqrtf __builtin_amdgcn_rsqf
static __device__ inline unsigned atomicMax(unsigned* p, unsigned v) {
  return __hip_atomic_fetch_max(p, v, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}
#else
#define KERNEL_BOUNDS(threads) __launch_bounds__(threads)
#endif
#define DEV static __device__ __forceinline__
// The argument is read in place: a copy would be made at the start and stay in scalar registers to the end.
#define KERNEL(name, threads, Args)                                                                                    \
  DEV void name##_body(const Args& a);                                                                                 \
  extern "C" __global__ void KERNEL_BOUNDS(threads) name(const Args) {                                                 \
    name##_body(*(const Args*)__builtin_amdgcn_kernarg_segment_ptr());                                                 \
  }                                                                                                                    \
  DEV void name##_body(const Args& a)
#define KERNEL_EARLY KERNEL
#define EARLIER_DONE()
#define DYN_SHARED(T, name)                                                                                            \
  extern __shared__ __align__(16) unsigned char dyn_shared_bytes[];                                                    \
  T* name = (T*)dyn_shared_bytes
#define SHARED(T, name, count) __shared__ T name[count]
#ifdef __GFX9__
#define WARP 64
#else
#define WARP 32
#endif
#define SHFL_XOR(v, mask) __shfl_xor((v), (mask))
#define SHFL_UP(v, delta) __shfl_up((v), (delta))
#define SHFL(v, lane) __shfl((v), (lane))
#endif

#define MIN_WARP 32

#if defined(GPU_SIM) || defined(BARE_CLANG)
// Compilers provide these without a library.
#define expf __builtin_expf
#define exp2f __builtin_exp2f
#define logf __builtin_logf
#define log2f __builtin_log2f
#define sqrtf __builtin_sqrtf
#define fmaf __builtin_fmaf
#define fminf __builtin_fminf
#define fmaxf __builtin_fmaxf
#define fabsf __builtin_fabsf
#define floorf __builtin_floorf
#define ceilf __builtin_ceilf
#define truncf __builtin_truncf
#define rintf __builtin_rintf
#define copysignf __builtin_copysignf
#define ldexpf __builtin_ldexpf
#define fmodf __builtin_fmodf
#define sqrt __builtin_sqrt
#define fma __builtin_fma
#define fabs __builtin_fabs
#define floor __builtin_floor
#define ceil __builtin_ceil
#define trunc __builtin_trunc
#define rint __builtin_rint
#define copysign __builtin_copysign
#define ldexp __builtin_ldexp
#endif

typedef signed char i8;
typedef unsigned char u8;
typedef short i16;
typedef unsigned short u16;
typedef int i32;
typedef unsigned int u32;
typedef long long i64;
typedef unsigned long long u64;
typedef float f32;
typedef double f64;
// Stored types without arithmetic of their own. A bool's byte is 0 or 1.
struct f16 { u16 bits; };
struct bf16 { u16 bits; };
struct b8 { u8 bits; };

// Copies bytes between values of different types.
#ifdef __CUDACC_RTC__
#define COPY_BYTES(to, from, bytes) memcpy(to, from, bytes)
#else
#define COPY_BYTES(to, from, bytes) __builtin_memcpy(to, from, bytes)
#endif

#ifdef __CUDACC_RTC__
DEV u32 f32_bits(f32 v) { return __float_as_uint(v); }
DEV f32 bits_f32(u32 v) { return __uint_as_float(v); }
DEV f32 get(f16 v) { f32 r; asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(v.bits)); return r; }
DEV f16 to_f16(f32 v) { f16 r; asm("cvt.rn.f16.f32 %0, %1;" : "=h"(r.bits) : "f"(v)); return r; }
DEV f16 to_f16(f64 v) { f16 r; asm("cvt.rn.f16.f64 %0, %1;" : "=h"(r.bits) : "d"(v)); return r; }
#else
DEV u32 f32_bits(f32 v) { u32 r; __builtin_memcpy(&r, &v, 4); return r; }
DEV f32 bits_f32(u32 v) { f32 r; __builtin_memcpy(&r, &v, 4); return r; }
DEV f32 get(f16 v) { _Float16 r; __builtin_memcpy(&r, &v, 2); return (f32)r; }
DEV f16 to_f16(f32 v) { _Float16 h = (_Float16)v; f16 r; __builtin_memcpy(&r, &h, 2); return r; }
DEV f16 to_f16(f64 v) { _Float16 h = (_Float16)v; f16 r; __builtin_memcpy(&r, &h, 2); return r; }
#endif
DEV f32 get(bf16 v) { return bits_f32((u32)v.bits << 16); }
DEV bf16 to_bf16(f32 v) {
  u32 u = f32_bits(v);
  bf16 r;
  r.bits = (u & 0x7fffffffu) > 0x7f800000u ? (u16)((u >> 16) | 0x40) : (u16)((u + 0x7fffu + ((u >> 16) & 1)) >> 16);
  return r;
}
DEV f32 get(f32 v) { return v; }
DEV f64 get(f64 v) { return v; }
DEV i8 get(i8 v) { return v; }
DEV u8 get(u8 v) { return v; }
DEV i16 get(i16 v) { return v; }
DEV u16 get(u16 v) { return v; }
DEV i32 get(i32 v) { return v; }
DEV u32 get(u32 v) { return v; }
DEV i64 get(i64 v) { return v; }
DEV u64 get(u64 v) { return v; }
DEV bool get(b8 v) { return v.bits != 0; }

// The compute type of a stored type.
template <class T> struct ComputeOf { typedef T type; };
template <> struct ComputeOf<f16> { typedef f32 type; };
template <> struct ComputeOf<bf16> { typedef f32 type; };
template <> struct ComputeOf<b8> { typedef bool type; };
#define COMPUTE(T) typename ComputeOf<T>::type

// Converts a computed value to a stored type: put<f16>(x).
template <class T> struct Put { template <class V> DEV T as(V v) { return (T)v; } };
template <> struct Put<f16> {
  DEV f16 as(f64 v) { return to_f16(v); }
  template <class V> DEV f16 as(V v) { return to_f16((f32)v); }
};
template <> struct Put<bf16> { template <class V> DEV bf16 as(V v) { return to_bf16((f32)v); } };
template <> struct Put<b8> { template <class V> DEV b8 as(V v) { b8 r; r.bits = v ? 1 : 0; return r; } };
template <class T, class V> DEV T put(V v) { return Put<T>::as(v); }

// N elements that are moved at once.
template <class T, int N> struct __align__(sizeof(T) * N) Pack { T at[N]; };
// Stores a pack of 4, 8 or 16 bytes to device memory at once: after a branch, nvrtc may store its elements one by one.
template <class P> DEV void store_whole(P* to, const P& pack) {
#ifdef __CUDACC_RTC__
  constexpr int WORDS = sizeof(P) / 4;
  static_assert(WORDS == 1 || WORDS == 2 || WORDS == 4, "a pack of 4, 8 or 16 bytes");
  u32 w[WORDS];
  COPY_BYTES(w, &pack, sizeof(P));
  const u64 at = __cvta_generic_to_global(to);
  if constexpr (WORDS == 1) asm volatile("st.global.u32 [%0], %1;" ::"l"(at), "r"(w[0]) : "memory");
  if constexpr (WORDS == 2) asm volatile("st.global.v2.u32 [%0], {%1, %2};" ::"l"(at), "r"(w[0]), "r"(w[1]) : "memory");
  if constexpr (WORDS == 4)
    asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(at), "r"(w[0]), "r"(w[1]), "r"(w[2]), "r"(w[3])
                 : "memory");
#else
  *to = pack;
#endif
}
// The caller's memory is aligned to its elements, and usually to packs.
template <int N, class T> DEV bool is_pack(const T* p) { return ((u64)p & (sizeof(T) * N - 1)) == 0; }

template <class T> DEV T min_of(T a, T b) { return b < a ? b : a; }
template <class T> DEV T max_of(T a, T b) { return a < b ? b : a; }

template <class T> DEV T wave_sum(T v) {
  for (int mask = WARP / 2; mask; mask >>= 1) v += SHFL_XOR(v, mask);
  return v;
}
template <class T> DEV T wave_max(T v) {
  for (int mask = WARP / 2; mask; mask >>= 1) v = max_of(v, SHFL_XOR(v, mask));
  return v;
}
// Reduces over a block of THREADS threads; `lds` holds THREADS / MIN_WARP elements and can be reused afterwards.
template <int THREADS, class T> DEV T block_sum(T v, T* lds) {
  v = wave_sum(v);
  if (threadIdx.x % WARP == 0) lds[threadIdx.x / WARP] = v;
  __syncthreads();
  T sum = lds[0];
  for (int i = 1; i < THREADS / WARP; i++) sum += lds[i];
  __syncthreads();
  return sum;
}
template <int THREADS, class T> DEV T block_max(T v, T* lds) {
  v = wave_max(v);
  if (threadIdx.x % WARP == 0) lds[threadIdx.x / WARP] = v;
  __syncthreads();
  T top = lds[0];
  for (int i = 1; i < THREADS / WARP; i++) top = max_of(top, lds[i]);
  __syncthreads();
  return top;
}

// 2^v with the device's own instruction: within a few ulps, and 0 if the result would be subnormal.
DEV f32 exp2_near(f32 v) {
#if defined(__CUDACC_RTC__)
  f32 r;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(v));
  return r;
#elif !defined(GPU_SIM) && __has_builtin(__builtin_amdgcn_exp2f)
  return __builtin_amdgcn_exp2f(v);
#else
  return exp2f(v);
#endif
}

// Functions for single and double precision under one name.
DEV f32 exp_of(f32 v) { return expf(v); }
DEV f32 log_of(f32 v) { return logf(v); }
DEV f32 sqrt_of(f32 v) { return sqrtf(v); }
DEV f64 sqrt_of(f64 v) { return sqrt(v); }
#if !defined(BARE_CLANG)
DEV f64 exp_of(f64 v) { return exp(v); }
DEV f64 log_of(f64 v) { return log(v); }
#endif
template <class C> struct Infinity;
template <> struct Infinity<f32> { DEV f32 value() { return bits_f32(0x7f800000u); } };
template <> struct Infinity<f64> { DEV f64 value() { return (f64)bits_f32(0x7f800000u); } };
#define INFINITY_OF(C) (Infinity<C>::value())

// Reports data that breaks an operator's rules: the word is read after the run, which then fails.
DEV void report_fault(u32* fault, u32 code) { *fault = code; }

// Each wave waits for its own writes: on AMD, a release by one wave does not wait for the writes of others. On the twin
// it does, for all writes before a barrier.
DEV void publish() {
#if !defined(GPU_SIM) && !defined(__CUDACC_RTC__)
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "agent");
#endif
}

DEV void receive() {
#if !defined(GPU_SIM) && !defined(__CUDACC_RTC__)
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "agent");
#endif
}

// Returns the number of blocks that called it before.
DEV u32 count_up(u32* counter) {
#if defined(GPU_SIM)
  return (*counter)++;
#elif defined(__CUDACC_RTC__)
  u32 before;
  asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], 1;" : "=r"(before) : "l"(counter) : "memory");
  return before;
#else
  return __hip_atomic_fetch_add(counter, 1u, __ATOMIC_ACQ_REL, __HIP_MEMORY_SCOPE_AGENT);
#endif
}

// Lets blocks find out which one is last without waiting for each other: returns true in the last of `blocks` blocks to
// call it, which sees everything that the others wrote before. Called by all threads of a block. The counter is zero
// before and after; `lds` is a word of LDS.
DEV bool is_last_block(u32* counter, u32 blocks, u32* lds) {
  publish();
  __syncthreads();
  if (threadIdx.x == 0) {
    lds[0] = count_up(counter) == blocks - 1;
    if (lds[0]) *counter = 0;
  }
  __syncthreads();
  if (!lds[0]) return false;
  receive();
  return true;
}
