//! BLASLt: handles, descriptors, layouts, the heuristic and the product itself.

use std::ffi::{c_int, c_void};
use std::ptr;

use crate::sys::{BlasLtTable, Handle, Status};
use crate::{DriverKind, HipError};

/// A filled BLASLt table and its driver.
pub struct Blas {
    /// The driver of these functions.
    pub kind: DriverKind,
    /// The functions.
    pub table: BlasLtTable,
}

impl Blas {
    fn check(&self, call: &'static str, code: Status) -> Result<(), HipError> {
        if code == 0 {
            return Ok(());
        }
        Err(HipError::Call { driver: self.kind, call, code, text: status_text(self.kind, code).to_owned() })
    }
}

/// Describes a status; the two libraries number them differently.
fn status_text(kind: DriverKind, code: Status) -> &'static str {
    match (kind, code) {
        (_, 1) => "not initialised",
        (DriverKind::Nvidia, 3) | (DriverKind::Amd | DriverKind::Host, 2) => "allocation failed",
        (DriverKind::Nvidia, 7) | (DriverKind::Amd | DriverKind::Host, 3) => "invalid value",
        (_, 8) => "architecture mismatch",
        (DriverKind::Nvidia, 11) | (DriverKind::Amd | DriverKind::Host, 4) => "mapping error",
        (DriverKind::Nvidia, 13) | (DriverKind::Amd | DriverKind::Host, 5) => "execution failed",
        (DriverKind::Nvidia, 14) | (DriverKind::Amd | DriverKind::Host, 6) => "internal error",
        (DriverKind::Nvidia, 15) | (DriverKind::Amd | DriverKind::Host, 7) => "not supported",
        _ => "unknown status",
    }
}

/// Creates a handle on the current device.
///
/// # Errors
/// The library's status.
///
/// # Safety
/// There is a current device: without one, hipBLASLt terminates the process.
pub unsafe fn create(blas: &Blas) -> Result<Handle, HipError> {
    let mut handle = ptr::null_mut();
    // SAFETY: `handle` is a valid out-pointer; the caller vouches for the device.
    blas.check("hipblasLtCreate", unsafe { (blas.table.create)(&mut handle) })?;
    Ok(handle)
}

/// Creates the descriptor of a product.
///
/// # Errors
/// The library's status.
pub fn desc_create(blas: &Blas, compute: c_int, scale: c_int) -> Result<Handle, HipError> {
    let mut desc = ptr::null_mut();
    // SAFETY: `desc` is a valid out-pointer for the length of the call.
    blas.check("hipblasLtMatmulDescCreate", unsafe { (blas.table.desc_create)(&mut desc, compute, scale) })?;
    Ok(desc)
}

/// Creates a column-major layout.
///
/// # Errors
/// The library's status.
pub fn layout_create(blas: &Blas, dtype: c_int, rows: u64, cols: u64, leading: i64) -> Result<Handle, HipError> {
    let mut layout = ptr::null_mut();
    // SAFETY: `layout` is a valid out-pointer for the length of the call.
    let status = unsafe { (blas.table.layout_create)(&mut layout, dtype, rows, cols, leading) };
    blas.check("hipblasLtMatrixLayoutCreate", status)?;
    Ok(layout)
}

/// Creates a search preference.
///
/// # Errors
/// The library's status.
pub fn preference_create(blas: &Blas) -> Result<Handle, HipError> {
    let mut preference = ptr::null_mut();
    // SAFETY: `preference` is a valid out-pointer for the length of the call.
    let status = unsafe { (blas.table.preference_create)(&mut preference) };
    blas.check("hipblasLtMatmulPreferenceCreate", status)?;
    Ok(preference)
}

/// The three kinds of object that take attributes.
#[derive(Clone, Copy, Debug)]
pub enum Attributed {
    /// From [`desc_create`].
    Desc(Handle),
    /// From [`layout_create`].
    Layout(Handle),
    /// From [`preference_create`].
    Preference(Handle),
}

