//! Tracks which memory is written during one kernel call.
//!
//! A caller may bind one buffer as an input and as an output, or as two outputs, and requesting one output twice
//! returns the same value. None of this may lead to two Rust slices over the same bytes.
use std::cell::{OnceCell, RefCell};
use std::ops::Range;

use crate::{Error, Result};

/// The outputs of most kernels fit in these bits, without an allocation.
const INLINE: usize = 256;

/// The outputs of one call that were handed out, and the host memory written through them.
#[derive(Debug, Default)]
pub(super) struct Loans {
    taken: RefCell<Taken>,
    inputs: OnceCell<Vec<Range<usize>>>,
    written: RefCell<Vec<(usize, Range<usize>)>>,
}

#[derive(Debug, Default)]
struct Taken {
    first: [u64; INLINE / 64],
    rest: Vec<usize>,
}

/// An output that was handed out.
#[derive(Debug)]
pub(super) struct Loan<'a> {
    loans: &'a Loans,
    inputs: InputRanges<'a>,
    output: usize,
}

/// Lists the host-readable memory of the inputs.
pub(super) type InputRanges<'a> = &'a dyn ReadRanges;

/// Lists the host-readable memory of the inputs.
pub(super) trait ReadRanges: std::fmt::Debug {
    fn input_ranges(&self) -> Result<Vec<Range<usize>>>;
}

impl Loans {
    /// Hands out an output, once.
    pub(super) fn take<'a>(&'a self, output: usize, inputs: InputRanges<'a>) -> Result<Loan<'a>> {
        let mut taken = self.taken.borrow_mut();
        let fresh = if output < INLINE {
            let (word, bit) = (output / 64, 1 << (output % 64));
            let fresh = taken.first[word] & bit == 0;
            taken.first[word] |= bit;
            fresh
        } else {
            let fresh = !taken.rest.contains(&output);
            taken.rest.push(output);
            fresh
        };
        if fresh {
            return Ok(Loan { loans: self, inputs, output });
        }
        Err(Error::invalid_argument(format!("output {output} was requested twice in one call")))
    }
}

impl Loan<'_> {
    /// Claims host memory for writing, unless an input or another output uses it.
    pub(super) fn write(&self, range: Range<usize>) -> Result<()> {
        let inputs = match self.loans.inputs.get() {
            Some(inputs) => inputs,
            None => {
                let ranges = self.inputs.input_ranges()?;
                self.loans.inputs.get_or_init(|| ranges)
            }
        };
        if inputs.iter().any(|input| overlap(input, &range)) {
            return Err(shared(self.output, "an input"));
        }
        let mut written = self.loans.written.borrow_mut();
        if written.iter().any(|(output, other)| *output != self.output && overlap(other, &range)) {
            return Err(shared(self.output, "another output"));
        }
        if !written.iter().any(|(output, _)| *output == self.output) {
            written.push((self.output, range));
        }
        Ok(())
    }
}

fn overlap(a: &Range<usize>, b: &Range<usize>) -> bool {
    a.start < b.end && b.start < a.end
}

fn shared(output: usize, other: &str) -> Error {
    Error::invalid_argument(format!(
        "output {output} shares its memory with {other}, so it cannot be written as a slice\n  help: bind separate buffers"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Inputs(Vec<Range<usize>>);

    impl ReadRanges for Inputs {
        fn input_ranges(&self) -> Result<Vec<Range<usize>>> {
            Ok(self.0.clone())
        }
    }

    #[test]
    fn an_output_is_handed_out_once() {
        let (loans, inputs) = (Loans::default(), Inputs(vec![]));
        for output in [0, 63, 64, INLINE - 1, INLINE, 10_000] {
            assert!(loans.take(output, &inputs).is_ok());
            assert!(loans.take(output, &inputs).unwrap_err().message().contains(&output.to_string()));
        }
    }

    #[test]
    fn memory_of_an_input_is_not_written() {
        let (loans, inputs) = (Loans::default(), Inputs(vec![100..200, 900..901]));
        let loan = loans.take(0, &inputs).unwrap();
        assert!(loan.write(150..151).unwrap_err().message().contains("an input"));
        assert!(loan.write(0..101).is_err());
        assert!(loan.write(200..300).is_ok());
    }

    #[test]
    fn two_outputs_never_write_the_same_bytes() {
        let (loans, inputs) = (Loans::default(), Inputs(vec![]));
        let (a, b) = (loans.take(0, &inputs).unwrap(), loans.take(1, &inputs).unwrap());
        a.write(0..64).unwrap();
        assert!(b.write(63..128).unwrap_err().message().contains("another output"));
        b.write(64..128).unwrap();
        a.write(0..64).unwrap();
    }
}
