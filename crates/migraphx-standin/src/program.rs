//! Programs: a graph, its target, and what a run needs.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::compute::{self, Precision};
use crate::element::{INT8, Shape};
use crate::model::{Graph, Tensor};
use crate::{FORMAT, VERSION, control};

/// What a program is compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Target {
    /// Host memory; the program owns the results.
    Ref,
    /// Like MIGraphX on a GPU: the caller provides memory for results, and work is queued on a stream.
    Gpu,
}

/// A parsed, quantised or compiled model.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Program {
    /// What it computes.
    pub graph: Graph,
    /// What it was compiled for.
    pub target: Option<Target>,
    /// How the precision of its arithmetic is reduced.
    pub precision: Precision,
    /// Bytes of scratch memory that a run needs.
    pub scratch: usize,
}

/// Where the bytes of a parameter are.
#[derive(Clone, Copy)]
pub struct Address(pub *mut u8);

// SAFETY: an address is only a number; code that reads or writes there gives its own reason.
unsafe impl Send for Address {}
// SAFETY: as above.
unsafe impl Sync for Address {}

/// Where an output is after a run.
pub enum OutputLocation {
    /// In the input that it returns unchanged.
    Input(String),
    /// In the parameter with this name.
    Parameter(String),
    /// In the program's memory.
    Own,
}

impl Program {
    /// A program for a parsed graph.
    pub fn new(graph: Graph) -> Result<Program, String> {
        compute::check(&graph)?;
        let program = Program { graph, target: None, precision: Precision::default(), scratch: 0 };
        program.outputs()?;
        Ok(program)
    }

    fn zeros(&self) -> Result<BTreeMap<String, Tensor>, String> {
        let zero = |input: &crate::model::Value| {
            let shape = Shape::packed(input.element, &input.dims);
            let bytes =
                shape.bytes().ok_or_else(|| format!("{} has unsupported type {}", input.name, input.element.0))?;
            Ok((input.name.clone(), Tensor { element: input.element, dims: input.dims.clone(), bytes: vec![0; bytes] }))
        };
        self.graph.inputs.iter().map(zero).collect()
    }

    /// The shapes of the outputs.
    pub fn outputs(&self) -> Result<Vec<Shape>, String> {
        let values = compute::values(&self.graph, self.zeros()?, &Precision::default())?;
        let shape = |name: &String| {
            let value = values.get(name).ok_or_else(|| format!("nothing computes the output {name}"))?;
            Ok(Shape::packed(value.element, &value.dims))
        };
        self.graph.outputs.iter().map(shape).collect()
    }

    /// The parameters by name.
    pub fn parameters(&self) -> Result<BTreeMap<String, Shape>, String> {
        let inputs = self.graph.inputs.iter();
        let mut parameters: BTreeMap<String, Shape> =
            inputs.map(|input| (input.name.clone(), Shape::packed(input.element, &input.dims))).collect();
        for (index, shape) in self.outputs()?.into_iter().enumerate() {
            if let OutputLocation::Parameter(name) = self.output_location(index) {
                parameters.insert(name, shape);
            }
        }
        if self.scratch > 0 {
            parameters.insert("scratch".into(), Shape::packed(INT8, &[self.scratch]));
        }
        Ok(parameters)
    }

    /// Where an output is written.
    pub fn output_location(&self, index: usize) -> OutputLocation {
        if self.target != Some(Target::Gpu) {
            return OutputLocation::Own;
        }
        match self.graph.outputs.get(index).and_then(|output| compute::alias(&self.graph, output)) {
            Some(input) => OutputLocation::Input(input.to_owned()),
            None if index < 10 => OutputLocation::Parameter(format!("main:#output_{index}")),
            None => OutputLocation::Parameter(format!("main:#output_:{index:05}")),
        }
    }

    /// Compiles for a target. With offload copy, where MIGraphX copies tensors itself, a GPU behaves like `ref`.
    pub fn compile(&mut self, target: Target, offload_copy: bool) {
        std::thread::sleep(control::compile_time());
        let seen = if offload_copy { Target::Ref } else { target };
        self.target = Some(seen);
        self.scratch = if seen == Target::Gpu { control::scratch() } else { 0 };
    }

