//! Helpers for the fuzz targets.

/// Lets a target survive panics that the code under test catches; libFuzzer's own hook would abort the process. The
/// crates that parse templates and tokenizers panic on some inputs, and `textgen` turns these panics into errors. Set
/// `RUST_BACKTRACE` to print them.
pub fn keep_caught_panics() {
    drop(std::panic::take_hook());
    if std::env::var_os("RUST_BACKTRACE").is_none() {
        std::panic::set_hook(Box::new(|_| {}));
    }
}
