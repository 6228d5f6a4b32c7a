//! Options for parsing, quantising and compiling.

use std::path::PathBuf;

use super::MgxError;
use super::handle::{Owned, c_path, c_text, check};
use super::library::{Feature, Library};

/// How a model is parsed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ParseOptions {
    /// The shapes of inputs. MIGraphX assumes 1 for every dimension that is neither fixed in the model nor given here.
    pub inputs: Vec<(String, Vec<usize>)>,
    /// The folder of external data; by default, the current folder.
    pub external_data: Option<PathBuf>,
}

impl ParseOptions {
    pub(super) fn make(&self, library: &Library) -> Result<Owned, MgxError> {
        let table = library.table();
        let doing = || "setting parse options".to_owned();
        let options = Owned::make("onnx_options_create", table.onnx_options_destroy, doing, |out| {
            // SAFETY: `out` is a valid out-pointer.
            unsafe { (table.onnx_options_create)(out) }
        })?;
        for (name, lengths) in &self.inputs {
            let text = c_text("the input", name)?;
            // SAFETY: the options are alive. The name and lengths are copied during the call.
            let status = unsafe {
                (table.onnx_options_set_input_parameter_shape)(
                    options.raw(),
                    text.as_ptr(),
                    lengths.as_ptr(),
                    lengths.len(),
                )
            };
            let doing = || format!("setting the shape of input {name} to {lengths:?}");
            check("onnx_options_set_input_parameter_shape", status, doing)?;
        }
        if let Some(folder) = &self.external_data {
            let set = library.need(Feature::ExternalDataPath, table.onnx_options_set_external_data_path)?;
            let text = c_path(folder)?;
            // SAFETY: the options are alive. The path is copied during the call.
            let status = unsafe { set(options.raw(), text.as_ptr()) };
            check("onnx_options_set_external_data_path", status, doing)?;
        }
        Ok(options)
    }
}

/// How a program is compiled.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CompileOptions {
    /// Approximate arithmetic. The default is true in MIGraphX, but false here.
    pub fast_math: bool,
    /// Tries every available kernel.
    pub exhaustive_tune: bool,
    /// Parameters are in host memory, and MIGraphX copies them.
    pub offload_copy: bool,
    /// 0 eager, 50 balanced, 100 maximum. Ignored if the library lacks [`Feature::CompileMode`].
    pub compile_mode: Option<i32>,
    /// Operators for which the MLSS library is used. Ignored if the library lacks [`Feature::BackendOptions`].
    pub mlss_use_specific_ops: Vec<String>,
}

impl CompileOptions {
    pub(super) fn make(&self, library: &Library) -> Result<Owned, MgxError> {
        let table = library.table();
        let doing = || "setting compile options".to_owned();
        let options = Owned::make("compile_options_create", table.compile_options_destroy, doing, |out| {
            // SAFETY: `out` is a valid out-pointer.
            unsafe { (table.compile_options_create)(out) }
        })?;
        let raw = options.raw();
        // SAFETY: the options are alive.
        let status = unsafe { (table.compile_options_set_fast_math)(raw, self.fast_math) };
        check("compile_options_set_fast_math", status, doing)?;
        // SAFETY: as above.
        let status = unsafe { (table.compile_options_set_exhaustive_tune_flag)(raw, self.exhaustive_tune) };
        check("compile_options_set_exhaustive_tune_flag", status, doing)?;
        // SAFETY: as above.
        let status = unsafe { (table.compile_options_set_offload_copy)(raw, self.offload_copy) };
        check("compile_options_set_offload_copy", status, doing)?;
        match (self.compile_mode, table.compile_options_set_compile_mode) {
            // SAFETY: as above.
            (Some(mode), Some(set)) => check("compile_options_set_compile_mode", unsafe { set(raw, mode) }, doing)?,
            (Some(mode), None) => {
                tracing::debug!(target: "amdgpu_ep::compile", mode, "this MIGraphX has no compile modes")
            }
            (None, _) => {}
        }
        if let Some(text) = self.backend_options()? {
            match table.compile_options_set_advance_backend_options {
                Some(set) => {
                    let text = c_text("the backend options", &text)?;
                    // SAFETY: as above; the format takes exactly one string, which is copied during the call.
                    let status = unsafe { set(raw, c"%s".as_ptr(), text.as_ptr()) };
                    check("compile_options_set_advance_backend_options", status, doing)?;
                }
                None => tracing::debug!(target: "amdgpu_ep::compile", text, "this MIGraphX has no backend options"),
            }
        }
        Ok(options)
    }

    /// The options without a dedicated function, as a JSON object.
    fn backend_options(&self) -> Result<Option<String>, MgxError> {
        if self.mlss_use_specific_ops.is_empty() {
            return Ok(None);
        }
        let plain = |op: &String| op.chars().all(|c| c.is_ascii_alphanumeric() || "_-:.".contains(c));
        if let Some(op) = self.mlss_use_specific_ops.iter().find(|op| !plain(op)) {
            return Err(MgxError::refused(format!("the operator {op:?}"), "it is not a name"));
        }
        let quoted: Vec<String> = self.mlss_use_specific_ops.iter().map(|op| format!("\"{op}\"")).collect();
        Ok(Some(format!("{{\"mlss_use_specific_ops\": [{}]}}", quoted.join(", "))))
    }
}

/// The inputs of one run, by name, in host memory and row-major order.
pub type Sample = Vec<(String, Vec<u8>)>;

/// How a program is quantised before it is compiled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Quantize {
    /// Half precision.
    Fp16,
    /// bfloat16; see [`Feature::Bf16`].
    Bf16,
    /// 8-bit integers in convolutions and matrix products, with the ranges observed while running `calibration`.
    Int8 {
        /// At least one sample; each contains every input.
        calibration: Vec<Sample>,
    },
    /// fp8 e4m3; see [`Feature::Fp8`].
    Fp8 {
        /// At least one sample; each contains every input.
        calibration: Vec<Sample>,
    },
}

impl Quantize {
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Fp16 => "fp16",
            Self::Bf16 => "bf16",
            Self::Int8 { .. } => "int8",
            Self::Fp8 { .. } => "fp8",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backend_options_are_a_json_object_of_names() {
        let options = |ops: &[&str]| CompileOptions {
            mlss_use_specific_ops: ops.iter().map(|&op| op.to_owned()).collect(),
            ..CompileOptions::default()
        };
        assert_eq!(options(&[]).backend_options(), Ok(None));
        let text = options(&["conv", "gpu::dot"]).backend_options().unwrap();
        assert_eq!(text.as_deref(), Some(r#"{"mlss_use_specific_ops": ["conv", "gpu::dot"]}"#));
        assert!(options(&["conv\"]}"]).backend_options().is_err(), "names must not escape from the string");
    }
}
