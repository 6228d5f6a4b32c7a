//! Kernels that clang compiled, against the same computations in Rust.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a failure here fails the test")]

mod common;

use common::{Args, Code, Compiler, bytes_of, chip, f32s, launch, u32s};
use gfx_emu::Memory;
use gfx_emu::sanitize::Sanitizer;

/// The targets, and clang's option for the other wave size where there is one.
const TARGETS: [(&str, &[&str]); 10] = [
    ("gfx1030", &[]),
    ("gfx1030", &["-mwavefrontsize64"]),
    ("gfx1100", &[]),
    ("gfx1100", &["-mwavefrontsize64"]),
    ("gfx1151", &[]),
    ("gfx1201", &[]),
    ("gfx1201", &["-mwavefrontsize64"]),
    ("gfx942", &[]),
    ("gfx90a", &[]),
    ("gfx950", &[]),
];

/// Runs `check` with the compiled text for each target: once as it is, and once under the sanitizer, which must find
/// nothing.
fn on_each(text: &str, check: impl Fn(&gfx_emu::Chip, &mut Memory, &Code, &str)) {
    let Some(compiler) = Compiler::find() else { return };
    for (target, options) in TARGETS {
        let Some(chip) = chip(target) else { return };
        let compiled = compiler.compile(text, target, options);
        let sanitizer = Sanitizer::new();
        for mut memory in [Memory::owned(), Memory::owned().watched_by(&sanitizer)] {
            let code = Code::load(&mut memory, &compiled);
            check(&chip, &mut memory, &code, &format!("{target} {options:?}"));
        }
        let found: Vec<String> = sanitizer.findings().iter().map(ToString::to_string).collect();
        assert!(found.is_empty(), "{target} {options:?}: {}", found.join("\n"));
    }
}

#[test]
fn vectors_are_added_and_the_tail_is_left_alone() {
    let text = "KERNEL add(const float* a, const float* b, float* c, int n) {
        int i = bid() * 256 + tid();
        if (i < n) c[i] = a[i] + b[i];
    }";
    on_each(text, |chip, memory, code, label| {
        let n = 1000;
        let a: Vec<f32> = (0..n).map(|i| i as f32 * 0.37 - 55.0).collect();
        let b: Vec<f32> = (0..n).map(|i| 1.0e6 / (i as f32 + 1.0)).collect();
        let [pa, pb] = [&a, &b].map(|x| memory.allocate_with(&bytes_of(x, f32::to_le_bytes)));
        let pc = memory.allocate(4096);
        let args = Args::default().ptr(pa).ptr(pb).ptr(pc).int(n).place(memory);
        let stats = launch(chip, memory, code.kernel("add"), args, 4, 256);
        assert_eq!(stats.workgroups, 4);
        let c = f32s(&memory.read(pc, 4096).unwrap());
        for i in 0..1024 {
            let want = if i < n as usize { a[i] + b[i] } else { 0.0 };
            assert_eq!(c[i].to_bits(), want.to_bits(), "{label}: {i}");
        }
    });
}

#[test]
fn a_tree_in_lds_sums_with_barriers() {
    let text = "KERNEL total(const float* x, float* out, int n) {
        __shared__ float part[256];
        float sum = 0;
        for (int i = tid(); i < n; i += 256) sum += x[bid() * n + i];
        part[tid()] = sum;
        barrier();
        for (int half = 128; half > 0; half /= 2) {
            if (tid() < half) part[tid()] += part[tid() + half];
            barrier();
        }
        if (tid() == 0) out[bid()] = part[0];
    }";
    on_each(text, |chip, memory, code, label| {
        let (rows, n) = (7usize, 1111usize);
        // Small integers: the sum is exact in any order.
        let x: Vec<f32> = (0..rows * n).map(|i| (i * 7919 % 101) as f32 - 50.0).collect();
        let px = memory.allocate_with(&bytes_of(&x, f32::to_le_bytes));
        let out = memory.allocate(4 * rows as u64);
        let args = Args::default().ptr(px).ptr(out).int(n as i32).place(memory);
        launch(chip, memory, code.kernel("total"), args, rows as u32, 256);
        let sums = f32s(&memory.read(out, 4 * rows).unwrap());
        for row in 0..rows {
            let want: i64 = x[row * n..][..n].iter().map(|value| *value as i64).sum();
            assert_eq!(sums[row], want as f32, "{label}: row {row}");
        }
    });
}

