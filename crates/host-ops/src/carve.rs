//! Splits one block of scratch memory into typed pieces.
use crate::scratch::Plain;

/// Pieces start at multiples of this, the size of a cache line and of the widest vector.
const ALIGN: usize = 64;

/// Bytes that a piece takes, including padding for its alignment.
pub(crate) const fn piece<T>(count: usize) -> usize {
    count * size_of::<T>() + ALIGN
}

/// Takes a piece, sized with [`piece`], from the front of the remaining memory.
pub(crate) fn carve<'a, T: Plain>(rest: &mut &'a mut [u8], count: usize) -> &'a mut [T] {
    let skip = rest.as_ptr().align_offset(ALIGN);
    let (_, tail) = std::mem::take(rest).split_at_mut(skip);
    let (head, tail) = tail.split_at_mut(count * size_of::<T>());
    *rest = tail;
    // SAFETY: `head` has exactly that many bytes, starts at a multiple of 64 and is borrowed exclusively; every bit
    // pattern is valid for a plain type.
    unsafe { std::slice::from_raw_parts_mut(head.as_mut_ptr().cast(), count) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_aligned_and_disjoint() {
        let mut memory = vec![0u8; piece::<u8>(3) + piece::<f64>(5) + piece::<f32>(1)];
        let mut rest = &mut memory[..];
        let bytes: &mut [u8] = carve(&mut rest, 3);
        let doubles: &mut [f64] = carve(&mut rest, 5);
        let single: &mut [f32] = carve(&mut rest, 1);
        bytes.fill(1);
        doubles.fill(2.0);
        single.fill(3.0);
        assert_eq!((bytes.len(), doubles.len(), single.len()), (3, 5, 1));
        assert!(bytes.iter().all(|&x| x == 1) && doubles.iter().all(|&x| x == 2.0) && single[0] == 3.0);
        assert_eq!(doubles.as_ptr() as usize % ALIGN + single.as_ptr() as usize % ALIGN, 0);
    }
}
