//! Loops compiled twice: for any CPU, and for those with wide vectors.

/// Defines a function whose body is also compiled with AVX2; each call checks once which copy to run.
///
/// The body's loops are plain: the compiler vectorises them with the instructions of each copy. In the body, the
/// constant `WIDE` says which copy it is, for code that differs between them, such as fused multiply-add.
macro_rules! vectorised {
    ($(#[$meta:meta])* $vis:vis fn $name:ident $(<$($generic:ident : $bound:path),*>)?
        ($($arg:ident : $type:ty),* $(,)?) $(-> $result:ty)? $body:block) => {
        $(#[$meta])*
        $vis fn $name $(<$($generic: $bound),*>)? ($($arg: $type),*) $(-> $result)? {
            #[inline(always)]
            #[allow(clippy::too_many_arguments)]
            fn portable<const WIDE: bool, $($($generic: $bound),*)?>($($arg: $type),*) $(-> $result)? $body

            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx2,fma,f16c")]
                #[allow(clippy::too_many_arguments)]
                fn wide $(<$($generic: $bound),*>)? ($($arg: $type),*) $(-> $result)? {
                    portable::<true, $($($generic),*)?>($($arg),*)
                }
                if crate::simd::is_wide() {
                    // SAFETY: the CPU has these features.
                    return unsafe { wide($($arg),*) };
                }
            }
            portable::<false, $($($generic),*)?>($($arg),*)
        }
    };
}

pub(crate) use vectorised;

/// True if the copies with wide vectors can run.
#[cfg(target_arch = "x86_64")]
#[inline]
pub(crate) fn is_wide() -> bool {
    is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") && is_x86_feature_detected!("f16c")
}

/// Applies `f` to every element.
#[inline(always)]
pub(crate) fn each<A: Copy, B>(a: &[A], out: &mut [B], f: impl Fn(A) -> B) {
    for (to, &x) in out.iter_mut().zip(a) {
        *to = f(x);
    }
}

/// Applies `f` to every pair of elements.
#[inline(always)]
pub(crate) fn each_pair<A: Copy, B>(a: &[A], b: &[A], out: &mut [B], f: impl Fn(A, A) -> B) {
    for ((to, &x), &y) in out.iter_mut().zip(a).zip(b) {
        *to = f(x, y);
    }
}

/// Prefetches memory that will be read soon into the L2 cache. Any address is allowed.
#[inline(always)]
pub(crate) fn prefetch(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 processor has the instruction, which has no side effects and never faults.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T1>(address.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}
