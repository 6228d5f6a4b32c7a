//! An estimate of the least time that a kernel needs: the largest of the times that each unit of a chip would need alone
//! at its peak. Real kernels are slower.

use super::Counters;
use crate::effects::Class;
use crate::{Family, Target};

/// Public peak figures of a product.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Peaks {
    /// The product.
    pub name: &'static str,
    /// LLVM's name of its chip.
    pub target: &'static str,
    /// Compute units.
    pub compute_units: u32,
    /// Boost clock in GHz.
    pub clock_ghz: f64,
    /// 32-bit floats in vector instructions, in 10^12 operations a second.
    pub vector_tflops: f64,
    /// Dense 16-bit floats in matrix instructions.
    pub matrix_tflops: f64,
    /// Bandwidth of memory in GB/s.
    pub bandwidth_gbs: f64,
    /// Where the figures are from.
    pub source: &'static str,
}

/// The chips that estimates are made for.
pub const CHIPS: [Peaks; 4] = [
    Peaks {
        name: "Radeon RX 7900 XTX",
        target: "gfx1100",
        compute_units: 96,
        clock_ghz: 2.5,
        vector_tflops: 61.4,
        matrix_tflops: 122.8,
        bandwidth_gbs: 960.0,
        source: "AMD's product page",
    },
    Peaks {
        name: "Strix Halo (Radeon 8060S)",
        target: "gfx1151",
        compute_units: 40,
        clock_ghz: 2.9,
        vector_tflops: 29.7,
        matrix_tflops: 59.4,
        bandwidth_gbs: 256.0,
        source: "computed from the units, clock and LPDDR5X-8000 on AMD's product page of the Ryzen AI Max+ 395",
    },
    Peaks {
        name: "Radeon RX 9070 XT",
        target: "gfx1201",
        compute_units: 64,
        clock_ghz: 2.97,
        vector_tflops: 48.7,
        matrix_tflops: 195.0,
        bandwidth_gbs: 640.0,
        source: "AMD's product page",
    },
    Peaks {
        name: "Instinct MI300X",
        target: "gfx942",
        compute_units: 304,
        clock_ghz: 2.1,
        vector_tflops: 163.4,
        matrix_tflops: 1307.4,
        bandwidth_gbs: 5300.0,
        source: "AMD's data sheet",
    },
];

/// What an estimate is limited by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bound {
    /// Bandwidth of memory.
    Memory,
    /// Vector instructions.
    Vector,
    /// Matrix instructions.
    Matrix,
    /// The LDS unit.
    Lds,
}

/// The least time that a kernel needs on a chip.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimate {
    /// In microseconds.
    pub microseconds: f64,
    /// Which unit needs that long.
    pub bound: Bound,
}

impl Peaks {
    /// Whether code for a target is like that for this chip.
    pub fn is_like(&self, target: Target) -> bool {
        self.target.parse::<Target>().is_ok_and(|own| own.family() == target.family())
    }

    /// The least time for the counted work, with waves of `wave_size` lanes.
    pub fn estimate(&self, counters: &Counters, wave_size: u32) -> Estimate {
        let is_cdna = self.target.parse::<Target>().is_ok_and(|own| own.family() == Family::Cdna);
        // A SIMD of CDNA has 16 lanes, one of RDNA 32.
        let (simds, lanes) = if is_cdna { (4.0, 16.0) } else { (2.0, 32.0) };
        let cycles_per_microsecond = self.clock_ghz * 1.0e3 * f64::from(self.compute_units);
        let issue = counters.of(Class::Vector) as f64 * f64::from(wave_size) / lanes / simds / cycles_per_microsecond;
        let times = [
            (Bound::Memory, counters.bytes_touched() as f64 / (self.bandwidth_gbs * 1.0e3)),
            (Bound::Vector, issue.max(counters.vector_flops as f64 / (self.vector_tflops * 1.0e6))),
            (Bound::Matrix, counters.matrix_flops as f64 / (self.matrix_tflops * 1.0e6)),
            (Bound::Lds, (counters.lds_cycles + counters.lds_conflicts) as f64 / cycles_per_microsecond),
        ];
        let longest = times.into_iter().max_by(|one, other| one.1.total_cmp(&other.1));
        let (bound, microseconds) = longest.unwrap_or((Bound::Memory, 0.0));
        Estimate { microseconds, bound }
    }
}
