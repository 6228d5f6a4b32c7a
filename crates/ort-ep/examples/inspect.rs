//! A plugin that writes what it sees of a model to a file, as `key = value` lines.
//!
//! It attaches to the CPU, compiles `Mul`, runs `LeakyRelu` and `DepthToSpace` with kernels, and leaves the rest to
//! ONNX Runtime. The option `report` names the file to write.
#![deny(unsafe_code)]
use std::fmt::Display;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::sync::{Arc, Mutex, PoisonError};

use ort_ep::view::{
    AttributeValue, Dim, Graph, HardwareDevice, KernelContext, KernelInfo, LogLocation, Node, OwnedKeyValues,
    RunOptions, Severity, Tensor, ValueInfo, ValueType,
};
use ort_ep::{
    Claims, Compiled, DeviceOffer, ElementType, Environment, Ep, EpRequest, Error, Factory, FusedPartition, Kernel,
    KernelDef, MemoryDevice, NewEp, Partition, Registration, Result,
};

ort_ep::plugin!(|_: Registration<'_>| Ok(Box::new(Inspector::default()) as Box<dyn Factory>));

/// Where the lines go; without the option they are dropped.
#[derive(Clone, Default)]
struct Report(Arc<Mutex<Option<File>>>);

impl Report {
    fn open(&self, path: &str) -> Result<()> {
        let file = OpenOptions::new().create(true).append(true).open(path);
        let file = file.map_err(|error| Error::invalid_argument(format!("cannot write {path}: {error}")))?;
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(file);
        Ok(())
    }

    fn line(&self, key: impl Display, value: impl Display) -> Result<()> {
        if let Some(file) = &mut *self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            writeln!(file, "{key} = {value}").map_err(|error| Error::ep_fail(format!("cannot write: {error}")))?;
        }
        Ok(())
    }
}

#[derive(Default)]
struct Inspector {
    report: Report,
}

impl Factory for Inspector {
    fn vendor(&self) -> &str {
        "inspect"
    }

    fn version(&self) -> &str {
        "0.1.0"
    }

    fn devices<'a>(&self, listed: &[HardwareDevice<'a>], _: &Environment) -> Result<Vec<DeviceOffer<'a>>> {
        Ok(DeviceOffer::of_cpu(listed, &[("answer", "42")]).into_iter().collect())
    }

    fn create_ep(&self, request: &EpRequest<'_>) -> Result<NewEp> {
        let name = request.name.to_string_lossy().to_lowercase();
        if let Some(path) = request.options.get(&format!("ep.{name}.report"))? {
            self.report.open(&path)?;
        }
        for (key, value) in request.options.config_entries()? {
            self.report.line(format!("session.{key}"), value)?;
        }
        let mut copy = request.options.clone_options()?;
        copy.insert("inspect.copied", "yes")?;
        self.report.line("copy.inspect.copied", copy.as_view().get("inspect.copied")?.unwrap_or_default())?;
        self.report.line("original.has_copied", request.options.get("inspect.copied")?.is_some())?;
        let pairs = OwnedKeyValues::from_pairs(request.runtime, [("b", "2"), ("a", "1"), ("b", "3")])?;
        self.report.line("pairs", format!("{:?}", pairs.as_view().to_map()))?;
        self.report.line("pairs.missing", format!("{:?}", pairs.as_view().get("c")))?;
        for selected in &request.devices {
            self.report.line("device.vendor_id", selected.hardware.vendor_id())?;
            self.report.line("device.vendor", selected.hardware.vendor())?;
            self.report.line("device.pci_bus_id", format!("{:?}", selected.hardware.pci_bus_id()))?;
            self.report.line("device.metadata", format!("{:?}", selected.hardware.metadata().to_map()))?;
            self.report.line("device.answer", selected.metadata.get("answer").unwrap_or_default())?;
        }
        Ok(InspectorEp { report: self.report.clone() }.into())
    }

    fn kernels(&self) -> Vec<KernelDef> {
        let kernel = |op_type| {
            let report = self.report.clone();
            KernelDef::new("", op_type, 1..=99, move |info| InspectorKernel::create(&report, info))
                .types("T", &[ElementType::F32])
        };
        vec![kernel("LeakyRelu"), kernel("DepthToSpace")]
    }
}

