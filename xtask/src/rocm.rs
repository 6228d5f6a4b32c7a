//! The real HIP runtimes from Debian's packages, unpacked under `target/` and used through their own loader.
//!
//! They need a newer C library than the machine may have, so nothing is installed: the packages are unpacked into a
//! folder, and the test binary is started by that folder's `ld-linux`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::shell;
use crate::test::Outcome;
use crate::workspace::Workspace;

/// One HIP runtime to test against.
struct Userland {
    /// Folder under `target/rocm`.
    name: &'static str,
    suites: &'static [&'static str],
    packages: &'static [&'static str],
    library: &'static str,
    /// A target that this version's hiprtc knows; 5.x aborts the process when given a newer one.
    rtc_arch: &'static str,
}

const USERLANDS: [Userland; 2] = [
    Userland {
        name: "rocm-7.2",
        suites: &["forky", "sid", "experimental"],
        packages: &["libhiprtc7", "libamdhip64-7"],
        library: "libamdhip64.so.7",
        rtc_arch: "gfx1100",
    },
    Userland {
        name: "rocm-5.2",
        suites: &["bookworm"],
        packages: &["libamdhip64-5"],
        library: "libamdhip64.so.5",
        rtc_arch: "gfx1030",
    },
];

/// Unpacks what is missing and runs the driver tests of the `hip` crate in each userland.
///
/// # Errors
/// When a test fails. A userland that cannot be had here is a skip.
pub fn run(workspace: &Workspace) -> Result<Outcome> {
    let mirror = match mirror() {
        Ok(mirror) => mirror,
        Err(reason) => return Ok(Outcome::Skipped(reason)),
    };
    let mut notes = Vec::new();
    let mut unpacked = Vec::new();
    for userland in &USERLANDS {
        let folder = workspace.target().join("rocm").join(userland.name);
        match userland.unpack(&folder, &mirror) {
            Ok(()) => {
                notes.push(userland.name.to_owned());
                unpacked.push((userland, folder));
            }
            Err(error) => {
                println!("{} skipped: {error:#}", userland.name);
                let reason = error.to_string();
                notes.push(format!("{} skipped ({})", userland.name, reason.lines().next().unwrap_or_default()));
            }
        }
    }
    let notes = notes.join(", ");
    if unpacked.is_empty() {
        return Ok(Outcome::Skipped(notes));
    }
    let test = driver_test(workspace)?;
    for (userland, folder) in unpacked {
        userland.test(&folder, &test)?;
    }
    Ok(Outcome::Passed(notes))
}

impl Userland {
    fn unpack(&self, folder: &Path, mirror: &Mirror) -> Result<()> {
        let complete = folder.join("complete");
        if complete.exists() {
            return Ok(());
        }
        println!("unpacking {} into target/rocm/{}", self.packages.join(" and "), self.name);
        if folder.exists() {
            fs::remove_dir_all(folder)?;
        }
        let (state, cache, root) = (folder.join("state"), folder.join("cache"), folder.join("root"));
        for made in [state.join("lists/partial"), cache.join("archives/partial"), root.clone()] {
            fs::create_dir_all(&made).with_context(|| format!("cannot create {}", made.display()))?;
        }
        let lines: String = self.suites.iter().map(|suite| mirror.line(suite)).collect();
        fs::write(folder.join("sources.list"), lines)?;
        // An empty package status makes apt fetch every dependency, the C library included.
        fs::write(folder.join("status"), "")?;
        let config = folder.join("apt.conf");
        fs::write(&config, apt_config(folder))?;
        let apt = |arguments: &[&str]| {
            let mut command = Command::new("apt-get");
            command.args(arguments).env("APT_CONFIG", &config).env("DEBIAN_FRONTEND", "noninteractive");
            shell::capture(&mut command)
        };
        apt(&["update", "-q"]).context("the package lists cannot be fetched")?;
        let mut install = vec!["install", "-q", "-y", "--no-install-recommends", "--download-only"];
        install.extend(["-t", self.suites.last().copied().unwrap_or_default()]);
        install.extend(self.packages);
        apt(&install).context("the packages cannot be fetched")?;
        for archive in fs::read_dir(cache.join("archives"))? {
            let archive = archive?.path();
            if archive.extension().is_some_and(|extension| extension == "deb") {
                shell::capture(Command::new("dpkg").arg("-x").arg(&archive).arg(&root))?;
            }
        }
        fs::remove_dir_all(&state)?;
        fs::remove_dir_all(&cache)?;
        self.library(folder)?;
        fs::write(complete, "")?;
        Ok(())
    }

