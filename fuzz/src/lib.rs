//! What the fuzz targets share.

/// Lets a target live through panics that the code under test catches: libFuzzer's own hook ends the process at once. The crates
/// that read templates and tokenizers panic at some inputs, and `textgen` turns that into errors. `RUST_BACKTRACE` prints them.
pub fn keep_caught_panics() {
    drop(std::panic::take_hook());
    if std::env::var_os("RUST_BACKTRACE").is_none() {
        std::panic::set_hook(Box::new(|_| {}));
    }
}
