//! A backend library with the memory it computes in.

use std::ffi::c_void;
use std::path::PathBuf;
use std::sync::Arc;

use hip::{Device, DeviceBuffer, Driver, DriverKind, RawStream};
use hipdnn::sys::{Backend, Status};
use hipdnn::{Error, Graph, Handle, Loaded, OperationGraph, Plan, Search, Tensor, TensorId};

use crate::data::{Data, odd_strides, places};
use crate::draw::Draw;
use crate::element::Element;

/// Why a case did not pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The backend does not support the graph, for this reason.
    NotSupported(String),
    /// The result was wrong, or the backend failed.
    Wrong(String),
}

impl Failure {
    /// Adds the case to a wrong result.
    #[must_use]
    pub fn of(self, case: &impl std::fmt::Debug) -> Self {
        match self {
            Self::Wrong(reason) => Self::Wrong(format!("{reason}; {case:?}")),
            other => other,
        }
    }
}

/// The outcome of a case.
pub type Answer<T = ()> = Result<T, Failure>;

/// A result that a case reads back.
#[derive(Clone, Copy, Debug)]
pub struct ExpectedOutput {
    /// The tensor.
    pub id: TensorId,
    /// The type.
    pub element: Element,
    /// The source of its strides; `None` leaves them to the frontend.
    pub strides: Option<u64>,
}

impl ExpectedOutput {
    /// A result with the strides that the frontend infers.
    pub fn new(id: TensorId, element: Element) -> Self {
        Self { id, element, strides: None }
    }

    /// A result that sometimes gets its own strides.
    pub fn arranged(id: TensorId, element: Element, draw: &mut Draw) -> Self {
        let (is_odd, seed) = (draw.flag(), draw.int(0..1 << 32));
        Self { id, element, strides: is_odd.then_some(seed.unsigned_abs()) }
    }
}

/// Guard bytes around every result; they must not change.
const GUARD: u8 = 0xA5;
const GUARD_BYTES: usize = 64;

enum Memory {
    Host,
    Device(Device),
}

/// A backend library with the memory it computes in.
pub struct Bench {
    backend: Arc<dyn Backend>,
    memory: Memory,
    saves: bool,
}

impl Bench {
    /// A library that computes in RAM.
    ///
    /// # Errors
    /// It cannot be loaded.
    pub fn on_host(library: PathBuf) -> anyhow::Result<Self> {
        Ok(Self { backend: load(library)?, memory: Memory::Host, saves: false })
    }

    /// A library that computes in the memory of a driver's first device.
    ///
    /// # Errors
    /// The library or the driver cannot be loaded, or there is no device.
    pub fn on_device(library: PathBuf, driver: DriverKind) -> anyhow::Result<Self> {
        if driver == DriverKind::Host {
            return Self::on_host(library);
        }
        let driver = Driver::load(driver)?;
        let device = driver.devices()?.into_iter().next();
        let device = device.ok_or_else(|| anyhow::anyhow!("no device: {:?}", driver.no_device_reason()))?;
        Ok(Self { backend: load(library)?, memory: Memory::Device(device), saves: false })
    }

    /// Serialises and reads back every graph and plan before it runs.
    #[must_use]
    pub fn through_bytes(mut self) -> Self {
        self.saves = true;
        self
    }

    /// The library and its device.
    pub fn describe(&self) -> String {
        match &self.memory {
            Memory::Host => format!("{} in RAM", self.backend.describe()),
            Memory::Device(device) => format!("{} on {}", self.backend.describe(), device.info().name),
        }
    }

    /// Builds a graph whose results all have one type, runs it, and returns each result's values in the order of its
    /// extents.
    ///
    /// # Errors
    /// The backend does not support it, or fails.
    pub fn run(
        &self,
        graph: &mut Graph,
        inputs: &[(TensorId, &Data)],
        outputs: &[TensorId],
        element: Element,
    ) -> Answer<Vec<Vec<f64>>> {
        self.run_for(graph, inputs, &outputs.iter().map(|&id| ExpectedOutput::new(id, element)).collect::<Vec<_>>())
    }

