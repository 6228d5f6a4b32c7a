//! Strided tensors over raw memory.
use std::marker::PhantomData;

use graph::{DType, View};

use crate::scratch::Plain;

/// A Rust type that represents an element type in memory. Bools are bytes.
///
/// # Safety
/// `DTYPES` lists only types whose elements are stored as `Self`.
pub unsafe trait Element: Plain + Send + Sync + 'static {
    /// The element types stored this way.
    const DTYPES: &'static [DType];
}

macro_rules! elements {
    ($($type:ty => $($dtype:ident)*;)*) => {
        $(
            // SAFETY: the memory form of each type listed.
            unsafe impl Element for $type {
                const DTYPES: &'static [DType] = &[$(DType::$dtype),*];
            }
        )*
    };
}

elements! {
    f32 => F32;
    f64 => F64;
    half::f16 => F16;
    half::bf16 => Bf16;
    i8 => I8;
    i16 => I16;
    i32 => I32;
    i64 => I64;
    u8 => U8 Bool;
    u16 => U16;
    u32 => U32;
    u64 => U64;
}

/// The properties of the view, for both kinds of tensor.
macro_rules! view_properties {
    ($tensor:ident) => {
        impl<'a> $tensor<'a> {
            /// The element type.
            pub fn dtype(&self) -> DType {
                self.view.dtype
            }

            /// The extents.
            pub fn shape(&self) -> &'a [usize] {
                &self.view.shape
            }

            /// The stride of each axis, in elements.
            pub fn strides(&self) -> &'a [isize] {
                &self.view.strides
            }

            /// How many elements it has.
            pub fn elems(&self) -> usize {
                self.view.elems()
            }

            /// True if its elements are contiguous, in row-major order.
            pub fn is_dense(&self) -> bool {
                self.view.is_dense()
            }
        }
    };
}

view_properties!(Tensor);
view_properties!(TensorMut);

/// A read-only tensor.
#[derive(Clone, Copy)]
pub struct Tensor<'a> {
    view: &'a View,
    start: *const u8,
    memory: PhantomData<&'a [u8]>,
}

// SAFETY: reading shared memory from several threads is sound; nothing writes it during the step (see `run`).
unsafe impl Send for Tensor<'_> {}
// SAFETY: as above.
unsafe impl Sync for Tensor<'_> {}

impl<'a> Tensor<'a> {
    /// # Safety
    /// `base` holds the view's buffer, aligned and readable for `'a`.
    pub(crate) unsafe fn new(view: &'a View, base: *const u8) -> Self {
        let start = base.wrapping_offset(view.offset * view.dtype.bytes() as isize);
        Self { view, start, memory: PhantomData }
    }

    /// The first element's address, whatever its type.
    pub(crate) fn start(&self) -> *const u8 {
        self.start
    }

    /// The first element's address.
    pub fn as_ptr<T: Element>(&self) -> *const T {
        debug_assert!(T::DTYPES.contains(&self.dtype()), "{} read as another type", self.dtype());
        self.start.cast()
    }

    /// All elements of a dense tensor.
    pub fn as_slice<T: Element>(&self) -> Option<&'a [T]> {
        // SAFETY: a dense view covers `elems` contiguous elements, which `new`'s caller vouches for.
        (T::DTYPES.contains(&self.dtype()) && self.is_dense())
            .then(|| unsafe { std::slice::from_raw_parts(self.as_ptr(), self.elems()) })
    }
}

/// A writable tensor. Copies of it write the same memory: tasks must write disjoint elements.
#[derive(Clone, Copy)]
pub struct TensorMut<'a> {
    view: &'a View,
    start: *mut u8,
    memory: PhantomData<&'a mut [u8]>,
}

// SAFETY: tasks write disjoint elements; each primitive makes sure of it.
unsafe impl Send for TensorMut<'_> {}
// SAFETY: as above.
unsafe impl Sync for TensorMut<'_> {}

impl<'a> TensorMut<'a> {
    /// # Safety
    /// `base` holds the view's buffer, aligned and writable for `'a`.
    pub(crate) unsafe fn new(view: &'a View, base: *mut u8) -> Self {
        let start = base.wrapping_offset(view.offset * view.dtype.bytes() as isize);
        Self { view, start, memory: PhantomData }
    }

    /// The same memory, for the writer to read.
    pub(crate) fn as_tensor(&self) -> Tensor<'a> {
        Tensor { view: self.view, start: self.start, memory: PhantomData }
    }

    /// The first element's address, whatever its type.
    pub(crate) fn start(&self) -> *mut u8 {
        self.start
    }

    /// The first element's address.
    pub fn as_ptr<T: Element>(&self) -> *mut T {
        debug_assert!(T::DTYPES.contains(&self.dtype()), "{} written as another type", self.dtype());
        self.start.cast()
    }
}
