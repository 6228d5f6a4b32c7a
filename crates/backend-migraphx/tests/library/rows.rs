//! Behaviour required of every MIGraphX, checked on the `ref` target, which computes in host memory.

use std::fs;
use std::path::Path;

use migraphx_backend::mgx::{
    CompileOptions, Feature, Library, MgxError, Parameter, ParseOptions, Program, Quantize, Role, SavedHeader, Target,
    Version,
};
use ort_ep::ElementType;
use testkit::onnx::ElementType as Onnx;

use crate::{Row, fuzz, models};

pub const ROWS: &[Row] = &[
    Row { name: "computes_a_weighted_sum", check: computes_a_weighted_sum },
    Row { name: "parameters_and_outputs_have_the_models_shapes", check: parameters_and_outputs_have_the_models_shapes },
    Row { name: "given_shapes_replace_open_dimensions", check: given_shapes_replace_open_dimensions },
    Row { name: "outputs_come_in_the_models_order", check: outputs_come_in_the_models_order },
    Row { name: "a_scalar_has_one_element", check: a_scalar_has_one_element },
    Row { name: "element_types_keep_their_names", check: element_types_keep_their_names },
    Row { name: "external_data_is_read_from_the_folder_given", check: external_data_is_read_from_the_folder_given },
    Row { name: "every_compile_option_is_taken_or_ignored", check: every_compile_option_is_taken_or_ignored },
    Row { name: "a_run_may_be_given_a_stream", check: a_run_may_be_given_a_stream },
    Row { name: "programs_move_between_threads", check: programs_move_between_threads },
    Row { name: "eight_threads_compile_and_run", check: eight_threads_compile_and_run },
    Row { name: "a_saved_program_runs_after_loading", check: a_saved_program_runs_after_loading },
    Row { name: "broken_saved_programs_are_errors", check: broken_saved_programs_are_errors },
    Row { name: "broken_models_are_errors", check: broken_models_are_errors },
    Row { name: "wrong_bindings_are_refused", check: wrong_bindings_are_refused },
    Row { name: "unknown_targets_are_errors", check: unknown_targets_are_errors },
    Row { name: "texts_with_nul_are_refused", check: texts_with_nul_are_refused },
    Row { name: "half_precision_stays_close", check: half_precision_stays_close },
    Row { name: "int8_follows_its_samples", check: int8_follows_its_samples },
    Row { name: "samples_that_do_not_fit_are_refused", check: samples_that_do_not_fit_are_refused },
    Row { name: "the_parser_lists_its_operators", check: the_parser_lists_its_operators },
    Row { name: "damaged_inputs_are_errors_or_programs", check: fuzz::damaged_inputs_are_errors_or_programs },
    Row { name: "a_thousand_programs_leave_no_memory_behind", check: a_thousand_programs_leave_no_memory_behind },
];

pub fn reference(library: &Library) -> Target {
    library.target("ref").unwrap()
}

fn parsed(library: &Library, model: &[u8]) -> Program {
    library.parse(model, &ParseOptions::default()).unwrap()
}

pub fn compiled(library: &Library, model: &[u8]) -> Program {
    let mut program = parsed(library, model);
    program.compile(&reference(library), &CompileOptions::default()).unwrap();
    program
}

/// Runs on host memory and returns every output as floats.
fn run(program: &mut Program, inputs: &mut [(&str, Vec<f32>)]) -> Result<Vec<Vec<f32>>, MgxError> {
    let bindings: Vec<(&str, *mut u8)> =
        inputs.iter_mut().map(|(name, values)| (*name, values.as_mut_ptr().cast())).collect();
    // SAFETY: every row passes as many values as the input has elements, and they live until the outputs are read.
    let results = unsafe { program.run(&bindings, None) }?;
    let read = |index| {
        let shape = results.shape(index)?;
        assert_eq!(shape.element, ElementType::F32);
        assert!(shape.is_row_major(), "{shape:?}");
        let address = results.address(index)?.cast::<f32>();
        // SAFETY: the `ref` target computes in host memory, which the results keep alive.
        Ok(unsafe { std::slice::from_raw_parts(address, shape.elements()) }.to_vec())
    };
    (0..results.len()).map(read).collect()
}

