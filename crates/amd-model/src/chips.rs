//! Public figures of the chips that can be emulated.
//!
//! Older ones are missing: for gfx90a, gfx1030 and those before them ROCr installs a trap handler, and its simulator hook
//! ends the process for that ("Unimplemented KFD ioctl").

/// A GPU as its maker describes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chip {
    /// Its target: `gfx1100`.
    pub target: &'static str,
    /// A product with it.
    pub name: &'static str,
    /// The PCI device of that product.
    pub device_id: u16,
    /// The number of its family in AMD's Linux driver.
    pub family: u16,
    /// Compute units.
    pub compute_units: u32,
    /// SIMDs of a compute unit.
    pub simds_per_unit: u32,
    /// Waves that a SIMD holds.
    pub waves_per_simd: u32,
    /// Lanes of a wave.
    pub wave: u32,
    /// LDS of a workgroup.
    pub lds_kib: u32,
    /// Shader arrays in all.
    pub arrays: u32,
    /// Shader arrays of an engine.
    pub arrays_per_engine: u32,
    /// Compute dies, which work as one device.
    pub dies: u32,
    /// Engines for copies.
    pub copy_engines: u32,
    /// Device memory.
    pub memory_gib: u64,
    /// Width of the path to memory.
    pub memory_bits: u32,
    /// Memory clock in MHz.
    pub memory_mhz: u32,
    /// Highest engine clock in MHz.
    pub engine_mhz: u32,
    /// First-level, second-level and last-level cache.
    pub caches_kib: [u32; 3],
}

/// All chips, the ones that users have most first.
pub const ALL: [Chip; 5] = [
    Chip {
        target: "gfx1100",
        name: "Radeon RX 7900 XTX",
        device_id: 0x744c,
        family: 145,
        compute_units: 96,
        simds_per_unit: 2,
        waves_per_simd: 16,
        wave: 32,
        lds_kib: 64,
        arrays: 12,
        arrays_per_engine: 2,
        dies: 1,
        copy_engines: 2,
        memory_gib: 24,
        memory_bits: 384,
        memory_mhz: 1249,
        engine_mhz: 2500,
        caches_kib: [32, 6144, 98_304],
    },
    Chip {
        target: "gfx1201",
        name: "Radeon RX 9070 XT",
        device_id: 0x7550,
        family: 152,
        compute_units: 64,
        simds_per_unit: 2,
        waves_per_simd: 16,
        wave: 32,
        lds_kib: 64,
        arrays: 8,
        arrays_per_engine: 2,
        dies: 1,
        copy_engines: 2,
        memory_gib: 16,
        memory_bits: 256,
        memory_mhz: 1258,
        engine_mhz: 2970,
        caches_kib: [32, 8192, 65_536],
    },
    Chip {
        target: "gfx942",
        name: "Instinct MI300X",
        device_id: 0x74a1,
        family: 141,
        compute_units: 304,
        simds_per_unit: 4,
        waves_per_simd: 8,
        wave: 64,
        lds_kib: 64,
        arrays: 32,
        arrays_per_engine: 1,
        dies: 8,
        copy_engines: 2,
        memory_gib: 192,
        memory_bits: 8192,
        memory_mhz: 1300,
        engine_mhz: 2100,
        caches_kib: [32, 4096, 262_144],
    },
    Chip {
        target: "gfx1151",
        name: "Radeon 8060S (Ryzen AI Max+ 395)",
        device_id: 0x1586,
        family: 150,
        compute_units: 40,
        simds_per_unit: 2,
        waves_per_simd: 16,
        wave: 32,
        lds_kib: 64,
        arrays: 4,
        arrays_per_engine: 2,
        dies: 1,
        copy_engines: 1,
        memory_gib: 96,
        memory_bits: 256,
        memory_mhz: 1000,
        engine_mhz: 2900,
        caches_kib: [32, 2048, 32_768],
    },
    Chip {
        target: "gfx950",
        name: "Instinct MI355X",
        device_id: 0x75a3,
        family: 141,
        compute_units: 256,
        simds_per_unit: 4,
        waves_per_simd: 8,
        wave: 64,
        lds_kib: 160,
        arrays: 32,
        arrays_per_engine: 1,
        dies: 8,
        copy_engines: 2,
        memory_gib: 288,
        memory_bits: 8192,
        memory_mhz: 2000,
        engine_mhz: 2400,
        caches_kib: [32, 4096, 262_144],
    },
];

impl Chip {
    /// The chip with this target.
    pub fn of(target: &str) -> Option<&'static Self> {
        ALL.iter().find(|chip| chip.target == target)
    }

    /// The target as the kernel driver's topology numbers it: 110501 for `gfx1151`. The last two digits of a target are
    /// hexadecimal.
    pub fn version(&self) -> Option<u32> {
        let digits = self.target.strip_prefix("gfx")?;
        let (major, rest) = digits.split_at_checked(digits.len().checked_sub(2)?)?;
        let (minor, step) = rest.split_at_checked(1)?;
        let hexadecimal = |digit| u32::from_str_radix(digit, 16).ok();
        Some(major.parse::<u32>().ok()? * 10_000 + hexadecimal(minor)? * 100 + hexadecimal(step)?)
    }

    /// The chip with this number.
    pub fn versioned(version: u32) -> Option<&'static Self> {
        ALL.iter().find(|chip| chip.version() == Some(version))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_those_of_the_kernel_driver() {
        let version = |target| Chip::of(target).unwrap().version().unwrap();
        assert_eq!(["gfx1100", "gfx1151", "gfx1201", "gfx942"].map(version), [110_000, 110_501, 120_001, 90_402]);
        assert_eq!(version("gfx950"), 90_500);
        assert!(ALL.iter().all(|chip| Chip::versioned(chip.version().unwrap()) == Some(chip)));
        assert_eq!((Chip::of("gfx000"), Chip::versioned(0)), (None, None));
    }

    #[test]
    fn units_fill_the_arrays_and_dies() {
        for chip in ALL {
            assert_eq!(chip.arrays % chip.arrays_per_engine, 0, "{}", chip.name);
            assert_eq!(chip.compute_units % chip.dies, 0, "{}", chip.name);
            assert!([32, 64].contains(&chip.wave), "{}", chip.name);
        }
    }
}
