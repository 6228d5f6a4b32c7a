//! Builds the libraries and the command, and gives them the names they ship under.
//!
//! Cargo cannot put a hyphen into a library name, but ONNX Runtime GenAI looks for exactly `libamdgpu-ep.so`. So the
//! build output is copied into a folder with the shipped layout.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::backends::Backends;
use crate::platform::Platform;
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
    /// Cargo's target kind.
    kind: &'static str,
    /// The name it ships under, without the platform's prefix and suffix.
    name: &'static str,
    /// The backend that it belongs to; products without one are always included.
    backend: Option<&'static str>,
}

impl Product {
    fn file(&self, platform: Platform) -> String {
        match self.kind {
            "bin" => platform.program_file(self.name),
            _ => platform.library_file(self.name),
        }
    }
}

const PRODUCTS: &[Product] = &[
    Product { package: "umbrella", kind: "cdylib", name: "amdgpu-ep", backend: None },
    Product { package: "backend-hip", kind: "cdylib", name: "hip-backend", backend: Some("hip") },
    Product { package: "backend-hipgpu", kind: "cdylib", name: "hipgpu-backend", backend: Some("hipgpu") },
    Product { package: "backend-migraphx", kind: "cdylib", name: "migraphx-backend", backend: Some("migraphx") },
    Product { package: "backend-directx", kind: "cdylib", name: "directx-backend", backend: Some("directx") },
    Product { package: "hip-host", kind: "cdylib", name: "hip-host", backend: None },
    Product { package: "hipdnn-cudnn", kind: "cdylib", name: "hipdnn_cudnn", backend: Some("hip") },
    Product { package: "hipdnn-host", kind: "cdylib", name: "hipdnn_host", backend: Some("hip") },
    Product { package: "cli", kind: "bin", name: "amdgpu-ep", backend: None },
];

/// The staged folder.
pub struct Stage {
    pub root: PathBuf,
    pub backends: Backends,
    /// The system that the files are for.
    pub platform: Platform,
}

impl Stage {
    /// The execution provider library.
    pub fn umbrella(&self) -> PathBuf {
        self.library("amdgpu-ep")
    }

    /// The hip backend, which the umbrella loads and tests register directly.
    pub fn backend(&self) -> PathBuf {
        self.library("hip-backend")
    }

    /// The libraries that are plugins: the umbrella and its backends.
    pub fn plugins(&self) -> Vec<PathBuf> {
        let plugins = self.products().filter(|product| product.kind == "cdylib");
        let plugins = plugins.filter(|product| product.name == "amdgpu-ep" || product.name.ends_with("-backend"));
        plugins.map(|product| self.library(product.name)).collect()
    }

    /// The libraries that implement hipDNN's interface.
    pub fn hipdnn_libraries(&self) -> Vec<PathBuf> {
        let ours = self.products().filter(|product| product.name.starts_with("hipdnn_"));
        ours.map(|product| self.library(product.name)).collect()
    }

    /// The path of a staged library by the name it ships under, without prefix and suffix.
    pub fn library(&self, name: &str) -> PathBuf {
        self.root.join("lib").join(self.platform.library_file(name))
    }

    /// The command.
    pub fn command(&self) -> PathBuf {
        self.root.join("bin").join(self.platform.program_file("amdgpu-ep"))
    }

    /// The folder for precompiled kernels, which may not exist.
    pub fn kernels(&self) -> PathBuf {
        self.root.join("lib/kernels")
    }

    /// Every staged library.
    pub fn libraries(&self) -> Vec<PathBuf> {
        let libraries = self.products().filter(|product| product.kind == "cdylib");
        libraries.map(|product| self.library(product.name)).collect()
    }

    /// The shipped files.
    pub fn shipped(&self) -> impl Iterator<Item = Shipped> {
        self.products().map(|product| {
            let is_program = product.kind == "bin";
            Shipped { package: product.package, file: product.file(self.platform), is_program }
        })
    }

