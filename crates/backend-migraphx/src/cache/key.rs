//! Cache keys: everything a compiled program depends on.
use std::fmt;

/// Identifies a compiled program by all of its inputs.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key(String);

impl Key {
    /// The key as text that is valid in a file name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Collects everything a compiled program depends on. Each part is hashed with its name and length, so that different
/// lists of parts never hash the same bytes.
pub(crate) struct KeyBuilder(blake3::Hasher);

impl KeyBuilder {
    pub fn new() -> Self {
        Self(blake3::Hasher::new_derive_key("amdgpu-ep 2026 migraphx compiled program 1"))
    }

    /// Adds one part.
    #[must_use]
    pub fn part(mut self, name: &str, value: impl AsRef<[u8]>) -> Self {
        for bytes in [name.as_bytes(), value.as_ref()] {
            self.0.update(&(bytes.len() as u64).to_le_bytes()).update(bytes);
        }
        self
    }

    /// Adds the shapes of all inputs. Their order does not matter.
    #[must_use]
    pub fn shapes(self, shapes: &[(String, Vec<usize>)]) -> Self {
        let mut sorted: Vec<_> = shapes.iter().collect();
        sorted.sort();
        sorted.into_iter().fold(self, |key, (name, extents)| {
            let bytes: Vec<u8> = extents.iter().flat_map(|&extent| (extent as u64).to_le_bytes()).collect();
            key.part("input", name).part("shape", bytes)
        })
    }

    /// The key of all parts.
    pub fn finish(self) -> Key {
        Key(short(&self.0.finalize()))
    }
}

/// 128 bits are enough to rule out accidental collisions and keep file names short.
fn short(hash: &blake3::Hash) -> String {
    hash.to_hex()[..32].to_owned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn shape(name: &str, extents: &[usize]) -> (String, Vec<usize>) {
        (name.to_owned(), extents.to_vec())
    }

    #[test]
    fn the_order_of_inputs_does_not_matter() {
        let (a, b) = (shape("a", &[1, 2]), shape("b", &[2, 1]));
        let key = |shapes: &[_]| KeyBuilder::new().shapes(shapes).finish();
        assert_eq!(key(&[a.clone(), b.clone()]), key(&[b.clone(), a.clone()]));
        assert_ne!(key(&[a, b]), key(&[shape("a", &[2, 1]), shape("b", &[1, 2])]));
    }

    proptest! {
        #[test]
        fn different_parts_give_different_keys(
            a in prop::collection::vec((".{0,4}", prop::collection::vec(any::<u8>(), 0..4)), 0..4),
            b in prop::collection::vec((".{0,4}", prop::collection::vec(any::<u8>(), 0..4)), 0..4),
        ) {
            let key = |parts: &[(String, Vec<u8>)]| {
                parts.iter().fold(KeyBuilder::new(), |key, (name, value)| key.part(name, value)).finish()
            };
            prop_assert_eq!(a == b, key(&a) == key(&b));
        }
    }
}
