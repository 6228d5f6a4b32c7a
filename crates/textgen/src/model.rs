//! A session, and the meaning of its inputs and outputs.

use std::path::Path;
use std::sync::Arc;

use options::hip::LAST_LOGITS;
use ort_client::{Code, Dim, Element, Kind, LogLevel, Optimization, Place, Session, SessionOptions};

use crate::config::{Config, Names};
use crate::error::Doing;
use crate::files;
use crate::provider::{self, Attached};
use crate::{Error, PromptShape, Result, Runtime};

/// A decoder that is ready to run. Cheap to clone; generators share it.
#[derive(Clone, Debug)]
pub struct Model {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    config: Config,
    session: Session,
    attached: Attached,
    notices: Vec<String>,
    layout: Layout,
}

/// Inputs and outputs of the decoder.
#[derive(Debug)]
pub(crate) struct Layout {
    pub ids: Element,
    /// `None` if the decoder has no such input.
    pub mask: Option<Element>,
    pub positions: Option<Element>,
    pub logits: Element,
    /// Whether the model returns only the logits of the last token.
    pub pruned: bool,
    /// Whether the provider may return only the logits of a prompt's last token.
    pub last_alone: bool,
    /// Past and present of each layer that has a cache.
    pub caches: Vec<CacheLayout>,
    /// Where the session wants the cache; `None` means host memory.
    pub cache_place: Option<Arc<Place>>,
    /// Host memory.
    pub host: Arc<Place>,
}

/// One cache tensor: the keys or the values of a layer.
#[derive(Debug)]
pub(crate) struct CacheLayout {
    pub past: String,
    pub present: String,
    pub element: Element,
    pub heads: usize,
    pub head_size: usize,
}

impl Model {
    /// Loads the decoder on the configured provider.
    ///
    /// # Errors
    /// When the file cannot be loaded, does not match the configuration, or a GPU is required and not available.
    pub fn load(runtime: &Runtime, config: &Config) -> Result<Model> {
        let path = &config.decoder;
        files::check_folder(&config.folder)?;
        files::open_regular(path).map_err(|source| Error::File {
            path: path.clone(),
            source,
            help:
                "model.decoder.filename in genai_config.json names the decoder: create the folder again, or copy all of its files"
                    .to_owned(),
        })?;
        let opened = provider::open(runtime, config.provider.as_ref(), &provider_entries(config), path, || {
            session_options(runtime, config)
        });
        let opened = opened.map_err(|error| match error {
            Error::Ort { source, .. } if !matches!(source.code(), Some(Code::INVALID_ARGUMENT | Code::EP_FAIL)) => {
                Error::Model {
                    path: path.clone(),
                    problem: source.message().into_owned(),
                    help: "the file or the .data file beside it is damaged, or the model needs a newer ONNX Runtime"
                        .to_owned(),
                }
            }
            other => other,
        })?;
        let mut layout = Reader { path, config, session: &opened.session }.layout(runtime)?;
        let is_plugin = matches!(opened.attached, Attached::Plugin { .. });
        layout.last_alone = is_plugin && last_logits(config) == Some(ALONE);
        let inner = Inner {
            config: config.clone(),
            session: opened.session,
            attached: opened.attached,
            notices: opened.notices,
            layout,
        };
        Ok(Model { inner: Arc::new(inner) })
    }

    /// The configuration that it was loaded with.
    pub fn config(&self) -> &Config {
        &self.inner.config
    }

    /// The provider that it runs on.
    pub fn attached(&self) -> &Attached {
        &self.inner.attached
    }

    /// Whether sequences with this prompt shape use as few shapes as possible, because the provider needs it or the
    /// caller asked.
    pub fn has_static_shapes(&self, shape: PromptShape) -> bool {
        match shape {
            PromptShape::Auto => provider::needs_static_shapes(&self.inner.attached),
            PromptShape::Exact => false,
            PromptShape::MaxLength => true,
        }
    }

    /// Why it does not run on the requested provider; meant for stderr.
    pub fn notices(&self) -> &[String] {
        &self.inner.notices
    }

    /// Size of the keys and values of one token in bytes, over all layers.
    pub fn cache_bytes_per_token(&self) -> usize {
        let caches = self.inner.layout.caches.iter();
        caches.map(|cache| cache.heads * cache.head_size * cache.element.bytes()).sum()
    }

    /// Peak memory of the caches' allocator in bytes; `None` if the caches are in host memory, or the allocator has no
    /// statistics.
    pub fn device_bytes_at_most(&self) -> Option<u64> {
        let stats = self.inner.layout.cache_place.as_ref()?.stats()?;
        stats.iter().find(|(name, _)| name == "MaxInUse")?.1.parse().ok()
    }

    pub(crate) fn runtime(&self) -> &ort_client::Runtime {
        self.inner.session.environment().runtime()
    }

    pub(crate) fn session(&self) -> &Session {
        &self.inner.session
    }

