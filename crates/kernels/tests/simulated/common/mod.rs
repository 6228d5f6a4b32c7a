//! Runs steps in the wave simulator and compares them with definitions and with the host device's primitives.
#![allow(dead_code, clippy::unwrap_used, clippy::panic)]
mod guarded;

use std::cell::Cell;
use std::ffi::c_void;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::{LazyLock, Mutex};

use graph::prim::BufferId;
use graph::{DType, Prim, Step, Tensor, View};
use kernels::sim::Simulator;
use kernels::{Arch, Compiler, HostLaunch, Kernel, Pointer};
use libloading::Library;
use testkit::ops::{Sample, compare, definition, places};
use testkit::part;

pub use testkit::ops::{dense, list, random, random_indices, random_ints, strided};

use guarded::Guarded;

static SIMULATOR: LazyLock<Simulator> = LazyLock::new(|| {
    // Kept between runs: unchanged kernel sources are not compiled again.
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("sim");
    Simulator::new(&folder).unwrap_or_else(|error| panic!("the simulator cannot be built: {error}"))
});
/// Never unloaded: it keeps the threads' stacks.
static RUNTIME: LazyLock<Library> = LazyLock::new(|| {
    // SAFETY: our own library, whose initialisers have no relevant effects.
    unsafe { Library::new(SIMULATOR.runtime()) }.unwrap()
});
/// Serialises runs: the simulator's settings are process-wide.
static TURN: Mutex<()> = Mutex::new(());

thread_local! {
    /// The number of elements by which buffers start after an aligned address: callers align memory only to its
    /// elements.
    pub static SHIFT: Cell<usize> = const { Cell::new(0) };
}

fn shift(dtype: DType) -> usize {
    SHIFT.get() * dtype.bytes()
}

type Configure = unsafe extern "C" fn(i32, i32);
type Entry = unsafe extern "C" fn(*const HostLaunch);

/// The number of processors of the targets that steps are built for.
const UNITS: u32 = 4;

/// The kernel of a step's first launch, for tests of a path that launchers choose.
pub fn kernel_of(step: &Step, target: &str) -> Kernel {
    kernels::work(step, &Arch::new(target, UNITS)).unwrap().launches.remove(0).kernel
}

