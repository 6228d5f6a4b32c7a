//! Options for parsing, quantising and compiling.

use std::path::PathBuf;

use super::handle::{Owned, c_path, c_text};
use super::library::Library;
use crate::mgx::result::{compile, onnx};
use crate::mgx::{Feature, MgxError};

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
        let (loaded, doing) = (library.loaded(), || "setting parse options".to_owned());
        let options = Owned::new(onnx::create_options(loaded, &doing)?);
        for (name, lengths) in &self.inputs {
            let text = c_text("the input", name)?;
            let doing = || format!("setting the shape of input {name} to {lengths:?}");
            // SAFETY: the options are alive.
            unsafe { onnx::set_input_shape(loaded, options.raw(), &text, lengths, &doing)? };
        }
        if let Some(folder) = &self.external_data {
            // SAFETY: the options are alive.
            unsafe { onnx::set_external_data(loaded, options.raw(), &c_path(folder)?, &doing)? };
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
        let (loaded, doing) = (library.loaded(), || "setting compile options".to_owned());
        let options = Owned::new(compile::create_options(loaded, &doing)?);
        let raw = options.raw();
        // SAFETY: the options are alive, here and below.
        unsafe { compile::set_fast_math(loaded, raw, self.fast_math, &doing)? };
        // SAFETY: as above.
        unsafe { compile::set_exhaustive_tune(loaded, raw, self.exhaustive_tune, &doing)? };
        // SAFETY: as above.
        unsafe { compile::set_offload_copy(loaded, raw, self.offload_copy, &doing)? };
        if let Some(mode) = self.compile_mode {
            if library.has(Feature::CompileMode) {
                // SAFETY: as above.
                unsafe { compile::set_mode(loaded, raw, mode, &doing)? };
            } else {
                tracing::debug!(target: "amdgpu_ep::compile", mode, "this MIGraphX has no compile modes");
            }
        }
        if let Some(text) = self.backend_options()? {
            if library.has(Feature::BackendOptions) {
                let text = c_text("the backend options", &text)?;
                // SAFETY: as above.
                unsafe { compile::set_backend_options(loaded, raw, &text, &doing)? };
            } else {
                tracing::debug!(target: "amdgpu_ep::compile", text, "this MIGraphX has no backend options");
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
