//! A session, and the meaning of its inputs and outputs.

use std::path::Path;
use std::sync::Arc;

use options::hip::{LAST_LOGITS, STATIC_PAD_SEQ};
use ort_client::{Code, Dim, Element, Kind, LogLevel, MemoryLocation, Optimization, Session, SessionOptions};

use crate::config::{Config, Names};
use crate::cross::CrossLayout;
use crate::embedding;
use crate::error::Doing;
use crate::files;
use crate::mask_width::MaskWidth;
use crate::paged::PagedLayout;
use crate::provider::{self, Attached};
use crate::states::StateLayout;
use crate::{Error, PromptShape, Result, Runtime};

/// A decoder that is ready to run. Cheap to clone; generators share it.
#[derive(Clone, Debug)]
pub struct Model {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    runtime: Runtime,
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
    /// Tokens below this have an embedding, as far as is known.
    pub embedded: usize,
    /// How wide masks may be.
    pub mask_width: MaskWidth,
    pub positions: Option<Element>,
    /// Rows of positions for each sequence: 3 for decoders that also place images, where a text has the same in all.
    pub position_rows: usize,
    pub logits: Element,
    /// Whether the model returns only the logits of the last token.
    pub pruned: bool,
    /// Whether the provider may return only the logits of a prompt's last token.
    pub last_alone: bool,
    /// Past and present of each layer that has a cache.
    pub caches: Vec<CacheLayout>,
    /// Past and present of each state.
    pub states: Vec<StateLayout>,
    /// The number of earlier tokens; only in decoders that read the output of an encoder.
    pub past_length: Option<Element>,
    /// How it reads caches in blocks; `None` if each sequence has a cache of its own.
    pub paged: Option<PagedLayout>,
    /// What it reads from an encoder.
    pub cross: Vec<CrossLayout>,
    /// Where the session wants the cache; `None` means host memory.
    pub cache_place: Option<Arc<MemoryLocation>>,
    /// Host memory.
    pub host: Arc<MemoryLocation>,
}

/// A cache tensor: the keys or the values of a layer.
#[derive(Debug)]
pub(crate) struct CacheLayout {
    pub past: String,
    pub present: String,
    pub element: Element,
    pub heads: usize,
    pub head_size: usize,
    /// The smallest number of tokens that it must have room for.
    pub least: usize,
}

