//! The folder for `HSA_MODEL_TOPOLOGY`: what `/sys/class/kfd/kfd/topology` has on a machine with one CPU and some GPUs.

use std::fs;
use std::io;
use std::path::Path;

use crate::chips::Chip;

/// Values of the kernel driver's interface.
const LINK_PCIE: u64 = 2;
const HEAP_SYSTEM: u64 = 0;
const HEAP_DEVICE: u64 = 1;
const CACHE_DATA_OF_SIMDS: u64 = 9;
const VENDOR_AMD: u64 = 0x1002;

/// Doorbells of eight bytes, and watch points. Bit 30 (debugging) is not set, because ROCr's hook ends the process for
/// it.
const CAPABILITY: u64 = 0x2280;

/// A machine with emulated GPUs.
#[derive(Debug, Clone, Copy)]
pub struct Machine<'a> {
    /// Its GPUs.
    pub chips: &'a [&'a Chip],
    /// The most memory that a GPU reports. Memory is taken from this machine's only when it is written.
    pub most_memory_gib: u64,
}

impl Machine<'_> {
    /// Writes the folder; an older one is replaced.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn write(&self, folder: &Path) -> io::Result<()> {
        if folder.exists() {
            fs::remove_dir_all(folder)?;
        }
        put(&folder.join("generation_id"), "1\n")?;
        put(&folder.join("system_properties"), "platform_oem 0\nplatform_id 0\nplatform_rev 0\n")?;
        self.write_cpu(&folder.join("nodes/0"))?;
        for (chip, node) in self.chips.iter().zip(1u64..) {
            self.write_gpu(chip, node, &folder.join(format!("nodes/{node}")))?;
        }
        Ok(())
    }

    fn write_cpu(&self, node: &Path) -> io::Result<()> {
        let processors = std::thread::available_parallelism().map_or(1, |count| count.get() as u64);
        put(&node.join("gpu_id"), "0\n")?;
        put(&node.join("name"), "\n")?;
        let links = self.chips.len() as u64;
        let counts = [("cpu_cores_count", processors), ("mem_banks_count", 1), ("io_links_count", links)];
        let zero = ["simd_count", "caches_count", "p2p_links_count", "cpu_core_id_base", "simd_id_base"];
        let properties =
            counts.into_iter().chain(zero.map(|name| (name, 0))).chain([("max_engine_clk_ccompute", 2000)]);
        put(&node.join("properties"), &lines(properties))?;
        bank(node, HEAP_SYSTEM, 16 << 30, 64, 3200)?;
        (0..links).try_for_each(|at| link(node, at, 0, at + 1))
    }

    fn write_gpu(&self, chip: &Chip, node: u64, folder: &Path) -> io::Result<()> {
        // ROCr's hook demands this number.
        put(&folder.join("gpu_id"), &format!("{}\n", node + 1))?;
        put(&folder.join("name"), &format!("{}\n", chip.target))?;
        put(&folder.join("properties"), &lines(properties(chip, node)))?;
        let memory = chip.memory_gib.min(self.most_memory_gib) << 30;
        bank(folder, HEAP_DEVICE, memory, chip.memory_bits, chip.memory_mhz)?;
        link(folder, 0, node, 0)?;
        for ((kib, level), at) in chip.caches_kib.into_iter().zip(1u64..).zip(0..) {
            let cache = [
                ("processor_id_low", FIRST_SIMD),
                ("level", level),
                ("size", u64::from(kib)),
                ("cache_line_size", 128),
                ("cache_lines_per_tag", 1),
                ("association", 16),
                ("latency", 0),
                ("type", CACHE_DATA_OF_SIMDS),
            ];
            put(&folder.join(format!("caches/{at}/properties")), &(lines(cache) + "sibling_map 1,1,1,1\n"))?;
        }
        Ok(())
    }
}

/// The number of a GPU's first SIMD, as the kernel driver counts.
const FIRST_SIMD: u64 = 0x8000_1000;

