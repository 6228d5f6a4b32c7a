//! Records which functions were called.

use std::any::type_name;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// A file that gets one line per call: the function's name.
pub struct Calls(Mutex<File>);

impl Calls {
    /// Opens a file for appending. If that fails, prints the error and returns `None`.
    pub fn open(file: &Path) -> Option<Self> {
        match OpenOptions::new().create(true).append(true).open(file) {
            Ok(file) => Some(Self(Mutex::new(file))),
            Err(error) => {
                eprintln!("hip-host: could not record calls in {}: {error}", file.display());
                None
            }
        }
    }

    /// Records the function that contains a closure.
    pub fn note<F>(&self) {
        let mut file = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // A write error cannot be reported from here.
        let _ = writeln!(file, "{}", function_of::<F>());
    }
}

fn function_of<F>() -> &'static str {
    let path = type_name::<F>();
    let path = path.split("::{{closure}}").next().unwrap_or(path);
    path.rsplit("::").next().unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name<F: Fn()>(_: F) -> &'static str {
        function_of::<F>()
    }

    #[test]
    fn a_closure_is_called_after_its_function() {
        fn outer() -> [&'static str; 2] {
            let inner = || name(|| ());
            [name(|| ()), inner()]
        }
        assert_eq!(outer(), ["outer", "outer"]);
    }
}
