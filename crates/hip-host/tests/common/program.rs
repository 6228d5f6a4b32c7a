//! Random programs of stream operations, their sequential model, and their run through the library.

use std::ffi::c_void;

use hip_host::abi::*;
use proptest::prelude::*;

use super::{Buffer, D2D, Event, NULL_STREAM, Stream, ok};

pub const CELLS: usize = 6;
pub const CELL_BYTES: usize = 24;
/// Stream 0 is the legacy default stream, 1 and 2 are blocking, 3 and 4 are not.
pub const STREAMS: usize = 5;

pub type State = Vec<u8>;

#[derive(Clone, Debug)]
pub enum Op {
    Fill { cell: usize, value: u8 },
    FillWide { cell: usize, value: u32 },
    Copy { from: usize, to: usize },
    CopyColumns { from: usize, to: usize },
    Scramble { cell: usize },
    Sync,
}

#[derive(Clone, Debug)]
pub struct Line {
    pub stream: usize,
    pub op: Op,
}

pub fn ops(with_sync: bool) -> impl Strategy<Value = Op> {
    let cell = 0..CELLS;
    prop_oneof![
        3 => (cell.clone(), any::<u8>()).prop_map(|(cell, value)| Op::Fill { cell, value }),
        1 => (cell.clone(), any::<u32>()).prop_map(|(cell, value)| Op::FillWide { cell, value }),
        5 => (cell.clone(), cell.clone()).prop_map(|(from, to)| Op::Copy { from, to }),
        2 => (cell.clone(), cell.clone()).prop_map(|(from, to)| Op::CopyColumns { from, to }),
        4 => cell.prop_map(|cell| Op::Scramble { cell }),
        u32::from(with_sync) => Just(Op::Sync),
    ]
}

pub fn programs(streams: std::ops::Range<usize>, with_sync: bool) -> impl Strategy<Value = Vec<Line>> {
    let line = (streams, ops(with_sync)).prop_map(|(stream, op)| Line { stream, op });
    prop::collection::vec(line, 1..40)
}

pub fn initial() -> State {
    (0..CELLS * CELL_BYTES).map(|at| (at * 7 + 3) as u8).collect()
}

impl Op {
    /// The cells read or written.
    fn cells(&self) -> Vec<usize> {
        match *self {
            Op::Fill { cell, .. } | Op::FillWide { cell, .. } | Op::Scramble { cell } => vec![cell],
            Op::Copy { from, to } | Op::CopyColumns { from, to } => vec![from, to],
            Op::Sync => Vec::new(),
        }
    }

    /// Applies the line to the model.
    pub fn apply(&self, state: &mut State) {
        let range = |cell: usize| cell * CELL_BYTES..(cell + 1) * CELL_BYTES;
        match *self {
            Op::Fill { cell, value } => state[range(cell)].fill(value),
            Op::FillWide { cell, value } => {
                for word in state[range(cell)].chunks_exact_mut(4) {
                    word.copy_from_slice(&value.to_ne_bytes());
                }
            }
            Op::Copy { from, to } => state.copy_within(range(from), to * CELL_BYTES),
            Op::CopyColumns { from, to } => {
                for row in 0..CELL_BYTES / 8 {
                    for column in 0..3 {
                        state[to * CELL_BYTES + row * 8 + column] = state[from * CELL_BYTES + row * 8 + column];
                    }
                }
            }
            Op::Scramble { cell } => state[range(cell)].iter_mut().for_each(|byte| *byte = byte.wrapping_mul(3) ^ 0x55),
            Op::Sync => {}
        }
    }

    fn submit(&self, memory: &Buffer, stream: *mut c_void) {
        let at = |cell: usize| memory.offset(cell * CELL_BYTES);
        // SAFETY: all cells lie in `memory`, which outlives the run; `scramble` touches one cell only.
        let status = unsafe {
            match *self {
                Op::Fill { cell, value } => hipMemsetAsync(at(cell), value.into(), CELL_BYTES, stream),
                Op::FillWide { cell, value } => hipMemsetD32Async(at(cell), value as i32, CELL_BYTES / 4, stream),
                Op::Copy { from, to } => hipMemcpyAsync(at(to), at(from), CELL_BYTES, D2D, stream),
                Op::CopyColumns { from, to } => {
                    hipMemcpy2DAsync(at(to), 8, at(from), 8, 3, CELL_BYTES / 8, D2D, stream)
                }
                Op::Scramble { cell } => hipLaunchHostFunc(stream, Some(scramble), at(cell)),
                Op::Sync => hipStreamSynchronize(stream),
            }
        };
        ok(status);
    }
}

