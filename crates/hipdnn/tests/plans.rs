//! Engines, plans and their order, with a backend of three engines, one of which is broken.
#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::panic)]
mod common;

use std::ffi::c_void;
use std::path::{Path, PathBuf};
use std::ptr;
use std::time::Duration;

use hipdnn::sys::{BehaviorNote, DataType, PluginLoadingMode, PointwiseMode, RankingOutcome, Status};
use hipdnn::{Autotune, Choice, Error, Graph, Handle, KnobValue, Tensor, engine_id_of};

use common::{ENGINES, backend, graph};

const MEBIBYTE: usize = 1 << 20;

#[test]
fn plans_are_created_by_index_by_id_and_by_name() {
    let handle = Handle::new(backend()).unwrap();
    let graph = graph(&handle);
    let [fast, slow, broken] = ENGINES.map(engine_id_of);
    assert_eq!(
        graph.candidates().unwrap().iter().map(|candidate| candidate.engine).collect::<Vec<_>>(),
        [fast, slow, broken]
    );
    assert_eq!(graph.plan().unwrap().engine(), fast);
    assert_eq!(graph.plan_at(1).unwrap().engine(), slow);
    assert_eq!(graph.plan_on(slow).unwrap().workspace_bytes(), 64);
    assert_eq!(graph.plan_named(&handle, "SLOW_ENGINE").unwrap().engine(), slow);
    let error = graph.plan_at(3).err().unwrap().to_string();
    assert_eq!(error, "graph \"two numbers\": it has no engine 3, only 3");
    let error = graph.plan_on(7).err().unwrap().to_string();
    assert_eq!(error, "graph \"two numbers\": engine 0x7 cannot run it");
    let error = graph.plan_named(&handle, "NO_ENGINE").err().unwrap();
    assert!(error.is_not_supported());
    assert_eq!(error.to_string(), "looking for engine NO_ENGINE: HIPDNN_STATUS_NOT_SUPPORTED: no engine of this name");
    let error = graph.plan_on(broken).err().unwrap();
    assert_eq!(error.status(), Some(Status::NOT_SUPPORTED));
    assert!(error.to_string().ends_with("broken by design"), "{error}");
}

#[test]
fn a_preferred_engine_comes_first() {
    let handle = Handle::new(backend()).unwrap();
    let slow = engine_id_of("SLOW_ENGINE");
    let mut graph = Graph::new(DataType::FLOAT, DataType::FLOAT).preferring(slow);
    let x = graph.tensor(Tensor::new(&[2]));
    let y = graph.pointwise(PointwiseMode::ABS, &[x]);
    graph.output(y, Tensor::default());
    let graph = graph.build(&handle).unwrap();
    assert_eq!(graph.plan().unwrap().engine(), slow);
    assert_eq!(graph.candidates().unwrap()[1].engine, engine_id_of("FAST_ENGINE"), "the others keep their order");
}

#[test]
fn workspace_limits_and_excluded_engines_are_respected() {
    let handle = Handle::new(backend()).unwrap();
    let graph = graph(&handle);
    let [fast, slow, broken] = ENGINES.map(engine_id_of);
    let little = Choice { max_workspace_bytes: Some(64), ..Choice::default() };
    assert_eq!(graph.plan_with(&little).unwrap().engine(), slow);
    let without = Choice { barred: vec![fast], ..Choice::default() };
    assert_eq!(graph.plan_with(&without).unwrap().engine(), slow);
    let nothing = Choice { max_workspace_bytes: Some(63), barred: vec![slow] };
    let Err(Error::NoPlan { refused, .. }) = graph.plan_with(&nothing) else { panic!("no engine is left") };
    assert_eq!(refused.iter().map(|refusal| refusal.engine).collect::<Vec<_>>(), [fast, slow, broken]);
    assert_eq!(refused[0].reason, format!("it needs {MEBIBYTE} bytes of workspace, but only 63 are allowed"));
    assert_eq!(refused[1].reason, "it was excluded");
    assert!(refused[2].reason.ends_with("broken by design"));
    let (plans, refused) = graph.plans(&Choice::default()).unwrap();
    assert_eq!((plans.len(), refused.len()), (2, 1));
}

