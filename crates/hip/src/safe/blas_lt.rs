//! Matrix products with hipBLASLt or cublasLt, row-major as in ONNX.
//!
//! The libraries are column-major. They see a row-major matrix as its transpose, so `D = A B` is computed as `Dᵀ = Bᵀ
//! Aᵀ`: the operands are swapped and no data moves. The bias then has one entry per column of `D`.

use std::ffi::{c_int, c_void};
use std::fmt;
use std::path::{Path, PathBuf};
use std::ptr::{self, NonNull};
use std::sync::{Arc, Mutex, PoisonError};

use super::Shared;
use super::blas_kernels;
use super::device::Device;
use super::driver::Driver;
use super::matmul_desc::{Epilogue, MatmulDesc, Operand, Shape, Shapes, signed, too_large};
use super::report_leak;
use super::stream::RawStream;
use crate::result::blas_lt::{self, Attributed, Blas, Layouts, Operands};
use crate::result::device;
use crate::sys::loader::{self, Loaded};
use crate::sys::twin;
use crate::sys::{BlasLtTable, Handle, Role, Search};
use crate::{Attempt, DriverKind, HipError, LoadError};

struct Library {
    blas: Blas,
    path: PathBuf,
    attempts: Vec<Attempt>,
}

static LOADED: Shared<Library> = Shared::new();

fn library(kind: DriverKind) -> Result<Arc<Library>, LoadError> {
    LOADED.load(kind, || load(kind))
}

fn load(kind: DriverKind) -> Result<Arc<Library>, LoadError> {
    let runtime = (kind == DriverKind::Amd).then(|| Driver::load(kind).ok()).flatten();
    let beside = runtime.as_ref().map(Driver::library);
    let Loaded { table, path, attempts } =
        loader::load(&Search::from_env(), kind, Role::BlasLt, beside, BlasLtTable::fill)?;
    Ok(Arc::new(Library { blas: Blas { kind, table }, path, attempts }))
}

impl Drop for Library {
    fn drop(&mut self) {
        LOADED.forget(self.blas.kind);
    }
}

/// Where a driver's BLASLt came from: its file, its version if that needs no device, and the names tried before.
pub(crate) fn found(kind: DriverKind) -> Result<(PathBuf, Option<String>, Vec<Attempt>), LoadError> {
    let library = library(kind)?;
    // SAFETY: cublasLt's function takes no argument; hipBLASLt's needs a handle and is not called.
    let version = library.blas.table.twin_get_version.map(|get| unsafe { get() }.to_string());
    Ok((library.path.clone(), version, library.attempts.clone()))
}

/// BLASLt on one device. AMD asks for one per concurrent stream.
#[derive(Clone)]
pub struct BlasLt(Arc<Inner>);

struct Inner {
    device: Device,
    library: Arc<Library>,
    handle: Handle,
}

// SAFETY: the libraries allow a handle to be used from any thread.
unsafe impl Send for Inner {}
// SAFETY: both libraries document concurrent use of one handle from several host threads.
unsafe impl Sync for Inner {}

/// An algorithm for one product, found by the library.
#[derive(Clone)]
pub struct Algorithm {
    /// The library's structure, stored as words that have the alignment it needs.
    words: Vec<u64>,
    workspace_bytes: usize,
}

impl Algorithm {
    /// Workspace bytes that this algorithm needs.
    pub fn workspace_bytes(&self) -> usize {
        self.workspace_bytes
    }
}

/// A product that is ready to run.
pub struct Matmul {
    blas: BlasLt,
    desc: MatmulDesc,
    layouts: Layouts,
    /// The library's descriptor. It contains the bias address, which is set for each run: one run at a time.
    descriptor: Mutex<Owned>,
    _layouts: [Owned; 3],
    algorithms: Vec<Algorithm>,
}

// SAFETY: the handles point to plain memory of the library and are not bound to a thread.
unsafe impl Send for Matmul {}
// SAFETY: the layouts are only read after they are created; the descriptor is behind a mutex.
unsafe impl Sync for Matmul {}

