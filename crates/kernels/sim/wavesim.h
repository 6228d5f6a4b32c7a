// The wave simulator as kernel sources see it: see wavesim.cc. No includes, so that kernels compile quickly.
#pragma once

// The structure with which the host driver calls a kernel's entry point.
struct HostLaunch {
  unsigned grid[3], block[3];
  unsigned lds_bytes;
  unsigned reserved;
  const void* args;
};
struct WaveDim { unsigned x, y, z; };

extern "C" {
extern WaveDim wavesim_thread_idx, wavesim_block_idx, wavesim_grid_dim;
extern int wavesim_wave;
extern void* wavesim_dyn_lds;
void* wavesim_shared(const void* key, unsigned long bytes);
void wavesim_barrier();
int wavesim_lane();
void wavesim_exchange(void* value, unsigned long bytes, int source_lane);
void wavesim_run(const char* name, const HostLaunch* launch, void (*thread)(const void*), unsigned threads);
}

#define threadIdx wavesim_thread_idx
#define blockIdx wavesim_block_idx
#define gridDim wavesim_grid_dim
#define WARP wavesim_wave
#define __align__(n) __attribute__((aligned(n)))
#define __syncthreads() wavesim_barrier()
// The macro's name is the array's; the key distinguishes the arrays of a kernel.
#define SHARED(T, name, count)                                                                                         \
  static const char name##_key = 0;                                                                                    \
  T* const name = (T*)wavesim_shared(&name##_key, sizeof(T) * (count))
#define DYN_SHARED(T, name) T* const name = (T*)wavesim_dyn_lds

template <class T> static inline T wavesim_value(T value, int lane) {
  wavesim_exchange(&value, sizeof(T), lane);
  return value;
}
#define SHFL_XOR(v, mask) wavesim_value((v), wavesim_lane() ^ (mask))
#define SHFL_UP(v, delta) wavesim_value((v), wavesim_lane() >= (int)(delta) ? wavesim_lane() - (int)(delta) : wavesim_lane())
#define SHFL(v, lane) wavesim_value((v), (lane))

#define exp __builtin_exp
#define log __builtin_log
#define fmod __builtin_fmod
static inline float rsqrtf(float v) { return 1.0f / __builtin_sqrtf(v); }

// Threads of a launch never run at the same time, so plain reads and writes are atomic.
template <class T> static inline T wavesim_replace(T* p, T v) { T old = *p; *p = v; return old; }
template <class T> static inline T atomicAdd(T* p, T v) { return wavesim_replace(p, (T)(*p + v)); }
template <class T> static inline T atomicMax(T* p, T v) { return wavesim_replace(p, *p < v ? v : *p); }
template <class T> static inline T atomicMin(T* p, T v) { return wavesim_replace(p, v < *p ? v : *p); }
template <class T> static inline T atomicCAS(T* p, T expected, T v) {
  return wavesim_replace(p, *p == expected ? v : *p);
}
