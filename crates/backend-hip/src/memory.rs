//! Reports memory usage for `amdgpu-ep bench`, `bench-llm` and `explain`.
//!
//! The session-config entry `ep.hip.memory_file` names a file. When the session ends, a line of JSON is appended:
//! `{"device":…,"memory":{"constants":{"now":…,"peak":…},"mapped":…,"weights":…,"arena":…,"working":…,"staging":…}}`, in
//! bytes. The counters are global to the library and include other sessions.
use std::path::PathBuf;

use exec::memory::{Purpose, Usage};

use crate::{explain, json};

/// The file that the counters are appended to when this is dropped.
pub(crate) struct MemoryFile {
    file: PathBuf,
    device: String,
}

impl MemoryFile {
    pub fn new(file: impl Into<PathBuf>, device: &str) -> Self {
        Self { file: file.into(), device: device.to_owned() }
    }
}

impl Drop for MemoryFile {
    fn drop(&mut self) {
        if let Err(error) = explain::append(&self.file, &line(&self.device, Purpose::usage)) {
            let file = self.file.display();
            tracing::warn!(target: "amdgpu_ep::memory", "the memory file {file} could not be written: {error}");
        }
    }
}

fn line(device: &str, usage: impl Fn(Purpose) -> Usage) -> String {
    let purposes = Purpose::ALL.map(|purpose| {
        let Usage { now, peak } = usage(purpose);
        format!("{}:{{\"now\":{now},\"peak\":{peak}}}", json::text(purpose.name()))
    });
    format!("{{\"device\":{},\"memory\":{{{}}}}}\n", json::text(device), purposes.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_ends_with_a_line_of_all_purposes() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("memory");
        drop(MemoryFile::new(&file, "host"));
        let text = std::fs::read_to_string(&file).unwrap();
        assert!(text.starts_with("{\"device\":\"host\",\"memory\":{\"constants\":{\"now\":"), "{text}");
        let counted = line("gfx1100", |purpose| Usage { now: 1, peak: 2 + purpose as usize });
        assert!(counted.contains("\"staging\":{\"now\":1,\"peak\":7}}}\n"), "{counted}");
    }
}