/// The operands of a product; every address is on the device.
#[derive(Clone, Copy, Debug)]
pub struct MatmulAddresses {
    /// `A`.
    pub a: *const u8,
    /// `B`.
    pub b: *const u8,
    /// `C`; may be null if beta is 0, and may be `d`.
    pub c: *const u8,
    /// `D`.
    pub d: *mut u8,
    /// The bias; null if the epilogue has none.
    pub bias: *const u8,
    /// The workspace.
    pub workspace: *mut u8,
    /// Size of the workspace in bytes.
    pub workspace_bytes: usize,
}

impl Device {
    /// BLASLt on this device, like [`BlasLt::new`].
    ///
    /// # Errors
    /// As [`BlasLt::new`].
    pub fn blas_lt(&self) -> Result<BlasLt, HipError> {
        BlasLt::new(self)
    }
}

impl BlasLt {
    /// Loads BLASLt if it is not loaded yet, and creates a handle on a device.
    ///
    /// # Errors
    /// [`HipError::Library`] if there is no such library, [`HipError::NoKernels`] if it has none for the device;
    /// otherwise its status.
    pub fn new(device: &Device) -> Result<BlasLt, HipError> {
        let library = library(device.kind())?;
        let target = device.info().arch_family();
        if device.kind() == DriverKind::Amd
            && let Some(folder) = blas_kernels::folder_without_kernels(&library.path, target)
        {
            return Err(HipError::NoKernels { library: library.path.clone(), target: target.to_owned(), folder });
        }
        let _scope = device.enter()?;
        // hipBLASLt terminates the process if there is no device, so check with the driver first.
        device::count(device.driver().runtime())?;
        // SAFETY: there is a device, and `_scope` made it current.
        let handle = unsafe { blas_lt::create(&library.blas) }?;
        Ok(BlasLt(Arc::new(Inner { device: device.clone(), library, handle })))
    }

    /// The device it runs on.
    pub fn device(&self) -> &Device {
        &self.0.device
    }

    /// The file that the library was loaded from.
    pub fn library(&self) -> &Path {
        &self.0.library.path
    }

    /// Prepares a product and asks for up to `want` algorithms, best first.
    ///
    /// It is not an error if there are none: [`Matmul::algorithms`] is then empty, and the caller has to use another
    /// kernel.
    ///
    /// # Errors
    /// [`HipError::Invalid`] for invalid sizes; otherwise the library's status.
    pub fn prepare(&self, desc: &MatmulDesc, want: usize) -> Result<Matmul, HipError> {
        let shapes = Shapes::of(desc)?;
        let _scope = self.0.device.enter()?;
        let blas = &self.0.library.blas;
        let numbers = twin::blas_numbers(blas.kind);
        let (compute, scale) = desc.compute.numbers(numbers);
        let descriptor = Owned::new(self, OwnedKind::Desc, blas_lt::desc_create(blas, compute, scale as c_int)?);
        let operation = |operand: &Operand| if operand.transposed { numbers.op_transpose } else { numbers.op_none };
        let target = Attributed::Desc(descriptor.handle);
        // SAFETY: the descriptor is live; every value below has the size both libraries document for its attribute.
        unsafe {
            // The operands are swapped, see the top of this file.
            blas_lt::set(blas, target, numbers.desc_transpose_a, operation(&desc.b))?;
            blas_lt::set(blas, target, numbers.desc_transpose_b, operation(&desc.a))?;
            if desc.epilogue != Epilogue::None {
                blas_lt::set(blas, target, numbers.desc_epilogue, desc.epilogue as c_int)?;
            }
            if desc.epilogue.has_bias() {
                blas_lt::set(blas, target, numbers.desc_bias_type, desc.bias_type as c_int)?;
                // The search requires an address but does not dereference it. `run` sets the real one.
                let any = ptr::without_provenance::<c_void>(4096);
                blas_lt::set(blas, target, numbers.desc_bias_pointer, any)?;
            }
        }
        let [a, b, d] = [
            self.layout(shapes.b, desc.b, desc.batch)?,
            self.layout(shapes.a, desc.a, desc.batch)?,
            self.layout(shapes.d, desc.d, desc.batch)?,
        ];
        let layouts = Layouts { a: a.handle, b: b.handle, c: d.handle, d: d.handle };
        let algorithms = self.search(desc, descriptor.handle, layouts, want)?;
        Ok(Matmul {
            blas: self.clone(),
            desc: *desc,
            layouts,
            descriptor: Mutex::new(descriptor),
            _layouts: [a, b, d],
            algorithms,
        })
    }