/// Runs a step in the simulator. `inputs` are complete buffers. Outputs start as 0xA5 bytes of `output_elems`, unless
/// they are in an input's buffer: then they are that input.
pub fn simulate(
    step: &Step,
    inputs: &[Tensor],
    output_elems: &[usize],
    target: &str,
    order: i32,
) -> Result<(Vec<Tensor>, u32), String> {
    let arch = Arch::new(target, UNITS);
    let work = kernels::work(step, &arch).map_err(|declined| declined.to_string())?;
    let _turn = TURN.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    // SAFETY: the signature is the one in `sim/wavesim.cc`.
    let configure = unsafe { RUNTIME.get::<Configure>("wavesim_configure") }.unwrap();
    // SAFETY: no kernel runs, because this thread holds the lock.
    unsafe { configure(arch.wave as i32, order) };
    let sources: Vec<Guarded> =
        inputs.iter().map(|tensor| Guarded::new(tensor.bytes(), shift(tensor.dtype()))).collect();
    let targets: Vec<Guarded> = step
        .outputs
        .iter()
        .zip(output_elems)
        .map(|(view, &elems)| Guarded::new(&vec![0xA5; elems * view.dtype.bytes()], shift(view.dtype)))
        .collect();
    let scratch = Guarded::new(&vec![0xA5; work.scratch_bytes], 0);
    let shared = |number: usize| step.inputs.iter().position(|view| view.buffer == step.outputs[number].buffer);
    let target_of = |number: usize| shared(number).map_or(&targets[number], |input| &sources[input]);
    let mut fault = 0u32;
    let pointers = work.launches.iter().flat_map(|launch| launch.args.pointers());
    let counted = pointers.map(|(_, pointer)| if let Pointer::Counters(count) = pointer { *count } else { 0 });
    let counters = Guarded::new(&vec![0; 4 * counted.max().unwrap_or(0)], 0);
    for launch in &work.launches {
        let image = SIMULATOR.compile(&launch.kernel, &arch).unwrap_or_else(|error| panic!("{error}"));
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), image).unwrap();
        // SAFETY: built from kernel source by the simulator; loading it runs nothing.
        let library = unsafe { Library::new(file.path()) }.unwrap();
        let bytes_name = format!("{}_args_bytes", launch.kernel.name);
        // SAFETY: the prelude defines it as an unsigned int.
        let args_bytes = unsafe { **library.get::<*const u32>(bytes_name.as_str()).unwrap() };
        let mut args = launch.args.bytes();
        assert_eq!(args.len(), args_bytes as usize, "{}: the structure's size", launch.kernel.name);
        for &(offset, pointer) in launch.args.pointers() {
            let address = match pointer {
                Pointer::Input(number, bytes) => sources[number].address().wrapping_offset(bytes),
                Pointer::Output(number, bytes) => target_of(number).address().wrapping_offset(bytes),
                Pointer::Scratch(bytes) => scratch.address().wrapping_add(bytes),
                Pointer::Fault => (&raw mut fault).cast::<u8>(),
                Pointer::Counters(_) => counters.address(),
            };
            args[offset..offset + 8].copy_from_slice(&(address as u64).to_le_bytes());
        }
        // The structure may start at any multiple of 16.
        let aligned: Vec<u128> = args
            .chunks(16)
            .map(|part| {
                let mut word = [0; 16];
                word[..part.len()].copy_from_slice(part);
                u128::from_le_bytes(word)
            })
            .collect();
        let block = [launch.threads, 1, 1];
        let (grid, lds_bytes) = (launch.grid, launch.lds_bytes);
        assert!(lds_bytes <= arch.lds_bytes, "{}: {lds_bytes} bytes of LDS on {target}", launch.kernel.name);
        let call = HostLaunch { grid, block, lds_bytes, reserved: 0, args: aligned.as_ptr().cast::<c_void>() };
        // SAFETY: the prelude defines it with this signature.
        let entry = unsafe { library.get::<Entry>(launch.kernel.name) }.unwrap();
        // SAFETY: the structure has the kernel's size, and its addresses point to live memory.
        unsafe { entry(&call) };
        assert!(
            counters.bytes().iter().all(|&byte| byte == 0),
            "{}: counters are left as they were",
            launch.kernel.name
        );
    }
    let outputs = step.outputs.iter().enumerate().zip(output_elems);
    let made = outputs
        .map(|((number, view), &elems)| Tensor::from_bytes(view.dtype, &[elems], target_of(number).bytes()).unwrap());
    Ok((made.collect(), fault))
}

/// Runs a step on the host device's primitives.
pub fn on_host(step: &Step, inputs: &[Tensor], output_elems: &[usize]) -> Result<Vec<Tensor>, String> {
    let (outputs, done) = left_by_host(step, inputs, output_elems);
    done.map(|()| outputs)
}

/// The outputs of a step on the host, and whether it succeeded. Outputs in an input's buffer start as a copy of it, as
/// for [`simulate`].
pub fn left_by_host(step: &Step, inputs: &[Tensor], output_elems: &[usize]) -> (Vec<Tensor>, Result<(), String>) {
    let shared = |view: &View| step.inputs.iter().position(|input| input.buffer == view.buffer);
    let mut targets: Vec<Vec<u64>> = step
        .outputs
        .iter()
        .zip(output_elems)
        .map(|(view, &elems)| {
            let own = shared(view).map_or(&[][..], |number| inputs[number].bytes());
            let whole = own.len().max(elems * view.dtype.bytes()).div_ceil(8) * 8 + 8;
            let mut bytes = vec![0xA5; whole];
            bytes[..own.len()].copy_from_slice(own);
            bytes.as_chunks().0.iter().map(|&word| u64::from_ne_bytes(word)).collect()
        })
        .collect();
    let addresses: Vec<*mut u8> = targets.iter_mut().map(|memory| memory.as_mut_ptr().cast()).collect();
    let address = |buffer: BufferId| {
        let input = step.inputs.iter().position(|view| view.buffer == buffer);
        let output = step.outputs.iter().position(|view| view.buffer == buffer);
        match (input, output) {
            (_, Some(number)) => addresses[number],
            (Some(number), None) => inputs[number].bytes().as_ptr().cast_mut(),
            _ => std::ptr::null_mut(),
        }
    };
    let mut scratch = host_ops::Scratch::default();
    let mut cx = host_ops::Context { parallel: &host_ops::Serial, scratch: &mut scratch };
    // SAFETY: every buffer is a complete tensor, which is only read, or separate memory as large as the view's.
    let done = unsafe { host_ops::run(step, address, &mut cx) }.map_err(|error| error.to_string());
    let outputs = step.outputs.iter().zip(&targets).zip(output_elems);
    let made = outputs.map(|((view, memory), &elems)| {
        let bytes: Vec<u8> =
            memory.iter().flat_map(|word| word.to_ne_bytes()).take(elems * view.dtype.bytes()).collect();
        Tensor::from_bytes(view.dtype, &[elems], &bytes).unwrap()
    });
    (made.collect(), done)
}

