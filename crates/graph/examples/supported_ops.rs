//! Prints every operator the engine can take, one `domain:operator` per line; ONNX's own domain is empty.

fn main() {
    for (domain, op_type) in graph::ops::supported() {
        println!("{domain}:{op_type}");
    }
}
