//! The vendor's library for matrix products.
//!
//! A product is one call if the library supports its epilogue (a bias, an addend, ReLU, tanh GELU). With any other
//! epilogue, a large product is stored in scratch memory, including a bias that comes first, and a map applies the
//! rest. Products of signed bytes without zero points are accumulated in 32 bits.
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Instant;

use graph::plan::ALIGNMENT;
use graph::prim::{BufferId, Epilogue as FusedEpilogue, Map, ProductKind};
use graph::{DType, Declined, Prim, Step, View, shape};
use hip::{BlasLt, Compute, DataType, Epilogue, HipError, Matmul, MatmulAddresses, MatmulDesc, Operand, RawStream};

use super::sum::{Activation, Behind, Sum};
use crate::ffi::RunMemory;
use crate::ffi::device::matmul;
use crate::{ExecError, Lru, policy};

/// The workspace that the library may use.
const WORKSPACE_BYTES: usize = 32 << 20;
/// Every operand must start at a multiple of this.
const OPERAND_ALIGNMENT: usize = 16;
/// Answers cached per device.
const KEPT: usize = 512;

/// The id, among a step's buffers, of the product in scratch memory.
pub(super) const PRODUCT: BufferId = BufferId(u32::MAX);

/// The library on one device, loaded when the first product needs it.
pub(super) struct Blas {
    known: Mutex<Lru<Key, Answer>>,
    library: OnceLock<Result<BlasLt, Declined>>,
    device: hip::Device,
}

type Answer = Result<Arc<Matmul>, Declined>;

/// A product's description, and the number of algorithms requested. Only `PartialEq`: the description contains floats.
#[derive(PartialEq)]
struct Key(MatmulDesc, usize);

/// A request to the library.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct BlasRequest {
    /// Single-precision products may round their operands to TF32.
    pub tf32: bool,
    /// The rank of the algorithm in the library's order; `None` takes the best one, if the product is worthwhile.
    pub rank: Option<usize>,
}

impl BlasRequest {
    /// Checks that the product is worthwhile, unless a certain algorithm is requested.
    fn check_size(self, desc: &MatmulDesc, has_pass: bool) -> Result<(), Declined> {
        if self.rank.is_some() {
            return Ok(());
        }
        let multiplications = desc.batch.saturating_mul(desc.m).saturating_mul(desc.n).saturating_mul(desc.k);
        policy::check_blas_size(multiplications, has_pass)
    }
}

/// A step as a library call.
pub(super) struct Product {
    matmul: Arc<Matmul>,
    /// The rank of its algorithm.
    rank: usize,
    a: BufferOffset,
    b: BufferOffset,
    /// Added to the product; has the same shape.
    c: Option<BufferOffset>,
    /// Added to each of its rows.
    bias: Option<BufferOffset>,
    d: BufferOffset,
    /// The map that follows, and the bytes that the product takes in scratch memory, after the library's workspace.
    pub behind: Option<(Step, usize)>,
}

/// A buffer, and bytes from its start.
#[derive(Clone, Copy)]
struct BufferOffset(BufferId, isize);

impl BufferOffset {
    fn of(view: &View) -> Self {
        Self(view.buffer, view.offset * view.dtype.bytes().cast_signed())
    }
}

impl Product {
    /// The offset of the product in scratch memory, if a map follows.
    pub fn product_at(&self) -> usize {
        self.workspace_bytes().next_multiple_of(ALIGNMENT)
    }

    /// Scratch memory of the call and the map that follows.
    pub fn scratch_bytes(&self) -> usize {
        self.product_at() + self.behind.as_ref().map_or(0, |(_, bytes)| *bytes)
    }

    fn workspace_bytes(&self) -> usize {
        self.algorithm().map_or(0, hip::Algorithm::workspace_bytes)
    }

    fn algorithm(&self) -> Option<&hip::Algorithm> {
        self.matmul.algorithms().get(self.rank)
    }

