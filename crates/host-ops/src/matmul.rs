//! Matrix products.
use graph::DType;
use graph::prim::MatMul;

use crate::affine::Single;
use crate::carve::{carve, piece};
use crate::epilogue::{Epilogue, Mapped, Region};
use crate::gemv::{Operand, gemv};
use crate::microkernel::Compute;
use crate::operand::{Source, Target};
use crate::product::{Extents, Left, Right, Schedule, Store, Tile, product, read_row};
use crate::{Context, OpError, Parallel, Serial, Tensor, TensorMut};

/// From this size on, a right operand does not fit in the L2 cache together with everything else.
const FAR_BYTES: usize = 1 << 19;

/// `a [batch, m, k]` times `b [batch, k, n]`.
pub(crate) fn run(
    prim: &MatMul,
    inputs: &[Tensor<'_>],
    out: TensorMut<'_>,
    epilogue: Option<Epilogue<'_>>,
    cx: &mut Context<'_>,
) -> Result<(), OpError> {
    let (a, b) = (&inputs[0], &inputs[1]);
    let to = Output { out, epilogue, alpha: prim.alpha };
    macro_rules! choose {
        ($($a:ident $b:ident $out:ident: $at:ty, $bt:ty, $ot:ty, $compute:ty;)*) => {
            match (a.dtype(), b.dtype(), epilogue.map_or(out.dtype(), |epilogue| epilogue.dtype)) {
                $((DType::$a, DType::$b, DType::$out) => typed::<$compute, $at, $bt, $ot>(a, b, &to, cx),)*
                (.., dtype) => return Err(OpError::Unsupported { prim: "matmul", dtype }),
            }
        };
    }
    use half::{bf16, f16};
    choose! {
        F32 F32 F32: f32, f32, f32, f32;
        F64 F64 F64: f64, f64, f64, f64;
        F16 F16 F16: f16, f16, f16, f32;
        F16 F16 F32: f16, f16, f32, f32;
        Bf16 Bf16 Bf16: bf16, bf16, bf16, f32;
        Bf16 Bf16 F32: bf16, bf16, f32, f32;
        I8 I8 I32: i8, i8, i32, i32;
        I8 U8 I32: i8, u8, i32, i32;
        U8 I8 I32: u8, i8, i32, i32;
        U8 U8 I32: u8, u8, i32, i32;
        I8 I8 I8: i8, i8, i8, i32;
        U8 U8 U8: u8, u8, u8, i32;
        I16 I16 I16: i16, i16, i16, i32;
        U16 U16 U16: u16, u16, u16, i32;
        I32 I32 I32: i32, i32, i32, i32;
        U32 U32 U32: u32, u32, u32, i32;
        I64 I64 I64: i64, i64, i64, i64;
        U64 U64 U64: u64, u64, u64, i64;
    }
    Ok(())
}

/// Address and strides of an operand or the output.
#[derive(Clone, Copy)]
pub(crate) struct Matrix<P> {
    pub start: P,
    pub batch: isize,
    pub row: isize,
    pub column: isize,
}

impl<P> Matrix<P> {
    fn new(start: P, strides: &[isize]) -> Self {
        Self { start, batch: strides[0], row: strides[1], column: strides[2] }
    }

    fn transposed(self) -> Self {
        Self { row: self.column, column: self.row, ..self }
    }

    /// The offset of an element.
    pub(crate) fn offset(&self, batch: usize, row: usize, column: usize) -> isize {
        batch as isize * self.batch + row as isize * self.row + column as isize * self.column
    }
}

/// What happens to the product.
pub(crate) struct Output<'a> {
    pub out: TensorMut<'a>,
    pub epilogue: Option<Epilogue<'a>>,
    pub alpha: f32,
}

