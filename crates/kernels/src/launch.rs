//! Launches and their arguments.
use std::ffi::c_void;

use graph::View;

use crate::Kernel;
use crate::quant::UNPACKED;

/// The launches of a step on a GPU.
#[derive(Clone, Debug, PartialEq)]
pub struct Launches {
    /// Launched one after the other.
    pub launches: Vec<Launch>,
    /// Bytes of scratch memory that the launches share; its contents are undefined before and after.
    pub scratch_bytes: usize,
}

impl Launches {
    /// No launch at all: there are no results to compute.
    pub fn nothing() -> Self {
        Self { launches: Vec::new(), scratch_bytes: 0 }
    }

    /// Total number of threads, which determines the run time on slow and emulated devices.
    pub fn threads(&self) -> u64 {
        let blocks = |grid: &[u32; 3]| grid.iter().map(|&count| u64::from(count)).product::<u64>();
        self.launches.iter().map(|launch| blocks(&launch.grid) * u64::from(launch.threads)).sum()
    }

    /// One launch without scratch memory.
    pub fn one(launch: Launch) -> Self {
        Self { launches: vec![launch], scratch_bytes: 0 }
    }
}

/// A launch of a kernel.
#[derive(Clone, Debug, PartialEq)]
pub struct Launch {
    /// The code.
    pub kernel: Kernel,
    /// Blocks along x, y, z.
    pub grid: [u32; 3],
    /// Threads per block, along x.
    pub threads: u32,
    /// Bytes of dynamic LDS.
    pub lds_bytes: u32,
    /// The kernel's one argument.
    pub args: Args,
}

/// The argument of a kernel's entry point on the host driver; `sim/wavesim.h` has the same structure.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub struct HostLaunch {
    pub grid: [u32; 3],
    pub block: [u32; 3],
    pub lds_bytes: u32,
    pub reserved: u32,
    /// The kernel's one argument.
    pub args: *const c_void,
}

/// Memory whose address is passed to a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pointer {
    /// Byte offset in the buffer of the step's input with this index.
    Input(usize, isize),
    /// Byte offset in the buffer of the step's output with this index.
    Output(usize, isize),
    /// Byte offset in the scratch memory.
    Scratch(usize),
    /// The step's fault word, a `u32`: zero unless a kernel found data that is invalid for the operator.
    Fault,
    /// This many counters, each a `u32`: zero before a launch, and again after it.
    Counters(usize),
}

/// A field of an argument structure, for checks against the compiler's own layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// The name in the kernel's source.
    pub name: &'static str,
    /// The offset.
    pub offset: usize,
}

/// Builds an argument structure: fields in the order of the kernel's source, with C layout.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Args {
    bytes: Vec<u8>,
    align: usize,
    pointers: Vec<(usize, Pointer)>,
    /// Those that are read before earlier launches have finished.
    ahead: Vec<Pointer>,
    fields: Vec<Field>,
}

impl Args {
    /// A structure without fields.
    pub fn new() -> Self {
        Self::default()
    }

    fn field(&mut self, name: &'static str, bytes: &[u8], align: usize) -> usize {
        let offset = self.bytes.len().next_multiple_of(align);
        self.bytes.resize(offset, 0);
        self.bytes.extend_from_slice(bytes);
        self.align = self.align.max(align);
        self.fields.push(Field { name, offset });
        offset
    }

    fn pointer(mut self, name: &'static str, pointer: Pointer) -> Self {
        let offset = self.field(name, &[0; 8], 8);
        self.pointers.push((offset, pointer));
        self
    }

    /// The address of the first element of input `number`, with this view.
    #[must_use]
    pub fn input(self, name: &'static str, number: usize, view: &View) -> Self {
        let bytes = view.offset * view.dtype.bytes() as isize;
        // Memory that was made for this step alone is in its scratch memory.
        let made = view.buffer == UNPACKED;
        self.pointer(name, if made { Pointer::Scratch(bytes as usize) } else { Pointer::Input(number, bytes) })
    }

