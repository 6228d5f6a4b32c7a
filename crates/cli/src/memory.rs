//! The memory that the backend used, by purpose.

use reports::Purposes;
use serde::Serialize;

use crate::table;

/// The backend's statistics, in bytes, as the command's documents hold them.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Memory {
    /// The device that ran the model.
    device: String,
    purposes: Purposes,
}

/// The last line of the report; `None` unless the session used the hip backend.
pub fn last(mut report: Vec<reports::Memory>) -> Option<Memory> {
    report.pop().map(|reports::Memory { device, memory }| Memory { device, purposes: memory })
}

/// A table of the peaks, followed by the caller's rows: name, bytes and description.
pub fn text(memory: &Memory, more: &[(&str, u64, &str)]) -> String {
    let Purposes { constants, mapped, weights, arena, working, staging } = &memory.purposes;
    let on_host = memory.device == "host";
    let of_constants = if on_host { "weights, in the layout that kernels read" } else { "weights in host memory" };
    let rows = [
        ("constants", constants.peak, of_constants),
        ("mapped", mapped.peak, "weights mapped from the model's files; the system can drop these pages"),
        ("weights", weights.peak, "weights in GPU memory"),
        ("arena", arena.peak, "intermediate values, for all concurrent runs"),
        ("working", working.peak, "scratch memory of single steps on the host"),
        ("staging", staging.peak, "pinned memory for uploads; already freed"),
    ];
    let rows = rows.iter().chain(more).filter(|(_, bytes, _)| *bytes > 0);
    let rows = rows.map(|(what, bytes, meaning)| {
        [(*what).to_owned(), format!("{:.1} MB", *bytes as f64 / 1e6), (*meaning).to_owned()]
    });
    table::text(["memory", "peak", ""], rows.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = r#"{"device":"host","memory":{"constants":{"now":0,"peak":2500000},"mapped":{"now":0,"peak":0},"weights":{"now":0,"peak":0},"arena":{"now":1,"peak":400000},"working":{"now":0,"peak":0},"staging":{"now":0,"peak":0}}}"#;

    #[test]
    fn only_used_memory_is_shown_with_its_peak() {
        let memory = last(reports::parse(&format!("{LINE}\n")).unwrap()).unwrap();
        let text = text(&memory, &[("cache", 1_600_000, "keys and values")]);
        assert!(text.contains("constants  2.5 MB") && text.contains("arena      0.4 MB"), "{text}");
        assert!(text.contains("cache      1.6 MB") && !text.contains("staging"), "{text}");
    }

    #[test]
    fn other_backends_write_no_record_and_invalid_records_are_errors() {
        assert!(last(Vec::new()).is_none());
        assert!(reports::parse::<reports::Memory>("{}\n").is_err());
    }
}
