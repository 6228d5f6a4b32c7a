//! Programs: what is parsed, quantised, compiled, saved and run.

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

/// The name MIGraphX checks before it takes a pointer for a HIP stream.
const STREAM_TYPE: &CStr = c"ihipStream_t";

/// A program. It may move between threads, and runs one call at a time.
pub struct Program {
    library: Library,
    /// Read when first needed, and again after a change.
    slots: OnceCell<Slots>,
    raw: Owned,
}

// SAFETY: MIGraphX keeps no state of a program in threads; exclusive use is what `&mut self` of the changing calls gives.
unsafe impl Send for Program {}

/// Something a run must be given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// Its name in the program.
    pub name: String,
    /// What its memory must look like, strides included.
    pub shape: Shape,
    /// What it is for.
    pub role: Role,
}

/// What a parameter is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// An input of the model, under its ONNX name.
    Input,
    /// Memory that the program writes this output to.
    Output(usize),
    /// Memory that the program works in.
    Scratch,
}

impl Role {
    /// `main:#output_3`, and from the tenth on `main:#output_:00010`.
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

/// The parameters with the shapes that arguments are made from.
struct Slots {
    /// By name.
    slots: Vec<Slot>,
    /// What the shapes are borrowed from.
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

    /// Narrows the arithmetic. MIGraphX wants int8 or fp8 first, then fp16, then bf16, all before compiling.
    ///
    /// # Errors
    /// When the library lacks the way asked for, a sample does not fit the inputs, or MIGraphX fails.
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
        // SAFETY: the program is alive, and `&mut self` keeps others away.
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
            // MIGraphX would take a range of nothing for the answer.
            return Err(MgxError::refused("a calibration", "it has no samples"));
        }
        let options = Owned::make(calls.name.0, calls.destroy, doing, |out| {
            // SAFETY: `out` is a valid out-pointer.
            unsafe { (calls.create)(out) }
        })?;
        let mut memory = Vec::new();
        for sample in samples {
            let parameters = self.sample(sample, &mut memory)?;
            // SAFETY: both are alive; the parameters are copied during the call.
            check(calls.name.1, unsafe { (calls.add)(options.raw(), parameters.raw()) }, doing)?;
        }
        let _guard = serialised();
        // SAFETY: all three are alive; the samples' memory, which the options refer to, lives until the end of this body.
        let status = unsafe { (calls.quantize)(self.raw.raw(), target.raw(), options.raw()) };
        self.slots.take();
        check(calls.name.2, status, doing)
    }

    /// Parameters over a copy of the sample in `memory`, which must outlive them.
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
            // SAFETY: the copy has room for as many bytes, and any bytes are a valid `u64`.
            unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), copy.as_mut_ptr().cast(), bytes.len()) };
            bindings.push((name.as_str(), copy.as_mut_ptr().cast()));
            memory.push(copy);
        }
        self.bind(&bindings)
    }

    /// Compiles the program.
    ///
    /// # Errors
    /// When MIGraphX fails, or the element type of a parameter or output is not known here.
    pub fn compile(&mut self, target: &Target, options: &CompileOptions) -> Result<(), MgxError> {
        let options = options.make(&self.library)?;
        self.slots.take();
        let _guard = serialised();
        // SAFETY: all three are alive, and `&mut self` keeps others away from the program.
        let status = unsafe { (self.library.table().program_compile)(self.raw.raw(), target.raw(), options.raw()) };
        check("program_compile", status, || format!("compiling for {}", target.name()))?;
        self.check_shapes()
    }

    /// Finds here, and not in a run, what a run could not bind or give back.
    pub(super) fn check_shapes(&self) -> Result<(), MgxError> {
        self.slots()?;
        self.outputs().map(|_| ())
    }

    /// Writes the program to a file, in place: others may see it half written.
    ///
    /// # Errors
    /// When the file cannot be written. MIGraphX creates no folders.
    pub fn save(&self, file: &Path) -> Result<(), MgxError> {
        let doing = || format!("saving the program to {}", file.display());
        let options = self.library.file_options(doing)?;
        let path = c_path(file)?;
        // SAFETY: program and options are alive, the path is read during the call.
        let status = unsafe { (self.library.table().save)(self.raw.raw(), path.as_ptr(), options.raw()) };
        check("save", status, doing)
    }

    /// The program as it would be saved.
    ///
    /// # Errors
    /// As [`Program::save`], and when no private file for it can be had.
    pub fn save_bytes(&self) -> Result<Vec<u8>, MgxError> {
        let file = PrivateFile::new(&[])?;
        self.save(file.path())?;
        std::fs::read(file.path()).map_err(|error| PrivateFile::failed(&error))
    }

    /// What a run must be given: inputs by name, then outputs by index, then scratch memory.
    ///
    /// # Errors
    /// When a parameter's element type is not known here.
    pub fn parameters(&self) -> Result<Vec<Parameter>, MgxError> {
        let mut parameters: Vec<Parameter> = self.slots()?.slots.iter().map(|slot| slot.parameter.clone()).collect();
        parameters.sort_by_key(|parameter| parameter.role);
        Ok(parameters)
    }

    /// The shapes of the outputs, in the model's order.
    ///
    /// # Errors
    /// When an output's element type is not known here.
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

    /// Runs the program on `bindings`, which name every parameter once.
    ///
    /// With a stream the run is queued behind what is on it, and the host does not wait. Without one the run is over when
    /// this returns.
    ///
    /// # Errors
    /// When a parameter is bound twice, not at all or to null, when there is no parameter of a name, or when MIGraphX fails.
    ///
    /// # Safety
    /// Each address points to memory of the parameter's shape that the program's target can use and that lives until the
    /// run is over; memory of outputs and scratch is used by nobody else until then. `stream` is a stream of the HIP device
    /// the program was compiled on.
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
                // SAFETY: program and parameters are alive, `out` is a valid out-pointer; the caller vouches for the memory
                // behind the parameters and for the stream.
                Some(stream) => unsafe {
                    (table.program_run_async)(out, program, parameters, stream, STREAM_TYPE.as_ptr())
                },
                // SAFETY: as above.
                None => unsafe { (table.program_run)(out, program, parameters) },
            },
        )?;
        Results::new(self.library.clone(), raw)
    }

    /// Arguments for every parameter. MIGraphX compares shapes with strides, so each is made from the parameter's own.
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
            // MIGraphX refuses null even where there is nothing to read.
            let address = if address.is_null() { std::ptr::dangling_mut::<u64>().cast() } else { address };
            let doing = || format!("binding {name}");
            let argument = Owned::make("argument_create", table.argument_destroy, doing, |out| {
                // SAFETY: `out` is a valid out-pointer; the shape is borrowed from the slots, which are alive. The memory
                // is not touched before the run.
                unsafe { (table.argument_create)(out, slot.raw, address.cast()) }
            })?;
            // SAFETY: both are alive; name and argument are copied during the call.
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
                // SAFETY: `out` is a valid out-pointer, the program is alive.
                unsafe { (table.program_get_parameter_shapes)(out, self.raw.raw()) }
            })?;
        let mut count = 0;
        // SAFETY: the shapes are alive, `count` is a valid out-pointer.
        let status = unsafe { (table.program_parameter_shapes_size)(&mut count, shapes.raw()) };
        check("program_parameter_shapes_size", status, doing)?;
        let mut names = vec![std::ptr::null(); count];
        // SAFETY: there is a place for every name.
        let status = unsafe { (table.program_parameter_shapes_names)(names.as_mut_ptr(), shapes.raw()) };
        check("program_parameter_shapes_names", status, doing)?;
        let mut slots = Vec::with_capacity(count);
        for name in names.into_iter().filter(|name| !name.is_null()) {
            // SAFETY: MIGraphX gave a NUL-terminated name that lives as long as the shapes.
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

/// The functions of one quantisation that is calibrated.
struct Calibrated {
    /// Of `create`, `add` and `quantize`.
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
