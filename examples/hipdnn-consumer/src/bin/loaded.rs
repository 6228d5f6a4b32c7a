//! A program that finds hipDNN at run time: it is not linked with one, although its package also uses `hipdnn-linked`.

use std::error::Error;
use std::process::ExitCode;

fn main() -> ExitCode {
    hipdnn_consumer::ended(compute())
}

fn compute() -> Result<(), Box<dyn Error>> {
    hipdnn_consumer::run(hipdnn::backend()?)
}