    /// The shipped packages.
    pub fn packages(&self) -> Vec<&'static str> {
        self.products().map(|product| product.package).collect()
    }

    /// Copies the files for `backends` into `root`, as if they had been staged there with that selection.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn part(&self, backends: &Backends, root: PathBuf) -> Result<Stage> {
        let part = Stage { root, backends: backends.clone(), platform: self.platform };
        part.fill(|product| Ok(self.path(product)))?;
        Ok(part)
    }

    fn products(&self) -> impl Iterator<Item = &'static Product> {
        products(&self.backends)
    }

    fn path(&self, product: &Product) -> PathBuf {
        self.root.join(if product.kind == "bin" { "bin" } else { "lib" }).join(product.file(self.platform))
    }

    /// Copies each product from the path that `source` returns, and removes those that an earlier selection left
    /// behind.
    fn fill(&self, source: impl Fn(&Product) -> Result<PathBuf>) -> Result<()> {
        for product in PRODUCTS {
            let path = self.path(product);
            if self.backends.include(product.backend) {
                copy_atomically(&source(product)?, &path)?;
            } else if path.exists() {
                fs::remove_file(&path).with_context(|| format!("cannot remove {}", path.display()))?;
            }
        }
        Ok(())
    }
}

/// A shipped file, and the package that it is built from.
pub struct Shipped {
    pub package: &'static str,
    pub file: String,
    pub is_program: bool,
}

/// Builds every product with `profile` and stages it under `target/stage/<profile>`.
///
/// # Errors
/// When the build fails or a file cannot be written.
pub fn run(workspace: &Workspace, profile: Profile) -> Result<Stage> {
    run_with(workspace, profile, &Backends::all())
}

/// As [`run`], with some of the backends.
///
/// # Errors
/// As [`run`].
pub fn run_with(workspace: &Workspace, profile: Profile, backends: &Backends) -> Result<Stage> {
    let root = workspace.target().join("stage").join(profile.name());
    run_into(workspace, profile, backends, root)
}

/// As [`run_with`], into `root`.
///
/// # Errors
/// As [`run`].
pub fn run_into(workspace: &Workspace, profile: Profile, backends: &Backends, root: PathBuf) -> Result<Stage> {
    let mut build = shell::cargo(workspace.root());
    build.args(["build", "--profile", profile.name()]);
    run_build(&mut build, backends, Platform::Host, root)
}

/// Runs `build`, a `cargo build` command with a profile and a target of `platform`, for the products and stages them.
///
/// # Errors
/// When the build fails or a file cannot be written.
pub fn run_build(build: &mut Command, backends: &Backends, platform: Platform, root: PathBuf) -> Result<Stage> {
    let messages = shell::capture_stdout(with_products(build, backends))?;
    let stage = Stage { root, backends: backends.clone(), platform };
    stage.fill(|product| {
        artifact(&messages, product, platform)
            .with_context(|| format!("cargo did not build {} of package {}", product.kind, product.package))
    })?;
    Ok(stage)
}

/// Builds the stand-in for MIGraphX and gives it MIGraphX's name, in a separate folder: it is for tests only.
///
/// # Errors
/// When the build fails or the file cannot be written.
pub fn stand_in(workspace: &Workspace) -> Result<PathBuf> {
    let product = Product { package: "migraphx-standin", kind: "cdylib", name: "migraphx_c", backend: None };
    let mut build = shell::cargo(workspace.root());
    build.args(["build", "--package", product.package]);
    let messages = shell::capture_stdout(with_products(&mut build, &Backends::all()))?;
    let built =
        artifact(&messages, &product, Platform::Host).context("cargo did not build the stand-in for MIGraphX")?;
    let file = workspace.target().join("migraphx-standin").join("libmigraphx_c.so.3");
    copy_atomically(&built, &file)?;
    Ok(file)
}

