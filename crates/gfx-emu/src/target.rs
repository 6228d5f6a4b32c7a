//! The chips that the emulator models.

use std::str::FromStr;

use crate::Fault;

/// Generations whose differences matter to an instruction's meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    /// CDNA 2 and 3: gfx90a, gfx942, gfx950.
    Cdna,
    /// RDNA 2: gfx1030.
    Rdna2,
    /// RDNA 3 and 3.5: gfx11.
    Rdna3,
    /// RDNA 4: gfx12.
    Rdna4,
}

/// A chip by LLVM's name for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Target {
    name: &'static str,
    family: Family,
}

const TABLE: [Target; 16] = [
    of("gfx90a", Family::Cdna),
    of("gfx942", Family::Cdna),
    of("gfx950", Family::Cdna),
    of("gfx1030", Family::Rdna2),
    of("gfx1031", Family::Rdna2),
    of("gfx1032", Family::Rdna2),
    of("gfx1100", Family::Rdna3),
    of("gfx1101", Family::Rdna3),
    of("gfx1102", Family::Rdna3),
    of("gfx1103", Family::Rdna3),
    of("gfx1150", Family::Rdna3),
    of("gfx1151", Family::Rdna3),
    of("gfx1152", Family::Rdna3),
    of("gfx1153", Family::Rdna3),
    of("gfx1200", Family::Rdna4),
    of("gfx1201", Family::Rdna4),
];

/// The names of all targets.
pub(crate) const NAMES: [&str; TABLE.len()] = {
    let mut names = [""; TABLE.len()];
    let mut at = 0;
    while at < names.len() {
        names[at] = TABLE[at].name;
        at += 1;
    }
    names
};

const fn of(name: &'static str, family: Family) -> Target {
    Target { name, family }
}

impl FromStr for Target {
    type Err = Fault;

    fn from_str(name: &str) -> Result<Target, Fault> {
        let bare = name.split(':').next().unwrap_or(name);
        let found = TABLE.into_iter().find(|target| target.name == bare);
        found.ok_or_else(|| Fault::UnknownTarget(name.to_owned()))
    }
}

impl Target {
    /// LLVM's name, such as `gfx1100`.
    pub fn name(self) -> &'static str {
        self.name
    }

    /// The generation.
    pub fn family(self) -> Family {
        self.family
    }

    /// Whether instructions with a 16-bit result clear the other half of the register. RDNA keeps it.
    pub fn clears_high_half(self) -> bool {
        self.family == Family::Cdna
    }

    /// Whether all three workitem ids come in v0, ten bits each.
    pub fn packs_workitem_ids(self) -> bool {
        self.family != Family::Rdna2
    }

    /// Whether workgroup ids come in trap registers.
    pub fn workgroup_ids_in_ttmp(self) -> bool {
        self.family == Family::Rdna4
    }

    /// Whether the code of an atomic store differs from that of an ordinary one.
    pub fn marks_atomic_stores(self) -> bool {
        self.family == Family::Rdna4 || (self.family == Family::Cdna && self.name != "gfx90a")
    }

    /// Whether a kernel may choose a wave of 32 lanes; the others always have 64.
    pub fn has_wave32(self) -> bool {
        self.family != Family::Cdna
    }

    /// Whether the VGPR file has a second half of accumulators.
    pub fn has_accumulators(self) -> bool {
        self.family == Family::Cdna
    }
}