fn properties(chip: &Chip, node: u64) -> Vec<(&'static str, u64)> {
    let each = |value: u32| u64::from(value);
    vec![
        ("cpu_cores_count", 0),
        ("simd_count", each(chip.compute_units * chip.simds_per_unit)),
        ("mem_banks_count", 1),
        ("caches_count", chip.caches_kib.len() as u64),
        ("io_links_count", 1),
        ("p2p_links_count", 0),
        ("cpu_core_id_base", 0),
        ("simd_id_base", FIRST_SIMD),
        ("max_waves_per_simd", each(chip.waves_per_simd)),
        ("lds_size_in_kb", each(chip.lds_kib)),
        ("gds_size_in_kb", 0),
        ("num_gws", 64),
        ("wave_front_size", each(chip.wave)),
        ("array_count", each(chip.arrays)),
        ("simd_arrays_per_engine", each(chip.arrays_per_engine)),
        ("cu_per_simd_array", each(chip.compute_units.div_ceil(chip.arrays))),
        ("simd_per_cu", each(chip.simds_per_unit)),
        ("max_slots_scratch_cu", 32),
        ("gfx_target_version", each(chip.version().unwrap_or_default())),
        ("vendor_id", VENDOR_AMD),
        ("device_id", u64::from(chip.device_id)),
        // Bus 3 and on, as for cards behind a bridge.
        ("location_id", (2 + node) << 8),
        ("domain", 0),
        ("drm_render_minor", 127 + node),
        ("hive_id", 0),
        ("num_sdma_engines", each(chip.copy_engines)),
        ("num_sdma_xgmi_engines", 0),
        ("num_sdma_queues_per_engine", 6),
        ("num_cp_queues", 8),
        ("max_engine_clk_fcompute", each(chip.engine_mhz)),
        ("local_mem_size", 0),
        ("fw_version", 2320),
        ("capability", CAPABILITY),
        ("debug_prop", 0),
        ("sdma_fw_version", 21),
        ("unique_id", 0x1000 + node),
        ("num_xcc", each(chip.dies)),
        ("family_id", u64::from(chip.family)),
        ("max_engine_clk_ccompute", 2000),
    ]
}

fn bank(node: &Path, heap: u64, bytes: u64, bits: u32, mhz: u32) -> io::Result<()> {
    let properties = [
        ("heap_type", heap),
        ("size_in_bytes", bytes),
        ("flags", 0),
        ("width", u64::from(bits)),
        ("mem_clk_max", u64::from(mhz)),
    ];
    put(&node.join("mem_banks/0/properties"), &lines(properties))
}

fn link(node: &Path, at: u64, from: u64, to: u64) -> io::Result<()> {
    let properties = [
        ("type", LINK_PCIE),
        ("version_major", 0),
        ("version_minor", 0),
        ("node_from", from),
        ("node_to", to),
        ("weight", 20),
        ("min_latency", 0),
        ("max_latency", 0),
        ("min_bandwidth", 312),
        ("max_bandwidth", 31_504),
        ("recommended_transfer_size", 0),
        ("recommended_sdma_engine_id_mask", 0),
        ("flags", 1),
    ];
    put(&node.join(format!("io_links/{at}/properties")), &lines(properties))
}

fn lines(properties: impl IntoIterator<Item = (&'static str, u64)>) -> String {
    properties.into_iter().map(|(name, value)| format!("{name} {value}\n")).collect()
}

fn put(file: &Path, text: &str) -> io::Result<()> {
    if let Some(folder) = file.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::write(file, text)
}

/// The chips of a folder in the order of their nodes. A GPU that is not in the table is an error with its number.
///
/// # Errors
/// When a file cannot be read, or a GPU is unknown.
pub fn chips(folder: &Path) -> io::Result<Vec<&'static Chip>> {
    let mut chips = Vec::new();
    for node in 0.. {
        let file = folder.join(format!("nodes/{node}/properties"));
        if !file.exists() {
            break;
        }
        let text = fs::read_to_string(file)?;
        let value = text.lines().filter_map(|line| line.strip_prefix("gfx_target_version ")).next();
        match value.and_then(|value| value.trim().parse().ok()) {
            None | Some(0) => {}
            Some(version) => {
                let unknown = || io::Error::other(format!("target {version} of node {node} is not a known chip"));
                chips.push(Chip::versioned(version).ok_or_else(unknown)?);
            }
        }
    }
    Ok(chips)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chips::ALL;

    #[test]
    fn written_chips_are_read_back_in_order() {
        let folder = tempfile::tempdir().unwrap();
        for chips in [vec![&ALL[0]], vec![&ALL[3], &ALL[0]], ALL.iter().collect()] {
            Machine { chips: &chips, most_memory_gib: 8 }.write(folder.path()).unwrap();
            assert_eq!(super::chips(folder.path()).unwrap(), chips);
        }
    }

    #[test]
    fn gpus_have_the_numbers_that_the_hook_demands() {
        let folder = tempfile::tempdir().unwrap();
        Machine { chips: &[&ALL[0], &ALL[1]], most_memory_gib: 8 }.write(folder.path()).unwrap();
        let text = |name: &str| fs::read_to_string(folder.path().join("nodes").join(name)).unwrap();
        assert_eq!((text("0/gpu_id"), text("1/gpu_id"), text("2/gpu_id")), ("0\n".into(), "2\n".into(), "3\n".into()));
        assert!(text("0/io_links/1/properties").contains("node_to 2\n"));
        assert!(text("1/mem_banks/0/properties").contains("size_in_bytes 8589934592\n"));
        let capability = text("1/properties").lines().find_map(|line| line.strip_prefix("capability ")?.parse().ok());
        assert_eq!(capability.map(|bits: u64| bits >> 30 & 1), Some(0));
    }

    #[test]
    fn an_unknown_gpu_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        put(&folder.path().join("nodes/0/properties"), "gfx_target_version 123456\n").unwrap();
        let error = super::chips(folder.path()).unwrap_err();
        assert_eq!(error.to_string(), "target 123456 of node 0 is not a known chip");
    }
}