    /// Same as [`input`](Self::input), for memory that the kernel reads before it waits for earlier launches: it can
    /// start early only if that memory is constant.
    #[must_use]
    pub fn constant(mut self, name: &'static str, number: usize, view: &View) -> Self {
        self = self.input(name, number, view);
        self.ahead.extend(self.pointers.last().map(|&(_, pointer)| pointer));
        self
    }

    /// The memory that the kernel reads before it waits for earlier launches.
    pub fn ahead(&self) -> &[Pointer] {
        &self.ahead
    }

    /// The address of the first element of output `number`, with this view.
    #[must_use]
    pub fn output(self, name: &'static str, number: usize, view: &View) -> Self {
        self.pointer(name, Pointer::Output(number, view.offset * view.dtype.bytes() as isize))
    }

    /// The same fields, with the addresses so far mapped to other memory.
    #[must_use]
    pub fn moved(mut self, to: impl Fn(Pointer) -> Pointer) -> Self {
        let pointers = self.pointers.iter_mut().map(|(_, pointer)| pointer);
        pointers.chain(&mut self.ahead).for_each(|pointer| *pointer = to(*pointer));
        self
    }

    /// An address in the scratch memory.
    #[must_use]
    pub fn scratch(self, name: &'static str, offset: usize) -> Self {
        self.pointer(name, Pointer::Scratch(offset))
    }

    /// The address of the step's fault word.
    #[must_use]
    pub fn fault(self, name: &'static str) -> Self {
        self.pointer(name, Pointer::Fault)
    }

    /// The address of this many zeroed counters; the kernel leaves them zero.
    #[must_use]
    pub fn counters(self, name: &'static str, count: usize) -> Self {
        self.pointer(name, Pointer::Counters(count))
    }

    /// A NULL pointer.
    #[must_use]
    pub fn null(mut self, name: &'static str) -> Self {
        self.field(name, &[0; 8], 8);
        self
    }

    /// A `u32`. Launchers reject larger numbers.
    #[must_use]
    pub fn u32(mut self, name: &'static str, value: u32) -> Self {
        self.field(name, &value.to_le_bytes(), 4);
        self
    }

    /// An `i64`.
    #[must_use]
    pub fn i64(mut self, name: &'static str, value: i64) -> Self {
        self.field(name, &value.to_le_bytes(), 8);
        self
    }

    /// An `f32`.
    #[must_use]
    pub fn f32(mut self, name: &'static str, value: f32) -> Self {
        self.field(name, &value.to_le_bytes(), 4);
        self
    }

    /// An array of `u32`.
    #[must_use]
    pub fn u32s(mut self, name: &'static str, values: &[u32]) -> Self {
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        self.field(name, &bytes, 4);
        self
    }

    /// An array of `i64`.
    #[must_use]
    pub fn i64s(mut self, name: &'static str, values: &[i64]) -> Self {
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        self.field(name, &bytes, 8);
        self
    }

    /// The structure's bytes, as long as C's `sizeof`, with zeros in place of addresses.
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = self.bytes.clone();
        bytes.resize(bytes.len().next_multiple_of(self.align.max(1)), 0);
        bytes
    }

    /// The offsets of the addresses and the memory they refer to.
    pub fn pointers(&self) -> &[(usize, Pointer)] {
        &self.pointers
    }

    /// The fields with their offsets.
    pub fn fields(&self) -> &[Field] {
        &self.fields
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_have_the_offsets_of_c() {
        let args = Args::new().u32("a", 1).i64("b", 2).u32("c", 3).fault("d").u32("e", 4);
        let offsets: Vec<_> = args.fields().iter().map(|field| field.offset).collect();
        assert_eq!(offsets, [0, 8, 16, 24, 32]);
        assert_eq!(args.bytes().len(), 40);
        assert_eq!(args.pointers(), [(24, Pointer::Fault)]);
    }
}
