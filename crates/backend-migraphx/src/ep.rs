//! The execution provider of one session.
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use ort_ep::saved::Save;
use ort_ep::view::{Dim, Graph, Node, ValueInfo};
use ort_ep::{Claims, Compiled, CompiledModels, Ep, Error, ErrorCode, FusedPartition, Result, Runtime};

use crate::mgx::{Feature, Program};
use crate::onnx::{self, Boundary, Model, Stop, Value};
use crate::partition::{MgxPartition, Positions};
use crate::toolchain::Toolchain;
use crate::{claim, context};

/// A session on MIGraphX.
pub(crate) struct MgxEp {
    /// The name under which ONNX Runtime registered this provider. Nodes saved by it carry this name.
    pub name: String,
    pub runtime: Runtime,
    pub tools: Arc<Toolchain>,
    /// How partitions are saved while a compiled model is being created.
    pub save: Option<Save>,
    /// Where to look for saved partitions if the model has no path.
    pub folder: Option<PathBuf>,
    /// Programs compiled during claiming, by the digest of their model.
    pub claimed: Mutex<HashMap<blake3::Hash, Program>>,
    /// The graph's symbol for the length of sequences to pad.
    pub sequence_symbol: OnceLock<String>,
}

impl Ep for MgxEp {
    /// Compiles partitions with fixed shapes already here: if compilation fails, other providers can still take their
    /// nodes.
    fn claim(&self, graph: Graph<'_>, claims: &mut Claims<'_>) -> Result<()> {
        self.find_sequence_symbol(graph)?;
        let mut kept_out = HashMap::new();
        let placement = loop {
            let options = &self.tools.options;
            let library = &self.tools.library;
            let placement = claim::place(graph, &self.name, library, options.cpu_control_flow, &kept_out)?;
            let before = kept_out.len();
            for nodes in &placement.partitions {
                if let Some(reason) = self.try_compile(graph, nodes)? {
                    for node in nodes {
                        kept_out.insert(node.id()?, reason.clone());
                    }
                }
            }
            if kept_out.len() == before {
                break placement;
            }
        };
        claim::report(&placement, self.tools.target.name())?;
        for node in &placement.contexts {
            // A saved partition expects all inputs of its node, including constants.
            claims.fuse(&[*node], false)?;
        }
        for nodes in &placement.partitions {
            claims.fuse(nodes, true)?;
        }
        Ok(())
    }

    fn compile(&self, partitions: &[FusedPartition<'_>]) -> Result<Vec<Compiled>> {
        partitions.iter().map(|partition| self.compile_one(partition)).collect()
    }

    /// Drops the programs of partitions that ONNX Runtime did not use in the end.
    fn on_session_ready(&self) -> Result<()> {
        self.claimed().clear();
        Ok(())
    }

    fn compiled_models(&self) -> Option<&dyn CompiledModels> {
        Some(self)
    }
}

impl CompiledModels for MgxEp {
    fn compatibility_info(&self, _: Graph<'_>) -> String {
        context::info(&self.tools)
    }
}

impl MgxEp {
    /// Finds the symbol for the sequence length in the model's inputs. Partitions in the middle of the graph need it,
    /// because they only see token states.
    fn find_sequence_symbol(&self, graph: Graph<'_>) -> Result<()> {
        let Some(pad) = &self.tools.options.static_pad else { return Ok(()) };
        for value in graph.inputs()? {
            let name = value.name()?;
            let Some((_, axis)) = pad.inputs.iter().find(|(listed, _)| listed == name) else { continue };
            let kind = value.value_type()?;
            let shape = kind.tensor().and_then(|tensor| tensor.shape.as_ref());
            if let Some(Dim::Symbol(symbol)) = shape.and_then(|dims| dims.get(*axis)) {
                self.sequence_symbol.get_or_init(|| symbol.clone());
            }
        }
        Ok(())
    }

    /// Tries to compile a partition and keeps the program. Returns a reason on failure. Partitions with dynamic shapes
    /// are not compiled yet.
    fn try_compile(&self, graph: Graph<'_>, nodes: &[Node<'_>]) -> Result<Option<String>> {
        let model = match self.model(graph, nodes, &claim::boundary(nodes)?) {
            Ok(model) => model,
            Err(Stop::Declined(reason)) => return Ok(Some(reason)),
            Err(Stop::Failed(error)) => return Err(error),
        };
        let Some(shapes) = model.fixed_shapes() else { return Ok(None) };
        if self.claimed().contains_key(&model.digest) {
            return Ok(None);
        }
        match self.program(&model, &shapes) {
            Ok(program) => {
                self.claimed().insert(model.digest, program);
                Ok(None)
            }
            Err(reason) => Ok(Some(reason)),
        }
    }

    fn claimed(&self) -> std::sync::MutexGuard<'_, HashMap<blake3::Hash, Program>> {
        self.claimed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn model<'a>(&self, graph: Graph<'a>, nodes: &[Node<'a>], boundary: &Boundary<'a>) -> Result<Model, Stop> {
        let external = self.tools.library.has(Feature::ExternalDataPath);
        let model = onnx::build(graph, nodes, boundary, external)?;
        for value in model.inputs.iter().chain(&model.outputs) {
            if !self.tools.library.has_element(value.element) || value.element.bits().is_none_or(|bits| bits < 8) {
                return Err(Stop::Declined(format!("{:?} has the unsupported type {:?}", value.name, value.element)));
            }
        }
        Ok(model)
    }

