//! The resources that a kernel needs, read from the compiler's output.

use std::collections::BTreeMap;

use anyhow::{Context, Result};

const LDS_LIMIT: u32 = 48 * 1024;
/// 64 registers or fewer allow full occupancy on all targets.
const REGISTERS: u32 = 64;
/// Products of few rows keep the rows and wide packs in registers.
const REGISTERS_OF_FEW_ROWS: u32 = 128;
/// Rows are normalised while the first weights are being loaded into registers; four waves still share a SIMD.
const REGISTERS_OF_NORMED_ROWS: u32 = 136;
/// Rows that are read once, windows, and a unit's sums stay in registers: fewer waves, each with more bytes in flight.
const REGISTERS_OF_ROWS: u32 = 112;
/// Sums of several heads, and their keys and values in flight: few waves with many bytes each.
const REGISTERS_OF_CACHED_ROWS: u32 = 224;
/// Kernels that keep tiles of a product or a state in registers: two blocks of 256 threads still share a compute unit.
const REGISTERS_OF_TILES: u32 = 256;

/// The resources of one kernel on one target.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    pub vgprs: u32,
    pub lds_bytes: u32,
    /// Waves on a SIMD at a time.
    pub occupancy: u32,
    args_bytes: u32,
    max_threads: u32,
    scratch_bytes: u32,
    spills: u32,
    has_dynamic_stack: bool,
}

impl Usage {
    /// All kernels in an assembly text, by name.
    ///
    /// # Errors
    /// The text has no metadata.
    pub fn all(assembly: &str) -> Result<BTreeMap<String, Self>> {
        let (code, rest) = assembly.split_once(".amdgpu_metadata").context("the assembly has no metadata")?;
        let occupancy = occupancies(code);
        let mut usages = BTreeMap::new();
        // A record begins with the kernel's arguments. The kernel's keys are indented by four, an argument's by more.
        for record in rest.split("\n  - ").skip(1) {
            let number = |key: &str| {
                let value = record.lines().find_map(|line| line.trim_start().strip_prefix(key)?.strip_prefix(':'));
                value.and_then(|value| value.trim().parse::<u32>().ok()).unwrap_or(0)
            };
            let text = |key: &str| record.lines().find_map(|line| line.strip_prefix("    ")?.strip_prefix(key));
            let Some(name) = text(".name:").map(|name| name.trim().to_owned()) else { continue };
            let usage = Self {
                // On targets with a unified register file, the first number includes the accumulators.
                vgprs: number(".vgpr_count").max(number(".agpr_count")),
                lds_bytes: number(".group_segment_fixed_size"),
                occupancy: occupancy.get(name.as_str()).copied().unwrap_or(0),
                args_bytes: number(".size"),
                max_threads: number(".max_flat_workgroup_size"),
                scratch_bytes: number(".private_segment_fixed_size"),
                spills: number(".vgpr_spill_count") + number(".sgpr_spill_count"),
                has_dynamic_stack: text(".uses_dynamic_stack:").is_some_and(|value| value.trim() == "true"),
            };
            usages.insert(name, usage);
        }
        Ok(usages)
    }

    /// Where the kernel exceeds its budget or differs from what the launcher assumes.
    pub fn faults(&self, kernel: &str, args_bytes: u32, threads: u32, dynamic_lds: u32) -> Vec<String> {
        let registers = match kernel {
            "gemm" | "conv" | "attention" | "cached_tiles" | "cached_few" | "linear_attention" => REGISTERS_OF_TILES,
            "cached_rows" => REGISTERS_OF_CACHED_ROWS,
            "softmax" | "softmax_ragged" | "normalise" | "pool_window" | "recurrent_step" | "conv_join" => {
                REGISTERS_OF_ROWS
            }
            "quant_mma" => REGISTERS_OF_NORMED_ROWS,
            "gemv" | "quant_gemv" | "attend_rows" | "experts" => REGISTERS_OF_FEW_ROWS,
            _ => REGISTERS,
        };
        let mut faults = Vec::new();
        let mut check = |fault: bool, text: String| fault.then(|| faults.push(text));
        check(self.spills > 0, format!("{} spilled registers", self.spills));
        check(self.scratch_bytes > 0, format!("{} bytes of scratch memory", self.scratch_bytes));
        check(self.has_dynamic_stack, "a stack of unknown size".to_owned());
        check(self.vgprs > registers, format!("{} vector registers, more than {registers}", self.vgprs));
        let lds = self.lds_bytes + dynamic_lds;
        check(lds > LDS_LIMIT, format!("{lds} bytes of LDS, more than {LDS_LIMIT}"));
        let (found, wanted) = (self.args_bytes, args_bytes);
        check(found != wanted, format!("the launcher passes {wanted} bytes of arguments, the kernel expects {found}"));
        let bound = self.max_threads;
        check(bound != threads, format!("launched with {threads} threads, compiled for {bound}"));
        faults
    }
}

/// The compiler's occupancy remarks, which follow each function.
fn occupancies(code: &str) -> BTreeMap<&str, u32> {
    let mut found = BTreeMap::new();
    let mut name = "";
    for line in code.lines() {
        if let Some(function) = line.trim().strip_prefix(".globl") {
            name = function.split_whitespace().next().unwrap_or_default();
        }
        if let Some(value) = line.strip_prefix("; Occupancy: ") {
            found.insert(name, value.trim().parse().unwrap_or(0));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const ASSEMBLY: &str = "\t.globl\tfoo ; -- Begin function foo\nfoo:\n; Occupancy: 12\n\t.amdgpu_metadata\n---\n\
        amdhsa.kernels:\n  - .agpr_count:     4\n    .args:\n      - .offset:         0\n        .size:           72\n\
        \x20       .value_kind:     by_value\n    .group_segment_fixed_size: 32\n    .max_flat_workgroup_size: 256\n\
        \x20   .name:           foo\n    .private_segment_fixed_size: 0\n    .sgpr_spill_count: 0\n\
        \x20   .uses_dynamic_stack: false\n    .vgpr_count:     16\n    .vgpr_spill_count: 1\n";

    #[test]
    fn metadata_is_read_and_held_against_the_budget() {
        let usages = Usage::all(ASSEMBLY).unwrap();
        let usage = &usages["foo"];
        assert_eq!((usage.vgprs, usage.lds_bytes, usage.occupancy), (16, 32, 12));
        assert_eq!(usage.faults("foo", 72, 256, 0), ["1 spilled registers"]);
        let faults = usage.faults("foo", 80, 128, 1 << 16);
        assert_eq!(faults.len(), 4, "{faults:?}");
    }

    #[test]
    fn products_may_use_more_registers() {
        let usage = Usage { vgprs: 100, max_threads: 256, ..Usage::default() };
        assert_eq!(usage.faults("gemm", 0, 256, 0), [""; 0]);
        assert_eq!(usage.faults("map_rows", 0, 256, 0).len(), 1);
    }
}
