//! Runs a kernel twice: with its bug, and without it.

use gfx_emu::sanitize::{Bug, Finding, Sanitizer};
use gfx_emu::{Dispatch, Memory};

use super::common::{Args, Code, Compiler, bytes_of, chip};

/// One of each family, and waves of both sizes.
const TARGETS: [(&str, &[&str]); 7] = [
    ("gfx1100", &[]),
    ("gfx1100", &["-mwavefrontsize64"]),
    ("gfx1201", &[]),
    ("gfx942", &[]),
    ("gfx90a", &[]),
    ("gfx950", &[]),
    ("gfx1030", &[]),
];

/// Elements of the two buffers.
pub const COUNT: u64 = 1000;

/// Instructions of all families by one name.
const ASSEMBLY: &str = r#"
#if defined(__GFX9__) || defined(__GFX10__)
#define LOAD "global_load_dword"
#define LOAD_SCALAR "s_load_dword"
#define WAIT_LOAD(n) "s_waitcnt vmcnt(" #n ")"
#define WAIT_SCALAR(n) "s_waitcnt lgkmcnt(" #n ")"
#define WAIT_LDS(n) "s_waitcnt lgkmcnt(" #n ")"
#define STORE_LDS "ds_write_b32"
#define LOAD_LDS "ds_read_b32"
#define BARRIER "s_barrier"
#elif defined(__GFX11__)
#define LOAD "global_load_b32"
#define LOAD_SCALAR "s_load_b32"
#define WAIT_LOAD(n) "s_waitcnt vmcnt(" #n ")"
#define WAIT_SCALAR(n) "s_waitcnt lgkmcnt(" #n ")"
#define WAIT_LDS(n) "s_waitcnt lgkmcnt(" #n ")"
#define STORE_LDS "ds_store_b32"
#define LOAD_LDS "ds_load_b32"
#define BARRIER "s_barrier"
#else
#define LOAD "global_load_b32"
#define LOAD_SCALAR "s_load_b32"
#define WAIT_LOAD(n) "s_wait_loadcnt " #n
#define WAIT_SCALAR(n) "s_wait_kmcnt " #n
#define WAIT_LDS(n) "s_wait_dscnt " #n
#define STORE_LDS "ds_store_b32"
#define LOAD_LDS "ds_load_b32"
#define BARRIER "s_barrier_signal -1\n s_barrier_wait -1"
#endif
"#;

/// How a planted bug is run and what must be found.
pub struct Planted {
    /// The body of a kernel with `const u32* x, u32* y, int n`; `PLANTED` is 1 or 0. `HERE` marks the line of the bug.
    pub text: &'static str,
    pub bug: Bug,
    pub groups: u32,
    pub threads: u32,
    /// Whether `x` is freed before the run with the bug.
    pub frees: bool,
    /// Whether the bug stops the run.
    pub stops: bool,
}

impl Planted {
    /// Four workgroups of 256 workitems that run to their end.
    pub fn new(bug: Bug, text: &'static str) -> Planted {
        Planted { text, bug, groups: 4, threads: 256, frees: false, stops: false }
    }

    /// Checks that exactly this bug is found, at the marked line, and nothing without the bug. `check` sees the first
    /// finding, the addresses of `x` and `y`, and the lanes of a wave.
    pub fn check(&self, check: impl Fn(&Finding, [u64; 2], u32)) {
        let Some(compiler) = Compiler::find() else { return };
        let body = self.text.trim_start_matches('\n');
        let text = format!("{ASSEMBLY}\n#line 1\nKERNEL planted(const u32* x, u32* y, int n) {{\n{body}\n}}");
        let line = 2 + body.lines().position(|line| line.contains("HERE")).unwrap();
        for (target, options) in TARGETS {
            let Some(chip) = chip(target) else { return };
            // One after the other: which bug of a race shows first must not depend on the time.
            let chip = chip.with_threads(1);
            let lanes = if target.starts_with("gfx9") || !options.is_empty() { 64 } else { 32 };
            for planted in [true, false] {
                let label = format!("{target} {options:?}, planted: {planted}");
                let define = format!("-DPLANTED={}", u8::from(planted));
                let options: Vec<&str> =
                    options.iter().copied().chain(["-gline-tables-only", define.as_str()]).collect();
                let sanitizer = Sanitizer::new();
                let mut memory = Memory::owned().watched_by(&sanitizer);
                let code = Code::load(&mut memory, &compiler.compile(&text, target, &options));
                let values: Vec<u32> = (0..COUNT as u32).collect();
                let x = memory.allocate_with(&bytes_of(&values, u32::to_le_bytes));
                let y = memory.allocate(4 * COUNT);
                let kernarg = Args::default().ptr(x).ptr(y).int(COUNT as i32).place(&mut memory);
                if planted && self.frees {
                    memory.free(x);
                }
                let dispatch = Dispatch {
                    kernel_object: code.kernel("planted"),
                    kernarg,
                    grid: [self.groups * self.threads, 1, 1],
                    group: [self.threads, 1, 1],
                    ..Dispatch::default()
                };
                let result = sanitizer.run(&chip, &dispatch, &memory);
                assert_eq!(result.is_err(), planted && self.stops, "{label}: {result:?}");
                let findings = sanitizer.findings();
                let all = findings.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
                if !planted {
                    assert!(findings.is_empty(), "{label}: {all}");
                    continue;
                }
                let Some(found) = findings.first() else { panic!("{label}: nothing was found") };
                assert!(findings.iter().all(|finding| finding.bug == self.bug), "{label}: {all}");
                let source = format!("k.hip:{line}");
                let is_there =
                    |finding: &Finding| finding.place.source.as_deref().is_some_and(|at| at.ends_with(&source));
                assert!(findings.iter().any(is_there), "{label}: expected {source}\n{all}");
                assert_eq!(found.kernel.as_deref(), Some("planted"), "{label}: {all}");
                check(found, [x, y], lanes);
            }
        }
    }
}
