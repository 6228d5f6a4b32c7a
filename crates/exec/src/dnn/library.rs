//! Chooses the library to load for a driver.
use std::path::PathBuf;

use hip::DriverKind;
use hipdnn::{Attempt, LoadError, Loaded, Search};

/// Opens the library for a device: the one that `AMDGPU_EP_HIPDNN_LIBRARY` names, else AMD's own on AMD's driver, else
/// ours from the folder beside this code. AMD's library works only with memory of AMD's driver, so other drivers do not
/// use it unless the variable names it.
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

/// The paths where our own library may be.
fn candidates(name: &str) -> Vec<PathBuf> {
    let file = dylib::file_name(name);
    let folders = dylib::own_folder().as_deref().map(dylib::folders_beside).unwrap_or_default();
    folders.into_iter().map(|folder| folder.join(&file)).collect()
}
