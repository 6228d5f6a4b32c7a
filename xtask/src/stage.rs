//! Builds the libraries and the command, and gives them the names they ship under.
//!
//! Cargo cannot put a hyphen into a library name, and ONNX Runtime GenAI looks for exactly `libamdgpu-ep.so`; so the
//! build output is copied into a folder laid out like the shipped one.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::shell;
use crate::workspace::Workspace;

/// Which cargo profile to build with.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Profile {
    Dev,
    Release,
}

impl Profile {
    pub fn from_release_flag(release: bool) -> Self {
        if release { Self::Release } else { Self::Dev }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Dev => "dev",
            Self::Release => "release",
        }
    }
}

/// One staged file.
struct Product {
    package: &'static str,
    /// Cargo's kind of the target.
    kind: &'static str,
    /// The name it ships under, without prefix and suffix of the platform.
    name: &'static str,
}

const PRODUCTS: &[Product] = &[
    Product { package: "umbrella", kind: "cdylib", name: "amdgpu-ep" },
    Product { package: "backend-hip", kind: "cdylib", name: "hip-backend" },
    Product { package: "backend-hipgpu", kind: "cdylib", name: "hipgpu-backend" },
    Product { package: "backend-migraphx", kind: "cdylib", name: "migraphx-backend" },
    #[cfg(windows)]
    Product { package: "backend-directx", kind: "cdylib", name: "directx-backend" },
    Product { package: "hip-host", kind: "cdylib", name: "hip-host" },
    Product { package: "hipdnn-cudnn", kind: "cdylib", name: "hipdnn_cudnn" },
    Product { package: "hipdnn-host", kind: "cdylib", name: "hipdnn_host" },
    Product { package: "cli", kind: "bin", name: "amdgpu-ep" },
];

/// The staged folder.
pub struct Stage {
    pub root: PathBuf,
}

impl Stage {
    /// The execution provider library.
    pub fn umbrella(&self) -> PathBuf {
        self.root.join("lib").join(library_file("amdgpu-ep"))
    }

    /// The hip backend, which the umbrella loads and tests register directly.
    pub fn backend(&self) -> PathBuf {
        self.root.join("lib").join(library_file("hip-backend"))
    }

    /// The libraries that are plugins: the umbrella and its backends.
    pub fn plugins(&self) -> Vec<PathBuf> {
        let plugins =
            PRODUCTS.iter().filter(|product| product.name == "amdgpu-ep" || product.name.ends_with("-backend"));
        let plugins = plugins.filter(|product| product.kind == "cdylib");
        plugins.map(|product| self.root.join("lib").join(library_file(product.name))).collect()
    }

    /// The libraries with hipDNN's interface.
    pub fn hipdnn_libraries(&self) -> Vec<PathBuf> {
        let ours = PRODUCTS.iter().filter(|product| product.name.starts_with("hipdnn_"));
        ours.map(|product| self.library(product.name)).collect()
    }

    /// A staged library by the name it ships under, without prefix and suffix.
    pub fn library(&self, name: &str) -> PathBuf {
        self.root.join("lib").join(library_file(name))
    }

    /// The command.
    pub fn command(&self) -> PathBuf {
        self.root.join("bin").join(format!("amdgpu-ep{}", std::env::consts::EXE_SUFFIX))
    }

    /// Where kernels lie that were compiled beforehand; there need not be any.
    pub fn kernels(&self) -> PathBuf {
        self.root.join("lib/kernels")
    }

    /// Every staged library.
    pub fn libraries(&self) -> Vec<PathBuf> {
        let libraries = PRODUCTS.iter().filter(|product| product.kind == "cdylib");
        libraries.map(|product| self.root.join("lib").join(library_file(product.name))).collect()
    }
}

/// A file that is shipped, and the package it is built from.
pub struct Shipped {
    pub package: &'static str,
    pub file: String,
    pub is_program: bool,
}

/// The files that are shipped.
pub fn shipped() -> impl Iterator<Item = Shipped> {
    PRODUCTS.iter().map(|product| {
        let is_program = product.kind == "bin";
        let file = match is_program {
            true => format!("{}{}", product.name, std::env::consts::EXE_SUFFIX),
            false => library_file(product.name),
        };
        Shipped { package: product.package, file, is_program }
    })
}

/// The packages that are shipped.
pub fn packages() -> Vec<&'static str> {
    PRODUCTS.iter().map(|product| product.package).collect()
}

/// Builds every product with `profile` and stages it under `target/stage/<profile>`.
///
/// # Errors
/// When the build fails or a file cannot be written.
pub fn run(workspace: &Workspace, profile: Profile) -> Result<Stage> {
    let root = workspace.target().join("stage").join(profile.name());
    run_into(workspace, profile, root)
}

/// As [`run`], into `root`.
pub fn run_into(workspace: &Workspace, profile: Profile, root: PathBuf) -> Result<Stage> {
    let mut build = shell::cargo(workspace.root());
    build.args(["build", "--profile", profile.name()]);
    run_build(&mut build, root)
}

/// Stages what `build`, a build command of cargo with a profile and a target, makes of every product.
///
/// # Errors
/// When the build fails or a file cannot be written.
pub fn run_build(build: &mut Command, root: PathBuf) -> Result<Stage> {
    let messages = shell::capture_stdout(with_products(build))?;
    for product in PRODUCTS {
        let built = artifact(&messages, product)
            .with_context(|| format!("cargo built no {} of package {}", product.kind, product.package))?;
        let (folder, file) = match product.kind {
            "bin" => ("bin", format!("{}{}", product.name, std::env::consts::EXE_SUFFIX)),
            _ => ("lib", library_file(product.name)),
        };
        copy_atomically(&built, &root.join(folder).join(file))?;
    }
    Ok(Stage { root })
}