#[test]
fn candidates_have_a_name_workspace_and_notes_and_take_knobs() {
    let handle = Handle::new(backend()).unwrap();
    let graph = graph(&handle);
    let candidates = graph.candidates().unwrap();
    assert_eq!(candidates[1].engine_name().unwrap(), "SLOW_ENGINE");
    assert_eq!(candidates[1].workspace_bytes().unwrap(), 64);
    assert_eq!(candidates[1].notes().unwrap(), [BehaviorNote::SUPPORTS_GRAPH_CAPTURE]);
    assert!(candidates[1].knobs().unwrap().is_empty());
    let knobs = [("global.benchmarking", KnobValue::Int(1)), ("limit", KnobValue::Text("none".into()))];
    let turned = graph.candidate(engine_id_of("SLOW_ENGINE"), &knobs).unwrap();
    assert_eq!(turned.workspace_bytes().unwrap(), 66, "the stand-in counts knobs");
    assert!(graph.candidate(12, &[]).is_err());
}

#[test]
fn autotuning_ranks_by_the_median_and_keeps_failures() {
    let handle = Handle::new(backend()).unwrap();
    let graph = graph(&handle);
    let [fast, slow, broken] = ENGINES.map(engine_id_of);
    let (mut data, mut workspace) = ([0f32; 4], vec![0u8; MEBIBYTE]);
    let address: *mut c_void = data.as_mut_ptr().cast();
    let mut runs = Vec::new();
    let how = Autotune { warm_up: 2, runs: 3, ..Autotune::default() };
    let ranking = graph
        .autotune(&how, |plan| -> hipdnn::Result<Duration> {
            // SAFETY: the stand-in computes nothing.
            unsafe { plan.execute(&handle, [(1, address), (2, address)], workspace.as_mut_ptr().cast())? };
            runs.push(plan.engine());
            // The engine named slow has one bad run of three, but is the faster one by the median.
            let times = if plan.engine() == fast { [9, 9, 5, 5, 5] } else { [9, 9, 1, 90, 2] };
            let turn = runs.iter().filter(|&&engine| engine == plan.engine()).count() - 1;
            Ok(Duration::from_micros(times[turn]))
        })
        .unwrap();
    assert_eq!(ranking.engines(), [slow, fast]);
    assert_eq!(ranking.plans[0].time, Duration::from_micros(2));
    assert_eq!(ranking.refused.iter().map(|refusal| refusal.engine).collect::<Vec<_>>(), [broken]);
    assert_eq!(runs.len(), 10);
    assert_eq!(graph.remember_ranking(&handle, &ranking.engines()).unwrap(), RankingOutcome::WRITTEN);
    assert_eq!(graph.remember_ranking(&handle, &[]).unwrap(), RankingOutcome::DECLINED_NO_ENGINES);
}

#[test]
fn autotuning_fails_only_if_every_plan_does() {
    let handle = Handle::new(backend()).unwrap();
    let graph = graph(&handle);
    let fast = engine_id_of("FAST_ENGINE");
    let fails = |plan: &hipdnn::Plan| {
        if plan.engine() == fast { graph.plan_on(7).map(|_| Duration::ZERO) } else { Ok(Duration::ZERO) }
    };
    let ranking = graph.autotune(&Autotune::default(), fails).unwrap();
    assert_eq!((ranking.plans.len(), ranking.refused.len()), (1, 2));
    let all = graph.autotune(&Autotune::default(), |_| graph.plan_on(7).map(|_| Duration::ZERO)).err().unwrap();
    assert!(matches!(&all, Error::NoPlan { refused, .. } if refused.len() == 3), "{all}");
}

/// A separate copy of the stand-in with its own counter: the counters of the shared one are used by all tests.
fn own_copy(counter: &str) -> (tempfile::TempDir, PathBuf, extern "C" fn(i32) -> i64) {
    let folder = tempfile::tempdir().unwrap();
    let file = common::build(folder.path(), &[]);
    let library = hip::sys::Library::open(&file).unwrap();
    // SAFETY: the stand-in declares its counters with this signature.
    let counter = unsafe { library.symbol::<extern "C" fn(i32) -> i64>(counter) }.unwrap();
    (folder, file, counter)
}

