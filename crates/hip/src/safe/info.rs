//! Device properties. Drivers may reject any query; every field has a documented default.

use std::ffi::c_int;

use crate::DriverKind;
use crate::result::{Runtime, device};
use crate::sys::codes::attribute;

/// Properties of a device, read once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// The marketing name; `AMD GPU` or similar if the driver has none.
    pub name: String,
    /// The target: `gfx90a:sramecc+:xnack-` as the driver formats it, `sm_90`, `host`, or `unknown`.
    pub arch: String,
    /// `dddd:bb:dd.f` in lower-case hexadecimal, or `None` if the driver does not report it.
    pub pci_bus_id: Option<String>,
    /// Bytes of device memory, 0 if the driver does not report it.
    pub total_memory: usize,
    /// Lanes of a wave; if the driver does not report it, 64 for gfx9 and 32 otherwise.
    pub wave_size: u32,
    /// Compute units (not pairs of them, which HIP counts on RDNA), 1 if the driver does not report it.
    pub compute_units: u32,
    /// LDS bytes that a block may use; if the driver does not report it, 64 KiB on AMD and 48 KiB elsewhere.
    pub lds_bytes: u32,
    /// Whether the device shares the host's memory; `false` if the driver does not report it.
    pub integrated: bool,
    /// Whether stream-ordered allocation is supported; `false` if the driver does not report it.
    pub memory_pools: bool,
}

impl DeviceInfo {
    /// The target without its features: `gfx90a` of `gfx90a:sramecc+:xnack-`.
    pub fn arch_family(&self) -> &str {
        self.arch.split(':').next().unwrap_or_default()
    }

    pub(crate) fn read(runtime: &Runtime, ordinal: c_int) -> DeviceInfo {
        let ask = |number| device::attribute(runtime, ordinal, number);
        let positive = |number| ask(number).and_then(|value| u32::try_from(value).ok()).filter(|&value| value > 0);
        let arch = read_arch(runtime, ordinal);
        let default_lds = if runtime.kind == DriverKind::Amd { 64 * 1024 } else { 48 * 1024 };
        let pci_bus_id = device::pci_bus_id(runtime, ordinal).as_deref().and_then(normal_pci_bus_id).or_else(|| {
            pci_bus_id_from(ask(attribute::PCI_DOMAIN), ask(attribute::PCI_BUS), ask(attribute::PCI_DEVICE))
        });
        let has_pools = runtime.table.malloc_async.is_some() && runtime.table.free_async.is_some();
        DeviceInfo {
            name: device::name(runtime, ordinal)
                .filter(|name| !name.is_empty())
                .unwrap_or_else(|| nameless(runtime.kind).to_owned()),
            pci_bus_id,
            total_memory: device::total_memory(runtime, ordinal).unwrap_or(0),
            wave_size: positive(attribute::WAVE_SIZE).unwrap_or(if arch.starts_with("gfx9") { 64 } else { 32 }),
            compute_units: positive(attribute::MULTIPROCESSOR_COUNT).map_or(1, |count| compute_units(&arch, count)),
            lds_bytes: positive(attribute::LDS_PER_BLOCK).unwrap_or(default_lds),
            integrated: ask(attribute::INTEGRATED).is_some_and(|value| value != 0),
            memory_pools: has_pools && ask(attribute::MEMORY_POOLS).is_some_and(|value| value != 0),
            arch,
        }
    }
}

const UNKNOWN_ARCH: &str = "unknown";

fn read_arch(runtime: &Runtime, ordinal: c_int) -> String {
    let found = match runtime.kind {
        DriverKind::Amd => device::properties(runtime, ordinal).as_deref().and_then(gfx_name),
        DriverKind::Host => {
            device::properties(runtime, ordinal).as_deref().and_then(|bytes| text_at(bytes, ARCH_OFFSET))
        }
        DriverKind::Nvidia => {
            let ask = |number| device::attribute(runtime, ordinal, number);
            match (ask(attribute::CAPABILITY_MAJOR), ask(attribute::CAPABILITY_MINOR)) {
                (Some(major), Some(minor)) => Some(format!("sm_{major}{minor}")),
                _ => None,
            }
        }
    };
    found.unwrap_or_else(|| UNKNOWN_ARCH.to_owned())
}

/// A name without the target, because messages print the target beside the name.
fn nameless(kind: DriverKind) -> &'static str {
    match kind {
        DriverKind::Amd => "AMD GPU",
        DriverKind::Nvidia => "NVIDIA GPU",
        DriverKind::Host => "host device",
    }
}

/// The compute units of a device with this many multiprocessors. From RDNA (gfx10) on, a multiprocessor of HIP is a work
/// group processor, which has two compute units. HIP's attribute of physical multiprocessors counts pairs too. (The
/// setting `GPU_ENABLE_WGP_MODE=0` of HIP makes it count single ones; it is a debugging aid and not considered here.)
fn compute_units(arch: &str, multiprocessors: u32) -> u32 {
    let are_pairs = arch.starts_with("gfx1");
    if are_pairs { multiprocessors.saturating_mul(2) } else { multiprocessors }
}

/// Offset of the target name in HIP 6's properties structure.
const ARCH_OFFSET: usize = 1160;
/// Both known properties structures begin with a name of this many bytes, which may itself contain a target name.
const NAME_BYTES: usize = 256;

fn text_at(bytes: &[u8], offset: usize) -> Option<String> {
    let rest = bytes.get(offset..)?;
    let end = rest.iter().position(|&byte| byte == 0)?;
    let text = std::str::from_utf8(&rest[..end]).ok()?;
    (!text.is_empty()).then(|| text.to_owned())
}

