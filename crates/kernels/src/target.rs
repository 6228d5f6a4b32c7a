//! The AMD targets that ROCm 7 lists, and what a session finds for each of them.
use std::fmt;

/// Where the kernels of a target come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// A set of compiled kernels is part of the release; a session compiles only what the set lacks.
    Shipped,
    /// Sessions compile their kernels when they are created.
    Compiled,
    /// There are no kernels, for this reason.
    Refused(&'static str),
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Shipped => write!(f, "shipped"),
            Self::Compiled => write!(f, "compiled"),
            Self::Refused(reason) => write!(f, "refused: {reason}"),
        }
    }
}

/// A target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// The name, without features.
    pub name: &'static str,
    /// Examples of its chips.
    pub chips: &'static str,
    /// LLVM's generic target whose code runs on it.
    pub generic: Option<&'static str>,
}

const fn target(name: &'static str, generic: Option<&'static str>, chips: &'static str) -> Target {
    Target { name, chips, generic }
}

const GFX9: Option<&str> = Some("gfx9-generic");
const GFX9_4: Option<&str> = Some("gfx9-4-generic");
const GFX10_1: Option<&str> = Some("gfx10-1-generic");
const GFX10_3: Option<&str> = Some("gfx10-3-generic");
const GFX11: Option<&str> = Some("gfx11-generic");
const GFX12: Option<&str> = Some("gfx12-generic");

/// The targets before gfx9, which ROCm 6 and newer do not support. Their waves and instructions differ.
const OLD: [&str; 3] = ["gfx6", "gfx7", "gfx8"];
const TOO_OLD: Level = Level::Refused("kernels need gfx9 or newer, and so does ROCm since version 6");

impl Target {
    /// All targets, in the order of their names' numbers.
    pub const ALL: [Self; 32] = [
        target("gfx900", GFX9, "Radeon RX Vega 56 and 64, Instinct MI25"),
        target("gfx902", GFX9, "Ryzen 2000G, 3000G"),
        target("gfx904", GFX9, "Radeon Pro Vega 16 and 20"),
        target("gfx906", GFX9, "Radeon VII, Instinct MI50 and MI60"),
        target("gfx908", None, "Instinct MI100"),
        target("gfx909", GFX9, "Athlon 3000G"),
        target("gfx90a", None, "Instinct MI210, MI250, MI250X"),
        target("gfx90c", GFX9, "Ryzen 4000G, 5000G"),
        target("gfx942", GFX9_4, "Instinct MI300A, MI300X, MI325X"),
        target("gfx950", GFX9_4, "Instinct MI350X, MI355X"),
        target("gfx1010", GFX10_1, "Radeon RX 5600, RX 5700"),
        target("gfx1011", GFX10_1, "Radeon Pro 5600M, V520"),
        target("gfx1012", GFX10_1, "Radeon RX 5300, RX 5500"),
        target("gfx1013", GFX10_1, "BC-250"),
        target("gfx1030", GFX10_3, "Radeon RX 6800, RX 6900, PRO W6800"),
        target("gfx1031", GFX10_3, "Radeon RX 6700"),
        target("gfx1032", GFX10_3, "Radeon RX 6600, PRO W6600"),
        target("gfx1033", GFX10_3, "Steam Deck"),
        target("gfx1034", GFX10_3, "Radeon RX 6400, RX 6500"),
        target("gfx1035", GFX10_3, "Radeon 660M, 680M"),
        target("gfx1036", GFX10_3, "Ryzen 7000 and 9000 for desktops"),
        target("gfx1100", GFX11, "Radeon RX 7900, PRO W7800, PRO W7900"),
        target("gfx1101", GFX11, "Radeon RX 7700, RX 7800, PRO W7700"),
        target("gfx1102", GFX11, "Radeon RX 7600"),
        target("gfx1103", GFX11, "Radeon 740M, 760M, 780M"),
        target("gfx1150", GFX11, "Radeon 880M, 890M"),
        target("gfx1151", GFX11, "Radeon 8050S, 8060S"),
        target("gfx1152", GFX11, "Radeon 840M, 860M"),
        target("gfx1153", GFX11, "Radeon 820M"),
        target("gfx1200", GFX12, "Radeon RX 9060"),
        target("gfx1201", GFX12, "Radeon RX 9070, AI PRO R9700"),
        target("gfx1250", None, "no chip is on sale yet"),
    ];

