//! Runs the built command as a user would, in prefixes and environments created by the tests.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "test helpers may panic")]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;
use testkit::place;

/// An installation: `bin/amdgpu-ep` and an empty `lib/`.
struct Prefix(TempDir);

impl Prefix {
    fn new() -> Prefix {
        // On the same disk as cargo's files, so that the executable can be hard-linked: a copy could still be open for
        // writing when another test starts a process.
        let prefix = Prefix(tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap());
        for folder in ["bin", "lib", "home"] {
            fs::create_dir(prefix.path(folder)).unwrap();
        }
        fs::hard_link(env!("CARGO_BIN_EXE_amdgpu-ep"), prefix.path("bin/amdgpu-ep")).unwrap();
        prefix
    }

    fn path(&self, relative: &str) -> PathBuf {
        self.0.path().join(relative)
    }

    /// The command with only a home folder in its environment: no Python, no variables of the machine.
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(self.path("bin/amdgpu-ep"));
        command.args(arguments).env_clear().env("HOME", self.path("home")).env("PATH", self.path("home"));
        // Where a coverage build writes its profile; otherwise it would write to the current folder.
        command.envs(std::env::var_os("LLVM_PROFILE_FILE").map(|file| ("LLVM_PROFILE_FILE", file)));
        command
    }

    /// The JSON document. Also checks the exit status.
    fn report(&self, variables: &[(&str, &Path)]) -> Value {
        let mut command = self.command(&["doctor", "--json"]);
        command.envs(variables.iter().copied());
        parsed(&command.output().unwrap())
    }

    /// The report about one ONNX Runtime library.
    fn onnxruntime(&self, file: &Path) -> Value {
        let report = self.report(&[("ORT_DYLIB_PATH", file)]);
        let libraries = report["onnxruntime"]["libraries"].as_array().unwrap();
        let at_place = |library: &&Value| library["place"] == "ORT_DYLIB_PATH";
        libraries.iter().find(at_place).unwrap_or_else(|| panic!("{report:#}")).clone()
    }

    /// A library compiled from C, or `None` with a printed reason if there is no compiler.
    fn compiled(&self, name: &str, source: &str) -> Option<PathBuf> {
        let (input, output) = (self.path("home").join(format!("{name}.c")), self.path("home").join(name));
        fs::write(&input, source).unwrap();
        let compiler = Command::new("cc").args(["-shared", "-fPIC", "-o"]).args([&output, &input]).output();
        match compiler {
            Ok(done) => assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr)),
            Err(error) => {
                println!("skipped: no C compiler: {error}");
                return None;
            }
        }
        Some(output)
    }
}

#[track_caller]
fn parsed(output: &Output) -> Value {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(stderr, "", "stderr is for failures of the command itself, and for terminals");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["schema"], 1);
    assert_eq!(report["verdict"]["exit_code"], output.status.code().unwrap(), "{:#}", report["verdict"]);
    report
}

fn driver<'a>(report: &'a Value, kind: &str) -> &'a Value {
    report["drivers"].as_array().unwrap().iter().find(|driver| driver["kind"] == kind).unwrap()
}

fn hipdnn<'a>(report: &'a Value, driver: &str) -> &'a Value {
    report["hipdnn"].as_array().unwrap().iter().find(|library| library["driver"] == driver).unwrap()
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap().to_owned()
}

