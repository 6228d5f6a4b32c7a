//! One part of this program is linked with hipDNN and another one finds a hipDNN at run time: each uses its own.

use std::error::Error;
use std::process::ExitCode;
use std::sync::Arc;

use hipdnn::log;
use hipdnn::sys::{Backend, Severity};
use hipdnn_linked::Linked;

fn main() -> ExitCode {
    hipdnn_consumer::ended(compute())
}

fn compute() -> Result<(), Box<dyn Error>> {
    let linked: Arc<dyn Backend> = Arc::new(Linked::new()?);
    let loaded = hipdnn::backend()?;
    // The level is stored per library: if both were the same library, setting the second would have changed the first.
    log::set_level(&*linked, Severity::ERROR)?;
    log::set_level(&*loaded, Severity::FATAL)?;
    if (log::level(&*linked)?, log::level(&*loaded)?) != (Severity::ERROR, Severity::FATAL) {
        return Err("the two libraries are one".into());
    }
    hipdnn_consumer::run(linked)?;
    hipdnn_consumer::run(loaded)
}