    /// Where the kernels of a device come from, by its target such as `gfx90a:sramecc+:xnack-`. `None`: the target is
    /// not listed, and sessions try to compile kernels with the features that its whole family has.
    pub fn level_of(target: &str) -> Option<Level> {
        let name = without_features(target);
        if OLD.iter().any(|old| name.starts_with(old)) {
            return Some(TOO_OLD);
        }
        let known = Self::ALL.iter().find(|target| target.name == name)?;
        let is_shipped = known.set_names().any(|name| ShippedSet::ALL.iter().any(|set| set.target == name));
        Some(if is_shipped { Level::Shipped } else { Level::Compiled })
    }

    /// The targets whose code runs on a device with this target, the best first: its own without features, which runs
    /// with any features, then the generic one.
    pub(crate) fn sets_for(target: &str) -> Vec<&str> {
        let name = without_features(target);
        let known = Self::ALL.iter().find(|target| target.name == name);
        std::iter::once(name).chain(known.and_then(|known| known.generic)).collect()
    }

    fn set_names(&self) -> impl Iterator<Item = &'static str> {
        std::iter::once(self.name).chain(self.generic)
    }
}

fn without_features(target: &str) -> &str {
    target.split(':').next().unwrap_or_default()
}

/// A set of compiled kernels that is part of a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShippedSet {
    /// What its kernels are compiled for.
    pub target: &'static str,
    /// The targets whose sources it contains: those that choose different kernels, and have no set of their own.
    pub sources_of: &'static [&'static str],
}

impl ShippedSet {
    /// All sets. Generic code needs ROCm 6.3 or newer; the targets with the most users have sets of their own too.
    pub const ALL: [Self; 12] = [
        Self { target: "gfx9-generic", sources_of: &["gfx900", "gfx906"] },
        Self { target: "gfx90a", sources_of: &["gfx90a"] },
        Self { target: "gfx9-4-generic", sources_of: &["gfx942"] },
        Self { target: "gfx942", sources_of: &["gfx942"] },
        Self { target: "gfx950", sources_of: &["gfx950"] },
        Self { target: "gfx10-1-generic", sources_of: &["gfx1010"] },
        Self { target: "gfx10-3-generic", sources_of: &["gfx1030"] },
        Self { target: "gfx11-generic", sources_of: &["gfx1100"] },
        Self { target: "gfx1100", sources_of: &["gfx1100"] },
        Self { target: "gfx1151", sources_of: &["gfx1151"] },
        Self { target: "gfx12-generic", sources_of: &["gfx1201"] },
        Self { target: "gfx1201", sources_of: &["gfx1201"] },
    ];
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Arch;

    #[test]
    fn every_listed_target_has_the_wave_of_its_family() {
        for target in Target::ALL {
            let wave = if target.name.len() == "gfx900".len() { 64 } else { 32 };
            assert_eq!(Arch::new(target.name, 1).wave, wave, "{}", target.name);
        }
        assert!(Target::ALL.is_sorted_by_key(|target| (target.name.len(), target.name)));
    }

    #[test]
    fn the_level_depends_on_the_name_without_features() {
        assert_eq!(Target::level_of("gfx90a:sramecc+:xnack-"), Some(Level::Shipped));
        assert_eq!(Target::level_of("gfx1036"), Some(Level::Shipped));
        assert_eq!(Target::level_of("gfx908"), Some(Level::Compiled));
        assert_eq!(Target::level_of("gfx1250"), Some(Level::Compiled));
        assert_eq!(Target::level_of("gfx803"), Some(TOO_OLD));
        for unlisted in ["gfx1399", "gfx11-generic", "sm_90", "host", "unknown", ""] {
            assert_eq!(Target::level_of(unlisted), None, "{unlisted}");
        }
    }

    #[test]
    fn exact_code_comes_before_generic_code() {
        for (target, wanted) in [
            ("gfx942:sramecc+:xnack-", &["gfx942", "gfx9-4-generic"][..]),
            ("gfx1102", &["gfx1102", "gfx11-generic"]),
            ("gfx908", &["gfx908"]),
            ("sm_90", &["sm_90"]),
        ] {
            assert_eq!(Target::sets_for(target), wanted, "{target}");
        }
    }

    /// A device looks up the source that its own arch chooses. A set must have been made from the same choices.
    #[test]
    fn sets_have_the_sources_of_every_target_that_uses_them() {
        let choice = |target: &str| {
            let Arch { wave, matrix, matrix_bf16, dot4, lds_bytes, .. } = Arch::new(target, 1);
            (wave, matrix, matrix_bf16, dot4, lds_bytes)
        };
        for target in Target::ALL {
            let sets = ShippedSet::ALL.iter().filter(|set| target.set_names().any(|name| name == set.target));
            for set in sets {
                let covered = set.sources_of.iter().any(|&source| choice(source) == choice(target.name));
                assert!(covered, "{} in {}", target.name, set.target);
            }
        }
    }
}
