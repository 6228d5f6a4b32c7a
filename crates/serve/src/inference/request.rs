//! Requests of the protocol: a JSON document, and bytes of tensors behind it.

use axum::body::Body;
use axum::extract::FromRequest;
use axum::http::{HeaderMap, Request};
use ort_client::{Dim, Element, Kind, Port};
use serde::Deserialize;
use serde_json::Value;

use crate::app::App;
use crate::body::{self, Json};
use crate::failure::Failure;

use super::tensor::{datatype, from_json};

/// The header with the length of the JSON document, if bytes follow it.
pub const HEADER_LENGTH: &str = "inference-header-content-length";

/// The body of a request.
pub struct InferBody {
    pub json: Json,
    /// The bytes behind the JSON document.
    pub binary: Vec<u8>,
}

impl FromRequest<App> for InferBody {
    type Rejection = Failure;

    async fn from_request(request: Request<Body>, app: &App) -> Result<InferBody, Failure> {
        let length = header_length(request.headers())?;
        // Web pages of other sites can send neither JSON nor this header without permission.
        if length.is_none() {
            body::check_type(&request)?;
        }
        let mut bytes = body::read(request, app).await?;
        let length = length.unwrap_or(bytes.len());
        if length > bytes.len() {
            let message = format!("{HEADER_LENGTH} is {length}, but the body has {} bytes", bytes.len());
            return Err(Failure::invalid(message));
        }
        let binary = bytes.split_off(length);
        Ok(InferBody { json: Json::parse(&bytes)?, binary })
    }
}

fn header_length(headers: &HeaderMap) -> Result<Option<usize>, Failure> {
    let Some(value) = headers.get(HEADER_LENGTH) else { return Ok(None) };
    let length = value.to_str().ok().and_then(|text| text.parse().ok());
    length.map(Some).ok_or_else(|| Failure::invalid(format!("{HEADER_LENGTH} is not a number of bytes")))
}

/// The JSON document of a request.
#[derive(Deserialize)]
pub struct InferRequest {
    pub id: Option<String>,
    #[serde(default)]
    parameters: RequestParameters,
    inputs: Vec<Input>,
    outputs: Option<Vec<Output>>,
}

#[derive(Default, Deserialize)]
struct RequestParameters {
    #[serde(default)]
    binary_data_output: bool,
}

#[derive(Deserialize)]
struct Input {
    name: String,
    shape: Vec<i64>,
    datatype: String,
    #[serde(default)]
    parameters: InputParameters,
    data: Option<Value>,
}

#[derive(Default, Deserialize)]
struct InputParameters {
    binary_data_size: Option<usize>,
}

#[derive(Deserialize)]
struct Output {
    name: String,
    #[serde(default)]
    parameters: OutputParameters,
}

#[derive(Default, Deserialize)]
struct OutputParameters {
    binary_data: Option<bool>,
    classification: Option<Value>,
}

/// A tensor that fits the model's input of this name.
#[derive(Debug, PartialEq)]
pub struct Tensor {
    pub name: String,
    pub element: Element,
    pub shape: Vec<i64>,
    pub bytes: Vec<u8>,
}

impl InferRequest {
    /// Checks the inputs. `most_bytes` limits what the shape of a tensor may ask for.
    pub fn tensors(&mut self, mut binary: &[u8], ports: &[Port], most_bytes: usize) -> Result<Vec<Tensor>, Failure> {
        let mut tensors: Vec<Tensor> = Vec::new();
        for (index, input) in std::mem::take(&mut self.inputs).into_iter().enumerate() {
            let field = format!("inputs[{index}]");
            let wrong = |problem: String| Failure::field(&field, problem);
            if tensors.iter().any(|earlier| earlier.name == input.name) {
                return Err(wrong(format!("the input {:?} is given twice", input.name)));
            }
            tensors.push(input.tensor(&mut binary, ports, most_bytes).map_err(wrong)?);
        }
        if !binary.is_empty() {
            return Err(Failure::invalid(format!("{} bytes behind the JSON belong to no input", binary.len())));
        }
        let missing = ports.iter().find(|port| tensors.iter().all(|tensor| tensor.name != port.name));
        if let Some(port) = missing {
            return Err(Failure::field("inputs", format!("the input {:?} is missing", port.name)));
        }
        check_names_of_dims(&tensors, ports)?;
        Ok(tensors)
    }