    fn test(&self, folder: &Path, test: &Path) -> Result<()> {
        let root = folder.join("root");
        let loader = first_existing(&root, &["usr/lib64/ld-linux-x86-64.so.2", "lib64/ld-linux-x86-64.so.2"])?;
        let libraries: Vec<String> = library_folders(&root).iter().map(|folder| folder.display().to_string()).collect();
        println!("driver tests with {}", self.name);
        let mut command = Command::new(loader);
        command
            .arg("--library-path")
            .arg(libraries.join(":"))
            .arg(test)
            .env("AMDGPU_EP_HIP_LIBRARY", self.library(folder)?)
            .env("AMDGPU_EP_TEST_REAL_HIP", "1")
            .env("AMDGPU_EP_TEST_HIPRTC_ARCH", self.rtc_arch);
        shell::run(&mut command)
    }

    fn library(&self, folder: &Path) -> Result<PathBuf> {
        let candidates: Vec<PathBuf> =
            library_folders(&folder.join("root")).iter().map(|folder| folder.join(self.library)).collect();
        let found = candidates.into_iter().find(|candidate| candidate.exists());
        found.with_context(|| format!("the packages hold no {}", self.library))
    }
}

fn library_folders(root: &Path) -> [PathBuf; 2] {
    [root.join("usr/lib/x86_64-linux-gnu"), root.join("lib/x86_64-linux-gnu")]
}

fn first_existing(root: &Path, candidates: &[&str]) -> Result<PathBuf> {
    let found = candidates.iter().map(|candidate| root.join(candidate)).find(|path| path.exists());
    found.with_context(|| format!("{} has none of {}", root.display(), candidates.join(", ")))
}

fn apt_config(folder: &Path) -> String {
    let folder = folder.display();
    format!(
        r#"Dir::Etc::sourcelist "{folder}/sources.list";
Dir::Etc::sourceparts "/dev/null";
Dir::Etc::preferencesparts "/dev/null";
Dir::State "{folder}/state";
Dir::Cache "{folder}/cache";
Dir::State::status "{folder}/status";
APT::Sandbox::User "root";
Acquire::Languages "none";
"#
    )
}

/// Where this machine gets Debian from.
#[derive(Debug, PartialEq, Eq)]
struct Mirror {
    uri: String,
    signed_by: Option<String>,
}

impl Mirror {
    fn line(&self, suite: &str) -> String {
        let options = self.signed_by.as_ref().map(|key| format!("[signed-by={key}] ")).unwrap_or_default();
        format!("deb {options}{} {suite} main\n", self.uri)
    }
}

fn mirror() -> Result<Mirror, String> {
    let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
    if !release.lines().any(|line| line.trim() == "ID=debian") {
        return Err("the HIP runtimes come from Debian's packages, and this is not Debian".into());
    }
    if !cfg!(target_arch = "x86_64") || !shell::succeeds("apt-get", &["--version"]) {
        return Err("apt-get on x86-64 is needed to fetch the HIP runtimes".into());
    }
    let mut files = vec![PathBuf::from("/etc/apt/sources.list")];
    let parts = fs::read_dir("/etc/apt/sources.list.d").into_iter().flatten().flatten().map(|entry| entry.path());
    files.extend(parts.filter(|path| path.extension().is_some_and(|e| e == "list" || e == "sources")));
    let texts = files.iter().filter_map(|path| Some((path, fs::read_to_string(path).ok()?)));
    texts
        .into_iter()
        .find_map(
            |(path, text)| {
                if path.extension().is_some_and(|e| e == "sources") { deb822(&text) } else { one_line(&text) }
            },
        )
        .ok_or_else(|| "apt's sources name no Debian mirror".into())
}

