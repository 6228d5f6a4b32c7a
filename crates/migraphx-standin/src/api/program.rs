//! Targets and programs: parse, quantise, compile, save, load.

use std::collections::BTreeMap;
use std::ffi::{CString, c_char, c_void};

use super::options::{CompileOptions, Fp8Options, Int8Options};
use super::run::Bound;
use super::shape::Shapes;
use super::{api, text};
use crate::control::{self, Outcome};
use crate::element::Shape;
use crate::handles::{Handle, free, give, of, of_mut, put};
use crate::model::{self, ParseOptions};
use crate::program::{Program, Target};

/// The parameters of a program, with names as C strings.
pub struct ParameterShapes(BTreeMap<CString, Shape>);

unsafe fn calibrate(program: Handle, samples: &[Bound], name: &str) -> Outcome {
    // SAFETY: the caller guarantees the program and the samples.
    unsafe {
        let program = of_mut::<Program>(program)?;
        control::log(&format!("quantize {name} with {} samples", samples.len()));
        for sample in samples {
            let inputs = program.read_inputs(&sample.checked(program)?)?;
            program.calibrate(inputs)?;
        }
    }
    Ok(())
}

api! {
    fn migraphx_target_create(out: *mut Handle, name: *const c_char) {
        let target = match text(name)?.as_str() {
            "ref" => Target::Ref,
            "gpu" => Target::Gpu,
            other => return Err(format!("no library for the target {other}")),
        };
        give(out, target)
    }

    fn migraphx_target_destroy(target: Handle) {
        free::<Target>(target)
    }

    fn migraphx_parse_onnx_buffer(out: *mut Handle, data: *const c_void, size: usize, options: Handle) {
        let options = of::<ParseOptions>(options)?;
        if data.is_null() {
            return Err("bad parameter: a null model".into());
        }
        let model = std::slice::from_raw_parts(data.cast::<u8>(), size);
        let program = Program::new(model::parse(model, options)?)?;
        let shapes: Vec<String> = program.graph.inputs.iter().map(|i| format!("{}{:?}", i.name, i.dims)).collect();
        control::log(&format!("parse {}", shapes.join(" ")));
        give(out, program)
    }

    fn migraphx_program_destroy(program: Handle) {
        free::<Program>(program)
    }

    fn migraphx_program_compile(program: Handle, target: Handle, options: Handle) {
        let (target, options) = (*of::<Target>(target)?, of::<CompileOptions>(options)?);
        of_mut::<Program>(program)?.compile(target, options.offload_copy);
        let CompileOptions { fast_math, exhaustive_tune, offload_copy, mode, backend } = options;
        control::log(&format!(
            "compile {target:?} fast_math={fast_math} exhaustive_tune={exhaustive_tune} offload_copy={offload_copy} \
             mode={mode:?} backend={backend:?}"
        ));
        Ok(())
    }

    fn migraphx_quantize_fp16(program: Handle) {
        of_mut::<Program>(program)?.precision.fp16 = true;
        control::log("quantize fp16");
        Ok(())
    }

    fn migraphx_quantize_bf16(program: Handle) {
        of_mut::<Program>(program)?.precision.bf16 = true;
        control::log("quantize bf16");
        Ok(())
    }

    fn migraphx_quantize_int8(program: Handle, target: Handle, options: Handle) {
        of::<Target>(target)?;
        calibrate(program, &of::<Int8Options>(options)?.0, "int8")
    }

    fn migraphx_quantize_fp8(program: Handle, target: Handle, options: Handle) {
        of::<Target>(target)?;
        calibrate(program, &of::<Fp8Options>(options)?.0, "fp8")
    }

    fn migraphx_save(program: Handle, file: *const c_char, options: Handle) {
        of::<super::options::FileOptions>(options)?;
        let file = text(file)?;
        control::log("save");
        std::fs::write(&file, of::<Program>(program)?.save()?).map_err(|error| format!("{file}: {error}"))
    }

    fn migraphx_load(out: *mut Handle, file: *const c_char, options: Handle) {
        of::<super::options::FileOptions>(options)?;
        let file = text(file)?;
        let bytes = std::fs::read(&file).map_err(|error| format!("{file}: {error}"))?;
        control::log("load");
        give(out, Program::load(&bytes)?)
    }

    fn migraphx_program_get_output_shapes(out: *mut Handle, program: Handle) {
        give(out, Shapes(of::<Program>(program)?.outputs()?))
    }

    fn migraphx_program_get_parameter_shapes(out: *mut Handle, program: Handle) {
        let parameters = of::<Program>(program)?.parameters()?.into_iter();
        let named = parameters.map(|(name, shape)| Ok((CString::new(name).map_err(|_| "a name contains NUL")?, shape)));
        give(out, ParameterShapes(named.collect::<Result<_, String>>()?))
    }

    fn migraphx_program_parameter_shapes_destroy(shapes: Handle) {
        free::<ParameterShapes>(shapes)
    }

    fn migraphx_program_parameter_shapes_size(out: *mut usize, shapes: Handle) {
        put(out, of::<ParameterShapes>(shapes)?.0.len())
    }

    fn migraphx_program_parameter_shapes_names(out: *mut *const c_char, shapes: Handle) {
        for (index, name) in of::<ParameterShapes>(shapes)?.0.keys().enumerate() {
            put(out.add(index), name.as_ptr())?;
        }
        Ok(())
    }

    fn migraphx_program_parameter_shapes_get(out: *mut *const Shape, shapes: Handle, name: *const c_char) {
        let name = CString::new(text(name)?).map_err(|_| "a name contains NUL")?;
        put(out, of::<ParameterShapes>(shapes)?.0.get(&name).ok_or("no such parameter")?)
    }
}
