//! The Open Inference Protocol, version 2, for plain ONNX models: `/v2`.

mod request;
mod tensor;

use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use ort_client::{Code, Dim, Kind, Port, Session, Value};
use serde_json::{Value as Document, json};

use crate::access_log::Record;
use crate::app::App;
use crate::body::PathName;
use crate::chat::blocking;
use crate::failure::Failure;
use crate::generation::Admission;
use crate::queue::Queued;

use request::{HEADER_LENGTH, InferBody, InferRequest, Tensor};
use tensor::{datatype, to_json};

/// The path of the protocol. All errors below it have its form.
pub const PATH: &str = "/v2";

/// When a client may try again after the device had no memory.
const RETRY: Duration = Duration::from_secs(1);

/// A plain ONNX model.
pub struct TensorModel {
    pub provider: String,
    inputs: Vec<Port>,
    outputs: Vec<Port>,
    session: Queued<Session>,
}

impl TensorModel {
    /// # Errors
    /// When an input or output is not a tensor of numbers.
    pub fn new(session: Session, provider: String) -> Result<TensorModel, String> {
        let (inputs, outputs) = (session.inputs().to_vec(), session.outputs().to_vec());
        for (word, ports) in [("input", &inputs), ("output", &outputs)] {
            if let Some(Port { name, kind }) = ports.iter().find(|port| !matches!(port.kind, Kind::Tensor(..))) {
                let help = "only tensors of numbers and booleans can be served";
                return Err(format!("its {word} {name:?} is {kind}\n  help: {help}"));
            }
        }
        Ok(TensorModel { provider, inputs, outputs, session: Queued::new(session) })
    }

    pub fn is_running(&self) -> bool {
        self.session.is_running()
    }

    /// Waits until nothing runs.
    pub async fn idle(&self) {
        self.session.idle().await;
    }
}

/// What the server can do.
pub async fn server() -> axum::Json<Document> {
    let version = env!("CARGO_PKG_VERSION");
    axum::Json(json!({"name": "amdgpu-ep", "version": version, "extensions": ["binary_tensor_data"]}))
}

/// The process is alive.
pub async fn live() -> axum::Json<Document> {
    axum::Json(json!({"live": true}))
}

/// Whether all models can be used.
pub async fn ready(State(app): State<App>) -> Response {
    let is_ready = app.state() == "ready";
    let status = if is_ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, axum::Json(json!({"ready": is_ready}))).into_response()
}

/// Whether a model can be used.
pub async fn model_ready(State(app): State<App>, PathName(name): PathName) -> Result<Response, Failure> {
    let is_ready = app.models().is_ready(&name)?;
    let status = if is_ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    Ok((status, axum::Json(json!({"name": name, "ready": is_ready}))).into_response())
}

/// The inputs and outputs of a model.
pub async fn model(State(app): State<App>, PathName(name): PathName) -> Result<axum::Json<Document>, Failure> {
    let model = app.models().find_tensors(&name).await?;
    let ports = |ports: &[Port]| ports.iter().map(described).collect::<Vec<_>>();
    Ok(axum::Json(json!({
        "name": name,
        "versions": [],
        "platform": "onnxruntime_onnx",
        "inputs": ports(&model.inputs),
        "outputs": ports(&model.outputs),
    })))
}

fn described(port: &Port) -> Document {
    let Kind::Tensor(element, dims) = &port.kind else { return Document::Null };
    let extent = |dim: &Dim| match dim {
        Dim::Size(size) => *size as i64,
        Dim::Named(_) | Dim::Any => -1,
    };
    let shape: Vec<i64> = dims.iter().map(extent).collect();
    json!({"name": port.name, "datatype": datatype(*element), "shape": shape})
}

/// Runs a model once.
pub async fn infer(
    State(app): State<App>,
    Extension(record): Extension<Arc<Record>>,
    PathName(name): PathName,
    body: InferBody,
) -> Result<Response, Failure> {
    let model = app.models().find_tensors(&name).await?;
    let mut admission = Admission::of(&app, record)?;
    let (served, most_bytes) = (Arc::clone(&model), app.settings().max_body_bytes);
    let (request, tensors, wanted) = blocking(move || {
        let mut request: InferRequest = body.json.into()?;
        let tensors = request.tensors(&body.binary, &served.inputs, most_bytes)?;
        let wanted = request.outputs(&served.outputs)?;
        Ok((request, tensors, wanted))
    })
    .await?;
    admission.runs();
    let run = move |session: &mut Session, _: &_| {
        let results = run(session, &tensors, &wanted)?;
        Ok((wanted, results))
    };
    let (wanted, results) = model.session.run(app.settings(), run).await?;
    blocking(move || answer(&name, request.id, &wanted, &results)).await
}

