//! What a decoder reads from an encoder: keys and values of cross-attention. They stay the same for a whole sequence.

use std::sync::Arc;

use ort_client::{Element, Memory, MemoryLocation, RunOptions, Tensor};

use crate::error::Doing;
use crate::model::Model;
use crate::{Error, Result};

const MAKING: &str = "allocating the encoder's output";

/// A tensor that the encoder writes and the decoder reads.
#[derive(Debug)]
pub(crate) struct CrossLayout {
    /// The decoder's input.
    pub past: String,
    /// The encoder's output.
    pub present: String,
    pub element: Element,
    /// The shape for one sequence.
    pub shape: Vec<i64>,
    /// Where the decoder's session wants it; `None` means host memory.
    pub place: Option<Arc<MemoryLocation>>,
}

/// The tensors of one generator.
#[derive(Debug)]
pub(crate) struct Cross {
    tensors: Vec<Tensor>,
    is_filled: bool,
}

impl Cross {
    pub fn new(model: &Model) -> Result<Cross> {
        let layout = model.layout();
        let tensors = layout.cross.iter().map(|cross| {
            let bytes = cross.element.bytes_of(&cross.shape).ok_or_else(|| {
                let problem = format!("{:?} of shape {:?} is too large", cross.past, cross.shape);
                Error::request(problem, "use the decoder of the folder's original model")
            })?;
            let place = cross.place.as_ref().unwrap_or(&layout.host);
            let memory = Memory::zeroed(place, bytes).map(Arc::new).doing(MAKING)?;
            Tensor::new(&memory, cross.element, &cross.shape).doing(MAKING)
        });
        Ok(Cross { tensors: tensors.collect::<Result<_>>()?, is_filled: false })
    }

    /// Fills the tensors, which come in the order of the model's layout, by a run with these options.
    pub fn fill(
        &mut self,
        options: &RunOptions,
        encode: impl FnOnce(&RunOptions, &[Tensor]) -> Result<()>,
    ) -> Result<()> {
        self.is_filled = false;
        encode(options, &self.tensors)?;
        self.is_filled = true;
        Ok(())
    }

    /// The tensors, in the order of the model's layout.
    ///
    /// # Errors
    /// When no encoder has filled them.
    pub fn tensors(&self) -> Result<&[Tensor]> {
        if self.is_filled || self.tensors.is_empty() {
            return Ok(&self.tensors);
        }
        Err(Error::request("the decoder reads the output of an encoder, which has not run", "encode audio first"))
    }
}
