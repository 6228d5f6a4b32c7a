//! Which library is loaded for a driver.
use std::path::PathBuf;

use hip::DriverKind;
use hipdnn::{Attempt, LoadError, Loaded, Search};

/// The library for a device: what `AMDGPU_EP_HIPDNN_LIBRARY` names, else AMD's own on AMD's driver, else ours that
/// stands beside this code. AMD's library works with memory of AMD's driver only, so nobody else's sessions get it
/// unless they name it.
pub(super) fn open(device: &hip::Device) -> Result<Loaded, LoadError> {
    let mut search = Search { hip_runtime: Some(device.driver().library().to_owned()), ..Search::default() };
    let own = match device.kind() {
        DriverKind::Amd => return Loaded::open(&search),
        DriverKind::Nvidia => "hipdnn_cudnn",
        DriverKind::Host => "hipdnn_host",
    };
    search.place = Search::named_file();
    if search.place.is_some() {
        return Loaded::open(&search);
    }
    let candidates = candidates(own);
    match candidates.iter().find(|file| file.exists()) {
        Some(file) => Loaded::open(&Search { place: Some(file.clone()), ..search }),
        None => {
            let absent = |file| Attempt { file, reason: "no such file".to_owned() };
            Err(LoadError::NotFound { tried: candidates.into_iter().map(absent).collect() })
        }
    }
}

/// Where our own library may stand.
fn candidates(name: &str) -> Vec<PathBuf> {
    let file = if cfg!(windows) { format!("{name}.dll") } else { format!("lib{name}.so") };
    let folders = dylib::own_folder().as_deref().map(dylib::folders_beside).unwrap_or_default();
    folders.into_iter().map(|folder| folder.join(&file)).collect()
}
