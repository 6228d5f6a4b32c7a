//! Libraries from Debian packages, unpacked under `target/` and used through their own loader.
//!
//! They may need a newer C library than the machine has, so nothing is installed: the packages are unpacked into a
//! folder, and programs that use them are started by that folder's `ld-linux`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result, bail};

use crate::{output, shell};

/// The package with the program that [`Userland::relocate`] runs.
pub const PATCHELF: &str = "patchelf";

/// apt with private state in a folder, which needs neither root nor the machine's package lists.
pub struct Apt {
    folder: PathBuf,
}

impl Apt {
    /// Empties `folder` and fetches the package lists of `suites`.
    ///
    /// # Errors
    /// When a folder cannot be created or the lists cannot be fetched.
    pub fn new(folder: &Path, mirror: &Mirror, suites: &[&str]) -> Result<Self> {
        if folder.exists() {
            fs::remove_dir_all(folder)?;
        }
        let apt = Self { folder: folder.to_owned() };
        for made in [apt.state().join("lists/partial"), apt.archives().join("partial"), apt.root()] {
            fs::create_dir_all(&made).with_context(|| format!("cannot create {}", made.display()))?;
        }
        let lines: String = suites.iter().map(|suite| mirror.line(suite)).collect();
        fs::write(folder.join("sources.list"), lines)?;
        // With an empty package status, apt fetches every dependency, including the C library.
        fs::write(folder.join("status"), "")?;
        fs::write(folder.join("apt.conf"), config(folder))?;
        apt.get(&["update", "-q"]).context("could not download the package lists")?;
        Ok(apt)
    }

    /// Unpacks packages of `suite` with all of their dependencies.
    ///
    /// # Errors
    /// When a package cannot be fetched or unpacked.
    pub fn unpack_with_dependencies(&self, suite: &str, packages: &[&str]) -> Result<()> {
        let mut install = vec!["install", "-q", "-y", "--no-install-recommends", "--download-only", "-t", suite];
        install.extend(packages);
        self.get(&install).context("could not download the packages")?;
        self.unpack(&[])
    }

    /// Unpacks exactly these packages, except for files that match one of the `tar` patterns in `without`.
    ///
    /// # Errors
    /// When a package cannot be fetched or unpacked.
    pub fn unpack_only(&self, packages: &[&str], without: &[&str]) -> Result<()> {
        let mut download = vec!["download", "-q"];
        download.extend(packages);
        self.get(&download).context("could not download the packages")?;
        self.unpack(without)
    }