    /// Like [`run`](Self::run), with a type and a layout for each result.
    ///
    /// # Errors
    /// The same as for [`run`](Self::run).
    pub fn run_for(
        &self,
        graph: &mut Graph,
        inputs: &[(TensorId, &Data)],
        outputs: &[ExpectedOutput],
    ) -> Answer<Vec<Vec<f64>>> {
        // Device memory and handles belong to the thread's current device.
        let scope = match &self.memory {
            Memory::Host => None,
            Memory::Device(device) => Some(device.enter().map_err(wrong)?),
        };
        let ran = self.run_here(graph, inputs, outputs);
        drop(scope);
        match ran {
            Err(Failure::NotSupported(reason)) => {
                let element = outputs.first().map_or_else(String::new, |want| format!("{:?}: ", want.element));
                Err(Failure::NotSupported(format!("{element}{reason}")))
            }
            other => other,
        }
    }

    fn run_here(
        &self,
        graph: &mut Graph,
        inputs: &[(TensorId, &Data)],
        outputs: &[ExpectedOutput],
    ) -> Answer<Vec<Vec<f64>>> {
        let handle = Handle::new(self.backend.clone()).map_err(wrong)?;
        lay_out(graph, outputs)?;
        let built = graph.build(&handle).and_then(|built| self.plan(&handle, &built));
        let plan = built.map_err(|error| self.refused(&error))?;
        let mut images: Vec<Vec<u8>> = inputs.iter().map(|(_, data)| image(data)).collect();
        let shapes: Vec<(Vec<i64>, Vec<i64>)> = outputs
            .iter()
            .map(|want| {
                let (dims, strides) = graph.extents(want.id);
                (dims.to_vec(), strides.to_vec())
            })
            .collect();
        for ((dims, strides), want) in shapes.iter().zip(outputs) {
            let last = places(dims, strides).into_iter().max().unwrap_or(0);
            images.push(vec![GUARD; want.element.bytes(last + 1) + GUARD_BYTES]);
        }
        let ids = inputs.iter().map(|(id, _)| *id).chain(outputs.iter().map(|want| want.id));
        let uids: Vec<i64> = ids.filter_map(|id| graph.uid(id)).collect();
        match &self.memory {
            Memory::Host => {
                let mut workspace = vec![0u128; plan.workspace_bytes().div_ceil(16)];
                let addresses = images.iter_mut().map(|bytes| bytes.as_mut_ptr().cast::<c_void>());
                // SAFETY: every tensor has memory for its extents and strides; the library takes host memory.
                let ran =
                    unsafe { plan.execute(&handle, uids.into_iter().zip(addresses), workspace.as_mut_ptr().cast()) };
                ran.map_err(|error| self.refused(&error))?;
            }
            Memory::Device(device) => {
                let mut buffers = Vec::with_capacity(images.len());
                for image in &images {
                    let mut buffer = device.alloc(image.len()).map_err(wrong)?;
                    buffer.copy_to_device(0, image).map_err(wrong)?;
                    buffers.push(buffer);
                }
                let workspace = device.alloc(plan.workspace_bytes().max(1)).map_err(wrong)?;
                let is_by_value = |at: usize| inputs.get(at).is_some_and(|(_, data)| data.is_by_value);
                let addresses = buffers.iter().zip(&mut images).enumerate().map(|(at, (buffer, image))| {
                    let on_device = buffer.address().as_ptr().cast::<c_void>();
                    if is_by_value(at) { image.as_mut_ptr().cast() } else { on_device }
                });
                let workspace = workspace.address().as_ptr().cast();
                // SAFETY: every tensor has device memory for its extents and strides; the stream is drained below.
                let ran = unsafe { plan.execute(&handle, uids.into_iter().zip(addresses), workspace) };
                let drained = device.stream_synchronize(RawStream::DEFAULT).map_err(wrong);
                ran.map_err(|error| self.refused(&error))?;
                drained?;
                fetch(&buffers, &mut images)?;
            }
        }
        let made = shapes.iter().zip(outputs).zip(&images[inputs.len()..]);
        made.map(|(((dims, strides), want), image)| {
            let element = want.element;
            let places = places(dims, strides);
            // After every element is overwritten, the remaining bytes belong to no element.
            let mut rest = image.clone();
            let values = places.iter().map(|&place| element.load(image, place)).collect();
            places.iter().for_each(|&place| guard(element, &mut rest, place));
            if rest.iter().any(|&byte| byte != GUARD) {
                return Err(Failure::Wrong("bytes between or after the elements of a result were written".into()));
            }
            Ok(values)
        })
        .collect()
    }

