//! The lowest layer: function pointers with the C library's signatures, and the code that loads them.
//!
//! Enums are plain integers here, because their numbers differ between releases.

use std::ffi::{c_char, c_int, c_void};

use dylib::Library;

pub mod loader;

pub use loader::Loaded;

/// 0 is success.
pub type Status = c_int;
/// Any opaque handle.
pub type Handle = *mut c_void;
/// A number of `migraphx_shape_datatype_t`.
pub type Datatype = c_int;
/// A function that takes one handle: a destructor, or a conversion of a whole program.
pub type OfHandle = unsafe extern "C" fn(Handle) -> Status;
type Create = unsafe extern "C" fn(*mut Handle) -> Status;
type Quantize = unsafe extern "C" fn(Handle, Handle, Handle) -> Status;
/// The string is a `printf` format.
type AdvanceBackendOptions = unsafe extern "C" fn(Handle, *const c_char, ...) -> Status;

/// Declares the table and how each pointer is looked up.
macro_rules! function_table {
    (
        required { $( $r:ident: ($($ra:ty),*); )* }
        optional { $( $(#[$om:meta])* $o:ident: $ot:ty; )* }
    ) => {
        /// The functions of one `libmigraphx_c`. Optional functions were added after 2.8.
        pub struct Table {
            $( pub $r: unsafe extern "C" fn($($ra),*) -> Status, )*
            $( $(#[$om])* pub $o: Option<$ot>, )*
        }

        impl Table {
            /// Fills the table, or names the required functions that are missing.
            ///
            /// # Safety
            /// `library` is a MIGraphX C library, so that each name has the signature written in this table.
            pub unsafe fn fill(library: &Library) -> Result<Table, Vec<&'static str>> {
                let mut missing = Vec::new();
                $(
                    // SAFETY: the caller vouches for the library. The signatures are those of migraphx.h.
                    let $r = unsafe { library.symbol(concat!("migraphx_", stringify!($r))) };
                    if $r.is_none() {
                        missing.push(concat!("migraphx_", stringify!($r)));
                    }
                )*
                // The struct expression below evaluates to `None` exactly when `missing` is not empty.
                let filled = (|| Some(Table {
                    $( $r: $r?, )*
                    $(
                        // SAFETY: as above.
                        $o: unsafe { library.symbol(concat!("migraphx_", stringify!($o))) },
                    )*
                }))();
                filled.ok_or(missing)
            }
        }
    };
}

function_table! {
    required {
        target_create: (*mut Handle, *const c_char);
        target_destroy: (Handle);

        onnx_options_create: (*mut Handle);
        onnx_options_destroy: (Handle);
        onnx_options_set_input_parameter_shape: (Handle, *const c_char, *const usize, usize);
        parse_onnx_buffer: (*mut Handle, *const c_void, usize, Handle);

        compile_options_create: (*mut Handle);
        compile_options_destroy: (Handle);
        compile_options_set_offload_copy: (Handle, bool);
        compile_options_set_fast_math: (Handle, bool);
        compile_options_set_exhaustive_tune_flag: (Handle, bool);

        program_destroy: (Handle);
        program_compile: (Handle, Handle, Handle);
        program_get_parameter_shapes: (*mut Handle, Handle);
        program_get_output_shapes: (*mut Handle, Handle);
        program_run: (*mut Handle, Handle, Handle);
        program_run_async: (*mut Handle, Handle, Handle, *mut c_void, *const c_char);

        program_parameter_shapes_destroy: (Handle);
        program_parameter_shapes_size: (*mut usize, Handle);
        program_parameter_shapes_names: (*mut *const c_char, Handle);
        program_parameter_shapes_get: (*mut Handle, Handle, *const c_char);

        program_parameters_create: (*mut Handle);
        program_parameters_destroy: (Handle);
        program_parameters_add: (Handle, *const c_char, Handle);

        shape_create: (*mut Handle, Datatype, *const usize, usize);
        shape_destroy: (Handle);
        shape_lengths: (*mut *const usize, *mut usize, Handle);
        shape_strides: (*mut *const usize, *mut usize, Handle);
        shape_type: (*mut Datatype, Handle);
        shape_bytes: (*mut usize, Handle);

        shapes_destroy: (Handle);
        shapes_size: (*mut usize, Handle);
        shapes_get: (*mut Handle, Handle, usize);

        argument_create: (*mut Handle, Handle, *mut c_void);
        argument_destroy: (Handle);
        argument_shape: (*mut Handle, Handle);
        argument_buffer: (*mut *mut c_char, Handle);
        arguments_destroy: (Handle);
        arguments_size: (*mut usize, Handle);
        arguments_get: (*mut Handle, Handle, usize);

        file_options_create: (*mut Handle);
        file_options_destroy: (Handle);
        load: (*mut Handle, *const c_char, Handle);
        save: (Handle, *const c_char, Handle);

        quantize_fp16: (Handle);
        quantize_int8_options_create: (*mut Handle);
        quantize_int8_options_destroy: (Handle);
        quantize_int8_options_add_calibration_data: (Handle, Handle);
        quantize_int8: (Handle, Handle, Handle);
    }
    optional {
        /// 2.10.
        onnx_options_set_external_data_path: unsafe extern "C" fn(Handle, *const c_char) -> Status;
        /// 2.12.
        quantize_fp8_options_create: Create;
        /// 2.12.
        quantize_fp8_options_destroy: OfHandle;
        /// 2.12.
        quantize_fp8_options_add_calibration_data: unsafe extern "C" fn(Handle, Handle) -> Status;
        /// 2.12.
        quantize_fp8: Quantize;
        /// 2.13.
        quantize_bf16: OfHandle;
        /// 2.15.
        get_onnx_operators_size: unsafe extern "C" fn(*mut usize) -> Status;
        /// 2.15.
        get_onnx_operator_name_at_index: unsafe extern "C" fn(*mut *mut c_char, usize) -> Status;
        /// 2.17.
        compile_options_set_compile_mode: unsafe extern "C" fn(Handle, c_int) -> Status;
        /// 2.17.
        compile_options_set_advance_backend_options: AdvanceBackendOptions;
    }
}
