//! Programs: their parameters and outputs, runs, and files.

use std::ffi::{CStr, CString, c_void};
use std::ptr;

use super::{Created, Doing, check, created};
use crate::mgx::MgxError;
use crate::mgx::sys::{Handle, Loaded};

/// The type name that MIGraphX requires before it accepts a pointer as a HIP stream.
const STREAM_TYPE: &CStr = c"ihipStream_t";

/// The shapes of a program's parameters, by name.
///
/// # Safety
/// The program is alive.
pub unsafe fn parameter_shapes(library: &Loaded, program: Handle, doing: Doing<'_>) -> Result<Created, MgxError> {
    let table = &library.table;
    let destroy = ("program_parameter_shapes_destroy", table.program_parameter_shapes_destroy);
    created("program_get_parameter_shapes", destroy, doing, |out| {
        // SAFETY: `out` is a valid out-pointer; the caller vouches for the program.
        unsafe { (table.program_get_parameter_shapes)(out, program) }
    })
}

/// The names of parameters.
///
/// # Safety
/// The shapes came from [`parameter_shapes`] and are alive.
pub unsafe fn parameter_names(library: &Loaded, shapes: Handle, doing: Doing<'_>) -> Result<Vec<CString>, MgxError> {
    let table = &library.table;
    let mut count = 0;
    // SAFETY: `count` is a valid out-pointer; the caller vouches for the shapes.
    let status = unsafe { (table.program_parameter_shapes_size)(&mut count, shapes) };
    check("program_parameter_shapes_size", status, doing)?;
    let mut names = vec![ptr::null(); count];
    // SAFETY: the array has an element for every name; the caller vouches for the shapes.
    let status = unsafe { (table.program_parameter_shapes_names)(names.as_mut_ptr(), shapes) };
    check("program_parameter_shapes_names", status, doing)?;
    let names = names.into_iter().filter(|name| !name.is_null());
    // SAFETY: MIGraphX returned NUL-terminated names that live as long as the shapes.
    Ok(names.map(|name| unsafe { CStr::from_ptr(name) }.to_owned()).collect())
}

/// The shape of a parameter, which lives as long as the shapes.
///
/// # Safety
/// The shapes came from [`parameter_shapes`] and are alive, and the name is one of theirs.
pub unsafe fn parameter_shape(
    library: &Loaded,
    shapes: Handle,
    name: &CStr,
    doing: Doing<'_>,
) -> Result<Handle, MgxError> {
    let mut shape = ptr::null_mut();
    // SAFETY: `shape` is a valid out-pointer; the caller vouches for the shapes and the name.
    let status = unsafe { (library.table.program_parameter_shapes_get)(&mut shape, shapes, name.as_ptr()) };
    check("program_parameter_shapes_get", status, doing)?;
    Ok(shape)
}

/// The shapes of a program's outputs, as a list of [`shape`](super::shape)s.
///
/// # Safety
/// The program is alive.
pub unsafe fn output_shapes(library: &Loaded, program: Handle, doing: Doing<'_>) -> Result<Created, MgxError> {
    let table = &library.table;
    created("program_get_output_shapes", ("shapes_destroy", table.shapes_destroy), doing, |out| {
        // SAFETY: `out` is a valid out-pointer; the caller vouches for the program.
        unsafe { (table.program_get_output_shapes)(out, program) }
    })
}

/// Creates an empty set of bound parameters.
pub fn create_parameters(library: &Loaded, doing: Doing<'_>) -> Result<Created, MgxError> {
    let table = &library.table;
    let destroy = ("program_parameters_destroy", table.program_parameters_destroy);
    created("program_parameters_create", destroy, doing, |out| {
        // SAFETY: `out` is a valid out-pointer.
        unsafe { (table.program_parameters_create)(out) }
    })
}

/// Binds an argument to a name. Both are copied.
///
/// # Safety
/// Parameters and argument are alive.
pub unsafe fn add_parameter(
    library: &Loaded,
    parameters: Handle,
    name: &CStr,
    argument: Handle,
    doing: Doing<'_>,
) -> Result<(), MgxError> {
    // SAFETY: the name and argument are copied during the call; the caller vouches for both handles.
    let status = unsafe { (library.table.program_parameters_add)(parameters, name.as_ptr(), argument) };
    check("program_parameters_add", status, doing)
}

/// Runs a program, on a stream or until it is done. The result is a list of [`argument`](super::argument)s.
///
/// # Safety
/// Program and parameters are alive. The memory behind the parameters is accessible to the program's target until the
/// run is over. The stream is one of the HIP device that the program was compiled for.
pub unsafe fn run(
    library: &Loaded,
    program: Handle,
    parameters: Handle,
    stream: Option<*mut c_void>,
    doing: Doing<'_>,
) -> Result<Created, MgxError> {
    let table = &library.table;
    let call = if stream.is_some() { "program_run_async" } else { "program_run" };
    created(call, ("arguments_destroy", table.arguments_destroy), doing, |out| match stream {
        // SAFETY: `out` is a valid out-pointer; the caller vouches for the rest.
        Some(stream) => unsafe { (table.program_run_async)(out, program, parameters, stream, STREAM_TYPE.as_ptr()) },
        // SAFETY: as above.
        None => unsafe { (table.program_run)(out, program, parameters) },
    })
}

/// Creates options for loading and saving.
pub fn create_file_options(library: &Loaded, doing: Doing<'_>) -> Result<Created, MgxError> {
    let table = &library.table;
    created("file_options_create", ("file_options_destroy", table.file_options_destroy), doing, |out| {
        // SAFETY: `out` is a valid out-pointer.
        unsafe { (table.file_options_create)(out) }
    })
}

/// Loads a saved program.
///
/// # Safety
/// The options are alive.
pub unsafe fn load(library: &Loaded, path: &CStr, options: Handle, doing: Doing<'_>) -> Result<Created, MgxError> {
    let table = &library.table;
    created("load", ("program_destroy", table.program_destroy), doing, |out| {
        // SAFETY: `out` is a valid out-pointer. The path is only read during the call. The caller vouches for the
        // options.
        unsafe { (table.load)(out, path.as_ptr(), options) }
    })
}

/// Saves a program.
///
/// # Safety
/// Program and options are alive.
pub unsafe fn save(
    library: &Loaded,
    program: Handle,
    path: &CStr,
    options: Handle,
    doing: Doing<'_>,
) -> Result<(), MgxError> {
    // SAFETY: the path is only read during the call; the caller vouches for both handles.
    check("save", unsafe { (library.table.save)(program, path.as_ptr(), options) }, doing)
}
