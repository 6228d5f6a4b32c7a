//! The `amdgpu-ep` command.
fn main() {}
