//! Counters of kernels whose counts are known.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a failure here fails the test")]

mod common;

use common::{Args, Code, Compiler, chip};
use gfx_emu::counters::{Bound, CHIPS, Counters, Record, table};
use gfx_emu::{Class, Dispatch, Memory};

/// Counts a kernel with `float* x, const float* y` in workgroups of 256.
fn count(text: &str, target: &str, groups: u32) -> Option<(Counters, Record)> {
    let (compiler, chip) = (Compiler::find()?, chip(target)?);
    let mut memory = Memory::owned();
    let code = Code::load(&mut memory, &compiler.compile(text, target, &[]));
    let (x, y) = (memory.allocate(1 << 18), memory.allocate(1 << 18));
    let dispatch = Dispatch {
        kernel_object: code.kernel("kernel"),
        kernarg: Args::default().ptr(x).ptr(y).place(&mut memory),
        grid: [256 * groups, 1, 1],
        group: [256, 1, 1],
        ..Dispatch::default()
    };
    let mut counters = Counters::default();
    chip.run_observed(&dispatch, &memory, &mut counters).unwrap();
    Some((counters, Record::run("kernel".to_owned(), &chip, &dispatch, &memory).unwrap().0))
}

#[test]
fn neighbouring_lanes_share_cache_lines_and_distant_ones_do_not() {
    let near = "KERNEL kernel(float* x, const float* y) { x[bid() * 256 + tid()] = y[bid() * 256 + tid()] * 3; }";
    let far = "KERNEL kernel(float* x, const float* y) { x[(bid() * 256 + tid()) * 32] = y[(bid() * 256 + tid()) * 32] * 3; }";
    for target in ["gfx1100", "gfx1201", "gfx942"] {
        let (Some((near, _)), Some((far, _))) = (count(near, target, 8), count(far, target, 8)) else { return };
        let waves = if target == "gfx942" { 8 * 4 } else { 8 * 8 };
        assert_eq!((near.waves, far.waves), (waves, waves), "{target}");
        assert_eq!(near.of(Class::Memory), 2 * waves, "{target}");
        assert_eq!((near.vector_flops, near.matrix_flops), (2048, 0), "{target}");
        // 2048 floats are 64 lines, read and written; the arguments are one line.
        assert_eq!((near.line_accesses, far.line_accesses), (2 * 64, 2 * 2048), "{target}");
        assert_eq!((near.bytes_requested, near.bytes_touched()), (2 * 2048 * 4, (2 * 64 + 1) * 128), "{target}");
        assert_eq!((near.coalescing(), far.coalescing()), (Some(1.0), Some(1.0 / 32.0)), "{target}");
    }
}

#[test]
fn columns_of_a_square_array_conflict_and_padded_ones_do_not() {
    let text = |row: u32| {
        format!(
            "KERNEL kernel(float* x, const float* y) {{
                __shared__ float a[32][{row}];
                if (tid() < 32) for (int i = 0; i < 32; i++) a[i][tid()] = y[i];
                barrier();
                if (tid() < 32) x[tid()] = a[tid()][5];
            }}"
        )
    };
    let (Some((square, _)), Some((padded, _))) = (count(&text(32), "gfx1100", 1), count(&text(33), "gfx1100", 1))
    else {
        return;
    };
    // 32 lanes need 32 words of one bank: 31 more cycles.
    assert_eq!((square.lds_conflicts, padded.lds_conflicts), (31, 0));
}

#[test]
fn copies_are_bound_by_memory_and_long_sums_by_vector_instructions() {
    let copy = "KERNEL kernel(float* x, const float* y) { x[bid() * 256 + tid()] = y[bid() * 256 + tid()]; }";
    let sum = "KERNEL kernel(float* x, const float* y) {
        float s = y[tid()];
        for (int i = 0; i < 1000; i++) s = s * 0.5f + 1.0f;
        x[tid()] = s;
    }";
    let (Some((copy, _)), Some((sum, record))) = (count(copy, "gfx1100", 64), count(sum, "gfx1100", 64)) else {
        return;
    };
    let chip = CHIPS[0];
    let estimate = chip.estimate(&copy, 32);
    assert_eq!(estimate.bound, Bound::Memory);
    // 2 * 64 KiB and a line of arguments at 960 GB/s.
    assert!((estimate.microseconds - (2.0 * 65536.0 + 128.0) / 960.0e3).abs() < 1.0e-6, "{estimate:?}");
    assert_eq!(chip.estimate(&sum, 32).bound, Bound::Vector);
    assert_eq!(sum.vector_flops, 64 * 256 * 2000);
    let mut twice = Record::parse(&record.to_line()).unwrap();
    assert_eq!(twice, record);
    twice.add(&record);
    assert_eq!(twice.runs, 2);
    let printed = table(&[record.clone(), record]);
    assert_eq!(printed.lines().count(), 2, "{printed}");
    assert!(printed.contains("estimate on Radeon RX 7900 XTX") && printed.contains("(vector)"), "{printed}");
    assert!(printed.contains("16/16 (slots)"), "{printed}");
    assert_eq!(Record::parse("kernel\t1\tx"), None);
}