#[test]
fn divergent_loops_and_integer_division_are_right() {
    let text = "KERNEL collatz(const u32* x, u32* out) {
        int i = bid() * 64 + tid();
        u32 v = x[i], steps = 0;
        while (v != 1 && steps < 500) { v = v & 1 ? 3 * v + 1 : v / 2; steps++; }
        out[2 * i] = steps;
        out[2 * i + 1] = x[i] / (u32)(i % 13 + 1) + x[i] % (u32)(i % 7 + 1);
    }";
    on_each(text, |chip, memory, code, label| {
        let x: Vec<u32> = (0..192u32).map(|i| i * 2_654_435 % 1_000_003 + 1).collect();
        let px = memory.allocate_with(&bytes_of(&x, u32::to_le_bytes));
        let out = memory.allocate(192 * 8);
        let args = Args::default().ptr(px).ptr(out).place(memory);
        launch(chip, memory, code.kernel("collatz"), args, 3, 64);
        let have = u32s(&memory.read(out, 192 * 8).unwrap());
        for (i, &start) in x.iter().enumerate() {
            let (mut v, mut steps) = (start, 0);
            while v != 1 && steps < 500 {
                v = if v & 1 == 1 { 3 * v + 1 } else { v / 2 };
                steps += 1;
            }
            let n = i as u32;
            assert_eq!(have[2 * i..][..2], [steps, start / (n % 13 + 1) + start % (n % 7 + 1)], "{label}: {i}");
        }
    });
}

#[test]
fn float_division_and_square_roots_are_correctly_rounded() {
    let text = "KERNEL divide(const float* x, const double* y, float* q, double* r) {
        int i = bid() * 64 + tid();
        q[2 * i] = x[2 * i] / x[2 * i + 1];
        q[2 * i + 1] = __builtin_sqrtf(__builtin_fabsf(x[2 * i]));
        r[2 * i] = y[2 * i] / y[2 * i + 1];
        r[2 * i + 1] = __builtin_sqrt(__builtin_fabs(y[2 * i]));
    }";
    on_each(text, |chip, memory, code, label| {
        let mut seed = 88172645463325252u64;
        let mut random = || {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            seed
        };
        let special = [0.0, -0.0, f32::INFINITY, f32::NAN, 1.0e-40, -3.0e-45, f32::MAX, f32::MIN_POSITIVE, 1.0];
        let x: Vec<f32> = (0..256)
            .map(|i| if i < 81 { special[i % 9] } else { f32::from_bits(random() as u32) })
            .chain((0..256).map(|i| special[i / 9 % 9]))
            .take(256)
            .collect();
        let y: Vec<f64> =
            (0..256).map(|i| if i < 81 { f64::from(special[i % 9]) } else { f64::from_bits(random()) }).collect();
        let px = memory.allocate_with(&bytes_of(&x, f32::to_le_bytes));
        let py = memory.allocate_with(&bytes_of(&y, f64::to_le_bytes));
        let (q, r) = (memory.allocate(1024), memory.allocate(2048));
        let args = Args::default().ptr(px).ptr(py).ptr(q).ptr(r).place(memory);
        launch(chip, memory, code.kernel("divide"), args, 2, 64);
        let q = f32s(&memory.read(q, 1024).unwrap());
        let r = memory.read(r, 2048).unwrap();
        let r: Vec<f64> = r.chunks_exact(8).map(|bytes| f64::from_le_bytes(bytes.try_into().unwrap())).collect();
        for i in 0..128 {
            let want = [x[2 * i] / x[2 * i + 1], x[2 * i].abs().sqrt()];
            for k in 0..2 {
                let (have, want) = (q[2 * i + k], want[k]);
                assert!(
                    have.to_bits() == want.to_bits() || have.is_nan() && want.is_nan(),
                    "{label}: {i} {k} {have:e} {want:e} of {:e} {:e}",
                    x[2 * i],
                    x[2 * i + 1]
                );
            }
            let want = [y[2 * i] / y[2 * i + 1], y[2 * i].abs().sqrt()];
            for k in 0..2 {
                let (have, want) = (r[2 * i + k], want[k]);
                assert!(
                    have.to_bits() == want.to_bits() || have.is_nan() && want.is_nan(),
                    "{label}: {i} {k} {have:e} {want:e} of {:e} {:e}",
                    y[2 * i],
                    y[2 * i + 1]
                );
            }
        }
    });
}

