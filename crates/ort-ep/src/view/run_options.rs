//! The options of one run.
use crate::ffi::runtime::{c_string, text};

view! {
    /// The options of one run.
    RunOptions(OrtRunOptions)
}

impl RunOptions<'_> {
    /// One configuration entry of the run, such as `gpu_graph_id`.
    pub fn get(self, key: &str) -> Option<String> {
        let key = c_string(key);
        // SAFETY: `from_raw`'s caller vouches for the options; the value is copied before they can change.
        unsafe {
            let value = self.runtime.api.GetRunConfigEntry(self.raw, key.as_ptr());
            (!value.is_null()).then(|| text(value).into_owned())
        }
    }
}
