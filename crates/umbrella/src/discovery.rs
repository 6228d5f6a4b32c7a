//! Finds devices: matches those that the driver reports with those that ONNX Runtime lists.
use hip::{Device, DeviceInfo, Driver, DriverKind};
use ort_ep::view::{HardwareDevice, HardwareKind};
use ort_ep::{NewHardware, OfferedHardware};

use crate::AMD_VENDOR_ID;

const NVIDIA_VENDOR_ID: u32 = 0x10de;

/// The result of device discovery.
pub(crate) struct Discovery {
    pub devices: Vec<Device>,
    /// Why there are no devices, and how to fix it.
    pub reason: Option<String>,
}

/// Queries the driver that the environment selects.
pub(crate) fn discover() -> Discovery {
    let text = std::env::var("AMDGPU_EP_DRIVER").ok();
    let kind = DriverKind::wanted(text.as_deref()).unwrap_or_else(|error| {
        tracing::warn!(target: "amdgpu_ep::load", "AMDGPU_EP_DRIVER is ignored: {error}, or auto");
        DriverKind::Amd
    });
    let none = |reason: String| Discovery { devices: Vec::new(), reason: Some(reason) };
    let driver = match Driver::load(kind) {
        Ok(driver) => driver,
        Err(error) => return none(error.to_string()),
    };
    match driver.devices() {
        Ok(devices) if devices.is_empty() => {
            let reason = driver.no_device_reason().unwrap_or_else(|| "its device list is empty".to_owned());
            none(format!("the {kind} driver ({}) has no device: {reason}", driver.library().display()))
        }
        Ok(devices) => Discovery { devices, reason: None },
        Err(error) => none(error.to_string()),
    }
}

/// The hardware entry for each device: the one that ONNX Runtime lists at the same PCI address; or else, if as many
/// entries as devices without an address remain, the next of those; or else a new one (ONNX Runtime misses GPUs in some
/// containers, and never lists the host device).
pub(crate) fn match_hardware<'a>(devices: &[Device], listed: &[HardwareDevice<'a>]) -> Vec<OfferedHardware<'a>> {
    let Some(kind) = devices.first().map(Device::kind) else { return Vec::new() };
    let vendor_id = match kind {
        DriverKind::Amd | DriverKind::Host => AMD_VENDOR_ID,
        DriverKind::Nvidia => NVIDIA_VENDOR_ID,
    };
    let gpus: Vec<_> = if kind == DriverKind::Host {
        Vec::new()
    } else {
        let fits = |device: &&HardwareDevice<'a>| device.kind() == HardwareKind::Gpu && device.vendor_id() == vendor_id;
        listed.iter().filter(fits).copied().collect()
    };
    let addresses = |id: &Option<String>| id.as_deref().and_then(PciAddress::parse);
    let wanted: Vec<_> = devices.iter().map(|device| addresses(&device.info().pci_bus_id)).collect();
    let found: Vec<_> = gpus.iter().map(|gpu| gpu.pci_bus_id().and_then(|id| PciAddress::parse(&id))).collect();
    pair(&wanted, &found)
        .into_iter()
        .zip(devices)
        .map(|(position, device)| match position {
            Some(position) => OfferedHardware::Listed(gpus[position]),
            None => OfferedHardware::New(new_hardware(vendor_id, device.info(), kind)),
        })
        .collect()
}

/// The index of the match for each requested address: by address, then by order if the remaining counts are equal.
fn pair(wanted: &[Option<PciAddress>], found: &[Option<PciAddress>]) -> Vec<Option<usize>> {
    let mut free: Vec<usize> = (0..found.len()).collect();
    let mut pairs: Vec<Option<usize>> = wanted
        .iter()
        .map(|address| {
            let place = free.iter().position(|&at| address.is_some() && found[at] == *address)?;
            Some(free.remove(place))
        })
        .collect();
    let open: Vec<usize> = (0..pairs.len()).filter(|&at| pairs[at].is_none() && wanted[at].is_none()).collect();
    if open.len() == free.len() {
        for (at, partner) in open.into_iter().zip(free) {
            pairs[at] = Some(partner);
        }
    }
    pairs
}