    /// The names of the wanted outputs, and whether they are sent as bytes.
    pub fn outputs(&self, ports: &[Port]) -> Result<Vec<(String, bool)>, Failure> {
        let default = self.parameters.binary_data_output;
        let Some(wanted) = self.outputs.as_ref().filter(|wanted| !wanted.is_empty()) else {
            return Ok(ports.iter().map(|port| (port.name.clone(), default)).collect());
        };
        let mut outputs: Vec<(String, bool)> = Vec::new();
        for (index, Output { name, parameters }) in wanted.iter().enumerate() {
            let wrong = |problem: String| Err(Failure::field(&format!("outputs[{index}]"), problem));
            if ports.iter().all(|port| port.name != *name) {
                return wrong(format!("the model has no output {name:?}"));
            }
            if outputs.iter().any(|(earlier, _)| earlier == name) {
                return wrong(format!("the output {name:?} is named twice"));
            }
            if parameters.classification.is_some() {
                return wrong("this server does not support classification".to_owned());
            }
            outputs.push((name.clone(), parameters.binary_data.unwrap_or(default)));
        }
        Ok(outputs)
    }
}

impl Input {
    fn tensor(self, binary: &mut &[u8], ports: &[Port], most_bytes: usize) -> Result<Tensor, String> {
        let Input { name, shape, datatype: given, parameters, data } = self;
        let port = ports.iter().find(|port| port.name == name);
        let port = port.ok_or_else(|| format!("the model has no input {name:?}"))?;
        let Kind::Tensor(element, dims) = &port.kind else {
            return Err(format!("the input {name:?} is {}, which cannot be sent", port.kind));
        };
        let element = *element;
        if given != datatype(element) {
            return Err(format!("the input {name:?} has the type {}, not {given:?}", datatype(element)));
        }
        check_shape(&shape, dims)?;
        // Extents beside a 0 need no bytes here, but may be those of results.
        let counted: Vec<i64> = shape.iter().map(|&extent| extent.max(1)).collect();
        if element.bytes_of(&counted).is_none_or(|bytes| bytes > most_bytes) {
            return Err(format!("a tensor of shape {shape:?} has more than {most_bytes} bytes"));
        }
        let bytes = match (parameters.binary_data_size, data) {
            (None, Some(data)) => from_json(element, &shape, &data)?,
            (Some(size), None) => {
                let needed = element.bytes_of(&shape).unwrap_or(usize::MAX);
                if size != needed {
                    return Err(format!("binary_data_size is {size}, but the shape {shape:?} needs {needed} bytes"));
                }
                let (bytes, rest) =
                    binary.split_at_checked(size).ok_or_else(|| format!("the body ends before its {size} bytes"))?;
                *binary = rest;
                if element == Element::Bool && bytes.iter().any(|&byte| byte > 1) {
                    return Err("a byte of type BOOL is neither 0 nor 1".to_owned());
                }
                bytes.to_vec()
            }
            (Some(_), Some(_)) => return Err("it has both data and binary_data_size".to_owned()),
            (None, None) => return Err("it has neither data nor binary_data_size".to_owned()),
        };
        Ok(Tensor { name, element, shape, bytes })
    }
}

fn check_shape(shape: &[i64], dims: &[Dim]) -> Result<(), String> {
    let fits = |(&extent, dim): (&i64, &Dim)| match dim {
        Dim::Size(size) => usize::try_from(extent) == Ok(*size),
        Dim::Named(_) | Dim::Any => extent >= 0,
    };
    // A model may leave the rank open; ONNX Runtime describes that like a scalar, and checks the shape itself.
    let is_open = dims.is_empty() && shape.iter().all(|&extent| extent >= 0);
    if is_open || shape.len() == dims.len() && shape.iter().zip(dims).all(fits) {
        return Ok(());
    }
    let wanted: Vec<String> = dims.iter().map(Dim::to_string).collect();
    Err(format!("the shape is {shape:?}, but must be [{}]", wanted.join(", ")))
}