    pub(crate) fn layout(&self) -> &Layout {
        &self.inner.layout
    }
}

/// The value of [`LAST_LOGITS`] that allows one row of logits per sequence.
const ALONE: &str = "alone";

/// Session entries for the provider: those of the folder, the hints that ONNX Runtime GenAI also sets, and which logits
/// are read. GenAI's `static_pad_*` are left out: this crate pads prompts itself, because the generator knows the
/// length.
fn provider_entries(config: &Config) -> Vec<(String, String)> {
    let hints = [
        ("ep.migraphx.hip_graph_enable", "1".to_owned()),
        ("ep.amdgpuexecutionprovider.model_arch", config.kind.clone()),
    ];
    let mut entries = config.session_entries.clone();
    entries.extend(hints.map(|(key, value)| (key.to_owned(), value)));
    entries.extend(last_logits(config).map(|value| (LAST_LOGITS.to_owned(), value.to_owned())));
    entries
}

/// The value of [`LAST_LOGITS`]: the folder's, or else that unread logits can be left out, because only the scores of
/// each row's last token are read. Without a shared cache, a batch may run again as a whole, with gaps that the lengths
/// do not show; then there is no value.
fn last_logits(config: &Config) -> Option<&str> {
    let said = config.session_entries.iter().rfind(|(key, _)| key == LAST_LOGITS).map(|(_, value)| value.as_str());
    said.or_else(|| config.search.share_buffer.then_some(ALONE))
}

fn session_options(runtime: &Runtime, config: &Config) -> Result<SessionOptions> {
    let settings = &config.session;
    let make = || -> ort_client::Result<SessionOptions> {
        let mut options = SessionOptions::new(runtime.environment())?;
        if let Some(id) = &settings.log_id {
            options.log_id(id)?;
        }
        if let Some(severity) = settings.log_severity {
            options.log_level(match severity {
                0 => LogLevel::Verbose,
                1 => LogLevel::Info,
                2 => LogLevel::Warning,
                3 => LogLevel::Error,
                _ => LogLevel::Fatal,
            })?;
        }
        if let Some(threads) = settings.intra_threads {
            options.intra_threads(threads)?;
        }
        if let Some(threads) = settings.inter_threads {
            options.inter_threads(threads)?;
        }
        if let Some(pattern) = settings.memory_pattern {
            options.memory_pattern(pattern)?;
        }
        let level = settings.optimisation.as_deref().and_then(|level| match level {
            "ORT_DISABLE_ALL" => Some(Optimization::Disabled),
            "ORT_ENABLE_BASIC" => Some(Optimization::Basic),
            "ORT_ENABLE_EXTENDED" => Some(Optimization::Extended),
            "ORT_ENABLE_LAYOUT" => Some(Optimization::Layout),
            "ORT_ENABLE_ALL" => Some(Optimization::All),
            _ => None,
        });
        if let Some(level) = level {
            options.optimization(level)?;
        }
        for (key, value) in &config.session_entries {
            options.config(key, value)?;
        }
        Ok(options)
    };
    make().doing("creating session options")
}

/// Reads a session's inputs and outputs.
struct Reader<'a> {
    path: &'a Path,
    config: &'a Config,
    session: &'a Session,
}

/// An input or output tensor of a session.
struct Port {
    index: usize,
    element: Element,
    /// Dynamic extents are -1.
    shape: Vec<i64>,
}

