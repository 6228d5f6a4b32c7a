//! The client against a real ONNX Runtime, without any plugin.

use std::path::Path;
use std::sync::Arc;

use ort_client::{
    Call, Dim, Element, Environment, Error, HostTensor, Kind, Library, LoadError, LogLevel, MIN_API_VERSION,
    MadeTensor, Memory, MemoryLocation, Optimization, Output, Registration, RunOptions, Runtime, Session,
    SessionOptions, Tensor, Value,
};
use testkit::onnx::{self, ElementType, Graph, Model, Node, ValueInfo};
use testkit::place;

fn environment() -> anyhow::Result<Option<Environment>> {
    let path = match place::onnxruntime() {
        Ok(path) => path,
        Err(reason) => {
            println!("skipped: {reason}");
            return Ok(None);
        }
    };
    Ok(Some(Environment::new(&Runtime::load(&path)?, "test", LogLevel::Fatal)?))
}

fn doubling() -> Vec<u8> {
    let value = |name| ValueInfo::tensor(name, ElementType::Float, [onnx::Dim::from("n"), onnx::Dim::Unknown]);
    let graph = Graph::new("double").input(value("x")).node(Node::new("Add", ["x", "x"], ["y"])).output(value("y"));
    Model::new(graph).opset("", 17).to_bytes()
}

fn session(environment: &Environment, model: &[u8]) -> ort_client::Result<Session> {
    Session::from_bytes(&mut SessionOptions::new(environment)?, model)
}

#[test]
fn runs_a_model_on_the_cpu() {
    let Some(environment) = environment().unwrap() else { return };
    let (runtime, session) = (environment.runtime(), session(&environment, &doubling()).unwrap());
    let input = Value::from_slice(runtime, &[1, 3], &[1.0_f32, -2.5, 0.0]).unwrap();
    let outputs = session.run(&[("x", &input)], &["y"]).unwrap();
    assert_eq!(outputs[0].to_vec::<f32>().unwrap(), [2.0, -5.0, 0.0]);
    assert_eq!(outputs[0].shape().unwrap(), [1, 3]);
    assert_eq!(outputs[0].kind().unwrap(), Kind::Tensor(Element::F32, vec![Dim::Size(1), Dim::Size(3)]));
    let wrong = outputs[0].to_vec::<i64>().unwrap_err().to_string();
    assert_eq!(wrong, "expected a tensor of int64, found a tensor of float32");
    let empty = Value::from_slice::<f32>(runtime, &[0, 3], &[]).unwrap();
    let outputs = session.run(&[("x", &empty)], &["y"]).unwrap();
    // Outputs keep alive what they need.
    drop((session, environment));
    assert_eq!(outputs[0].to_vec::<f32>().unwrap(), Vec::<f32>::new());
}

#[test]
fn a_session_lists_its_inputs_and_outputs() {
    let Some(environment) = environment().unwrap() else { return };
    let session = session(&environment, &doubling()).unwrap();
    let [input] = session.inputs() else { panic!("{:?}", session.inputs()) };
    assert_eq!(input.name, "x");
    assert_eq!(input.kind, Kind::Tensor(Element::F32, vec![Dim::Named("n".into()), Dim::Any]));
    assert_eq!(session.outputs()[0].name, "y");
}

#[test]
fn settings_reach_the_session() {
    let Some(environment) = environment().unwrap() else { return };
    let mut options = SessionOptions::new(&environment).unwrap();
    options.fix_dim("n", 4).unwrap();
    options.intra_threads(1).unwrap();
    options.inter_threads(1).unwrap();
    options.log_id("a name").unwrap();
    options.log_level(LogLevel::Fatal).unwrap();
    options.memory_pattern(false).unwrap();
    options.optimization(Optimization::Disabled).unwrap();
    options.config("session.record_ep_graph_assignment_info", "1").unwrap();
    let session = Session::from_bytes(&mut options, &doubling()).unwrap();
    assert_eq!(session.inputs()[0].kind, Kind::Tensor(Element::F32, vec![Dim::Size(4), Dim::Any]));
    let assignment = session.assignment().unwrap();
    assert_eq!((assignment.len(), assignment[0].provider.as_str()), (1, "CPUExecutionProvider"));
    assert_eq!(assignment[0].nodes[0].op, "Add");
    let error = options.provider("NoSuchProvider", &[("a", "b")]).unwrap_err();
    assert!(error.message().contains("NoSuchProvider"), "{error}");
}

