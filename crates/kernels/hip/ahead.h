// Copies into LDS that a thread starts, and waits for before it uses them: what is on its way takes no registers. For the twin, and
// for the simulator, which does them at once.

// 16 bytes, which both addresses are aligned to.
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
// Copies up to here belong to a group.
DEV void end_group() {
#if defined(__CUDACC_RTC__)
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
// Until all groups but the last MOST are there.
template <int MOST> DEV void await_groups() {
#if defined(__CUDACC_RTC__)
  asm volatile("cp.async.wait_group %0;" ::"n"(MOST) : "memory");
#endif
}
// Lanes of a wave see what the others have in LDS.
DEV void wave_sync() {
#if defined(__CUDACC_RTC__)
  __syncwarp();
#elif defined(GPU_SIM)
  SHFL(0, 0);
#else
#error "AMD's targets have no kernel that includes this"
#endif
}
