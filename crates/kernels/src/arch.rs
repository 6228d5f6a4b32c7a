//! The capabilities of targets, as a table, and what a device reports about itself.
use hip::DeviceInfo;

use crate::{Level, Target};

/// Matrix instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Matrix {
    /// None: products use plain multiply-add.
    None,
    /// MFMA of gfx908 and later gfx9; `bf16` is false on gfx908.
    Mfma,
    /// WMMA of gfx11.
    Wmma11,
    /// WMMA of gfx12 and gfx117x.
    Wmma12,
    /// `mma.sync` of the twin.
    Mma,
}

/// Dot products of four bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dot4 {
    /// None: products use plain multiply-add.
    None,
    /// Both operands signed or both unsigned.
    Same,
    /// The sign of each operand can be chosen.
    Mixed,
}

/// A target, as needed to choose kernels.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Arch {
    /// The target with its features, as passed to the compiler.
    pub target: String,
    /// Lanes per wave.
    pub wave: u32,
    /// Matrix instructions.
    pub matrix: Matrix,
    /// Whether they support bf16.
    pub matrix_bf16: bool,
    /// Dot products of bytes.
    pub dot4: Dot4,
    /// Bytes of LDS available to a block.
    pub lds_bytes: u32,
    /// Compute units, to size grids.
    pub compute_units: u32,
    /// Set if a vendor's library runs long attention faster than our own kernels: it does so if the counts of queries
    /// and keys are multiples of this number. The library builds code for each length, which takes cuDNN a second.
    pub library_attention: Option<usize>,
}

/// The properties of a target or a family, by name prefix; the longest matching prefix wins.
struct Row {
    name: &'static str,
    wave: u32,
    matrix: Matrix,
    dot4: Dot4,
    lds_bytes: u32,
    matrix_bf16: bool,
    library_attention: Option<usize>,
}

const fn row(name: &'static str, wave: u32, matrix: Matrix, dot4: Dot4) -> Row {
    let matrix_bf16 = !matches!(matrix, Matrix::None);
    Row { name, wave, matrix, dot4, lds_bytes: LDS_BYTES, matrix_bf16, library_attention: None }
}

const TABLE: [Row; 17] = [
    row("gfx9", 64, Matrix::None, Dot4::None),
    row("gfx906", 64, Matrix::None, Dot4::Same),
    Row { matrix_bf16: false, ..row("gfx908", 64, Matrix::Mfma, Dot4::Same) },
    row("gfx90a", 64, Matrix::Mfma, Dot4::Same),
    row("gfx942", 64, Matrix::Mfma, Dot4::Same),
    row("gfx950", 64, Matrix::Mfma, Dot4::Same),
    row("gfx10", 32, Matrix::None, Dot4::None),
    row("gfx101", 32, Matrix::None, Dot4::None),
    row("gfx103", 32, Matrix::None, Dot4::Same),
    row("gfx11", 32, Matrix::Wmma11, Dot4::Mixed),
    // LLVM gives gfx1170 to gfx1172 the matrix instructions of gfx12.
    row("gfx117", 32, Matrix::Wmma12, Dot4::Mixed),
    row("gfx12", 32, Matrix::None, Dot4::Mixed),
    row("gfx120", 32, Matrix::Wmma12, Dot4::Mixed),
    // The matrix instructions of this target differ from gfx120x's.
    row("gfx125", 32, Matrix::None, Dot4::None),
    row("sm_", 32, Matrix::Mma, Dot4::Mixed),
    Row {
        // More LDS than on other targets, but only for launches that request it, which the driver table does.
        lds_bytes: 227 << 10,
        // Set only where it was measured through hipDNN: docs/performance.md, "Attention of a prompt".
        library_attention: Some(1024),
        ..row("sm_90", 32, Matrix::Mma, Dot4::Mixed)
    },
    // Plain code runs on any target.
    row("", 32, Matrix::None, Dot4::None),
];

