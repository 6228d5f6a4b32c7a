//! The state's contribution to one step of a recurrent layer.
use crate::Parallel;
use crate::gemv::{Operand, gemv};
use crate::matmul::Destination;
use crate::operand::{Source, Target};
use crate::product::{Extents, Left, Right, Schedule, product};
use crate::real::Real;

/// Products of the state `[batch, hidden]` with some columns of a matrix `[hidden, all]`.
pub(crate) struct StepProduct<'a, C> {
    pub size: Size,
    pub matrix: &'a [C],
    /// Offsets of each depth in the state and in the matrix: multiples of 1 and of `all`.
    pub depth: [&'a [isize]; 2],
    pub parallel: &'a dyn Parallel,
}

/// The extents of a layer.
#[derive(Clone, Copy)]
pub(crate) struct Size {
    /// Sequences.
    pub batch: usize,
    /// Elements of a state.
    pub hidden: usize,
    /// Elements of all gates.
    pub all: usize,
}

impl Size {
    fn extents(&self, columns: usize) -> Extents {
        Extents { batch: 1, rows: self.batch, columns, depth: self.hidden }
    }

    /// The scratch memory that [`StepProduct::run`] needs in elements, for any number of gates.
    pub(crate) fn scratch<C: Real>(&self, parallel: &dyn Parallel) -> usize {
        let need = |gates: usize| Schedule::<C>::new(self.extents(gates * self.hidden), parallel, false).scratch();
        (1..=self.all / self.hidden.max(1)).map(need).max().unwrap_or(0)
    }
}

impl<C: Real + Source<C> + Target<C>> StepProduct<'_, C> {
    /// Writes `state · matrix[.., first..first + columns]` to the same columns of `sums [batch, all]`.
    pub(crate) fn run(&self, state: &[C], [first, columns]: [usize; 2], sums: &mut [C], scratch: &mut [C]) {
        let Self { size, matrix, depth, parallel } = *self;
        let (start, row) = (matrix[first..].as_ptr(), size.all as isize);
        let to = Destination { start: sums[first..].as_mut_ptr(), batch: 0, row, column: 1 };
        if size.batch == 1 {
            // SAFETY: the matrix has a row for each element of the state, and each sum is stored once.
            return unsafe {
                gemv(&state[..size.hidden], Operand { start, row, column: 1 }, columns, parallel, |column, values| {
                    to.store(0, 0, column, values.iter().copied());
                })
            };
        }
        let schedule = Schedule::<C>::new(size.extents(columns), parallel, false);
        let left = Left { start: state.as_ptr(), batch: 0, row: size.hidden as isize, depth: depth[0] };
        let right = Right { start, batch: 0, depth: depth[1], column: 1, in_place: true, is_far: false };
        // SAFETY: the slices hold these extents, and each sum is stored once.
        unsafe {
            product(&schedule, &left, &right, scratch, parallel, &|tile| {
                tile.each_row(|row, values| to.store(0, row, tile.column, values.iter().copied()));
            });
        }
    }
}
