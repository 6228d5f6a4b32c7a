//! The execution provider, with every optional group of hooks.
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use ort_ep::view::{Graph, HostReadable, Node, RunOptions};
use ort_ep::{
    AllocatorHandle, Claims, Compiled, CompiledModels, DataLayout, Ep, EpContextNode, Error, FusedPartition,
    GraphCapture, Layout, MemoryDevice, Profiling, Result, SessionResources, Stream, Weightless,
};

use crate::control::{Gone, note, note_infallible};
use crate::device::{HooksAllocator, HooksStream};
use crate::factory::VENDOR;
use crate::profiling::HooksProfiling;
use crate::settings::{Save, Settings};
use crate::work::{Op, OpPartition};

/// The prefix of a blob: bytes that are not valid text, to check that they survive a round trip.
const MARK: [u8; 4] = [0, 0xFF, b'\n', 0];

pub struct HooksEp {
    settings: Settings,
    name: String,
    /// Number of runs by graph id, for the capture protocol.
    runs: Mutex<BTreeMap<i32, usize>>,
    _ram: Vec<HostReadable>,
    _gone: Gone,
}

impl HooksEp {
    pub fn new(settings: Settings, name: String) -> Self {
        let ram = settings.ram.map(|vendor| (0..2).map(move |id| MemoryDevice::gpu(vendor, id)));
        // SAFETY: the test that sets this uses the host driver.
        #[allow(unsafe_code)]
        let ram = ram.into_iter().flatten().map(|memory| unsafe { HostReadable::new(memory) }).collect();
        Self { settings, name, runs: Mutex::default(), _ram: ram, _gone: Gone("ep.drop") }
    }

    fn is_saved(&self, node: Node<'_>) -> Result<bool> {
        Ok(node.domain()? == "com.microsoft"
            && node.op_type()? == "EPContext"
            && node.string("source")?.is_some_and(|source| source == self.name))
    }

    /// The blob of a partition, and the node that holds it or names its file.
    fn save(&self, save: &Save, op: Op, index: usize) -> Result<EpContextNode> {
        let blob = [&MARK[..], format!("{op:?}").as_bytes()].concat();
        let texts = vec![("notes".into(), "größe".into())];
        if save.embedded {
            return Ok(EpContextNode { context: blob, embedded: true, main: true, texts });
        }
        let model = save.model.as_ref().ok_or_else(|| {
            Error::invalid_argument(
                "no place for the blob\n  help: set ep.context_file_path or ep.context_embed_mode to 1",
            )
        })?;
        let file = format!("{}_{index}.bin", model.file_stem().unwrap_or_default().display());
        std::fs::write(model.with_file_name(&file), blob)
            .map_err(|error| Error::ep_fail(format!("{file}: {error}")))?;
        Ok(EpContextNode { context: file.into_bytes(), embedded: false, main: true, texts })
    }

    fn load(&self, graph: Graph<'_>, node: Node<'_>) -> Result<Op> {
        let attribute = node.attribute("ep_cache_context")?.ok_or_else(|| Error::invalid_argument("no blob"))?;
        let ort_ep::view::AttributeValue::String(context) = attribute.value()? else {
            return Err(Error::invalid_argument("the blob is not text"));
        };
        let blob = if node.int("embed_mode")? == Some(0) {
            let model = graph.model_path()?.ok_or_else(|| Error::invalid_argument("the model has no path"))?;
            let file = model.with_file_name(String::from_utf8_lossy(&context).as_ref());
            std::fs::read(&file).map_err(|error| Error::ep_fail(format!("{}: {error}", file.display())))?
        } else {
            context
        };
        match blob.strip_prefix(&MARK) {
            Some(b"Mul") => Ok(Op::Mul),
            _ => Err(Error::invalid_argument(format!("not our blob: {blob:?}"))),
        }
    }
}

impl Ep for HooksEp {
    fn claim(&self, graph: Graph<'_>, claims: &mut Claims<'_>) -> Result<()> {
        let nodes = graph.nodes()?;
        let names = nodes.iter().map(|node| Ok(format!("{}:{}", node.domain()?, node.op_type()?)));
        note("ep.claim", names.collect::<Result<Vec<_>>>()?.join(" "))?;
        for node in nodes {
            if self.settings.only.as_deref().is_some_and(|only| node.op_type().ok() != Some(only)) {
                continue;
            }
            if Op::of(node.domain()?, node.op_type()?).is_some() || self.is_saved(node)? {
                claims.fuse(&[node], false)?;
            } else if claims.has_kernel(node)? {
                claims.single(node)?;
            }
        }
        Ok(())
    }

