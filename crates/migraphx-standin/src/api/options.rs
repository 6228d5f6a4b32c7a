//! Options of the parser, the compiler, files and quantisation, and the list of operators.

use std::ffi::{c_char, c_int};

use super::run::Bound;
use super::{api, list, text};
use crate::compute::OPERATORS;
use crate::handles::{Handle, free, give, of, of_mut, put};
use crate::model::ParseOptions;

/// The compiler's options.
#[derive(Debug)]
pub struct CompileOptions {
    /// MIGraphX's default is true.
    pub fast_math: bool,
    /// Off by default.
    pub exhaustive_tune: bool,
    /// Off by default.
    pub offload_copy: bool,
    /// 0, 50 or 100.
    pub mode: Option<c_int>,
    /// The string that was set.
    pub backend: Option<String>,
}

/// File options, which have no settings.
pub struct FileOptions;

/// Calibration samples for int8.
pub struct Int8Options(pub Vec<Bound>);

/// Calibration samples for fp8.
pub struct Fp8Options(pub Vec<Bound>);

api! {
    fn migraphx_onnx_options_create(out: *mut Handle) {
        give(out, ParseOptions::default())
    }

    fn migraphx_onnx_options_destroy(options: Handle) {
        free::<ParseOptions>(options)
    }

    fn migraphx_onnx_options_set_input_parameter_shape(
        options: Handle,
        name: *const c_char,
        dims: *const usize,
        count: usize,
    ) {
        of_mut::<ParseOptions>(options)?.inputs.insert(text(name)?, list(dims, count));
        Ok(())
    }

    fn migraphx_onnx_options_set_external_data_path(options: Handle, folder: *const c_char) {
        of_mut::<ParseOptions>(options)?.external_data = text(folder)?;
        Ok(())
    }

    fn migraphx_compile_options_create(out: *mut Handle) {
        let (fast_math, exhaustive_tune, offload_copy) = (true, false, false);
        give(out, CompileOptions { fast_math, exhaustive_tune, offload_copy, mode: None, backend: None })
    }

    fn migraphx_compile_options_destroy(options: Handle) {
        free::<CompileOptions>(options)
    }

    fn migraphx_compile_options_set_fast_math(options: Handle, value: bool) {
        of_mut::<CompileOptions>(options)?.fast_math = value;
        Ok(())
    }

    fn migraphx_compile_options_set_exhaustive_tune_flag(options: Handle, value: bool) {
        of_mut::<CompileOptions>(options)?.exhaustive_tune = value;
        Ok(())
    }

    fn migraphx_compile_options_set_offload_copy(options: Handle, value: bool) {
        of_mut::<CompileOptions>(options)?.offload_copy = value;
        Ok(())
    }

    fn migraphx_compile_options_set_compile_mode(options: Handle, mode: c_int) {
        of_mut::<CompileOptions>(options)?.mode = Some(mode);
        Ok(())
    }

    // MIGraphX's function is variadic. A caller passes the one string that its format needs as a plain third argument.
    fn migraphx_compile_options_set_advance_backend_options(options: Handle, format: *const c_char, json: *const c_char) {
        if text(format)? != "%s" {
            return Err("bad parameter: the stand-in supports only the format %s".into());
        }
        of_mut::<CompileOptions>(options)?.backend = Some(text(json)?);
        Ok(())
    }

    fn migraphx_file_options_create(out: *mut Handle) {
        give(out, FileOptions)
    }

    fn migraphx_file_options_destroy(options: Handle) {
        free::<FileOptions>(options)
    }

    fn migraphx_quantize_int8_options_create(out: *mut Handle) {
        give(out, Int8Options(Vec::new()))
    }

    fn migraphx_quantize_int8_options_destroy(options: Handle) {
        free::<Int8Options>(options)
    }

    fn migraphx_quantize_int8_options_add_calibration_data(options: Handle, sample: Handle) {
        of_mut::<Int8Options>(options)?.0.push(of::<Bound>(sample)?.clone());
        Ok(())
    }

    fn migraphx_quantize_fp8_options_create(out: *mut Handle) {
        give(out, Fp8Options(Vec::new()))
    }

    fn migraphx_quantize_fp8_options_destroy(options: Handle) {
        free::<Fp8Options>(options)
    }

    fn migraphx_quantize_fp8_options_add_calibration_data(options: Handle, sample: Handle) {
        of_mut::<Fp8Options>(options)?.0.push(of::<Bound>(sample)?.clone());
        Ok(())
    }

    fn migraphx_get_onnx_operators_size(out: *mut usize) {
        put(out, OPERATORS.len())
    }

    fn migraphx_get_onnx_operator_name_at_index(out: *mut *const c_char, index: usize) {
        put(out, OPERATORS.get(index).ok_or("no such operator")?.as_ptr())
    }
}