#[test]
fn division_by_the_largest_numbers_gives_subnormal_quotients() {
    let text = "KERNEL divide(const float* x, const double* y, float* q, double* r) {
        int i = bid() * 64 + tid();
        q[i] = x[2 * i] / x[2 * i + 1];
        r[i] = y[2 * i] / y[2 * i + 1];
    }";
    on_each(text, |chip, memory, code, label| {
        let numerators = [2.0, -1.0, 0.75, 1.0e3, 1.0e-3, 3.0, -2.5e-7, 6.0e7];
        let pairs = (0..64).map(|i| (numerators[i % 8], 0.5 + (i / 8) as f64 * 0.2));
        let x: Vec<f32> = pairs.clone().flat_map(|(n, d)| [n as f32, d as f32 * 2f32.powi(127)]).collect();
        let y: Vec<f64> = pairs.flat_map(|(n, d)| [n, d * 2f64.powi(1023)]).collect();
        let px = memory.allocate_with(&bytes_of(&x, f32::to_le_bytes));
        let py = memory.allocate_with(&bytes_of(&y, f64::to_le_bytes));
        let (q, r) = (memory.allocate(256), memory.allocate(512));
        let args = Args::default().ptr(px).ptr(py).ptr(q).ptr(r).place(memory);
        launch(chip, memory, code.kernel("divide"), args, 1, 64);
        let q = f32s(&memory.read(q, 256).unwrap());
        let r = memory.read(r, 512).unwrap();
        // The last step rounds to a normal number and scales it down, which rounds once more.
        for i in 0..64 {
            let (have, want) = (q[i], x[2 * i] / x[2 * i + 1]);
            let is_near = have.signum() == want.signum() && have.to_bits().abs_diff(want.to_bits()) <= 1;
            assert!(is_near, "{label}: {have:e} instead of {want:e}");
            let (have, want) = (f64::from_le_bytes(r[8 * i..][..8].try_into().unwrap()), y[2 * i] / y[2 * i + 1]);
            let is_near = have.signum() == want.signum() && have.to_bits().abs_diff(want.to_bits()) <= 1;
            assert!(is_near, "{label}: {have:e} instead of {want:e}");
        }
    });
}

#[test]
fn waves_that_spin_on_a_lock_make_progress() {
    let text = "KERNEL locked(u32* lock, u32* count) {
        if (__builtin_amdgcn_workitem_id_x() % 64 == 0) {
            for (int done = 0; !done;) {
                u32 expected = 0;
                if (__hip_atomic_compare_exchange_strong(lock, &expected, 1u, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT)) {
                    *(volatile u32*)count = *(volatile u32*)count + 1;
                    __hip_atomic_store(lock, 0u, __ATOMIC_RELEASE, __HIP_MEMORY_SCOPE_AGENT);
                    done = 1;
                }
            }
        }
    }";
    on_each(text, |chip, memory, code, label| {
        let lock = memory.allocate_with(&[0; 8]);
        let args = Args::default().ptr(lock).ptr(lock + 4).place(memory);
        launch(chip, memory, code.kernel("locked"), args, 4, 256);
        assert_eq!(u32s(&memory.read(lock, 8).unwrap()), [0, 16], "{label}");
    });
}