const A: [f32; 6] = [0.0, 1.0, 2.0, 3.0, 4.0, 5.0];
const B: [f32; 6] = [10.0, 20.0, 30.0, 40.0, 50.0, 60.0];
const WEIGHTED: [f32; 6] = [10.0, 42.0, 96.0, 43.0, 108.0, 195.0];

fn weighted(program: &mut Program) -> Vec<Vec<f32>> {
    run(program, &mut [("a", A.to_vec()), ("b", B.to_vec())]).unwrap()
}

fn computes_a_weighted_sum(library: &Library) {
    let mut program = compiled(library, &models::weighted_sum());
    for _ in 0..3 {
        assert_eq!(weighted(&mut program), [WEIGHTED]);
    }
}

fn parameters_and_outputs_have_the_models_shapes(library: &Library) {
    let program = compiled(library, &models::weighted_sum());
    let parameters = program.parameters().unwrap();
    let names: Vec<(&str, Role)> = parameters.iter().map(|p| (p.name.as_str(), p.role)).collect();
    assert_eq!(names, [("a", Role::Input), ("b", Role::Input)]);
    for shape in parameters.iter().map(|p| &p.shape).chain(&program.outputs().unwrap()) {
        assert_eq!((shape.lengths.as_slice(), shape.strides.as_slice(), shape.bytes), (&[2, 3][..], &[3, 1][..], 24));
        assert_eq!(shape.element, ElementType::F32);
    }
}

fn given_shapes_replace_open_dimensions(library: &Library) {
    for rows in [1, 2, 5] {
        let options = ParseOptions { inputs: vec![("x".into(), vec![rows, 3])], ..ParseOptions::default() };
        let mut program = library.parse(&models::projection(), &options).unwrap();
        program.compile(&reference(library), &CompileOptions::default()).unwrap();
        assert_eq!(program.outputs().unwrap()[0].lengths, [rows, 2]);
        let x: Vec<f32> = (0..rows * 3).map(|index| index as f32).collect();
        let wanted: Vec<f32> = x
            .chunks(3)
            .flat_map(|row| [row[0] + 3.0 * row[1] + 5.0 * row[2], 2.0 * row[0] + 4.0 * row[1] + 6.0 * row[2]])
            .collect();
        assert_eq!(run(&mut program, &mut [("x", x)]).unwrap(), [wanted]);
    }
}

fn outputs_come_in_the_models_order(library: &Library) {
    let mut program = compiled(library, &models::fan(13));
    let outputs = run(&mut program, &mut [("x", vec![0.5, 100.0])]).unwrap();
    let wanted: Vec<Vec<f32>> = (0..13).map(|index| vec![0.5 + index as f32, 100.0 + index as f32]).collect();
    assert_eq!(outputs, wanted);
}

fn a_scalar_has_one_element(library: &Library) {
    let mut program = compiled(library, &models::scalar());
    let shape = program.parameters().unwrap().remove(0).shape;
    assert_eq!((shape.elements(), shape.bytes), (1, 4));
    assert_eq!(run(&mut program, &mut [("x", vec![1.5])]).unwrap(), [[3.0]]);
}

