//! The `profile` option: the backend a session asks for.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

/// The backend a session asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Profile {
    /// The umbrella chooses by device and hints.
    #[default]
    Auto,
    /// Fast start over peak speed.
    Eager,
    /// Peak speed over fast start.
    Optimized,
    /// The migraphx backend.
    Migraphx,
    /// The directx backend.
    Directx,
    /// The hip backend.
    Hip,
    /// AMD's external HIP execution provider.
    Hipgpu,
}

/// Every spelling that ever shipped, and ours for hipgpu; the canonical one of each profile comes first.
const SPELLINGS: [(&str, Profile); 19] = [
    ("auto", Profile::Auto),
    ("", Profile::Auto),
    ("0", Profile::Auto),
    ("eager", Profile::Eager),
    ("1", Profile::Eager),
    ("optimize", Profile::Optimized),
    ("optimized", Profile::Optimized),
    ("2", Profile::Optimized),
    ("migraphx", Profile::Migraphx),
    ("3", Profile::Migraphx),
    ("directx", Profile::Directx),
    ("directml", Profile::Directx),
    ("dml", Profile::Directx),
    ("4", Profile::Directx),
    ("hip", Profile::Hip),
    ("hipep", Profile::Hip),
    ("llm", Profile::Hip),
    ("5", Profile::Hip),
    ("hipgpu", Profile::Hipgpu),
];

impl Profile {
    /// Every profile.
    pub const ALL: [Self; 7] =
        [Self::Auto, Self::Eager, Self::Optimized, Self::Migraphx, Self::Directx, Self::Hip, Self::Hipgpu];

    /// What the option accepts, for messages and documentation.
    pub const ACCEPTED: &'static str = "one of auto, eager, optimize, migraphx, directx, hip, hipgpu \
         (also optimized, directml, dml, hipep, llm or a number from 0 to 5; any case)";

    /// The name used in logs. If AMD's own umbrella has the profile, it accepts this spelling too.
    pub const fn canonical(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Eager => "eager",
            Self::Optimized => "optimize",
            Self::Migraphx => "migraphx",
            Self::Directx => "directx",
            Self::Hip => "hip",
            Self::Hipgpu => "hipgpu",
        }
    }

    /// Every accepted spelling with its meaning, in lower case and trimmed.
    pub fn spellings() -> impl Iterator<Item = (&'static str, Self)> {
        SPELLINGS.into_iter()
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.canonical())
    }
}

/// A text that is not the name of a profile.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("unknown profile {text:?}: expected {}", Profile::ACCEPTED)]
pub struct UnknownProfile {
    /// The text as given.
    pub text: String,
}

impl FromStr for Profile {
    type Err = UnknownProfile;

    fn from_str(text: &str) -> Result<Self, UnknownProfile> {
        let word = text.trim();
        Self::spellings()
            .find_map(|(spelling, profile)| spelling.eq_ignore_ascii_case(word).then_some(profile))
            .ok_or_else(|| UnknownProfile { text: text.to_owned() })
    }
}
