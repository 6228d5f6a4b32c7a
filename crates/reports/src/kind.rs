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

    /// Its name, such as `explain`.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Explain => "explain",
            Kind::Profile => "profile",
            Kind::Memory => "memory",
            Kind::Progress => "progress",
        }
    }

    /// The session-config entry that names its file.
    pub const fn key(self) -> &'static str {
        match self {
            Kind::Explain => hip::EXPLAIN_FILE,
            Kind::Profile => hip::PROFILE_FILE,
            Kind::Memory => hip::MEMORY_FILE,
            Kind::Progress => hip::PROGRESS_FILE,
        }
    }
}