    /// Enqueues the product without the map that follows.
    ///
    /// For each buffer of the step, and for [`PRODUCT`], `address` gives memory of the run; `workspace` is as large as
    /// [`scratch_bytes`](Self::scratch_bytes).
    pub fn execute(
        &self,
        memory: RunMemory<'_>,
        address: impl Fn(BufferId) -> *mut u8,
        workspace: *mut u8,
        stream: RawStream<'_>,
    ) -> Result<(), ExecError> {
        let at = |place: BufferOffset| address(place.0).wrapping_offset(place.1);
        let optional = |place: Option<BufferOffset>| place.map_or(std::ptr::null_mut(), at).cast_const();
        let addresses = MatmulAddresses {
            a: at(self.a),
            b: at(self.b),
            c: optional(self.c),
            d: at(self.d),
            bias: optional(self.bias),
            workspace,
            workspace_bytes: self.workspace_bytes(),
        };
        let Some(way) = self.algorithm() else {
            let call = "hipblasLtMatmul";
            return Err(HipError::Invalid { call, reason: "BLASLt has no algorithm for the product".to_owned() }.into());
        };
        Ok(matmul(memory, &self.matmul, way, addresses, stream)?)
    }
}

impl Blas {
    pub fn new(device: hip::Device) -> Self {
        Self { known: Mutex::new(Lru::new(KEPT)), library: OnceLock::new(), device }
    }

    /// Offers a step. Returns `None` if it is not a product, or a reason if the library cannot run it or it is not
    /// worthwhile.
    pub fn offer(&self, step: &Step, request: BlasRequest) -> Option<Result<Product, Declined>> {
        let (kind, epilogue) = step.prim.product_and_epilogue()?;
        let alpha = factor(kind)?;
        Some(alpha.and_then(|alpha| match epilogue {
            Some(epilogue) => self.fused(alpha, epilogue, step, request),
            None => self.plain(alpha, step, request),
        }))
    }

    fn plain(&self, alpha: f32, step: &Step, request: BlasRequest) -> Result<Product, Declined> {
        let (a, b, d) = (&step.inputs[0], &step.inputs[1], &step.outputs[0]);
        let desc = describe(alpha, a, b, d, request.tf32)?;
        request.check_size(&desc, false)?;
        let matmul = self.prepare(desc, request)?;
        let (a, b, d) = (BufferOffset::of(a), BufferOffset::of(b), BufferOffset::of(d));
        Ok(Product { matmul, rank: request.rank.unwrap_or(0), a, b, c: None, bias: None, d, behind: None })
    }

    fn fused(&self, alpha: f32, fused: &FusedEpilogue, step: &Step, request: BlasRequest) -> Result<Product, Declined> {
        let (a, b, d) = (&step.inputs[0], &step.inputs[1], &step.outputs[0]);
        let operands = &step.inputs[fused.operands..];
        if let Some(sum) = Sum::of(&fused.expr, operands, d)
            && let Ok(mut desc) = describe(alpha, a, b, d, request.tf32)
        {
            request.check_size(&desc, false)?;
            desc.epilogue = match (sum.bias, sum.activation) {
                (None, Activation::None) => Epilogue::None,
                (None, Activation::Relu) => Epilogue::Relu,
                (None, Activation::TanhGelu) => Epilogue::Gelu,
                (Some(_), Activation::None) => Epilogue::Bias,
                (Some(_), Activation::Relu) => Epilogue::BiasRelu,
                (Some(_), Activation::TanhGelu) => Epilogue::BiasGelu,
            };
            desc.beta = if sum.added.is_some() { 1.0 } else { 0.0 };
            let place = |number: Option<usize>| number.map(|number| BufferOffset::of(&operands[number]));
            let is_aligned = |number: Option<usize>| number.is_none_or(|number| aligned(&operands[number]));
            // A library without this epilogue may still support the product.
            if is_aligned(sum.bias)
                && is_aligned(sum.added)
                && let Ok(matmul) = self.prepare(desc, request)
            {
                let (c, bias) = (place(sum.added), place(sum.bias));
                return Ok(Product {
                    matmul,
                    rank: request.rank.unwrap_or(0),
                    a: BufferOffset::of(a),
                    b: BufferOffset::of(b),
                    c,
                    bias,
                    d: BufferOffset::of(d),
                    behind: None,
                });
            }
        }
        // If the epilogue starts with a bias row, the library adds it too, so that the pass reads only the product.
        let stored = View { dtype: fused.dtype, ..d.clone() };
        let behind = Behind::of(&fused.expr, operands, &stored).filter(|behind| aligned(&operands[behind.bias]));
        let with_bias = behind.and_then(|behind| self.with_pass(alpha, fused, step, Some(behind), request).ok());
        with_bias.map_or_else(|| self.with_pass(alpha, fused, step, None, request), Ok)
    }

