//! Element types by MIGraphX's numbers, which shifted by one in 2.14 under the same soname.

use ort_ep::ElementType;

use super::handle::Owned;
use crate::mgx::result;
use crate::mgx::sys::{Datatype, Loaded};

/// The numbers since 2.14. Older releases lack `fp4x2`, and everything after it is one lower.
const NEW: [Option<ElementType>; 19] = [
    None, // a tuple
    Some(ElementType::F4E2M1),
    Some(ElementType::Bool),
    Some(ElementType::F16),
    Some(ElementType::F32),
    Some(ElementType::F64),
    Some(ElementType::U8),
    Some(ElementType::I8),
    Some(ElementType::U16),
    Some(ElementType::I16),
    Some(ElementType::I32),
    Some(ElementType::I64),
    Some(ElementType::U32),
    Some(ElementType::U64),
    Some(ElementType::F8E4M3FnUz),
    Some(ElementType::F8E4M3Fn),
    Some(ElementType::F8E5M2),
    Some(ElementType::Bf16),
    Some(ElementType::F8E5M2FnUz),
];

/// The number used for probing: double in the old numbering, float in the new one.
const PROBE: Datatype = 4;

/// How a library numbers its types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Numbering {
    /// Whether the library has `fp4x2`.
    new: bool,
    /// How many numbers are in use, starting at 0.
    known: Datatype,
}

impl Numbering {
    /// Asks the library itself, because version numbers are not reliable.
    ///
    /// The end of the range is not probed, because MIGraphX writes to stderr for an unknown number. The functions for
    /// fp8 were added with the last of the old numbers (2.12); the fp8 types of 2.9 to 2.11 are not used.
    pub(super) fn probe(library: &Loaded) -> Option<Numbering> {
        let new = match bytes_of_one(library, PROBE)? {
            4 => true,
            8 => false,
            _ => return None,
        };
        let known = match (new, library.table.quantize_fp8.is_some()) {
            (true, _) => 19,
            (false, true) => 18,
            (false, false) => 13,
        };
        Some(Numbering { new, known })
    }

    /// The type with this number; `None` for tuples and numbers of later releases.
    pub(super) fn element(self, number: Datatype) -> Option<ElementType> {
        let number = usize::try_from(number).ok().filter(|_| number < self.known)?;
        // 0 is the tuple in both numberings.
        let index = if self.new || number == 0 { number } else { number + 1 };
        NEW.get(index).copied().flatten()
    }

    /// Whether the library supports this type.
    pub(super) fn has(self, element: ElementType) -> bool {
        (0..self.known).any(|number| self.element(number) == Some(element))
    }
}

/// The size in bytes of one element of the type with this number.
fn bytes_of_one(library: &Loaded, number: Datatype) -> Option<usize> {
    let doing = || "reading the size of an element".to_owned();
    let shape = Owned::new(result::shape::create(library, number, &[1], &doing).ok()?);
    // SAFETY: the shape is alive.
    unsafe { result::shape::bytes(library, shape.raw(), &doing) }.ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEWEST: Numbering = Numbering { new: true, known: 19 };

    #[test]
    fn new_numbers_are_those_of_2_14() {
        assert_eq!(NEWEST.element(0), None, "a tuple is not an element type");
        assert_eq!(NEWEST.element(1), Some(ElementType::F4E2M1));
        assert_eq!(NEWEST.element(4), Some(ElementType::F32));
        assert_eq!(NEWEST.element(11), Some(ElementType::I64));
        assert_eq!(NEWEST.element(17), Some(ElementType::Bf16));
        assert_eq!(NEWEST.element(19), None);
        assert_eq!(NEWEST.element(-1), None);
    }

    #[test]
    fn old_numbers_are_one_lower_and_end_earlier() {
        let rocm_6_0 = Numbering { new: false, known: 13 };
        assert_eq!(rocm_6_0.element(1), Some(ElementType::Bool));
        assert_eq!(rocm_6_0.element(3), Some(ElementType::F32));
        assert_eq!(rocm_6_0.element(12), Some(ElementType::U64));
        assert_eq!(rocm_6_0.element(13), None, "fp8 came later");
        assert!(!rocm_6_0.has(ElementType::Bf16) && !rocm_6_0.has(ElementType::F4E2M1));
        assert!(Numbering { new: false, known: 18 }.has(ElementType::Bf16));
    }

    #[test]
    fn every_type_has_one_number() {
        for numbering in [NEWEST, Numbering { new: false, known: 18 }] {
            let mut seen: Vec<ElementType> =
                (0..numbering.known).filter_map(|number| numbering.element(number)).collect();
            let all = seen.len();
            seen.sort_by_key(|element| element.to_raw());
            seen.dedup();
            assert_eq!(seen.len(), all);
        }
    }
}
