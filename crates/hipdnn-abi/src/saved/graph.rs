//! Converts graphs of descriptors to documents, and back.

use std::collections::BTreeMap;
use std::sync::Arc;

use half::{bf16, f16};
use hipdnn::sys::{AttributeName as A, AttributeType as T, DataType as C, DescriptorType as D, Status};
use serde_json::{Map, Value as Json};

use super::number;
use super::read::float;
use super::schema::{Field, Kind, NODES, TENSOR};
use super::write::float as float_of;
use crate::descriptor::Descriptor;
use crate::engine::uid_of;
use crate::fault::{Fault, Outcome};
use crate::implementation::Implementation;
use crate::value::Value;

type Object = Map<String, Json>;

/// Element types: the C interface's number, the document's, and which scalar holds its values.
const TYPES: [(C, i64, i64); 18] = [
    (C::FLOAT, 1, 1),
    (C::HALF, 2, 2),
    (C::BFLOAT16, 3, 3),
    (C::DOUBLE, 4, 6),
    (C::UINT8, 5, 4),
    (C::INT32, 6, 5),
    (C::INT8, 7, 4),
    (C::FP8_E4M3, 8, 4),
    (C::FP8_E5M2, 9, 4),
    (C::FP8_E8M0, 10, 4),
    (C::FP4_E2M1, 11, 0),
    (C::FP6_E2M3_EXT, 12, 0),
    (C::FP6_E3M2_EXT, 13, 0),
    (C::INT4, 14, 0),
    (C::INT64, 15, 7),
    (C::BOOLEAN, 16, 8),
    (C::FP8_E4M3_FNUZ, 17, 4),
    (C::FP8_E5M2_FNUZ, 18, 4),
];

/// The newest version of the document format.
const NEWEST: [i64; 3] = [1, 4, 0];

/// A graph as a document.
pub fn document(graph: &Descriptor) -> Outcome<Object> {
    let mut object = Object::new();
    let mut put = |name: &str, value: Option<Json>| object.extend(value.map(|value| (name.to_owned(), value)));
    put("name", text(graph, A::OPERATIONGRAPH_NAME_EXT));
    for (name, attribute) in [
        ("compute_data_type", A::OPERATIONGRAPH_COMPUTE_DATA_TYPE_EXT),
        ("intermediate_data_type", A::OPERATIONGRAPH_INTERMEDIATE_DATA_TYPE_EXT),
        ("io_data_type", A::OPERATIONGRAPH_IO_DATA_TYPE_EXT),
    ] {
        put(name, graph.number(attribute).and_then(saved_type));
    }
    let operations = graph.descriptors(A::OPERATIONGRAPH_OPS);
    let mut tensors: BTreeMap<i64, Arc<Descriptor>> = BTreeMap::new();
    for operation in &operations {
        let rows = operation.kind.rows.iter().filter(|row| row.kind == T::BACKEND_DESCRIPTOR);
        for tensor in rows.flat_map(|row| operation.descriptors(row.name)) {
            let offsets = tensor.descriptor(A::TENSOR_RAGGED_OFFSET_DESC);
            tensors.extend(offsets.into_iter().chain([tensor]).map(|tensor| (uid_of(&tensor), tensor)));
        }
    }
    put("tensors", Some(tensors.values().map(|tensor| Json::Object(tensor_document(tensor))).collect()));
    put("nodes", Some(operations.iter().map(|operation| node_document(operation)).collect::<Outcome<_>>()?));
    put("preferred_engine_id", graph.i64s(A::OPERATIONGRAPH_PREFERRED_ENGINE_ID_EXT).first().map(|&id| id.into()));
    let overrides = graph.flag(A::OPERATIONGRAPH_IS_OVERRIDE_SHAPE_ENABLED_EXT);
    put("is_override_shape_enabled", overrides.then_some(true.into()));
    let minor = tensors.values().map(|tensor| minor_version(tensor)).max().unwrap_or(0).max(i64::from(overrides));
    put("min_required_engine_api_version", Some(vec![1, minor, 0].into()));
    Ok(object)
}

