//! Features of the library, other than operations, that the frontend uses.
#![allow(clippy::unwrap_used)]
mod common;

use std::ffi::c_void;
use std::ptr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use hipdnn::sys::{Backend, DataType, LogCallbackMode, PointwiseMode, RankingOutcome, Severity, Status};
use hipdnn::{
    Autotune, Choice, Contents, Convolution, Error, Graph, Handle, Loaded, OperationGraph, Plan, Search, Tensor,
    engine_id_of, log,
};

fn backend() -> Arc<dyn Backend> {
    Arc::new(Loaded::open(&Search { place: Some(common::library()), ..Search::default() }).unwrap())
}

/// A graph with one ReLU, or with an operation that only a plugin supports.
fn graph(is_custom: bool) -> Graph {
    let mut graph = Graph::new(DataType::FLOAT, DataType::FLOAT).named("small");
    let x = graph.tensor(Tensor::new(&[4]).uid(1));
    let y = if is_custom {
        graph.custom("plugin.secret", b"", &[x], vec![Tensor::new(&[4])])[0]
    } else {
        graph.pointwise(PointwiseMode::RELU_FWD, &[x])
    };
    graph.output(y, Tensor::default().uid(2));
    graph
}

/// A single test, because level and callbacks are shared by the process.
#[test]
fn the_library_reports_to_callbacks_what_it_does() {
    let backend = backend();
    assert_eq!(log::level(&*backend).unwrap(), Severity::OFF);
    log::set_level(&*backend, Severity::INFO).unwrap();
    assert_eq!(log::set_level(&*backend, Severity(9)).unwrap_err().status(), Some(Status::BAD_PARAM));
    let heard = Arc::new(Mutex::new(Vec::new()));
    let to = heard.clone();
    let keep = move |severity: Severity, text: &str| to.lock().unwrap().push((severity, text.to_owned()));
    let registration = log::to_callback(&backend, Severity::INFO, LogCallbackMode::SYNC, keep).unwrap();
    let handle = Handle::new(backend.clone()).unwrap();
    graph(false).build(&handle).unwrap().plan().unwrap();
    graph(true).build(&handle).unwrap().plan().err().unwrap();
    assert!(handle.engine_id("NO_ENGINE").unwrap_err().is_not_supported());
    log::write(&*backend, Severity::FATAL, "the user's own words");
    let lines = std::mem::take(&mut *heard.lock().unwrap());
    let has = |severity, part: &str| lines.iter().any(|(of, line)| *of == severity && line.contains(part));
    assert!(has(Severity::INFO, "a graph of 1 operations was compiled"), "{lines:?}");
    assert!(has(Severity::INFO, "HOST_CPU_ENGINE created a plan"), "{lines:?}");
    assert!(has(Severity::WARN, "no engine runs a graph: "), "{lines:?}");
    assert!(has(Severity::WARN, "HIPDNN_STATUS_NOT_SUPPORTED: unknown engine name"), "{lines:?}");
    assert!(has(Severity::FATAL, "the user's own words"), "{lines:?}");
    log::set_level(&*backend, Severity::FATAL).unwrap();
    log::write(&*backend, Severity::ERROR, "not severe enough");
    drop(registration);
    log::write(&*backend, Severity::FATAL, "no callback is registered");
    assert_eq!(*heard.lock().unwrap(), []);

    // The rules of the C function itself.
    unsafe extern "C" fn ignore(_: *mut c_void, _: Severity, _: *const std::ffi::c_char) {}
    let here = ptr::without_provenance_mut(1);
    // SAFETY: the callback ignores its arguments.
    let set = |call, least, user| unsafe { backend.set_user_log_callback(call, least, LogCallbackMode::SYNC, user) };
    assert_eq!(set(None, Severity::INFO, here), Status::BAD_PARAM);
    assert_eq!(set(Some(ignore), Severity::INFO, ptr::null_mut()), Status::BAD_PARAM);
    assert_eq!(set(Some(ignore), Severity(7), here), Status::BAD_PARAM);
    assert_eq!(set(Some(ignore), Severity::OFF, here), Status::BAD_PARAM, "it was never registered");
    assert_eq!(set(Some(ignore), Severity::INFO, here), Status::SUCCESS);
    assert_eq!(set(Some(ignore), Severity::WARN, here), Status::SUCCESS, "the same key again");
    assert_eq!(set(Some(ignore), Severity::OFF, here), Status::SUCCESS);
    assert_eq!(set(Some(ignore), Severity::OFF, here), Status::BAD_PARAM, "one key, one callback");
}

