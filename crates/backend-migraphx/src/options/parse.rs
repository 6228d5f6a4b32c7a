//! Parses option values.
use std::collections::BTreeMap;
use std::path::PathBuf;

use ::options::migraphx::TABLE;
use ::options::parse_switch;

use super::raw::Text;
use super::{CacheOptions, Calibration, OptionError, Options, Precision, Raw, StaticPad};

/// 16 GiB: enough for a few large models.
const CACHE_BYTES: u64 = 16 << 30;
/// The default number of programs in memory: prefill and decode for a few lengths.
const PROGRAMS: usize = 8;

impl Options {
    /// Reads the options of a session. Also returns warnings for the log.
    ///
    /// # Errors
    /// An unknown key, a value of the wrong type, or mutually exclusive options.
    pub fn from_entries(
        entries: &BTreeMap<String, String>,
        registered: &str,
        environment: impl Fn(&str) -> Option<String>,
    ) -> Result<(Self, Vec<String>), OptionError> {
        TABLE.read(entries.iter().map(|(key, value)| (key.as_str(), value.as_str())))?;
        let Raw { options: texts, mut warnings } = Raw::gather(entries, registered, &environment);
        let read = Reader { texts: &texts };
        let folder = read.text("cache_dir").map(PathBuf::from).or_else(|| {
            let shared = environment("AMDGPU_EP_CACHE_DIR").filter(|folder| !folder.is_empty());
            shared.map(|folder| PathBuf::from(folder).join("migraphx"))
        });
        let cache = CacheOptions {
            folder,
            save: !read.flag("disable_caching")?,
            load: !read.flag("force_recompile")?,
            max_bytes: read.number("cache_max_bytes")?.unwrap_or(CACHE_BYTES),
        };
        let cpu_control_flow = read.flag("cpu_control_flow")?;
        let compute_mode = read.compute_mode(&mut warnings)?;
        let batches = read.batches()?;
        let static_pad = read.static_pad()?;
        if !batches.is_empty() && static_pad.is_some() {
            return Err(OptionError::Together { first: "max_dynamic_batch", second: "static_pad_seq" });
        }
        let hip_graph = read.flag("hip_graph_enable")?;
        if hip_graph && cpu_control_flow {
            warnings.push("hip_graph_enable is off: cpu_control_flow leaves nodes on the CPU".to_owned());
        }
        if read.flag("coalesce_io")? {
            warnings.push("coalesce_io is ignored: tensors are already on the device when a partition runs".to_owned());
        }
        let options = Self {
            target: read.text("target").unwrap_or_else(|| "gpu".to_owned()).to_lowercase(),
            device_id: read.number("device_id")?.unwrap_or(0),
            precision: read.precision(&mut warnings)?,
            cache,
            // The highest compute mode also enables it.
            exhaustive_tune: read.flag("exhaustive_tune")? || compute_mode == Some(100),
            compute_mode,
            mlss_ops: read.list("mlss_use_specific_ops"),
            offload_copy: read.maybe_flag("offload_copy")?,
            dump_subgraphs: read.flag("dump_subgraphs")?,
            hip_graph: hip_graph && !cpu_control_flow,
            cpu_control_flow,
            batches,
            background_compile: read.maybe_flag("background_compile")?.unwrap_or(true),
            static_pad,
            max_programs: read.number("max_programs")?.unwrap_or(PROGRAMS).max(1),
        };
        Ok((options, warnings))
    }
}

struct Reader<'a> {
    texts: &'a BTreeMap<&'static str, Text>,
}

