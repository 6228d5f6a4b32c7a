//! Tests the memory of the GPU device: running out of it, and not leaking it.
#![allow(clippy::unwrap_used, clippy::panic)]
#[path = "common/lookup.rs"]
mod lookup;

mod common;

use std::sync::{Mutex, PoisonError};

use exec::{ExecError, Input, Order};

use lookup::{COLUMNS, Lookup, Memory, gpu};

/// Serialises the tests: free memory belongs to the driver, not to a test.
static TURN: Mutex<()> = Mutex::new(());

#[test]
fn out_of_memory_is_an_error_with_both_sizes_and_the_device_stays_usable() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let gpu = gpu();
    let (lookup, mut memory) = (Lookup::new(&gpu, 6), Memory::new(&[5, 1]));
    let hog = gpu.device().alloc(gpu.device().memory_info().unwrap().free).unwrap();
    let prepared = lookup.program.plan(&[Input { shape: &[2], value: None }]);
    let Err(ExecError::Driver(hip::HipError::OutOfMemory { bytes, free, .. })) = prepared.map(|_| ()) else {
        panic!("the table fits in memory");
    };
    assert!(bytes > free, "{bytes} of {free}");
    drop(hog);
    memory.run(&lookup, Order::Now).unwrap();
    memory.check(&lookup);
}

#[test]
fn constants_are_uploaded_once_and_memory_does_not_grow() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let gpu = gpu();
    let free = || gpu.device().memory_info().unwrap().free;
    let lookup = Lookup::new(&gpu, 100_000);
    let before = free();
    lookup.prepare(1);
    let table = before - free();
    assert!(table >= 100_000 * COLUMNS * 4);
    lookup.prepare(2);
    assert_eq!(before - free(), table, "the second plan has the same table");
    let (mut memory, kernels) = (Memory::new(&[77, 99_999]), gpu.kernels());
    memory.run(&lookup, Order::Now).unwrap();
    let warm = free();
    for count in 0..300 {
        memory.run(&lookup, Order::Now).unwrap();
        let mut other = Memory::new(&vec![5; 1 + count % 9]);
        other.run(&lookup, Order::Now).unwrap();
        other.check(&lookup);
    }
    assert_eq!(free(), warm, "600 runs leaked memory");
    assert_eq!(gpu.kernels(), kernels, "other shapes took other kernels");
    drop(lookup);
    assert!(free() > warm, "the table is freed with its program");
}

#[test]
fn ten_thousand_runs_leak_no_memory() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let gpu = gpu();
    let (lookup, mut memory) = (Lookup::new(&gpu, 6), Memory::new(&[5, 1]));
    (0..10).for_each(|_| memory.run(&lookup, Order::Now).unwrap());
    let warm = gpu.device().memory_info().unwrap().free;
    for turn in 0..10_000 {
        memory.indices[0] = turn % 6;
        memory.run(&lookup, Order::Now).unwrap();
    }
    memory.check(&lookup);
    assert_eq!(gpu.device().memory_info().unwrap().free, warm);
}
