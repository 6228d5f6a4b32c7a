//! A small client of ONNX Runtime's C API, for tests that can't be written in Python: under valgrind, or where the API
//! has no Python equivalent.
//!
//! ```no_run
//! use testkit::ort::{Environment, Runtime, Session, Value};
//! # fn main() -> anyhow::Result<()> {
//! # let model = Vec::new();
//! let environment = Environment::new(Runtime::load(&testkit::place::onnxruntime()?)?, "example")?;
//! let registration = environment.register("AMDGPUExecutionProvider", &testkit::place::staged_library("amdgpu-ep")?)?;
//! let devices = registration.devices()?;
//! let session = Session::new(&environment, &model, &devices[..1], &[("profile", "hip")])?;
//! let input = Value::from_floats(&environment, &[2, 2], &[1.0, 2.0, 3.0, 4.0])?;
//! let outputs = session.run(&[("x", &input)], &["y"])?;
//! println!("{:?}", outputs[0].floats()?);
//! drop((outputs, session));
//! registration.unregister()?;
//! # Ok(())
//! # }
//! ```

mod environment;
mod runtime;
mod session;
mod value;

pub use environment::{Allocator, Device, Environment, Memory, Registration};
pub use runtime::Runtime;
pub use session::Session;
pub use value::Value;