/// The first of the twin's targets with the wait instruction: below it, `EARLIER_DONE` of `hip/prelude.h` expands to
/// nothing.
const FIRST_WAITING_TWIN: u32 = 90;

/// Why there are no kernels for a device.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ArchError {
    /// The driver does not report the target.
    #[error(
        "the driver does not report the target of {device} (it reports {target:?})\n  \
         help: look at it with rocminfo, and update the driver"
    )]
    NoTarget {
        /// The device's name.
        device: String,
        /// What the driver reports instead.
        target: String,
    },
    /// The target has no kernels.
    #[error("{device} ({target}) has no kernels: {reason}\n  help: choose another device")]
    Refused {
        /// The device's name.
        device: String,
        /// The target.
        target: String,
        /// Why.
        reason: &'static str,
    },
    /// The device's wave width differs from what compilers generate code for.
    #[error(
        "{device} has waves of {found} lanes, but kernels for {target} are compiled for waves of {wanted}\n  \
         help: update the driver, or choose another device"
    )]
    Wave {
        /// The device's name.
        device: String,
        /// The target.
        target: String,
        /// Lanes per wave on the device.
        found: u32,
        /// Lanes per wave that code for the target expects.
        wanted: u32,
    },
    /// The device has too little LDS per block.
    #[error(
        "{device} has {found} bytes of LDS per block, but kernels use up to {LDS_BYTES}\n  help: choose another device"
    )]
    Lds {
        /// The device's name.
        device: String,
        /// Bytes of LDS available to a block.
        found: u32,
    },
}

/// Bytes of LDS that a kernel may use on every target (see `hip/prelude.h`).
const LDS_BYTES: u32 = 48 << 10;

/// The prefixes of target names that compilers know.
const TARGETS: [&str; 2] = ["gfx", "sm_"];

impl Arch {
    /// The target of a device. The device's own report counts: a wave width other than code for its target expects is
    /// an error, because sums across lanes would be wrong, and so is less LDS than kernels use.
    ///
    /// # Errors
    /// The device cannot run any kernels.
    pub fn of(info: &DeviceInfo) -> Result<Self, ArchError> {
        let arch = Self::new(&info.arch, info.compute_units);
        let (device, target) = (info.name.clone(), arch.target.clone());
        if !TARGETS.iter().any(|start| target.starts_with(start)) {
            return Err(ArchError::NoTarget { device, target });
        }
        if let Some(Level::Refused(reason)) = Target::level_of(&target) {
            return Err(ArchError::Refused { device, target, reason });
        }
        if info.wave_size != arch.wave {
            return Err(ArchError::Wave { device, target, found: info.wave_size, wanted: arch.wave });
        }
        if info.lds_bytes < LDS_BYTES {
            return Err(ArchError::Lds { device, found: info.lds_bytes });
        }
        Ok(arch)
    }

    /// The target with this name, such as `gfx90a:sramecc+:xnack-` or `sm_90`. For unknown targets, only features that
    /// their whole family has are used.
    pub fn new(target: &str, compute_units: u32) -> Self {
        let name = target.split(':').next().unwrap_or_default();
        let fitting = TABLE.iter().filter(|row| name.starts_with(row.name));
        let row = fitting.max_by_key(|row| row.name.len()).unwrap_or(&TABLE[TABLE.len() - 1]);
        Self {
            target: target.to_owned(),
            wave: row.wave,
            matrix: row.matrix,
            matrix_bf16: row.matrix_bf16,
            dot4: row.dot4,
            lds_bytes: row.lds_bytes,
            compute_units,
            library_attention: row.library_attention,
        }
    }