fn new_hardware(vendor_id: u32, info: &DeviceInfo, kind: DriverKind) -> NewHardware {
    let vendor = if kind == DriverKind::Nvidia { "NVIDIA" } else { "AMD" };
    let mut metadata = vec![("description".to_owned(), info.name.clone())];
    metadata.extend(info.pci_bus_id.clone().map(|id| ("pci_bus_id".to_owned(), id)));
    if kind == DriverKind::Host {
        metadata.push(("is_virtual".to_owned(), "1".to_owned()));
    }
    NewHardware { kind: HardwareKind::Gpu, vendor_id, device_id: 0, vendor: vendor.to_owned(), metadata }
}

/// Domain, bus and device of a PCI address. The functions of one card count as one device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PciAddress {
    domain: u32,
    bus: u32,
    device: u32,
}

impl PciAddress {
    /// Parses `0000:65:00.0`; the domain is optional.
    fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let (place, _function) = text.rsplit_once('.').unwrap_or((text, ""));
        let mut numbers = place.rsplit(':').map(|part| u32::from_str_radix(part, 16).ok());
        let (device, bus) = (numbers.next()??, numbers.next()??);
        let domain = numbers.next().unwrap_or(Some(0))?;
        numbers.next().is_none().then_some(Self { domain, bus, device })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(bus: u32) -> Option<PciAddress> {
        Some(PciAddress { domain: 0, bus, device: 0 })
    }

    #[test]
    fn auto_means_amd_and_other_words_are_refused() {
        for text in [None, Some(""), Some("auto"), Some(" AUTO "), Some("amd")] {
            assert_eq!(DriverKind::wanted(text), Ok(DriverKind::Amd));
        }
        assert_eq!(DriverKind::wanted(Some("Host")), Ok(DriverKind::Host));
        assert!(DriverKind::wanted(Some("vulkan")).is_err());
    }

    #[test]
    fn reads_pci_addresses() {
        for (text, want) in [
            ("0000:65:00.0", at(0x65)),
            ("0000:65:00.1", at(0x65)),
            ("65:00.0", at(0x65)),
            ("0000:6A:00.0", at(0x6a)),
            ("0001:65:02.0", Some(PciAddress { domain: 1, bus: 0x65, device: 2 })),
            ("", None),
            ("card0", None),
            ("1:2:3:4.5", None),
        ] {
            assert_eq!(PciAddress::parse(text), want, "{text}");
        }
    }

    #[test]
    fn pairs_by_address_whatever_the_order() {
        assert_eq!(pair(&[at(1), at(2)], &[at(2), at(3), at(1)]), [Some(2), Some(0)]);
    }

    #[test]
    fn devices_that_hip_hides_or_reorders_keep_their_own_hardware() {
        let (integrated, discrete) = (at(1), at(3));
        let listed = [integrated, discrete];
        // HIP_VISIBLE_DEVICES=1, =0 and =1,0 on a machine with both.
        assert_eq!(pair(&[discrete], &listed), [Some(1)]);
        assert_eq!(pair(&[integrated], &listed), [Some(0)]);
        assert_eq!(pair(&[discrete, integrated], &listed), [Some(1), Some(0)]);
        // A driver that reports no address: the one device could be either.
        assert_eq!(pair(&[None], &listed), [None]);
    }

    #[test]
    fn pairs_the_rest_by_order_only_where_nothing_is_left_over() {
        assert_eq!(pair(&[None, at(2)], &[at(2), None]), [Some(1), Some(0)]);
        assert_eq!(pair(&[None, None], &[at(7)]), [None, None]);
        assert_eq!(pair(&[at(9)], &[at(7)]), [None]);
        assert_eq!(pair(&[at(1)], &[]), [None]);
    }
}
