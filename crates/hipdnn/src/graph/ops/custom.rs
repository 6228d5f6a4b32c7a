//! Operations that only one plugin supports.

use crate::Error;
use crate::graph::operation::{Operation, Setting, Tensors};
use crate::graph::tensor::TensorId;
use crate::sys::{AttributeName as A, DescriptorType};

/// The operation `id` (`plugin.operation`) with its own data. Its results must be described: nothing is inferred.
pub(in crate::graph) fn custom(id: &str, data: &[u8], inputs: &[TensorId], outputs: &[TensorId]) -> Operation {
    let mut settings = vec![(A::OPERATION_CUSTOM_OP_ID_EXT, Setting::Bytes(id.as_bytes().to_vec()))];
    if !data.is_empty() {
        settings.push((A::OPERATION_CUSTOM_OP_DATA_EXT, Setting::Bytes(data.to_vec())));
    }
    let (is_named, made) = (!id.is_empty(), outputs.to_vec());
    let rule = move |tensors: &mut Tensors| {
        if !is_named || made.is_empty() {
            return Err(Error::invalid("custom operation", "it needs an id and at least one result"));
        }
        made.iter().try_for_each(|&id| tensors.complete(id, id))
    };
    Operation {
        name: "custom operation",
        descriptor: DescriptorType::OPERATION_CUSTOM_OP_DESCRIPTOR_EXT,
        compute_type: A::CUSTOM_OP_COMP_TYPE_EXT,
        reads: inputs.iter().map(|&id| (A::OPERATION_CUSTOM_OP_INPUTS_EXT, id)).collect(),
        makes: outputs.iter().map(|&id| (A::OPERATION_CUSTOM_OP_OUTPUTS_EXT, id)).collect(),
        settings,
        rule: Box::new(rule),
    }
}
