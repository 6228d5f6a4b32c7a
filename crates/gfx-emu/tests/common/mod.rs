//! Compiles small kernels and loads them into a chip's memory.

#![allow(dead_code, reason = "each test file uses a part")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a failure here fails the test")]

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use gfx_emu::{Chip, Dispatch, Fault, Memory, Stats};
use object::{Object, ObjectSegment, ObjectSymbol};

/// What kernels need of HIP's headers.
const PRELUDE: &str = "
#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __shared__ __attribute__((shared))
#define KERNEL extern \"C\" __global__ void
#define tid() ((int)__builtin_amdgcn_workitem_id_x())
#define tidy() ((int)__builtin_amdgcn_workitem_id_y())
#define bid() ((int)__builtin_amdgcn_workgroup_id_x())
#define bidy() ((int)__builtin_amdgcn_workgroup_id_y())
#define barrier() (__builtin_amdgcn_fence(__ATOMIC_RELEASE, \"workgroup\"), __builtin_amdgcn_s_barrier(), __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, \"workgroup\"))
typedef unsigned u32; typedef unsigned long long u64; typedef unsigned short u16; typedef unsigned char u8;
";

/// A chip, or `None` with a printed reason.
pub fn chip(target: &str) -> Option<Chip> {
    match Chip::new(target.parse().unwrap()) {
        Ok(chip) => Some(chip),
        Err(fault @ Fault::NoDisassembler { .. }) => {
            eprintln!("skipped: {fault}");
            None
        }
        Err(fault) => panic!("{fault}"),
    }
}

/// clang 19 with its linker, installed or unpacked under target/rocm by `cargo xtask`.
pub struct Compiler {
    clang: Vec<PathBuf>,
    linker: Option<Vec<PathBuf>>,
}

impl Compiler {
    /// The compiler, or `None` with a printed reason.
    pub fn find() -> Option<Compiler> {
        if installed_with_linker() {
            return Some(Compiler { clang: vec!["clang-19".into()], linker: None });
        }
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/rocm/clang-19");
        let root = folder.join("root");
        let (libraries, programs) = (root.join("usr/lib/x86_64-linux-gnu"), root.join("usr/lib/llvm-19"));
        let loader = libraries.join("ld-linux-x86-64.so.2");
        // The file is written last, so a folder that is still being unpacked does not count.
        if !folder.join("complete").exists() || !programs.join("bin/lld").exists() {
            eprintln!("skipped: no clang-19 with lld-19\n  help: install both, or run cargo xtask kernels");
            return None;
        }
        let folders = [programs.join("lib"), libraries].map(|folder| folder.display().to_string()).join(":");
        let started = |program: &str| {
            vec![loader.clone(), "--library-path".into(), folders.clone().into(), programs.join(program)]
        };
        Some(Compiler { clang: started("bin/clang"), linker: Some(started("bin/lld")) })
    }

    /// Compiles a kernel text to a code object. `options` are further options of clang.
    pub fn compile(&self, text: &str, target: &str, options: &[&str]) -> Vec<u8> {
        // clang 19 does not know gfx950, which runs the code of gfx942.
        let target = if target == "gfx950" { "gfx942" } else { target };
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str| folder.path().join(name);
        std::fs::write(file("k.hip"), format!("{PRELUDE}\n#line 1\n{text}")).unwrap();
        let arch = format!("--offload-arch={target}");
        let mut compile = command(&self.clang);
        compile
            .args([
                "-x",
                "hip",
                "--cuda-device-only",
                "-nogpulib",
                "-nogpuinc",
                "-O3",
                "-std=c++17",
                "-mcode-object-version=5",
            ])
            .arg(arch)
            .args(options)
            .arg(file("k.hip"));
        match &self.linker {
            None => run(compile.args(["--no-gpu-bundle-output", "-o"]).arg(file("k.co"))),
            Some(linker) => {
                run(compile.args(["-S", "-o"]).arg(file("k.s")));
                self.assemble_file(&file("k.s"), target, options, &file("k.o"));
                run(command(linker).args(["-flavor", "gnu", "-shared", "-o"]).arg(file("k.co")).arg(file("k.o")));
            }
        }
        std::fs::read(file("k.co")).unwrap()
    }