impl Output<'_> {
    /// The strides of all views that tiles are stored to.
    fn views(&self) -> impl Iterator<Item = &[isize]> {
        let operands = self.epilogue.iter().flat_map(|epilogue| epilogue.operands).map(Tensor::strides);
        std::iter::once(self.out.strides()).chain(operands)
    }

    /// Calls `body` with a function that stores tiles of this output, or of its transpose.
    pub(crate) fn with_store<C, O, R>(&self, is_turned: bool, body: impl FnOnce(&Store<'_, C>) -> R) -> R
    where
        C: Compute + Single,
        O: Target<C>,
    {
        let turn = |matrix: Matrix<()>| if is_turned { matrix.transposed() } else { matrix };
        let alpha = self.alpha;
        if let Some(epilogue) = &self.epilogue {
            let mapped = Mapped::new(epilogue, |strides| Region::Matrix(turn(Matrix::new((), strides))));
            return body(&|tile| {
                // SAFETY: tiles are within the output, and each tile is stored once.
                unsafe { mapped.store(tile, |_| (alpha, C::NOTHING)) };
            });
        }
        let Matrix { batch, row, column, .. } = turn(Matrix::new((), self.out.strides()));
        let to = Destination { start: self.out.as_ptr::<O>(), batch, row, column };
        body(&|tile| {
            tile.each_row(|row, values| {
                // SAFETY: as above.
                unsafe {
                    if alpha == 1.0 && column == 1 {
                        to.store_neighbours(tile.batch, row, tile.column, values);
                    } else {
                        to.store(tile.batch, row, tile.column, values.iter().map(|value| value.scaled(alpha)));
                    }
                }
            });
        })
    }
}

fn typed<C, A, B, O>(a: &Tensor<'_>, b: &Tensor<'_>, to: &Output<'_>, cx: &mut Context<'_>)
where
    C: Compute + Single,
    A: Source<C>,
    B: Source<C>,
    O: Target<C>,
{
    let &[batch, rows, columns] = to.out.shape() else { return };
    let depth = a.shape()[2];
    if batch * rows * columns == 0 {
        return;
    }
    let (left, right) = (Matrix::new(a.as_ptr::<A>(), a.strides()), Matrix::new(b.as_ptr::<B>(), b.strides()));
    let extents = Extents { batch, rows, columns, depth };
    // Vectors run along the longer side of the output.
    let is_turned = columns < C::kernels().columns && rows > columns;
    to.with_store::<C, O, _>(is_turned, |store| {
        if is_turned {
            let extents = Extents { rows: columns, columns: rows, ..extents };
            let whole = to.views().all(|strides| strides[0] == strides[2] * columns as isize);
            oriented::<C, B, A>(extents, right.transposed(), left.transposed(), whole, store, cx);
        } else {
            let whole = to.views().all(|strides| strides[0] == strides[1] * rows as isize);
            oriented::<C, A, B>(extents, left, right, whole, store, cx);
        }
    });
}

/// `is_whole` if, in all views of the output, the rows of each product follow those of the previous one.
fn oriented<C, A, B>(
    extents: Extents,
    left: Matrix<*const A>,
    right: Matrix<*const B>,
    is_whole: bool,
    store: &Store<'_, C>,
    cx: &mut Context<'_>,
) where
    C: Compute,
    A: Source<C>,
    B: Source<C>,
{
    let Extents { batch, rows, depth, .. } = extents;
    // If all products share the right operand, they are one product with more rows.
    let extents = if batch > 1 && right.batch == 0 && left.batch == left.row * rows as isize && is_whole {
        Extents { batch: 1, rows: rows * batch, ..extents }
    } else {
        extents
    };
    if extents.rows == 1 && (right.column == 1 || right.row == 1) {
        return vector_times_matrix::<C, A, B>(extents, left, right, store, cx);
    }
    let schedule = Schedule::<C>::new(extents, cx.parallel, !A::SAME);
    let mut rest = cx.scratch.get::<u8>(piece::<C>(schedule.scratch()) + 2 * piece::<isize>(depth));
    let scratch = carve::<C>(&mut rest, schedule.scratch());
    let left_depth = table(carve(&mut rest, depth), left.column);
    let right_depth = table(carve(&mut rest, depth), right.row);
    let left = Left { start: left.start, batch: left.batch, row: left.row, depth: left_depth };
    let in_place = right.column == 1;
    let is_far = in_place && extents.columns * depth * size_of::<B>() >= FAR_BYTES;
    let right =
        Right { start: right.start, batch: right.batch, depth: right_depth, column: right.column, in_place, is_far };
    // SAFETY: the views' memory covers their extents, and each element is stored once.
    unsafe { product(&schedule, &left, &right, scratch, cx.parallel, store) };
}

/// The product of one row, or of many rows with a matrix each.
fn vector_times_matrix<C, A, B>(
    extents: Extents,
    left: Matrix<*const A>,
    right: Matrix<*const B>,
    store: &Store<'_, C>,
    cx: &mut Context<'_>,
) where
    C: Compute,
    A: Source<C>,
    B: Source<C>,
{
    let Extents { batch, columns, depth, .. } = extents;
    let vectors = cx.scratch.get::<C>(batch * depth);
    for (at, vector) in vectors.chunks_exact_mut(depth.max(1)).enumerate() {
        // SAFETY: the view's memory covers its extents.
        unsafe { read_row(left.start.wrapping_offset(at as isize * left.batch), left.column, vector) };
    }
    let vectors: &[C] = vectors;
    let right_batch = right.batch;
    let right = Operand { start: right.start, row: right.row, column: right.column };
    let one = |at: usize, parallel: &dyn Parallel| {
        let matrix = right.offset(at as isize * right_batch);
        // SAFETY: the views' memory covers their extents, and each element is stored once.
        unsafe {
            gemv(&vectors[at * depth..][..depth], matrix, columns, parallel, |column, values| {
                store(&Tile { batch: at, ..Tile::of_row(0, column, values) });
            });
        }
    };
    if batch == 1 {
        one(0, cx.parallel);
    } else {
        let grain = (1usize << 15).div_ceil((depth * columns).max(1));
        cx.parallel.ranges(batch, grain, |range| range.for_each(|at| one(at, &Serial)));
    }
}

/// Multiples of a stride.
pub(crate) fn table(table: &mut [isize], step: isize) -> &[isize] {
    for (at, entry) in table.iter_mut().enumerate() {
        *entry = at as isize * step;
    }
    table
}

/// Where a product's output goes.
#[derive(Clone, Copy)]
pub(crate) struct Destination<O> {
    pub start: *mut O,
    pub batch: isize,
    pub row: isize,
    pub column: isize,
}

// SAFETY: tasks store disjoint elements.
unsafe impl<O> Send for Destination<O> {}
// SAFETY: as above.
unsafe impl<O> Sync for Destination<O> {}

impl<O> Destination<O> {
    /// Stores consecutive elements of a row that are contiguous in memory.
    ///
    /// # Safety
    /// They are valid, and nothing else stores them.
    #[inline(always)]
    unsafe fn store_neighbours<C: Compute>(&self, batch: usize, row: usize, column: usize, values: &[C])
    where
        O: Target<C>,
    {
        let offset = batch as isize * self.batch + row as isize * self.row + column as isize;
        // SAFETY: guaranteed by the caller.
        let to = unsafe { std::slice::from_raw_parts_mut(self.start.wrapping_offset(offset), values.len()) };
        O::write_sums(values, C::NOTHING, to);
    }

    /// Stores consecutive elements of a row.
    ///
    /// # Safety
    /// They are valid, and nothing else stores them.
    #[inline(always)]
    pub(crate) unsafe fn store<C: Compute>(
        &self,
        batch: usize,
        row: usize,
        column: usize,
        values: impl ExactSizeIterator<Item = C>,
    ) where
        O: Target<C>,
    {
        let offset = batch as isize * self.batch + row as isize * self.row + column as isize * self.column;
        let to = self.start.wrapping_offset(offset);
        if self.column == 1 {
            // SAFETY: guaranteed by the caller.
            let to = unsafe { std::slice::from_raw_parts_mut(to, values.len()) };
            for (to, value) in to.iter_mut().zip(values) {
                *to = O::write(value);
            }
        } else {
            for (at, value) in values.enumerate() {
                // SAFETY: guaranteed by the caller.
                unsafe { to.offset(at as isize * self.column).write(O::write(value)) };
            }
        }
    }
}
