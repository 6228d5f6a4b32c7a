//! A step with the data to run it on, and memory that shows what it wrote.

use graph::prim::BufferId;
use graph::{Prim, Step, Tensor, View};

use super::values::list;
use super::view::{gather, places, room};

/// A step with the buffers of its inputs.
#[derive(Clone, Debug)]
pub struct Sample {
    /// The step.
    pub step: Step,
    /// The whole buffer of each input.
    pub inputs: Vec<Tensor>,
}

impl Sample {
    /// A step of one primitive.
    pub fn new(prim: Prim, inputs: Vec<(View, Tensor)>, outputs: Vec<View>) -> Self {
        let (views, inputs) = inputs.into_iter().unzip();
        Self { step: Step { node: 0, prim, inputs: views, outputs }, inputs }
    }

    /// The elements of each input, as the step sees them.
    pub fn values(&self) -> Vec<Vec<f64>> {
        self.step.inputs.iter().zip(&self.inputs).map(|(view, buffer)| list(&gather(view, buffer))).collect()
    }

    /// The number of elements in the buffer of each output.
    pub fn rooms(&self) -> Vec<usize> {
        self.step.outputs.iter().map(room).collect()
    }

    /// The elements of each output in its buffer.
    pub fn results(&self, buffers: &[Tensor]) -> Vec<Vec<f64>> {
        self.step.outputs.iter().zip(buffers).map(|(view, buffer)| list(&gather(view, buffer))).collect()
    }
}

/// Bytes before and after every buffer.
const GUARD: usize = 64;
const SENTINEL: u8 = 0xa5;

/// The buffers of a step in host memory. Outputs, gaps and the space around buffers start as sentinel bytes.
pub struct Memory<'a> {
    step: &'a Step,
    buffers: Vec<Buffer>,
}

struct Buffer {
    id: BufferId,
    /// In words, so that the first element is aligned.
    words: Vec<u128>,
    before: Vec<u8>,
}

impl<'a> Memory<'a> {
    /// The buffers of a step, with these inputs. Outputs in the buffer of an input start as that input.
    pub fn new(step: &'a Step, inputs: &[Tensor]) -> Self {
        let mut memory = Self { step, buffers: Vec::new() };
        for (view, buffer) in step.inputs.iter().zip(inputs) {
            memory.add(view.buffer, buffer.bytes());
        }
        for view in &step.outputs {
            memory.add(view.buffer, &vec![SENTINEL; room(view) * view.dtype.bytes()]);
        }
        memory
    }

    fn add(&mut self, id: BufferId, content: &[u8]) {
        if self.buffers.iter().any(|buffer| buffer.id == id) {
            return;
        }
        let mut before = vec![SENTINEL; (content.len() + 2 * GUARD).next_multiple_of(16)];
        before[GUARD..][..content.len()].copy_from_slice(content);
        let words = before.as_chunks().0.iter().map(|&word| u128::from_ne_bytes(word)).collect();
        self.buffers.push(Buffer { id, words, before });
    }

    /// The start of each buffer.
    pub fn addresses(&mut self) -> Vec<(BufferId, *mut u8)> {
        let start = |buffer: &mut Buffer| (buffer.id, buffer.words.as_mut_ptr().cast::<u8>().wrapping_add(GUARD));
        self.buffers.iter_mut().map(start).collect()
    }

    /// The elements of each output, row by row.
    ///
    /// # Errors
    /// A byte outside the outputs has changed.
    pub fn outputs(self) -> Result<Vec<Tensor>, String> {
        let Self { step, buffers } = self;
        let mut outputs: Vec<Option<Tensor>> = vec![None; step.outputs.len()];
        for buffer in buffers {
            let after: Vec<u8> = buffer.words.iter().flat_map(|word| word.to_ne_bytes()).collect();
            let mut is_output = vec![false; after.len()];
            for (view, output) in step.outputs.iter().zip(&mut outputs).filter(|(view, _)| view.buffer == buffer.id) {
                let width = view.dtype.bytes();
                let places = places(view);
                places.iter().for_each(|at| is_output[GUARD + at * width..][..width].fill(true));
                let elements: Vec<u8> =
                    places.iter().flat_map(|at| &after[GUARD + at * width..][..width]).copied().collect();
                *output = Tensor::from_bytes(view.dtype, &view.shape, &elements);
            }
            let mut bytes = buffer.before.iter().zip(&after).zip(&is_output);
            if bytes.any(|((before, after), is_output)| before != after && !is_output) {
                return Err(format!("{step:?} wrote outside its outputs, in buffer {}", buffer.id.0));
            }
        }
        Ok(outputs.into_iter().flatten().collect())
    }
}
