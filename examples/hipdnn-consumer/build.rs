//! Sets the linker's search path for hipDNN, and a `cfg` that tells the frontend's tests that they are linked with it.

fn main() {
    println!("cargo::rerun-if-env-changed=HIPDNN_LINK_FOLDER");
    if let Ok(folder) = std::env::var("HIPDNN_LINK_FOLDER") {
        println!("cargo::rustc-link-search=native={folder}");
    }
    println!("cargo::rustc-check-cfg=cfg(hipdnn_linked)");
    println!("cargo::rustc-cfg=hipdnn_linked");
}
