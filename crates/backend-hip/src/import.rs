//! Reads ONNX Runtime nodes into records.
//!
//! A node is read when it is offered and again when its partition is compiled. Nothing is kept in between, because no
//! key identifies a node in both: the fused graph has new handles and ids, names may be empty, value names repeat in
//! sibling subgraphs, and ONNX Runtime may rewrite a graph between two offers. Both ways use [`Reader::node`] and
//! [`NodeRecord::parse`], so that a claimed node is understood in the same way when it is compiled.
use std::collections::HashMap;

use graph::ops::Attributes;
use graph::{Declined, Op, Tensor};
use ort_ep::view::{Graph, Node, Tensor as TensorView, ValueInfo};
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
        let mut inputs = self.values(node.inputs()?)?;
        let mut attributes = Attributes::default();
        let subgraphs = node.subgraphs()?;
        if subgraphs.is_empty() {
            for attribute in node.attributes()? {
                attributes.0.insert(attribute.name()?.to_owned(), convert::attribute(attribute.value()?)?);
            }
        } else {
            inputs.extend(self.branches(node, &subgraphs)?);
        }
        Ok(NodeRecord {
            name: node.name()?.to_owned(),
            domain: node.domain()?.to_owned(),
            op_type: node.op_type()?.to_owned(),
            since_version: node.since_version()?,
            attributes,
            inputs,
            outputs: self.values(node.outputs()?)?,
        })
    }

    /// The results of both branches of an `If`, which must be constants. They follow its condition as inputs.
    fn branches(&mut self, node: Node<'_>, subgraphs: &[(String, Graph<'_>)]) -> Result<Vec<Option<u32>>, Stop> {
        if node.op_type()? != "If" || !node.domain()?.is_empty() {
            return Err(Declined::new("it has subgraphs").into());
        }
        let mut results = Vec::new();
        for name in ["then_branch", "else_branch"] {
            let branch = subgraphs.iter().find(|(attribute, _)| attribute == name).map(|(_, graph)| graph);
            let branch = branch.ok_or_else(|| Declined::new(format!("{name} is missing")))?;
            for output in branch.outputs()? {
                if !output.is_constant_initializer()? {
                    return Err(Declined::new(format!("{name} has nodes, and only constants are supported")).into());
                }
                // The same name may mean another constant in the other branch, and in another node. Nodes may have equal
                // names, or none.
                let unique = format!("{}/{name}/{}", node.id()?, output.name()?);
                results.push(Some(self.named(unique, output)?));
            }
        }
        Ok(results)
    }

    fn values(&mut self, list: Vec<Option<ValueInfo<'_>>>) -> Result<Vec<Option<u32>>, Stop> {
        list.into_iter().map(|value| value.map(|value| self.value(value)).transpose()).collect()
    }

    /// The id of a value. The value is read the first time it is seen.
    fn value(&mut self, value: ValueInfo<'_>) -> Result<u32, Stop> {
        self.named(value.name()?.to_owned(), value)
    }

    fn named(&mut self, name: String, value: ValueInfo<'_>) -> Result<u32, Stop> {
        if let Some(&known) = self.ids.get(&name) {
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
        self.record.values.push(ValueRecord { name: name.clone(), dtype, rank, constant });
        self.ids.insert(name, id);
        Ok(id)
    }

    fn constant(&mut self, value: ValueInfo<'_>, view: TensorView<'_>) -> Result<Tensor> {
        let lent = self.files.as_mut().map(|files| files.tensor(value, view)).transpose()?.flatten();
        lent.map_or_else(|| convert::tensor(view), Ok)
    }
}
