//! The results of a run.

use std::marker::PhantomData;

use super::Shape;
use super::handle::Owned;
use super::library::Library;
use crate::mgx::MgxError;
use crate::mgx::result::argument as result;
use crate::mgx::sys::Handle;

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
        // SAFETY: the arguments are alive.
        let len = unsafe { result::list_len(library.loaded(), raw.raw(), &|| "counting the outputs".to_owned())? };
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
        // SAFETY: the argument lives as long as the results.
        unsafe { result::buffer(self.library.loaded(), argument, &|| format!("finding output {index}")) }
    }

    /// The shape of an output.
    ///
    /// # Errors
    /// There is no such output, or its element type is unknown.
    pub fn shape(&self, index: usize) -> Result<Shape, MgxError> {
        let argument = self.argument(index)?;
        let whose = format!("output {index}");
        let doing = || format!("reading the shape of {whose}");
        // SAFETY: the argument lives as long as the results.
        let shape = unsafe { result::shape(self.library.loaded(), argument, &doing)? };
        // SAFETY: the shape is borrowed from the argument.
        unsafe { Shape::read(&self.library, shape, &whose) }
    }

    fn argument(&self, index: usize) -> Result<Handle, MgxError> {
        if index >= self.len {
            return Err(MgxError::refused(format!("output {index}"), format!("there are {} outputs", self.len)));
        }
        // SAFETY: the arguments are alive, and the index is below their number.
        unsafe { result::list_get(self.library.loaded(), self.raw.raw(), index, &|| format!("finding output {index}")) }
    }
}