    fn layout(&self, shape: Shape, operand: Operand, batch: usize) -> Result<Owned, HipError> {
        let blas = &self.0.library.blas;
        let numbers = twin::blas_numbers(blas.kind);
        // The library sees a stored row as a column.
        let handle = blas_lt::layout_create(blas, operand.dtype as c_int, shape.cols, shape.rows, shape.row_stride)?;
        let layout = Owned::new(self, OwnedKind::Layout, handle);
        if batch > 1 {
            let target = Attributed::Layout(handle);
            let count = c_int::try_from(batch).map_err(|_| too_large("the batch", batch))?;
            let stride = signed("the batch stride", operand.batch_stride)?;
            // SAFETY: the layout is live; the count has 4 bytes and the stride 8, as both libraries document.
            unsafe {
                blas_lt::set(blas, target, numbers.layout_batch_count, count)?;
                blas_lt::set(blas, target, numbers.layout_batch_stride, stride)?;
            }
        }
        Ok(layout)
    }

    fn search(
        &self,
        desc: &MatmulDesc,
        descriptor: Handle,
        layouts: Layouts,
        want: usize,
    ) -> Result<Vec<Algorithm>, HipError> {
        let blas = &self.0.library.blas;
        let numbers = twin::blas_numbers(blas.kind);
        let preference = Owned::new(self, OwnedKind::Preference, blas_lt::preference_create(blas)?);
        let target = Attributed::Preference(preference.handle);
        // SAFETY: the preference is live; the workspace has 8 bytes and the alignments 4, as the libraries document.
        unsafe {
            blas_lt::set(blas, target, numbers.preference_workspace, desc.workspace_bytes as u64)?;
            for attribute in numbers.preference_alignment.into_iter().flatten() {
                blas_lt::set(blas, target, attribute, desc.alignment)?;
            }
        }
        let want = want.clamp(1, 64);
        let stride = numbers.result_stride / 8;
        let mut results = vec![0u64; stride * want];
        // SAFETY: every handle is live; `results` has space for `want` results of the library's stride.
        let found = unsafe {
            let out = results.as_mut_ptr().cast::<c_void>();
            blas_lt::heuristic(blas, self.0.handle, descriptor, layouts, preference.handle, want as c_int, out)
        };
        let got = match found {
            Ok(got) => got,
            Err(HipError::Call { code, .. }) if code == numbers.not_supported => 0,
            Err(error) => return Err(error),
        };
        Ok(results
            .chunks_exact(stride)
            .take(got)
            .filter(|result| low_half(result[numbers.result_state / 8]) == 0)
            .map(|result| Algorithm {
                words: result[..numbers.result_workspace / 8].to_vec(),
                workspace_bytes: usize::try_from(result[numbers.result_workspace / 8]).unwrap_or(usize::MAX),
            })
            .filter(|algorithm| algorithm.workspace_bytes <= desc.workspace_bytes)
            .collect())
    }
}

/// The first four bytes of a word in memory.
fn low_half(word: u64) -> u32 {
    let [a, b, c, d, ..] = word.to_ne_bytes();
    u32::from_ne_bytes([a, b, c, d])
}

impl Matmul {
    /// The description it was prepared for.
    pub fn desc(&self) -> &MatmulDesc {
        &self.desc
    }

    /// Algorithms for it, best first; empty if the library has none.
    pub fn algorithms(&self) -> &[Algorithm] {
        &self.algorithms
    }

    /// Enqueues the product with the best algorithm.
    ///
    /// # Errors
    /// As [`Matmul::run_with`]; [`HipError::Invalid`] if there is no algorithm.
    ///
    /// # Safety
    /// As [`Matmul::run_with`].
    pub unsafe fn run(&self, addresses: MatmulAddresses, stream: RawStream<'_>) -> Result<(), HipError> {
        let Some(algorithm) = self.algorithms.first() else {
            let reason = format!("the library has no kernel for {:?}", self.desc);
            return Err(HipError::Invalid { call: "hipblasLtMatmul", reason });
        };
        // SAFETY: the caller vouches for everything.
        unsafe { self.run_with(algorithm, addresses, stream) }
    }

