//! Runs loops over lanes with the widest vector instructions of this CPU.

#![allow(unsafe_code)]

/// Runs `work`, compiled for AVX2 and FMA where the CPU has them. `work` must be `#[inline(always)]`, or it is compiled
/// for the oldest CPU as usual.
#[inline(always)]
pub fn wide<R>(work: impl FnOnce() -> R) -> R {
    #[cfg(target_arch = "x86_64")]
    {
        #[target_feature(enable = "avx2,fma,f16c,bmi1,bmi2,lzcnt,popcnt")]
        fn wide<R>(work: impl FnOnce() -> R) -> R {
            work()
        }
        if has_wide() {
            // SAFETY: `has_wide` says that the CPU has these instructions.
            return unsafe { wide(work) };
        }
    }
    work()
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn has_wide() -> bool {
    use std::sync::atomic::{AtomicU8, Ordering};
    static KNOWN: AtomicU8 = AtomicU8::new(0);
    #[cold]
    fn detect() -> bool {
        let all = is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("fma")
            && is_x86_feature_detected!("f16c")
            && is_x86_feature_detected!("bmi1")
            && is_x86_feature_detected!("bmi2")
            && is_x86_feature_detected!("lzcnt")
            && is_x86_feature_detected!("popcnt");
        KNOWN.store(1 + u8::from(all), Ordering::Relaxed);
        all
    }
    match KNOWN.load(Ordering::Relaxed) {
        0 => detect(),
        known => known == 2,
    }
}
