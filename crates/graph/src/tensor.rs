//! Tensors with known contents: weights, and what the planner computes.
use std::fmt;
use std::sync::{Arc, Weak};

use crate::memory::{Lender, Memory, Store};
use crate::{DType, Scalar, Shape, shape};

/// A dense tensor. Clones share its bytes.
#[derive(Clone)]
pub struct Tensor {
    dtype: DType,
    shape: Shape,
    memory: Arc<Memory>,
}

/// A weak reference to a tensor's memory.
#[derive(Clone, Debug, Default)]
pub struct WeakTensor(Weak<Memory>);

impl WeakTensor {
    /// `tensor` with the referenced memory; `None` if that is gone or holds other bytes.
    pub fn upgrade(&self, tensor: &Tensor) -> Option<Tensor> {
        let memory = self.0.upgrade().filter(|memory| memory.id() == tensor.id())?;
        Some(Tensor { memory, ..tensor.clone() })
    }
}

impl Tensor {
    /// A tensor from bytes in native byte order; `None` if their number does not match the shape.
    pub fn from_bytes(dtype: DType, shape: &[usize], bytes: &[u8]) -> Option<Self> {
        let want = shape::elems(shape)?.checked_mul(dtype.bytes())?;
        if want != bytes.len() {
            return None;
        }
        Some(Self { dtype, shape: shape.into(), memory: Arc::new(Memory::copy_of(bytes)) })
    }

    /// A tensor with borrowed bytes; `None` if their number does not match the shape, or if they are not aligned for
    /// the widest element type.
    pub fn lent(dtype: DType, shape: &[usize], lender: Lender) -> Option<Self> {
        let want = shape::elems(shape)?.checked_mul(dtype.bytes())?;
        let memory = Memory::lent(lender).filter(|memory| memory.len() == want)?;
        Some(Self { dtype, shape: shape.into(), memory: Arc::new(memory) })
    }

    /// The tensor with its own copy of the bytes, if they are borrowed.
    #[must_use]
    pub fn own(&self) -> Option<Self> {
        Some(Self { memory: Arc::new(self.memory.own()?), ..self.clone() })
    }

    /// A tensor from values converted to `dtype` as ONNX's Cast does; `None` if their number does not match the shape.
    pub fn from_scalars(dtype: DType, shape: &[usize], values: impl IntoIterator<Item = Scalar>) -> Option<Self> {
        let mut bytes = Vec::new();
        for value in values {
            push(&mut bytes, value, dtype);
        }
        Self::from_bytes(dtype, shape, &bytes)
    }

    /// A vector of 64-bit integers, the form of shapes and axes.
    pub fn from_i64s(values: &[i64]) -> Self {
        let memory = Arc::new(Memory::copy_of(bytemuck::cast_slice(values)));
        Self { dtype: DType::I64, shape: Shape::from_slice(&[values.len()]), memory }
    }

    /// A scalar.
    pub fn scalar(dtype: DType, value: Scalar) -> Self {
        let mut bytes = Vec::new();
        push(&mut bytes, value, dtype);
        Self { dtype, shape: Shape::new(), memory: Arc::new(Memory::copy_of(&bytes)) }
    }

    /// The element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The extents.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// How many elements it has.
    pub fn elems(&self) -> usize {
        self.len_bytes() / self.dtype.bytes()
    }

    /// How many bytes it has.
    pub fn len_bytes(&self) -> usize {
        self.memory.len()
    }

    /// An id shared by exactly the tensors with the same bytes, wherever those are stored.
    pub fn id(&self) -> u64 {
        self.memory.id()
    }

    /// The same bytes in the type that devices see.
    #[must_use]
    pub fn as_stored(&self) -> Self {
        Self { dtype: self.dtype.stored(), ..self.clone() }
    }

    /// The same tensor with its bytes kept in a store. They are fetched on the first read, and then stay.
    #[must_use]
    pub fn stored(&self, store: Box<dyn Store>) -> Self {
        Self { memory: Arc::new(self.memory.away(store)), ..self.clone() }
    }

    /// True if its bytes are in host memory, or mapped there.
    pub fn is_here(&self) -> bool {
        self.memory.is_here()
    }

    /// A weak reference to the tensor's memory.
    pub fn downgrade(&self) -> WeakTensor {
        WeakTensor(Arc::downgrade(&self.memory))
    }

    /// All bytes, aligned for the element type.
    pub fn bytes(&self) -> &[u8] {
        self.memory.bytes()
    }

    /// True if other clones share its bytes.
    pub fn is_shared(&self) -> bool {
        Arc::strong_count(&self.memory) > 1
    }