struct InspectorEp {
    report: Report,
}

impl Ep for InspectorEp {
    fn claim(&self, graph: Graph<'_>, claims: &mut Claims<'_>) -> Result<()> {
        let level =
            graph.parent_node()?.map_or_else(|| Ok("main".to_owned()), |node| node.name().map(str::to_owned))?;
        let label = format!("{level}/{}", graph.name()?);
        describe_graph(&self.report, &label, graph)?;
        for node in graph.nodes()? {
            if is_float_mul(node)? {
                claims.fuse(&[node], false)?;
            } else if claims.has_kernel(node)? {
                claims.single(node)?;
            }
        }
        Ok(())
    }

    fn compile(&self, partitions: &[FusedPartition<'_>]) -> Result<Vec<Compiled>> {
        let compile = |partition: &FusedPartition<'_>| {
            describe_graph(&self.report, "partition", partition.graph)?;
            self.report.line("fused.domain", partition.node.domain()?)?;
            self.report.line("fused.graph", partition.node.graph()?.is_some())?;
            Ok(Compiled::new(Product { report: self.report.clone() }))
        };
        partitions.iter().map(compile).collect()
    }

    fn on_run_start(&self, options: RunOptions<'_>) -> Result<()> {
        self.report.line("run.tag", options.get("inspect.tag").unwrap_or_default())
    }
}

fn is_float_mul(node: Node<'_>) -> Result<bool> {
    let float = |value: Option<ValueInfo<'_>>| {
        let Some(value) = value else { return Ok(false) };
        Ok(value.value_type()?.tensor().is_some_and(|tensor| tensor.element == ElementType::F32))
    };
    let inputs = node.inputs()?.into_iter().map(float).collect::<Result<Vec<_>>>()?;
    Ok(node.op_type()? == "Mul" && inputs == [true, true])
}

fn describe_graph(report: &Report, label: &str, graph: Graph<'_>) -> Result<()> {
    let key = |rest: &str| format!("graph {label}: {rest}");
    report.line(key("path"), graph.model_path()?.unwrap_or_default().display())?;
    report.line(key("ir"), graph.ir_version()?)?;
    report.line(key("opset"), graph.opset("ai.onnx")?.unwrap_or_default())?;
    report.line(key("metadata"), format!("{:?}", graph.model_metadata()?))?;
    for (kind, values) in
        [("input", graph.inputs()?), ("output", graph.outputs()?), ("initializer", graph.initializers()?)]
    {
        for value in values {
            report.line(key(&format!("{kind} {}", value.name()?)), describe_value(value)?)?;
        }
    }
    for node in graph.nodes()? {
        describe_node(report, label, node)?;
    }
    let nodes = graph.nodes()?;
    if let Some(first) = nodes.first() {
        let part = graph.view(&[*first])?;
        report.line(key("view"), part.graph().nodes()?.len())?;
    }
    Ok(())
}

fn describe_node(report: &Report, label: &str, node: Node<'_>) -> Result<()> {
    let name = node.name()?;
    let key = |rest: &str| format!("node {label}/{name}: {rest}");
    let names = |values: Vec<Option<ValueInfo<'_>>>| {
        let name =
            |value: Option<ValueInfo<'_>>| value.map_or(Ok("-".to_owned()), |value| value.name().map(str::to_owned));
        Ok(values.into_iter().map(name).collect::<Result<Vec<_>>>()?.join(","))
    };
    report.line(key("op"), format!("{}:{}@{}", node.domain()?, node.op_type()?, node.since_version()?))?;
    report.line(key("inputs"), names(node.inputs()?)?)?;
    report.line(key("outputs"), names(node.outputs()?)?)?;
    report.line(key("implicit"), names(node.implicit_inputs()?.into_iter().map(Some).collect())?)?;
    report.line(key("ep"), node.ep_name()?.unwrap_or("-"))?;
    report.line(key("unknown attribute"), node.attribute("no_such_attribute")?.is_some())?;
    for attribute in node.attributes()? {
        let name = attribute.name()?;
        report.line(key(&format!("attribute {name}")), describe_attribute(attribute.value()?)?)?;
        if let Err(error) = node.int(name) {
            report.line(key(&format!("{name} as int")), error)?;
        }
    }
    for (attribute, graph) in node.subgraphs()? {
        report.line(key(&format!("subgraph {attribute}")), graph.nodes()?.len())?;
    }
    Ok(())
}

