//! Development commands of the repository: `cargo xtask --help`.
//!
//! Each command does all of its own set-up, so any of them may be the first one run in a fresh clone.

#![forbid(unsafe_code)]

mod demo;
mod dist;
mod gpu;
mod layers;
mod pytest;
mod rocm;
mod setup;
mod shell;
mod stage;
mod symbols;
mod test;
mod valgrind;
mod workspace;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

use crate::stage::Profile;
use crate::workspace::Workspace;

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Development commands of amdgpu-ep", max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Show the execution provider working in ONNX Runtime: devices, copies, a model against the CPU
    Demo {
        /// Build with optimisations
        #[arg(long)]
        release: bool,
    },
    /// Run everything CI runs, and print a table of the results
    Test {
        /// Run only the steps whose name is, or starts with, this (may be repeated)
        #[arg(long, value_name = "STEP")]
        only: Vec<String>,
        /// List the steps and stop
        #[arg(long)]
        list: bool,
    },
    /// Make the Python environment and fetch the ONNX Runtime versions that the tests use
    Setup,
    /// Build the libraries and the command, and lay them out under target/stage/
    Stage {
        /// Build with optimisations
        #[arg(long)]
        release: bool,
    },
    /// Check that every crate uses only crates of the layers below it
    Layers,
    /// Check the staged libraries: exports, undefined symbols, needed libraries
    Symbols,
    /// Unpack Debian's HIP runtimes under target/ and test the driver loader against them
    Rocm,
    /// Check and measure the driver layer on a real GPU
    Gpu {
        /// The driver to check: nvidia or amd
        #[arg(long, default_value = "nvidia")]
        driver: String,
        /// Only build target/gpu, to be carried to another machine
        #[arg(long)]
        bundle_only: bool,
    },
    /// Write the shippable files to dist/
    Dist,
}

fn main() -> ExitCode {
    match run(Arguments::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> Result<()> {
    let workspace = Workspace::locate();
    match command {
        Command::Demo { release } => demo::run(&workspace, Profile::from_release_flag(release)),
        Command::Test { list: true, .. } => {
            test::list();
            Ok(())
        }
        Command::Test { only, list: false } => test::run(&workspace, &only),
        Command::Setup => setup::run(&workspace).map(|_| ()),
        Command::Stage { release } => {
            let stage = stage::run(&workspace, Profile::from_release_flag(release))?;
            println!("staged in {}", workspace.relative(&stage.root));
            Ok(())
        }
        Command::Layers => layers::run(&workspace),
        Command::Symbols => symbols::run(&stage::run(&workspace, Profile::Dev)?),
        Command::Rocm => {
            if let test::Outcome::Skipped(reason) = rocm::run(&workspace)? {
                println!("skipped: {reason}");
            }
            Ok(())
        }
        Command::Gpu { driver, bundle_only } => gpu::run(&workspace, &driver, bundle_only),
        Command::Dist => dist::run(&workspace),
    }
}