    fn program(&self, model: &Model, shapes: &[Vec<usize>]) -> Result<Program, String> {
        if shapes.iter().flatten().any(|extent| *extent == 0) {
            return Err("an input has no elements".to_owned());
        }
        let current = self.tools.device.as_ref().map(hip::Device::enter).transpose();
        let _current = current.map_err(|error| error.to_string())?;
        self.tools.program(model, shapes).map_err(|error| error.to_string())
    }

    fn compile_one(&self, partition: &FusedPartition<'_>) -> Result<Compiled> {
        let nodes = partition.graph.nodes()?;
        if let [node] = nodes[..]
            && context::is_ours(node, &self.name)?
        {
            return self.load(partition, node);
        }
        let boundary = Boundary {
            inputs: partition.node.inputs()?.into_iter().flatten().collect(),
            outputs: partition.node.outputs()?.into_iter().flatten().collect(),
        };
        let mut model = self.model(partition.graph, &nodes, &boundary).map_err(|stop| match stop {
            Stop::Declined(reason) => {
                Error::new(ErrorCode::InvalidGraph, format!("a claimed node cannot be compiled: {reason}"))
            }
            Stop::Failed(error) => error,
        })?;
        self.dump(&model, partition)?;
        let positions = positions(&model, partition)?;
        let shapes = model.fixed_shapes();
        let claimed = self.claimed().remove(&model.digest);
        let program = match (&shapes, claimed) {
            (_, Some(program)) => Some(program),
            (Some(shapes), None) => match self.program(&model, shapes) {
                Ok(program) => Some(program),
                Err(reason) => {
                    tracing::warn!(target: "amdgpu_ep::compile", "a partition runs on the CPU: {reason}");
                    None
                }
            },
            (None, None) => None,
        };
        if program.is_some() {
            // All shapes are fixed, so the model will not be compiled again.
            model.bytes = Vec::new();
        }
        let symbol = self.sequence_symbol.get().map(String::as_str);
        let made = MgxPartition::new(self.tools.clone(), model, positions, self.runtime, symbol);
        if let (Some(shapes), Some(program)) = (&shapes, program) {
            made.add(shapes, program)?;
        }
        let context_node = match &self.save {
            None => None,
            Some(save) => {
                let saved = shapes.and_then(|shapes| {
                    made.with_program(&shapes, |program| context::node(save, program, partition, &self.tools))
                });
                Some(saved.ok_or_else(|| {
                    Error::invalid_argument(
                        "a partition has dynamic shapes, so its program cannot be saved\n  help: fix the shapes of the model's inputs (add_free_dimension_override_by_name, or --dim of `amdgpu-ep compile`), then compile it",
                    )
                })??)
            }
        };
        Ok(Compiled { partition: Box::new(made), context_node })
    }

    /// Loads a saved partition. Its inputs and outputs are matched by name, as in the model it was saved from.
    fn load(&self, partition: &FusedPartition<'_>, node: Node<'_>) -> Result<Compiled> {
        let program = context::load(partition, node, self.folder.as_deref(), &self.tools)?;
        let values = |list: Vec<Option<ValueInfo<'_>>>| -> Result<Vec<Value>> {
            let mut values = Vec::new();
            for value in list.into_iter().flatten() {
                let kind = value.value_type()?;
                let tensor = kind.tensor().ok_or_else(|| Error::invalid_argument("a saved value is not a tensor"))?;
                values.push(Value::new(value.name()?, tensor.clone()));
            }
            values.sort_by(|a, b| a.name.cmp(&b.name));
            Ok(values)
        };
        let (inputs, outputs) = (values(node.inputs()?)?, values(node.outputs()?)?);
        let digest = blake3::hash(&[]);
        let model = Model { bytes: Vec::new(), digest, folder: None, inputs, outputs };
        let positions = positions(&model, partition)?;
        let shapes = model.fixed_shapes().ok_or_else(|| {
            Error::new(
                ErrorCode::InvalidGraph,
                "a saved partition has inputs with dynamic shapes\n  help: compile the model again",
            )
        })?;
        let made = MgxPartition::new(self.tools.clone(), model, positions, self.runtime, None);
        made.add(&shapes, program)?;
        Ok(Compiled::new(made))
    }

    /// Dumps a partition as an ONNX file for debugging.
    fn dump(&self, model: &Model, partition: &FusedPartition<'_>) -> Result<()> {
        if self.tools.options.dump_subgraphs {
            let file = format!("{}.onnx", partition.node.name()?.replace(['/', '\\', ':'], "_"));
            if let Err(error) = std::fs::write(&file, &model.bytes) {
                tracing::warn!(target: "amdgpu_ep::compile", "{file} could not be written: {error}");
            }
        }
        Ok(())
    }
}

/// Maps the model's values to positions in the fused node.
fn positions(model: &Model, partition: &FusedPartition<'_>) -> Result<Positions> {
    let find = |values: &[Value], list: Vec<Option<ValueInfo<'_>>>| -> Result<Vec<usize>> {
        let names = list.into_iter().map(|value| value.map_or(Ok(""), ValueInfo::name)).collect::<Result<Vec<_>>>()?;
        let position = |value: &Value| {
            let at = names.iter().position(|name| *name == value.name);
            at.ok_or_else(|| Error::fail(format!("{:?} is not a value of the fused node", value.name)))
        };
        values.iter().map(position).collect()
    };
    Ok(Positions {
        inputs: find(&model.inputs, partition.node.inputs()?)?,
        outputs: find(&model.outputs, partition.node.outputs()?)?,
    })
}