unsafe extern "C" fn scramble(data: *mut c_void) {
    let cell = data.cast::<u8>();
    for at in 0..CELL_BYTES {
        // SAFETY: `data` is the start of a cell, and no other work touches the cell now.
        unsafe { cell.add(at).write(cell.add(at).read().wrapping_mul(3) ^ 0x55) };
    }
}

/// The streams of a run.
pub struct Lanes(Vec<Option<Stream>>);

impl Lanes {
    pub fn new() -> Self {
        let kinds = [Stream::blocking, Stream::blocking, Stream::non_blocking, Stream::non_blocking];
        Lanes(std::iter::once(None).chain(kinds.map(|make| Some(make()))).collect())
    }

    pub fn raw(&self, lane: usize) -> *mut c_void {
        self.0[lane].as_ref().map_or(NULL_STREAM, |stream| stream.0)
    }

    pub fn stream(&self, lane: usize) -> &Stream {
        self.0[lane].as_ref().expect("lane 0 is the default stream")
    }

    /// Makes later work of `then` wait for earlier work of `first`, unless the library orders the two by itself.
    pub fn order(&self, first: usize, then: usize) {
        let by_itself = first == then || (first == 0 && then <= 2) || (then == 0 && first <= 2);
        if !by_itself {
            let event = Event::new();
            ok(hipEventRecord(event.0, self.raw(first)));
            ok(hipStreamWaitEvent(self.raw(then), event.0, 0));
        }
    }
}

/// Submits a program with exactly the waits that make it equivalent to running it line by line.
pub fn submit(program: &[Line], memory: &Buffer, lanes: &Lanes) {
    let mut last: [Option<usize>; CELLS] = [None; CELLS];
    for Line { stream, op } in program {
        let cells = op.cells();
        let mut before: Vec<usize> = cells.iter().filter_map(|cell| last[*cell]).collect();
        before.sort_unstable();
        before.dedup();
        before.iter().for_each(|earlier| lanes.order(*earlier, *stream));
        op.submit(memory, lanes.raw(*stream));
        cells.iter().for_each(|cell| last[*cell] = Some(*stream));
    }
}

pub fn run_sequentially(program: &[Line], state: &mut State) {
    program.iter().for_each(|line| line.op.apply(state));
}

/// Runs a program and compares the result with the sequential model.
pub fn check_against_model(program: &[Line]) -> Result<(), TestCaseError> {
    let memory = Buffer::of(&initial());
    let lanes = Lanes::new();
    submit(program, &memory, &lanes);
    ok(hipDeviceSynchronize());
    let mut want = initial();
    run_sequentially(program, &mut want);
    prop_assert_eq!(memory.read(), want);
    Ok(())
}

/// Captures a program on several streams, replays it, and compares with running it line by line as often.
pub fn check_capture(program: &[Line], replays: usize) -> Result<(), TestCaseError> {
    let memory = Buffer::of(&initial());
    let lanes = Lanes::new();
    let origin = 3;
    ok(hipStreamBeginCapture(lanes.raw(origin), 2));
    for lane in [1, 2, 4] {
        lanes.order(origin, lane);
    }
    submit(program, &memory, &lanes);
    for lane in [1, 2, 4] {
        lanes.order(lane, origin);
    }
    let graph = lanes.stream(origin).end_capture();
    prop_assert_eq!(memory.read(), initial(), "a captured operation ran");
    prop_assert_eq!(graph.nodes().len(), program.len());
    let exec = graph.instantiate();
    let mut want = initial();
    for replay in 0..replays {
        // Not always the same stream: launches of one instance are ordered among themselves.
        exec.launch(lanes.stream(1 + replay % 4));
        run_sequentially(program, &mut want);
    }
    drop((graph, exec));
    ok(hipDeviceSynchronize());
    prop_assert_eq!(memory.read(), want);
    Ok(())
}
