//! Correct kernels whose order comes from atomic operations.

use gfx_emu::Memory;
use gfx_emu::sanitize::Sanitizer;

use super::common::{Args, Code, Compiler, bytes_of, chip, launch, u32s};

#[test]
fn kernels_are_named_by_what_is_loaded_of_a_code_object() {
    let Some(compiler) = Compiler::find() else { return };
    let mut memory = Memory::owned();
    let code = Code::load(&mut memory, &compiler.compile("KERNEL one() {} KERNEL two() {}", "gfx1100", &[]));
    let sanitizer = Sanitizer::new();
    let (one, two) = (code.kernel("one"), code.kernel("two"));
    // The loader of these tests places the first byte of the file at a page.
    let base = one / 4096 * 4096;
    let image = (1..1000).rev().find_map(|words| memory.read(base, words * 64)).unwrap();
    sanitizer.symbols().add_image(base, &image);
    let names = [one, two, two + 64].map(|kernel| sanitizer.symbols().kernel(kernel));
    assert_eq!(names, [Some("one".to_owned()), Some("two".to_owned()), None]);
    // Damaged images have no names. That is not an error.
    for bytes in [0, 3, 60, 100, 500, 1500] {
        Sanitizer::new().symbols().add_image(base, &image[..bytes]);
    }
}

/// Runs a kernel with `const u32* x, u32* y, u32* counter` on each target and checks what it writes to `y`.
fn finds_nothing(text: &str, groups: u32, wanted: &[u32]) {
    let Some(compiler) = Compiler::find() else { return };
    for target in ["gfx1100", "gfx1201", "gfx942", "gfx90a", "gfx950", "gfx1030"] {
        let Some(chip) = chip(target) else { return };
        let sanitizer = Sanitizer::new();
        let mut memory = Memory::owned().watched_by(&sanitizer);
        let code = Code::load(&mut memory, &compiler.compile(text, target, &["-gline-tables-only"]));
        let values: Vec<u32> = (0..1024).collect();
        let x = memory.allocate_with(&bytes_of(&values, u32::to_le_bytes));
        let (y, counter) = (memory.allocate_with(&[0; 4096]), memory.allocate_with(&[0; 64]));
        let args = Args::default().ptr(x).ptr(y).ptr(counter).place(&mut memory);
        launch(&chip, &memory, code.kernel("kernel"), args, groups, 128);
        let found: Vec<String> = sanitizer.findings().iter().map(ToString::to_string).collect();
        assert!(found.is_empty(), "{target}: {}", found.join("\n"));
        assert_eq!(u32s(&memory.read(y, 4 * wanted.len()).unwrap()), wanted, "{target}");
    }
}

#[test]
fn the_last_workgroup_may_read_what_the_others_counted_in() {
    let text = "KERNEL kernel(const u32* x, u32* y, u32* counter) {
        __shared__ u32 is_last;
        if (tid() == 0) {
            y[1 + bid()] = x[bid()] * 2;
            __builtin_amdgcn_fence(__ATOMIC_RELEASE, \"agent\");
            is_last = __hip_atomic_fetch_add(counter, 1u, __ATOMIC_ACQ_REL, __HIP_MEMORY_SCOPE_AGENT) == 7;
            __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, \"agent\");
        }
        barrier();
        if (is_last && tid() == 64) {
            u32 sum = 0;
            for (int i = 0; i < 8; i++) sum += y[1 + i];
            y[0] = sum;
        }
    }";
    finds_nothing(text, 8, &[56, 0, 2, 4, 6, 8, 10, 12, 14]);
}

#[test]
fn a_flag_passes_data_from_one_workgroup_to_the_next() {
    let text = "KERNEL kernel(const u32* x, u32* y, u32* flag) {
        if (tid() != 0) return;
        if (bid() > 0)
            while (__hip_atomic_load(flag, __ATOMIC_ACQUIRE, __HIP_MEMORY_SCOPE_AGENT) != (u32)bid());
        y[0] = y[0] + x[bid()] + 1;
        __hip_atomic_store(flag, (u32)bid() + 1, __ATOMIC_RELEASE, __HIP_MEMORY_SCOPE_AGENT);
    }";
    finds_nothing(text, 6, &[21]);
}

#[test]
fn atomic_additions_of_all_lanes_do_not_race() {
    let text = "KERNEL kernel(const u32* x, u32* y, u32* counter) {
        __shared__ u32 bins[4];
        if (tid() < 4) bins[tid()] = 0;
        barrier();
        __hip_atomic_fetch_add(bins + x[tid()] % 4, 1u, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_WORKGROUP);
        barrier();
        if (tid() < 4) __hip_atomic_fetch_add(y + tid(), bins[tid()], __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
    }";
    finds_nothing(text, 8, &[256, 256, 256, 256]);
}

#[test]
fn halves_of_a_word_belong_to_different_waves() {
    let text = "KERNEL kernel(const u32* x, u16* y, u32* counter) {
        __shared__ u16 part[128];
        int other = tid() % 64 * 2 + tid() / 64;
        part[other] = (u16)other;
        barrier();
        if (bid() == 0) y[other] = part[other];
    }";
    let wanted: Vec<u32> = (0..64).map(|pair| (2 * pair) | ((2 * pair + 1) << 16)).collect();
    finds_nothing(text, 2, &wanted);
}

#[test]
fn stores_of_the_same_value_do_not_race() {
    let text = "KERNEL kernel(const u32* x, u32* y, u32* counter) {
        __shared__ u32 flags[2];
        __shared__ u8 bytes[4];
        if (tid() % 32 == 0) flags[1] = 7, flags[0] = 3, bytes[1] = 9;
        barrier();
        if (tid() % 32 == 0) y[0] = flags[0] + flags[1] + bytes[1];
    }";
    finds_nothing(text, 4, &[19]);
}
