//! A partition of ONNX Runtime becomes a graph of the engine.
use std::collections::HashMap;

use graph::{Graph, Node, ValueId};
use ort_ep::{Error, ErrorCode, FusedPartition, Result, view::ValueInfo};

use crate::{convert, node};

/// Reads a partition. The graph's inputs and outputs are in the fused node's order.
///
/// # Errors
/// The partition is not what was claimed.
pub(crate) fn import(partition: &FusedPartition<'_>) -> Result<Graph> {
    let mut reader = Reader { graph: Graph::new(), values: HashMap::new() };
    let inputs = partition.node.inputs()?;
    let inputs = inputs.into_iter().flatten().map(|value| reader.value(value)).collect::<Result<Vec<_>>>()?;
    reader.graph.set_inputs(inputs);
    for source in partition.graph.nodes()? {
        let op = node::parse(source)?.map_err(|declined| {
            let label = source.op_type().unwrap_or("?");
            Error::new(ErrorCode::InvalidGraph, format!("{label} was claimed and is declined now: {declined}"))
        })?;
        let read = |reader: &mut Reader, list: Vec<Option<ValueInfo<'_>>>| {
            list.into_iter().map(|value| value.map(|value| reader.value(value)).transpose()).collect::<Result<Vec<_>>>()
        };
        let inputs = read(&mut reader, source.inputs()?)?;
        let outputs = read(&mut reader, source.outputs()?)?;
        reader.graph.add_node(Node { name: source.name()?.to_owned(), op: op.into(), inputs, outputs });
    }
    let outputs = partition.node.outputs()?;
    let outputs = outputs.into_iter().flatten().map(|value| reader.value(value)).collect::<Result<Vec<_>>>()?;
    reader.graph.set_outputs(outputs);
    reader.graph.verify().map_err(|reason| Error::new(ErrorCode::InvalidGraph, reason))?;
    Ok(reader.graph)
}

struct Reader {
    graph: Graph,
    values: HashMap<String, ValueId>,
}

impl Reader {
    /// The engine's value of a name, made when it is first met.
    fn value(&mut self, value: ValueInfo<'_>) -> Result<ValueId> {
        let name = value.name()?;
        if let Some(&known) = self.values.get(name) {
            return Ok(known);
        }
        let dtype = convert::value_dtype(value)?
            .map_err(|declined| Error::new(ErrorCode::InvalidGraph, declined.to_string()))?;
        let constant = if value.is_constant_initializer()? {
            value.initializer()?.map(convert::tensor).transpose()?
        } else {
            None
        };
        let id = self.graph.add_value(name, dtype, constant);
        self.values.insert(name.to_owned(), id);
        Ok(id)
    }
}