#[test]
fn errors_carry_the_text_of_the_runtime() {
    let Some(environment) = environment().unwrap() else { return };
    let runtime = environment.runtime();
    let error = session(&environment, b"no model").unwrap_err();
    assert!(error.to_string().starts_with("ONNX Runtime error"), "{error}");
    assert!(error.code().is_some() && error.to_string().ends_with(&*error.message()), "{error}");
    let session = session(&environment, &doubling()).unwrap();
    let input = Value::from_slice(runtime, &[1, 1], &[1.0_f32]).unwrap();
    let error = session.run(&[("wrong", &input)], &["y"]).unwrap_err().to_string();
    assert!(error.contains("wrong"), "{error}");
    let missing = Path::new("/nonexistent/lib.so");
    let error = Registration::new(&environment, "Missing", missing).unwrap_err().to_string();
    assert!(error.contains("/nonexistent/lib.so"), "{error}");
    let error = Value::from_slice(runtime, &[2], &[1.0_f32]).unwrap_err().to_string();
    assert_eq!(error, "1 values do not match shape [2]");
    assert_eq!(session.run(&[], &["a\0b"]).unwrap_err(), Error::Nul("a\0b".into()));
}

#[test]
fn a_call_writes_into_given_memory() {
    let Some(environment) = environment().unwrap() else { return };
    let (session, host) =
        (session(&environment, &doubling()).unwrap(), MemoryLocation::host(environment.runtime()).unwrap());
    let options = RunOptions::new(environment.runtime(), &[("a.key", "1")]).unwrap();
    let mut x = HostTensor::new(&host, Element::F32, &[1, 4]).unwrap();
    x.reshape(&[2, 1]).unwrap();
    x.bytes_mut().copy_from_slice(bytes(&[1.5, -3.0]));
    let mut y = Output::Given(HostTensor::new(&host, Element::F32, &[2, 1]).unwrap());
    let mut call = Call::new(["x"], ["y"]).unwrap();
    call.run(&session, &options, [x.tensor()], &mut y, []).unwrap();
    assert_eq!(y.bytes_mut(), bytes(&[3.0, -6.0]));

    let mut made = Output::Made(MadeTensor::new(Element::F32));
    assert!(made.bytes_mut().is_empty());
    call.run(&session, &options, [x.tensor()], &mut made, []).unwrap();
    assert_eq!(made.bytes_mut(), bytes(&[3.0, -6.0]));
    let Output::Made(tensor) = &made else { panic!("it was made") };
    assert_eq!(tensor.shape(), [2, 1]);

    let mut wrong = Output::Made(MadeTensor::new(Element::I64));
    let error = call.run(&session, &options, [x.tensor()], &mut wrong, []).unwrap_err();
    assert!(matches!(error, Error::Type { expected: "int64", .. }), "{error}");
    let error = call.run(&session, &options, [], &mut made, []).unwrap_err();
    assert_eq!(error, Error::Count { expected: 1, found: 0 });
    assert!(made.bytes_mut().is_empty());

    options.clone().terminate().unwrap();
    assert!(call.run(&session, &options, [x.tensor()], &mut y, []).is_err());
    options.resume().unwrap();
    call.run(&session, &options, [x.tensor()], &mut y, []).unwrap();
    assert!(MemoryLocation::of_input(&session, 0).unwrap().is_none());
}