#[test]
fn a_handle_lives_as_long_as_the_objects_created_with_it() {
    let (_folder, file, handles) = own_copy("stand_in_handles");
    let handle = Handle::new(std::sync::Arc::new(common::open(&file).unwrap())).unwrap();
    let graph = graph(&handle);
    drop(handle);
    assert_eq!(handles(0), 1, "the graph refers to it");
    let candidate = graph.candidates().unwrap().swap_remove(0);
    drop(graph);
    let plan = candidate.plan().unwrap();
    drop(candidate);
    assert_eq!(handles(0), 1, "the plan refers to it");
    // The last owner may be on another thread.
    std::thread::spawn(move || drop(plan)).join().unwrap();
    assert_eq!(handles(0), 0);
}

#[test]
fn the_same_addresses_are_packed_once() {
    let (_folder, file, made) = own_copy("stand_in_made");
    let packs = || made(hipdnn::sys::DescriptorType::VARIANT_PACK_DESCRIPTOR.0);
    let handle = Handle::new(std::sync::Arc::new(common::open(&file).unwrap())).unwrap();
    let plan = graph(&handle).plan_on(engine_id_of("SLOW_ENGINE")).unwrap();
    let mut data = [0f32; 8];
    let at = |place: usize| ptr::from_mut(&mut data[place]).cast::<c_void>();
    let [a, b, workspace] = [0, 2, 4].map(at);
    // SAFETY: the stand-in computes nothing.
    let run = |tensors: &[(i64, *mut c_void)], workspace| unsafe {
        plan.execute(&handle, tensors.iter().copied(), workspace).unwrap();
        packs()
    };
    assert_eq!(run(&[(1, a), (2, b)], workspace), 1);
    assert_eq!(run(&[(1, a), (2, b)], workspace), 1, "nothing changed");
    assert_eq!(run(&[(1, b), (2, b)], workspace), 2, "an address");
    assert_eq!(run(&[(1, b), (3, b)], workspace), 3, "a number");
    assert_eq!(run(&[(1, b)], workspace), 4, "fewer");
    assert_eq!(run(&[(1, b), (2, a)], workspace), 5, "more");
    assert_eq!(run(&[(1, b), (2, a)], a), 6, "the workspace");
    assert_eq!(run(&[(1, b), (2, a)], a), 6);
}

#[test]
fn engines_policies_plugins_and_the_stream_are_listed() {
    let backend = backend();
    hipdnn::plugins::set_engine_paths(
        &*backend,
        &[Path::new("/opt/a.so"), Path::new("/opt/b")],
        PluginLoadingMode::ABSOLUTE,
    )
    .unwrap();
    let handle = Handle::new(backend).unwrap();
    let engines = handle.engines().unwrap();
    assert_eq!(engines.iter().map(|engine| engine.name.as_str()).collect::<Vec<_>>(), ENGINES);
    assert_eq!((engines[1].plugin.as_str(), engines[1].version.as_str()), ("stand-in plugin", "1.2.3"));
    assert_eq!(engines[1].id, handle.engine_id("SLOW_ENGINE").unwrap());
    assert_eq!(handle.engine_name(engines[1].id).unwrap(), "SLOW_ENGINE");
    assert!(handle.engine_name(5).unwrap_err().is_not_supported());
    assert_eq!(handle.policies().unwrap()[0].name, "SelectionHeuristic::Config");
    assert_eq!(handle.plugins().unwrap(), [PathBuf::from("/opt/a.so"), PathBuf::from("/opt/b")]);
    assert!(handle.stream().unwrap().is_null());
}

#[test]
fn two_libraries_are_not_mixed() {
    let (handle, other) = (Handle::new(backend()).unwrap(), Handle::new(backend()).unwrap());
    let (graph, foreign) = (graph(&handle), graph(&other).plan().unwrap());
    let error = graph.remember_ranking(&other, &[1]).unwrap_err().to_string();
    assert!(error.contains("it cannot use objects of hipDNN"), "{error}");
    assert!(matches!(graph.to_bytes_with_plan(&foreign), Err(Error::Invalid { .. })));
}