    fn plan(&self, handle: &Handle, built: &OperationGraph) -> hipdnn::Result<Plan> {
        if !self.saves {
            return built.plan();
        }
        let graph = OperationGraph::from_bytes(handle, &built.to_bytes()?)?;
        let graph = OperationGraph::from_json(handle, &graph.to_json()?)?;
        Plan::from_bytes(handle, &graph.plan()?.to_bytes()?)
    }

    /// Unsupported with the backend's own reason, or a failure.
    fn refused(&self, error: &Error) -> Failure {
        match error {
            Error::NotSupported { reason, .. } => Failure::NotSupported(reason.clone()),
            Error::Backend { status: Status::NOT_SUPPORTED, text, .. } => Failure::NotSupported(text.clone()),
            other if other.is_not_supported() => Failure::NotSupported(other.to_string()),
            other => Failure::Wrong(other.to_string()),
        }
    }
}

fn load(library: PathBuf) -> anyhow::Result<Arc<dyn Backend>> {
    Ok(Arc::new(Loaded::open(&Search { place: Some(library), ..Search::default() })?))
}

fn wrong(error: impl std::fmt::Display) -> Failure {
    Failure::Wrong(error.to_string())
}

/// Makes results non-virtual, with their types and layouts.
fn lay_out(graph: &mut Graph, outputs: &[ExpectedOutput]) -> Answer {
    for want in outputs {
        graph.output(want.id, Tensor::default().typed(want.element.code()));
    }
    if outputs.iter().any(|want| want.strides.is_some()) {
        graph.validate().map_err(wrong)?;
    }
    for want in outputs {
        let Some(seed) = want.strides else { continue };
        let strides = odd_strides(graph.extents(want.id).0, want.element.bits() >= 8, &mut Draw::new(seed));
        graph.output(want.id, Tensor::default().typed(want.element.code()).strides(&strides));
    }
    Ok(())
}

/// Replaces an element with the guard's bits.
fn guard(element: Element, image: &mut [u8], place: usize) {
    match element.bits() {
        4 => {
            let (byte, mask) = (&mut image[place / 2], 0xF << (place % 2 * 4));
            *byte = (*byte & !mask) | (GUARD & mask);
        }
        bits => image[place * bits / 8..][..bits / 8].fill(GUARD),
    }
}

/// A tensor's bytes in memory.
fn image(data: &Data) -> Vec<u8> {
    let all = places(&data.dims, &data.strides);
    let mut image = vec![GUARD; data.element.bytes(all.iter().max().unwrap_or(&0) + 1)];
    for (place, value) in all.into_iter().zip(&data.values) {
        data.element.store(&mut image, place, *value);
    }
    image
}

fn fetch(buffers: &[DeviceBuffer], images: &mut [Vec<u8>]) -> Answer {
    for (buffer, image) in buffers.iter().zip(images) {
        buffer.copy_to_host(0, image).map_err(wrong)?;
    }
    Ok(())
}
