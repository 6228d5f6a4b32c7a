//! Finds hipDNN at run time: this program is linked with none, although its package uses `hipdnn-linked` too.

use std::error::Error;
use std::process::ExitCode;

fn main() -> ExitCode {
    hipdnn_consumer::ended(compute())
}

fn compute() -> Result<(), Box<dyn Error>> {
    hipdnn_consumer::run(hipdnn::backend()?)
}