    /// Extends the ranges by the values of one run on `inputs`.
    pub fn calibrate(&mut self, inputs: BTreeMap<String, Tensor>) -> Result<(), String> {
        let values = compute::values(&self.graph, inputs, &Precision::default())?;
        for name in self.graph.nodes.iter().filter(|node| node.op == "MatMul").flat_map(|node| &node.inputs) {
            let floats = values.get(name).into_iter().flat_map(|value| value.bytes.chunks_exact(4));
            let magnitudes = floats.map(|bytes| f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]).abs());
            let range = self.precision.ranges.entry(name.clone()).or_default();
            *range = magnitudes.fold(*range, f32::max);
        }
        Ok(())
    }

    /// The tensors at the addresses of the inputs.
    ///
    /// # Safety
    /// Each address belongs to an input and has all of its bytes.
    pub unsafe fn read_inputs(
        &self,
        addresses: &BTreeMap<String, Address>,
    ) -> Result<BTreeMap<String, Tensor>, String> {
        let read = |input: &crate::model::Value| {
            let address = addresses.get(&input.name).ok_or_else(|| format!("Parameter not found: {}", input.name))?;
            let length = Shape::packed(input.element, &input.dims).bytes().unwrap_or(0);
            let mut bytes = vec![0; length];
            // SAFETY: the caller guarantees the address.
            unsafe { std::ptr::copy_nonoverlapping(address.0, bytes.as_mut_ptr(), length) };
            Ok((input.name.clone(), Tensor { element: input.element, dims: input.dims.clone(), bytes }))
        };
        self.graph.inputs.iter().map(read).collect()
    }

    /// Computes, writes the outputs that have a parameter, and returns all of them.
    ///
    /// # Safety
    /// Each address belongs to a parameter and has all of its bytes; outputs and scratch are not used elsewhere.
    pub unsafe fn run(&self, addresses: &BTreeMap<String, Address>) -> Result<Vec<Tensor>, String> {
        // SAFETY: the caller guarantees the addresses.
        let inputs = unsafe { self.read_inputs(addresses) }?;
        if let Some(scratch) = addresses.get("scratch").filter(|_| self.scratch > 0) {
            // SAFETY: as above. Every byte is written, so that memory that is too small is detected.
            unsafe { scratch.0.write_bytes(0xa5, self.scratch) };
        }
        let values = compute::values(&self.graph, inputs, &self.precision)?;
        let mut outputs = Vec::new();
        for (index, name) in self.graph.outputs.iter().enumerate() {
            let value = values.get(name).ok_or_else(|| format!("nothing computes the output {name}"))?;
            if let OutputLocation::Parameter(parameter) = self.output_location(index) {
                let address = addresses.get(&parameter).ok_or_else(|| format!("Parameter not found: {parameter}"))?;
                // SAFETY: as above.
                unsafe { std::ptr::copy_nonoverlapping(value.bytes.as_ptr(), address.0, value.bytes.len()) };
            }
            outputs.push(value.clone());
        }
        Ok(outputs)
    }

    /// The bytes of a saved program: a header like MIGraphX's, then our own contents with their length.
    pub fn save(&self) -> Result<Vec<u8>, String> {
        let content = serde_json::to_vec(self).map_err(|error| error.to_string())?;
        let mut bytes = head();
        bytes.extend((content.len() as u64).to_le_bytes());
        bytes.extend(content);
        Ok(bytes)
    }

    /// Reads the output of [`Program::save`].
    pub fn load(bytes: &[u8]) -> Result<Program, String> {
        let rest = bytes.strip_prefix(head().as_slice()).ok_or("not a saved program, or one of another version")?;
        let (length, content) = rest.split_first_chunk::<8>().ok_or("the program is truncated")?;
        if u64::from_le_bytes(*length) != content.len() as u64 {
            return Err("the program is truncated".into());
        }
        serde_json::from_slice(content).map_err(|error| error.to_string())
    }
}

fn head() -> Vec<u8> {
    let mut head = b"\x85\xa7version".to_vec();
    head.push(FORMAT);
    head.extend(b"\xb0migraphx_version");
    head.push(0xa0 + VERSION.len() as u8);
    head.extend(VERSION.as_bytes());
    head.extend(b"\xa7targets");
    head
}
