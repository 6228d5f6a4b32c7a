//! Compiles a model for given shapes.
use std::path::Path;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use crate::cache::{Cache, Key, KeyBuilder, Origin, Programs};
use crate::calibration::{self, Narrow, Ranges};
use crate::mgx::{CompileOptions, Feature, Library, MgxError, ParseOptions, Program, Quantize, SavedHeader, Target};
use crate::onnx::Model;
use crate::options::{Options, Precision};

/// How often a long compilation logs that it is still running.
const PROGRESS: Duration = Duration::from_secs(10);

/// The library, the target and the options of one session.
pub(crate) struct Toolchain {
    pub library: Library,
    pub target: Target,
    /// The device's architecture; `host` without a GPU.
    pub arch: String,
    pub options: Options,
    /// True if MIGraphX copies tensors between host and GPU itself.
    pub offload_copy: bool,
    /// The device that programs are compiled for and run on; `None` for `ref` without a driver.
    pub device: Option<hip::Device>,
    cache: Option<Cache>,
    /// The calibrated ranges, if int8 or fp8 is enabled.
    ranges: Option<(Narrow, Ranges)>,
}

impl Toolchain {
    pub fn new(
        library: Library,
        target: Target,
        arch: String,
        options: Options,
        offload_copy: bool,
        device: Option<hip::Device>,
    ) -> Self {
        let kept = &options.cache;
        let cache = kept.folder.clone().map(|folder| Cache::new(folder, kept.max_bytes, kept.save, kept.load));
        let precision = &options.precision;
        for (wanted, feature, name) in
            [(precision.bf16, Feature::Bf16, "bf16_enable"), (precision.fp8, Feature::Fp8, "fp8_enable")]
        {
            if wanted && !library.has(feature) {
                let since = feature.since();
                tracing::warn!(target: "amdgpu_ep::compile", "{name} is off: this MIGraphX is older than {since}");
            }
        }
        let ranges = ranges(&options).filter(|(narrow, _)| *narrow != Narrow::Fp8 || library.has(Feature::Fp8));
        Self { library, target, arch, options, offload_copy, device, cache, ranges }
    }

    /// True if programs read and write host memory.
    pub fn runs_on_host(&self) -> bool {
        self.target.name() == "ref" || self.offload_copy
    }

    /// Returns the program of a model for the given input shapes, from the cache or compiled now.
    ///
    /// # Errors
    /// MIGraphX cannot compile it.
    pub fn program(&self, model: &Model, shapes: &[Vec<usize>]) -> Result<Program, MgxError> {
        let shapes: Vec<_> = model.inputs.iter().map(|input| input.name.clone()).zip(shapes.iter().cloned()).collect();
        let job = Job { toolchain: self, model, shapes: &shapes };
        let (program, origin) = match &self.cache {
            Some(cache) => cache.fetch(&self.key(model, &shapes), &job)?,
            None => (job.make()?, Origin::Compiled),
        };
        if origin == Origin::Cached {
            tracing::info!(target: "amdgpu_ep::compile", "loaded the compiled program for {} from the cache", job.describe());
        }
        check_outputs(model, &program)?;
        Ok(program)
    }

    /// Includes everything that affects the compiled code.
    fn key(&self, model: &Model, shapes: &[(String, Vec<usize>)]) -> Key {
        let options = &self.options;
        let library = match self.library.version() {
            Some(version) => version.to_string(),
            None => identity(self.library.file()),
        };
        KeyBuilder::new()
            .part("model", model.digest.as_bytes())
            .part("migraphx", library)
            .part("target", self.target.name())
            .part("arch", &self.arch)
            .part("precision", format!("{:?}", self.options.precision))
            .part("ranges", self.ranges.as_ref().map_or([0; 32], |(_, ranges)| *ranges.digest().as_bytes()))
            .part("compile", format!("{:?}", self.compile_options()))
            .part("mlss", options.mlss_ops.join(","))
            .shapes(shapes)
            .finish()
    }

