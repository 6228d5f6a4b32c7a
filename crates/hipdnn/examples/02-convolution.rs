//! A convolution with a hipDNN that is found at run time: this program does not link one.
//!
//! ```sh
//! cargo xtask stage
//! AMDGPU_EP_DRIVER=host AMDGPU_EP_HIP_HOST_LIBRARY=target/stage/dev/lib/libhip-host.so \
//!     AMDGPU_EP_HIPDNN_LIBRARY=target/stage/dev/lib/libhipdnn_host.so cargo run -p hipdnn --example 02-convolution
//! ```

mod sample;

use std::error::Error;
use std::process::ExitCode;
use std::sync::Arc;

use hipdnn::{Loaded, Search};

fn main() -> ExitCode {
    sample::ended(convolve())
}

fn convolve() -> Result<(), Box<dyn Error>> {
    let driver = sample::driver()?;
    // ROCm installs hipDNN next to the HIP runtime, so search beside the one in use.
    let search = Search { hip_runtime: Some(driver.library().to_owned()), ..Search::default() };
    sample::run(&driver, Arc::new(Loaded::open(&search)?))
}