    /// Whether kernels wait for the end of the previous launch themselves, so that a launch may begin before it.
    pub fn waits_for_earlier(&self) -> bool {
        let twin = self.target.strip_prefix("sm_").and_then(|number| number.parse::<u32>().ok());
        twin.is_some_and(|number| number >= FIRST_WAITING_TWIN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_wait_on_targets_with_a_wait_instruction() {
        for (target, wanted) in [("sm_90", true), ("sm_120", true), ("sm_80", false), ("gfx942", false), ("sm_", false)]
        {
            assert_eq!(Arch::new(target, 1).waits_for_earlier(), wanted, "{target}");
        }
    }

    #[test]
    fn targets_have_features_that_compilers_accept() {
        for (target, wave, matrix, dot4) in [
            ("gfx906:sramecc+:xnack-", 64, Matrix::None, Dot4::Same),
            ("gfx90a", 64, Matrix::Mfma, Dot4::Same),
            ("gfx950", 64, Matrix::Mfma, Dot4::Same),
            ("gfx1010", 32, Matrix::None, Dot4::None),
            ("gfx1031", 32, Matrix::None, Dot4::Same),
            ("gfx1151", 32, Matrix::Wmma11, Dot4::Mixed),
            ("gfx1170", 32, Matrix::Wmma12, Dot4::Mixed),
            ("gfx1201", 32, Matrix::Wmma12, Dot4::Mixed),
            ("gfx1250", 32, Matrix::None, Dot4::None),
            ("sm_90", 32, Matrix::Mma, Dot4::Mixed),
        ] {
            let arch = Arch::new(target, 1);
            assert_eq!((arch.wave, arch.matrix, arch.dot4), (wave, matrix, dot4), "{target}");
        }
        assert_eq!((Arch::new("gfx942", 1).lds_bytes, Arch::new("sm_90", 1).lds_bytes), (48 << 10, 227 << 10));
        assert!(!Arch::new("gfx908", 1).matrix_bf16);
        assert!(Arch::new("gfx942", 1).matrix_bf16);
    }

    fn info(arch: &str, wave_size: u32, lds_bytes: u32) -> DeviceInfo {
        DeviceInfo {
            name: "a GPU".into(),
            arch: arch.into(),
            pci_bus_id: None,
            total_memory: 0,
            wave_size,
            compute_units: 1,
            lds_bytes,
            integrated: false,
            memory_pools: false,
        }
    }

    #[test]
    fn the_devices_own_report_overrides_the_table() {
        let arch = Arch::of(&info("gfx942:sramecc+:xnack-", 64, 48 << 10)).unwrap();
        assert_eq!((arch.wave, arch.compute_units), (64, 1));
        let error = Arch::of(&info("gfx1100", 32, 32 << 10)).unwrap_err().to_string();
        assert!(error.starts_with("a GPU has 32768 bytes of LDS per block, but kernels use up to 49152\n"), "{error}");
        let error = Arch::of(&info("gfx1100", 64, 64 << 10)).unwrap_err().to_string();
        assert!(
            error.starts_with("a GPU has waves of 64 lanes, but kernels for gfx1100 are compiled for waves of 32\n"),
            "{error}"
        );
        assert!(Arch::of(&info("gfx90a", 32, 64 << 10)).is_err());
        let error = Arch::of(&info("gfx803", 64, 64 << 10)).unwrap_err().to_string();
        assert!(error.starts_with("a GPU (gfx803) has no kernels: kernels need gfx9 or newer"), "{error}");
        for unknown in ["unknown", "", "host"] {
            let error = Arch::of(&info(unknown, 32, 64 << 10)).unwrap_err();
            assert_eq!(error, ArchError::NoTarget { device: "a GPU".into(), target: unknown.into() });
        }
    }

    #[test]
    fn an_unknown_target_gets_plain_code() {
        for (target, wave) in [("gfx9-4-generic", 64), ("gfx1399", 32), ("", 32), ("host", 32)] {
            let arch = Arch::new(target, 1);
            assert_eq!((arch.wave, arch.matrix, arch.matrix_bf16), (wave, Matrix::None, false), "{target}");
        }
    }
}