    fn compile_options(&self) -> CompileOptions {
        let mut mlss = self.options.mlss_ops.clone();
        // AMD's own provider adds `conv` on these GPUs, where the MLSS convolutions are faster.
        if ["gfx1200", "gfx1201"].iter().any(|arch| self.arch.starts_with(arch)) && !mlss.iter().any(|op| op == "conv")
        {
            mlss.push("conv".to_owned());
        }
        CompileOptions {
            fast_math: false,
            exhaustive_tune: self.options.exhaustive_tune,
            offload_copy: self.offload_copy,
            compile_mode: self.options.compute_mode,
            mlss_use_specific_ops: mlss,
        }
    }

    /// The requested quantisations that this library supports, in the order MIGraphX requires.
    fn quantisations(&self) -> Vec<Quantize> {
        let Precision { fp16, bf16, .. } = self.options.precision;
        let mut all = Vec::new();
        if fp16 {
            all.push(Quantize::Fp16);
        }
        if bf16 && self.library.has(Feature::Bf16) {
            all.push(Quantize::Bf16);
        }
        all
    }
}

/// Reads the calibration table if int8 or fp8 is enabled. Without a table, nothing is quantised.
fn ranges(options: &Options) -> Option<(Narrow, Ranges)> {
    let (narrow, key) = match options.precision {
        Precision { int8: true, .. } => (Narrow::Int8, "int8_enable"),
        Precision { fp8: true, .. } => (Narrow::Fp8, "fp8_enable"),
        _ => return None,
    };
    let Some(calibration) = &options.precision.calibration else {
        tracing::warn!(target: "amdgpu_ep::compile", "{key} is off: int8_calibration_table_name is not set");
        return None;
    };
    let folder = options.cache.folder.as_deref();
    if !Path::new(&calibration.table).is_absolute()
        && let Some(Err(error)) = folder.map(disk_cache::Folder::open)
    {
        tracing::warn!(target: "amdgpu_ep::compile", "{key} is off: calibration tables are not read from the cache folder: {error}");
        return None;
    }
    let file = folder.unwrap_or(Path::new("")).join(&calibration.table);
    match Ranges::read(&file, calibration.native) {
        Ok(ranges) => {
            tracing::info!(target: "amdgpu_ep::compile", "{} ranges in {}", ranges.len(), file.display());
            Some((narrow, ranges))
        }
        Err(error) => {
            tracing::warn!(target: "amdgpu_ep::compile", "{key} is off: {error}");
            None
        }
    }
}

/// Checks a program against the output shapes that its model declares. A difference means that MIGraphX interprets the
/// model differently.
fn check_outputs(model: &Model, program: &Program) -> Result<(), MgxError> {
    let refused = |reason: String| Err(MgxError::Refused { what: "a model".to_owned(), reason });
    let shapes = program.outputs()?;
    if shapes.len() != model.outputs.len() {
        return refused(format!("it has {} outputs, but MIGraphX returns {}", model.outputs.len(), shapes.len()));
    }
    for (output, shape) in model.outputs.iter().zip(&shapes) {
        let (name, found) = (&output.name, (&shape.lengths, shape.element));
        if !output.fits(&shape.lengths) || output.element != shape.element {
            let declared = (&output.shape, output.element);
            return refused(format!("its output {name:?} is {declared:?}, but MIGraphX returns {found:?}"));
        }
    }
    Ok(())
}

/// Identifies a library whose version is unknown.
fn identity(file: &Path) -> String {
    let metadata = file.metadata().ok();
    let written = metadata.as_ref().and_then(|found| found.modified().ok());
    format!("{} {:?} {written:?}", file.display(), metadata.map(|found| found.len()))
}

/// A compilation.
struct Job<'a> {
    toolchain: &'a Toolchain,
    model: &'a Model,
    shapes: &'a [(String, Vec<usize>)],
}

