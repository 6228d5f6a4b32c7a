//! Element types by MIGraphX's numbers, which moved by one in 2.14 under the same soname.

use ort_ep::ElementType;

use super::sys::{Datatype, Table};

/// From 2.14 on. Older releases have no `fp4x2`, and everything after it is one lower.
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

/// Which number the probe asks about: a double in the old numbering, a float in the new one.
const PROBE: Datatype = 4;

/// How one library numbers its types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Numbering {
    /// Whether there is an `fp4x2`.
    new: bool,
    /// How many numbers the library accepts, counted from 0.
    known: Datatype,
}

impl Numbering {
    /// Asks the library itself: no version number is to be trusted.
    pub(super) fn probe(table: &Table) -> Option<Numbering> {
        let new = match bytes_of_one(table, PROBE)? {
            4 => true,
            8 => false,
            _ => return None,
        };
        let known = (PROBE..).find(|&number| !accepts(table, number) || number > 64)?;
        Some(Numbering { new, known })
    }

    /// The type behind a number; tuples and numbers of a later release have none.
    pub(super) fn element(self, number: Datatype) -> Option<ElementType> {
        let number = usize::try_from(number).ok().filter(|_| number < self.known)?;
        // 0 is the tuple in both.
        let index = if self.new || number == 0 { number } else { number + 1 };
        NEW.get(index).copied().flatten()
    }

    /// Whether the library has such a type at all.
    pub(super) fn has(self, element: ElementType) -> bool {
        (0..self.known).any(|number| self.element(number) == Some(element))
    }
}

fn accepts(table: &Table, number: Datatype) -> bool {
    with_shape(table, number, |_| ()).is_some()
}

fn bytes_of_one(table: &Table, number: Datatype) -> Option<usize> {
    with_shape(table, number, |shape| {
        let mut bytes = 0;
        // SAFETY: the shape is alive for this closure, `bytes` is a valid out-pointer.
        (unsafe { (table.shape_bytes)(&mut bytes, shape) } == 0).then_some(bytes)
    })?
}

/// Runs `body` with a shape of one element.
fn with_shape<R>(table: &Table, number: Datatype, body: impl FnOnce(super::sys::Handle) -> R) -> Option<R> {
    let mut shape = std::ptr::null_mut();
    let lengths = [1usize];
    // SAFETY: `shape` is a valid out-pointer and the lengths are read during the call; a number that the library does
    // not know is a status, not undefined behaviour, because it looks every number up.
    if unsafe { (table.shape_create)(&mut shape, number, lengths.as_ptr(), lengths.len()) } != 0 {
        return None;
    }
    let result = body(shape);
    // SAFETY: the shape was made above and is given to nobody else.
    unsafe { (table.shape_destroy)(shape) };
    Some(result)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEWEST: Numbering = Numbering { new: true, known: 19 };

    #[test]
    fn new_numbers_are_those_of_2_14() {
        assert_eq!(NEWEST.element(0), None, "a tuple is no element");
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
