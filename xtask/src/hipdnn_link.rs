//! The two ways to hipDNN: the sample that loads a library at run time links nothing of hipDNN, and the one that is linked
//! with it computes the same.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

use crate::stage::{self, Stage};
use crate::test::{Context, Outcome};
use crate::{built, shell, symbols};

const LOADED: &str = "conv_fprop_dynamic";
const LINKED: &str = "conv_linked";
/// hipDNN's own file name.
const LIBRARY: &str = "libhipdnn_backend.so";

/// Builds, looks at and runs both samples, with our CPU library under hipDNN's name.
///
/// # Errors
/// When a sample can't be built or run, needs what it should not, or gives another result than the other.
pub fn run(context: &Context<'_>) -> Result<Outcome> {
    if !cfg!(target_os = "linux") {
        return Ok(Outcome::Skipped("the samples' interfaces are read from ELF files".into()));
    }
    let stage = context.stage()?;
    let folder = context.workspace.target().join("hipdnn-link");
    stage::copy_atomically(&stage.library("hipdnn_host"), &folder.join(LIBRARY))?;

    let loaded = built::example(context.workspace, "hipdnn", LOADED)?;
    let interface = symbols::read(&loaded)?;
    let hipdnn: Vec<&String> = interface.undefined.iter().filter(|symbol| symbol.starts_with("hipdnn")).collect();
    let needed: Vec<&String> = interface.needed.iter().filter(|library| library.contains("hipdnn")).collect();
    if !hipdnn.is_empty() || !needed.is_empty() {
        bail!("{LOADED} loads hipDNN at run time, and is linked with {hipdnn:?} of {needed:?}");
    }
    let by_loading = verified(stage, &loaded, &[("HIPDNN_BACKEND_LIBRARY_PATH", &folder)])?;

    let linked = linked(context, &folder)?;
    let interface = symbols::read(&linked)?;
    let missing: Vec<&str> =
        symbols::hipdnn_exports().into_iter().filter(|&symbol| !interface.undefined.contains(symbol)).collect();
    if !interface.needed.contains(LIBRARY) || !missing.is_empty() {
        bail!("{LINKED} is to be linked with {LIBRARY}; it needs {:?} and has no {missing:?}", interface.needed);
    }
    let by_linking = verified(stage, &linked, &[("LD_LIBRARY_PATH", &folder)])?;
    if by_loading != by_linking {
        bail!("the samples differ\n  loaded: {by_loading}\n  linked: {by_linking}");
    }
    Ok(Outcome::Passed(format!("loaded and linked: {by_loading}")))
}

/// Builds the sample that is linked with the library in `folder`.
fn linked(context: &Context<'_>, folder: &Path) -> Result<PathBuf> {
    let mut build = shell::cargo(context.workspace.root());
    build.args(["build", "--workspace", "--features", "hipdnn/linked", "--example", LINKED]);
    // The linker looks there too. Flags for all of cargo would build everything anew.
    let before = std::env::var_os("LIBRARY_PATH").unwrap_or_default();
    let folders = std::iter::once(folder.to_path_buf()).chain(std::env::split_paths(&before));
    build.env("LIBRARY_PATH", std::env::join_paths(folders)?);
    let messages = shell::capture_stdout(build.args(["--message-format", "json-render-diagnostics"]))?;
    shell::executable(&messages, "hipdnn", LINKED).with_context(|| format!("cargo built no example {LINKED}"))
}

/// Runs a sample on the host driver; gives the line that says it verified its result.
fn verified(stage: &Stage, program: &Path, variables: &[(&str, &Path)]) -> Result<String> {
    let mut sample = shell::user_program(program);
    sample.env("AMDGPU_EP_DRIVER", "host").env("AMDGPU_EP_HIP_HOST_LIBRARY", stage.library("hip-host"));
    sample.env_remove("AMDGPU_EP_HIPDNN_LIBRARY").env_remove("HIPDNN_BACKEND_LIBRARY_PATH");
    sample.envs(variables.iter().copied());
    let last = shell::run_to_last_line(&mut sample)?;
    if !last.starts_with("verified: ") {
        bail!("{} did not verify its result\n  {last}", program.display());
    }
    Ok(last)
}