    /// A product in scratch memory, with or without a bias, followed by a map for the rest of its epilogue.
    fn with_pass(
        &self,
        alpha: f32,
        fused: &FusedEpilogue,
        step: &Step,
        behind: Option<Behind>,
        request: BlasRequest,
    ) -> Result<Product, Declined> {
        let (a, b, d) = (&step.inputs[0], &step.inputs[1], &step.outputs[0]);
        let operands = &step.inputs[fused.operands..];
        let stored = View {
            buffer: PRODUCT,
            dtype: fused.dtype,
            shape: d.shape.clone(),
            strides: shape::dense_strides(&d.shape),
            offset: 0,
        };
        let mut desc = describe(alpha, a, b, &stored, request.tf32)?;
        request.check_size(&desc, true)?;
        let bias = behind.as_ref().map(|behind| BufferOffset::of(&operands[behind.bias]));
        if bias.is_some() {
            desc.epilogue = Epilogue::Bias;
        }
        let matmul = self.prepare(desc, request)?;
        let bytes = stored.elems() * stored.dtype.bytes();
        let place = BufferOffset::of(&stored);
        let (expr, read) = match behind {
            Some(Behind { epilogue, operands: numbers, .. }) => {
                (epilogue, numbers.into_iter().map(|number| operands[number].clone()).collect())
            }
            None => (fused.expr.clone(), operands.to_vec()),
        };
        let behind = Step {
            node: step.node,
            prim: Prim::Map(Map { expr }),
            inputs: [vec![stored], read].concat(),
            outputs: step.outputs.clone(),
        };
        Ok(Product {
            matmul,
            rank: request.rank.unwrap_or(0),
            a: BufferOffset::of(a),
            b: BufferOffset::of(b),
            c: None,
            bias,
            d: place,
            behind: Some((behind, bytes)),
        })
    }

    fn prepare(&self, desc: MatmulDesc, request: BlasRequest) -> Answer {
        let ways = if request.rank.is_some() { policy::BLAS_ALGORITHMS } else { 1 };
        let key = Key(desc, ways);
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner).get(|known| *known == key);
        let answer = known.unwrap_or_else(|| self.ask(key));
        let rank = request.rank.unwrap_or(0);
        answer.and_then(|matmul| match matmul.algorithms().len() {
            0 => Err(Declined::new("BLASLt has no algorithm for the product")),
            count if rank >= count => Err(Declined::new(format!("BLASLt has only {count} algorithms for the product"))),
            _ => Ok(matmul),
        })
    }

    fn ask(&self, key: Key) -> Answer {
        let library = self.library.get_or_init(|| {
            let first_line = |error: HipError| error.to_string().lines().next().unwrap_or_default().to_owned();
            let start = Instant::now();
            let opened = self.device.blas_lt().map_err(|error| Declined(first_line(error)));
            tracing::debug!(target: "amdgpu_ep::load", "searched for BLASLt for {:.1?}", start.elapsed());
            opened
        });
        let answer = library.as_ref().map_err(Clone::clone).and_then(|library| {
            Ok(Arc::new(library.prepare(&key.0, key.1).map_err(|error| Declined::new(error.to_string()))?))
        });
        self.known.lock().unwrap_or_else(PoisonError::into_inner).insert(key, answer.clone());
        answer
    }
}

