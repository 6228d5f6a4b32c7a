//! Development commands of the repository: `cargo xtask --help`.
//!
//! Each command does all of its own set-up, so any of them may be the first one run in a fresh clone.

#![forbid(unsafe_code)]

mod api;
mod backends;
mod bom;
mod build_paths;
mod built;
mod conformance;
mod coverage;
mod cpp;
mod debian;
mod demo;
mod dist;
mod docs;
mod engine;
mod fuzz;
mod gpu;
mod hipdnn_link;
mod junit;
mod kernels;
mod lanes;
mod layers;
mod migraphx;
mod msrv;
mod notices;
mod output;
mod package;
mod pytest;
mod rocm;
mod sdk;
mod setup;
mod shard;
mod shell;
mod simulator;
mod stage;
mod support;
mod symbols;
mod test;
mod third_party;
mod valgrind;
mod wheel;
mod workers;
mod workspace;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

use crate::backends::Backends;
use crate::shard::Shard;
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
    /// Show the execution provider working in ONNX Runtime: devices, a picture classified, what ran where, a chat
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
        /// Run everything, also what is otherwise spread over several commits
        #[arg(long)]
        all: bool,
    },
    /// Make the Python environment and fetch the ONNX Runtime versions that the tests use
    Setup,
    /// Build the libraries and the command, and lay them out under target/stage/
    Stage {
        /// Build with optimisations
        #[arg(long)]
        release: bool,
        /// Only these of migraphx, hip, hipgpu and directx, or none [default: all that the platform has]
        #[arg(long, value_name = "NAMES", default_value_t = Backends::all(), hide_default_value = true)]
        backends: Backends,
    },
    /// Check that every crate uses only crates of the layers below it
    Layers,
    /// Check the staged libraries: exports, undefined symbols, needed libraries
    Symbols,
    /// Run ONNX's node tests through ONNX Runtime with the hip backend in front, and write docs/support.md
    Conformance {
        /// Run only the tests of these operators, and leave the table alone
        #[arg(long, value_name = "OP", value_delimiter = ',')]
        only: Vec<String>,
        /// Fail if docs/support.md is not what would be written, instead of writing it
        #[arg(long, conflicts_with = "only")]
        check: bool,
    },
    /// Run real models with the hip backend and compare them with their recorded answers
    Models {
        /// Run only these models
        #[arg(long, value_name = "ID", value_delimiter = ',')]
        only: Vec<String>,
        /// Measure their speed beside ONNX Runtime's CPU provider too
        #[arg(long)]
        bench: bool,
    },
    /// Run random graphs with the hip backend and without it, and compare
    RandomGraphs {
        /// Arguments for tests/random_graphs.py (`-- --help` lists them)
        #[arg(last = true)]
        arguments: Vec<String>,
    },
    /// Run corrupted models and inputs with the umbrella: each must end in a result or a readable error
    Corrupt {
        /// Arguments for tests/corrupt_models.py (`-- --help` lists them)
        #[arg(last = true)]
        arguments: Vec<String>,
    },
    /// Compile every kernel for AMD's targets with clang, check what they need, and write docs/kernels.csv and kernels.md
    Kernels {
        /// Fail if docs/kernels.csv is not what would be written, instead of writing it
        #[arg(long)]
        check: bool,
        /// Compile them for these targets into a set that sessions find, instead of checking them
        #[arg(long, value_name = "TARGET", value_delimiter = ',', conflicts_with = "check")]
        arch: Vec<String>,
        /// The folder of the set [default: target/kernel-set]
        #[arg(long, value_name = "FOLDER", requires = "arch")]
        out: Option<PathBuf>,
        /// A folder of further texts for the set, such as the simulator's
        #[arg(long, value_name = "FOLDER", requires = "arch")]
        texts: Option<PathBuf>,
    },
    /// Write the generated pages and pictures under docs/, and check the book: pages, links, summary
    Docs,
    /// Check the lists of the SDK crates' public API under docs/api
    Api {
        /// Write them instead
        #[arg(long)]
        write: bool,
    },
    /// Check the SDK crates with the oldest Rust that each of them supports
    Msrv {
        /// Install the toolchains that are missing, with rustup
        #[arg(long)]
        install: bool,
    },
    /// Measure which lines of the shipped crates the tests run, and fail where a crate is below the floor
    Coverage {
        /// Print a JSON document instead of the table
        #[arg(long)]
        json: bool,
    },
    /// Unpack Debian's HIP runtimes under target/ and test the driver loader against them
    Rocm,
    /// Unpack Debian's MIGraphX under target/ and test the migraphx backend against it
    Migraphx,
    /// Run models on somebody else's plugin through the umbrella: OpenVINO's, from PyPI, on the CPU
    ThirdParty,
    /// Check and measure everything on a real GPU
    Gpu {
        /// The driver to check: nvidia, amd, or host for a rehearsal without a GPU
        #[arg(long, default_value = "nvidia")]
        driver: String,
        /// Only build target/gpu, to be carried to another machine
        #[arg(long)]
        bundle_only: bool,
        /// Small sizes and few rounds, for slow or emulated devices
        #[arg(long)]
        tiny: bool,
    },
    /// Write the shippable files to dist/: libraries, command and wheel, for glibc 2.28 and newer, with bills of materials and checksums
    Dist {
        /// Compile the kernels for these targets too, into dist/lib/kernels
        #[arg(long, value_name = "TARGET", value_delimiter = ',')]
        kernels: Vec<String>,
        /// Only these of migraphx, hip, hipgpu and directx, or none [default: all that the platform has]
        #[arg(long, value_name = "NAMES", default_value_t = Backends::all(), hide_default_value = true)]
        backends: Backends,
    },
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
        Command::Test { only, list: false, all } => test::run(&workspace, &only, all),
        Command::Setup => setup::run(&workspace).map(|_| ()),
        Command::Stage { release, backends } => {
            let stage = stage::run_with(&workspace, Profile::from_release_flag(release), &backends)?;
            println!("staged in {}, backends: {backends}", workspace.relative(&stage.root));
            Ok(())
        }
        Command::Layers => layers::run(&workspace),
        Command::Symbols => symbols::run(&stage::run(&workspace, Profile::Dev)?),
        Command::Conformance { only, check } => {
            let table = if check { conformance::Table::Check } else { conformance::Table::Write };
            let stage = stage::run(&workspace, Profile::Dev)?;
            conformance::run(&workspace, &setup::run(&workspace)?, &stage, &only, table).map(|_| ())
        }
        Command::Models { only, bench } => {
            let stage = stage::run(&workspace, Profile::from_release_flag(bench))?;
            engine::models(&workspace, &setup::run(&workspace)?, &stage, &only, bench).map(print_skip)
        }
        Command::RandomGraphs { arguments } => {
            let stage = stage::run(&workspace, Profile::Dev)?;
            engine::random_graphs(&workspace, &setup::run(&workspace)?, &stage, &arguments).map(|_| ())
        }
        Command::Corrupt { arguments } => {
            let stage = stage::run(&workspace, Profile::Dev)?;
            engine::corrupt(&workspace, &setup::run(&workspace)?, &stage, &arguments).map(|_| ())
        }
        Command::Kernels { arch, out, texts, .. } if !arch.is_empty() => {
            let out = out.unwrap_or_else(|| workspace.target().join("kernel-set"));
            kernels::set::run(&workspace, &arch, texts.as_deref(), &out).map(print_outcome)
        }
        Command::Kernels { check, .. } => {
            let list = if check { kernels::List::Check(Shard::WHOLE) } else { kernels::List::Write };
            kernels::run(&workspace, list).map(print_skip)
        }
        Command::Docs => docs::write(&workspace),
        Command::Api { write } => {
            api::run(&workspace, if write { api::Lists::Write } else { api::Lists::Check }).map(print_outcome)
        }
        Command::Msrv { install } => msrv::run(&workspace, install).map(print_outcome),
        Command::Coverage { json } => coverage::command(&workspace, json),
        Command::Rocm => test::run(&workspace, &["rocm".to_owned()], false),
        Command::Migraphx => migraphx::run(&test::Context::new(&workspace, false)).map(print_skip),
        Command::ThirdParty => {
            let stage = stage::run(&workspace, Profile::Dev)?;
            third_party::run(&workspace, &setup::run(&workspace)?, &stage).map(print_skip)
        }
        Command::Gpu { driver, bundle_only, tiny } => gpu::run(&workspace, &driver, bundle_only, tiny),
        Command::Dist { kernels, backends } => dist::run(&workspace, &kernels, &backends),
    }
}

fn print_outcome(outcome: test::Outcome) {
    match outcome {
        test::Outcome::Passed(note) => println!("{note}"),
        skipped => print_skip(skipped),
    }
}

fn print_skip(outcome: test::Outcome) {
    if let test::Outcome::Skipped(reason) = outcome {
        println!("skipped: {reason}");
    }
}
