//! Behaviour that only the stand-in can simulate: failing at any call, being an old release, needing memory for
//! outputs.

use std::fs;
use std::sync::mpsc;

use hip::{Driver, DriverKind};
use migraphx_backend::mgx::{
    CompileOptions, Feature, Library, MgxError, ParseOptions, Program, Quantize, Role, Version,
};
use ort_ep::ElementType;

use crate::models;
use crate::rows::element_types_keep_their_names;
use crate::standin::StandIn;

type Check = fn(&StandIn);

pub const ROWS: &[(&str, Check)] = &[
    ("a_failure_of_any_call_is_an_error_without_leaks", a_failure_of_any_call_is_an_error_without_leaks),
    ("a_named_failure_is_reported_by_its_name", a_named_failure_is_reported_by_its_name),
    ("old_numbers_of_element_types_are_understood", old_numbers_of_element_types_are_understood),
    ("the_release_and_its_features_are_known", the_release_and_its_features_are_known),
    ("compile_options_reach_the_library", compile_options_reach_the_library),
    ("outputs_are_written_to_their_parameters", outputs_are_written_to_their_parameters),
    ("an_output_that_is_an_input_has_no_parameter", an_output_that_is_an_input_has_no_parameter),
    ("scratch_memory_is_a_parameter", scratch_memory_is_a_parameter),
    ("a_run_waits_for_what_is_on_its_stream", a_run_waits_for_what_is_on_its_stream),
];

/// Calls every function of the table.
fn everything(standin: &StandIn) -> Result<(), MgxError> {
    let library = Library::open(Some(standin.folder()))?;
    let target = library.target("gpu")?;
    let mut options = ParseOptions { inputs: vec![("x".into(), vec![2, 3])], ..ParseOptions::default() };
    options.external_data = Some(standin.folder().into());
    let mut program = library.parse(&models::projection(), &options)?;
    let sample = || vec![vec![("x".to_owned(), vec![0; 24])]];
    program.quantize(&Quantize::Int8 { calibration: sample() }, &target)?;
    program.quantize(&Quantize::Fp8 { calibration: sample() }, &target)?;
    program.quantize(&Quantize::Fp16, &target)?;
    program.quantize(&Quantize::Bf16, &target)?;
    program.compile(&target, &all_options())?;
    let file = standin.folder().join("program.mxr");
    program.save(&file)?;
    let (mut x, mut y) = ([1f32; 6], [0f32; 4]);
    let bindings = [("x", x.as_mut_ptr().cast()), ("main:#output_0", y.as_mut_ptr().cast())];
    for mut program in [program, library.load(&file)?, library.load_bytes(&fs::read(&file).unwrap())?] {
        program.parameters()?;
        program.outputs()?;
        for stream in [None, Some(std::ptr::null_mut())] {
            // SAFETY: the memory has the shapes of the parameters and outlives the run, which is complete on return.
            let results = unsafe { program.run(&bindings, stream) }?;
            assert_eq!(results.address(0)?, y.as_mut_ptr().cast());
            assert_eq!(results.shape(0)?.lengths, [2, 2]);
        }
    }
    assert!(y.iter().zip([9.0, 12.0, 9.0, 12.0]).all(|(found, wanted)| (found - wanted).abs() < 0.1), "{y:?}");
    Ok(())
}

fn all_options() -> CompileOptions {
    CompileOptions {
        fast_math: false,
        exhaustive_tune: true,
        offload_copy: false,
        compile_mode: Some(50),
        mlss_use_specific_ops: vec!["conv".into(), "dot".into()],
    }
}