fn run(session: &Session, tensors: &[Tensor], wanted: &[(String, bool)]) -> Result<Vec<Value>, Failure> {
    let runtime = session.environment().runtime();
    let value = |tensor: &Tensor| Value::from_bytes(runtime, tensor.element, &tensor.shape, &tensor.bytes);
    let values: Result<Vec<Value>, _> = tensors.iter().map(value).collect();
    let values = values.map_err(|error| Failure::internal("creating the inputs", &error))?;
    let inputs: Vec<_> = tensors.iter().map(|tensor| tensor.name.as_str()).zip(&values).collect();
    let outputs: Vec<_> = wanted.iter().map(|(name, _)| name.as_str()).collect();
    session.run(&inputs, &outputs).map_err(|error| {
        let doing = "running the model";
        if is_of_the_device(&error) {
            return Failure::internal(doing, &error);
        }
        crate::access_log::problem(doing, &error);
        if is_short_of_memory(&error) {
            let message = "the device has no memory for this request at the moment; try again later, or with less data";
            return Failure::new(StatusCode::SERVICE_UNAVAILABLE, "out_of_memory", message).retry_after(RETRY);
        }
        // ONNX Runtime does not say whether the model or its inputs are wrong: most models fail for some inputs.
        Failure::unprocessable(format!("the model failed with these inputs: {}", error.message()))
    })
}

/// Whether the inputs are not to blame for a failed run: the device or its driver failed, or our code. ONNX Runtime's
/// own kernels have no such code; what they refuse is the inputs' fault.
fn is_of_the_device(error: &ort_client::Error) -> bool {
    match error.code() {
        // A status in an exception of ONNX Runtime keeps its code only in the text.
        Some(code) => {
            let message = error.message();
            code == Code::EP_FAIL || message.contains(": EP_FAIL :") || message.contains(" panicked: ")
        }
        // The error did not come from ONNX Runtime.
        None => true,
    }
}

/// Our provider reports that it has no memory with the same code as ONNX Runtime's kernels report wrong shapes, so only
/// the message tells them apart.
fn is_short_of_memory(error: &ort_client::Error) -> bool {
    error.message().contains("out of memory")
}

/// The answer: a JSON document, and the bytes of outputs behind it.
fn answer(name: &str, id: Option<String>, wanted: &[(String, bool)], results: &[Value]) -> Result<Response, Failure> {
    let (mut outputs, mut binary) = (Vec::new(), Vec::new());
    for ((output, is_binary), result) in wanted.iter().zip(results) {
        let failed = |error: ort_client::Error| Failure::internal("reading the outputs", &error);
        let Kind::Tensor(element, _) = result.kind().map_err(failed)? else {
            return Err(Failure::unprocessable(format!("the output {output:?} is not a tensor of numbers")));
        };
        let (shape, bytes) = (result.shape().map_err(failed)?, result.bytes().map_err(failed)?);
        let mut document = json!({"name": output, "datatype": datatype(element), "shape": shape});
        if *is_binary {
            document["parameters"] = json!({"binary_data_size": bytes.len()});
            binary.extend_from_slice(bytes);
        } else {
            let data = to_json(element, bytes).map_err(|problem| Failure::field("outputs", problem))?;
            document["data"] = json!(data);
        }
        outputs.push(document);
    }
    let mut document = json!({"model_name": name, "outputs": outputs});
    if let Some(id) = id {
        document["id"] = json!(id);
    }
    if !wanted.iter().any(|(_, is_binary)| *is_binary) {
        return Ok(axum::Json(document).into_response());
    }
    let mut body = document.to_string().into_bytes();
    let length = HeaderValue::from(body.len());
    body.append(&mut binary);
    let mut response = ([(header::CONTENT_TYPE, "application/octet-stream")], body).into_response();
    response.headers_mut().insert(HEADER_LENGTH, length);
    Ok(response)
}

/// An error in the protocol's form.
pub fn error(failure: &Failure) -> Document {
    json!({"error": failure.message()})
}

#[cfg(test)]
mod tests {
    use ort_client::Error;

    use super::*;

    #[test]
    fn only_failures_of_the_device_are_the_servers_fault() {
        let of_kernel = Error::Call { code: Code::INVALID_ARGUMENT, message: "indices element out of bounds".into() };
        let of_device = Error::Call { code: Code::EP_FAIL, message: "hipMemcpy failed".into() };
        let of_bug = Error::Call { code: Code::INVALID_ARGUMENT, message: "Compute panicked: index 7".into() };
        let text = "GetStream: [ONNXRuntimeError] : 11 : EP_FAIL : hipStreamCreateWithFlags failed".to_owned();
        let wrapped = Error::Call { code: Code::INVALID_ARGUMENT, message: text };
        let cases = [(of_kernel, false), (of_device, true), (wrapped, true), (of_bug, true), (Error::OnDevice, true)];
        for (error, wanted) in cases {
            assert_eq!(is_of_the_device(&error), wanted, "{error}");
        }
        let text = "out of memory on host device 0: requested 8 bytes, 0 of 4 bytes free".to_owned();
        let full = Error::Call { code: Code::INVALID_ARGUMENT, message: text };
        assert!(is_short_of_memory(&full) && !is_of_the_device(&full));
    }
}
