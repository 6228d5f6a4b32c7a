//! The operators this plugin runs: partitions for `Mul` and `GlobalMaxPool`, kernels for `Pow` and `Shape`.
use ort_ep::view::{KernelContext, Tensor};
use ort_ep::{ElementType, Error, Kernel, KernelDef, MemoryDevice, Partition, Result};

use crate::control::{Gone, note};

/// What a partition computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// The product of two tensors of the same shape.
    Mul,
    /// The maximum of each channel of an image.
    GlobalMaxPool { channels_last: bool },
}

impl Op {
    /// The operator of a node, if it is one of ours.
    pub fn of(domain: &str, op_type: &str) -> Option<Self> {
        match (domain, op_type) {
            ("", "Mul") => Some(Self::Mul),
            ("", "GlobalMaxPool") => Some(Self::GlobalMaxPool { channels_last: false }),
            ("com.ms.internal.nhwc", "GlobalMaxPool") => Some(Self::GlobalMaxPool { channels_last: true }),
            _ => None,
        }
    }
}

pub struct OpPartition {
    op: Op,
    _gone: Gone,
}

impl OpPartition {
    pub fn new(op: Op) -> Self {
        Self { op, _gone: Gone("partition.drop") }
    }
}

impl Partition for OpPartition {
    fn compute(&self, context: &KernelContext<'_>) -> Result<()> {
        let x = input(context, 0)?;
        let place = format!("{:?}{}", x.memory().device, x.memory().device_id);
        note("partition.compute", format_args!("{:?} {place} stream={}", self.op, context.stream()?.is_some()))?;
        if std::env::var_os("HOOKS_SPEAK").is_some() {
            speak();
        }
        match self.op {
            Op::Mul => multiply(context, x),
            Op::GlobalMaxPool { channels_last } => pool(context, x, channels_last),
        }
    }
}

/// Logs one event of each level, on this thread and on one that ONNX Runtime does not know about.
fn speak() {
    tracing::error!(number = 1, "an error of hooks");
    tracing::warn!("a warning of hooks");
    tracing::info!("an info of hooks");
    tracing::debug!("a debug of hooks");
    tracing::trace!("a trace of hooks");
    // If the thread cannot be started, the event is missing and the test notices.
    let _ =
        std::thread::Builder::new().spawn(|| tracing::warn!("a warning of another thread")).map(|thread| thread.join());
}

fn multiply(context: &KernelContext<'_>, a: Tensor<'_>) -> Result<()> {
    let b = if context.input_count()? > 1 { input(context, 1)? } else { a };
    let mut out = context.output(0, a.shape()?)?.ok_or_else(missing)?;
    let (a, b) = (a.as_slice::<f32>()?, b.as_slice::<f32>()?);
    for ((out, a), b) in out.as_mut_slice::<f32>()?.iter_mut().zip(a).zip(b) {
        *out = a * b;
    }
    Ok(())
}

fn pool(context: &KernelContext<'_>, x: Tensor<'_>, channels_last: bool) -> Result<()> {
    let &[images, second, third, fourth] = x.shape()? else { return Err(Error::invalid_argument("no image")) };
    let (channels, pixels, shape) = if channels_last {
        (fourth, second * third, [images, 1, 1, fourth])
    } else {
        (second, third * fourth, [images, second, 1, 1])
    };
    let mut out = context.output(0, &shape)?.ok_or_else(missing)?;
    let x = x.as_slice::<f32>()?;
    for (index, out) in out.as_mut_slice::<f32>()?.iter_mut().enumerate() {
        let (image, channel) = (index / channels as usize, index % channels as usize);
        let at = |pixel: usize| {
            let start = image * (channels * pixels) as usize;
            start + if channels_last { pixel * channels as usize + channel } else { channel * pixels as usize + pixel }
        };
        *out = (0..pixels as usize).map(|pixel| x[at(pixel)]).fold(f32::NEG_INFINITY, f32::max);
    }
    Ok(())
}

fn input<'a>(context: &KernelContext<'a>, index: usize) -> Result<Tensor<'a>> {
    context.input(index)?.ok_or_else(missing)
}

fn missing() -> Error {
    Error::invalid_argument("an input or output is absent")
}

/// `Pow` reads its exponent on the host, `Shape` writes its result there.
pub fn kernels() -> Vec<KernelDef> {
    let pow = KernelDef::new("", "Pow", 1..=99, |info| {
        note("kernel.create", format_args!("{} {}", info.op_type()?, info.node_name()?))?;
        Ok(Box::new(Pow { _gone: Gone("kernel.drop") }))
    });
    let shape = KernelDef::new("", "Shape", 1..=99, |_| Ok(Box::new(Shape)));
    vec![
        pow.host_input(1).types("T", &[ElementType::F32]).types("T1", &[ElementType::F32]),
        shape.host_output(0).types("T", ElementType::ALL).types("T1", &[ElementType::I64]),
    ]
}

struct Pow {
    _gone: Gone,
}

impl Kernel for Pow {
    fn compute(&self, context: &KernelContext<'_>) -> Result<()> {
        let (x, exponent) = (input(context, 0)?, input(context, 1)?);
        note("kernel.compute", format_args!("{:?} {:?}", x.memory().device, exponent.memory().device))?;
        let mut out = context.output(0, x.shape()?)?.ok_or_else(missing)?;
        let &[exponent] = exponent.as_slice::<f32>()? else { return Err(Error::invalid_argument("no scalar")) };
        for (out, x) in out.as_mut_slice::<f32>()?.iter_mut().zip(x.as_slice::<f32>()?) {
            *out = x.powf(exponent);
        }
        Ok(())
    }
}

struct Shape;

impl Kernel for Shape {
    fn compute(&self, context: &KernelContext<'_>) -> Result<()> {
        let shape = input(context, 0)?.shape()?;
        let mut out = context.output(0, &[shape.len() as i64])?.ok_or_else(missing)?;
        note("kernel.shape", out.memory() == MemoryDevice::CPU)?;
        out.as_mut_slice::<i64>()?.copy_from_slice(shape);
        Ok(())
    }
}
