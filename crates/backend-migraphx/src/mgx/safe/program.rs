//! Programs: parsed, quantised, compiled, saved and run.

use std::cell::OnceCell;
use std::ffi::{CString, c_void};
use std::fmt;
use std::path::Path;

use super::Shape;
use super::handle::{Owned, c_path, serialised};
use super::library::{Library, Target};
use super::options::{CompileOptions, Quantize, Sample};
use super::results::Results;
use super::saved::PrivateFile;
use crate::mgx::MgxError;
use crate::mgx::result::quantize::{self, Calibrated};
use crate::mgx::result::{Doing, argument, compile, program, shape};
use crate::mgx::sys::{Handle, Loaded};

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

/// A conversion of a whole program.
type Convert = unsafe fn(&Loaded, Handle, Doing<'_>) -> Result<(), MgxError>;

impl Program {
    pub(super) fn new(library: Library, raw: Owned) -> Program {
        Program { library, slots: OnceCell::new(), raw }
    }

    /// Quantises the program. MIGraphX requires int8 or fp8 first, then fp16, then bf16, all before compiling.
    ///
    /// # Errors
    /// The library does not support the quantisation, a sample does not match the inputs, or MIGraphX fails.
    pub fn quantize(&mut self, how: &Quantize, target: &Target) -> Result<(), MgxError> {
        self.slots.take();
        let library = self.library.clone();
        match how {
            Quantize::Fp16 => self.convert(quantize::fp16, how),
            Quantize::Bf16 => self.convert(quantize::bf16, how),
            Quantize::Int8 { calibration } => {
                self.calibrate(&Calibrated::int8(library.loaded()), calibration, target, how)
            }
            Quantize::Fp8 { calibration } => {
                self.calibrate(&Calibrated::fp8(library.loaded())?, calibration, target, how)
            }
        }
    }

    fn convert(&mut self, convert: Convert, how: &Quantize) -> Result<(), MgxError> {
        let _guard = serialised();
        // SAFETY: the program is alive, and `&mut self` gives exclusive access.
        unsafe { convert(self.library.loaded(), self.raw.raw(), &|| format!("quantising to {}", how.name())) }
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
        let options = Owned::new(calls.create_options(&doing)?);
        let mut memory = Vec::new();
        for sample in samples {
            let parameters = self.sample(sample, &mut memory)?;
            // SAFETY: both are alive, and `memory` lives until the end of this function.
            unsafe { calls.add(options.raw(), parameters.raw(), &doing)? };
        }
        let _guard = serialised();
        // SAFETY: all three are alive. The options refer to the samples' memory, which lives until the end of this
        // function.
        let quantized = unsafe { calls.quantize(self.raw.raw(), target.raw(), options.raw(), &doing) };
        self.slots.take();
        quantized
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
        let (loaded, doing) = (self.library.loaded(), || format!("compiling for {}", target.name()));
        // SAFETY: all three are alive, and `&mut self` gives exclusive access to the program.
        unsafe { compile::compile(loaded, self.raw.raw(), target.raw(), options.raw(), &doing)? };
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
        let options = self.library.file_options(&doing)?;
        // SAFETY: program and options are alive.
        unsafe { program::save(self.library.loaded(), self.raw.raw(), &c_path(file)?, options.raw(), &doing) }
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
        let (loaded, doing) = (self.library.loaded(), || "reading the output shapes".to_owned());
        // SAFETY: the program is alive.
        let shapes = Owned::new(unsafe { program::output_shapes(loaded, self.raw.raw(), &doing)? });
        // SAFETY: the shapes are alive.
        let count = unsafe { shape::list_len(loaded, shapes.raw(), &doing)? };
        let read = |index| {
            // SAFETY: the shapes are alive, and the index is below the count.
            let shape = unsafe { shape::list_get(loaded, shapes.raw(), index, &doing)? };
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
        let (loaded, doing) = (self.library.loaded(), || "running a program".to_owned());
        // SAFETY: program and parameters are alive. The caller vouches for the memory behind the parameters and for the
        // stream.
        let raw = unsafe { program::run(loaded, self.raw.raw(), parameters.raw(), stream, &doing)? };
        Results::new(self.library.clone(), Owned::new(raw))
    }

    /// Creates arguments for every parameter. MIGraphX compares shapes including strides, so each argument uses the
    /// parameter's own shape.
    fn bind(&self, bindings: &[(&str, *mut u8)]) -> Result<Owned, MgxError> {
        let (loaded, slots) = (self.library.loaded(), self.slots()?);
        let parameters = Owned::new(program::create_parameters(loaded, &|| "binding parameters".to_owned())?);
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
            // SAFETY: the shape is borrowed from the slots, which are alive. The memory is not accessed before the run.
            let argument = Owned::new(unsafe { argument::create(loaded, slot.raw, address.cast(), &doing)? });
            // SAFETY: both are alive.
            unsafe { program::add_parameter(loaded, parameters.raw(), &slot.text, argument.raw(), &doing)? };
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
        let (loaded, doing) = (self.library.loaded(), || "reading the parameters".to_owned());
        // SAFETY: the program is alive.
        let shapes = Owned::new(unsafe { program::parameter_shapes(loaded, self.raw.raw(), &doing)? });
        // SAFETY: the shapes are alive.
        let names = unsafe { program::parameter_names(loaded, shapes.raw(), &doing)? };
        let mut slots = Vec::with_capacity(names.len());
        for text in names {
            let name = text.to_str().map_err(|_| MgxError::answer(format!("a parameter called {text:?}")))?.to_owned();
            let doing = || format!("reading the parameter {name}");
            // SAFETY: the shapes are alive, and the name is one of theirs.
            let raw = unsafe { program::parameter_shape(loaded, shapes.raw(), &text, &doing)? };
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
