//! Binding parameters and running programs.

use std::collections::BTreeMap;
use std::ffi::{c_char, c_void};

use super::shape::{Argument, Arguments};
use super::{api, text};
use crate::control;
use crate::element::Shape;
use crate::handles::{Handle, free, give, of, of_mut};
use crate::hip_stream::HostDriver;
use crate::model::Tensor;
use crate::program::{Address, OutputLocation, Program, Target};

/// Parameters by name.
#[derive(Clone, Default)]
pub struct Bound(BTreeMap<String, (Shape, Address)>);

impl Bound {
    /// The addresses, after MIGraphX's own checks: every parameter is present with its exact shape.
    pub fn checked(&self, program: &Program) -> Result<BTreeMap<String, Address>, String> {
        let find = |(name, wanted): (String, Shape)| {
            let (shape, address) = self.0.get(&name).ok_or_else(|| format!("Parameter not found: {name}"))?;
            if *shape != wanted {
                return Err(format!("Incorrect shape {shape:?} for parameter: {name}"));
            }
            Ok((name, *address))
        };
        program.parameters()?.into_iter().map(find).collect()
    }
}

/// The arguments that a run returns. Those without memory are filled from `values`.
fn returned(program: &Program, addresses: &BTreeMap<String, Address>, values: &[Tensor]) -> Result<Arguments, String> {
    let mut arguments = Vec::new();
    for (index, shape) in program.outputs()?.into_iter().enumerate() {
        let bound = match program.output_location(index) {
            OutputLocation::Input(name) | OutputLocation::Parameter(name) => addresses.get(&name),
            OutputLocation::Own => None,
        };
        arguments.push(match bound {
            Some(address) => Argument { shape, address: address.0, own: None },
            None => {
                let bytes = values.get(index).map(|value| value.bytes.as_slice()).unwrap_or_default();
                let mut own = vec![0u64; shape.bytes().unwrap_or(0).max(bytes.len()).div_ceil(8).max(1)];
                let address = own.as_mut_ptr().cast::<u8>();
                // SAFETY: the memory was allocated with room for the bytes.
                unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), address, bytes.len()) };
                Argument { shape, address, own: Some(own) }
            }
        });
    }
    Ok(Arguments(arguments))
}

/// A run to be executed later.
///
/// The parameters' memory belongs to the caller that queues the run, until the stream has executed it.
fn work(program: &Program, addresses: &BTreeMap<String, Address>) -> Box<dyn Fn() + Send + Sync> {
    let (program, addresses) = (program.clone(), addresses.clone());
    Box::new(move || {
        // SAFETY: the addresses were checked when the run was queued, and their owner keeps the memory alive.
        if let Err(reason) = unsafe { program.run(&addresses) } {
            eprintln!("migraphx_program_run_async: Error: {reason}");
        }
    })
}

api! {
    fn migraphx_program_parameters_create(out: *mut Handle) {
        give(out, Bound::default())
    }

    fn migraphx_program_parameters_destroy(bound: Handle) {
        free::<Bound>(bound)
    }

    fn migraphx_program_parameters_add(bound: Handle, name: *const c_char, argument: Handle) {
        let argument = of::<Argument>(argument)?;
        of_mut::<Bound>(bound)?.0.insert(text(name)?, (argument.shape.clone(), Address(argument.address)));
        Ok(())
    }

    fn migraphx_program_run(out: *mut Handle, program: Handle, bound: Handle) {
        let program = of::<Program>(program)?;
        let addresses = of::<Bound>(bound)?.checked(program)?;
        control::log("run");
        let values = program.run(&addresses)?;
        give(out, returned(program, &addresses, &values)?)
    }

    fn migraphx_program_run_async(
        out: *mut Handle,
        program: Handle,
        bound: Handle,
        stream: *mut c_void,
        kind: *const c_char,
    ) {
        let kind = text(kind)?;
        let program = of::<Program>(program)?;
        let addresses = of::<Bound>(bound)?.checked(program)?;
        control::log("run_async");
        if program.target != Some(Target::Gpu) {
            // Like the real `ref` target, it ignores the stream.
            let values = program.run(&addresses)?;
            return give(out, returned(program, &addresses, &values)?);
        }
        if kind != "ihipStream_t" {
            return Err(format!("unsupported stream type {kind}"));
        }
        match HostDriver::open().filter(|_| !stream.is_null()) {
            Some(driver) => driver.launch(stream, work(program, &addresses))?,
            None => {
                program.run(&addresses)?;
            }
        }
        give(out, returned(program, &addresses, &[])?)
    }
}