    /// Enqueues the product with a given algorithm.
    ///
    /// # Errors
    /// [`HipError::Invalid`] if the bias or workspace is missing; otherwise the library's status.
    ///
    /// # Safety
    /// `algorithm` came from this product. The addresses cover the memory that the description requires, with its
    /// alignment, until the stream has passed this point and, if it is captured, for every launch of the capture.
    pub unsafe fn run_with(
        &self,
        algorithm: &Algorithm,
        addresses: MatmulAddresses,
        stream: RawStream<'_>,
    ) -> Result<(), HipError> {
        let refuse = |reason: &str| HipError::Invalid { call: "hipblasLtMatmul", reason: reason.to_owned() };
        if algorithm.workspace_bytes > addresses.workspace_bytes {
            return Err(refuse("the workspace is smaller than the algorithm needs"));
        }
        let inner = &*self.blas.0;
        let blas = &inner.library.blas;
        let _scope = inner.device.enter()?;
        let descriptor = self.descriptor.lock().unwrap_or_else(PoisonError::into_inner);
        if self.desc.epilogue.has_bias() {
            let bias = NonNull::new(addresses.bias.cast_mut()).ok_or_else(|| refuse("the epilogue needs a bias"))?;
            let attribute = twin::blas_numbers(blas.kind).desc_bias_pointer;
            // SAFETY: the descriptor is live and locked; the attribute is an address of 8 bytes.
            unsafe { blas_lt::set(blas, Attributed::Desc(descriptor.handle), attribute, bias.as_ptr())? };
        }
        let (alpha, beta) = (self.desc.compute.scale(self.desc.alpha), self.desc.compute.scale(self.desc.beta));
        let c = if addresses.c.is_null() { addresses.d.cast_const() } else { addresses.c };
        let operands = Operands {
            alpha: alpha.as_ptr().cast(),
            beta: beta.as_ptr().cast(),
            // The operands are swapped, see the top of this file.
            a: addresses.b.cast(),
            b: addresses.a.cast(),
            c: c.cast(),
            d: addresses.d.cast(),
            workspace: addresses.workspace.cast(),
            workspace_bytes: addresses.workspace_bytes,
        };
        // SAFETY: every handle is live; the factors have the scale type's size; the caller vouches for the rest.
        unsafe {
            let way = algorithm.words.as_ptr().cast();
            blas_lt::matmul(blas, inner.handle, descriptor.handle, self.layouts, operands, way, stream.handle())
        }
    }
}

enum OwnedKind {
    Desc,
    Layout,
    Preference,
}

/// An object of the library, destroyed on drop.
struct Owned {
    blas: BlasLt,
    kind: OwnedKind,
    handle: Handle,
}

impl Owned {
    fn new(blas: &BlasLt, kind: OwnedKind, handle: Handle) -> Owned {
        Owned { blas: blas.clone(), kind, handle }
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        let blas = &self.blas.0.library.blas;
        let (call, destroy) = match self.kind {
            OwnedKind::Desc => ("hipblasLtMatmulDescDestroy", blas.table.desc_destroy),
            OwnedKind::Layout => ("hipblasLtMatrixLayoutDestroy", blas.table.layout_destroy),
            OwnedKind::Preference => ("hipblasLtMatmulPreferenceDestroy", blas.table.preference_destroy),
        };
        // SAFETY: the handle has this kind, came from this library and is destroyed only here.
        if let Err(error) = unsafe { blas_lt::destroy(blas, call, destroy, self.handle) } {
            report_leak("BLASLt object", &error);
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let blas = &self.library.blas;
        // SAFETY: the handle came from this library; everything created from it holds `self`.
        let destroyed = self
            .device
            .enter()
            .and_then(|_scope| unsafe { blas_lt::destroy(blas, "hipblasLtDestroy", blas.table.destroy, self.handle) });
        if let Err(error) = destroyed {
            report_leak("BLASLt handle", &error);
        }
    }
}

impl fmt::Debug for BlasLt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BlasLt({}, {})", self.0.device, self.0.library.path.display())
    }
}

impl fmt::Debug for Matmul {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Matmul({:?}, {} algorithms)", self.desc, self.algorithms.len())
    }
}