    /// The element at a flat position.
    pub fn get(&self, at: usize) -> Scalar {
        fn read<T: bytemuck::Pod>(bytes: &[u8], at: usize) -> T {
            bytemuck::pod_read_unaligned(&bytes[at * size_of::<T>()..][..size_of::<T>()])
        }
        let bytes = self.bytes();
        match self.dtype.stored() {
            DType::F32 => Scalar::Float(f64::from(read::<f32>(bytes, at))),
            DType::F64 => Scalar::Float(read::<f64>(bytes, at)),
            DType::F16 => Scalar::Float(read::<half::f16>(bytes, at).to_f64()),
            DType::Bf16 => Scalar::Float(read::<half::bf16>(bytes, at).to_f64()),
            DType::I8 => Scalar::Int(i64::from(read::<i8>(bytes, at))),
            DType::I16 => Scalar::Int(i64::from(read::<i16>(bytes, at))),
            DType::I32 => Scalar::Int(i64::from(read::<i32>(bytes, at))),
            DType::I64 => Scalar::Int(read::<i64>(bytes, at)),
            DType::U8 => Scalar::Uint(u64::from(read::<u8>(bytes, at))),
            DType::U16 => Scalar::Uint(u64::from(read::<u16>(bytes, at))),
            DType::U32 => Scalar::Uint(u64::from(read::<u32>(bytes, at))),
            DType::U64 => Scalar::Uint(read::<u64>(bytes, at)),
            // What is stored is never an 8-bit float.
            _ => Scalar::Int(i64::from(bytes[at] != 0)),
        }
    }

    /// All elements in order.
    pub fn scalars(&self) -> impl ExactSizeIterator<Item = Scalar> {
        (0..self.elems()).map(|at| self.get(at))
    }

    /// All elements as signed integers, for shapes and axes.
    pub fn to_i64s(&self) -> Vec<i64> {
        self.scalars().map(Scalar::as_i64).collect()
    }

    /// True if both share the same bytes.
    pub fn is_same(&self, other: &Self) -> bool {
        self.id() == other.id() && self.dtype == other.dtype
    }

    /// The same elements with another shape; `None` if their number differs.
    pub fn reshaped(&self, shape: &[usize]) -> Option<Self> {
        (shape::elems(shape)? == self.elems()).then(|| Self { shape: shape.into(), ..self.clone() })
    }
}

impl fmt::Debug for Tensor {
    /// Type and shape; `{:#?}` adds the bytes, so that different tensors print differently.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{:?}", self.dtype, self.shape.as_slice())?;
        if f.alternate() { write!(f, "{:02x?}", self.bytes()) } else { Ok(()) }
    }
}

impl PartialEq for Tensor {
    /// Bitwise equality.
    fn eq(&self, other: &Self) -> bool {
        let same_type = self.dtype == other.dtype && self.shape == other.shape;
        same_type && (self.id() == other.id() || self.bytes() == other.bytes())
    }
}

fn push(bytes: &mut Vec<u8>, value: Scalar, dtype: DType) {
    let value = value.cast(dtype);
    match dtype {
        DType::F32 => bytes.extend((value.as_f64() as f32).to_ne_bytes()),
        DType::F64 => bytes.extend(value.as_f64().to_ne_bytes()),
        DType::F16 => bytes.extend(half::f16::from_f64(value.as_f64()).to_ne_bytes()),
        DType::Bf16 => bytes.extend(half::bf16::from_f64(value.as_f64()).to_ne_bytes()),
        // An 8-bit float is given by its bits.
        dtype if dtype.bytes() == 1 => bytes.push(value.as_i64() as u8),
        DType::I16 | DType::U16 => bytes.extend((value.as_i64() as u16).to_ne_bytes()),
        DType::I32 | DType::U32 => bytes.extend((value.as_i64() as u32).to_ne_bytes()),
        _ => bytes.extend(value.as_i64().to_ne_bytes()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn bytes_must_match_the_shape() {
        assert!(Tensor::from_bytes(DType::F32, &[2], &[0; 7]).is_none());
        assert!(Tensor::from_bytes(DType::F32, &[usize::MAX, 3], &[]).is_none());
        assert_eq!(Tensor::from_bytes(DType::F32, &[0, 5], &[]).unwrap().elems(), 0);
    }

    #[test]
    fn vectors_of_any_length_read_back() {
        for values in [&[][..], &[7], &[1, -2], &[i64::MIN, 0, i64::MAX]] {
            assert_eq!(Tensor::from_i64s(values).to_i64s(), values);
        }
    }

    proptest! {
        #[test]
        fn scalars_read_back_as_cast(values in prop::collection::vec(-300i64..300, 0..9), at in 0usize..13) {
            let dtype = DType::ALL[at];
            let scalars: Vec<_> = values.iter().map(|&value| Scalar::Int(value)).collect();
            let tensor = Tensor::from_scalars(dtype, &[values.len()], scalars.iter().copied()).unwrap();
            let read: Vec<_> = tensor.scalars().collect();
            let want: Vec<_> = scalars.iter().map(|scalar| scalar.cast(dtype)).collect();
            prop_assert_eq!(read, want);
        }
    }
}
