//! Overhead of the frontend: building graphs for a backend that does nothing, and executing compared with the plain C
//! calls.
//!
//! Tensors are in RAM, or with `AMDGPU_EP_DRIVER` in that driver's device memory. Only the call is timed, not the work
//! that it enqueues.
//!
//! ```sh
//! cargo xtask stage --release
//! AMDGPU_EP_HIPDNN_LIBRARY=target/stage/release/lib/libhipdnn_host.so \
//!     cargo run --release -p hipdnn --example graph_overhead
//! ```

use std::error::Error;
use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hip::{Device, DeviceBuffer, Driver, DriverKind};
use hipdnn::sys::{
    self, AttributeName as A, AttributeType as T, Backend, DataType, DescriptorType as D, PointwiseMode, Status,
};
use hipdnn::{Convolution, Graph, Handle, Loaded, OperationGraph, Plan, Search, Tensor, TensorId};

/// The number of rounds of each measurement. The median is reported, so that other activity on the machine has little
/// effect.
const ROUNDS: usize = 101;
/// Calls in a round.
const CALLS: usize = 200;

/// A backend that accepts everything and does nothing.
struct Null;

// SAFETY: it only writes a count and a non-null address, through out-pointers that are valid by contract.
unsafe impl Backend for Null {
    fn describe(&self) -> String {
        "nothing".into()
    }

    fn has(&self, _: &str) -> bool {
        true
    }

    unsafe fn create(&self, handle: *mut sys::Handle) -> Status {
        // SAFETY: the caller vouches for the pointer.
        unsafe { handle.write(ptr::dangling_mut()) };
        Status::SUCCESS
    }

    unsafe fn destroy(&self, _: sys::Handle) -> Status {
        Status::SUCCESS
    }

    unsafe fn create_descriptor(&self, _: D, descriptor: *mut sys::Descriptor) -> Status {
        // SAFETY: the caller vouches for the pointer.
        unsafe { descriptor.write(ptr::dangling_mut()) };
        Status::SUCCESS
    }

    unsafe fn destroy_descriptor(&self, _: sys::Descriptor) -> Status {
        Status::SUCCESS
    }

    unsafe fn set_attribute(&self, _: sys::Descriptor, _: A, _: T, _: i64, _: *const c_void) -> Status {
        Status::SUCCESS
    }

    unsafe fn finalize(&self, _: sys::Descriptor) -> Status {
        Status::SUCCESS
    }
}

fn main() {
    measure().unwrap_or_else(|error| fail(&error));
}

fn measure() -> Result<(), Box<dyn Error>> {
    println!("| what | µs |\n|---|---|");
    let nothing = Handle::new(Arc::new(Null))?;
    let micros = |time: Duration| time.as_secs_f64() * 1e6;
    let mut bodies: [&mut dyn FnMut(); 2] = [&mut || drop(convolution(&nothing)), &mut || drop(fused(&nothing))];
    let [alone, fused] = median(&mut bodies, || ())[..] else {
        return Err("expected two measurements".into());
    };
    println!("| build and finalize a convolution, without a backend | {:.2} |", micros(alone));
    println!("| the same with bias and ReLU | {:.2} |", micros(fused));

    let loaded = Arc::new(Loaded::open(&Search::default())?);
    let setting = Setting::new(loaded)?;
    let mut turn = 0;
    let mut next = || {
        turn = (turn + 1) % 2;
        turn
    };
    let mut turn_of_raw = 0;
    let mut next_of_raw = || {
        turn_of_raw = (turn_of_raw + 1) % 2;
        turn_of_raw
    };
    let pack = setting.pack(0);
    let mut bodies: [&mut dyn FnMut(); 4] = [
        &mut || setting.raw(pack),
        &mut || setting.frontend(0),
        &mut || {
            let pack = setting.pack(next_of_raw());
            setting.raw(pack);
            setting.destroy(pack);
        },
        &mut || setting.other_frontend(next()),
    ];
    let times = median(&mut bodies, || setting.wait());
    setting.destroy(pack);
    let [raw, same, raw_packed, other] = times[..] else { return Err("expected four measurements".into()) };
    println!("| `hipdnnBackendExecute` of a small convolution | {:.2} |", micros(raw));
    println!("| `Plan::execute`, the same addresses | {:.2} |", micros(same));
    println!("| *added by the frontend* | {:+.2} |", micros(same) - micros(raw));
    println!("| pack, `hipdnnBackendExecute`, destroy, in C calls | {:.2} |", micros(raw_packed));
    println!("| `Plan::execute`, other addresses | {:.2} |", micros(other));
    println!("| *added by the frontend* | {:+.2} |", micros(other) - micros(raw_packed));
    Ok(())
}