fn describe_attribute(value: AttributeValue) -> Result<String> {
    Ok(match value {
        AttributeValue::String(bytes) => format!("String({:?})", String::from_utf8_lossy(&bytes)),
        AttributeValue::Strings(list) => {
            let texts: Vec<_> = list.iter().map(|bytes| String::from_utf8_lossy(bytes)).collect();
            format!("Strings({texts:?})")
        }
        AttributeValue::Tensor(tensor) => format!("Tensor({})", describe_tensor(tensor.as_tensor())?),
        other => format!("{other:?}"),
    })
}

fn describe_value(value: ValueInfo<'_>) -> Result<String> {
    let kind = match value.value_type()? {
        ValueType::Tensor(tensor) => {
            let dim = |dim: Dim| match dim {
                Dim::Fixed(length) => length.to_string(),
                Dim::Symbol(name) => name,
                Dim::Unknown => "?".to_owned(),
            };
            let dims = tensor.shape.map(|dims| dims.into_iter().map(dim).collect::<Vec<_>>().join("x"));
            format!("{:?}[{}]", tensor.element, dims.unwrap_or("*".to_owned()))
        }
        other => format!("{other:?}"),
    };
    let flags = [
        ("required", value.is_required_graph_input()?),
        ("optional", value.is_optional_graph_input()?),
        ("output", value.is_graph_output()?),
        ("constant", value.is_constant_initializer()?),
        ("outer", value.is_from_outer_scope()?),
    ];
    let flags: Vec<_> = flags.into_iter().filter(|(_, on)| *on).map(|(name, _)| name).collect();
    let producer = value
        .producer()?
        .map_or(Ok("-".to_owned()), |(node, output)| node.name().map(|name| format!("{name}.{output}")))?;
    let mut uses = Vec::new();
    for consumer in value.consumers()? {
        let node = consumer.node.map_or(Ok("?"), Node::name)?;
        uses.push(consumer.input.map_or_else(|| format!("{node}.implicit"), |input| format!("{node}.{input}")));
    }
    let data = value.initializer()?.map_or(Ok("-".to_owned()), describe_tensor)?;
    let external = value
        .external_data()?
        .map_or("-".to_owned(), |data| format!("{}+{}:{}", data.path.display(), data.offset, data.bytes));
    Ok(format!(
        "{kind} flags={} producer={producer} uses={} data={data} external={external}",
        flags.join(","),
        uses.join(",")
    ))
}

fn describe_tensor(tensor: Tensor<'_>) -> Result<String> {
    let shape = tensor.shape()?;
    Ok(match tensor.element_type()? {
        ElementType::F32 => format!("f32{shape:?}{:?}", tensor.as_slice::<f32>()?),
        ElementType::I64 => format!("i64{shape:?}{:?}", tensor.as_slice::<i64>()?),
        ElementType::F16 => format!("f16{shape:?}{:04x?}", tensor.as_slice::<u16>()?),
        ElementType::Bool => format!("bool{shape:?}{:?}", tensor.as_slice::<u8>()?),
        ElementType::String => format!("string{shape:?}{:?}", tensor.strings()?),
        other => format!("{other:?}{shape:?}{:02x?}", tensor.bytes()?),
    })
}

/// Multiplies two tensors of the same shape, or a tensor by a scalar.
struct Product {
    report: Report,
}