impl Model {
    /// Loads the decoder on the configured provider.
    ///
    /// # Errors
    /// When the file cannot be loaded, does not match the configuration, or a GPU is required and not available.
    pub fn load(runtime: &Runtime, config: &Config) -> Result<Model> {
        let path = &config.decoder;
        files::check_folder(&config.folder)?;
        let unreadable = |source| {
            Error::File {
            path: path.clone(),
            source,
            help:
                "model.decoder.filename in genai_config.json names the decoder: create the folder again, or copy all of its files"
                    .to_owned(),
        }
        };
        let mask_width = MaskWidth::of(path, &config.names.attention_mask).map_err(unreadable)?;
        let embedded = embedding::rows(path, &config.names.input_ids).map_err(unreadable)?;
        let entries = provider_entries(config, &mask_width);
        let opened =
            provider::open(runtime, config.provider.as_ref(), &entries, path, || session_options(runtime, config));
        let opened = opened.map_err(|error| refused(path, error))?;
        let mut layout = Reader { path, config, session: &opened.session }.layout(runtime)?;
        layout.mask_width = mask_width;
        layout.embedded = embedded.unwrap_or(usize::MAX);
        let is_plugin = matches!(opened.attached, Attached::Plugin { .. });
        layout.last_alone = is_plugin && layout.paged.is_none() && last_logits(config) == Some(ALONE);
        let inner = Inner {
            runtime: runtime.clone(),
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

    /// A session of a small model on the same device, by the same backend; `None` if that backend compiles every shape,
    /// or rejects the model.
    pub(crate) fn open_beside(&self, model: &[u8]) -> Option<Session> {
        let Inner { runtime, config, attached, .. } = &*self.inner;
        if provider::needs_static_shapes(attached) {
            return None;
        }
        let applies =
            |key: &str| [OWN_ENTRIES, HIP_ENTRIES].iter().any(|own| key.starts_with(own)) && key != LAST_LOGITS;
        let mut entries = provider_entries(config, &MaskWidth::Exact);
        entries.retain(|(key, _)| applies(key));
        match provider::open_beside(runtime, config.provider.as_ref()?, &entries, model) {
            Ok((session, beside)) => (beside == *attached).then_some(session),
            Err(error) => {
                tracing::warn!(%error, "the device rejected a model that the engine uses beside the decoder");
                None
            }
        }
    }

    pub(crate) fn session(&self) -> &Session {
        &self.inner.session
    }

    pub(crate) fn layout(&self) -> &Layout {
        &self.inner.layout
    }
}

/// Why ONNX Runtime did not load a model, with what may help.
pub(crate) fn refused(path: &Path, error: Error) -> Error {
    let source = match error {
        Error::Ort { source, .. } if !matches!(source.code(), Some(Code::INVALID_ARGUMENT | Code::EP_FAIL)) => source,
        other => return other,
    };
    let message = source.message();
    // The provider's own errors say what helps.
    let (problem, help) = message.split_once("\n  help: ").unwrap_or_else(|| {
        let is_damaged = matches!(source.code(), Some(Code::INVALID_PROTOBUF | Code::NO_SUCH_FILE));
        let help = if is_damaged || message.contains("external data") {
            "the file or the .data file beside it is damaged: copy the folder again"
        } else {
            "the model may need a newer ONNX Runtime, or an operator that no provider here has: `amdgpu-ep explain` and \
             the log (AMDGPU_EP_LOG=info) say more"
        };
        (&*message, help)
    });
    Error::Model { path: path.to_path_buf(), problem: problem.to_owned(), help: help.to_owned() }
}

/// The value of [`LAST_LOGITS`] that allows one row of logits per sequence.
const ALONE: &str = "alone";

/// Prefixes of entries: those that decide which backend runs a session, and those of the hip backend.
const OWN_ENTRIES: &str = "ep.amdgpuexecutionprovider.";
const HIP_ENTRIES: &str = "ep.hip.";

/// Session entries for the provider: those of the folder, the hints that ONNX Runtime GenAI also sets, and which logits
/// are read. GenAI's `static_pad_*` are left out: this crate pads prompts itself, because the generator knows the
/// length. For a compiled graph, one entry says that masks are wide, because what the graph does with their width is not
/// known.
fn provider_entries(config: &Config, mask_width: &MaskWidth) -> Vec<(String, String)> {
    let hints =
        [("ep.migraphx.hip_graph_enable", "1".to_owned()), (&format!("{OWN_ENTRIES}model_arch"), config.kind.clone())];
    let mut entries = config.session_entries.clone();
    entries.extend(hints.map(|(key, value)| (key.to_owned(), value)));
    entries.extend(last_logits(config).map(|value| (LAST_LOGITS.to_owned(), value.to_owned())));
    if *mask_width == MaskWidth::Hidden {
        entries.push((STATIC_PAD_SEQ.to_owned(), "1".to_owned()));
    }
    entries
}

/// The value of [`LAST_LOGITS`]: the folder's, or else that unread logits can be left out, because only the scores of
/// each row's last token are read. Without a shared cache, a batch may run again as a whole, with gaps that the lengths
/// do not show; then there is no value.
fn last_logits(config: &Config) -> Option<&str> {
    let said = config.session_entries.iter().rfind(|(key, _)| key == LAST_LOGITS).map(|(_, value)| value.as_str());
    said.or_else(|| config.search.share_buffer.then_some(ALONE))
}

pub(crate) fn session_options(runtime: &Runtime, config: &Config) -> Result<SessionOptions> {
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

/// Names the failed action in the error, if a session does not say where it wants an input.
const PLACING: &str = "querying where inputs should be allocated";

/// Decoders that also place images and videos have three.
const POSITION_ROWS: i64 = 3;

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
            let problem = format!("it has no input {:?}", names.input_ids);
            let help = match self.session.inputs().iter().any(|input| input.name == "inputs_embeds") {
                true => "it reads embeddings of images or audio, too: use ONNX Runtime GenAI for such models",
                false => "model.decoder.inputs.input_ids names it",
            };
            self.wrong(problem, help)
        })?;
        let ids = self.integers(&names.input_ids, &ids)?;
        let mask = self.optional_integers(&names.attention_mask)?;
        let positions = self.optional_integers(&names.position_ids)?;
        let position_rows = self.position_rows()?;
        let logits = self.output(&names.logits)?.ok_or_else(|| {
            self.wrong(format!("it has no output {:?}", names.logits), "model.decoder.outputs.logits names it")
        })?;
        let paged = self.paged()?;
        let (logits, pruned) = self.logits(&logits, paged.is_some())?;
        let (caches, first) = self.caches()?;
        let states = self.states()?;
        let cross = self.cross()?;
        let past_length = match cross.is_empty() {
            true => None,
            false => self.optional_integers(&names.past_length)?,
        };
        self.all_inputs_are_fed(&caches, &states, &cross)?;
        let cache_place = MemoryLocation::of_input(self.session, first).doing(PLACING)?;
        let host = MemoryLocation::host(runtime.environment().runtime()).doing("describing host memory")?;
        Ok(Layout {
            host,
            ids,
            mask,
            mask_width: MaskWidth::Exact,
            embedded: usize::MAX,
            positions,
            position_rows,
            logits,
            pruned,
            last_alone: false,
            caches,
            states,
            past_length,
            paged,
            cross,
            cache_place,
        })
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
                let windows = self.config.windows.as_ref().filter(|windows| windows.layers.contains(&layer));
                caches.push(self.cache(past, present, &port, windows.map_or(0, |windows| windows.size))?);
            }
        }
        let first = first.ok_or_else(|| {
            let problem = format!("it has no input like {:?}", Names::layer(&names.past_key, 0));
            self.wrong(problem, "model.decoder.inputs.past_key_names names them, with %d for the layer")
        })?;
        Ok((caches, first))
    }

    /// The inputs that describe caches in blocks.
    fn paged(&self) -> Result<Option<PagedLayout>> {
        let names = &self.config.names;
        let Some(table) = self.optional_integers(&names.block_table)? else { return Ok(None) };
        let unfit = |problem| self.wrong(problem, "export the model again, with use_paged_attention=true");
        if self.input(&names.attention_mask)?.is_some() {
            return Err(unfit(format!("it has the inputs {:?} and {:?}", names.block_table, names.attention_mask)));
        }
        let needed = |name: &str| {
            let missing = || unfit(format!("it has the input {:?}, but no input {name:?}", names.block_table));
            self.optional_integers(name)?.ok_or_else(missing)
        };
        let Some(block) = self.config.blocks.size else {
            let problem = "its caches are in blocks, but genai_config.json does not say how large they are".to_owned();
            return Err(self.wrong(problem, "set engine.dynamic_batching.block_size"));
        };
        Ok(Some(PagedLayout {
            block,
            table,
            starts: needed(&names.starts)?,
            lengths: needed(&names.past_lengths)?,
            metadata: self.optional_integers(&names.metadata)?,
            scored: self.optional_integers(&names.scored)?,
        }))
    }

    /// Layers without a state are skipped.
    fn states(&self) -> Result<Vec<StateLayout>> {
        let names = &self.config.names;
        let kinds = [(&names.past_conv, &names.present_conv), (&names.past_recurrent, &names.present_recurrent)];
        let mut states = Vec::new();
        for (past, present) in kinds {
            for layer in 0..self.config.layers {
                let (past, present) = (Names::layer(past, layer), Names::layer(present, layer));
                let Some(port) = self.input(&past)? else { continue };
                if self.output(&present)?.is_none() {
                    let problem = format!("it has the input {past:?}, but no output {present:?}");
                    return Err(self.wrong(problem, "model.decoder.outputs names them, with %d for the layer"));
                }
                let extents = port.shape.get(1..).unwrap_or_default();
                if extents.is_empty() || extents.iter().any(|&extent| extent < 0) {
                    let problem = format!("{past:?} has the unsupported shape {:?}", port.shape);
                    return Err(self.wrong(problem, "expected a batch of states of a fixed size"));
                }
                let place = MemoryLocation::of_input(self.session, port.index).doing(PLACING)?;
                states.push(StateLayout { past, present, element: port.element, extents: extents.to_vec(), place });
            }
        }
        Ok(states)
    }

    /// The inputs that an encoder's outputs are for. A decoder without an encoder has none.
    fn cross(&self) -> Result<Vec<CrossLayout>> {
        let names = &self.config.names;
        let Some(encoder) = &self.config.encoder else { return Ok(Vec::new()) };
        let kinds = [(&names.cross_key, &encoder.cross_key), (&names.cross_value, &encoder.cross_value)];
        let mut cross = Vec::new();
        for layer in 0..self.config.layers {
            for (past, present) in kinds {
                let (past, present) = (Names::layer(past, layer), Names::layer(present, layer));
                let Some(port) = self.input(&past)? else { continue };
                let mut shape = port.shape;
                if let Some(batch) = shape.first_mut() {
                    *batch = 1;
                }
                if shape.iter().any(|&extent| extent < 0) {
                    let problem = format!("{past:?} has the unsupported shape {shape:?}");
                    return Err(self.wrong(problem, "expected a shape that is fixed, except for the batch"));
                }
                let place = MemoryLocation::of_input(self.session, port.index).doing(PLACING)?;
                cross.push(CrossLayout { past, present, element: port.element, shape, place });
            }
        }
        Ok(cross)
    }

    /// How many rows of positions a sequence has.
    fn position_rows(&self) -> Result<usize> {
        let name = &self.config.names.position_ids;
        match self.input(name)?.map(|port| port.shape) {
            None => Ok(1),
            Some(shape) if shape.len() == 2 => Ok(1),
            Some(shape) if shape.len() == 1 && self.input(&self.config.names.block_table)?.is_some() => Ok(1),
            Some(shape) => match shape[..] {
                [POSITION_ROWS, _, _] => Ok(POSITION_ROWS as usize),
                _ => {
                    let problem = format!("{name:?} has the unsupported shape {shape:?}");
                    Err(self.wrong(problem, "expected positions of shape [batch, tokens] or [3, batch, tokens]"))
                }
            },
        }
    }

    fn cache(&self, past: String, present: String, port: &Port, least: usize) -> Result<CacheLayout> {
        let is_paged = self.input(&self.config.names.block_table)?.is_some();
        let (heads, head_size) = match port.shape[..] {
            [_, _, heads, head_size] if is_paged => (heads, head_size),
            [_, heads, _, head_size] => (heads, head_size),
            _ => {
                let problem = format!("{past:?} has the unsupported shape {:?}", port.shape);
                return Err(self.wrong(problem, "expected a cache of shape [batch, heads, tokens, elements]"));
            }
        };
        let element = port.element;
        let floats = [Element::F32, Element::F16, Element::Bf16, Element::F8E4M3Fn];
        let integers = [Element::I8, Element::U8, Element::I32, Element::I64];
        if !floats.contains(&element) && !integers.contains(&element) {
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
            least,
        })
    }

    fn logits(&self, port: &Port, is_paged: bool) -> Result<(Element, bool)> {
        let name = &self.config.names.logits;
        let element = port.element;
        if !matches!(element, Element::F16 | Element::Bf16 | Element::F32) {
            return Err(self.wrong(format!("{name:?} has the unsupported type {}", element.name()), "expected floats"));
        }
        let (tokens, vocab) = match port.shape[..] {
            [tokens, vocab] if is_paged => (tokens, vocab),
            [_, tokens, vocab] if !is_paged => (tokens, vocab),
            _ => {
                let problem = format!("{name:?} has the unsupported shape {:?}", port.shape);
                let help = match is_paged {
                    true => "expected logits of shape [tokens, vocabulary], because the caches are in blocks",
                    false => "expected logits of shape [batch, tokens, vocabulary]",
                };
                return Err(self.wrong(problem, help));
            }
        };
        if vocab >= 0 && vocab != self.config.vocab_size as i64 {
            let problem =
                format!("{name:?} has rows of {vocab} elements, but model.vocab_size is {}", self.config.vocab_size);
            return Err(self.wrong(problem, "correct model.vocab_size in genai_config.json"));
        }
        Ok((element, tokens == 1 && !is_paged))
    }

    fn all_inputs_are_fed(&self, caches: &[CacheLayout], states: &[StateLayout], cross: &[CrossLayout]) -> Result<()> {
        let names = &self.config.names;
        let paged = [&names.block_table, &names.starts, &names.past_lengths, &names.metadata, &names.scored]
            .map(String::as_str);
        let is_paged = self.input(&names.block_table)?.is_some();
        let fed = |name: &str| {
            [&names.input_ids, &names.attention_mask, &names.position_ids].into_iter().any(|known| known == name)
                || (is_paged && paged.contains(&name))
                || caches.iter().any(|cache| cache.past == name)
                || states.iter().any(|state| state.past == name)
                || cross.iter().any(|cross| cross.past == name)
                || (!cross.is_empty() && names.past_length == name)
        };
        let others: Vec<&str> =
            self.session.inputs().iter().map(|input| input.name.as_str()).filter(|name| !fed(name)).collect();
        match others[..] {
            [] => Ok(()),
            [first, ..] => {
                let rest = if others.len() > 1 { format!(" and {} others", others.len() - 1) } else { String::new() };
                let problem = format!("there is nothing to feed its input {first:?}{rest} with");
                let help = "token ids, a mask, positions, caches and states are fed, by the names in model.decoder.inputs \
                            and for num_hidden_layers layers of genai_config.json";
                Err(self.wrong(problem, help))
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