fn aligned(view: &View) -> bool {
    BufferOffset::of(view).1.unsigned_abs().is_multiple_of(OPERAND_ALIGNMENT)
}

/// The factor of a matrix product: of floats, or of bytes that the library takes as they are. `None` if it is not a
/// matrix product.
fn factor(kind: &ProductKind) -> Option<Result<f32, Declined>> {
    match kind {
        ProductKind::MatMul(prim) => Some(Ok(prim.alpha)),
        ProductKind::IntegerMatMul { zeros: [0, 0] } => Some(Ok(1.0)),
        ProductKind::IntegerMatMul { .. } => Some(Err(Declined::new("a product of bytes with zero points"))),
        _ => None,
    }
}

/// Describes a product of views for the library.
fn describe(alpha: f32, a: &View, b: &View, d: &View, tf32: bool) -> Result<MatmulDesc, Declined> {
    let (dtype, stored) = match (a.dtype, b.dtype, d.dtype) {
        (DType::I8, DType::I8, DType::I32) => (DataType::I8, DataType::I32),
        (one, other, stored) if one == stored && other == stored => (data_type(stored)?, data_type(stored)?),
        (one, other, stored) => {
            return Err(Declined::new(format!("a product of {one} and {other} stored as {stored}")));
        }
    };
    let ([batch, m, n], [_, _, k]) = (extents(d)?, extents(a)?);
    if ![a, b, d].into_iter().all(aligned) {
        return Err(Declined::new("an operand does not start at a multiple of 16 bytes"));
    }
    let mut desc = MatmulDesc::new(m, n, k, dtype);
    desc.batch = batch;
    desc.alpha = f64::from(alpha);
    desc.workspace_bytes = WORKSPACE_BYTES;
    (desc.a, desc.b, desc.d) = (operand(a, dtype)?, operand(b, dtype)?, operand(d, stored)?);
    if stored == DataType::I32 {
        desc.compute = Compute::I32;
    }
    if desc.d.transposed {
        return Err(Declined::new("a result that is stored transposed"));
    }
    if tf32 && dtype == DataType::F32 {
        desc.compute = Compute::F32FastTf32;
    }
    Ok(merged(desc))
}

/// Merges products that share the right operand into one, if their left operands and results are contiguous.
fn merged(desc: MatmulDesc) -> MatmulDesc {
    let (a_row, d_row) = (desc.a.row_stride.unwrap_or(desc.k), desc.d.row_stride.unwrap_or(desc.n));
    let joins = desc.b.batch_stride == 0
        && !desc.a.transposed
        && desc.a.batch_stride == desc.m * a_row
        && desc.d.batch_stride == desc.m * d_row;
    if desc.batch == 1 || !joins {
        return desc;
    }
    let single = |operand: Operand| Operand { batch_stride: 0, ..operand };
    MatmulDesc { m: desc.m * desc.batch, batch: 1, a: single(desc.a), d: single(desc.d), ..desc }
}

fn data_type(dtype: DType) -> Result<DataType, Declined> {
    match dtype {
        DType::F32 => Ok(DataType::F32),
        DType::F64 => Ok(DataType::F64),
        DType::F16 => Ok(DataType::F16),
        DType::Bf16 => Ok(DataType::Bf16),
        other => Err(Declined::new(format!("a product of {other}"))),
    }
}

fn extents(view: &View) -> Result<[usize; 3], Declined> {
    view.shape.as_slice().try_into().map_err(|_| Declined::new(format!("a product of rank {}", view.shape.len())))
}

