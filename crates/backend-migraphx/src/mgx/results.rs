//! The results of a run.

use std::marker::PhantomData;

use super::handle::{Owned, check};
use super::library::Library;
use super::sys::Handle;
use super::{MgxError, Shape};

/// The outputs of one run, in the model's order. Their memory belongs to the program or its parameters, so they are
/// valid until the next run.
pub struct Results<'program> {
    library: Library,
    raw: Owned,
    len: usize,
    program: PhantomData<&'program mut ()>,
}

impl Results<'_> {
    pub(super) fn new(library: Library, raw: Owned) -> Result<Self, MgxError> {
        let mut len = 0;
        // SAFETY: the arguments are alive, `len` is a valid out-pointer.
        let status = unsafe { (library.table().arguments_size)(&mut len, raw.raw()) };
        check("arguments_size", status, || "counting the outputs".to_owned())?;
        Ok(Self { library, raw, len, program: PhantomData })
    }

    /// The number of outputs.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if there are no outputs.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The address of an output: device memory on the `gpu` target, host memory on `ref`.
    ///
    /// # Errors
    /// There is no such output.
    pub fn address(&self, index: usize) -> Result<*mut u8, MgxError> {
        let argument = self.argument(index)?;
        let mut address = std::ptr::null_mut();
        // SAFETY: the argument lives as long as the results, `address` is a valid out-pointer.
        let status = unsafe { (self.library.table().argument_buffer)(&mut address, argument) };
        check("argument_buffer", status, || format!("finding output {index}"))?;
        Ok(address.cast())
    }

    /// The shape of an output.
    ///
    /// # Errors
    /// There is no such output, or its element type is unknown.
    pub fn shape(&self, index: usize) -> Result<Shape, MgxError> {
        let argument = self.argument(index)?;
        let mut shape = std::ptr::null_mut();
        // SAFETY: the argument lives as long as the results, `shape` is a valid out-pointer.
        let status = unsafe { (self.library.table().argument_shape)(&mut shape, argument) };
        let whose = format!("output {index}");
        check("argument_shape", status, || format!("reading the shape of {whose}"))?;
        // SAFETY: the shape is borrowed from the argument.
        unsafe { Shape::read(&self.library, shape, &whose) }
    }

    fn argument(&self, index: usize) -> Result<Handle, MgxError> {
        if index >= self.len {
            return Err(MgxError::refused(format!("output {index}"), format!("there are {} outputs", self.len)));
        }
        let mut argument = std::ptr::null_mut();
        // SAFETY: the arguments are alive, the index is below their number, `argument` is a valid out-pointer.
        let status = unsafe { (self.library.table().arguments_get)(&mut argument, self.raw.raw(), index) };
        check("arguments_get", status, || format!("finding output {index}"))?;
        Ok(argument)
    }
}
