//! Programs: parsed, quantised, compiled, saved and run.

use std::cell::OnceCell;
use std::ffi::{CStr, CString, c_void};
use std::fmt;
use std::path::Path;

use super::handle::{Owned, c_path, check, serialised};
use super::library::{Feature, Library, Target};
use super::options::{CompileOptions, Quantize, Sample};
use super::results::Results;
use super::saved::PrivateFile;
use super::sys::{Handle, OfHandle, Status};
use super::{MgxError, Shape};

/// The type name that MIGraphX requires before it accepts a pointer as a HIP stream.
const STREAM_TYPE: &CStr = c"ihipStream_t";

/// A program. It can move between threads and runs one call at a time.
pub struct Program {
    library: Library,
    /// Read on first use, and again after a change.
    slots: OnceCell<Slots>,
    raw: Owned,
}

// SAFETY: MIGraphX keeps no thread-local state for a program. The calls that change it take `&mut self`, which gives
// exclusive use.
unsafe impl Send for Program {}

/// A parameter that a run must bind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// The name in the program.
    pub name: String,
    /// The required memory layout, including strides.
    pub shape: Shape,
    /// The purpose of the parameter.
    pub role: Role,
}

/// The purpose of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// An input of the model, under its ONNX name.
    Input,
    /// Memory that receives this output.
    Output(usize),
    /// Scratch memory.
    Scratch,
}

impl Role {
    /// Parses `main:#output_3` or, from the tenth on, `main:#output_:00010`.
    fn of(name: &str) -> Role {
        let output = || {
            let (_, number) = name.rsplit_once("#output_")?;
            let digits = number.strip_prefix(':').unwrap_or(number);
            digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?
        };
        match output() {
            Some(index) => Role::Output(index),
            None if name == "scratch" => Role::Scratch,
            None => Role::Input,
        }
    }
}

/// The parameters, with the shapes that arguments are created from.
struct Slots {
    /// Sorted by name.
    slots: Vec<Slot>,
    /// Owns the shapes that the slots borrow.
    _shapes: Owned,
}

struct Slot {
    text: CString,
    raw: Handle,
    parameter: Parameter,
}

impl Slots {
    fn find(&self, name: &str) -> Option<usize> {
        self.slots.binary_search_by(|slot| slot.parameter.name.as_str().cmp(name)).ok()
    }
}

impl Program {
    pub(super) fn new(library: Library, raw: Owned) -> Program {
        Program { library, slots: OnceCell::new(), raw }
    }

    /// Quantises the program. MIGraphX requires int8 or fp8 first, then fp16, then bf16, all before compiling.
    ///
    /// # Errors
    /// The library does not support the quantisation, a sample does not match the inputs, or MIGraphX fails.
    pub fn quantize(&mut self, how: &Quantize, target: &Target) -> Result<(), MgxError> {
        let library = self.library.clone();
        let table = library.table();
        self.slots.take();
        match how {
            Quantize::Fp16 => self.convert("quantize_fp16", table.quantize_fp16, how),
            Quantize::Bf16 => self.convert("quantize_bf16", library.need(Feature::Bf16, table.quantize_bf16)?, how),
            Quantize::Int8 { calibration } => {
                let calls = Calibrated {
                    name: (
                        "quantize_int8_options_create",
                        "quantize_int8_options_add_calibration_data",
                        "quantize_int8",
                    ),
                    create: table.quantize_int8_options_create,
                    destroy: table.quantize_int8_options_destroy,
                    add: table.quantize_int8_options_add_calibration_data,
                    quantize: table.quantize_int8,
                };
                self.calibrate(&calls, calibration, target, how)
            }
            Quantize::Fp8 { calibration } => {
                let need = Feature::Fp8;
                let calls = Calibrated {
                    name: ("quantize_fp8_options_create", "quantize_fp8_options_add_calibration_data", "quantize_fp8"),
                    create: library.need(need, table.quantize_fp8_options_create)?,
                    destroy: library.need(need, table.quantize_fp8_options_destroy)?,
                    add: library.need(need, table.quantize_fp8_options_add_calibration_data)?,
                    quantize: library.need(need, table.quantize_fp8)?,
                };
                self.calibrate(&calls, calibration, target, how)
            }
        }
    }

    fn convert(&mut self, call: &'static str, function: OfHandle, how: &Quantize) -> Result<(), MgxError> {
        let _guard = serialised();
        // SAFETY: the program is alive, and `&mut self` gives exclusive access.
        check(call, unsafe { function(self.raw.raw()) }, || format!("quantising to {}", how.name()))
    }