pub fn element_types_keep_their_names(library: &Library) {
    let known = [
        (Onnx::Float, ElementType::F32),
        (Onnx::Uint8, ElementType::U8),
        (Onnx::Int8, ElementType::I8),
        (Onnx::Uint16, ElementType::U16),
        (Onnx::Int16, ElementType::I16),
        (Onnx::Int32, ElementType::I32),
        (Onnx::Int64, ElementType::I64),
        (Onnx::Bool, ElementType::Bool),
        (Onnx::Float16, ElementType::F16),
        (Onnx::Double, ElementType::F64),
        (Onnx::Uint32, ElementType::U32),
        (Onnx::Uint64, ElementType::U64),
        (Onnx::Bfloat16, ElementType::Bf16),
    ];
    let known: Vec<_> = known.into_iter().filter(|(_, element)| library.has_element(*element)).collect();
    assert!(known.len() >= 12, "{known:?}");
    let program = parsed(library, &models::identities(&known.iter().map(|(onnx, _)| *onnx).collect::<Vec<_>>()));
    let parameters = program.parameters().unwrap();
    for (onnx, element) in known {
        let name = format!("in_{}", onnx as i64);
        let found: Vec<&Parameter> = parameters.iter().filter(|parameter| parameter.name == name).collect();
        assert_eq!(found.len(), 1, "{name} in {parameters:?}");
        assert_eq!(found[0].shape.element, element);
        assert_eq!(found[0].shape.bytes, 4 * element.bits().unwrap() / 8);
    }
}

fn external_data_is_read_from_the_folder_given(library: &Library) {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("weights.bin"), [7f32.to_le_bytes(), 8f32.to_le_bytes()].concat()).unwrap();
    let options = ParseOptions { external_data: Some(folder.path().into()), ..ParseOptions::default() };
    let mut program = library.parse(&models::external(), &options).unwrap();
    program.compile(&reference(library), &CompileOptions::default()).unwrap();
    assert_eq!(run(&mut program, &mut [("x", vec![1.0, 1.0])]).unwrap(), [[8.0, 9.0]]);
    let elsewhere = ParseOptions { external_data: Some("/nowhere".into()), ..ParseOptions::default() };
    assert_failed(library.parse(&models::external(), &elsewhere).map(|_| ()), "parse_onnx_buffer");
}

fn every_compile_option_is_taken_or_ignored(library: &Library) {
    let mut program = parsed(library, &models::weighted_sum());
    let options = CompileOptions {
        fast_math: true,
        exhaustive_tune: true,
        offload_copy: true,
        compile_mode: Some(100),
        mlss_use_specific_ops: vec!["conv".into()],
    };
    program.compile(&reference(library), &options).unwrap();
    assert_eq!(weighted(&mut program), [WEIGHTED]);
    let since_2_17 = library.version() >= Some(Version { major: 2, minor: 17, patch: 0 });
    assert_eq!([Feature::CompileMode, Feature::BackendOptions].map(|feature| library.has(feature)), [since_2_17; 2]);
}

fn a_run_may_be_given_a_stream(library: &Library) {
    let mut program = compiled(library, &models::scalar());
    let mut x = [2.5f32];
    // SAFETY: the input lives until the results are read; `ref` ignores the stream.
    let results = unsafe { program.run(&[("x", x.as_mut_ptr().cast())], Some(std::ptr::null_mut())) }.unwrap();
    // SAFETY: `ref` has computed one float in host memory.
    assert_eq!(unsafe { *results.address(0).unwrap().cast::<f32>() }, 5.0);
}

fn programs_move_between_threads(library: &Library) {
    let mut program = compiled(library, &models::weighted_sum());
    let elsewhere = std::thread::spawn(move || (weighted(&mut program), program));
    let (outputs, mut program) = elsewhere.join().unwrap();
    assert_eq!(outputs, [WEIGHTED]);
    assert_eq!(weighted(&mut program), [WEIGHTED]);
}

fn eight_threads_compile_and_run(library: &Library) {
    let target = reference(library);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..20 {
                    let mut program = parsed(library, &models::weighted_sum());
                    program.compile(&target, &CompileOptions::default()).unwrap();
                    assert_eq!(weighted(&mut program), [WEIGHTED]);
                }
            });
        }
    });
}