    fn unpack(&self, without: &[&str]) -> Result<()> {
        for archive in fs::read_dir(self.archives())? {
            let archive = archive?.path();
            if archive.extension().is_some_and(|extension| extension == "deb") {
                let mut pipe = Command::new("bash");
                pipe.args(["-o", "pipefail", "-c", r#"dpkg-deb --fsys-tarfile "$0" | tar x -C "$1" "${@:2}""#]);
                pipe.arg(&archive).arg(self.root());
                pipe.args(without.iter().map(|pattern| format!("--exclude={pattern}")));
                shell::capture(&mut pipe)?;
            }
        }
        fs::remove_dir_all(self.state())?;
        fs::remove_dir_all(self.folder.join("cache"))?;
        Ok(())
    }

    fn get(&self, arguments: &[&str]) -> Result<String> {
        let mut command = Command::new("apt-get");
        command
            .args(arguments)
            // `apt-get download` writes to the current folder.
            .current_dir(self.archives())
            .env("APT_CONFIG", self.folder.join("apt.conf"))
            .env("DEBIAN_FRONTEND", "noninteractive");
        shell::capture(&mut command)
    }

    fn state(&self) -> PathBuf {
        self.folder.join("state")
    }

    fn archives(&self) -> PathBuf {
        self.folder.join("cache/archives")
    }

    fn root(&self) -> PathBuf {
        self.folder.join("root")
    }
}

/// Installs packages on this machine unless all `programs` are there. Needs Debian or a relative of it, and root.
///
/// # Errors
/// Says why the programs are not available.
pub fn install(programs: &[&str], packages: &[&str]) -> Result<(), String> {
    let missing: Vec<&str> =
        programs.iter().copied().filter(|program| !shell::succeeds(program, &["--version"])).collect();
    if missing.is_empty() {
        return Ok(());
    }
    // Steps run in parallel, but apt-get does not.
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let missing = missing.join(" and ");
    let root = shell::capture(Command::new("id").arg("-u")).is_ok_and(|id| id.trim() == "0");
    if !root || !shell::succeeds("apt-get", &["--version"]) {
        return Err(format!("cannot run {missing}, and installing packages needs root and apt-get"));
    }
    output::say(format_args!("installing {} with apt-get", packages.join(" ")));
    let mut apt = Command::new("sh");
    apt.args(["-c", r#"apt-get update -q && apt-get install -q -y --no-install-recommends "$@""#, "sh"]).args(packages);
    shell::capture(apt.env("DEBIAN_FRONTEND", "noninteractive")).map_err(|error| {
        format!(
            "cannot run {missing}, and apt-get cannot install it: {}",
            error.to_string().lines().last().unwrap_or_default().trim()
        )
    })?;
    Ok(())
}

/// A folder of unpacked packages.
pub struct Userland {
    root: PathBuf,
}

impl Userland {
    /// The packages that an [`Apt`] unpacked in its folder.
    pub fn of(folder: &Path) -> Self {
        Self { root: folder.join("root") }
    }

    /// The folders of its libraries.
    pub fn library_folders(&self) -> [PathBuf; 2] {
        [self.root.join("usr/lib/x86_64-linux-gnu"), self.root.join("lib/x86_64-linux-gnu")]
    }

    /// Finds a library by name.
    ///
    /// # Errors
    /// When it does not exist.
    pub fn library(&self, name: &str) -> Result<PathBuf> {
        let candidates = self.library_folders().map(|folder| folder.join(name));
        let found = candidates.into_iter().find(|candidate| candidate.exists());
        found.with_context(|| format!("the packages do not contain {name}"))
    }

    /// The command-line prefix that makes a program use this folder's libraries, and those in the folders `more`.
    ///
    /// # Errors
    /// When the packages contain no loader.
    pub fn loader(&self, more: &[PathBuf]) -> Result<Vec<String>> {
        let names = ["usr/lib64/ld-linux-x86-64.so.2", "lib64/ld-linux-x86-64.so.2"];
        let Some(loader) = names.iter().map(|name| self.root.join(name)).find(|path| path.exists()) else {
            bail!("{} has none of {}", self.root.display(), names.join(", "));
        };
        let folders = self.library_folders();
        let folders: Vec<String> = folders.iter().chain(more).map(|folder| folder.display().to_string()).collect();
        Ok(vec![loader.display().to_string(), "--library-path".to_owned(), folders.join(":")])
    }
}

impl Userland {
    /// Makes a program of this folder use the folder's loader and libraries, however it is started. Needs the package
    /// [`PATCHELF`] in the folder.
    ///
    /// # Errors
    /// When the program or the packages are incomplete.
    pub fn relocate(&self, program: &Path) -> Result<()> {
        let loader = self.loader(&[])?;
        let mut patch = Command::new(&loader[0]);
        patch.args(&loader[1..]).arg(self.root.join("usr/bin/patchelf"));
        // Unlike the newer kind of path, this one also applies to the libraries of its libraries.
        patch.args(["--force-rpath", "--set-rpath", &loader[2], "--set-interpreter", &loader[0]]);
        shell::capture(patch.arg(program)).map(drop)
    }

    /// Makes a library of this folder look for its libraries only where the program that loads it does.
    ///
    /// # Errors
    /// When the library or the packages are incomplete.
    pub fn drop_own_path(&self, library: &Path) -> Result<()> {
        let loader = self.loader(&[])?;
        let mut patch = Command::new(&loader[0]);
        patch.args(&loader[1..]).arg(self.root.join("usr/bin/patchelf")).arg("--remove-rpath");
        shell::capture(patch.arg(library)).map(drop)
    }

    /// Writes a script that starts a Python interpreter with the libraries of this folder and of the folders `more`
    /// ahead of the system's. The script also works when another program starts it.
    ///
    /// # Errors
    /// When there is no such interpreter, or the script cannot be written.
    pub fn interpreter(&self, python: &Path, script: &Path, more: &[PathBuf]) -> Result<()> {
        // The program that the environment's link points to; its name selects the environment.
        let program = fs::canonicalize(python).with_context(|| format!("there is no {}", python.display()))?;
        let system = ["/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu"].map(PathBuf::from);
        let mut words = self.loader(&[more, &system].concat())?;
        words.extend(["--argv0", &python.display().to_string(), &program.display().to_string()].map(str::to_owned));
        let quoted: Vec<String> = words.iter().map(|word| format!("'{}'", word.replace('\'', r"'\''"))).collect();
        fs::write(script, format!("#!/bin/sh\nexec {} \"$@\"\n", quoted.join(" ")))?;
        shell::capture(Command::new("chmod").arg("+x").arg(script))?;
        Ok(())
    }
}

fn config(folder: &Path) -> String {
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
Acquire::Retries "5";
"#
    )
}

/// The Debian mirror of this machine.
#[derive(Debug, PartialEq, Eq)]
pub struct Mirror {
    uri: String,
    signed_by: Option<String>,
}

impl Mirror {
    fn line(&self, suite: &str) -> String {
        let options = self.signed_by.as_ref().map(|key| format!("[signed-by={key}] ")).unwrap_or_default();
        format!("deb {options}{} {suite} main\n", self.uri)
    }
}

/// Reads the mirror from apt's sources.
///
/// # Errors
/// Why packages are not available here.
pub fn mirror() -> Result<Mirror, String> {
    let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
    if !release.lines().any(|line| line.trim() == "ID=debian") {
        return Err("these libraries come from Debian's packages, but this is not Debian".into());
    }
    if !cfg!(target_arch = "x86_64") || !shell::succeeds("apt-get", &["--version"]) {
        return Err("downloading these libraries needs apt-get on x86-64".into());
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
        .ok_or_else(|| "no Debian mirror in apt's sources".into())
}

/// Whether this is the main archive, not the security archive.
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
        // An inline key has no path to refer to.
        let signed_by = field("Signed-By").filter(|key| key.starts_with('/'));
        Some(Mirror { uri: uri.to_owned(), signed_by: signed_by.map(str::to_owned) })
    })
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