fn operand(view: &View, dtype: DataType) -> Result<Operand, Declined> {
    let [batch, rows, columns] = extents(view)?;
    let stride = |axis: usize| usize::try_from(view.strides[axis]).map_err(|_| Declined::new("a negative stride"));
    let (batch_stride, row, column) = (if batch == 1 { 0 } else { stride(0)? }, stride(1)?, stride(2)?);
    let plain = Operand { dtype, transposed: false, row_stride: Some(row.max(columns)), batch_stride };
    // An axis with one element makes its stride irrelevant.
    if (column == 1 || columns == 1) && (row >= columns || rows == 1) {
        return Ok(plain);
    }
    if (row == 1 || rows == 1) && (column >= rows || columns == 1) {
        return Ok(Operand { transposed: true, row_stride: Some(column.max(rows)), ..plain });
    }
    Err(Declined::new("neither the rows nor the columns of an operand are contiguous"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(shape: [usize; 3], strides: [isize; 3], offset: isize) -> View {
        let strides = strides.into_iter().collect();
        View { buffer: BufferId(0), dtype: DType::F16, shape: shape.as_slice().into(), strides, offset }
    }

    fn dense(shape: [usize; 3]) -> View {
        view(shape, [(shape[1] * shape[2]) as isize, shape[2] as isize, 1], 0)
    }

    #[test]
    fn products_with_a_shared_right_operand_are_merged() {
        let (a, b, d) = (dense([4, 8, 16]), view([4, 16, 32], [0, 32, 1], 0), dense([4, 8, 32]));
        let desc = describe(1.0, &a, &b, &d, false).unwrap();
        assert_eq!((desc.batch, desc.m, desc.n, desc.k), (1, 32, 32, 16));
        // Heads that lie side by side in each row cannot be merged.
        let a = view([4, 8, 16], [16, 64, 1], 0);
        let desc = describe(1.0, &a, &b, &d, false).unwrap();
        assert_eq!((desc.batch, desc.m, desc.a.batch_stride, desc.a.row_stride), (4, 8, 16, Some(64)));
    }

    #[test]
    fn transposed_operands_are_read_in_place_and_others_declined() {
        let turned = operand(&view([2, 16, 32], [512, 1, 16], 0), DataType::F16).unwrap();
        assert_eq!((turned.transposed, turned.row_stride), (true, Some(16)));
        assert!(operand(&view([2, 16, 32], [512, 64, 2], 0), DataType::F16).is_err());
        assert!(operand(&view([2, 16, 32], [512, 0, 1], 0), DataType::F16).is_err(), "rows on top of each other");
        let (a, b, d) = (view([1, 8, 16], [0, 16, 1], 1), dense([1, 16, 32]), dense([1, 8, 32]));
        assert!(describe(1.0, &a, &b, &d, false).is_err_and(|why| why.0.contains("16 bytes")));
    }

    #[test]
    fn signed_bytes_without_zero_points_are_summed_in_32_bits() {
        let typed = |shape, dtype| View { dtype, ..dense(shape) };
        let (a, b) = (typed([1, 8, 16], DType::I8), typed([1, 16, 32], DType::I8));
        let desc = describe(1.0, &a, &b, &typed([1, 8, 32], DType::I32), false).unwrap();
        assert_eq!((desc.a.dtype, desc.d.dtype, desc.compute), (DataType::I8, DataType::I32, Compute::I32));
        for (left, stored) in [(DType::U8, DType::I32), (DType::I8, DType::F32)] {
            let (a, d) = (typed([1, 8, 16], left), typed([1, 8, 32], stored));
            assert!(describe(1.0, &a, &b, &d, false).is_err(), "{left} {stored}");
        }
        let integer = |zeros| factor(&ProductKind::IntegerMatMul { zeros }).unwrap();
        assert!(integer([0, 0]).is_ok() && integer([0, 3]).is_err());
    }

    #[test]
    fn tf32_is_used_only_for_single_precision_on_request() {
        let single = |shape| View { dtype: DType::F32, ..dense(shape) };
        let (a, b, d) = (single([1, 8, 16]), single([1, 16, 32]), single([1, 8, 32]));
        let compute = |tf32| describe(1.0, &a, &b, &d, tf32).unwrap().compute;
        assert_eq!((compute(false), compute(true)), (Compute::F32, Compute::F32FastTf32));
    }
}
