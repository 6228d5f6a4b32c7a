//! The best token of every row, found where the scores are: a small model that runs on the decoder's device. So the
//! scores of greedy requests never leave the device.

use ort_client::{Call, Element, HostTensor, MemoryLocation, Output, RunOptions, Session, Tensor};

use crate::error::Doing;
use crate::feed::MAKING;
use crate::{Model, Result, generator};

const RUNNING: &str = "finding the best tokens";

/// Names in the model.
const SCORES: &str = "scores";
const TOKENS: &str = "tokens";

/// What the model returns for rows with a score that is not a number.
const UNKNOWN: i64 = -1;

/// The session of the small model.
#[derive(Debug)]
pub(super) struct BestTokens {
    session: Session,
    call: Call,
    options: RunOptions,
}

/// The best tokens of a number of rows.
#[derive(Debug)]
pub(super) struct Best(Output);

impl BestTokens {
    /// `None` if the decoder's scores are in host memory, or its device cannot run the model.
    ///
    /// # Errors
    /// When ONNX Runtime fails.
    pub fn new(model: &Model) -> Result<Option<BestTokens>> {
        let layout = model.layout();
        if layout.cache_place.is_none() {
            return Ok(None);
        }
        let bytes = onnx(layout.logits, model.config().vocab_size);
        let Some(session) = model.open_beside(&bytes) else { return Ok(None) };
        // A provider that leaves the model to the CPU would copy the scores there.
        if MemoryLocation::of_input(&session, 0).doing(RUNNING)?.is_none() {
            return Ok(None);
        }
        Ok(Some(BestTokens {
            options: generator::prompt_options(model)?,
            call: Call::new([SCORES], [TOKENS]).doing(RUNNING)?,
            session,
        }))
    }

    /// Finds the best token of each row. Scores have the shape [rows, 1, vocabulary].
    ///
    /// # Errors
    /// When the run fails.
    pub fn run(&mut self, scores: &Tensor, best: &mut Best) -> Result<()> {
        self.call.run(&self.session, &self.options, [scores], &mut best.0, []).doing(RUNNING)
    }
}

impl Best {
    pub fn new(model: &Model, rows: usize) -> Result<Best> {
        let tokens = HostTensor::new(&model.layout().host, Element::I64, &[rows as i64, 1, 1]).doing(MAKING)?;
        Ok(Best(Output::Given(tokens)))
    }

    /// The best token of a row; `None` if its scores are not all numbers.
    pub fn of(&mut self, row: usize) -> Option<u32> {
        let tokens: &[i64] = bytemuck::cast_slice(self.0.bytes_mut());
        tokens.get(row).and_then(|&token| u32::try_from(token).ok())
    }
}

/// The model: `ArgMax`, of equal scores the first one, as in [`crate::sampler::best`]. That one skips scores that are
/// not numbers, but `ArgMax` returns them, so such rows are marked.
fn onnx(scores: Element, vocab_size: usize) -> Vec<u8> {
    const INT64: u64 = 7;
    const INT_ATTRIBUTE: u64 = 2;
    let element = match scores {
        Element::F32 => 1,
        Element::F16 => 10,
        _ => 16,
    };
    let attribute = |name: &str, value: i64| {
        [bytes(1, name.as_bytes()), number(3, value as u64), number(20, INT_ATTRIBUTE)].concat()
    };
    let node = |op: &str, inputs: &[&str], output: &str, attributes: &[Vec<u8>]| {
        let inputs = inputs.iter().flat_map(|input| bytes(1, input.as_bytes()));
        let attributes = attributes.iter().flat_map(|attribute| bytes(5, attribute));
        let rest = [bytes(2, output.as_bytes()), bytes(3, output.as_bytes()), bytes(4, op.as_bytes())].concat();
        bytes(1, &inputs.chain(rest).chain(attributes).collect::<Vec<u8>>())
    };
    let nodes = [
        node("ArgMax", &[SCORES], "at", &[attribute("axis", -1), attribute("keepdims", 1)]),
        node("GatherElements", &[SCORES, "at"], "most", &[attribute("axis", -1)]),
        node("IsNaN", &["most"], "is_unknown", &[]),
        node("Where", &["is_unknown", "unknown", "at"], TOKENS, &[]),
    ];
    let unknown = [number(2, INT64), bytes(7, &varint(UNKNOWN as u64)), bytes(8, b"unknown")].concat();
    let value = |name: &str, element: u64, last: usize| {
        let extents = [bytes(2, b"rows"), number(1, 1), number(1, last as u64)];
        let shape = extents.iter().flat_map(|extent| bytes(1, extent)).collect::<Vec<u8>>();
        let tensor = [number(1, element), bytes(2, &shape)].concat();
        [bytes(1, name.as_bytes()), bytes(2, &bytes(1, &tensor))].concat()
    };
    let graph = [
        nodes.concat(),
        bytes(2, b"best_tokens"),
        bytes(5, &unknown),
        bytes(11, &value(SCORES, element, vocab_size)),
        bytes(12, &value(TOKENS, INT64, 1)),
    ];
    [number(1, 8), bytes(8, &[bytes(1, b""), number(2, 17)].concat()), bytes(7, &graph.concat())].concat()
}

/// A field of a protobuf message that holds bytes.
fn bytes(field: u64, value: &[u8]) -> Vec<u8> {
    [varint(field << 3 | 2), varint(value.len() as u64), value.to_vec()].concat()
}

/// A field of a protobuf message that holds an integer.
fn number(field: u64, value: u64) -> Vec<u8> {
    [varint(field << 3), varint(value)].concat()
}

fn varint(mut value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
    bytes
}

#[cfg(test)]
mod tests {
    use ort_client::{Environment, LogLevel, Runtime, SessionOptions, Value};

    use super::*;
    use crate::sampler::best;

    #[test]
    fn the_model_finds_what_greedy_search_takes() {
        let library = match testkit::place::onnxruntime() {
            Ok(library) => library,
            Err(reason) => return println!("skipped: {reason}"),
        };
        let (nan, less) = (f32::NAN, f32::NEG_INFINITY);
        let rows = [[1.0, 3.0, 3.0, -2.0], [less; 4], [-0.0, 0.0, -1.0, less], [1.0, f32::INFINITY, 2.0, 0.0]];
        let broken = [[1.0, nan, 3.0, 0.0], [nan, 1.0, 3.0, 0.0], [nan; 4]];
        let scores: Vec<f32> = rows.iter().chain(&broken).flatten().copied().collect();
        let runtime = Runtime::load(&library).unwrap();
        let environment = Environment::new(&runtime, "best_tokens", LogLevel::Error).unwrap();
        let mut options = SessionOptions::new(&environment).unwrap();
        let session = Session::from_bytes(&mut options, &onnx(Element::F32, 4)).unwrap();
        let scores = Value::from_slice(&runtime, &[7, 1, 4], &scores).unwrap();
        let found = session.run(&[(SCORES, &scores)], &[TOKENS]).unwrap()[0].to_vec::<i64>().unwrap();
        assert_eq!(found[..4], rows.map(|row| i64::from(best(&row))));
        // Providers differ in what they return for scores that are not numbers, but it is never another token.
        for (found, row) in found[4..].iter().zip(&broken) {
            assert!([UNKNOWN, i64::from(best(row))].contains(found), "{found} of {row:?}");
        }
    }
}
