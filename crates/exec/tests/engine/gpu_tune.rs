//! Tests tuning on the host driver, with kernels in the wave simulator.

use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};

use exec::dnn::{Libraries, Mode};
use exec::gpu::{Activity, BlasMode, GpuDevice, GpuSettings, TuneMode, Tuned};
use exec::{CompiledPartition, Input, Prepared, RunBy, TunedStep};
use graph::{DType, Tensor};

use crate::common;
use crate::common::device::simulated;
use crate::common::{Case, random, tensor};

fn case() -> Case {
    let (a, b) =
        (tensor(DType::F32, &[70, 200], &random(14_000, 1)), tensor(DType::F32, &[200, 65], &random(13_000, 2)));
    Case::new("MatMul", 13, vec![a, b], &[DType::F32])
}

fn session(folder: &Path, mode: TuneMode, settings: GpuSettings) -> GpuDevice {
    let tuned = Some(Arc::new(Tuned::open(Some(folder), "simulated gfx1100", mode)));
    simulated("gfx1100").with(GpuSettings { tuned, ..settings })
}

/// Plans and runs the case, and compares with the host.
fn run(gpu: &GpuDevice) -> Arc<dyn Prepared> {
    let (graph, given) = case().graph().unwrap();
    let program = CompiledPartition::new(graph.clone(), gpu).unwrap();
    let shapes: Vec<Input<'_>> = given.iter().map(|x: &Tensor| Input { shape: x.shape(), value: None }).collect();
    let prepared = program.plan(&shapes).unwrap();
    let found = common::run::run_partition(&program, &given).unwrap();
    let wanted = common::run::run_on_host(graph, &given).unwrap();
    common::assert_close(&common::numbers(&found[0]), &common::numbers(&wanted[0]), 1e-4);
    prepared
}

fn files(folder: &Path) -> Vec<std::path::PathBuf> {
    fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect()
}

#[test]
fn steps_are_measured_once_and_later_sessions_use_the_results() {
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(run(&session(folder.path(), TuneMode::Auto, GpuSettings::default())).tuned(0), None);
    assert!(files(folder.path()).is_empty(), "no measurements were requested");
    let TunedStep { choice, micros, usual_micros, tried } =
        run(&session(folder.path(), TuneMode::On, GpuSettings::default())).tuned(0).unwrap();
    assert!(tried >= 2 && choice.starts_with("own-") && micros <= usual_micros && micros > 0.0);
    let [file] = &files(folder.path())[..] else { panic!("one file") };
    let written = fs::read_to_string(file).unwrap();
    assert_eq!(written.lines().count(), 2, "{written}");
    let later = run(&session(folder.path(), TuneMode::Auto, GpuSettings::default()));
    assert_eq!(later.tuned(0).unwrap().choice, choice);
    run(&session(folder.path(), TuneMode::On, GpuSettings::default()));
    assert_eq!(fs::read_to_string(file).unwrap(), written, "nothing is measured twice");
    assert_eq!(run(&session(folder.path(), TuneMode::Off, GpuSettings::default())).tuned(0), None);
}

#[test]
fn a_plan_reports_its_progress() {
    let (folder, reports) = (tempfile::tempdir().unwrap(), Arc::new(Mutex::new(Vec::new())));
    let take = || std::mem::take(&mut *reports.lock().unwrap());
    let settings = || {
        let reports = reports.clone();
        let progress = move |work, done, of| reports.lock().unwrap().push((work, done, of));
        GpuSettings { progress: Some(Arc::new(progress)), ..GpuSettings::default() }
    };
    run(&session(folder.path(), TuneMode::Auto, settings()));
    let kernels = take();
    assert!(!kernels.is_empty());
    for (at, &(work, _, of)) in kernels.iter().enumerate() {
        assert_eq!((work, of), (Activity::Kernels, kernels.len()));
        assert!(kernels.iter().any(|&(_, done, _)| done == at + 1), "{kernels:?}");
    }
    run(&session(folder.path(), TuneMode::On, settings()));
    assert_eq!(take()[0], (Activity::Steps, 1, 1), "steps are measured before the plan is made");
    run(&session(folder.path(), TuneMode::On, settings()));
    assert!(take().iter().all(|&(work, ..)| work == Activity::Kernels), "nothing is measured twice");
}

#[test]
fn every_candidate_gives_the_result_and_missing_ones_are_skipped() {
    let folder = tempfile::tempdir().unwrap();
    let found = run(&session(folder.path(), TuneMode::On, GpuSettings::default())).tuned(0).unwrap();
    let file = files(folder.path()).remove(0);
    let text = fs::read_to_string(&file).unwrap();
    for number in 0..found.tried {
        fs::write(&file, text.replace(&format!("\t{}\t", found.choice), &format!("\town-{number}\t"))).unwrap();
        let prepared = run(&session(folder.path(), TuneMode::Auto, GpuSettings::default()));
        assert_eq!(prepared.tuned(0).unwrap().choice, format!("own-{number}"));
    }
    for absent in ["own-99", "blaslt-0", "hipdnn-0"] {
        fs::write(&file, text.replace(&format!("\t{}\t", found.choice), &format!("\t{absent}\t"))).unwrap();
        let prepared = run(&session(folder.path(), TuneMode::Auto, GpuSettings::default()));
        assert_eq!(prepared.tuned(0), None, "{absent}");
        assert!(matches!(prepared.run_by(0), RunBy::Own { .. }));
    }
}

#[test]
fn a_session_can_turn_blaslt_off() {
    let folder = tempfile::tempdir().unwrap();
    let why = |blas| {
        let prepared = run(&session(folder.path(), TuneMode::Off, GpuSettings { blas, ..GpuSettings::default() }));
        let RunBy::Own { why } = prepared.run_by(0) else { panic!("{:?}", prepared.run_by(0)) };
        why.map(str::to_owned)
    };
    assert_eq!(why(BlasMode::Auto).as_deref(), Some("the product is too small for BLASLt"));
    assert_eq!(why(BlasMode::Off).as_deref(), Some("BLASLt is turned off"));
}

#[test]
fn hipdnn_engines_are_measured_too() {
    let folder = tempfile::tempdir().unwrap();
    let libraries = Libraries::default();
    let offering = || {
        let gpu = simulated("gfx1100");
        let offering = libraries.offering(gpu.device(), Mode::On).unwrap();
        assert!(offering.fault().is_none(), "{:?}", offering.fault());
        GpuSettings { dnn: Some(Arc::new(offering)), ..GpuSettings::default() }
    };
    let own = run(&session(folder.path(), TuneMode::On, GpuSettings::default())).tuned(0).unwrap();
    let with_engines = run(&session(folder.path(), TuneMode::Again, offering())).tuned(0).unwrap();
    assert!(with_engines.tried > own.tried, "{with_engines:?} {own:?}");
    let file = files(folder.path()).remove(0);
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.replace(&format!("\t{}\t", with_engines.choice), "\thipdnn-0\t")).unwrap();
    let prepared = run(&session(folder.path(), TuneMode::Auto, offering()));
    assert!(matches!(prepared.run_by(0), RunBy::HipDnn { .. }));
    // A session without hipDNN cannot use that measurement.
    assert_eq!(run(&session(folder.path(), TuneMode::Auto, GpuSettings::default())).tuned(0), None);
}