/// Stages everything under `target/simulate`, with a hip backend that runs kernels under the wave simulator. For tests
/// only.
///
/// # Errors
/// When the build fails or a file cannot be written.
pub fn simulating(workspace: &Workspace) -> Result<Stage> {
    let stage = run_into(workspace, Profile::Dev, &Backends::all(), workspace.target().join("simulate"))?;
    let product = Product { package: "backend-hip", kind: "cdylib", name: "hip-backend", backend: Some("hip") };
    let mut build = shell::cargo(workspace.root());
    build.args(["build", "--features", "backend-hip/simulate"]);
    let messages = shell::capture_stdout(with_products(&mut build, &Backends::all()))?;
    let built =
        artifact(&messages, &product, Platform::Host).context("cargo did not build the backend with the simulator")?;
    copy_atomically(&built, &stage.backend())?;
    Ok(stage)
}

/// Makes `build` select the products and report as JSON. Packages that are built together share their dependencies.
/// Built alone, a package would rebuild some of them with fewer features.
fn with_products<'b>(build: &'b mut Command, backends: &Backends) -> &'b mut Command {
    for product in products(backends) {
        build.args(["--package", product.package]);
    }
    build.args(["--message-format", "json-render-diagnostics"])
}

/// The products for these backends.
fn products(backends: &Backends) -> impl Iterator<Item = &'static Product> {
    PRODUCTS.iter().filter(|product| backends.include(product.backend))
}

/// The file that cargo reports for `product` in its JSON messages.
fn artifact(messages: &str, product: &Product, platform: Platform) -> Option<PathBuf> {
    let suffix = if product.kind == "bin" { platform.program_suffix() } else { platform.library_suffix() };
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

/// Whether a cargo message is about this package.
pub fn is_package(message: &Value, name: &str) -> bool {
    let manifest = message["manifest_path"].as_str().map(Path::new);
    manifest.and_then(Path::parent).is_some_and(|folder| folder.ends_with(name))
}

/// Replaces the file in one step. A process that has the old file loaded keeps it.
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
            {"reason":"compiler-artifact","manifest_path":"/r/crates/hip-host/Cargo.toml","target":{"kind":["cdylib","rlib"]},"filenames":["/w/hip_host.dll","/w/libhip_host.dll.a"]}
            {"reason":"build-finished","success":true}"#;
        let product = Product { package: "hip-host", kind: "cdylib", name: "hip-host", backend: None };
        assert_eq!(artifact(messages, &product, Platform::Host), Some(PathBuf::from("/t/libhip_host.so")));
        assert_eq!(artifact(messages, &product, Platform::Windows), Some(PathBuf::from("/w/hip_host.dll")));
        let product = Product { package: "hip", kind: "cdylib", name: "hip", backend: None };
        assert_eq!(artifact(messages, &product, Platform::Host), None);
    }

    #[test]
    fn a_part_has_its_backends_and_nothing_of_an_earlier_choice() {
        let folder = tempfile::tempdir().unwrap();
        let whole = Stage { root: folder.path().join("whole"), backends: Backends::all(), platform: Platform::Host };
        for product in PRODUCTS {
            let path = whole.path(product);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, product.package).unwrap();
        }
        let root = folder.path().join("part");
        for (backends, wanted) in [
            (
                "hip,migraphx",
                vec!["amdgpu-ep", "hip-backend", "migraphx-backend", "hip-host", "hipdnn_cudnn", "hipdnn_host"],
            ),
            ("migraphx", vec!["amdgpu-ep", "migraphx-backend", "hip-host"]),
            ("none", vec!["amdgpu-ep", "hip-host"]),
        ] {
            let part = whole.part(&backends.parse().unwrap(), root.clone()).unwrap();
            let wanted: Vec<PathBuf> = wanted.into_iter().map(|name| part.library(name)).collect();
            assert_eq!(part.libraries(), wanted, "{backends}");
            assert_eq!(fs::read_dir(root.join("lib")).unwrap().count(), wanted.len(), "{backends}");
            assert!(wanted.iter().all(|file| file.is_file()) && part.command().is_file(), "{backends}");
        }
    }

    #[test]
    fn copy_replaces_the_file_and_leaves_no_temporary_file() {
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