#[test]
fn engines_are_listed_chosen_and_limited() {
    let handle = Handle::new(backend()).unwrap();
    let engines = handle.engines().unwrap();
    assert_eq!(engines.iter().map(|engine| engine.name.as_str()).collect::<Vec<_>>(), ["HOST_CPU_ENGINE"]);
    let id = engines[0].id;
    assert_eq!((id, handle.engine_id("HOST_CPU_ENGINE").unwrap()), (engine_id_of("HOST_CPU_ENGINE"), id));
    assert_eq!(handle.engine_name(id).unwrap(), "HOST_CPU_ENGINE");
    assert!(handle.plugins().unwrap().is_empty() && handle.policies().unwrap().is_empty());
    assert!(handle.stream().unwrap().is_null());
    let built = graph(false).preferring(id).build(&handle).unwrap();
    let candidate = &built.candidates().unwrap()[0];
    assert_eq!(candidate.engine_name().unwrap(), "HOST_CPU_ENGINE");
    assert_eq!(candidate.workspace_bytes().unwrap(), built.plan().unwrap().workspace_bytes());
    assert!(candidate.knobs().unwrap().is_empty());
    assert_eq!(built.candidate(id, &[]).unwrap().plan().unwrap().engine(), id);
    assert_eq!(built.plan_named(&handle, "HOST_CPU_ENGINE").unwrap().engine(), id);
    let mut uids = built.plan_at(0).unwrap().tensor_uids().unwrap();
    uids.sort_unstable();
    assert_eq!(uids, [1, 2]);
    let none = Choice { barred: vec![id], ..Choice::default() };
    assert!(matches!(built.plan_with(&none), Err(Error::NoPlan { refused, .. }) if refused.len() == 1));
    assert_eq!(built.remember_ranking(&handle, &[id]).unwrap(), RankingOutcome::DECLINED_DISABLED);
}

#[test]
fn a_graph_that_no_engine_runs_comes_with_the_librarys_reason() {
    let handle = Handle::new(backend()).unwrap();
    let built = graph(true).build(&handle).unwrap();
    assert!(!built.is_supported().unwrap());
    // The message of an unrelated failure in between is not taken for the reason.
    assert!(handle.engine_name(1).is_err());
    let Err(error @ Error::NotSupported { .. }) = built.plan() else { panic!("no engine runs it") };
    let Error::NotSupported { reason, .. } = &error else { panic!("{error}") };
    assert!(!reason.is_empty() && !reason.contains("engine 1") && error.to_string().ends_with(reason), "{error}");
    assert!(error.is_not_supported());
}

#[test]
fn autotuning_runs_every_plan_and_the_results_are_right() {
    let handle = Handle::new(backend()).unwrap();
    let mut graph = Graph::new(DataType::FLOAT, DataType::FLOAT);
    let x = graph.tensor(Tensor::new(&[1, 1, 3, 3]).uid(1));
    let w = graph.tensor(Tensor::new(&[1, 1, 2, 2]).uid(2));
    let y = graph.convolution(x, w, Convolution::new(2));
    graph.output(y, Tensor::default().uid(3));
    let built = graph.build(&handle).unwrap();
    let (mut data, mut filter, mut result) = ([1f32, 2., 3., 4., 5., 6., 7., 8., 9.], [1f32, 0., 0., 1.], [0f32; 4]);
    let mut runs = 0;
    let ranking = built
        .autotune(&Autotune { warm_up: 1, runs: 3, ..Autotune::default() }, |plan| -> hipdnn::Result<Duration> {
            runs += 1;
            result.fill(0.0);
            let start = Instant::now();
            let tensors: [(i64, *mut c_void); 3] =
                [(1, data.as_mut_ptr().cast()), (2, filter.as_mut_ptr().cast()), (3, result.as_mut_ptr().cast())];
            // SAFETY: every tensor has the memory that its extents require; the host backend uses host memory.
            unsafe { plan.execute(&handle, tensors, ptr::null_mut())? };
            assert_eq!(result, [6.0, 8.0, 12.0, 14.0]);
            Ok(start.elapsed())
        })
        .unwrap();
    assert_eq!((ranking.engines(), runs), (vec![engine_id_of("HOST_CPU_ENGINE")], 4));
}