fn a_saved_program_runs_after_loading(library: &Library) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("program.mxr");
    let program = compiled(library, &models::weighted_sum());
    program.save(&file).unwrap();
    assert_eq!(weighted(&mut library.load(&file).unwrap()), [WEIGHTED]);
    let bytes = fs::read(&file).unwrap();
    assert_eq!(weighted(&mut library.load_bytes(&bytes).unwrap()), [WEIGHTED]);
    let head = SavedHeader::of_file(&file).unwrap();
    assert_eq!(Some(head.version), library.version());
    assert_eq!(SavedHeader::of_bytes(&bytes), Some(head));
    assert_failed(program.save(&folder.path().join("no/such/folder.mxr")), "save");
}

fn broken_saved_programs_are_errors(library: &Library) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("program.mxr");
    compiled(library, &models::weighted_sum()).save(&file).unwrap();
    let whole = fs::read(&file).unwrap();
    for broken in [&[][..], b"not a program", &whole[..1], &whole[..40], &whole[..whole.len() / 2]] {
        assert_failed(library.load_bytes(broken).map(|_| ()), "load");
    }
    let mut other_format = whole.clone();
    other_format[9] += 1;
    assert_eq!(SavedHeader::of_bytes(&other_format).unwrap().format, SavedHeader::of_bytes(&whole).unwrap().format + 1);
    assert_failed(library.load_bytes(&other_format).map(|_| ()), "load");
    assert_failed(library.load(Path::new("/nowhere/program.mxr")).map(|_| ()), "load");
}

fn broken_models_are_errors(library: &Library) {
    let whole = models::weighted_sum();
    for broken in [models::unknown_operator(), b"not a model".to_vec(), whole[..whole.len() / 2].to_vec()] {
        assert_failed(library.parse(&broken, &ParseOptions::default()).map(|_| ()), "parse_onnx_buffer");
    }
}

fn wrong_bindings_are_refused(library: &Library) {
    let mut program = compiled(library, &models::weighted_sum());
    let mut memory = A;
    let address = memory.as_mut_ptr().cast::<u8>();
    let cases: [(&[(&str, *mut u8)], &str); 5] = [
        (&[("a", address)], "b is not bound"),
        (&[], "a is not bound"),
        (&[("a", address), ("b", address), ("c", address)], "the program has no such parameter"),
        (&[("a", address), ("b", address), ("a", address)], "it is bound twice"),
        (&[("a", address), ("b", std::ptr::null_mut())], "its address is null"),
    ];
    for (bindings, reason) in cases {
        // SAFETY: the memory is large enough for either input, and both are only read.
        let error = unsafe { program.run(bindings, None) }.map(|_| ()).unwrap_err();
        assert!(error.to_string().ends_with(reason), "{error}");
    }
    assert_eq!(weighted(&mut program), [WEIGHTED], "a rejected run leaves the program usable");
}

fn unknown_targets_are_errors(library: &Library) {
    assert_failed(library.target("no_such_target").map(|_| ()), "target_create");
    let error = library.target("no_such_target").unwrap_err();
    assert!(error.to_string().contains("creating the target no_such_target"), "{error}");
}

fn texts_with_nul_are_refused(library: &Library) {
    assert!(matches!(library.target("re\0f"), Err(MgxError::Refused { .. })));
    assert!(matches!(library.load(Path::new("a\0b")), Err(MgxError::Refused { .. })));
    let options = ParseOptions { inputs: vec![("a\0".into(), vec![1])], ..ParseOptions::default() };
    assert!(matches!(library.parse(&models::scalar(), &options), Err(MgxError::Refused { .. })));
}

fn half_precision_stays_close(library: &Library) {
    let mut program = parsed(library, &models::weighted_sum());
    let target = reference(library);
    program.quantize(&Quantize::Fp16, &target).unwrap();
    program.compile(&target, &CompileOptions::default()).unwrap();
    let inputs = |x: f32| [("a", vec![x; 6]), ("b", vec![0.0; 6])];
    let outputs = run(&mut program, &mut inputs(0.1)).unwrap();
    for (index, &found) in outputs[0].iter().enumerate() {
        let wanted = 0.1 * (index % 3 + 1) as f32;
        assert_ne!(found, wanted, "0.1 has no exact float16");
        assert!((found - wanted).abs() < 1e-3, "{found} for {wanted}");
    }
}