/// The median time of one call of each body. The bodies alternate, round by round, and `wait` waits for their work.
fn median(bodies: &mut [&mut dyn FnMut()], wait: impl Fn()) -> Vec<Duration> {
    let mut times = vec![Vec::with_capacity(ROUNDS); bodies.len()];
    for round in 0..=ROUNDS {
        for (body, times) in bodies.iter_mut().zip(&mut times) {
            let start = Instant::now();
            (0..CALLS).for_each(|_| body());
            let time = start.elapsed();
            wait();
            // The first round warms up.
            if round > 0 {
                times.push(time / CALLS as u32);
            }
        }
    }
    times.iter_mut().map(|times| *times.select_nth_unstable(ROUNDS / 2).1).collect()
}

fn graph(extra: impl FnOnce(&mut Graph, TensorId) -> TensorId) -> Graph {
    let mut graph = Graph::new(DataType::FLOAT, DataType::FLOAT).named("convolution");
    let x = graph.tensor(Tensor::new(&[1, 64, 56, 56]).named("x").uid(1));
    let w = graph.tensor(Tensor::new(&[64, 64, 3, 3]).named("w").uid(2));
    let y = graph.convolution(x, w, Convolution::new(2).padding(&[1, 1]));
    let last = extra(&mut graph, y);
    graph.output(last, Tensor::default().named("y").uid(3));
    graph
}

fn convolution(handle: &Handle) -> OperationGraph {
    built(graph(|_, y| y), handle)
}

fn fused(handle: &Handle) -> OperationGraph {
    let extra = |graph: &mut Graph, y| {
        let bias = graph.tensor(Tensor::new(&[1, 64, 1, 1]).named("bias").uid(4));
        let sum = graph.pointwise(PointwiseMode::ADD, &[y, bias]);
        graph.pointwise(PointwiseMode::RELU_FWD, &[sum])
    };
    built(graph(extra), handle)
}

fn built(mut graph: Graph, handle: &Handle) -> OperationGraph {
    graph.build(handle).unwrap_or_else(|error| fail(&error))
}

/// A small convolution, to keep the time outside the frontend small: every library supports one.
const SMALL: [i64; 4] = [1, 8, 8, 8];
const FILTER: [i64; 4] = [8, 8, 1, 1];
/// Large enough for such a tensor, or for a plan's workspace.
const PIECE_BYTES: usize = 1 << 20;

/// Memory of the driver that the environment selects, or RAM.
enum Memory {
    Device(Device, Vec<DeviceBuffer>),
    Host(Vec<Vec<u8>>),
}

impl Memory {
    fn new(pieces: usize) -> Result<Self, Box<dyn Error>> {
        let Ok(kind) = std::env::var("AMDGPU_EP_DRIVER") else {
            return Ok(Self::Host(vec![vec![0; PIECE_BYTES]; pieces]));
        };
        let driver = Driver::load(kind.parse::<DriverKind>()?)?;
        let device = driver.devices()?.into_iter().next().ok_or("the driver found no device")?;
        let mut buffers = (0..pieces).map(|_| device.alloc(PIECE_BYTES)).collect::<Result<Vec<_>, _>>()?;
        buffers.iter_mut().try_for_each(|buffer| buffer.fill(0, PIECE_BYTES, 0))?;
        Ok(Self::Device(device, buffers))
    }

    fn addresses(&mut self) -> Vec<*mut c_void> {
        match self {
            Self::Device(_, buffers) => buffers.iter().map(|buffer| buffer.address().as_ptr().cast()).collect(),
            Self::Host(buffers) => buffers.iter_mut().map(|buffer| buffer.as_mut_ptr().cast()).collect(),
        }
    }
}

