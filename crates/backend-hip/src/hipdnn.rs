//! hipDNN for the steps of a session.
//!
//! The session-config entry `ep.hip.hipdnn` is `auto`, `on` or `off`. With the host driver, `auto` means `off`: the
//! hipDNN library that works there runs the engine's own code.
use exec::dnn::{Libraries, Mode, Offering};
use exec::host::HostDevice;
use options::hip::HIPDNN;
use ort_ep::Result;

/// The host device for a session, with hipDNN if the session enables it. `driver` is called only in that case.
pub(crate) fn device<'a>(
    host: &HostDevice,
    libraries: &Libraries,
    mode: Mode,
    driver: impl FnOnce() -> Result<&'a hip::Device>,
) -> HostDevice {
    if mode != Mode::On {
        return host.clone();
    }
    let driver = match driver() {
        Ok(driver) => driver,
        Err(error) => {
            tracing::warn!(target: "amdgpu_ep::load", "ignoring {HIPDNN}=on: {}", error.message());
            return host.clone();
        }
    };
    offering(libraries, mode, driver).map_or_else(|| host.clone(), |offering| host.with_dnn(offering))
}

/// The hipDNN offering for a session on a device.
pub(crate) fn offering(libraries: &Libraries, mode: Mode, device: &hip::Device) -> Option<Offering> {
    let offering = libraries.offering(device, mode)?;
    report(&offering, mode);
    Some(offering)
}

fn report(offering: &Offering, mode: Mode) {
    match offering.fault() {
        Some(fault) if mode == Mode::On => {
            tracing::warn!(target: "amdgpu_ep::load", "{HIPDNN} is on, but every step runs without hipDNN: {fault}");
        }
        Some(fault) => tracing::info!(target: "amdgpu_ep::load", "every step runs without hipDNN: {fault}"),
        None => {}
    }
    if let Some(library) = offering.description() {
        tracing::info!(target: "amdgpu_ep::load", "steps are offered to {library}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_driver_is_queried_unless_hipdnn_is_enabled() {
        for mode in [Mode::Auto, Mode::Off] {
            device(&HostDevice::new(), &Libraries::default(), mode, || panic!("{mode:?} asked for the driver"));
        }
    }
}
