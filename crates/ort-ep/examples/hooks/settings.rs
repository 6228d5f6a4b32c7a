//! Provider options of one session.
use std::collections::BTreeMap;
use std::path::PathBuf;

use ort_ep::{EpRequest, Result, Weightless};

/// The options that a session set.
#[derive(Debug, Default)]
pub struct Settings {
    /// `nhwc=1`: prefers channels-last; `nhwc=ask` lets ONNX Runtime decide for each operator.
    pub nhwc: Option<String>,
    /// `capture=N`: a graph counts as captured after N runs.
    pub capture: Option<usize>,
    /// `cpu_shapes=1`: the capture protocol allows shape nodes on the CPU.
    pub cpu_shapes: bool,
    /// `profile=1`: has a profiler.
    pub profile: bool,
    /// `resources=1`: creates its own allocators and streams; `resources=default_stream`: streams that represent the
    /// driver's default stream, so that another library can copy on them.
    pub resources: Option<String>,
    /// `ram=VENDOR`: the memory of that vendor's GPUs is RAM, although another library allocates it.
    pub ram: Option<u32>,
    /// `serial=1`: runs one at a time.
    pub serial: bool,
    /// `default_device=N`: nodes run on the memory of device N.
    pub default_device: Option<u32>,
    /// `budget=BYTES`: reports how much memory is left.
    pub budget: Option<u64>,
    /// `compiled=TEXT`: saves compiled models with this compatibility text.
    pub compiled: Option<String>,
    /// `weightless=external|all`.
    pub weightless: Option<Weightless>,
    /// `callbacks=1|2|3`: read, write or both blob callbacks are honoured.
    pub callbacks: u32,
    /// `only=OP`: claims no other operator.
    pub only: Option<String>,
    /// `results=N`: returns N results for every group of partitions, instead of one for each.
    pub results: Option<usize>,
    /// Where to save the compiled model, if one is being made.
    pub save: Option<Save>,
}

/// How partitions of a compiled model are saved.
#[derive(Clone, Debug)]
pub struct Save {
    pub embedded: bool,
    pub model: Option<PathBuf>,
}

impl Settings {
    pub fn read(request: &EpRequest<'_>) -> Result<Self> {
        let entries = request.options.config_entries()?;
        // Behind another plugin, the options under the registered name belong to that plugin: `ep.hooks.*` always
        // reaches this one.
        let prefixes = [format!("ep.{}.", request.name.to_string_lossy().to_lowercase()), "ep.hooks.".to_owned()];
        let own: BTreeMap<_, _> = entries
            .iter()
            .filter_map(|(key, value)| {
                let name = prefixes.iter().find_map(|prefix| key.strip_prefix(prefix.as_str()))?;
                Some((name, value.as_str()))
            })
            .collect();
        let is_on = |key| own.get(key) == Some(&"1");
        let text = |key| own.get(key).map(|&value| value.to_owned());
        let weightless = match own.get("weightless") {
            Some(&"external") => Some(Weightless::ExternalOnly),
            Some(&"all") => Some(Weightless::All),
            _ => None,
        };
        let save = entries.get("ep.context_enable").is_some_and(|on| on == "1").then(|| Save {
            embedded: entries.get("ep.context_embed_mode").is_none_or(|mode| mode == "1"),
            model: entries.get("ep.context_file_path").filter(|path| !path.is_empty()).map(PathBuf::from),
        });
        Ok(Self {
            nhwc: text("nhwc"),
            capture: number(&own, "capture"),
            cpu_shapes: is_on("cpu_shapes"),
            profile: is_on("profile"),
            resources: text("resources"),
            ram: number(&own, "ram"),
            serial: is_on("serial"),
            default_device: number(&own, "default_device"),
            budget: number(&own, "budget"),
            compiled: text("compiled"),
            weightless,
            callbacks: number(&own, "callbacks").unwrap_or(0),
            only: text("only"),
            results: number(&own, "results"),
            save,
        })
    }
}

fn number<T: std::str::FromStr>(entries: &BTreeMap<&str, &str>, key: &str) -> Option<T> {
    entries.get(key).and_then(|text| text.parse().ok())
}