/// The archive itself, not the security archive beside it.
fn is_debian(uri: &str) -> bool {
    uri.trim_end_matches('/').ends_with("/debian")
}

fn one_line(text: &str) -> Option<Mirror> {
    text.lines().filter_map(|line| line.trim().strip_prefix("deb ")).find_map(|entry| {
        let (options, entry) = match entry.trim_start().strip_prefix('[') {
            Some(rest) => rest.split_once(']')?,
            None => ("", entry),
        };
        let uri = entry.split_whitespace().next().filter(|uri| is_debian(uri))?;
        let signed_by = options.split_whitespace().find_map(|option| option.strip_prefix("signed-by="));
        Some(Mirror { uri: uri.to_owned(), signed_by: signed_by.map(str::to_owned) })
    })
}

fn deb822(text: &str) -> Option<Mirror> {
    text.split("\n\n").find_map(|stanza| {
        let field = |name: &str| {
            stanza
                .lines()
                .find_map(|line| line.split_once(':').filter(|(key, _)| key.eq_ignore_ascii_case(name)))
                .map(|(_, value)| value.trim())
        };
        field("Types")?.split_whitespace().find(|kind| *kind == "deb")?;
        let uri = field("URIs")?.split_whitespace().find(|uri| is_debian(uri))?;
        // A key written out inside the stanza has no path to refer to.
        let signed_by = field("Signed-By").filter(|key| key.starts_with('/'));
        Some(Mirror { uri: uri.to_owned(), signed_by: signed_by.map(str::to_owned) })
    })
}

fn driver_test(workspace: &Workspace) -> Result<PathBuf> {
    let mut build = shell::cargo(workspace.root());
    build.args(["test", "--package", "hip", "--test", "driver", "--no-run"]);
    build.args(["--message-format", "json-render-diagnostics"]);
    let messages = shell::capture_stdout(&mut build)?;
    shell::executable(&messages, "driver").context("cargo built no test `driver` of package hip")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mirror_is_read_from_a_one_line_entry() {
        let text = "# deb http://old.example/debian bookworm main\n\
                    deb http://mirror.example/debian-security bookworm-security main\n\
                    deb [arch=amd64 signed-by=/k.gpg] http://mirror.example/debian/ bookworm main contrib\n";
        let mirror = one_line(text).unwrap();
        assert_eq!(mirror.line("sid"), "deb [signed-by=/k.gpg] http://mirror.example/debian/ sid main\n");
        let plain = one_line("deb http://mirror.example/debian bookworm main").unwrap();
        assert_eq!(plain.line("forky"), "deb http://mirror.example/debian forky main\n");
        assert_eq!(one_line("deb http://mirror.example/ubuntu noble main"), None);
    }

    #[test]
    fn mirror_is_read_from_a_deb822_stanza() {
        let text = "Types: deb\nURIs: http://mirror.example/debian-security\nSuites: bookworm-security\n\n\
                    Types: deb deb-src\n# a comment\nURIs: http://mirror.example/debian\nSuites: bookworm\nSigned-By: /k.gpg\n";
        let wanted = Mirror { uri: "http://mirror.example/debian".into(), signed_by: Some("/k.gpg".into()) };
        assert_eq!(deb822(text), Some(wanted));
        assert_eq!(deb822("Types: deb-src\nURIs: http://mirror.example/debian\n"), None);
    }
}
