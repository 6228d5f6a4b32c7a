//! Finds a backend library and lists what it offers.
//!
//! ```sh
//! cargo xtask stage
//! AMDGPU_EP_HIPDNN_LIBRARY=target/stage/dev/lib/libhipdnn_host.so cargo run -p hipdnn --example 01-backend
//! ```
//!
//! Without the variable, ROCm's usual places are searched. If nothing is found, the error lists what was tried.

#[allow(dead_code, reason = "only the end of the program is used here")]
mod sample;

use std::error::Error;
use std::process::ExitCode;
use std::sync::Arc;

use hipdnn::{Handle, Loaded, Search};

fn main() -> ExitCode {
    sample::ended(list())
}

fn list() -> Result<(), Box<dyn Error>> {
    let backend = Loaded::open(&Search::default())?;
    println!("hipDNN {} from {}", backend.version(), backend.file().display());
    // One handle per thread that builds or runs graphs. Errors carry the backend's own message.
    let handle = Handle::new(Arc::new(backend))?;
    let engines = handle.engines()?;
    for engine in &engines {
        println!("engine {:#018x} {} ({} {})", engine.id, engine.name, engine.plugin, engine.version);
    }
    for policy in handle.policies()? {
        println!("policy {}", policy.name);
    }
    println!("verified: {} engines", engines.len());
    Ok(())
}