impl Job<'_> {
    fn describe(&self) -> String {
        let shapes: Vec<_> = self.shapes.iter().map(|(name, shape)| format!("{name} {shape:?}")).collect();
        shapes.join(", ")
    }

    /// The shapes that the model leaves open. MIGraphX would assume 1 for each open dimension.
    fn open_shapes(&self) -> Vec<(String, Vec<usize>)> {
        let given = self.model.inputs.iter().zip(self.shapes);
        let open = given.filter(|(input, (_, shape))| !shape.is_empty() && input.fixed().as_ref() != Some(shape));
        open.map(|(_, shape)| shape.clone()).collect()
    }

    /// The model with the calibrated ranges inserted.
    fn narrowed(&self) -> Option<Vec<u8>> {
        let (narrow, ranges) = self.toolchain.ranges.as_ref()?;
        match calibration::rewrite(&self.model.bytes, self.model.folder.as_deref(), ranges, *narrow) {
            Ok((bytes, count)) => {
                tracing::info!(target: "amdgpu_ep::compile", "using {narrow:?} for {count} products with calibrated ranges");
                Some(bytes)
            }
            Err(error) => {
                tracing::warn!(target: "amdgpu_ep::compile", "{narrow:?} is off for a partition: {error}");
                None
            }
        }
    }

    fn compile(&self) -> Result<Program, MgxError> {
        let tools = self.toolchain;
        let options = ParseOptions { inputs: self.open_shapes(), external_data: self.model.folder.clone() };
        let plain = || tools.library.parse(&self.model.bytes, &options);
        let mut program = match self.narrowed() {
            // Not every release can parse fp8 constants.
            Some(bytes) => tools.library.parse(&bytes, &options).or_else(|error| {
                tracing::warn!(target: "amdgpu_ep::compile", "the calibration table is not used: {error}");
                plain()
            })?,
            None => plain()?,
        };
        for how in tools.quantisations() {
            program.quantize(&how, &tools.target)?;
        }
        program.compile(&tools.target, &tools.compile_options())?;
        Ok(program)
    }
}

impl Programs for Job<'_> {
    type Program = Program;
    type Error = MgxError;

    fn load(&self, file: &Path) -> Result<Program, MgxError> {
        let (found, wanted) = (SavedHeader::of_file(file).map(|head| head.version), self.toolchain.library.version());
        // MIGraphX accepts programs from other releases and only logs a line.
        if wanted.is_some() && found != wanted {
            let found = found.map_or("of unknown version".to_owned(), |version| version.to_string());
            let what = format!("the program {}", file.display());
            return Err(MgxError::Refused { what, reason: format!("it was saved by MIGraphX {found}") });
        }
        self.toolchain.library.load(file)
    }

    fn make(&self) -> Result<Program, MgxError> {
        let start = Instant::now();
        let (target, what) = (self.toolchain.target.name(), self.describe());
        tracing::info!(target: "amdgpu_ep::compile", "compiling for {target}: {what}");
        let (done, over) = mpsc::channel::<()>();
        let program = std::thread::scope(|scope| {
            scope.spawn(move || {
                while over.recv_timeout(PROGRESS) == Err(RecvTimeoutError::Timeout) {
                    tracing::info!(target: "amdgpu_ep::compile", "still compiling after {} s", start.elapsed().as_secs());
                }
            });
            let program = self.compile();
            drop(done);
            program
        });
        let seconds = start.elapsed().as_secs_f64();
        match &program {
            Ok(_) => tracing::info!(target: "amdgpu_ep::compile", "compiled in {seconds:.1} s"),
            Err(_) => tracing::info!(target: "amdgpu_ep::compile", "gave up compiling after {seconds:.1} s"),
        }
        program
    }

    fn save(&self, program: &Program, file: &Path) -> Result<(), MgxError> {
        program.save(file)
    }
}