impl Reader<'_> {
    fn layout(&self, runtime: &Runtime) -> Result<Layout> {
        let names = &self.config.names;
        let ids = self.input(&names.input_ids)?.ok_or_else(|| {
            self.wrong(format!("it has no input {:?}", names.input_ids), "model.decoder.inputs.input_ids names it")
        })?;
        let ids = self.integers(&names.input_ids, &ids)?;
        let mask = self.optional_integers(&names.attention_mask)?;
        let positions = self.optional_integers(&names.position_ids)?;
        let logits = self.output(&names.logits)?.ok_or_else(|| {
            self.wrong(format!("it has no output {:?}", names.logits), "model.decoder.outputs.logits names it")
        })?;
        let (logits, pruned) = self.logits(&logits)?;
        let (caches, first) = self.caches()?;
        self.all_inputs_are_fed(&caches)?;
        let cache_place = Place::of_input(self.session, first).doing("asking where inputs are wanted")?;
        let host = Place::host(runtime.environment().runtime()).doing("naming the memory of this process")?;
        Ok(Layout { host, ids, mask, positions, logits, pruned, last_alone: false, caches, cache_place })
    }

    /// Layers without a cache are skipped; a model without any cache cannot generate token by token.
    fn caches(&self) -> Result<(Vec<CacheLayout>, usize)> {
        let names = &self.config.names;
        let mut caches = Vec::new();
        let mut first = None;
        for layer in 0..self.config.layers {
            for (past, present) in [(&names.past_key, &names.present_key), (&names.past_value, &names.present_value)] {
                let (past, present) = (Names::layer(past, layer), Names::layer(present, layer));
                let Some(port) = self.input(&past)? else { continue };
                if self.output(&present)?.is_none() {
                    let problem = format!("it has the input {past:?}, but no output {present:?}");
                    return Err(self.wrong(problem, "model.decoder.outputs names them, with %d for the layer"));
                }
                first.get_or_insert(port.index);
                caches.push(self.cache(past, present, &port)?);
            }
        }
        let first = first.ok_or_else(|| {
            let problem = format!("it has no input like {:?}", Names::layer(&names.past_key, 0));
            self.wrong(problem, "model.decoder.inputs.past_key_names names them, with %d for the layer")
        })?;
        Ok((caches, first))
    }

    fn cache(&self, past: String, present: String, port: &Port) -> Result<CacheLayout> {
        let [_, heads, _, head_size] = port.shape[..] else {
            let problem = format!("{past:?} has the unsupported shape {:?}", port.shape);
            return Err(self.wrong(problem, "expected a cache of shape [batch, heads, tokens, elements]"));
        };
        let element = port.element;
        if !matches!(
            element,
            Element::F32 | Element::F16 | Element::Bf16 | Element::I8 | Element::U8 | Element::I32 | Element::I64
        ) {
            return Err(self.wrong(format!("{past:?} has the unsupported type {}", element.name()), "expected floats"));
        }
        // The model's extents take precedence; dynamic ones come from the configuration.
        let extent = |extent: i64, config: usize| usize::try_from(extent).unwrap_or(config);
        Ok(CacheLayout {
            past,
            present,
            element,
            heads: extent(heads, self.config.kv_heads),
            head_size: extent(head_size, self.config.head_size),
        })
    }

    fn logits(&self, port: &Port) -> Result<(Element, bool)> {
        let name = &self.config.names.logits;
        let element = port.element;
        if !matches!(element, Element::F16 | Element::Bf16 | Element::F32) {
            return Err(self.wrong(format!("{name:?} has the unsupported type {}", element.name()), "expected floats"));
        }
        let [_, tokens, vocab] = port.shape[..] else {
            let problem = format!("{name:?} has the unsupported shape {:?}", port.shape);
            return Err(self.wrong(problem, "expected logits of shape [batch, tokens, vocabulary]"));
        };
        if vocab >= 0 && vocab != self.config.vocab_size as i64 {
            let problem =
                format!("{name:?} has rows of {vocab} elements, but model.vocab_size is {}", self.config.vocab_size);
            return Err(self.wrong(problem, "correct model.vocab_size in genai_config.json"));
        }
        Ok((element, tokens == 1))
    }

    fn all_inputs_are_fed(&self, caches: &[CacheLayout]) -> Result<()> {
        let names = &self.config.names;
        let fed = |name: &str| {
            [&names.input_ids, &names.attention_mask, &names.position_ids].into_iter().any(|known| known == name)
                || caches.iter().any(|cache| cache.past == name)
        };
        match self.session.inputs().iter().find(|input| !fed(&input.name)) {
            None => Ok(()),
            Some(input) => {
                let problem = format!("its input {:?} is not supported", input.name);
                Err(self.wrong(problem, "check model.decoder.inputs and num_hidden_layers in genai_config.json"))
            }
        }
    }

    fn optional_integers(&self, name: &str) -> Result<Option<Element>> {
        self.input(name)?.map(|port| self.integers(name, &port)).transpose()
    }

    fn integers(&self, name: &str, port: &Port) -> Result<Element> {
        match port.element {
            element @ (Element::I32 | Element::I64) => Ok(element),
            other => {
                Err(self
                    .wrong(format!("{name:?} has the unsupported type {}", other.name()), "expected int32 or int64"))
            }
        }
    }

    fn input(&self, name: &str) -> Result<Option<Port>> {
        self.port(self.session.inputs(), name)
    }

    fn output(&self, name: &str) -> Result<Option<Port>> {
        self.port(self.session.outputs(), name)
    }

    fn port(&self, ports: &[ort_client::Port], name: &str) -> Result<Option<Port>> {
        let Some((index, port)) = ports.iter().enumerate().find(|(_, port)| port.name == name) else {
            return Ok(None);
        };
        match &port.kind {
            Kind::Tensor(element, dims) => {
                let extent = |dim: &Dim| if let Dim::Size(size) = dim { *size as i64 } else { -1 };
                Ok(Some(Port { index, element: *element, shape: dims.iter().map(extent).collect() }))
            }
            Kind::Other(_) => Err(self
                .wrong(format!("{name:?} is not a tensor"), "use a decoder whose inputs and outputs are all tensors")),
            other => Err(self.wrong(format!("{name:?} is {other}"), "use a decoder of tensors of numbers")),
        }
    }

    fn wrong(&self, problem: String, help: &str) -> Error {
        Error::Model { path: self.path.to_path_buf(), problem, help: help.to_owned() }
    }
}
