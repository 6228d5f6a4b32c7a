//! A program that is linked with hipDNN: it does not start without the library.

use std::error::Error;
use std::process::ExitCode;
use std::sync::Arc;

use hipdnn_linked::Linked;

fn main() -> ExitCode {
    hipdnn_consumer::ended(compute())
}

fn compute() -> Result<(), Box<dyn Error>> {
    hipdnn_consumer::run(Arc::new(Linked::new()?))
}