/// Samples of the projection's input.
fn samples(rows: &[[f32; 3]]) -> Quantize {
    let bytes = |row: &[f32; 3]| row.iter().flat_map(|value| value.to_le_bytes()).collect();
    Quantize::Int8 { calibration: rows.iter().map(|row| vec![("x".to_owned(), bytes(row))]).collect() }
}

fn projected(library: &Library, calibration: &Quantize, x: [f32; 3]) -> Vec<f32> {
    let options = ParseOptions { inputs: vec![("x".into(), vec![1, 3])], ..ParseOptions::default() };
    let mut program = library.parse(&models::projection(), &options).unwrap();
    let target = reference(library);
    program.quantize(calibration, &target).unwrap();
    program.compile(&target, &CompileOptions::default()).unwrap();
    run(&mut program, &mut [("x", x.to_vec())]).unwrap().remove(0)
}

fn int8_follows_its_samples(library: &Library) {
    let exact = [2.2, 2.8];
    let wide = projected(library, &samples(&[[1.0, -1.0, 1.0], [0.5, 0.5, 0.5]]), [0.1, 0.2, 0.3]);
    for (found, wanted) in wide.iter().zip(exact) {
        assert!((found - wanted).abs() < 0.1, "{wide:?} for {exact:?}");
    }
    // Everything beyond a range of 0.01 is clipped.
    let narrow = projected(library, &samples(&[[0.01, -0.01, 0.01]]), [0.1, 0.2, 0.3]);
    for (found, wanted) in narrow.iter().zip([0.09, 0.12]) {
        assert!((found - wanted).abs() < 0.01, "{narrow:?}");
    }
}

fn samples_that_do_not_fit_are_refused(library: &Library) {
    let options = ParseOptions { inputs: vec![("x".into(), vec![1, 3])], ..ParseOptions::default() };
    let mut program = library.parse(&models::projection(), &options).unwrap();
    let target = reference(library);
    let sample = |name: &str, bytes: usize| vec![(name.to_owned(), vec![0u8; bytes])];
    let cases = [
        (vec![], "it has no samples"),
        (vec![sample("x", 8)], "it has 8 bytes, not 12"),
        (vec![sample("z", 12)], "the program has no such input"),
        (vec![vec![]], "x is not bound"),
    ];
    for (calibration, reason) in cases {
        let error = program.quantize(&Quantize::Int8 { calibration }, &target).unwrap_err();
        assert!(error.to_string().ends_with(reason), "{error}");
    }
}

fn the_parser_lists_its_operators(library: &Library) {
    let operators = library.operators();
    for op in ["Add", "MatMul", "Relu"] {
        assert!(operators.contains(op), "{op}");
    }
    assert!(!operators.contains("NoSuchOperator"));
}

fn a_thousand_programs_leave_no_memory_behind(library: &Library) {
    let target = reference(library);
    let cycle = |index: usize| {
        let mut program = parsed(library, &models::weighted_sum());
        program.compile(&target, &CompileOptions::default()).unwrap();
        assert_eq!(weighted(&mut program), [WEIGHTED]);
        // Not every time, because MIGraphX writes a line to stderr.
        if index.is_multiple_of(50) {
            assert!(library.parse(&models::unknown_operator(), &ParseOptions::default()).is_err());
        }
    };
    (0..100).for_each(cycle);
    let before = resident_kib();
    (0..1000).for_each(cycle);
    let grown = resident_kib().saturating_sub(before);
    assert!(grown < 4096, "{grown} KiB more after 1000 programs");
}

/// The process's resident anonymous memory.
fn resident_kib() -> usize {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

fn assert_failed(result: Result<(), MgxError>, wanted: &str) {
    match result {
        Err(MgxError::Call { call, status, .. }) => {
            assert_eq!(call, wanted);
            assert_ne!(status, 0);
        }
        other => panic!("{wanted} gave {other:?}"),
    }
}
