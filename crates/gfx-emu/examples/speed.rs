//! Measures the emulator on one thread: wave instructions per second of a few kernels. Arguments choose targets.

#[path = "../tests/common/mod.rs"]
mod common;

use common::{Args, Code, Compiler, chip, launch};
use gfx_emu::Memory;

const TEXT: &str = "
KERNEL saxpy(float* x, const float* y, int n) {
    int i = bid() * 256 + tid();
    if (i < n) x[i] = 2.5f * x[i] + y[i];
}
KERNEL copy(float* x, const float* y, int n) {
    for (int k = 0; k < n; k++) x[bid() * 256 + tid()] = ((volatile const float*)y)[bid() * 256 + tid()];
}
KERNEL tree(float* x, const float* y, int n) {
    __shared__ float part[256];
    float total = 0;
    for (int k = 0; k < n; k++) {
        part[tid()] = y[bid() * 256 + tid()] + k;
        barrier();
        for (int half = 128; half > 0; half /= 2) {
            if (tid() < half) part[tid()] += part[tid() + half];
            barrier();
        }
        total += part[0];
        barrier();
    }
    x[bid() * 256 + tid()] = total;
}
#if defined(__GFX12__) || defined(__GFX11__)
typedef float sums __attribute__((ext_vector_type(8)));
#else
typedef float sums __attribute__((ext_vector_type(4)));
#endif
typedef _Float16 element;
#if defined(__GFX12__)
typedef _Float16 factors __attribute__((ext_vector_type(8)));
#define PRODUCT(a, b, c) __builtin_amdgcn_wmma_f32_16x16x16_f16_w32_gfx12(a, b, c)
#elif defined(__GFX11__)
typedef _Float16 factors __attribute__((ext_vector_type(16)));
#define PRODUCT(a, b, c) __builtin_amdgcn_wmma_f32_16x16x16_f16_w32(a, b, c)
#elif defined(__gfx942__) || defined(__gfx90a__)
typedef _Float16 factors __attribute__((ext_vector_type(4)));
#define PRODUCT(a, b, c) __builtin_amdgcn_mfma_f32_16x16x16f16(a, b, c, 0, 0, 0)
#else
typedef float factors;
#define PRODUCT(a, b, c) (c + a * b)
#endif
KERNEL product(float* x, const float* y, int n) {
    factors a = {}, b = {};
    a += (element)y[tid()];
    b += (element)y[tid() + 1];
    sums c = {};
    for (int k = 0; k < n; k++) c = PRODUCT(a, b, c);
    x[bid() * 256 + tid()] = c[0] + c[1] + c[2] + c[3];
}
KERNEL polynomial(float* x, const float* y, int n) {
    int i = bid() * 256 + tid();
    float v = x[i], s = y[i];
    for (int k = 0; k < n; k++) s = s * v + 0.25f, v = v * 0.99f + s * 0.001f;
    x[i] = s;
}
KERNEL tiles(float* x, const float* y, int n) {
    __shared__ float a[16][17], b[16][17];
    int r = tid() / 16, c = tid() % 16;
    float sum = 0;
    for (int k = 0; k < n; k += 16) {
        a[r][c] = y[(k + r) * 16 + c]; b[c][r] = y[(k + c) * 16 + r];
        barrier();
        for (int j = 0; j < 16; j++) sum += a[r][j] * b[j][c];
        barrier();
    }
    x[bid() * 256 + tid()] = sum;
}
KERNEL integers(u32* x, const u32* y, int n) {
    u32 v = x[bid() * 256 + tid()], s = y[tid()];
    for (int k = 0; k < n; k++) { v ^= v << 13; v ^= v >> 17; v ^= v << 5; if (v & 1) s += v % 1000u; }
    x[bid() * 256 + tid()] = s;
}
";

fn main() {
    let Some(compiler) = Compiler::find() else { return };
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    for target in ["gfx1100", "gfx1201", "gfx942", "gfx90a", "gfx1030"] {
        if !wanted.is_empty() && !wanted.iter().any(|name| name == target) {
            continue;
        }
        let Some(chip) = chip(target) else { return };
        let chip = chip.with_threads(1);
        let mut memory = Memory::owned();
        let code = Code::load(&mut memory, &compiler.compile(TEXT, target, &[]));
        let groups = 64;
        let (x, y) = (memory.allocate(4 * 256 * groups), memory.allocate(4 * 256 * groups));
        for (kernel, n) in [
            ("saxpy", 1 << 20),
            ("copy", 100),
            ("polynomial", 2000),
            ("tree", 10),
            ("tiles", 256),
            ("integers", 300),
            ("product", 100),
        ] {
            let args = Args::default().ptr(x).ptr(y).int(n).place(&mut memory);
            launch(&chip, &memory, code.kernel(kernel), args, groups as u32, 256);
            let start = seconds();
            let mut instructions = 0;
            while seconds() - start < 0.3 {
                instructions += launch(&chip, &memory, code.kernel(kernel), args, groups as u32, 256).instructions;
            }
            let rate = instructions as f64 / (seconds() - start) / 1.0e6;
            println!("{target} {kernel}: {rate:.1} million wave instructions per second on one core");
        }
    }
}

/// The thread's time on the processor, so that other programs do not change the result.
fn seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split_whitespace().next().and_then(|nanoseconds| nanoseconds.parse::<f64>().ok()).unwrap_or(0.0) / 1.0e9
}