fn a_failure_of_any_call_is_an_error_without_leaks(standin: &StandIn) {
    standin.set("fail", "");
    everything(standin).unwrap();
    standin.assert_clean();
    let calls = standin.calls();
    assert!(calls > 200, "{calls}");
    for nth in 1..=calls {
        standin.set("fail", &nth.to_string());
        let result = everything(standin);
        let failed = standin.failed();
        match result {
            Err(MgxError::Call { call, status, .. }) => assert_eq!((call, status), (failed.as_str(), 4), "call {nth}"),
            // A failing destroy still counts as freed, and a failing probe is a valid answer.
            Ok(()) => assert!(
                failed.ends_with("_destroy") || failed.starts_with("get_onnx"),
                "the failure of {failed} (call {nth}) was ignored"
            ),
            Err(MgxError::Answer { .. }) => assert!(failed.starts_with("shape_"), "{failed} (call {nth})"),
            Err(error) => panic!("{failed} (call {nth}): {error}"),
        }
        standin.assert_clean();
    }
}

fn a_named_failure_is_reported_by_its_name(standin: &StandIn) {
    let library = standin.open();
    let target = library.target("gpu").unwrap();
    standin.set("fail", "program_compile:2");
    let compile = || {
        let mut program = library.parse(&models::scalar(), &ParseOptions::default())?;
        program.compile(&target, &CompileOptions::default())
    };
    assert_eq!(compile(), Ok(()));
    let error = compile().unwrap_err();
    assert!(
        error.to_string().contains("while compiling for gpu: migraphx_program_compile returned status 4"),
        "{error}"
    );
    assert_eq!(compile(), Ok(()));
    drop(target);
    standin.assert_clean();
}

fn old_numbers_of_element_types_are_understood(standin: &StandIn) {
    for (datatypes, fp4) in [("old", false), ("new", true)] {
        standin.set("datatypes", datatypes);
        let library = standin.open();
        assert_eq!(library.has_element(ElementType::F4E2M1), fp4, "{datatypes}");
        element_types_keep_their_names(&library);
    }
    standin.assert_clean();
}

fn the_release_and_its_features_are_known(standin: &StandIn) {
    let library = standin.open();
    assert_eq!(library.version(), Some(Version { major: 2, minor: 17, patch: 0 }));
    assert_eq!(library.file(), fs::canonicalize(standin.folder().join(dylib::rocm::MIGRAPHX.files[0])).unwrap());
    for feature in [
        Feature::Bf16,
        Feature::Fp8,
        Feature::ExternalDataPath,
        Feature::OperatorList,
        Feature::CompileMode,
        Feature::BackendOptions,
    ] {
        assert!(library.has(feature), "{feature}");
    }
    assert_eq!(library.operators().len(), 9, "the library's own list is used, not ours");
}

fn compile_options_reach_the_library(standin: &StandIn) {
    let library = standin.open();
    let log = standin.folder().join("log");
    standin.set("log", log.to_str().unwrap());
    let mut program = library.parse(&models::scalar(), &ParseOptions::default()).unwrap();
    program.compile(&library.target("gpu").unwrap(), &all_options()).unwrap();
    let log = fs::read_to_string(log).unwrap();
    let wanted = r#"compile Gpu fast_math=false exhaustive_tune=true offload_copy=false mode=Some(50) backend=Some("{\"mlss_use_specific_ops\": [\"conv\", \"dot\"]}")"#;
    assert!(log.lines().any(|line| line == wanted), "{log}");
}

fn on_gpu(library: &Library, model: &[u8]) -> Program {
    let mut program = library.parse(model, &ParseOptions::default()).unwrap();
    program.compile(&library.target("gpu").unwrap(), &CompileOptions::default()).unwrap();
    program
}

fn outputs_are_written_to_their_parameters(standin: &StandIn) {
    let library = standin.open();
    let mut program = on_gpu(&library, &models::fan(13));
    let parameters = program.parameters().unwrap();
    assert_eq!(parameters[0].name, "x");
    let outputs: Vec<Role> = parameters[1..].iter().map(|parameter| parameter.role).collect();
    assert_eq!(outputs, (0..13).map(Role::Output).collect::<Vec<_>>(), "in the model's order, not that of the names");
    assert_eq!((parameters[10].name.as_str(), parameters[11].name.as_str()), ("main:#output_9", "main:#output_:00010"));

    let mut x = [0.5f32, 100.0];
    // Two floats each, with a guard element before and after that must not change.
    let mut memory = vec![[-7f32; 4]; 13];
    let mut bindings = vec![("x", x.as_mut_ptr().cast::<u8>())];
    for (parameter, output) in parameters[1..].iter().zip(&mut memory) {
        bindings.push((&parameter.name, output[1..].as_mut_ptr().cast()));
    }
    // SAFETY: the memory has the shapes of the parameters and outlives the run, which is complete on return.
    let results = unsafe { program.run(&bindings, None) }.unwrap();
    assert_eq!(results.len(), 13);
    assert!((0..13).all(|index| results.address(index).unwrap() == bindings[index + 1].1));
    assert!(results.shape(13).is_err() && results.address(13).is_err());
    drop(results);
    for (index, found) in memory.iter().enumerate() {
        assert_eq!(*found, [-7.0, 0.5 + index as f32, 100.0 + index as f32, -7.0]);
    }
    drop(program);
    standin.assert_clean();
}

