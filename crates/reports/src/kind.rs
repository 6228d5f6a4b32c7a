//! The kinds of reports.

use options::hip;

/// A kind of report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Which nodes were claimed, why others were declined, which passes changed a partition, what runs each step.
    Explain,
    /// How long each step of a run took.
    Profile,
    /// How much memory the engine held, by purpose.
    Memory,
    /// How many kernels are compiled and how many steps are measured.
    Progress,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Kind; 4] = [Kind::Explain, Kind::Profile, Kind::Memory, Kind::Progress];

    /// The name, such as `explain`.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Explain => "explain",
            Kind::Profile => "profile",
            Kind::Memory => "memory",
            Kind::Progress => "progress",
        }
    }

    /// The name of its file in the folder that `ep.hip.report_dir` names; `None` for a report that changes how the
    /// session runs, and so has to be asked for by its own entry.
    pub const fn file_name(self) -> Option<&'static str> {
        match self {
            Kind::Explain => Some("explain.jsonl"),
            // Steps that are timed run one by one.
            Kind::Profile => None,
            Kind::Memory => Some("memory.jsonl"),
            Kind::Progress => Some("progress.jsonl"),
        }
    }

    /// The session-config entry that names a file for this report alone.
    pub const fn key(self) -> &'static str {
        match self {
            Kind::Explain => hip::EXPLAIN_FILE,
            Kind::Profile => hip::PROFILE_FILE,
            Kind::Memory => hip::MEMORY_FILE,
            Kind::Progress => hip::PROGRESS_FILE,
        }
    }
}