    fn calibrate(
        &mut self,
        calls: &Calibrated,
        samples: &[Sample],
        target: &Target,
        how: &Quantize,
    ) -> Result<(), MgxError> {
        let doing = || format!("quantising to {} for {}", how.name(), target.name());
        if samples.is_empty() {
            // MIGraphX would accept an empty range as the result.
            return Err(MgxError::refused("a calibration", "it has no samples"));
        }
        let options = Owned::make(calls.name.0, calls.destroy, doing, |out| {
            // SAFETY: `out` is a valid out-pointer.
            unsafe { (calls.create)(out) }
        })?;
        let mut memory = Vec::new();
        for sample in samples {
            let parameters = self.sample(sample, &mut memory)?;
            // SAFETY: both are alive. The parameters are copied during the call.
            check(calls.name.1, unsafe { (calls.add)(options.raw(), parameters.raw()) }, doing)?;
        }
        let _guard = serialised();
        // SAFETY: all three are alive. The options refer to the samples' memory, which lives until the end of this
        // function.
        let status = unsafe { (calls.quantize)(self.raw.raw(), target.raw(), options.raw()) };
        self.slots.take();
        check(calls.name.2, status, doing)
    }

    /// Creates parameters over a copy of the sample in `memory`, which must outlive them.
    fn sample(&self, sample: &Sample, memory: &mut Vec<Vec<u64>>) -> Result<Owned, MgxError> {
        let slots = self.slots()?;
        let mut bindings = Vec::with_capacity(sample.len());
        for (name, bytes) in sample {
            let what = || format!("a sample of {name}");
            let slot = slots.find(name).and_then(|index| slots.slots.get(index));
            let slot = slot.ok_or_else(|| MgxError::refused(what(), "the program has no such input"))?;
            let wanted = slot.parameter.shape.bytes;
            if bytes.len() != wanted {
                return Err(MgxError::refused(what(), format!("it has {} bytes, not {wanted}", bytes.len())));
            }
            let mut copy = vec![0u64; bytes.len().div_ceil(8)];
            // SAFETY: the copy has at least this size, and any bytes are a valid `u64`.
            unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), copy.as_mut_ptr().cast(), bytes.len()) };
            bindings.push((name.as_str(), copy.as_mut_ptr().cast()));
            memory.push(copy);
        }
        self.bind(&bindings)
    }

    /// Compiles the program.
    ///
    /// # Errors
    /// MIGraphX fails, or the element type of a parameter or output is unknown.
    pub fn compile(&mut self, target: &Target, options: &CompileOptions) -> Result<(), MgxError> {
        let options = options.make(&self.library)?;
        self.slots.take();
        let _guard = serialised();
        // SAFETY: all three are alive, and `&mut self` gives exclusive access to the program.
        let status = unsafe { (self.library.table().program_compile)(self.raw.raw(), target.raw(), options.raw()) };
        check("program_compile", status, || format!("compiling for {}", target.name()))?;
        self.check_shapes()
    }

    /// Detects parameters or outputs that a run could not handle now, rather than in the run.
    pub(super) fn check_shapes(&self) -> Result<(), MgxError> {
        self.slots()?;
        self.outputs().map(|_| ())
    }

    /// Writes the program directly to the file: other processes may see a partial file.
    ///
    /// # Errors
    /// The file cannot be written. MIGraphX does not create folders.
    pub fn save(&self, file: &Path) -> Result<(), MgxError> {
        let doing = || format!("saving the program to {}", file.display());
        let options = self.library.file_options(doing)?;
        let path = c_path(file)?;
        // SAFETY: program and options are alive. The path is only read during the call.
        let status = unsafe { (self.library.table().save)(self.raw.raw(), path.as_ptr(), options.raw()) };
        check("save", status, doing)
    }

    /// The program in its saved form.
    ///
    /// # Errors
    /// As [`Program::save`], and if no private file can be created.
    pub fn save_bytes(&self) -> Result<Vec<u8>, MgxError> {
        let file = PrivateFile::new(&[])?;
        self.save(file.path())?;
        std::fs::read(file.path()).map_err(|error| PrivateFile::failed(&error))
    }

    /// The parameters that a run must bind: inputs by name, then outputs by index, then scratch memory.
    ///
    /// # Errors
    /// The element type of a parameter is unknown.
    pub fn parameters(&self) -> Result<Vec<Parameter>, MgxError> {
        let mut parameters: Vec<Parameter> = self.slots()?.slots.iter().map(|slot| slot.parameter.clone()).collect();
        parameters.sort_by_key(|parameter| parameter.role);
        Ok(parameters)
    }

    /// The shapes of the outputs, in the model's order.
    ///
    /// # Errors
    /// The element type of an output is unknown.
    pub fn outputs(&self) -> Result<Vec<Shape>, MgxError> {
        let table = self.library.table();
        let doing = || "reading the output shapes".to_owned();
        let shapes = Owned::make("program_get_output_shapes", table.shapes_destroy, doing, |out| {
            // SAFETY: `out` is a valid out-pointer, the program is alive.
            unsafe { (table.program_get_output_shapes)(out, self.raw.raw()) }
        })?;
        let mut count = 0;
        // SAFETY: the shapes are alive, `count` is a valid out-pointer.
        check("shapes_size", unsafe { (table.shapes_size)(&mut count, shapes.raw()) }, doing)?;
        let read = |index| {
            let mut shape = std::ptr::null_mut();
            // SAFETY: the index is below the count, `shape` is a valid out-pointer.
            check("shapes_get", unsafe { (table.shapes_get)(&mut shape, shapes.raw(), index) }, doing)?;
            // SAFETY: the shape is borrowed from the shapes.
            unsafe { Shape::read(&self.library, shape, &format!("output {index}")) }
        };
        (0..count).map(read).collect()
    }

    /// Runs the program. `bindings` must name every parameter exactly once.
    ///
    /// With a stream, the run is queued on it, and the host does not wait. Without one, the run is complete when this
    /// returns.
    ///
    /// # Errors
    /// A parameter is bound twice, not bound or bound to null, a name is unknown, or MIGraphX fails.
    ///
    /// # Safety
    /// Each address points to memory of the parameter's shape that the program's target can access and that lives until
    /// the run is over. Until then, nothing else uses the memory of outputs and scratch. `stream` is a stream of the
    /// HIP device that the program was compiled for.
    pub unsafe fn run(
        &mut self,
        bindings: &[(&str, *mut u8)],
        stream: Option<*mut c_void>,
    ) -> Result<Results<'_>, MgxError> {
        let parameters = self.bind(bindings)?;
        let table = self.library.table();
        let (program, parameters) = (self.raw.raw(), parameters.raw());
        let call = if stream.is_some() { "program_run_async" } else { "program_run" };
        let raw = Owned::make(
            call,
            table.arguments_destroy,
            || "running a program".to_owned(),
            |out| match stream {
                // SAFETY: program and parameters are alive, and `out` is a valid out-pointer. The caller vouches for
                // the memory behind the parameters and for the stream.
                Some(stream) => unsafe {
                    (table.program_run_async)(out, program, parameters, stream, STREAM_TYPE.as_ptr())
                },
                // SAFETY: as above.
                None => unsafe { (table.program_run)(out, program, parameters) },
            },
        )?;
        Results::new(self.library.clone(), raw)
    }

    /// Creates arguments for every parameter. MIGraphX compares shapes including strides, so each argument uses the
    /// parameter's own shape.
    fn bind(&self, bindings: &[(&str, *mut u8)]) -> Result<Owned, MgxError> {
        let table = self.library.table();
        let slots = self.slots()?;
        let doing = || "binding parameters".to_owned();
        let parameters = Owned::make("program_parameters_create", table.program_parameters_destroy, doing, |out| {
            // SAFETY: `out` is a valid out-pointer.
            unsafe { (table.program_parameters_create)(out) }
        })?;
        let mut bound = vec![false; slots.slots.len()];
        for &(name, address) in bindings {
            let refused = |reason| MgxError::refused(format!("the binding of {name}"), reason);
            let index = slots.find(name).ok_or_else(|| refused("the program has no such parameter"))?;
            let (Some(slot), Some(bound)) = (slots.slots.get(index), bound.get_mut(index)) else { continue };
            if std::mem::replace(bound, true) {
                return Err(refused("it is bound twice"));
            }
            if address.is_null() && slot.parameter.shape.bytes > 0 {
                return Err(refused("its address is null"));
            }
            // MIGraphX rejects null even if there is nothing to read.
            let address = if address.is_null() { std::ptr::dangling_mut::<u64>().cast() } else { address };
            let doing = || format!("binding {name}");
            let argument = Owned::make("argument_create", table.argument_destroy, doing, |out| {
                // SAFETY: `out` is a valid out-pointer. The shape is borrowed from the slots, which are alive. The
                // memory is not accessed before the run.
                unsafe { (table.argument_create)(out, slot.raw, address.cast()) }
            })?;
            // SAFETY: both are alive. The name and argument are copied during the call.
            let status =
                unsafe { (table.program_parameters_add)(parameters.raw(), slot.text.as_ptr(), argument.raw()) };
            check("program_parameters_add", status, doing)?;
        }
        let unbound = slots.slots.iter().zip(&bound).find(|(_, bound)| !**bound);
        match unbound {
            Some((slot, _)) => Err(MgxError::refused("a run", format!("{} is not bound", slot.parameter.name))),
            None => Ok(parameters),
        }
    }

    fn slots(&self) -> Result<&Slots, MgxError> {
        if let Some(slots) = self.slots.get() {
            return Ok(slots);
        }
        let read = self.read_slots()?;
        Ok(self.slots.get_or_init(|| read))
    }

    fn read_slots(&self) -> Result<Slots, MgxError> {
        let table = self.library.table();
        let doing = || "reading the parameters".to_owned();
        let shapes =
            Owned::make("program_get_parameter_shapes", table.program_parameter_shapes_destroy, doing, |out| {
                // SAFETY: `out` is a valid out-pointer, and the program is alive.
                unsafe { (table.program_get_parameter_shapes)(out, self.raw.raw()) }
            })?;
        let mut count = 0;
        // SAFETY: the shapes are alive, and `count` is a valid out-pointer.
        let status = unsafe { (table.program_parameter_shapes_size)(&mut count, shapes.raw()) };
        check("program_parameter_shapes_size", status, doing)?;
        let mut names = vec![std::ptr::null(); count];
        // SAFETY: the array has an element for every name.
        let status = unsafe { (table.program_parameter_shapes_names)(names.as_mut_ptr(), shapes.raw()) };
        check("program_parameter_shapes_names", status, doing)?;
        let mut slots = Vec::with_capacity(count);
        for name in names.into_iter().filter(|name| !name.is_null()) {
            // SAFETY: MIGraphX returned a NUL-terminated name that lives as long as the shapes.
            let text = unsafe { CStr::from_ptr(name) }.to_owned();
            let name = text.to_str().map_err(|_| MgxError::answer(format!("a parameter called {text:?}")))?.to_owned();
            let mut raw = std::ptr::null_mut();
            // SAFETY: the shapes are alive, the name is one of theirs, `raw` is a valid out-pointer.
            let status = unsafe { (table.program_parameter_shapes_get)(&mut raw, shapes.raw(), text.as_ptr()) };
            check("program_parameter_shapes_get", status, || format!("reading the parameter {name}"))?;
            // SAFETY: the shape is borrowed from the shapes.
            let shape = unsafe { Shape::read(&self.library, raw, &name) }?;
            slots.push(Slot { text, raw, parameter: Parameter { role: Role::of(&name), name, shape } });
        }
        slots.sort_by(|a, b| a.parameter.name.cmp(&b.parameter.name));
        Ok(Slots { slots, _shapes: shapes })
    }
}

impl fmt::Debug for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Program").field("library", &self.library).finish_non_exhaustive()
    }
}

/// The functions of a calibrated quantisation.
struct Calibrated {
    /// The names of `create`, `add` and `quantize`.
    name: (&'static str, &'static str, &'static str),
    create: unsafe extern "C" fn(*mut Handle) -> Status,
    destroy: OfHandle,
    add: unsafe extern "C" fn(Handle, Handle) -> Status,
    quantize: unsafe extern "C" fn(Handle, Handle, Handle) -> Status,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_role_of_a_parameter_is_read_from_its_name() {
        assert_eq!(Role::of("main:#output_0"), Role::Output(0));
        assert_eq!(Role::of("main:#output_:00010"), Role::Output(10));
        assert_eq!(Role::of("main:#output_:00056"), Role::Output(56));
        assert_eq!(Role::of("scratch"), Role::Scratch);
        for input in ["x", "main:#output_", "main:#output_:", "main:#output_1x", "my_scratch", "#output", ""] {
            assert_eq!(Role::of(input), Role::Input, "{input}");
        }
    }
}