/// The version that introduced the features a tensor uses.
fn minor_version(tensor: &Descriptor) -> i64 {
    let differs = |name, usual: i64| tensor.i64s(name).first().is_some_and(|&value| value != usual);
    if differs(A::TENSOR_RAGGED_OFFSET_MULTIPLIER, 1) {
        4
    } else if tensor.descriptor(A::TENSOR_RAGGED_OFFSET_DESC).is_some() || differs(A::TENSOR_BYTE_ALIGNMENT, 16) {
        3
    } else if tensor.flag(A::TENSOR_IS_RUNTIME_PASS_BY_VALUE_EXT) {
        2
    } else {
        0
    }
}

fn tensor_document(tensor: &Descriptor) -> Object {
    let mut object = fields_document(TENSOR, tensor);
    object.insert("uid".into(), uid_of(tensor).into());
    let code = C(tensor.number(A::TENSOR_DATA_TYPE).unwrap_or(-1));
    let kind = TYPES.iter().find(|known| known.0 == code).map_or(0, |known| known.2);
    if let (Some(Value::Bytes(bytes)), true) = (tensor.value(A::TENSOR_VALUE_EXT), kind != 0) {
        let mut wide = [0; 8];
        wide[..bytes.len().min(8)].copy_from_slice(&bytes[..bytes.len().min(8)]);
        let [low, high, ..] = wide;
        let bits = u64::from_le_bytes(wide);
        let value = match kind {
            1 => float(f32::from_bits(bits as u32).into()),
            2 => float(f16::from_le_bytes([low, high]).to_f64()),
            3 => float(bf16::from_le_bytes([low, high]).to_f64()),
            5 => (bits as u32).cast_signed().into(),
            6 => float(f64::from_bits(bits)),
            7 => bits.cast_signed().into(),
            _ => low.into(),
        };
        object.extend([("value_type".to_owned(), kind.into()), ("value".to_owned(), value)]);
    }
    object
}

fn node_document(operation: &Descriptor) -> Outcome<Json> {
    let at = NODES.iter().position(|node| node.descriptor == operation.kind.descriptor);
    let at =
        at.ok_or_else(|| Fault::unsupported(format!("serialising a {} is not supported", operation.kind.class)))?;
    let mut object = Object::new();
    let mut put = |name: &str, value: Option<Json>| object.extend(value.map(|value| (name.to_owned(), value)));
    put("name", text(operation, A::OPERATION_NAME_EXT));
    put("compute_data_type", operation.number(compute_of(operation)?).and_then(saved_type));
    put("attributes_type", Some((at + 1).into()));
    put("attributes", Some(Json::Object(fields_document(NODES[at].fields, operation))));
    Ok(Json::Object(object))
}

/// The attribute with an operation's compute type.
fn compute_of(operation: &Descriptor) -> Outcome<A> {
    let mut rows = operation.kind.rows.iter();
    let row = rows.find(|row| row.is_required && row.kind == T::DATA_TYPE);
    row.map(|row| row.name).ok_or_else(|| Fault::bad("an operation has no compute type"))
}

fn fields_document(fields: &[Field], descriptor: &Descriptor) -> Object {
    let value = |field: &Field| {
        let name = field.attribute;
        let value = match field.kind {
            Kind::Bool => descriptor.value(name).map(|_| descriptor.flag(name).into()),
            Kind::Byte(more) => descriptor.number(name).map(|value| (i64::from(value) + more).into()),
            Kind::DataType => descriptor.number(name).and_then(saved_type),
            Kind::Int => descriptor.number(name).map(Json::from),
            Kind::Long => descriptor.i64s(name).first().map(|&value| value.into()),
            Kind::Float => descriptor.f32(name).map(|value| float(value.into())),
            Kind::Text => text(descriptor, name),
            Kind::Bytes => match descriptor.value(name) {
                Some(Value::Bytes(bytes)) => Some(bytes.into()),
                _ => None,
            },
            Kind::Longs => descriptor.value(name).map(|_| descriptor.i64s(name).into()),
            Kind::Ints => descriptor.value(name).map(|_| descriptor.i32s(name).into()),
            Kind::Uid => descriptor.descriptor(name).map(|tensor| uid_of(&tensor).into()),
            Kind::Uids => descriptor.value(name).map(|_| {
                let uids = descriptor.descriptors(name);
                uids.iter().map(|tensor| uid_of(tensor)).collect::<Vec<_>>().into()
            }),
            Kind::Tables(_) | Kind::Node | Kind::Scalar | Kind::Version => None,
        };
        value.map(|value| (field.name.to_owned(), value))
    };
    fields.iter().filter_map(value).collect()
}

