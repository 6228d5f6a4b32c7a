//! Reads ONNX Runtime nodes into records.
use std::collections::HashMap;

use graph::ops::Attributes;
use graph::{Declined, Op, Tensor};
use ort_ep::view::{Node, Tensor as TensorView, ValueInfo};
use ort_ep::{Error, ErrorCode, FusedPartition, Result};

use crate::convert;
use crate::external::ExternalFiles;
use crate::record::{NodeRecord, Record, SMALL_CONSTANT_BYTES, ValueRecord};

/// Reads a partition. Its inputs and outputs are in the fused node's order.
///
/// # Errors
/// The partition differs from what was claimed.
pub(crate) fn import(partition: &FusedPartition<'_>) -> Result<Record> {
    let mut reader = Reader::new(usize::MAX);
    reader.files = Some(ExternalFiles::of(partition.graph)?);
    reader.partition(partition).map_err(|stop| match stop {
        Stop::Declined(reason) => {
            Error::new(ErrorCode::InvalidGraph, format!("a claimed node cannot be compiled: {reason}"))
        }
        Stop::Failed(error) => error,
    })?;
    Ok(reader.record)
}

/// Parses a node into an operator, or says why it stays with other providers.
///
/// # Errors
/// ONNX Runtime failed to describe the node.
pub(crate) fn parse(node: Node<'_>) -> Result<Result<Box<dyn Op>, Declined>> {
    if !node.subgraphs()?.is_empty() {
        return Ok(Err(Declined::new("it has subgraphs")));
    }
    let mut reader = Reader::new(SMALL_CONSTANT_BYTES);
    match reader.node(node) {
        Ok(node) => Ok(node.parse(&reader.record.values)),
        Err(Stop::Declined(reason)) => Ok(Err(reason)),
        Err(Stop::Failed(error)) => Err(error),
    }
}

/// Why reading stopped early.
enum Stop {
    /// The engine does not support something.
    Declined(Declined),
    /// ONNX Runtime returned an error.
    Failed(Error),
}

impl From<Declined> for Stop {
    fn from(reason: Declined) -> Self {
        Self::Declined(reason)
    }
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

struct Reader {
    record: Record,
    ids: HashMap<String, u32>,
    /// Constants above this size are not read.
    constant_bytes: usize,
    /// The external files that large constants may be mapped from.
    files: Option<ExternalFiles>,
}

impl Reader {
    fn new(constant_bytes: usize) -> Self {
        Self { record: Record::default(), ids: HashMap::new(), constant_bytes, files: None }
    }

    fn partition(&mut self, partition: &FusedPartition<'_>) -> Result<(), Stop> {
        self.record.inputs = self.values(partition.node.inputs()?)?.into_iter().flatten().collect();
        for node in partition.graph.nodes()? {
            let node = self.node(node)?;
            self.record.nodes.push(node);
        }
        self.record.outputs = self.values(partition.node.outputs()?)?.into_iter().flatten().collect();
        Ok(())
    }

    fn node(&mut self, node: Node<'_>) -> Result<NodeRecord, Stop> {
        let mut attributes = Attributes::default();
        for attribute in node.attributes()? {
            attributes.0.insert(attribute.name()?.to_owned(), convert::attribute(attribute.value()?)?);
        }
        Ok(NodeRecord {
            name: node.name()?.to_owned(),
            domain: node.domain()?.to_owned(),
            op_type: node.op_type()?.to_owned(),
            since_version: node.since_version()?,
            attributes,
            inputs: self.values(node.inputs()?)?,
            outputs: self.values(node.outputs()?)?,
        })
    }

    fn values(&mut self, list: Vec<Option<ValueInfo<'_>>>) -> Result<Vec<Option<u32>>, Stop> {
        list.into_iter().map(|value| value.map(|value| self.value(value)).transpose()).collect()
    }

    /// The id of a value. The value is read the first time it is seen.
    fn value(&mut self, value: ValueInfo<'_>) -> Result<u32, Stop> {
        let name = value.name()?;
        if let Some(&known) = self.ids.get(name) {
            return Ok(known);
        }
        let is_constant = value.is_constant_initializer()?;
        let dtype = if is_constant { convert::constant_dtype(value)?? } else { convert::value_dtype(value)?? };
        let initializer = if is_constant { value.initializer()? } else { None };
        let constant = match initializer {
            Some(view) if view.size_bytes()? <= self.constant_bytes => Some(self.constant(value, view)?),
            _ => None,
        };
        let id = self.record.values.len() as u32;
        let rank = convert::value_rank(value)?;
        self.record.values.push(ValueRecord { name: name.to_owned(), dtype, rank, constant });
        self.ids.insert(name.to_owned(), id);
        Ok(id)
    }

    fn constant(&mut self, value: ValueInfo<'_>, view: TensorView<'_>) -> Result<Tensor> {
        let lent = self.files.as_mut().map(|files| files.tensor(value, view)).transpose()?.flatten();
        lent.map_or_else(|| convert::tensor(view), Ok)
    }
}
