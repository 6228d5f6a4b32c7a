//! Writes the sources of all kernels of the catalogue for some targets: `catalogue FOLDER TARGET...`.
//!
//! A target may include its number of compute units, `gfx942@304`, because kernels are chosen by that too. Equal
//! sources are written once. `FOLDER/list.tsv` has a line for each launch: target, label, file, kernel, bytes of its
//! argument, threads per block, bytes of dynamic LDS.
use std::collections::HashMap;
use std::fmt::Write;
use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use kernel_catalogue::catalogue;
use kernels::Arch;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let Some(folder) = arguments.next().map(PathBuf::from) else {
        eprintln!("usage: catalogue FOLDER TARGET...");
        return ExitCode::from(2);
    };
    match write(&folder, &arguments.collect::<Vec<_>>()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{}: {error}", folder.display());
            ExitCode::FAILURE
        }
    }
}

fn write(folder: &std::path::Path, targets: &[String]) -> std::io::Result<()> {
    fs::create_dir_all(folder)?;
    let mut files: HashMap<String, String> = HashMap::new();
    let mut list = String::new();
    for target in targets {
        let (target, units) = target.split_once('@').unwrap_or((target, "64"));
        let arch = Arch::new(target, units.parse().map_err(std::io::Error::other)?);
        for sample in catalogue() {
            let work = match kernels::work(&sample.step, &arch) {
                Ok(work) => work,
                Err(declined) => {
                    eprintln!("{target}: {}: {declined}", sample.label);
                    continue;
                }
            };
            for launch in &work.launches {
                let next = format!("{}-{}.hip", launch.kernel.name, files.len());
                let text = launch.kernel.text();
                let file = files.entry(text.clone()).or_insert(next);
                fs::write(folder.join(&*file), text)?;
                let (label, name, args) = (&sample.label, launch.kernel.name, launch.args.bytes().len());
                let (threads, lds) = (launch.threads, launch.lds_bytes);
                let _ = writeln!(list, "{target}\t{label}\t{file}\t{name}\t{args}\t{threads}\t{lds}");
            }
        }
    }
    fs::write(folder.join("list.tsv"), list)
}