#[test]
fn lds_addresses_with_a_negative_base_wrap_around() {
    let text = "KERNEL turned(const u32* x, u32* y) {
        __shared__ u32 kept[256];
        kept[tid()] = x[tid()];
        barrier();
        y[tid()] = kept[255 - tid()];
    }";
    on_each(text, |chip, memory, code, label| {
        let input: Vec<u32> = (0..256).map(|at| at * 7 + 1).collect();
        let bytes: Vec<u8> = input.iter().flat_map(|value| value.to_le_bytes()).collect();
        let (x, y) = (memory.allocate_with(&bytes), memory.allocate(1024));
        let args = Args::default().ptr(x).ptr(y).place(memory);
        launch(chip, memory, code.kernel("turned"), args, 1, 256);
        let wanted: Vec<u32> = input.iter().rev().copied().collect();
        assert_eq!(u32s(&memory.read(y, 1024).unwrap()), wanted, "{label}");
    });
}

#[test]
fn private_arrays_are_in_scratch_memory() {
    // gfx90a and gfx1030 reach it through a buffer resource, the others with instructions of its own.
    let text = "KERNEL private_array(const u32* x, u32* y) {
        volatile u32 kept[16];
        for (int i = 0; i < 16; i++) kept[i] = x[(tid() + i) % 256];
        u32 at = x[tid()] % 16, sum = 0;
        for (int i = 0; i < 6; i++) { sum += kept[at]; kept[at] = sum; at = (at * 5 + 3) % 16; }
        y[bid() * 256 + tid()] = sum + kept[3];
    }";
    on_each(text, |chip, memory, code, label| {
        let x: Vec<u32> = (0..256u32).map(|at| at.wrapping_mul(2_654_435_761)).collect();
        let px = memory.allocate_with(&bytes_of(&x, u32::to_le_bytes));
        let y = memory.allocate(2048);
        let args = Args::default().ptr(px).ptr(y).place(memory);
        launch(chip, memory, code.kernel("private_array"), args, 2, 256);
        let have = u32s(&memory.read(y, 2048).unwrap());
        for (item, have) in have.into_iter().enumerate() {
            let item = item % 256;
            let mut kept: [u32; 16] = std::array::from_fn(|i| x[(item + i) % 256]);
            let (mut at, mut sum) = (x[item] as usize % 16, 0u32);
            for _ in 0..6 {
                sum = sum.wrapping_add(kept[at]);
                kept[at] = sum;
                at = (at * 5 + 3) % 16;
            }
            assert_eq!(have, sum.wrapping_add(kept[3]), "{label}: {item}");
        }
    });
}

#[test]
fn an_access_outside_all_buffers_names_the_instruction() {
    let text = "KERNEL outside(u32* x) { x[tid() * 1000] = 1; }";
    on_each(text, |chip, memory, code, label| {
        let x = memory.allocate(4096);
        let kernarg = Args::default().ptr(x).place(memory);
        let dispatch = gfx_emu::Dispatch {
            kernel_object: code.kernel("outside"),
            kernarg,
            grid: [32, 1, 1],
            group: [32, 1, 1],
            ..Default::default()
        };
        match chip.run(&dispatch, memory) {
            Err(gfx_emu::Fault::BadAddress { address, bytes: 4, lane: 2, text, .. }) => {
                assert_eq!(address, x + 8000, "{label}");
                assert!(text.starts_with("global_store"), "{label}: {text}");
            }
            other => panic!("{label}: {other:?}"),
        }
    });
}
