//! A tensor in host memory.

use ort_client::Element;

use super::Numeric;

/// Elements in row-major, little-endian order.
#[derive(Clone, Debug, PartialEq)]
pub struct Array {
    element: Element,
    shape: Vec<usize>,
    bytes: Vec<u8>,
}

impl Array {
    /// An array of these bytes; `None` if they do not match the shape.
    pub fn new(element: Element, shape: Vec<usize>, bytes: Vec<u8>) -> Option<Array> {
        let want = shape.iter().try_fold(element.bytes(), |bytes, &extent| bytes.checked_mul(extent))?;
        (want == bytes.len()).then_some(Array { element, shape, bytes })
    }

    /// The type of the elements.
    pub fn element(&self) -> Element {
        self.element
    }

    /// The extents.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The content.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The elements as numbers; 64-bit integers beyond 2⁵³ are rounded.
    pub fn numbers(&self) -> impl ExactSizeIterator<Item = f64> + '_ {
        self.bytes.chunks_exact(self.element.bytes()).map(|bytes| self.element.read(bytes))
    }

    /// The same numbers, converted to another type.
    pub fn cast(&self, element: Element) -> Array {
        let mut bytes = Vec::with_capacity(self.numbers().len() * element.bytes());
        self.numbers().for_each(|number| element.write(number, &mut bytes));
        Array { element, shape: self.shape.clone(), bytes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_must_fill_the_shape() {
        assert!(Array::new(Element::F32, vec![2, 3], vec![0; 24]).is_some());
        assert!(Array::new(Element::F32, vec![2, 3], vec![0; 23]).is_none());
        assert!(Array::new(Element::I64, vec![], vec![0; 8]).is_some());
        assert!(Array::new(Element::I64, vec![0, 7], vec![]).is_some());
        assert!(Array::new(Element::U8, vec![usize::MAX, 2], vec![]).is_none());
    }

    #[test]
    fn cast_keeps_the_numbers() {
        let array = Array::new(Element::I8, vec![3], vec![1, 0xff, 3]).unwrap();
        let cast = array.cast(Element::F32);
        assert_eq!(cast.numbers().collect::<Vec<_>>(), [1.0, -1.0, 3.0]);
        assert_eq!((cast.shape(), cast.element()), (&[3][..], Element::F32));
    }
}
