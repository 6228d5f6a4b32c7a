//! Development commands of the repository: `cargo xtask --help`.
//!
//! Each command does all of its own set-up, so any of them may be the first one run in a fresh clone.

#![forbid(unsafe_code)]

mod amd;
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
mod families;
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
mod platform;
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
mod windows;
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
    /// Demonstrate the provider in ONNX Runtime: list devices, classify a picture, show what ran where, chat
    Demo {
        /// Build with optimisations
        #[arg(long)]
        release: bool,
    },
    /// Run everything CI runs, and print a table of the results
    Test {
        /// Run only the steps whose name equals or starts with STEP (may be repeated)
        #[arg(long, value_name = "STEP")]
        only: Vec<String>,
        /// List the steps and stop
        #[arg(long)]
        list: bool,
        /// Run all tests, including those that are normally spread over several commits
        #[arg(long)]
        all: bool,
    },
    /// Create the Python environment and fetch the ONNX Runtime versions that the tests use
    Setup,
    /// Build the libraries and the command, and lay them out under target/stage/
    Stage {
        /// Build with optimisations
        #[arg(long)]
        release: bool,
        /// Comma-separated backends to include: migraphx, hip, hipgpu, directx, or none [default: all for this
        /// platform]
        #[arg(long, value_name = "NAMES", default_value_t = Backends::all(), hide_default_value = true)]
        backends: Backends,
    },
    /// Check that every crate uses only crates of the layers below it
    Layers,
    /// Check the staged libraries: exports, undefined symbols, needed libraries
    Symbols,
    /// Run ONNX's node tests in ONNX Runtime with the hip backend first, and write docs/support.md
    Conformance {
        /// Run only the tests of these operators; docs/support.md stays unchanged
        #[arg(long, value_name = "OP", value_delimiter = ',')]
        only: Vec<String>,
        /// Fail if docs/support.md is out of date, instead of writing it
        #[arg(long, conflicts_with = "only")]
        check: bool,
    },
    /// Run real models with the hip backend and compare the results with recorded ones
    Models {
        /// Run only these models
        #[arg(long, value_name = "ID", value_delimiter = ',')]
        only: Vec<String>,
        /// Also compare their speed with ONNX Runtime's CPU provider
        #[arg(long)]
        bench: bool,
    },
    /// Build tiny models of all families with the real model builder, and compare what they generate with references
    Families {
        #[command(flatten)]
        arguments: families::Arguments,
    },
    /// Run random graphs with and without the hip backend, and compare the results
    RandomGraphs {
        /// Arguments for tests/random_graphs.py (`-- --help` lists them)
        #[arg(last = true)]
        arguments: Vec<String>,
    },
    /// Run corrupted models and inputs through the umbrella: each must give a result or a readable error
    Corrupt {
        /// Arguments for tests/corrupt_models.py (`-- --help` lists them)
        #[arg(last = true)]
        arguments: Vec<String>,
    },
    /// Compile every kernel for AMD's targets with clang, check its resource usage, and write docs/kernels.csv and
    /// kernels.md
    Kernels {
        /// Fail if docs/kernels.csv is out of date, instead of writing it
        #[arg(long)]
        check: bool,
        /// Compile only the kernels with these names, and keep the other lines of docs/kernels.csv
        #[arg(long, value_name = "KERNEL", value_delimiter = ',', conflicts_with_all = ["check", "arch"])]
        only: Vec<String>,
        /// Compile the kernels for these targets into a set that sessions can load, instead of checking them
        #[arg(long, value_name = "TARGET", value_delimiter = ',', conflicts_with = "check")]
        arch: Vec<String>,
        /// The folder of the set [default: target/kernel-set]
        #[arg(long, value_name = "FOLDER", requires = "arch")]
        out: Option<PathBuf>,
        /// A folder with more kernel sources for the set, in a folder for each target
        #[arg(long, value_name = "FOLDER", requires = "arch")]
        texts: Option<PathBuf>,
    },
    /// Write the generated pages and pictures under docs/, and check all pages: links, summary, excerpts
    Docs,
    /// Check the lists of the SDK crates' public API under docs/api
    Api {
        /// Write the lists instead
        #[arg(long)]
        write: bool,
    },
    /// Check the SDK crates with the oldest Rust that each of them supports
    Msrv {
        /// Install missing toolchains with rustup
        #[arg(long)]
        install: bool,
    },
    /// Measure the test coverage of the shipped crates, and fail if one is below the minimum
    Coverage {
        /// Print a JSON document instead of the table
        #[arg(long)]
        json: bool,
    },
    /// Unpack Debian's HIP runtimes under target/ and test the driver loader against them
    Rocm,
    /// Run AMD's unmodified HIP runtime, and our code on it, on emulated GPUs
    Amd {
        /// The GPUs to emulate [default: gfx1100]
        #[arg(long, value_name = "TARGET", value_delimiter = ',')]
        arch: Vec<String>,
        /// Run only these rows of the table [default: all]
        #[arg(long, value_name = "ROW", value_delimiter = ',')]
        row: Vec<String>,
        /// Emulate all of them, and run everything
        #[arg(long)]
        all: bool,
        /// Look for bugs in kernels: races, missing waits, accesses outside allocations. Rows with findings fail
        #[arg(long)]
        sanitize: bool,
        /// Count what kernels do, and print a table with estimates of their time on real chips
        #[arg(long, conflicts_with = "sanitize")]
        counters: bool,
    },
    /// Unpack Debian's MIGraphX under target/ and test the migraphx backend against it
    Migraphx,
    /// Run models on a third-party plugin (OpenVINO's, from PyPI) through the umbrella, on the CPU
    ThirdParty,
    /// Run the checks and benchmarks on a real GPU
    Gpu {
        /// The driver to check: nvidia, amd, or host for a dry run without a GPU
        #[arg(long, default_value = "nvidia")]
        driver: String,
        /// Only build target/gpu, to be copied to another machine
        #[arg(long)]
        bundle_only: bool,
        /// Use small sizes and few rounds, for slow or emulated devices
        #[arg(long)]
        tiny: bool,
    },
    /// Build the libraries, the command and the wheel for Windows with MinGW, and test them under Wine
    Windows {
        /// Build without optimisations, into target/windows/stage instead of dist/windows
        #[arg(long)]
        dev: bool,
    },
    /// Write the release files to dist/: libraries, command and wheel for glibc 2.28 and newer, with SBOMs and
    /// checksums
    Dist {
        /// Precompile the kernels for these targets into dist/lib/kernels, or `none` [default: all targets that releases
        /// have]
        #[arg(long, value_name = "TARGET", value_delimiter = ',')]
        kernels: Vec<String>,
        /// Comma-separated backends to include: migraphx, hip, hipgpu, directx, or none [default: all for this
        /// platform]
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
        Command::Families { arguments } => {
            let stage = stage::run(&workspace, Profile::Dev)?;
            families::run(&workspace, &stage, &arguments).map(|_| ())
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
        Command::Kernels { check, only, .. } => {
            let list = if check { kernels::List::Check(Shard::WHOLE) } else { kernels::List::Write(only) };
            kernels::run(&workspace, &list).map(print_skip)
        }
        Command::Docs => docs::write(&workspace),
        Command::Api { write } => {
            api::run(&workspace, if write { api::Lists::Write } else { api::Lists::Check }).map(print_outcome)
        }
        Command::Msrv { install } => msrv::run(&workspace, Shard::WHOLE, install).map(print_outcome),
        Command::Coverage { json } => coverage::command(&workspace, json),
        Command::Rocm => test::run(&workspace, &["rocm".to_owned()], false),
        Command::Amd { arch, row, all, sanitize, counters } => {
            amd::run(&workspace, &arch, &row, all, amd::Watch { sanitize, counters })
        }
        Command::Migraphx => migraphx::run(&test::Context::new(&workspace, false)).map(print_skip),
        Command::ThirdParty => {
            let stage = stage::run(&workspace, Profile::Dev)?;
            third_party::run(&workspace, &setup::run(&workspace)?, &stage).map(print_skip)
        }
        Command::Gpu { driver, bundle_only, tiny } => gpu::run(&workspace, &driver, bundle_only, tiny),
        Command::Windows { dev } => {
            windows::run(&test::Context::new(&workspace, true), windows::Build::from_dev_flag(dev)).map(print_outcome)
        }
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
