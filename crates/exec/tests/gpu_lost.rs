//! Tests a device that stops working, on the host driver: once it finds damaged memory, every call returns the same
//! status.
#![allow(clippy::unwrap_used, clippy::panic)]
#[path = "common/build.rs"]
mod build;
#[path = "common/fickle.rs"]
mod fickle;
#[path = "common/lookup.rs"]
mod lookup;

mod common;

use exec::{CompiledPartition, ExecError, Input, Order};
use graph::DType;

use build::Build;
use common::{random, tensor};
use fickle::fickle;
use lookup::{Lookup, Memory, gpu};

#[test]
fn all_sessions_report_a_lost_device_and_none_hangs() {
    // SAFETY: this is the only test of this program, and nothing else runs yet; the driver reads the variable when it
    // is loaded.
    unsafe { std::env::set_var("AMDGPU_EP_HOST_POISON", "1") };
    let gpu = gpu();
    let (one, other) = (Lookup::new(&gpu, 6), Lookup::new(&gpu, 9));
    let (mut memory, mut later) = (Memory::new(&[5, 1]), Memory::new(&[8]));
    memory.run(&one, Order::Now).unwrap();
    memory.check(&one);
    later.run(&other, Order::Now).unwrap();
    // On a separate device, which has not noticed the loss yet, with a weight that is stored nowhere else.
    let (third, compiler) = fickle();
    let mut build = Build::default();
    let (x, weight) = (build.input(), build.constant(tensor(DType::F32, &[96, 200], &random(96 * 200, 5))));
    let product = build.node("MatMul", &[x, weight]);
    let product = CompiledPartition::new(build.outputs(&[product]), &third).unwrap();
    drop(build);
    let planned = |rows| product.plan(&[Input { shape: &[rows, 96], value: None }]).map(|_| ());
    planned(1).unwrap();
    compiler.refuse("");
    let damaged = gpu.device().alloc(64).unwrap();
    // SAFETY: not sound, just like a faulty kernel; the driver keeps guard bytes after each buffer to detect it.
    unsafe { damaged.address().as_ptr().add(64).write(1) };
    drop(damaged);
    let error = memory.run(&one, Order::Now).unwrap_err();
    let ExecError::DeviceLost { device, node, source } = &error else { panic!("{error}") };
    assert_eq!((device.as_str(), node.as_str(), source.code()), ("gfx1100", "Gather \"node\"", Some(719)));
    assert!(error.to_string().contains("\n  help: restart the process"), "{error}");
    for _ in 0..3 {
        assert_eq!(later.run(&other, Order::Now).unwrap_err(), error, "another session");
        assert_eq!(
            other.program.plan(&[Input { shape: &[3], value: None }]).map(|_| ()).unwrap_err(),
            error,
            "a new shape"
        );
    }
    for rows in [40, 41] {
        let error = planned(rows).unwrap_err();
        assert!(matches!(error, ExecError::DeviceLost { .. }), "a step on the host without its weight: {error}");
    }
}