fn an_output_that_is_an_input_has_no_parameter(standin: &StandIn) {
    let library = standin.open();
    let mut program = on_gpu(&library, &models::identities(&[testkit::onnx::ElementType::Int64]));
    let parameters = program.parameters().unwrap();
    assert_eq!(parameters.len(), 1, "{parameters:?}");
    let mut x = [1i64, 2, 3, 4];
    // SAFETY: as above.
    let results = unsafe { program.run(&[("in_7", x.as_mut_ptr().cast())], None) }.unwrap();
    assert_eq!(results.address(0).unwrap(), x.as_mut_ptr().cast());
}

fn scratch_memory_is_a_parameter(standin: &StandIn) {
    standin.set("scratch", "48");
    let library = standin.open();
    let mut program = on_gpu(&library, &models::scalar());
    let parameters = program.parameters().unwrap();
    assert_eq!(parameters.last().map(|p| (p.role, p.shape.bytes)), Some((Role::Scratch, 48)));
    let (mut x, mut y, mut scratch) = ([1.5f32], [0f32], [0u8; 64]);
    let bindings =
        [("x", x.as_mut_ptr().cast()), ("main:#output_0", y.as_mut_ptr().cast()), ("scratch", scratch.as_mut_ptr())];
    // SAFETY: as above.
    unsafe { program.run(&bindings[..2], None) }.map(|_| ()).unwrap_err();
    // SAFETY: as above.
    unsafe { program.run(&bindings, None) }.map(|_| ()).unwrap();
    assert_eq!(y, [3.0]);
    assert_eq!(scratch.iter().filter(|&&byte| byte != 0).count(), 48);
}

fn a_run_waits_for_what_is_on_its_stream(standin: &StandIn) {
    let driver = Driver::load(DriverKind::Host).unwrap();
    let device = driver.devices().unwrap().remove(0);
    let stream = device.stream().unwrap();
    let library = standin.open();
    let mut program = on_gpu(&library, &models::scalar());
    let (mut x, mut y) = ([0f32], [-7f32]);
    let (x, y) = (x.as_mut_ptr(), y.as_mut_ptr());
    let (open, gate) = mpsc::channel::<()>();
    let address = x as usize;
    let write = move || {
        // If the row fails, the sender is dropped, so this does not block forever.
        let _ = gate.recv();
        // SAFETY: the input lives until the stream is synchronised below, and only the run queued after this reads it.
        unsafe { *(address as *mut f32) = 21.0 };
    };
    stream.launch_host_fn(write).unwrap();
    // SAFETY: the memory lives until the stream is synchronised, and the stream belongs to the driver that the stand-in
    // finds.
    let results = unsafe {
        let raw = stream.raw().as_ptr();
        program.run(&[("x", x.cast()), ("main:#output_0", y.cast())], Some(raw))
    };
    assert_eq!(results.unwrap().address(0).unwrap(), y.cast());
    // SAFETY: the run, which writes here, is blocked by the closed gate.
    assert_eq!(unsafe { y.read_volatile() }, -7.0, "the run did not wait");
    open.send(()).unwrap();
    stream.synchronize().unwrap();
    // SAFETY: the stream has no work left.
    assert_eq!(unsafe { y.read_volatile() }, 42.0);
}
