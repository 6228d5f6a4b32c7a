//! Compiles the set of kernels for a target with hiprtc: `compile_set OUT CACHE TARGET [TEXTS]`. `compile_set` alone
//! lists the targets of a release.
//!
//! The set contains the catalogue, or the part of it that `AMDGPU_EP_TEST_PART` names, and the kernels of models: the
//! folder `TEXTS` has a folder for each target with the sources that it chooses, named `KERNEL-DIGEST.hip`. Code is
//! cached in `CACHE` by source, target and compiler.
use std::collections::BTreeSet;
use std::error::Error;
use std::path::Path;
use std::process::ExitCode;

use disk_cache::Folder;
use hip::{DriverKind, Rtc};
use kernel_catalogue::catalogue;
use kernels::{Arch, Compiled, ShippedSet, write_set};
use testkit::part;

/// Sources with the names of their kernels: a source may have several.
type Sources = BTreeSet<(String, String)>;

/// Chips of one target differ in the number of compute units, which affects the choice of kernels: small, medium, large.
const COMPUTE_UNITS: [u32; 3] = [16, 64, 304];

/// The newest format that every ROCm 6 runtime loads.
const EXACT: [&str; 1] = ["-mcode-object-version=5"];

/// The oldest format that has generic targets (ROCm 6.3). hiprtc has no device library for them, so sources do without.
const GENERIC: [&str; 4] = ["-mcode-object-version=6", "-nogpulib", "-fdeclspec", "-DBARE_HIP"];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (arguments, texts) = arguments.split_at(arguments.len().min(3));
    let [out, cache, target] = arguments else {
        if arguments.is_empty() {
            ShippedSet::ALL.iter().for_each(|set| println!("{}", set.target));
            return ExitCode::SUCCESS;
        }
        eprintln!("usage: compile_set [OUT CACHE TARGET [TEXTS]]");
        return ExitCode::from(2);
    };
    match run(Path::new(out), Path::new(cache), target, texts.first().map(Path::new)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{target}: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(out: &Path, cache: &Path, target: &str, texts: Option<&Path>) -> Result<(), Box<dyn Error>> {
    let shipped = ShippedSet::ALL.iter().find(|set| set.target == target);
    let chosen_by = shipped.map_or_else(|| vec![target], |set| set.sources_of.to_vec());
    let mut sources = of_catalogue(&chosen_by);
    for folder in texts.iter().flat_map(|texts| chosen_by.iter().map(|target| texts.join(target))) {
        sources.extend(of_folder(&folder)?);
    }
    let compiler = SetCompiler::new(target, Folder::create(cache)?)?;
    let mut compiled = Vec::new();
    let is_left_out = |text: &str| target.ends_with("-generic") && computes_doubles(text);
    for (text, kernel) in sources.into_iter().filter(|(text, _)| !is_left_out(text)) {
        let code = compiler.code(&kernel, &text)?;
        compiled.push(Compiled { kernel, text, code });
    }
    write_set(out, target, &compiled)?;
    let bytes: usize = compiled.iter().map(|one| one.code.len()).sum();
    println!("{target}: {} kernels, {} KiB, {}", compiled.len(), bytes / 1024, compiler.version);
    Ok(())
}

/// Whether a kernel reads or writes doubles. Without a device library there are no functions of them, so sessions compile
/// such kernels themselves. Sums of floats are wide (`W`), which needs no functions.
fn computes_doubles(text: &str) -> bool {
    let mut settings = text.lines().filter_map(|line| line.strip_prefix("#define ")?.strip_suffix(" f64"));
    settings.any(|setting| setting != "W")
}

/// The sources that targets choose for the catalogue, with the kernels' names.
fn of_catalogue(chosen_by: &[&str]) -> Sources {
    let samples: Vec<_> = catalogue().into_iter().filter(|sample| part::is_due(&sample.label)).collect();
    let mut sources = Sources::new();
    for arch in chosen_by.iter().flat_map(|target| COMPUTE_UNITS.map(|units| Arch::new(target, units))) {
        let launches = samples.iter().filter_map(|sample| kernels::work(&sample.step, &arch).ok());
        let kernels = launches.flat_map(|work| work.launches).map(|launch| launch.kernel);
        sources.extend(kernels.map(|kernel| (kernel.text(), kernel.name.to_owned())));
    }
    sources
}

/// The sources in a folder, if it exists.
fn of_folder(folder: &Path) -> Result<Sources, Box<dyn Error>> {
    let mut sources = Sources::new();
    if !folder.is_dir() {
        return Ok(sources);
    }
    for entry in std::fs::read_dir(folder)? {
        let file = entry?.path();
        let stem = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        if let Some((kernel, _)) = stem.rsplit_once('-').filter(|_| file.extension().is_some_and(|e| e == "hip")) {
            sources.insert((std::fs::read_to_string(&file)?, kernel.to_owned()));
        }
    }
    Ok(sources)
}

/// hiprtc for one target, with a cache.
struct SetCompiler {
    rtc: Rtc,
    options: Vec<String>,
    version: String,
    cache: Folder,
}

impl SetCompiler {
    fn new(target: &str, cache: Folder) -> Result<Self, Box<dyn Error>> {
        let rtc = Rtc::load(DriverKind::Amd)?;
        let more = if target.ends_with("-generic") { &GENERIC[..] } else { &EXACT };
        let mut options = vec![rtc.target_option(target), "-std=c++17".to_owned()];
        options.extend(more.iter().map(|&option| option.to_owned()));
        let version = format!("hiprtc {}", rtc.version_text());
        Ok(Self { rtc, options, version, cache })
    }

    fn code(&self, kernel: &str, text: &str) -> Result<Vec<u8>, Box<dyn Error>> {
        let mut key = blake3::Hasher::new();
        for part in [text, &self.version].into_iter().chain(self.options.iter().map(String::as_str)) {
            key.update(&(part.len() as u64).to_le_bytes()).update(part.as_bytes());
        }
        let name = format!("{kernel}-{}.co", &key.finalize().to_hex()[..32]);
        if let Ok(code) = self.cache.read_sealed(&name) {
            return Ok(code);
        }
        let code = self.rtc.compile(text, kernel, &self.options.iter().map(String::as_str).collect::<Vec<_>>())?;
        self.cache.write_sealed(&name, &code)?;
        Ok(code)
    }
}