    /// Assembles a text to an object file and returns its code, or the assembler's messages.
    pub fn try_assemble(&self, text: &str, target: &str, options: &[&str]) -> Result<Vec<u8>, String> {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str| folder.path().join(name);
        std::fs::write(file("k.s"), text).unwrap();
        let mut assemble = self.assembler(target);
        let output = assemble.args(options).arg("-ferror-limit=0").arg(file("k.s")).arg("-o").arg(file("k.o")).output();
        let output = output.unwrap();
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).into_owned());
        }
        let object = std::fs::read(file("k.o")).unwrap();
        let object = object::File::parse(&*object).unwrap();
        use object::ObjectSection;
        Ok(object.section_by_name(".text").unwrap().data().unwrap().to_vec())
    }

    fn assembler(&self, target: &str) -> Command {
        let mut assemble = command(&self.clang);
        assemble.args(["--target=amdgcn-amd-amdhsa", "-mcode-object-version=5", "-c"]).arg(format!("-mcpu={target}"));
        assemble
    }

    fn assemble_file(&self, from: &Path, target: &str, options: &[&str], to: &Path) {
        run(self.assembler(target).args(options).arg(from).arg("-o").arg(to));
    }
}

/// Whether the installed clang finds the linker that it needs for code objects.
fn installed_with_linker() -> bool {
    let asked = Command::new("clang-19").arg("-print-prog-name=ld.lld").output();
    asked.is_ok_and(|output| Path::new(String::from_utf8_lossy(&output.stdout).trim()).is_absolute())
}

fn command(words: &[PathBuf]) -> Command {
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]);
    command
}

fn run(command: &mut Command) {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}\n{}", String::from_utf8_lossy(&output.stderr));
}

/// A loaded code object.
pub struct Code {
    kernels: HashMap<String, u64>,
}

impl Code {
    /// Copies the object's segments to device memory.
    pub fn load(memory: &mut Memory, bytes: &[u8]) -> Code {
        let file = object::File::parse(bytes).unwrap();
        let end = file.segments().map(|segment| segment.address() + segment.size()).max().unwrap();
        let base = memory.allocate(end + 256);
        for segment in file.segments() {
            memory.write(base + segment.address(), segment.data().unwrap());
        }
        let named = file.dynamic_symbols().filter_map(|symbol| {
            let name = symbol.name().ok()?.strip_suffix(".kd")?;
            Some((name.to_owned(), base + symbol.address()))
        });
        if let Some(sanitizer) = memory.sanitizer() {
            sanitizer.symbols().add(base, bytes);
        }
        Code { kernels: named.collect() }
    }

    /// The address of a kernel's descriptor.
    pub fn kernel(&self, name: &str) -> u64 {
        self.kernels[name]
    }
}

/// The bytes of a kernel's arguments, each aligned to its size.
#[derive(Default)]
pub struct Args(Vec<u8>);

impl Args {
    pub fn add(mut self, bytes: &[u8]) -> Args {
        self.0.resize(self.0.len().next_multiple_of(bytes.len()), 0);
        self.0.extend(bytes);
        self
    }

    pub fn ptr(self, address: u64) -> Args {
        self.add(&address.to_le_bytes())
    }

    pub fn int(self, value: i32) -> Args {
        self.add(&value.to_le_bytes())
    }

    /// Room for the implicit arguments follows.
    pub fn place(mut self, memory: &mut Memory) -> u64 {
        self.0.resize(self.0.len().next_multiple_of(8) + 256, 0);
        memory.allocate_with(&self.0)
    }
}

/// Runs a kernel on a line of workgroups, under the sanitizer if the memory has one.
pub fn launch(chip: &Chip, memory: &Memory, kernel: u64, kernarg: u64, groups: u32, threads: u32) -> Stats {
    let dispatch = Dispatch {
        kernel_object: kernel,
        kernarg,
        grid: [groups * threads, 1, 1],
        group: [threads, 1, 1],
        ..Dispatch::default()
    };
    let stats = match memory.sanitizer() {
        Some(sanitizer) => sanitizer.run(chip, &dispatch, memory),
        None => chip.run(&dispatch, memory),
    };
    stats.unwrap_or_else(|fault| panic!("{fault}"))
}

pub fn bytes_of<T: Copy, const N: usize>(values: &[T], to_bytes: impl Fn(T) -> [u8; N]) -> Vec<u8> {
    values.iter().flat_map(|value| to_bytes(*value)).collect()
}

pub fn f32s(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(4).map(|chunk| f32::from_le_bytes(chunk.try_into().unwrap())).collect()
}

pub fn u32s(bytes: &[u8]) -> Vec<u32> {
    bytes.chunks_exact(4).map(|chunk| u32::from_le_bytes(chunk.try_into().unwrap())).collect()
}