impl Reader<'_> {
    fn get(&self, key: &str) -> Option<&Text> {
        self.texts.get(key).filter(|text| !text.text.is_empty())
    }

    fn text(&self, key: &str) -> Option<String> {
        self.get(key).map(|text| text.text.clone())
    }

    fn list(&self, key: &str) -> Vec<String> {
        let parts = self.get(key).map_or("", |text| &text.text).split(',').map(str::trim);
        parts.filter(|part| !part.is_empty()).map(str::to_owned).collect()
    }

    fn flag(&self, key: &str) -> Result<bool, OptionError> {
        Ok(self.maybe_flag(key)?.unwrap_or(false))
    }

    fn maybe_flag(&self, key: &str) -> Result<Option<bool>, OptionError> {
        let Some(text) = self.get(key) else { return Ok(None) };
        parse_switch(&text.text).map(Some).map_err(|_| wrong(text, "0 or 1"))
    }

    fn number<N: std::str::FromStr>(&self, key: &str) -> Result<Option<N>, OptionError> {
        let Some(text) = self.get(key) else { return Ok(None) };
        text.text.parse().map(Some).map_err(|_| wrong(text, "a non-negative number"))
    }

    fn compute_mode(&self, warnings: &mut Vec<String>) -> Result<Option<i32>, OptionError> {
        let Some(text) = self.get("compute_mode") else { return Ok(None) };
        match text.text.to_lowercase().as_str() {
            "eager" | "0" => Ok(Some(0)),
            "balanced" | "50" => Ok(Some(50)),
            "maximum" | "max" | "100" => Ok(Some(100)),
            other if text.from_environment => {
                warnings.push(format!("{} is {other:?}, which is unknown; ignored", text.origin));
                Ok(None)
            }
            _ => Err(wrong(text, "eager, balanced or maximum")),
        }
    }

    fn precision(&self, warnings: &mut Vec<String>) -> Result<Precision, OptionError> {
        let calibration = self.text("int8_calibration_table_name");
        let native = self.flag("int8_use_native_calibration_table")?;
        let mut precision = Precision {
            fp16: self.flag("fp16_enable")?,
            bf16: self.flag("bf16_enable")?,
            fp8: self.flag("fp8_enable")?,
            int8: self.flag("int8_enable")?,
            calibration: calibration.map(|table| Calibration { table, native }),
        };
        if precision.fp16 && precision.bf16 {
            warnings.push("fp16_enable and bf16_enable cannot be combined: both are off".to_owned());
            (precision.fp16, precision.bf16) = (false, false);
        }
        if precision.int8 && precision.fp8 {
            warnings.push("int8_enable and fp8_enable cannot be combined: both are off".to_owned());
            (precision.int8, precision.fp8) = (false, false);
        }
        Ok(precision)
    }

    /// The listed sizes, or powers of two up to the maximum.
    fn batches(&self) -> Result<Vec<usize>, OptionError> {
        let largest: usize = self.number("max_dynamic_batch")?.unwrap_or(0);
        let sizes = self.list("compile_batches").into_iter().filter_map(|size| size.parse().ok());
        let mut sizes: Vec<usize> = sizes.filter(|&size| size > 0).collect();
        if sizes.is_empty() && largest > 0 {
            let doubled = |size: &usize| size.checked_mul(2).filter(|_| *size < largest);
            sizes = std::iter::successors(Some(1_usize), doubled).collect();
        }
        sizes.sort_unstable();
        sizes.dedup();
        Ok(sizes)
    }

    fn static_pad(&self) -> Result<Option<StaticPad>, OptionError> {
        let inputs = self.axes("static_pad_inputs");
        if !self.flag("static_pad_seq")? || inputs.is_empty() {
            return Ok(None);
        }
        let length_is_forced = self.get("static_pad_seq_len").is_some_and(|text| text.from_environment);
        let length = self.number("static_pad_seq_len")?.unwrap_or(0);
        Ok(Some(StaticPad { length, length_is_forced, inputs, outputs: self.axes("static_pad_outputs") }))
    }

    /// Parses `name:axis` pairs. The axis defaults to 1; entries with an invalid axis are skipped.
    fn axes(&self, key: &str) -> Vec<(String, usize)> {
        let pair = |part: String| match part.rsplit_once(':') {
            None => Some((part, 1)),
            Some((name, axis)) => Some((name.trim().to_owned(), axis.trim().parse().ok()?)),
        };
        self.list(key).into_iter().filter_map(pair).filter(|(name, _)| !name.is_empty()).collect()
    }
}

fn wrong(text: &Text, wanted: &str) -> OptionError {
    OptionError::Value { origin: text.origin.clone(), value: text.text.clone(), wanted: wanted.to_owned() }
}
