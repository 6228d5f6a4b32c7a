//! Recurrent layers: `hip/recurrent.hip`.
use graph::prim::{ActivationKind, Cell, Recurrent};
use graph::{DType, Declined, Step, View};

use crate::expr::MATH;
use crate::kernel::type_name;
use crate::team::{MAX_BLOCKS, THREADS, floats_only};
use crate::{Args, Kernel, Launch, Launches};

/// Sequences that share the rows of the weights.
const SEQUENCES: usize = 4;

pub(crate) fn work(prim: &Recurrent, step: &Step) -> Result<Launches, Declined> {
    let (x, r) = (&step.inputs[0], &step.inputs[2]);
    floats_only("a recurrent layer", x.dtype)?;
    let &[steps, batch, input] = &x.shape[..] else {
        return Err(Declined::new("a recurrent layer whose input does not have three axes"));
    };
    let hidden = r.shape[1];
    let units = batch.saturating_mul(hidden);
    if units == 0 {
        return Ok(Launches::nothing());
    }
    let blocks = hidden.saturating_mul(batch.div_ceil(SEQUENCES)).div_ceil(8);
    let extents = [steps, batch, input, hidden.saturating_mul(8)];
    if extents.iter().any(|&extent| extent >= 1 << 31) || units >= 1 << 30 || blocks > MAX_BLOCKS as usize {
        return Err(Declined::new(format!("a recurrent layer with {units} units")));
    }
    let layer = Layer::new(prim, step, units);
    let one_thread_a_unit = [units.div_ceil(THREADS as usize) as u32, 1, 1];
    let mut work = Launches { launches: Vec::new(), scratch_bytes: 5 * layer.state_bytes };
    work.launches.push(layer.launch("recurrent_begin", 0, 0, one_thread_a_unit, [1, 0], 0));
    let cells: &[u8] = match prim.cell {
        Cell::Lstm => &[0],
        Cell::Gru { linear_before_reset: true } => &[1],
        Cell::Gru { linear_before_reset: false } => &[2, 3],
        Cell::Rnn => &[4],
    };
    for at in 0..steps {
        let states = [at % 2, 1 - at % 2];
        for &cell in cells {
            work.launches.push(layer.launch("recurrent_step", 1, cell, [blocks as u32, 1, 1], states, at as u32));
        }
    }
    work.launches.push(layer.launch("recurrent_end", 2, 0, one_thread_a_unit, [steps % 2, 1 - steps % 2], 0));
    Ok(work)
}

struct Layer<'a> {
    prim: &'a Recurrent,
    step: &'a Step,
    /// Indices of the optional inputs: bias, lengths, initial h and c, peepholes.
    optional: [Option<usize>; 5],
    /// Size of one state tensor.
    state_bytes: usize,
}

fn strides<const N: usize>(view: Option<&View>) -> [i64; N] {
    std::array::from_fn(|axis| view.and_then(|view| view.strides.get(axis)).map_or(0, |&stride| stride as i64))
}

impl<'a> Layer<'a> {
    fn new(prim: &'a Recurrent, step: &'a Step, units: usize) -> Self {
        let has = prim.has;
        let mut next = 3..;
        let optional = [has.bias, has.lengths, has.initial_h, has.initial_c, has.peepholes]
            .map(|is_there| if is_there { next.next() } else { None });
        let bytes = if step.inputs[0].dtype == DType::F64 { 8 } else { 4 };
        Self { prim, step, optional, state_bytes: (units * bytes).next_multiple_of(16) }
    }

    /// `states` are the numbers of the h that is read and the h that is written.
    fn launch(&self, name: &'static str, mode: u8, cell: u8, grid: [u32; 3], states: [usize; 2], at: u32) -> Launch {
        let (inputs, outputs) = (&self.step.inputs, &self.step.outputs);
        let optional = |at: usize| self.optional[at].map(|number| &inputs[number]);
        let mut args = Args::new().input("x", 0, &inputs[0]).input("w", 1, &inputs[1]).input("r", 2, &inputs[2]);
        for (at, name) in ["bias", "lengths", "initial_h", "initial_c", "peepholes"].into_iter().enumerate() {
            args = match self.optional[at] {
                Some(number) => args.input(name, number, &inputs[number]),
                None => args.null(name),
            };
        }
        for (number, name) in ["y", "last_h", "last_c"].into_iter().enumerate() {
            args = match outputs.get(number) {
                Some(view) => args.output(name, number, view),
                None => args.null(name),
            };
        }
        args = args.scratch("h_from", states[0] * self.state_bytes).scratch("h_to", states[1] * self.state_bytes);
        args = if self.prim.cell == Cell::Lstm { args.scratch("c", 2 * self.state_bytes) } else { args.null("c") };
        args = args
            .scratch("update", 3 * self.state_bytes)
            .scratch("reset", 4 * self.state_bytes)
            .i64s("x_strides", &strides::<3>(Some(&inputs[0])))
            .i64s("w_strides", &strides::<2>(Some(&inputs[1])))
            .i64s("r_strides", &strides::<2>(Some(&inputs[2])))
            .i64s("bias_stride", &strides::<1>(optional(0)))
            .i64s("lengths_stride", &strides::<1>(optional(1)))
            .i64s("initial_h_strides", &strides::<2>(optional(2)))
            .i64s("initial_c_strides", &strides::<2>(optional(3)))
            .i64s("peepholes_stride", &strides::<1>(optional(4)))
            .i64s("y_strides", &strides::<3>(outputs.first()))
            .i64s("last_h_strides", &strides::<2>(outputs.get(1)))
            .i64s("last_c_strides", &strides::<2>(outputs.get(2)));
        let shape = &inputs[0].shape;
        args = args
            .u32s("steps", &[shape[0] as u32, shape[1] as u32, shape[2] as u32, inputs[2].shape[1] as u32])
            .u32("at", at)
            .u32("reverse", u32::from(self.prim.reverse))
            .u32("input_forget", u32::from(self.prim.input_forget))
            .u32("clips", u32::from(self.prim.clip.is_some()))
            .f32("clip", self.prim.clip.unwrap_or(0.0));
        let activations: Vec<u32> = (0..3)
            .flat_map(|at| match self.prim.activations.get(at) {
                Some(activation) => [number(activation.kind), activation.alpha.to_bits(), activation.beta.to_bits()],
                None => [0; 3],
            })
            .collect();
        let args = args.u32s("activations", &activations);
        let kernel = Kernel::new(name, include_str!("../hip/recurrent.hip"))
            .with((mode == 1).then_some(MATH))
            .set("T", type_name(inputs[0].dtype))
            .set("MODE", mode)
            .set("CELL", cell);
        Launch { kernel, grid, threads: THREADS, lds_bytes: 0, args }
    }
}

/// As in the source.
const fn number(kind: ActivationKind) -> u32 {
    match kind {
        ActivationKind::Sigmoid => 0,
        ActivationKind::Tanh => 1,
        ActivationKind::Relu => 2,
        ActivationKind::Affine => 3,
        ActivationKind::LeakyRelu => 4,
        ActivationKind::ThresholdedRelu => 5,
        ActivationKind::ScaledTanh => 6,
        ActivationKind::HardSigmoid => 7,
        ActivationKind::Elu => 8,
        ActivationKind::Softsign => 9,
        ActivationKind::Softplus => 10,
    }
}