/// Targets that represent the kinds of wave: 32 and 64 lanes, without and with matrix instructions.
pub const TARGETS: [&str; 4] = ["gfx1030", "gfx906", "gfx1100", "gfx942"];

/// The targets to test: all, or those of the part that is due.
pub fn due<'a>(targets: &'a [&'a str]) -> Vec<&'a str> {
    part::due(targets.iter().copied())
}

/// All thread orders of the simulator.
pub const ORDERS: Range<i32> = 0..3;

/// The targets to test, each with a thread order: all, or those of the part that is due. The next part has the next
/// target.
pub fn due_orders<'a>(targets: &'a [&'a str], orders: Range<i32>) -> Vec<(&'a str, i32)> {
    part::due(orders.flat_map(|order| targets.iter().map(move |&target| (target, order))))
}

/// Runs a step in the simulator, for all kinds of wave and three thread orders, and compares its outputs with those by
/// definition, or else with the host device's. `relative` is relative to the larger of 1 and the magnitude.
pub fn check(step: &Step, inputs: &[Tensor], output_elems: &[usize], relative: f64) {
    check_on(&TARGETS, step, inputs, output_elems, relative);
}

/// Like [`check`], for these targets.
pub fn check_on(targets: &[&str], step: &Step, inputs: &[Tensor], output_elems: &[usize], relative: f64) {
    let wanted = expected(step, inputs, output_elems);
    for (target, order) in due_orders(targets, ORDERS) {
        let (found, fault) = simulate(step, inputs, output_elems, target, order).unwrap_or_else(|declined| {
            panic!("{target}: {step:?} declined: {declined}");
        });
        assert_eq!(fault, 0, "{target}: {step:?} reported a fault");
        for (found, wanted) in found.iter().zip(&wanted) {
            if let Err(difference) = compare(&list(found), wanted, relative) {
                panic!("{target}, order {order}, {step:?}: {difference}");
            }
        }
    }
}

/// The buffers of a step's outputs: elements by definition where there is one, gaps as the host device leaves them.
fn expected(step: &Step, inputs: &[Tensor], output_elems: &[usize]) -> Vec<Vec<f64>> {
    let mut buffers: Vec<Vec<f64>> = on_host(step, inputs, output_elems).unwrap().iter().map(list).collect();
    for ((buffer, view), numbers) in
        buffers.iter_mut().zip(&step.outputs).zip(definition::outputs(step, inputs).into_iter().flatten())
    {
        places(view).into_iter().zip(numbers).for_each(|(place, number)| buffer[place] = number);
    }
    buffers
}

/// Runs a step in the simulator, for these targets and three thread orders, and compares the elements of its outputs
/// with numbers.
pub fn check_numbers(targets: &[&str], sample: &Sample, expected: &[Vec<f64>], relative: f64) {
    let (step, rooms) = (&sample.step, sample.rooms());
    assert_eq!(step.outputs.len(), expected.len());
    for (target, order) in due_orders(targets, ORDERS) {
        let (found, fault) = simulate(step, &sample.inputs, &rooms, target, order).unwrap_or_else(|declined| {
            panic!("{target}: {step:?} declined: {declined}");
        });
        assert_eq!(fault, 0, "{target}: {step:?} reported a fault");
        for (number, (found, expected)) in sample.results(&found).iter().zip(expected).enumerate() {
            if let Err(difference) = compare(found, expected, relative) {
                panic!("{target}, order {order}, {step:?}: output {number}: {difference}");
            }
        }
    }
}

/// A step of one primitive.
pub fn step(prim: Prim, inputs: Vec<View>, outputs: Vec<View>) -> Step {
    Step { node: 0, prim, inputs, outputs }
}
