// Asynchronous copies into LDS: a thread starts them, and waits for them before it uses the data. Data in flight takes
// no registers. Used by the twin; the simulator copies at once.

// Copies 16 bytes; both addresses are aligned to 16.
DEV void copy_ahead(void* to, const void* from) {
#if defined(__CUDACC_RTC__)
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;"
               :
               : "r"((u32)__cvta_generic_to_shared(to)), "l"(from)
               : "memory");
#else
  *(Pack<u32, 4>*)to = *(const Pack<u32, 4>*)from;
#endif
}
// The same, but zeros if the chunk does not exist; `from` is a readable address in any case.
DEV void copy_ahead_or_zeros(void* to, const void* from, bool is_in) {
#if defined(__CUDACC_RTC__)
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;"
               :
               : "r"((u32)__cvta_generic_to_shared(to)), "l"(from), "r"(is_in ? 16 : 0)
               : "memory");
#else
  *(Pack<u32, 4>*)to = is_in ? *(const Pack<u32, 4>*)from : Pack<u32, 4>{};
#endif
}
// Ends the current group of copies.
DEV void end_group() {
#if defined(__CUDACC_RTC__)
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
// Waits until at most the last MOST groups are still in flight.
template <int MOST> DEV void await_groups() {
#if defined(__CUDACC_RTC__)
  asm volatile("cp.async.wait_group %0;" ::"n"(MOST) : "memory");
#endif
}
// Makes writes to LDS visible to all lanes of the wave.
DEV void wave_sync() {
#if defined(__CUDACC_RTC__)
  __syncwarp();
#elif defined(GPU_SIM)
  SHFL(0, 0);
#else
#error "AMD's targets have no kernel that includes this"
#endif
}
