//! Compares the engines that can run a graph, and saves the graph.
//!
//! ```sh
//! cargo xtask stage
//! AMDGPU_EP_HIPDNN_LIBRARY=target/stage/dev/lib/libhipdnn_host.so cargo run -p hipdnn --example 03-engines
//! ```
//!
//! [`OperationGraph::autotune`] measures the engines instead; its documentation has an example.

#[allow(dead_code, reason = "only the end of the program is used here")]
mod sample;

use std::error::Error;
use std::process::ExitCode;
use std::sync::Arc;

use hipdnn::sys::DataType;
use hipdnn::{Graph, Handle, Loaded, OperationGraph, Search, Tensor};

fn main() -> ExitCode {
    sample::ended(compare())
}

fn compare() -> Result<(), Box<dyn Error>> {
    let handle = Handle::new(Arc::new(Loaded::open(&Search::default())?))?;
    let mut graph = Graph::new(DataType::FLOAT, DataType::FLOAT).named("product");
    let a = graph.tensor(Tensor::new(&[1, 64, 32]).named("a").uid(1));
    let b = graph.tensor(Tensor::new(&[1, 32, 16]).named("b").uid(2));
    let product = graph.matmul(a, b);
    graph.output(product, Tensor::default().named("product").uid(3));
    let built = graph.build(&handle)?;
    // Properties that were not given are inferred.
    assert_eq!(graph.extents(product).0, [1, 64, 16]);

    let candidates = built.candidates()?;
    for candidate in &candidates {
        println!("{}: {} bytes of workspace", candidate.engine_name()?, candidate.workspace_bytes()?);
    }

    // Another process can skip the description: it reads the bytes and plans at once.
    let bytes = built.to_bytes()?;
    let again = OperationGraph::from_bytes(&handle, &bytes)?;
    assert_eq!(again.plan()?.engine(), built.plan()?.engine());
    println!("verified: {} engines, {} bytes hold the graph", candidates.len(), bytes.len());
    Ok(())
}