/// Equal names of dimensions mean equal extents.
fn check_names_of_dims(tensors: &[Tensor], ports: &[Port]) -> Result<(), Failure> {
    let mut known: Vec<(&str, i64)> = Vec::new();
    for port in ports {
        let Kind::Tensor(_, dims) = &port.kind else { continue };
        let Some(tensor) = tensors.iter().find(|tensor| tensor.name == port.name) else { continue };
        for (dim, &extent) in dims.iter().zip(&tensor.shape) {
            let Dim::Named(name) = dim else { continue };
            match known.iter().find(|(earlier, _)| earlier == name) {
                Some(&(_, other)) if other != extent => {
                    let problem = format!("the dimension {name} is {other} in one input and {extent} in another");
                    return Err(Failure::field("inputs", problem));
                }
                Some(_) => {}
                None => known.push((name, extent)),
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn ports() -> Vec<Port> {
        let rows = || Dim::Named("rows".to_owned());
        let port = |name: &str, element, dims| Port { name: name.to_owned(), kind: Kind::Tensor(element, dims) };
        vec![
            port("x", Element::F32, vec![rows(), Dim::Size(2)]),
            port("keep", Element::Bool, vec![rows()]),
            port("text", Element::I64, vec![Dim::Any]),
        ]
    }

    fn read(inputs: Value, binary: &[u8]) -> Result<Vec<Tensor>, String> {
        let mut request: InferRequest = serde_json::from_value(json!({"inputs": inputs})).unwrap();
        request.tensors(binary, &ports(), 1024).map_err(|failure| failure.message().to_owned())
    }

    fn input(name: &str, shape: &[i64], datatype: &str, data: Value) -> Value {
        json!({"name": name, "shape": shape, "datatype": datatype, "data": data})
    }

    fn binary(name: &str, shape: &[i64], datatype: &str, size: usize) -> Value {
        json!({"name": name, "shape": shape, "datatype": datatype, "parameters": {"binary_data_size": size}})
    }

    #[test]
    fn json_and_bytes_can_be_mixed() {
        let inputs = json!([
            binary("keep", &[1], "BOOL", 1),
            input("x", &[1, 2], "FP32", json!([1.0, 2.0])),
            binary("text", &[1], "INT64", 8),
        ]);
        let tensors = read(inputs, &[1, 7, 0, 0, 0, 0, 0, 0, 0]).unwrap();
        let bytes: Vec<_> = tensors.iter().map(|tensor| (tensor.name.as_str(), tensor.bytes.clone())).collect();
        let x = [1.0_f32, 2.0].map(f32::to_le_bytes).concat();
        assert_eq!(bytes, [("keep", vec![1]), ("x", x), ("text", vec![7, 0, 0, 0, 0, 0, 0, 0])]);
    }

    #[test]
    fn wrong_inputs_are_described() {
        let x = || input("x", &[1, 2], "FP32", json!([1, 2]));
        let keep = || input("keep", &[1], "BOOL", json!([true]));
        let text = || input("text", &[0], "INT64", json!([]));
        for (inputs, bytes, wanted) in [
            (json!([x(), keep()]), &[][..], "the input \"text\" is missing"),
            (json!([x(), x()]), &[], "inputs[1]: the input \"x\" is given twice"),
            (json!([input("y", &[1], "FP32", json!([1]))]), &[], "the model has no input \"y\""),
            (json!([input("x", &[1, 2], "FP64", json!([1, 2]))]), &[], "has the type FP32, not \"FP64\""),
            (json!([input("x", &[1, 3], "FP32", json!([1, 2, 3]))]), &[], "must be [rows, 2]"),
            (json!([input("x", &[-1, 2], "FP32", json!([]))]), &[], "must be [rows, 2]"),
            (json!([input("x", &[2], "FP32", json!([1, 2]))]), &[], "must be [rows, 2]"),
            (json!([input("text", &[129], "INT64", json!([]))]), &[], "more than 1024 bytes"),
            (json!([x(), input("keep", &[2], "BOOL", json!([true, true])), text()]), &[], "the dimension rows is 1"),
            (json!([x(), keep(), text()]), &[1], "1 bytes behind the JSON"),
            (json!([binary("x", &[1, 2], "FP32", 7)]), &[0; 7], "needs 8 bytes"),
            (json!([binary("x", &[1, 2], "FP32", 8)]), &[0; 7], "the body ends before"),
            (json!([binary("keep", &[1], "BOOL", 1)]), &[2], "neither 0 nor 1"),
            (json!([{"name": "x", "shape": [1, 2], "datatype": "FP32"}]), &[], "neither data nor"),
        ] {
            let problem = read(inputs, bytes).unwrap_err();
            assert!(problem.contains(wanted), "{problem}");
        }
    }

    #[test]
    fn outputs_are_all_by_default() {
        let wanted = |request: Value| {
            let request: InferRequest = serde_json::from_value(request).unwrap();
            request.outputs(&ports()).map_err(|failure| failure.message().to_owned())
        };
        assert_eq!(wanted(json!({"inputs": []})).unwrap().len(), 3);
        let outputs = json!([{"name": "x"}, {"name": "keep", "parameters": {"binary_data": false}}]);
        let request = json!({"inputs": [], "outputs": outputs, "parameters": {"binary_data_output": true}});
        assert_eq!(wanted(request).unwrap(), [("x".to_owned(), true), ("keep".to_owned(), false)]);
        for name in ["y", "x"] {
            assert!(wanted(json!({"inputs": [], "outputs": [{"name": "x"}, {"name": name}]})).is_err());
        }
    }
}
