//! Block sizes: few enough that freed blocks fit later requests, fine enough that little is wasted.

/// Alignment and smallest block.
const GRAIN: usize = 256;

/// Up to here sizes are multiples of the grain; above, there are four sizes per power of two.
const SMALL: usize = 4 * GRAIN;

/// From here on sizes are multiples of [`BIG_GRAIN`]: a quarter of such a block is too much to waste.
const BIG: usize = 64 << 20;
const BIG_GRAIN: usize = 2 << 20;

/// The block size for a request, or `None` if it does not fit in a `usize`.
pub(super) fn round(bytes: usize) -> Option<usize> {
    if bytes <= SMALL {
        Some(bytes.max(1).next_multiple_of(GRAIN))
    } else if bytes >= BIG {
        bytes.checked_next_multiple_of(BIG_GRAIN)
    } else {
        let step = (1 << (bytes - 1).ilog2()) / 4;
        Some(bytes.next_multiple_of(step))
    }
}

/// The largest cached block a request may use: its own size class, or up to a quarter more than requested.
pub(super) fn largest_fit(bytes: usize, size: usize) -> usize {
    size.max(bytes.saturating_add(bytes / 4))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sizes_follow_the_three_ranges() {
        const MIB: usize = 1 << 20;
        for (bytes, size) in [
            (0, 256),
            (1, 256),
            (256, 256),
            (257, 512),
            (1024, 1024),
            (1025, 1280),
            (1792, 1792),
            (1793, 2048),
            (2049, 2560),
            (5 * MIB, 5 * MIB),
            (5 * MIB + 1, 6 * MIB),
            (56 * MIB + 1, 64 * MIB),
            (64 * MIB, 64 * MIB),
            (64 * MIB + 1, 66 * MIB),
            (1000 * MIB - 1, 1000 * MIB),
        ] {
            assert_eq!(round(bytes), Some(size), "{bytes}");
        }
        assert_eq!(round(usize::MAX), None);
    }

    proptest! {
        #[test]
        fn a_block_holds_its_request_and_wastes_at_most_a_quarter(
            bytes in prop_oneof![0..10_000_usize, 0..200_000_000_usize, 0..usize::MAX / 2],
        ) {
            let size = round(bytes).unwrap();
            prop_assert!(size >= bytes && size > 0 && size.is_multiple_of(GRAIN));
            prop_assert_eq!(round(size), Some(size));
            if bytes > SMALL {
                prop_assert!(size - bytes <= bytes / 4);
            } else {
                prop_assert!(size - bytes <= GRAIN);
            }
            prop_assert!(largest_fit(bytes, size) >= size);
            prop_assert!(round(bytes + 1).unwrap() >= size);
        }
    }
}