/// A small graph on a real backend.
struct Setting {
    backend: Arc<Loaded>,
    handle: Handle,
    plan: Plan,
    other_plan: Plan,
    memory: Memory,
    /// Two buffers each for data and result.
    places: [[*mut c_void; 2]; 2],
    filter: *mut c_void,
    workspace: *mut c_void,
}

impl Setting {
    fn new(backend: Arc<Loaded>) -> Result<Self, Box<dyn Error>> {
        println!("| *backend: {}* | |", backend.version());
        let mut memory = Memory::new(6)?;
        let [x0, x1, y0, y1, filter, workspace] = memory.addresses()[..] else {
            return Err("could not allocate memory".into());
        };
        let handle = Handle::new(backend.clone())?;
        let mut graph = Graph::new(DataType::FLOAT, DataType::FLOAT);
        let x = graph.tensor(Tensor::new(&SMALL).uid(1));
        let w = graph.tensor(Tensor::new(&FILTER).uid(3));
        let y = graph.convolution(x, w, Convolution::new(2));
        graph.output(y, Tensor::default().uid(2));
        let graph = graph.build(&handle)?;
        let plan = graph.plan()?;
        if plan.workspace_bytes() > PIECE_BYTES {
            return Err(format!("{} bytes of workspace are more than expected", plan.workspace_bytes()).into());
        }
        let (other_plan, places) = (graph.plan()?, [[x0, x1], [y0, y1]]);
        Ok(Self { backend, handle, plan, other_plan, memory, places, filter, workspace })
    }

    /// Waits for the enqueued work.
    fn wait(&self) {
        if let Memory::Device(device, _) = &self.memory {
            device.synchronize().unwrap_or_else(|error| fail(&error));
        }
    }

    fn tensors(&self, place: usize) -> [(i64, *mut c_void); 3] {
        [(1, self.places[0][place]), (2, self.places[1][place]), (3, self.filter)]
    }

    fn frontend(&self, place: usize) {
        // SAFETY: tensors and workspace have the required sizes, in memory that the backend can access.
        let done = unsafe { self.plan.execute(&self.handle, self.tensors(place), self.workspace) };
        done.unwrap_or_else(|error| fail(&error));
    }

    fn other_frontend(&self, place: usize) {
        // SAFETY: as above.
        let done = unsafe { self.other_plan.execute(&self.handle, self.tensors(place), self.workspace) };
        done.unwrap_or_else(|error| fail(&error));
    }

    /// A variant pack from C calls alone, as `Plan::execute` creates it.
    fn pack(&self, place: usize) -> sys::Descriptor {
        let tensors = self.tensors(place);
        let (uids, addresses) = (tensors.map(|(uid, _)| uid), tensors.map(|(_, address)| address));
        let workspace = [if self.plan.workspace_bytes() == 0 { ptr::null_mut() } else { self.workspace }];
        let (mut pack, backend) = (ptr::null_mut(), &*self.backend);
        // SAFETY: the arrays have the given number of elements, and the out-pointers are valid.
        let statuses = unsafe {
            [
                backend.create_descriptor(D::VARIANT_PACK_DESCRIPTOR, &mut pack),
                backend.set_attribute(pack, A::VARIANT_PACK_DATA_POINTERS, T::VOID_PTR, 3, addresses.as_ptr().cast()),
                backend.set_attribute(pack, A::VARIANT_PACK_UNIQUE_IDS, T::INT64, 3, uids.as_ptr().cast()),
                backend.set_attribute(pack, A::VARIANT_PACK_WORKSPACE, T::VOID_PTR, 1, workspace.as_ptr().cast()),
                backend.finalize(pack),
            ]
        };
        statuses.into_iter().for_each(check);
        pack
    }

    fn raw(&self, pack: sys::Descriptor) {
        // SAFETY: all three are alive; tensors and workspace have the required sizes.
        check(unsafe { self.backend.execute(self.handle.raw(), self.plan.descriptor().raw(), pack) });
    }

    fn destroy(&self, pack: sys::Descriptor) {
        // SAFETY: the pack is alive and destroyed once.
        check(unsafe { self.backend.destroy_descriptor(pack) });
    }
}

fn check(status: Status) {
    if status != Status::SUCCESS {
        fail(&status);
    }
}

fn fail(error: &dyn std::fmt::Display) -> ! {
    eprintln!("{error}");
    std::process::exit(1)
}