/// A C library that pretends to be a given version of ONNX Runtime.
fn pretender(version: &str) -> String {
    format!(
        "static const void *table[600];
         static const void *get_api(unsigned version) {{ return version <= 31 ? table : 0; }}
         static const char *get_version(void) {{ return \"{version}\"; }}
         static const struct {{ const void *(*api)(unsigned); const char *(*version)(void); }} base = {{get_api, get_version}};
         const void *OrtGetApiBase(void) {{ return &base; }}"
    )
}

#[test]
fn a_bare_machine_gets_a_complete_document() {
    let report = Prefix::new().report(&[]);
    let keys: Vec<&str> = report.as_object().unwrap().keys().map(String::as_str).collect();
    for key in [
        "schema",
        "version",
        "verdict",
        "drivers",
        "environment",
        "kernel",
        "onnxruntime",
        "hipdnn",
        "rocm",
        "plugin",
        "cache",
    ] {
        assert!(keys.contains(&key), "{key} in {keys:?}");
    }
    assert_eq!(report["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(report["environment"]["session_driver"], "amd");
    let kinds: Vec<&Value> = report["drivers"].as_array().unwrap().iter().map(|driver| &driver["kind"]).collect();
    assert_eq!(kinds, ["amd", "nvidia", "host"]);
    for driver in report["drivers"].as_array().unwrap() {
        assert_eq!(driver["probe"], "answered", "{driver:#}");
    }
    for driver in ["amd", "nvidia", "host"] {
        let library = hipdnn(&report, driver);
        assert_eq!(library["path"], Value::Null, "{library:#}");
        let error = library["error"].as_str().unwrap();
        assert!(error == "no hipDNN backend library was found" || error.ends_with(" is not installed"), "{error}");
        assert!(!library["attempts"].as_array().unwrap().is_empty());
    }
    assert_eq!(report["plugin"]["path"], Value::Null);
    assert_eq!(report["verdict"]["exit_code"], 1, "there is no plugin in the prefix: {:#}", report["verdict"]);
}

#[test]
fn text_begins_with_the_verdict_and_the_next_step() {
    let output = Prefix::new().command(&["doctor"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8(output.stdout).unwrap();
    for section in ["\nDrivers (sessions use amd)\n", "\nEnvironment\n", "\nONNX Runtime\n", "\nPlugin\n", "\nCache\n"]
    {
        assert!(text.contains(section), "{section} in\n{text}");
    }
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[2].starts_with("Verdict: ") && lines[3].starts_with("Next:    "), "{text}");
    if !text.contains("  nvidia: ") {
        assert!(!text.contains("libcuda") && !text.contains("hipdnn_cudnn"), "CUDA is not installed:\n{text}");
    }
    assert!(!text.contains('\u{1b}'), "colour without a terminal");
}

#[test]
fn usage_errors_exit_with_2_and_help_lists_the_codes() {
    let prefix = Prefix::new();
    for arguments in [&["doctor", "--colour"][..], &["doctor", "--timeout", "0"], &["nonsense"], &[]] {
        let output = prefix.command(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(output.stdout.is_empty());
    }
    let help = String::from_utf8(prefix.command(&["doctor", "--help"]).output().unwrap().stdout).unwrap();
    for code in ["\n  0  an AMD GPU", "\n  1  it cannot", "\n  2  wrong usage"] {
        assert!(help.contains(code), "{help}");
    }
    let help = String::from_utf8(prefix.command(&["--help"]).output().unwrap().stdout).unwrap();
    assert!(help.contains("doctor") && !help.contains("probe"), "{help}");
    let version = prefix.command(&["--version"]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&version.stdout), concat!("amdgpu-ep ", env!("CARGO_PKG_VERSION"), "\n"));
}

#[test]
fn closed_pipe_is_a_normal_exit() {
    let prefix = Prefix::new();
    for arguments in [&["doctor"][..], &["doctor", "--json"]] {
        let mut child = prefix.command(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(1), &b""[..]));
    }
}

#[test]
fn a_text_file_is_not_onnxruntime() {
    let prefix = Prefix::new();
    let file = prefix.path("home/libonnxruntime.so");
    fs::write(&file, "this is not a library\n").unwrap();
    let library = prefix.onnxruntime(&file);
    assert_eq!((&library["support"], &library["api_version"]), (&"broken".into(), &Value::Null));
    let reason = library["reason"].as_str().unwrap();
    assert!(reason.contains("file too short") || reason.contains("invalid ELF header"), "{reason}");
}

#[test]
fn a_missing_file_is_not_onnxruntime() {
    let library = Prefix::new().onnxruntime(Path::new("/nowhere/--help"));
    assert!(library["reason"].as_str().unwrap().contains("No such file"), "{library:#}");
}

#[test]
fn another_library_is_not_onnxruntime() {
    let library = Prefix::new().onnxruntime(Path::new("libc.so.6"));
    assert_eq!(library["support"], "broken");
    assert_eq!(library["reason"], "it opens, but has no OrtGetApiBase: this is not ONNX Runtime");
}

#[test]
fn library_that_aborts_is_a_finding() {
    let prefix = Prefix::new();
    let source = "#include <stdio.h>\n#include <stdlib.h>
        __attribute__((constructor)) static void start(void) { fputs(\"no luck today\\n\", stderr); abort(); }";
    let Some(file) = prefix.compiled("abort.so", source) else { return };
    let library = prefix.onnxruntime(&file);
    assert_eq!(library["support"], "broken");
    let reason = library["reason"].as_str().unwrap();
    assert_eq!(reason, "opening it failed: ended by SIGABRT (signal 6); last line on stderr: no luck today");

    let report = prefix.report(&[("AMDGPU_EP_HIP_LIBRARY", &file)]);
    assert_eq!(driver(&report, "amd")["probe"], "crashed");
    assert_eq!(driver(&report, "host")["probe"], "answered");
    assert_eq!(report["verdict"]["code"], "driver-failed");

    fs::copy(&file, prefix.path("lib/libamdgpu-ep.so")).unwrap();
    let report = prefix.report(&[]);
    assert!(report["plugin"]["error"].as_str().unwrap().contains("SIGABRT"), "{:#}", report["plugin"]);
}

#[test]
fn library_that_ends_the_process_is_a_finding() {
    let prefix = Prefix::new();
    let source = "#include <unistd.h>\n__attribute__((constructor)) static void start(void) { _exit(0); }";
    let Some(file) = prefix.compiled("exit.so", source) else { return };
    assert_eq!(prefix.onnxruntime(&file)["reason"], "ended without an answer");
}

#[test]
fn library_that_hangs_is_a_finding() {
    let prefix = Prefix::new();
    let source = "#include <unistd.h>\n__attribute__((constructor)) static void start(void) { for (;;) pause(); }";
    let Some(file) = prefix.compiled("hang.so", source) else { return };
    let mut command = prefix.command(&["doctor", "--json", "--timeout", "5"]);
    let report = parsed(&command.env("AMDGPU_EP_HIP_LIBRARY", &file).output().unwrap());
    assert_eq!(driver(&report, "amd")["probe"], "timed-out");
    assert_eq!(driver(&report, "amd")["probe_detail"], "no answer after 5 s");
    assert_eq!(report["verdict"]["code"], "driver-failed");
}

#[test]
fn library_that_prints_and_crashes_at_the_end_still_counts() {
    let prefix = Prefix::new();
    let noise = "#include <stdio.h>\n#include <stdlib.h>
        __attribute__((constructor)) static void start(void) { printf(\"banner without an end\"); fflush(stdout); }
        __attribute__((destructor)) static void stop(void) { abort(); }\n";
    let Some(file) = prefix.compiled("noisy.so", &(noise.to_owned() + &pretender("1.29.0"))) else { return };
    let library = prefix.onnxruntime(&file);
    assert_eq!((&library["support"], &library["api_version"]), (&"supported".into(), &29.into()), "{library:#}");
    assert_eq!(library["reason"], "ended by SIGABRT (signal 6) after it had answered");
}

#[test]
fn version_decides_which_api_is_used() {
    let prefix = Prefix::new();
    for (version, support, api_version) in [
        ("1.23.2", "too-old", Value::Null),
        ("1.24.0", "supported", 24.into()),
        ("1.31.1", "supported", 31.into()),
        ("1.40.0", "newer", 31.into()),
        ("unreadable", "supported", 31.into()),
    ] {
        let Some(file) = prefix.compiled(&format!("ort-{version}.so"), &pretender(version)) else { return };
        let library = prefix.onnxruntime(&file);
        assert_eq!((&library["support"], &library["api_version"]), (&support.into(), &api_version), "{library:#}");
        assert_eq!(library["version"], version);
    }
}

#[test]
fn library_beside_the_command_is_found_once() {
    let prefix = Prefix::new();
    let Some(file) = prefix.compiled("libonnxruntime.so.1.27.0", &pretender("1.27.0")) else { return };
    fs::rename(file, prefix.path("lib/libonnxruntime.so.1.27.0")).unwrap();
    symlink("libonnxruntime.so.1.27.0", prefix.path("lib/libonnxruntime.so")).unwrap();
    let report = prefix.report(&[("LD_LIBRARY_PATH", &prefix.path("lib"))]);
    let libraries = report["onnxruntime"]["libraries"].as_array().unwrap();
    assert_eq!(libraries.len(), 1, "{libraries:#?}");
    assert_eq!((&libraries[0]["place"], &libraries[0]["api_version"]), (&"beside amdgpu-ep".into(), &27.into()));
}

#[test]
fn library_on_the_loaders_path_is_found_with_its_file() {
    let prefix = Prefix::new();
    let Some(file) = prefix.compiled("libonnxruntime.so.1", &pretender("1.27.0")) else { return };
    let report = prefix.report(&[("LD_LIBRARY_PATH", file.parent().unwrap())]);
    let libraries = report["onnxruntime"]["libraries"].as_array().unwrap();
    assert_eq!(libraries[0]["place"], "the system's loader", "{libraries:#?}");
    assert_eq!(libraries[0]["path"], file.to_str().unwrap());
}

#[test]
fn python_package_is_found_without_importing_it() {
    if let Err(error) = Command::new("python3").arg("--version").output() {
        println!("skipped: no python3: {error}");
        return;
    }
    let prefix = Prefix::new();
    let package = prefix.path("home/packages/onnxruntime");
    fs::create_dir_all(&package).unwrap();
    fs::write(package.join("__init__.py"), "__version__ = \"1.17.0\"\nraise SystemExit('imported')\n").unwrap();
    // A checkout of ONNX Runtime in the current folder does not count as an installation.
    fs::create_dir(prefix.path("home/onnxruntime")).unwrap();
    fs::write(prefix.path("home/onnxruntime/__init__.py"), "__version__ = \"1.31.0\"\n").unwrap();
    let mut command = prefix.command(&["doctor", "--json"]);
    command.current_dir(prefix.path("home")).env("PATH", std::env::var_os("PATH").unwrap_or_default());
    command.env("PYTHONPATH", prefix.path("home/packages"));
    let report = parsed(&command.output().unwrap());
    let libraries = report["onnxruntime"]["libraries"].as_array().unwrap();
    let found = libraries.iter().find(|library| library["place"] == "python3 on PATH").unwrap();
    assert_eq!((&found["version"], &found["support"]), (&"1.17.0".into(), &"too-old".into()));
    assert_eq!(found["path"], package.to_str().unwrap());
}

#[test]
fn real_onnxruntimes_are_supported_at_their_own_version() {
    let prefix = Prefix::new();
    let folders = fs::read_dir(repository().join("target/ort")).into_iter().flatten().flatten();
    let mut count = 0;
    for version in folders.map(|entry| entry.file_name().to_string_lossy().into_owned()) {
        let file = repository().join(format!("target/ort/{version}/onnxruntime/capi/libonnxruntime.so.{version}"));
        if !file.exists() {
            continue;
        }
        let library = prefix.onnxruntime(&file);
        let minor: u32 = version.split('.').nth(1).unwrap().parse().unwrap();
        assert_eq!((&library["version"], &library["support"]), (&version.into(), &"supported".into()));
        assert_eq!((&library["api_version"], &library["reason"]), (&minor.into(), &Value::Null));
        count += 1;
    }
    if count == 0 {
        println!("skipped: no ONNX Runtime in target/ort; cargo xtask setup fetches some");
    }
}

#[test]
fn named_driver_that_is_not_installed_says_what_to_do() {
    let prefix = Prefix::new();
    let missing = prefix.path("lib/libhip-host.so");
    let variables = [("AMDGPU_EP_DRIVER", Path::new("host")), ("AMDGPU_EP_HIP_HOST_LIBRARY", &missing)];
    let report = prefix.report(&variables);
    assert_eq!(
        (&report["verdict"]["code"], &report["environment"]["session_driver"]),
        (&"no-runtime".into(), &"host".into())
    );
    let attempts = &driver(&report, "host")["libraries"][0]["attempts"];
    assert_eq!(attempts[0]["reason"], "no such file", "{attempts:#}");
}

#[test]
fn staged_libraries_work_with_the_host_driver_but_are_not_an_amd_gpu() {
    let prefix = Prefix::new();
    for name in ["amdgpu-ep", "hip-host"] {
        match place::staged_library(name) {
            Ok(staged) => symlink(staged, prefix.path("lib").join(format!("lib{name}.so"))).unwrap(),
            Err(reason) => return println!("skipped: {reason}"),
        }
    }
    let Some(file) = prefix.compiled("libonnxruntime.so", &pretender("1.30.0")) else { return };
    let report = prefix.report(&[("AMDGPU_EP_DRIVER", Path::new("host")), ("ORT_DYLIB_PATH", &file)]);
    assert_eq!(report["verdict"]["code"], "other-driver", "{:#}", report["verdict"]);
    let device = &driver(&report, "host")["devices"][0];
    assert_eq!(device["arch"], "host");
    assert!(device["memory_bytes"].as_u64().unwrap() > 0);
    assert_eq!(report["plugin"]["error"], Value::Null);
    assert_eq!(report["plugin"]["host_driver"], prefix.path("lib/libhip-host.so").to_str().unwrap());
    assert_eq!(report["plugin"]["backends"].as_array().unwrap().len(), 0);
}

#[test]
fn a_hipdnn_library_beside_the_command_lists_its_engines() {
    let prefix = Prefix::new();
    let file = prefix.path("lib/libhipdnn_host.so");
    match place::staged_library("hipdnn_host") {
        Ok(staged) => symlink(staged, &file).unwrap(),
        Err(reason) => return println!("skipped: {reason}"),
    }
    let report = prefix.report(&[]);
    let library = hipdnn(&report, "host");
    assert_eq!((&library["error"], &library["version"]), (&Value::Null, &"0.4.0.host".into()), "{library:#}");
    assert_eq!(library["engines"][0]["name"], "HOST_CPU_ENGINE");
    assert_eq!(library["engines"][0]["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(library["plugins"].as_array().unwrap().len(), 0);
    let text = String::from_utf8(prefix.command(&["doctor"]).output().unwrap().stdout).unwrap();
    assert!(text.contains("\n    engine HOST_CPU_ENGINE (hipdnn-host "), "{text}");

    let report = prefix.report(&[("AMDGPU_EP_HIPDNN_LIBRARY", &file)]);
    for driver in ["amd", "nvidia", "host"] {
        assert_eq!(hipdnn(&report, driver)["engines"][0]["name"], "HOST_CPU_ENGINE", "{report:#}");
    }
}

#[test]
fn a_hipdnn_library_that_is_invalid_or_too_new_or_crashes_is_a_finding() {
    let prefix = Prefix::new();
    let names = ["Create", "Destroy", "SetStream", "BackendCreateDescriptor", "BackendDestroyDescriptor"];
    let more = ["BackendExecute", "BackendFinalize", "BackendGetAttribute", "BackendSetAttribute"];
    let functions: String = names.iter().chain(&more).map(|name| format!("void hipdnn{name}(void) {{}}\n")).collect();
    let functions = functions + "void hipdnnBackendGetSerializedBinaryGraph_ext(void) {}\n";
    let version = |text: &str| format!("const char *hipdnnVersionString_ext(void) {{ return \"{text}\"; }}\n");
    let abort = "#include <stdlib.h>\nconst char *hipdnnVersionString_ext(void) { abort(); }\n";
    for (name, source, wanted) in [
        ("none.so", version("0.4.0"), "is not a usable hipDNN backend: it lacks hipdnnCreate, "),
        (
            "new.so",
            functions.clone() + &version("9.0.0.x"),
            "is hipDNN 9.0.0.x, but this program supports major version 0",
        ),
        ("crash.so", functions.clone() + abort, "ended by SIGABRT"),
    ] {
        let Some(file) = prefix.compiled(name, &source) else { return };
        let report = prefix.report(&[("AMDGPU_EP_HIPDNN_LIBRARY", &file)]);
        let error = hipdnn(&report, "amd")["error"].as_str().unwrap();
        assert!(error.contains(wanted), "{error}");
    }
}

#[test]
fn backends_are_loaded_and_a_broken_one_is_ruled_out() {
    let prefix = Prefix::new();
    let found = place::onnxruntime().and_then(|ort| {
        for name in ["amdgpu-ep", "hip-host", "hip-backend", "hipgpu-backend"] {
            symlink(place::staged_library(name)?, prefix.path("lib").join(format!("lib{name}.so")))?;
        }
        Ok(ort)
    });
    let ort = match found {
        Ok(ort) => ort,
        Err(reason) => return println!("skipped: {reason}"),
    };
    fs::write(prefix.path("lib/libmigraphx-backend.so"), "not a library").unwrap();
    let variables = [("AMDGPU_EP_FORCE_ARCH", Path::new("gfx1151")), ("ORT_DYLIB_PATH", &ort)];
    let report = prefix.report(&variables);
    let backends = report["plugin"]["backends"].as_array().unwrap();
    let named = |name: &str| backends.iter().find(|backend| backend["name"] == name).unwrap();
    assert_eq!((&named("hip")["error"], &named("hip")["version"]), (&Value::Null, &env!("CARGO_PKG_VERSION").into()));
    for (name, wanted) in [("hipgpu", "could not load the plugin hipgpu"), ("migraphx", "file too short")] {
        let error = named(name)["error"].as_str().unwrap();
        assert!(error.contains(wanted), "{error}");
    }
    let routing = &report["routing"];
    assert_eq!((&routing["arch"], &routing["forced"]), (&"gfx1151".into(), &true.into()));
    let candidates = routing["candidates"].as_array().unwrap();
    assert_eq!(candidates.len(), 1, "{routing:#}");
    assert_eq!(candidates[0]["backend"], "hip");
    let out: Vec<_> = routing["ruled_out"].as_array().unwrap().iter().map(|step| &step["backend"]).collect();
    assert_eq!(out, ["migraphx", "hipgpu"]);
}

/// The path, version and release of a ROCm library in the report.
fn rocm<'a>(report: &'a Value, name: &str) -> [&'a Value; 3] {
    let libraries = report["rocm"].as_array().unwrap();
    let library = libraries.iter().find(|library| library["name"] == name).unwrap();
    ["path", "version", "release"].map(|key| &library[key])
}

/// Creates the host driver and a library with MIGraphX's name, as in an installation of ROCm. Returns `false`, with a
/// printed reason, if they cannot be created.
fn install_rocm(prefix: &Prefix, core: &Path, libraries: &Path) -> bool {
    let Some(migraphx) = prefix.compiled("migraphx.so", "void migraphx_program_destroy(void) {}") else { return false };
    let hip = match place::staged_library("hip-host") {
        Ok(hip) => hip,
        Err(reason) => {
            println!("skipped: {reason}");
            return false;
        }
    };
    for folder in [core, libraries] {
        fs::create_dir_all(folder).unwrap();
    }
    fs::copy(hip, core.join("libamdhip64.so.7.2.9")).unwrap();
    symlink("libamdhip64.so.7.2.9", core.join("libamdhip64.so.7")).unwrap();
    fs::copy(migraphx, libraries.join("libmigraphx_c.so.3")).unwrap();
    true
}

#[test]
fn libraries_of_therock_are_found_with_their_versions() {
    let prefix = Prefix::new();
    let lib = prefix.path("therock/lib");
    if !install_rocm(&prefix, &lib, &lib.join("migraphx/lib")) {
        return;
    }
    fs::create_dir(prefix.path("therock/.info")).unwrap();
    fs::write(prefix.path("therock/.info/version"), "7.10.0-1\n").unwrap();
    let report = prefix.report(&[("THEROCK_DIST", &prefix.path("therock"))]);
    let file = |name: &str| Value::from(lib.join(name).to_str().unwrap());
    let (version, release) = ("7.2.9".into(), "7.10.0-1".into());
    assert_eq!(rocm(&report, "HIP runtime"), [&file("libamdhip64.so.7"), &version, &release], "{report:#}");
    let wanted = [&file("migraphx/lib/libmigraphx_c.so.3"), &"3".into(), &release];
    assert_eq!(rocm(&report, "MIGraphX"), wanted);
    assert_eq!(report["rocm"][4]["is_foreign"], false);
    assert_eq!(rocm(&report, "hipDNN"), [&Value::Null; 3]);
    let attempts = driver(&report, "amd")["libraries"][1]["attempts"].to_string();
    assert!(attempts.contains(lib.join("libhiprtc.so.7").to_str().unwrap()), "{attempts}");

    let mut text = prefix.command(&["doctor"]);
    let text = String::from_utf8(text.env("THEROCK_DIST", prefix.path("therock")).output().unwrap().stdout).unwrap();
    let line = format!("  HIP runtime: {}/libamdhip64.so.7 (version 7.2.9, ROCm 7.10.0-1)\n", lib.display());
    assert!(text.contains(&line), "{text}");
}

#[test]
fn libraries_of_python_packages_are_found_from_a_package_beside_them() {
    if Path::new("/opt/rocm").exists() {
        return println!("skipped: the ROCm of this machine comes first");
    }
    let prefix = Prefix::new();
    let site = prefix.path("lib/python3.12/site-packages");
    let [core, libraries] = ["core", "libraries_custom"].map(|part| site.join(format!("_rocm_sdk_{part}/lib")));
    if !install_rocm(&prefix, &core, &libraries) {
        return;
    }
    fs::create_dir(site.join("rocm_sdk_core-7.10.0.dist-info")).unwrap();
    fs::create_dir_all(site.join("amdgpu_ep/bin")).unwrap();
    let command = site.join("amdgpu_ep/bin/amdgpu-ep");
    fs::hard_link(prefix.path("bin/amdgpu-ep"), &command).unwrap();
    let mut command = Command::new(command);
    command.args(["doctor", "--json"]).env_clear().env("HOME", prefix.path("home"));
    let report = parsed(&command.output().unwrap());
    let hip = Value::from(core.join("libamdhip64.so.7").to_str().unwrap());
    assert_eq!(rocm(&report, "HIP runtime"), [&hip, &"7.2.9".into(), &"7.10.0".into()], "{report:#}");
    assert_eq!(rocm(&report, "MIGraphX")[0], libraries.join("libmigraphx_c.so.3").to_str().unwrap());
    assert_eq!(report["rocm"][4]["is_foreign"], false, "the packages are one installation");
}

#[test]
fn library_of_another_rocm_is_noted() {
    let prefix = Prefix::new();
    if !install_rocm(&prefix, &prefix.path("one/lib"), &prefix.path("two/lib")) {
        return;
    }
    let roots = [("THEROCK_DIST", prefix.path("one")), ("ROCM_PATH", prefix.path("two"))];
    let report = prefix.report(&roots.each_ref().map(|(name, root)| (*name, root.as_path())));
    assert_eq!(report["rocm"][4]["is_foreign"], true, "{report:#}");
    let notes = report["verdict"]["notes"].to_string();
    assert!(notes.contains("MIGraphX comes from a different ROCm installation than the HIP runtime: "), "{notes}");
}

#[test]
fn cache_folder_is_measured() {
    let prefix = Prefix::new();
    let cache = prefix.path("home/.cache/amdgpu-ep/gfx1100");
    fs::create_dir_all(&cache).unwrap();
    fs::write(cache.join("kernel"), [0; 5000]).unwrap();
    let report = prefix.report(&[]);
    assert_eq!((&report["cache"]["from"], &report["cache"]["exists"]), (&"HOME".into(), &true.into()));
    assert_eq!((&report["cache"]["size_bytes"], &report["cache"]["files"]), (&5000.into(), &1.into()));
}
