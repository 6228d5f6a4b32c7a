//! A backend library with the memory it computes in.

use std::ffi::c_void;
use std::path::PathBuf;
use std::sync::Arc;

use hip::{Device, DeviceBuffer, Driver, DriverKind, RawStream};
use hipdnn::sys::{Backend, Status};
use hipdnn::{Error, Graph, Handle, Loaded, Search, Tensor, TensorId};

use crate::data::{Data, Element, places};

/// Why a case did not pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The backend does not run such a graph, for this reason.
    NotSupported(String),
    /// It gave a wrong result or failed.
    Wrong(String),
}

/// How a case ends.
pub type Answer<T = ()> = Result<T, Failure>;

/// Bytes around every result that must stay as they are.
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
}

impl Bench {
    /// A library that computes in RAM.
    ///
    /// # Errors
    /// It can't be loaded.
    pub fn on_host(library: PathBuf) -> anyhow::Result<Self> {
        Ok(Self { backend: load(library)?, memory: Memory::Host })
    }

    /// A library that computes in the memory of a driver's first device.
    ///
    /// # Errors
    /// The library or the driver can't be loaded, or there is no device.
    pub fn on_device(library: PathBuf, driver: DriverKind) -> anyhow::Result<Self> {
        if driver == DriverKind::Host {
            return Self::on_host(library);
        }
        let driver = Driver::load(driver)?;
        let device = driver.devices()?.into_iter().next();
        let device = device.ok_or_else(|| anyhow::anyhow!("no device: {:?}", driver.no_device_reason()))?;
        Ok(Self { backend: load(library)?, memory: Memory::Device(device) })
    }

    /// The library and what it runs on.
    pub fn describe(&self) -> String {
        match &self.memory {
            Memory::Host => format!("{} in RAM", self.backend.describe()),
            Memory::Device(device) => format!("{} on {}", self.backend.describe(), device.info().name),
        }
    }

    /// Builds a graph whose results are of one type, runs it, and gives each result's values in the order of its extents.
    ///
    /// # Errors
    /// The backend does not run it, or fails.
    pub fn run(
        &self,
        graph: &mut Graph,
        inputs: &[(TensorId, &Data)],
        outputs: &[TensorId],
        element: Element,
    ) -> Answer<Vec<Vec<f64>>> {
        // Device memory and handles belong to the thread's current device.
        let scope = match &self.memory {
            Memory::Host => None,
            Memory::Device(device) => Some(device.enter().map_err(wrong)?),
        };
        let ran = self.run_here(graph, inputs, outputs, element);
        drop(scope);
        ran
    }

    fn run_here(
        &self,
        graph: &mut Graph,
        inputs: &[(TensorId, &Data)],
        outputs: &[TensorId],
        element: Element,
    ) -> Answer<Vec<Vec<f64>>> {
        let handle = Handle::new(self.backend.clone()).map_err(wrong)?;
        for &output in outputs {
            graph.output(output, Tensor::default().typed(element.code()));
        }
        let built = graph.build(&handle).and_then(|built| built.plan());
        let plan = built.map_err(|error| self.refused(&error))?;
        let mut images: Vec<Vec<u8>> = inputs.iter().map(|(_, data)| image(data)).collect();
        let shapes: Vec<(Vec<i64>, Vec<i64>)> = outputs
            .iter()
            .map(|&id| {
                let (dims, strides) = graph.extents(id);
                (dims.to_vec(), strides.to_vec())
            })
            .collect();
        let bytes = element.size();
        for (dims, strides) in &shapes {
            let last = places(dims, strides).into_iter().max().unwrap_or(0);
            images.push(vec![GUARD; (last + 1) * bytes + GUARD_BYTES]);
        }
        let ids = inputs.iter().map(|(id, _)| *id).chain(outputs.iter().copied());
        let uids: Vec<i64> = ids.filter_map(|id| graph.uid(id)).collect();
        match &self.memory {
            Memory::Host => {
                let mut workspace = vec![0u128; plan.workspace_bytes().div_ceil(16)];
                let addresses = images.iter_mut().map(|bytes| bytes.as_mut_ptr().cast::<c_void>());
                // SAFETY: every tensor has the memory its extents and strides ask for; the library takes host memory.
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
                let addresses = buffers.iter().map(|buffer| buffer.address().as_ptr().cast::<c_void>());
                let workspace = workspace.address().as_ptr().cast();
                // SAFETY: every tensor has device memory as its extents and strides ask for; the stream is drained below.
                let ran = unsafe { plan.execute(&handle, uids.into_iter().zip(addresses), workspace) };
                let drained = device.stream_synchronize(RawStream::DEFAULT).map_err(wrong);
                ran.map_err(|error| self.refused(&error))?;
                drained?;
                fetch(&buffers, &mut images)?;
            }
        }
        let made = shapes.iter().zip(&images[inputs.len()..]);
        made.map(|((dims, strides), image)| {
            if image[image.len() - GUARD_BYTES..].iter().any(|&byte| byte != GUARD) {
                return Err(Failure::Wrong("written behind the end of a result".into()));
            }
            let value = |place: usize| element.number(&image[place * bytes..][..bytes]);
            Ok(places(dims, strides).into_iter().map(value).collect())
        })
        .collect()
    }

    /// A refusal with the backend's own reason, or a failure.
    fn refused(&self, error: &Error) -> Failure {
        match error {
            Error::NotSupported { .. } => {
                let mut text = [0u8; 1024];
                // SAFETY: the buffer is as large as said.
                unsafe { self.backend.last_error_string(text.as_mut_ptr().cast(), text.len()) };
                let end = text.iter().position(|&byte| byte == 0).unwrap_or(text.len());
                Failure::NotSupported(String::from_utf8_lossy(&text[..end]).into_owned())
            }
            Error::Backend { status: Status::NOT_SUPPORTED, text, .. } => Failure::NotSupported(text.clone()),
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

/// A tensor as it lies in memory.
fn image(data: &Data) -> Vec<u8> {
    let bytes = data.element.size();
    let all = places(&data.dims, &data.strides);
    let mut image = vec![GUARD; (all.iter().max().unwrap_or(&0) + 1) * bytes];
    for (place, value) in all.into_iter().zip(&data.values) {
        image[place * bytes..][..bytes].copy_from_slice(&data.element.bytes(*value));
    }
    image
}

fn fetch(buffers: &[DeviceBuffer], images: &mut [Vec<u8>]) -> Answer {
    for (buffer, image) in buffers.iter().zip(images) {
        buffer.copy_to_host(0, image).map_err(wrong)?;
    }
    Ok(())
}