/// Finds `gfx...` in a properties structure of any version.
fn gfx_name(bytes: &[u8]) -> Option<String> {
    let start = bytes
        .get(NAME_BYTES..)?
        .windows(4)
        .position(|window| window.starts_with(b"gfx") && window[3].is_ascii_digit())?;
    text_at(bytes, NAME_BYTES + start).filter(|name| name.bytes().all(|byte| byte.is_ascii_graphic()))
}

/// Converts every format that drivers use (upper case, eight-digit domain) to `dddd:bb:dd.f`.
fn normal_pci_bus_id(text: &str) -> Option<String> {
    let (rest, function) = text.trim().rsplit_once('.')?;
    let mut parts = rest.rsplit(':');
    let (device, bus) = (parts.next()?, parts.next()?);
    let domain = parts.next().unwrap_or("0");
    if parts.next().is_some() {
        return None;
    }
    let number = |digits: &str| u32::from_str_radix(digits, 16).ok();
    let (domain, bus, device, function) = (number(domain)?, number(bus)?, number(device)?, number(function)?);
    // All zero is the host bridge: the driver does not know the real id.
    (bus <= 0xff && device <= 0x1f && function <= 7 && (domain, bus, device) != (0, 0, 0))
        .then(|| format!("{domain:04x}:{bus:02x}:{device:02x}.{function:x}"))
}

fn pci_bus_id_from(domain: Option<c_int>, bus: Option<c_int>, device: Option<c_int>) -> Option<String> {
    let (domain, bus, device) = (domain.unwrap_or(0), bus?, device?);
    normal_pci_bus_id(&format!("{domain:x}:{bus:x}:{device:x}.0"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn properties(offset: usize, text: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; 8192];
        bytes[offset..offset + text.len()].copy_from_slice(text);
        bytes
    }

    #[test]
    fn target_is_found_in_both_known_layouts() {
        assert_eq!(gfx_name(&properties(396, b"gfx906")).as_deref(), Some("gfx906"));
        assert_eq!(gfx_name(&properties(1160, b"gfx90a:sramecc+:xnack-")).as_deref(), Some("gfx90a:sramecc+:xnack-"));
        assert_eq!(gfx_name(&properties(1160, b"gfx11-generic")).as_deref(), Some("gfx11-generic"));
    }

    #[test]
    fn a_target_inside_the_device_name_is_ignored() {
        let mut bytes = properties(1160, b"gfx1103");
        bytes[..13].copy_from_slice(b"Board gfx9000");
        assert_eq!(gfx_name(&bytes).as_deref(), Some("gfx1103"));
        assert_eq!(gfx_name(&properties(10, b"gfx1100")), None);
    }

    #[test]
    fn compute_units_are_counted_singly_on_every_family() {
        // RX 5700 XT, RX 7900 XTX, RX 9070 XT, Radeon VII, MI300X, H200, host: HIP's count, and the data sheet's.
        for (arch, counted, wanted) in [
            ("gfx1010:xnack-", 20, 40),
            ("gfx1100", 48, 96),
            ("gfx1201", 32, 64),
            ("gfx906:sramecc+:xnack-", 60, 60),
            ("gfx942:sramecc+:xnack-", 304, 304),
            ("sm_90", 132, 132),
            ("host", 16, 16),
        ] {
            assert_eq!(compute_units(arch, counted), wanted, "{arch}");
        }
    }

    #[test]
    fn absent_target_is_none() {
        assert_eq!(gfx_name(&vec![0; 8192]), None);
        assert_eq!(gfx_name(&[]), None);
        assert_eq!(gfx_name(&properties(1160, b"gfx\0")), None);
    }

    #[test]
    fn pci_bus_ids_of_every_spelling_become_one() {
        for (given, wanted) in [
            ("0000:03:00.0", Some("0000:03:00.0")),
            ("00000000:1A:00.0", Some("0000:1a:00.0")),
            ("03:00.1", Some("0000:03:00.1")),
            ("10000:c1:1f.7", Some("10000:c1:1f.7")),
            ("", None),
            ("0000:00:00.0", None),
            ("0000:03:00", None),
            ("0000:03:20.0", None),
            ("1:2:3:4.0", None),
            ("host", None),
        ] {
            assert_eq!(normal_pci_bus_id(given).as_deref(), wanted, "{given:?}");
        }
    }

    #[test]
    fn pci_attributes_that_are_all_zero_or_refused_mean_no_id() {
        assert_eq!(pci_bus_id_from(Some(0), Some(0), Some(0)), None);
        assert_eq!(pci_bus_id_from(None, Some(3), None), None);
        assert_eq!(pci_bus_id_from(None, Some(0xc1), Some(0)).as_deref(), Some("0000:c1:00.0"));
    }

    proptest! {
        #[test]
        fn any_bytes_give_a_printable_target_or_none(bytes in proptest::collection::vec(any::<u8>(), 0..2048)) {
            if let Some(name) = gfx_name(&bytes) {
                prop_assert!(name.starts_with("gfx") && name.bytes().all(|byte| byte.is_ascii_graphic()));
            }
        }

        #[test]
        fn any_text_gives_a_well_formed_id_or_none(text in "[0-9a-fA-F:.]{0,20}") {
            if let Some(id) = normal_pci_bus_id(&text) {
                prop_assert_eq!(normal_pci_bus_id(&id), Some(id.clone()));
                prop_assert_eq!(id.to_lowercase(), id);
            }
        }
    }
}
