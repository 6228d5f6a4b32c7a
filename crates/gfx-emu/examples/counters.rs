//! Counts what a few kernels do, and prints estimates of their least time on real chips.

#[path = "../tests/common/mod.rs"]
mod common;

use common::{Args, Code, Compiler, chip};
use gfx_emu::counters::{CHIPS, Record, table};
use gfx_emu::{Dispatch, Fault, Memory};

const TEXT: &str = "
KERNEL saxpy(float* x, const float* y, int n) {
    int i = bid() * 256 + tid();
    if (i < n) x[i] = 2.5f * x[i] + y[i];
}
KERNEL strided(float* x, const float* y, int n) {
    int i = tid() * 64 + bid();
    if (i < n) x[i] = 2.5f * x[i] + y[i];
}
KERNEL transposed(float* x, const float* y, int n) {
    __shared__ float a[32][32];
    for (int r = tid() / 32; r < 32; r += 8) a[r][tid() % 32] = y[r * 32 + tid() % 32];
    barrier();
    for (int r = tid() / 32; r < 32; r += 8) x[r * 32 + tid() % 32] = a[tid() % 32][r];
}
KERNEL padded(float* x, const float* y, int n) {
    __shared__ float a[32][33];
    for (int r = tid() / 32; r < 32; r += 8) a[r][tid() % 32] = y[r * 32 + tid() % 32];
    barrier();
    for (int r = tid() / 32; r < 32; r += 8) x[r * 32 + tid() % 32] = a[tid() % 32][r];
}
";

fn main() -> Result<(), Fault> {
    let Some(compiler) = Compiler::find() else { return Ok(()) };
    for target in ["gfx1100", "gfx1201", "gfx942"] {
        let Some(chip) = chip(target) else { return Ok(()) };
        let mut memory = Memory::owned();
        let code = Code::load(&mut memory, &compiler.compile(TEXT, target, &[]));
        let (x, y) = (memory.allocate(4 << 14), memory.allocate(4 << 14));
        let kernarg = Args::default().ptr(x).ptr(y).int(1 << 14).place(&mut memory);
        let mut records = Vec::new();
        for kernel in ["saxpy", "strided", "transposed", "padded"] {
            let dispatch = Dispatch {
                kernel_object: code.kernel(kernel),
                kernarg,
                grid: [1 << 14, 1, 1],
                group: [256, 1, 1],
                ..Dispatch::default()
            };
            records.push(Record::run(kernel.to_owned(), &chip, &dispatch, &memory)?.0);
        }
        println!("{target}: estimates, not measurements\n{}\n", table(&records));
    }
    for peaks in CHIPS {
        println!("{}: {}", peaks.name, peaks.source);
    }
    Ok(())
}
