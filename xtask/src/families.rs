//! Model families: tiny folders from the real model builder, compared with references (tests/families).

use anyhow::{Context as _, Result, bail};

use crate::setup;
use crate::shell;
use crate::stage::Stage;
use crate::test::{Context, Outcome};
use crate::workspace::Workspace;

const PAGE: &str = "docs/models.md";
/// Folders that are checked at a time; each needs a process of about a gigabyte.
const JOBS: usize = 2;

/// Which folders to check, and what to do with the result.
#[derive(clap::Args, Default)]
pub struct Arguments {
    /// Check only these folders, or those whose names start so [default: all]
    #[arg(long, value_name = "FAMILY.VARIANT", value_delimiter = ',')]
    only: Vec<String>,
    /// How many folders to check at a time
    #[arg(long, default_value_t = JOBS)]
    jobs: usize,
    /// Write the table of docs/models.md; needs all folders
    #[arg(long, conflicts_with = "only")]
    write: bool,
}

/// Builds the folders under target/families, runs them on the host device, and returns how many are right.
///
/// # Errors
/// When packages cannot be installed, or the check itself fails. A folder that is not right is not an error.
pub fn run(workspace: &Workspace, stage: &Stage, arguments: &Arguments) -> Result<String> {
    let modules = "onnxruntime_genai, onnx_ir, sentencepiece, torch, transformers";
    let python = setup::tools(workspace, "families-venv", "requirements-families.txt", modules)?;
    let mut check = shell::user_program(&python);
    check.current_dir(workspace.path("tests")).args(["-m", "families"]).arg(workspace.target().join("families"));
    check.arg("--command").arg(stage.command()).arg("--library").arg(stage.umbrella());
    check.arg("--jobs").arg(arguments.jobs.to_string());
    if !arguments.only.is_empty() {
        check.arg("--only").arg(arguments.only.join(","));
    }
    if arguments.write {
        check.arg("--write").arg(workspace.path(PAGE));
    }
    shell::run_to_last_line(&mut check)
}

/// All families, as a step of `cargo xtask test`.
///
/// # Errors
/// When fewer folders are right than the page records.
pub fn step(context: &Context<'_>) -> Result<Outcome> {
    let arguments = Arguments { jobs: JOBS, ..Arguments::default() };
    let summary = run(context.workspace, context.stage()?, &arguments)?;
    let page = context.workspace.path(PAGE);
    let page = std::fs::read_to_string(&page).with_context(|| format!("cannot read {PAGE}"))?;
    check_count(&page, &summary)?;
    Ok(Outcome::Passed(summary))
}

fn check_count(page: &str, summary: &str) -> Result<()> {
    let recorded = page.split("**").find_map(first_number).with_context(|| format!("{PAGE} records no count"))?;
    let right = first_number(summary).with_context(|| format!("the check ended with {summary:?}"))?;
    if right < recorded {
        bail!(
            "{summary}, but {PAGE} records {recorded}\n  help: `cargo xtask families` prints what is wrong with each"
        );
    }
    Ok(())
}

/// The first number of "N of M ...".
fn first_number(text: &str) -> Option<usize> {
    text.split_once(" of ")?.0.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fewer_right_folders_than_recorded_is_an_error() {
        let page = "Some *words*.\n\n**3 of 4** folders are right";
        check_count(page, "3 of 5 folders are right").unwrap();
        let error = check_count(page, "2 of 5 folders are right").unwrap_err().to_string();
        assert!(error.contains("2 of 5 folders are right, but docs/models.md records 3"), "{error}");
        assert!(check_count("no count", "3 of 5 folders are right").is_err());
        assert!(check_count(page, "a crash").is_err());
    }
}
