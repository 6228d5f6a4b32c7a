//! Reports memory usage for `amdgpu-ep bench`, `bench-llm` and `explain`, when the session ends.
use exec::memory::{self, Purpose};
use reports::{Memory, Purposes, ReportFile, Usage};

/// Appends the counters to a file when it is dropped.
pub(crate) struct MemoryReport {
    file: ReportFile<Memory>,
    device: String,
}

impl MemoryReport {
    pub fn new(file: ReportFile<Memory>, device: &str) -> Self {
        Self { file, device: device.to_owned() }
    }
}

impl Drop for MemoryReport {
    fn drop(&mut self) {
        self.file.append(&report(&self.device, Purpose::usage));
    }
}

fn report(device: &str, usage: impl Fn(Purpose) -> memory::Usage) -> Memory {
    let usage = |purpose| {
        let memory::Usage { now, peak } = usage(purpose);
        Usage { now: now as u64, peak: peak as u64 }
    };
    Memory {
        device: device.to_owned(),
        memory: Purposes {
            constants: usage(Purpose::Constants),
            mapped: usage(Purpose::Mapped),
            weights: usage(Purpose::Weights),
            arena: usage(Purpose::Arena),
            working: usage(Purpose::Working),
            staging: usage(Purpose::Staging),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_ends_with_a_line_of_all_purposes() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("memory");
        drop(MemoryReport::new(ReportFile::new(&file), "host"));
        let text = std::fs::read_to_string(&file).unwrap();
        assert!(text.starts_with("{\"device\":\"host\",\"memory\":{\"constants\":{\"now\":"), "{text}");
        let counted = folder.path().join("counted");
        let usage = |purpose| memory::Usage { now: 1, peak: 2 + purpose as usize };
        ReportFile::new(&counted).append(&report("gfx1100", usage));
        let counted = std::fs::read_to_string(&counted).unwrap();
        for purpose in Purpose::ALL {
            let want = format!("\"{}\":{{\"now\":1,\"peak\":{}}}", purpose.name(), 2 + purpose as usize);
            assert!(counted.contains(&want), "{want}: {counted}");
        }
        assert!(counted.contains("\"staging\":{\"now\":1,\"peak\":7}}}\n"), "{counted}");
    }
}
