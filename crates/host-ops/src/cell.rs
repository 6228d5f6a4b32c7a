//! One step of a recurrent layer.
use graph::prim::{Cell, Recurrent};

use crate::activation::activate;
use crate::operand::{Source, Target};
use crate::real::Real;
use crate::recurrent_product::{Size, StepProduct};

/// The state that changes from step to step.
pub(crate) struct State<'a, C> {
    pub h: &'a mut [C],
    pub c: &'a mut [C],
    /// The state after the reset gate.
    pub reset: &'a mut [C],
    pub spare: &'a mut [C],
    /// The state's contribution to the gates.
    pub sums: &'a mut [C],
}

/// The parameters, which stay the same.
pub(crate) struct Gates<'a, C> {
    pub prim: &'a Recurrent,
    /// The input's contribution to the gates, with all biases that do not depend on the state, `[steps·batch, all]`.
    pub from_input: &'a [C],
    /// The bias of the recurrent weights.
    pub recurrent_bias: &'a [C],
    /// The peephole weights of the input, output and forget gates.
    pub peepholes: &'a [C],
    /// The product with the recurrent weights.
    pub product: StepProduct<'a, C>,
}

impl<C: Real + Source<C> + Target<C>> Gates<'_, C> {
    /// Runs one step for every sequence that `place` gives a time, and passes its new state to `emit`.
    pub(crate) fn step(
        &self,
        state: &mut State<'_, C>,
        place: impl Fn(usize) -> Option<usize>,
        scratch: &mut [C],
        mut emit: impl FnMut(usize, usize, &[C]),
    ) {
        let Size { batch, hidden, all } = self.product.size;
        // A GRU's hidden gate has to wait for the reset gate, unless the reset applies to the product.
        let waits = matches!(self.prim.cell, Cell::Gru { linear_before_reset: false });
        let columns = if waits { 2 * hidden } else { all };
        self.product.run(state.h, [0, columns], state.sums, scratch);
        let times = |sequence: usize| place(sequence).map(|time| (time, (time * batch + sequence) * all));
        let range = |sequence: usize| sequence * hidden..(sequence + 1) * hidden;
        if waits {
            for sequence in 0..batch {
                let sums = &mut state.sums[sequence * all..][..all];
                if let Some((_, row)) = times(sequence) {
                    self.open(&mut sums[..2 * hidden], &self.from_input[row..]);
                }
                let h = &state.h[range(sequence)];
                for ((to, &h), &gate) in state.reset[range(sequence)].iter_mut().zip(h).zip(&sums[hidden..2 * hidden]) {
                    *to = h.times(gate);
                }
            }
            self.product.run(state.reset, [2 * hidden, hidden], state.sums, scratch);
        }
        for sequence in 0..batch {
            let Some((time, row)) = times(sequence) else { continue };
            let input = &self.from_input[row..row + all];
            let sums = &mut state.sums[sequence * all..][..all];
            let h = &mut state.h[range(sequence)];
            match self.prim.cell {
                Cell::Lstm => self.lstm(input, sums, h, &mut state.c[range(sequence)], &mut state.spare[..hidden]),
                Cell::Gru { .. } => self.gru(input, sums, h, !waits),
                Cell::Rnn => {
                    add(sums, input);
                    activate(self.prim.activations[0], self.prim.clip, sums);
                    h.copy_from_slice(sums);
                }
            }
            emit(sequence, time, h);
        }
    }

    /// Adds the input's contribution and applies the first activation.
    fn open(&self, sums: &mut [C], input: &[C]) {
        add(sums, input);
        activate(self.prim.activations[0], self.prim.clip, sums);
    }

    fn lstm(&self, input: &[C], sums: &mut [C], h: &mut [C], c: &mut [C], spare: &mut [C]) {
        let Recurrent { activations, clip, input_forget, has, .. } = self.prim;
        let hidden = h.len();
        add(sums, input);
        let (i, rest) = sums.split_at_mut(hidden);
        let (o, rest) = rest.split_at_mut(hidden);
        let (f, g) = rest.split_at_mut(hidden);
        let peephole = |at: usize| &self.peepholes[at * hidden..][..hidden];
        if has.peepholes {
            add_products(i, peephole(0), c);
            add_products(f, peephole(2), c);
        }
        activate(activations[0], *clip, i);
        if *input_forget {
            for (f, &i) in f.iter_mut().zip(&*i) {
                *f = C::of(1.0).minus(i);
            }
        } else {
            activate(activations[0], *clip, f);
        }
        activate(activations[1], *clip, g);
        for (((c, &f), &i), &g) in c.iter_mut().zip(&*f).zip(&*i).zip(&*g) {
            *c = f.times(*c).plus(i.times(g));
        }
        if has.peepholes {
            add_products(o, peephole(1), c);
        }
        activate(activations[0], *clip, o);
        spare.copy_from_slice(c);
        // The clip applies to the gates only: ONNX Runtime does not clip the cell state, and neither do we.
        activate(activations[2], None, spare);
        for ((h, &o), &c) in h.iter_mut().zip(&*o).zip(&*spare) {
            *h = o.times(c);
        }
    }

    /// `sums` already has the activated update and reset gates if the hidden gate waited for them.
    fn gru(&self, input: &[C], sums: &mut [C], h: &mut [C], linear_before_reset: bool) {
        let hidden = h.len();
        let (gates, candidate) = sums.split_at_mut(2 * hidden);
        let bias = &self.recurrent_bias[2 * hidden..];
        if linear_before_reset {
            self.open(gates, input);
            for ((to, &reset), &bias) in candidate.iter_mut().zip(&gates[hidden..]).zip(bias) {
                *to = to.plus(bias).times(reset);
            }
        }
        add(candidate, &input[2 * hidden..]);
        activate(self.prim.activations[1], self.prim.clip, candidate);
        for ((h, &update), &candidate) in h.iter_mut().zip(&gates[..hidden]).zip(&*candidate) {
            *h = C::of(1.0).minus(update).times(candidate).plus(update.times(*h));
        }
    }
}

fn add<C: Real>(to: &mut [C], other: &[C]) {
    for (to, &other) in to.iter_mut().zip(other) {
        *to = to.plus(other);
    }
}

fn add_products<C: Real>(to: &mut [C], a: &[C], b: &[C]) {
    for ((to, &a), &b) in to.iter_mut().zip(a).zip(b) {
        *to = to.plus(a.times(b));
    }
}
