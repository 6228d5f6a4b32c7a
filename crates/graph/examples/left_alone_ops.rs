//! Prints every operator that the engine knows but leaves to other providers, one `domain:operator:reason` per line;
//! ONNX's own domain is empty.

fn main() {
    for (domain, op_type, reason) in graph::ops::left_alone() {
        println!("{domain}:{op_type}:{reason}");
    }
}