/// Builds the stand-in for MIGraphX and gives it MIGraphX's name, in a folder of its own: it is for tests only.
///
/// # Errors
/// When the build fails or the file cannot be written.
pub fn stand_in(workspace: &Workspace) -> Result<PathBuf> {
    let product = Product { package: "migraphx-standin", kind: "cdylib", name: "migraphx_c" };
    let mut build = shell::cargo(workspace.root());
    build.args(["build", "--package", product.package]);
    let messages = shell::capture_stdout(with_products(&mut build))?;
    let built = artifact(&messages, &product).context("cargo built no stand-in for MIGraphX")?;
    let file = workspace.target().join("migraphx-standin").join("libmigraphx_c.so.3");
    copy_atomically(&built, &file)?;
    Ok(file)
}

/// Stages everything under `target/simulate`, with a hip backend that runs kernels under the wave simulator: it is for tests
/// only.
///
/// # Errors
/// When the build fails or a file cannot be written.
pub fn simulating(workspace: &Workspace) -> Result<Stage> {
    let stage = run_into(workspace, Profile::Dev, workspace.target().join("simulate"))?;
    let product = Product { package: "backend-hip", kind: "cdylib", name: "hip-backend" };
    let mut build = shell::cargo(workspace.root());
    build.args(["build", "--features", "backend-hip/simulate"]);
    let messages = shell::capture_stdout(with_products(&mut build))?;
    let built = artifact(&messages, &product).context("cargo built no backend with the simulator")?;
    copy_atomically(&built, &stage.backend())?;
    Ok(stage)
}

/// Has `build` choose every product, and report as JSON. What is chosen together shares its dependencies; alone, a package
/// would have some of them built again with fewer features.
fn with_products(build: &mut Command) -> &mut Command {
    for product in PRODUCTS {
        build.args(["--package", product.package]);
    }
    build.args(["--message-format", "json-render-diagnostics"])
}

fn library_file(name: &str) -> String {
    if cfg!(windows) { format!("{name}.dll") } else { format!("lib{name}{}", std::env::consts::DLL_SUFFIX) }
}

/// The file cargo reports for `product` in its JSON messages.
fn artifact(messages: &str, product: &Product) -> Option<PathBuf> {
    let suffix = if product.kind == "bin" { std::env::consts::EXE_SUFFIX } else { std::env::consts::DLL_SUFFIX };
    messages
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter(|message| message["reason"] == "compiler-artifact" && is_package(message, product.package))
        .filter(|message| {
            message["target"]["kind"].as_array().is_some_and(|kinds| kinds.iter().any(|k| k == product.kind))
        })
        .flat_map(|message| message["filenames"].as_array().cloned().unwrap_or_default())
        .filter_map(|file| file.as_str().map(PathBuf::from))
        .find(|file| file.to_string_lossy().ends_with(suffix))
}

/// Whether a message of cargo is about this package.
pub fn is_package(message: &Value, name: &str) -> bool {
    let manifest = message["manifest_path"].as_str().map(Path::new);
    manifest.and_then(Path::parent).is_some_and(|folder| folder.ends_with(name))
}

/// A process that has the old file loaded keeps it: the new one takes its name in one step.
pub fn copy_atomically(from: &Path, to: &Path) -> Result<()> {
    let Some(folder) = to.parent() else { bail!("{} has no parent folder", to.display()) };
    fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let mut draft = to.as_os_str().to_owned();
    draft.push(format!(".{}", std::process::id()));
    let draft = PathBuf::from(draft);
    fs::copy(from, &draft).with_context(|| format!("cannot copy {} to {}", from.display(), draft.display()))?;
    fs::rename(&draft, to).with_context(|| format!("cannot rename {} to {}", draft.display(), to.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_artifact_of_the_right_package_and_kind() {
        let messages = r#"
            {"reason":"compiler-artifact","manifest_path":"/r/crates/hip/Cargo.toml","target":{"kind":["lib"]},"filenames":["/t/libhip.rlib"]}
            not json
            {"reason":"compiler-artifact","manifest_path":"/r/crates/hip-host/Cargo.toml","target":{"kind":["cdylib","rlib"]},"filenames":["/t/libhip_host.rlib","/t/libhip_host.so"]}
            {"reason":"build-finished","success":true}"#;
        let product = Product { package: "hip-host", kind: "cdylib", name: "hip-host" };
        assert_eq!(artifact(messages, &product), Some(PathBuf::from("/t/libhip_host.so")));
        let product = Product { package: "hip", kind: "cdylib", name: "hip" };
        assert_eq!(artifact(messages, &product), None);
    }

    #[test]
    fn copy_replaces_the_file_and_leaves_no_draft() {
        let folder = tempfile::tempdir().unwrap();
        let from = folder.path().join("from");
        let to = folder.path().join("deep/er/to.so");
        for text in ["one", "two"] {
            fs::write(&from, text).unwrap();
            copy_atomically(&from, &to).unwrap();
            assert_eq!(fs::read_to_string(&to).unwrap(), text);
        }
        assert_eq!(fs::read_dir(to.parent().unwrap()).unwrap().count(), 1);
    }
}
