//! The backend as a plugin of its own: the umbrella loads it, and tests register it directly.
use ort_ep::{
    DeviceOffer, Environment, Ep, EpRequest, Factory, OfferedHardware, Registration, Result,
    view::{HardwareDevice, HardwareKind},
};

use crate::ep::HipEp;

/// Makes the library's factory.
pub(crate) fn create(_: Registration<'_>) -> Result<Box<dyn Factory>> {
    Ok(Box::new(HipFactory))
}

struct HipFactory;

impl Factory for HipFactory {
    fn vendor(&self) -> &str {
        "AMD"
    }

    fn vendor_id(&self) -> u32 {
        0x1002
    }

    fn version(&self) -> &str {
        env!("CARGO_PKG_VERSION")
    }

    /// The host device sits on the CPU and needs no memory of its own.
    fn devices<'a>(&self, listed: &[HardwareDevice<'a>], _: &Environment) -> Result<Vec<DeviceOffer<'a>>> {
        let cpu = listed.iter().find(|device| device.kind() == HardwareKind::Cpu);
        Ok(cpu
            .map(|&cpu| DeviceOffer {
                hardware: OfferedHardware::Listed(cpu),
                metadata: vec![("arch".to_owned(), "host".to_owned()), ("driver".to_owned(), "host".to_owned())],
                options: Vec::new(),
                memories: Vec::new(),
            })
            .into_iter()
            .collect())
    }

    fn create_ep(&self, _: &EpRequest<'_>) -> Result<Box<dyn Ep>> {
        Ok(Box::new(HipEp))
    }
}
