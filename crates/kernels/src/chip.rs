//! Peak performance of chips, from their vendors' public data sheets.
use crate::Arch;

/// The limits of a chip.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Peak {
    /// Memory bandwidth in bytes per second.
    pub bytes_per_second: f64,
    /// Single-precision FLOP/s, without matrix instructions.
    pub flops_f32: f64,
    /// Half-precision FLOP/s, with matrix instructions if available.
    pub flops_f16: f64,
}

impl Peak {
    /// The minimum time in seconds: the slower of memory traffic and compute.
    pub fn seconds(&self, bytes: u64, flops: u64, is_half_product: bool) -> f64 {
        let rate = if is_half_product { self.flops_f16 } else { self.flops_f32 };
        (bytes as f64 / self.bytes_per_second).max(flops as f64 / rate)
    }
}

/// A chip: its target, compute units, a part of its name if others are like it, and GB/s and TFLOP/s.
struct Row(&'static str, u32, &'static str, f64, f64, f64);

/// Named chips come before others of the same size.
const TABLE: [Row; 27] = [
    Row("gfx906", 60, "", 1024.0, 13.4, 26.8),
    Row("gfx906", 64, "", 1024.0, 14.7, 29.5),
    Row("gfx908", 120, "", 1228.8, 23.1, 184.6),
    Row("gfx90a", 104, "", 1638.4, 22.6, 181.0),
    Row("gfx90a", 110, "", 1638.4, 23.9, 191.5),
    Row("gfx942", 304, "MI325", 6000.0, 163.4, 1307.4),
    Row("gfx942", 304, "", 5300.0, 163.4, 1307.4),
    Row("gfx942", 228, "", 5300.0, 122.6, 980.6),
    Row("gfx950", 256, "MI355", 8000.0, 157.3, 2516.6),
    Row("gfx950", 256, "", 8000.0, 144.2, 2306.9),
    Row("gfx1030", 80, "", 512.0, 23.0, 46.1),
    Row("gfx1030", 72, "", 512.0, 20.7, 41.5),
    Row("gfx1030", 60, "", 512.0, 16.2, 32.3),
    Row("gfx1100", 96, "W7900", 864.0, 61.3, 122.6),
    Row("gfx1100", 96, "", 960.0, 61.4, 122.8),
    Row("gfx1100", 84, "", 800.0, 51.5, 103.0),
    Row("gfx1101", 60, "", 624.1, 37.3, 74.7),
    Row("gfx1101", 54, "", 432.0, 35.2, 70.3),
    Row("gfx1102", 32, "", 288.0, 21.8, 43.5),
    Row("gfx1151", 40, "", 256.0, 29.7, 59.4),
    Row("gfx1200", 32, "", 320.0, 25.6, 102.6),
    Row("gfx1201", 64, "", 640.0, 48.7, 194.6),
    Row("gfx1201", 56, "", 640.0, 36.1, 144.5),
    Row("sm_80", 108, "", 1555.0, 19.5, 312.0),
    Row("sm_89", 128, "", 1008.0, 82.6, 165.2),
    Row("sm_90", 132, "H200", 4800.0, 66.9, 989.4),
    Row("sm_90", 132, "H100", 3350.0, 66.9, 989.4),
];

impl Arch {
    /// The peak performance of the chip with this name; `None` if it is unknown.
    pub fn peak(&self, name: &str) -> Option<Peak> {
        let target = self.target.split(':').next().unwrap_or_default();
        let found = TABLE
            .iter()
            .find(|Row(of, units, word, ..)| *of == target && *units == self.compute_units && name.contains(word));
        found.map(|Row(_, _, _, gigabytes, flops_f32, flops_f16)| Peak {
            bytes_per_second: gigabytes * 1e9,
            flops_f32: flops_f32 * 1e12,
            flops_f16: flops_f16 * 1e12,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chips_are_identified_by_target_size_and_name() {
        let gigabytes =
            |target: &str, units, name: &str| Some(Arch::new(target, units).peak(name)?.bytes_per_second / 1e9);
        assert_eq!(gigabytes("gfx942:sramecc+:xnack-", 304, "AMD Instinct MI300X"), Some(5300.0));
        assert_eq!(gigabytes("gfx942", 304, "AMD Instinct MI325X"), Some(6000.0));
        assert_eq!(gigabytes("gfx1100", 96, "AMD Radeon Graphics"), Some(960.0));
        assert_eq!(gigabytes("gfx1100", 96, "AMD Radeon PRO W7900"), Some(864.0));
        assert_eq!(gigabytes("sm_90", 132, "NVIDIA H200"), Some(4800.0));
        for (target, units) in [("gfx942", 80), ("gfx1100", 4), ("gfx1250", 64), ("host", 1), ("sm_90", 66)] {
            assert_eq!(gigabytes(target, units, ""), None, "{target} {units}");
        }
    }

    #[test]
    fn the_slower_of_memory_and_compute_counts() {
        let peak = Peak { bytes_per_second: 100.0, flops_f32: 10.0, flops_f16: 1000.0 };
        assert_eq!(peak.seconds(200, 1000, true), 2.0);
        assert_eq!(peak.seconds(200, 1000, false), 100.0);
    }
}
