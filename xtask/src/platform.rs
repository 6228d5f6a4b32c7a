//! The systems that files are built for, and how they name files.

use std::env::consts;

/// The system that files are built for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Platform {
    Host,
    Windows,
}

impl Platform {
    /// Whether files are built for Windows.
    pub fn is_windows(self) -> bool {
        self == Self::Windows || cfg!(windows)
    }

    /// The file name of a library, from its name without prefix and suffix.
    pub fn library_file(self, name: &str) -> String {
        let prefix = if self.is_windows() { "" } else { consts::DLL_PREFIX };
        format!("{prefix}{name}{}", self.library_suffix())
    }

    /// The file name of a program.
    pub fn program_file(self, name: &str) -> String {
        format!("{name}{}", self.program_suffix())
    }

    pub fn library_suffix(self) -> &'static str {
        if self.is_windows() { ".dll" } else { consts::DLL_SUFFIX }
    }

    pub fn program_suffix(self) -> &'static str {
        if self.is_windows() { ".exe" } else { consts::EXE_SUFFIX }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_named_as_on_the_system_that_they_are_built_for() {
        assert_eq!(Platform::Windows.library_file("amdgpu-ep"), "amdgpu-ep.dll");
        assert_eq!(Platform::Windows.program_file("amdgpu-ep"), "amdgpu-ep.exe");
        assert_eq!(Platform::Host.program_file("amdgpu-ep"), format!("amdgpu-ep{}", consts::EXE_SUFFIX));
        let own = format!("{}amdgpu-ep{}", consts::DLL_PREFIX, consts::DLL_SUFFIX);
        assert_eq!(Platform::Host.library_file("amdgpu-ep"), own);
    }
}