fn text(descriptor: &Descriptor, name: A) -> Option<Json> {
    match descriptor.value(name) {
        Some(Value::Bytes(bytes)) => Some(String::from_utf8_lossy(&bytes).into()),
        _ => None,
    }
}

fn saved_type(code: i32) -> Option<Json> {
    TYPES.iter().find(|known| known.0.0 == code).map(|known| known.1.into())
}

fn loaded_type(saved: i64) -> Option<i32> {
    TYPES.iter().find(|known| known.1 == saved).map(|known| known.0.0)
}

/// A graph from a document. It is not finalized: its handle is missing.
pub fn descriptor(object: &Object, library: &dyn Implementation) -> Outcome<Arc<Descriptor>> {
    check_version(object)?;
    let mut tensors = BTreeMap::new();
    let rows = |name| object.get(name).and_then(Json::as_array).map_or(&[][..], Vec::as_slice);
    // A tensor may come before its ragged offsets.
    let (ragged, whole): (Vec<_>, Vec<_>) = rows("tensors")
        .iter()
        .filter_map(Json::as_object)
        .partition(|row| row.contains_key("ragged_offset_tensor_uid"));
    for row in whole.into_iter().chain(ragged) {
        let tensor = Arc::new(Descriptor::new(D::TENSOR_DESCRIPTOR)?);
        set_fields(&tensor, TENSOR, row, &tensors)?;
        set_value(&tensor, row)?;
        tensor.finalize(library)?;
        if tensors.insert(uid_of(&tensor), tensor).is_some() {
            return Err(malformed("two tensors have the same uid"));
        }
    }
    let mut operations = Vec::new();
    for row in rows("nodes").iter().filter_map(Json::as_object) {
        operations.push(operation(row, &tensors, library)?);
    }
    if operations.is_empty() {
        return Err(malformed("it has no operations"));
    }
    let graph = Arc::new(Descriptor::new(D::OPERATIONGRAPH_DESCRIPTOR)?);
    graph.put(A::OPERATIONGRAPH_OPS, Value::Descriptors(operations));
    for (name, attribute) in [
        ("compute_data_type", A::OPERATIONGRAPH_COMPUTE_DATA_TYPE_EXT),
        ("intermediate_data_type", A::OPERATIONGRAPH_INTERMEDIATE_DATA_TYPE_EXT),
        ("io_data_type", A::OPERATIONGRAPH_IO_DATA_TYPE_EXT),
    ] {
        if let Some(code) = number(object.get(name)).and_then(loaded_type) {
            graph.put(attribute, Value::I32s(vec![code]));
        }
    }
    if let Some(name) = object.get("name").and_then(Json::as_str).filter(|name| !name.is_empty()) {
        graph.put(A::OPERATIONGRAPH_NAME_EXT, Value::Bytes(name.into()));
    }
    if let Some(id) = number(object.get("preferred_engine_id")) {
        graph.put(A::OPERATIONGRAPH_PREFERRED_ENGINE_ID_EXT, Value::I64s(vec![id]));
    }
    if object.get("is_override_shape_enabled").and_then(Json::as_bool) == Some(true) {
        graph.put(A::OPERATIONGRAPH_IS_OVERRIDE_SHAPE_ENABLED_EXT, Value::Bytes(vec![1]));
    }
    Ok(graph)
}

fn malformed(reason: &str) -> Fault {
    Fault::bad(format!("cannot read the graph: {reason}"))
}

fn check_version(object: &Object) -> Outcome {
    let Some(wanted) = object.get("min_required_engine_api_version").and_then(Json::as_array) else { return Ok(()) };
    let wanted: Vec<i64> = wanted.iter().filter_map(|part| number(Some(part))).collect();
    if wanted > NEWEST.to_vec() {
        let text = format!("the graph needs interface version {wanted:?}, but this library has {NEWEST:?}");
        return Err(Fault::new(Status::NOT_SUPPORTED, text));
    }
    Ok(())
}

