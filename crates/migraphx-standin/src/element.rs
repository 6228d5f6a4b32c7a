//! Element types and shapes.

use serde::{Deserialize, Serialize};

use crate::control;

/// ONNX's number and the size in bytes of each type, in MIGraphX's order since 2.14.
const NEW: [(i64, usize); 19] = [
    (0, 0),
    (23, 1),
    (9, 1),
    (10, 2),
    (1, 4),
    (11, 8),
    (2, 1),
    (3, 1),
    (4, 2),
    (5, 2),
    (6, 4),
    (7, 8),
    (12, 4),
    (13, 8),
    (18, 1),
    (17, 1),
    (19, 1),
    (16, 2),
    (20, 1),
];

/// An element type, by ONNX's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Element(pub i64);

/// ONNX's `FLOAT`.
pub const FLOAT: Element = Element(1);
/// ONNX's `INT8`.
pub const INT8: Element = Element(3);

/// The table in the order selected by the setting.
fn table() -> Vec<(i64, usize)> {
    let mut table = NEW.to_vec();
    if control::datatypes() == "old" {
        table.remove(1);
    }
    table
}

impl Element {
    /// The type for MIGraphX's number.
    pub fn from_number(number: i32) -> Option<Element> {
        table().get(usize::try_from(number).ok()?).map(|&(onnx, _)| Element(onnx))
    }

    /// MIGraphX's number.
    pub fn number(self) -> Option<i32> {
        let at = table().iter().position(|&(onnx, _)| onnx == self.0)?;
        i32::try_from(at).ok()
    }

    /// Bytes of one element; a tuple has none.
    pub fn bytes(self) -> Option<usize> {
        NEW.iter().find(|&&(onnx, bytes)| onnx == self.0 && bytes > 0).map(|&(_, bytes)| bytes)
    }
}

/// A shape as MIGraphX returns it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    /// The element type.
    pub element: Element,
    /// The size of each axis.
    pub lengths: Vec<usize>,
    /// The distance in elements between neighbours along each axis.
    pub strides: Vec<usize>,
}

impl Shape {
    /// Row-major; a scalar has length 1 and stride 0.
    pub fn packed(element: Element, dims: &[usize]) -> Shape {
        if dims.is_empty() {
            return Shape { element, lengths: vec![1], strides: vec![0] };
        }
        let mut strides = vec![1; dims.len()];
        for axis in (1..dims.len()).rev() {
            strides[axis - 1] = strides[axis] * dims[axis];
        }
        Shape { element, lengths: dims.to_vec(), strides }
    }

    /// Bytes of a packed tensor of this shape.
    pub fn bytes(&self) -> Option<usize> {
        Some(self.lengths.iter().product::<usize>() * self.element.bytes()?)
    }
}