/// Sets an attribute of 4 or 8 bytes.
///
/// # Errors
/// The library's status.
///
/// # Safety
/// The object is live and `T` has the size the library expects for this attribute.
pub unsafe fn set<T: Copy>(blas: &Blas, object: Attributed, attribute: c_int, value: T) -> Result<(), HipError> {
    let (call, function, handle) = match object {
        Attributed::Desc(handle) => ("hipblasLtMatmulDescSetAttribute", blas.table.desc_set_attribute, handle),
        Attributed::Layout(handle) => ("hipblasLtMatrixLayoutSetAttribute", blas.table.layout_set_attribute, handle),
        Attributed::Preference(handle) => {
            ("hipblasLtMatmulPreferenceSetAttribute", blas.table.preference_set_attribute, handle)
        }
    };
    // SAFETY: `value` is readable for its size; the caller vouches for the rest.
    let status = unsafe { function(handle, attribute, ptr::from_ref(&value).cast::<c_void>(), size_of::<T>()) };
    blas.check(call, status)
}

/// Destroys any object of this module with the table's matching `destroy` function.
///
/// # Errors
/// The library's status.
///
/// # Safety
/// `handle` is live, of the kind `destroy` takes, and not used afterwards.
pub unsafe fn destroy(
    blas: &Blas,
    call: &'static str,
    destroy: unsafe extern "C" fn(Handle) -> Status,
    handle: Handle,
) -> Result<(), HipError> {
    // SAFETY: the caller vouches for the handle.
    blas.check(call, unsafe { destroy(handle) })
}

/// The four layouts of a product, in the order of the calls.
#[derive(Clone, Copy, Debug)]
pub struct Layouts {
    /// First operand.
    pub a: Handle,
    /// Second operand.
    pub b: Handle,
    /// Added operand.
    pub c: Handle,
    /// Result.
    pub d: Handle,
}

/// Fills `results` with up to `want` heuristic results and returns how many there are.
///
/// # Errors
/// The library's status.
///
/// # Safety
/// Every handle is live; `results` has space for `want` results of the library's stride.
pub unsafe fn heuristic(
    blas: &Blas,
    handle: Handle,
    desc: Handle,
    layouts: Layouts,
    preference: Handle,
    want: c_int,
    results: *mut c_void,
) -> Result<usize, HipError> {
    let mut got = 0;
    let Layouts { a, b, c, d } = layouts;
    // SAFETY: the caller vouches for the handles and for the size of `results`.
    let status = unsafe { (blas.table.get_heuristic)(handle, desc, a, b, c, d, preference, want, results, &mut got) };
    blas.check("hipblasLtMatmulAlgoGetHeuristic", status)?;
    Ok(usize::try_from(got.clamp(0, want)).unwrap_or(0))
}

/// The operands of a product: two host addresses, then device addresses.
#[derive(Clone, Copy, Debug)]
pub struct Operands {
    /// Factor of the product, of the scale type.
    pub alpha: *const c_void,
    /// Factor of `c`, of the scale type.
    pub beta: *const c_void,
    /// First operand.
    pub a: *const c_void,
    /// Second operand.
    pub b: *const c_void,
    /// Added operand.
    pub c: *const c_void,
    /// Result.
    pub d: *mut c_void,
    /// Workspace.
    pub workspace: *mut c_void,
    /// Size of the workspace in bytes.
    pub workspace_bytes: usize,
}

/// Enqueues a product.
///
/// # Errors
/// The library's status.
///
/// # Safety
/// Every handle is live; `alpha` and `beta` point to values of the scale type; `algorithm` came from [`heuristic`] for
/// this product; the operands cover the memory that the layouts describe until the stream has passed this point.
pub unsafe fn matmul(
    blas: &Blas,
    handle: Handle,
    desc: Handle,
    layouts: Layouts,
    operands: Operands,
    algorithm: *const c_void,
    stream: Handle,
) -> Result<(), HipError> {
    let Operands { alpha, beta, a, b, c, d, workspace, workspace_bytes } = operands;
    // SAFETY: the caller vouches for everything.
    let status = unsafe {
        (blas.table.matmul)(
            handle,
            desc,
            alpha,
            a,
            layouts.a,
            b,
            layouts.b,
            beta,
            c,
            layouts.c,
            d,
            layouts.d,
            algorithm,
            workspace,
            workspace_bytes,
            stream,
        )
    };
    blas.check("hipblasLtMatmul", status)
}