fn operation(
    row: &Object,
    tensors: &BTreeMap<i64, Arc<Descriptor>>,
    library: &dyn Implementation,
) -> Outcome<Arc<Descriptor>> {
    let which = number(row.get("attributes_type")).unwrap_or(0);
    let node = usize::try_from(which - 1).ok().and_then(|at| NODES.get(at));
    let node = node.ok_or_else(|| malformed("an operation is of unknown kind"))?;
    let operation = Arc::new(Descriptor::new(node.descriptor)?);
    let attributes = row.get("attributes").and_then(Json::as_object);
    set_fields(&operation, node.fields, attributes.ok_or_else(|| malformed("an operation is empty"))?, tensors)?;
    if let Some(code) = number(row.get("compute_data_type")).and_then(loaded_type) {
        operation.put(compute_of(&operation)?, Value::I32s(vec![code]));
    }
    if let Some(name) = row.get("name").and_then(Json::as_str).filter(|name| !name.is_empty()) {
        operation.put(A::OPERATION_NAME_EXT, Value::Bytes(name.into()));
    }
    operation.finalize(library)?;
    Ok(operation)
}

fn set_fields(
    descriptor: &Descriptor,
    fields: &[Field],
    object: &Object,
    tensors: &BTreeMap<i64, Arc<Descriptor>>,
) -> Outcome {
    let tensor =
        |uid: i64| tensors.get(&uid).cloned().ok_or_else(|| malformed(&format!("tensor {uid} does not exist")));
    for field in fields {
        let Some(value) = object.get(field.name) else { continue };
        let whole = || number(Some(value)).ok_or_else(|| malformed(&format!("{} is not a number", field.name)));
        let short = |number: i64| i32::try_from(number).map_err(|_| malformed(&format!("{} is too large", field.name)));
        let list = || value.as_array().into_iter().flatten().filter_map(|it| number(Some(it)));
        let value = match field.kind {
            Kind::Bool => Value::Bytes(vec![u8::from(value.as_bool().unwrap_or(false))]),
            Kind::Byte(more) if whole()? < more => continue,
            Kind::Byte(more) => Value::I32s(vec![short(whole()? - more)?]),
            // Zero means that the type was not set.
            Kind::DataType => match loaded_type(whole()?) {
                Some(code) => Value::I32s(vec![code]),
                None if whole()? == 0 => continue,
                None => return Err(malformed("an element type is unknown")),
            },
            Kind::Int => Value::I32s(vec![short(whole()?)?]),
            Kind::Long => Value::I64s(vec![whole()?]),
            Kind::Float => Value::F32s(vec![float_of(value) as f32]),
            Kind::Text => Value::Bytes(value.as_str().unwrap_or_default().into()),
            Kind::Bytes => Value::Bytes(list().map(|byte| byte as u8).collect()),
            Kind::Longs => Value::I64s(list().collect()),
            Kind::Ints => Value::I32s(list().map(short).collect::<Outcome<_>>()?),
            Kind::Uid => Value::Descriptors(vec![tensor(whole()?)?]),
            Kind::Uids => Value::Descriptors(list().map(tensor).collect::<Outcome<_>>()?),
            Kind::Tables(_) | Kind::Node | Kind::Scalar | Kind::Version => continue,
        };
        if !value.is_empty() {
            descriptor.put(field.attribute, value);
        }
    }
    Ok(())
}

fn set_value(tensor: &Descriptor, row: &Object) -> Outcome {
    let Some(value) = row.get("value") else { return Ok(()) };
    let whole = number(Some(value)).unwrap_or(0);
    let code = C(tensor.number(A::TENSOR_DATA_TYPE).unwrap_or(-1));
    let bytes = match code {
        C::FLOAT => (float_of(value) as f32).to_le_bytes().to_vec(),
        C::DOUBLE => float_of(value).to_le_bytes().to_vec(),
        C::HALF => f16::from_f64(float_of(value)).to_le_bytes().to_vec(),
        C::BFLOAT16 => bf16::from_f64(float_of(value)).to_le_bytes().to_vec(),
        C::INT32 => (whole as i32).to_le_bytes().to_vec(),
        C::INT64 => whole.to_le_bytes().to_vec(),
        _ if code.bits() == Some(8) => vec![whole as u8],
        _ => return Err(malformed("a tensor of this type cannot have a value")),
    };
    tensor.put(A::TENSOR_VALUE_EXT, Value::Bytes(bytes));
    Ok(())
}