    fn compile(&self, partitions: &[FusedPartition<'_>]) -> Result<Vec<Compiled>> {
        note("ep.compile", partitions.len())?;
        let mut compiled = Vec::new();
        for (index, partition) in partitions.iter().enumerate() {
            let nodes = partition.graph.nodes()?;
            let [node] = nodes[..] else { return Err(Error::invalid_argument("more than one node")) };
            let op = match Op::of(node.domain()?, node.op_type()?) {
                Some(op) => op,
                None => self.load(partition.graph, node)?,
            };
            let context_node = self.settings.save.as_ref().map(|save| self.save(save, op, index)).transpose()?;
            compiled.push(Compiled { partition: Box::new(OpPartition::new(op)), context_node });
        }
        if let Some(results) = self.settings.results {
            compiled.truncate(results);
        }
        Ok(compiled)
    }

    fn on_run_start(&self, options: RunOptions<'_>) -> Result<()> {
        note("ep.on_run_start", options.get("hooks.tag").unwrap_or_default())
    }

    fn on_run_end(&self, options: RunOptions<'_>, sync: bool) -> Result<()> {
        let id = options.get("gpu_graph_id").and_then(|id| id.parse().ok()).unwrap_or(0);
        *self.runs.lock().unwrap_or_else(PoisonError::into_inner).entry(id).or_default() += 1;
        note("ep.on_run_end", format_args!("sync={sync} id={id}"))
    }

    fn set_dynamic_options(&self, options: &[(String, String)]) -> Result<()> {
        note("ep.set_dynamic_options", format_args!("{options:?}"))
    }

    fn sync(&self) -> Result<()> {
        note("ep.sync", "")
    }

    fn runs_concurrently(&self) -> bool {
        note_infallible("ep.runs_concurrently", !self.settings.serial);
        !self.settings.serial
    }

    fn on_session_ready(&self) -> Result<()> {
        note("ep.on_session_ready", "")
    }

    fn default_memory(&self) -> Option<MemoryDevice> {
        note_infallible("ep.default_memory", "");
        self.settings.default_device.map(|id| MemoryDevice::gpu(VENDOR, id))
    }

    fn available_bytes(&self) -> Option<u64> {
        note_infallible("ep.available_bytes", "");
        self.settings.budget
    }

    fn session_resources(&self) -> Option<&dyn SessionResources> {
        self.settings.resources.is_some().then_some(self)
    }

    fn data_layout(&self) -> Option<&dyn DataLayout> {
        self.settings.nhwc.is_some().then_some(self)
    }

    fn graph_capture(&self) -> Option<&dyn GraphCapture> {
        self.settings.capture.is_some().then_some(self)
    }

    fn profiling(&self) -> Option<&dyn Profiling> {
        self.settings.profile.then_some(&HooksProfiling)
    }

    fn compiled_models(&self) -> Option<&dyn CompiledModels> {
        self.settings.compiled.is_some().then_some(self)
    }
}

impl SessionResources for HooksEp {
    fn create_allocator(&self, memory: MemoryDevice) -> Result<AllocatorHandle> {
        note("resources.create_allocator", format_args!("{:?}{}", memory.memory, memory.device_id))?;
        Ok(AllocatorHandle::new(HooksAllocator::new(memory)))
    }

    fn create_stream(&self, device: MemoryDevice) -> Result<Box<dyn Stream>> {
        note("resources.create_stream", device.device_id)?;
        let is_default = self.settings.resources.as_deref() == Some("default_stream");
        Ok(Box::new(if is_default {
            HooksStream::of_default(device.device_id)
        } else {
            HooksStream::new(device.device_id)
        }))
    }
}

impl DataLayout for HooksEp {
    fn preferred(&self) -> Layout {
        note_infallible("layout.preferred", "");
        Layout::Nhwc
    }

    fn converts(&self, domain: &str, op_type: &str, layout: Layout) -> Option<bool> {
        note_infallible("layout.converts", format_args!("{domain}:{op_type} {layout:?}"));
        (self.settings.nhwc.as_deref() != Some("ask")).then_some(op_type == "GlobalMaxPool")
    }
}

impl GraphCapture for HooksEp {
    fn enabled(&self) -> bool {
        note_infallible("capture.enabled", "");
        true
    }

    fn is_captured(&self, id: i32) -> bool {
        note_infallible("capture.is_captured", id);
        let runs = self.runs.lock().unwrap_or_else(PoisonError::into_inner);
        self.settings.capture.is_some_and(|needed| runs.get(&id).is_some_and(|&runs| runs >= needed))
    }

    fn replay(&self, id: i32) -> Result<()> {
        note("capture.replay", id)
    }

    fn release(&self, id: i32) -> Result<()> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
        note("capture.release", id)
    }

    fn allows_cpu_shape_nodes(&self) -> bool {
        note_infallible("capture.allows_cpu_shape_nodes", "");
        self.settings.cpu_shapes
    }
}

impl CompiledModels for HooksEp {
    fn compatibility_info(&self, graph: Graph<'_>) -> String {
        let nodes = graph.nodes().map(|nodes| nodes.len()).unwrap_or_default();
        note_infallible("compiled.compatibility_info", nodes);
        self.settings.compiled.clone().unwrap_or_default()
    }

    fn weightless(&self) -> Weightless {
        note_infallible("compiled.weightless", "");
        self.settings.weightless.unwrap_or(Weightless::None)
    }

    fn data_callbacks(&self) -> (bool, bool) {
        note_infallible("compiled.data_callbacks", "");
        (self.settings.callbacks & 1 != 0, self.settings.callbacks & 2 != 0)
    }
}