impl Partition for Product {
    fn compute(&self, context: &KernelContext<'_>) -> Result<()> {
        self.report.line("compute", format!("{} in, {} out", context.input_count()?, context.output_count()?))?;
        self.report.line("compute.stream", format!("{:?}", context.stream()?))?;
        self.report.line("compute.sync_stream", context.sync_stream()?.is_some())?;
        let location = LogLocation { file: file!(), line: line!(), function: "compute" };
        context.logger()?.log(Severity::Warning, "inspect was here", location)?;
        let a = input(context, 0)?;
        let b = if context.input_count()? > 1 { input(context, 1)? } else { a };
        let (left, right) = (a.as_slice::<f32>()?, b.as_slice::<f32>()?);
        let bound = context.preallocated_output(0)?;
        self.report.line("compute.preallocated", bound.is_some())?;
        let output = match bound {
            Some(output) => Some(output),
            None => context.output(0, a.shape()?)?,
        };
        let mut output = output.ok_or_else(|| Error::invalid_argument("Mul has no output"))?;
        self.report.line("compute.twice", context.output(0, a.shape()?).is_err())?;
        self.report.line("compute.as_i64", output.as_mut_slice::<i64>().is_err())?;
        let scratch = context.scratch(MemoryDevice::CPU, 64)?;
        self.report.line("compute.scratch", !scratch.as_ptr().is_null() && scratch.bytes() == 64)?;
        let out: Vec<_> = output.as_mut_slice::<f32>()?.iter_mut().map(Mutex::new).collect();
        context.parallel_for(out.len(), 0, |at| {
            **out[at].lock().unwrap_or_else(PoisonError::into_inner) = left[at] * right[at % right.len()];
        })?;
        if !left.is_empty() {
            let panicked = context.parallel_for(8, 0, |at| assert_ne!(at, 5, "part five"));
            self.report.line("compute.panic", panicked.is_err_and(|error| error.message().contains("part five")))?;
        }
        Ok(())
    }
}

fn input<'a>(context: &KernelContext<'a>, index: usize) -> Result<Tensor<'a>> {
    context.input(index)?.ok_or_else(|| Error::invalid_argument(format!("input {index} is absent")))
}

struct InspectorKernel {
    alpha: Option<f32>,
}

impl InspectorKernel {
    fn create(report: &Report, info: KernelInfo<'_>) -> Result<Box<dyn Kernel>> {
        let key = |rest: &str| Ok(format!("kernel {}: {rest}", info.node_name()?));
        report.line(key("op")?, format!("{}:{}@{}", info.domain()?, info.op_type()?, info.since_version()?))?;
        for index in 0..info.input_count()? {
            report
                .line(key(&format!("input {}", info.input_name(index)?))?, format!("{:?}", info.input_type(index)?))?;
            let constant = info.constant_input(index)?.map_or(Ok("-".to_owned()), describe_tensor)?;
            report.line(key(&format!("constant {index}"))?, constant)?;
        }
        for index in 0..info.output_count()? {
            let name = info.output_name(index)?;
            report.line(key(&format!("output {name}"))?, format!("{:?}", info.output_type(index)?))?;
        }
        report.line(key("blocksize")?, format!("{:?}", info.int("blocksize").ok()))?;
        report.line(key("mode")?, format!("{:?}", info.string("mode").ok()))?;
        report.line(key("alpha")?, format!("{:?}", info.float("alpha").ok()))?;
        report.line(key("ints")?, format!("{:?}", info.ints("no_such_attribute").is_err()))?;
        report.line(key("entries")?, !info.config_entries()?.is_empty())?;
        report.line(key("logger")?, format!("{:?}", info.logger()?.severity()?))?;
        Ok(Box::new(Self { alpha: info.float("alpha").ok() }))
    }
}

impl Kernel for InspectorKernel {
    fn compute(&self, context: &KernelContext<'_>) -> Result<()> {
        let alpha = self.alpha.ok_or_else(|| Error::not_implemented("this kernel is only inspected"))?;
        let x = input(context, 0)?;
        let mut y = context.output(0, x.shape()?)?.ok_or_else(|| Error::invalid_argument("no output"))?;
        for (y, &x) in y.as_mut_slice::<f32>()?.iter_mut().zip(x.as_slice::<f32>()?) {
            *y = if x < 0.0 { alpha * x } else { x };
        }
        Ok(())
    }
}