#[test]
fn an_rms_norm_with_bias_has_three_gradients() {
    let handle = Handle::new(backend()).unwrap();
    let mut graph = Graph::new(DataType::FLOAT, DataType::FLOAT);
    let [dy, x] = [1, 2].map(|uid| graph.tensor(Tensor::new(&[2, 3]).uid(uid)));
    let [scale, inverse] = [([1, 3], 3), ([2, 1], 4)].map(|(dims, uid)| graph.tensor(Tensor::new(&dims).uid(uid)));
    let made = graph.rms_norm_backward_with_bias([dy, x, scale], inverse, 1);
    for (id, uid) in made.into_iter().zip(5..) {
        graph.output(id, Tensor::default().uid(uid));
    }
    let plan = graph.build(&handle).unwrap().plan().unwrap();
    let (dy, x) = ([1f32, 2., 3., 4., 5., 6.], [2f32, 1., 2., 0., 3., 4.]);
    let (scale, inverse) = ([1f32, 2., 3.], [0.5f32, 0.25]);
    let mut memory = [&dy[..], &x, &scale, &inverse, &[0.0; 6], &[0.0; 3], &[0.0; 3]].map(<[f32]>::to_vec);
    let tensors: Vec<(i64, *mut c_void)> = (1..).zip(memory.iter_mut().map(|data| data.as_mut_ptr().cast())).collect();
    // SAFETY: every tensor has the memory that its extents require; the host backend uses host memory.
    unsafe { plan.execute(&handle, tensors, ptr::null_mut()).unwrap() };
    let at = |row: usize, column: usize| row * 3 + column;
    for column in 0..3 {
        let by_rows = |of: &dyn Fn(usize) -> f32| of(0) + of(1);
        let wanted = by_rows(&|row| dy[at(row, column)] * x[at(row, column)] * inverse[row]);
        assert!((memory[5][column] - wanted).abs() < 1e-5, "the scale's: {:?}", memory[5]);
        assert!((memory[6][column] - by_rows(&|row| dy[at(row, column)])).abs() < 1e-5, "the bias's: {:?}", memory[6]);
        for row in 0..2 {
            let dots: f32 = (0..3).map(|other| dy[at(row, other)] * scale[other] * x[at(row, other)]).sum();
            let wanted = dy[at(row, column)] * scale[column] * inverse[row]
                - x[at(row, column)] * inverse[row].powi(3) * dots / 3.0;
            let found = memory[4][at(row, column)];
            assert!((found - wanted).abs() < 1e-5, "the data's, row {row}: {found} instead of {wanted}");
        }
    }
}

/// Runs a plan of [`graph`] on four numbers.
fn relu(handle: &Handle, plan: &Plan) -> [f32; 4] {
    let (mut x, mut y) = ([-1f32, 2.0, -3.0, 4.0], [9f32; 4]);
    let tensors: [(i64, *mut c_void); 2] = [(1, x.as_mut_ptr().cast()), (2, y.as_mut_ptr().cast())];
    // SAFETY: every tensor has the memory that its extents require; the host backend uses host memory.
    unsafe { plan.execute(handle, tensors, ptr::null_mut()).unwrap() };
    y
}

#[test]
fn graphs_and_plans_survive_as_bytes_and_json() {
    let handle = Handle::new(backend()).unwrap();
    let host = engine_id_of("HOST_CPU_ENGINE");
    let built = graph(false).preferring(host).build(&handle).unwrap();
    let plan = built.plan().unwrap();
    let wanted = relu(&handle, &plan);
    assert_eq!(wanted, [0.0, 2.0, 0.0, 4.0]);

    let (alone, json) = (built.to_bytes().unwrap(), built.to_json().unwrap());
    let (of_plan, both) = (plan.to_bytes().unwrap(), built.to_bytes_with_plan(&plan).unwrap());
    let contents = |bytes: &[u8]| {
        let contents = Contents::of(&**handle.backend(), bytes).unwrap();
        [contents.has_graph, contents.has_plan]
    };
    assert_eq!([contents(&alone), contents(&both)], [[true, false], [true, true]]);
    let graphs = [
        OperationGraph::from_bytes(&handle, &alone).unwrap(),
        OperationGraph::from_bytes(&handle, &both).unwrap(),
        OperationGraph::from_json(&handle, &json).unwrap(),
    ];
    for graph in &graphs {
        assert_eq!(graph.name(), "small");
        assert_eq!(relu(&handle, &graph.plan().unwrap()), wanted);
    }
    for bytes in [&of_plan, &both] {
        let read = Plan::from_bytes(&handle, bytes).unwrap();
        assert_eq!((read.engine(), read.workspace_bytes()), (host, plan.workspace_bytes()));
        assert_eq!(relu(&handle, &read), wanted);
    }
    // Another handle, like in another process.
    let other = Handle::new(backend()).unwrap();
    assert_eq!(relu(&other, &Plan::from_bytes(&other, &both).unwrap()), wanted);
    let error = OperationGraph::from_bytes(&handle, &alone[..alone.len() / 2]).err().unwrap();
    assert_eq!(error.status(), Some(Status::BAD_PARAM), "{error}");
    let error = OperationGraph::from_json(&handle, "{").err().unwrap();
    assert_eq!(error.status(), Some(Status::BAD_PARAM), "{error}");
    let error = Plan::from_bytes(&handle, &alone).err().unwrap();
    assert!(error.to_string().starts_with("reading a serialised plan: HIPDNN_STATUS_BAD_PARAM: "), "{error}");
}