#[test]
fn views_of_a_block_are_copied() {
    let Some(environment) = environment().unwrap() else { return };
    let value = |name| ValueInfo::tensor(name, ElementType::Float, [onnx::Dim::from("n")]);
    let graph = Graph::new("copies").input(value("x")).output(value("y")).output(value("z"));
    let graph = graph.node(Node::new("Neg", ["x"], ["y"])).node(Node::new("Add", ["x", "x"], ["z"]));
    let session = session(&environment, &Model::new(graph).opset("", 17).to_bytes()).unwrap();
    let host = MemoryLocation::host(environment.runtime()).unwrap();
    let memory = Arc::new(Memory::zeroed(&host, 20).unwrap());
    let view = |start: usize, count: i64| Tensor::at(&memory, start, Element::F32, &[count]).unwrap();
    let options = RunOptions::new(environment.runtime(), &[] as &[(&str, &str)]).unwrap();
    let run = |x: &Tensor, count: i64, z: &Tensor| {
        let mut y = Output::Given(HostTensor::new(&host, Element::F32, &[count]).unwrap());
        Call::new(["x"], ["y", "z"]).unwrap().run(&session, &options, [x], &mut y, [z]).unwrap();
        y.bytes_mut().to_vec()
    };
    let mut x = HostTensor::new(&host, Element::F32, &[2]).unwrap();
    x.bytes_mut().copy_from_slice(bytes(&[1.0, 2.0]));
    run(x.tensor(), 2, &view(4, 2));
    environment.copy_tensors(&[(view(8, 1), view(0, 1)), (view(4, 2), view(12, 2))]).unwrap();
    let scratch = Arc::new(Memory::zeroed(&host, 20).unwrap());
    let scratch = Tensor::new(&scratch, Element::F32, &[5]).unwrap();
    assert_eq!(run(&view(0, 5), 5, &scratch), bytes(&[-4.0, -2.0, -4.0, -2.0, -4.0]));

    let refused = |from: Tensor, to: Tensor| environment.copy_tensors(&[(from, to)]).unwrap_err();
    assert_eq!(refused(view(0, 2), view(4, 2)), Error::Copy { from: 8, to: 8 });
    assert_eq!(refused(view(0, 2), view(8, 1)), Error::Copy { from: 8, to: 4 });
    let error = Tensor::at(&memory, 12, Element::F32, &[3]).unwrap_err();
    assert_eq!(error, Error::LargerThanMemory { shape: vec![3], bytes: 20 });
}

#[test]
fn tensors_stay_inside_their_memory() {
    let Some(environment) = environment().unwrap() else { return };
    let host = MemoryLocation::host(environment.runtime()).unwrap();
    let memory = Arc::new(Memory::zeroed(&host, 12).unwrap());
    Tensor::new(&memory, Element::F32, &[3]).unwrap();
    let error = Tensor::new(&memory, Element::F32, &[4]).unwrap_err();
    assert_eq!(error, Error::LargerThanMemory { shape: vec![4], bytes: 12 });
    let error = Memory::zeroed(&host, usize::MAX).unwrap_err();
    assert!(matches!(error, Error::OutOfMemory { bytes: usize::MAX, .. }), "{error}");
    let error = HostTensor::new(&host, Element::I64, &[1 << 40, 1 << 40]).unwrap_err();
    assert_eq!(error, Error::TooLarge { shape: vec![1 << 40, 1 << 40] });
}

#[test]
fn only_onnx_runtime_is_loaded() {
    let missing = Runtime::load(Path::new("/nonexistent/libonnxruntime.so")).unwrap_err();
    assert!(matches!(missing, LoadError::Open(_)), "{missing}");
    if cfg!(unix) {
        assert_eq!(Library::open("libc.so.6").unwrap_err(), LoadError::NotOnnxRuntime);
    }
    let Ok(path) = place::onnxruntime() else { return println!("skipped: no ONNX Runtime is installed") };
    let library = Library::open(&path).unwrap();
    assert!(library.api_version().unwrap() >= MIN_API_VERSION);
    assert_eq!(library.version(), Runtime::load(&path).unwrap().version());
    let file = library.file().unwrap();
    assert_eq!(std::fs::canonicalize(file).unwrap(), std::fs::canonicalize(path).unwrap());
}

fn bytes(numbers: &[f32]) -> &[u8] {
    bytemuck::cast_slice(numbers)
}
