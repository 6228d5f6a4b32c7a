//! Backend libraries: plugins that a session is handed to.
use std::{
    env,
    env::consts::{DLL_PREFIX, DLL_SUFFIX},
    ffi::OsString,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
};

use hip::DriverKind;
use ort_ep::{Error, ForeignFactory, PluginHost, Result};

use crate::options::Profile;

/// The backends of one registration, loaded when a session first wants them.
pub(crate) struct Backends {
    host: PluginHost,
    hip: Mutex<Option<Arc<ForeignFactory>>>,
}

impl Backends {
    pub fn new(host: PluginHost) -> Self {
        Self { host, hip: Mutex::default() }
    }

    /// The backend for a session; `None` leaves its nodes to other providers.
    ///
    /// # Errors
    /// The profile asks for a backend that can't be loaded.
    pub fn choose(&self, profile: Profile, driver: DriverKind) -> Result<Option<Arc<ForeignFactory>>> {
        match (profile, driver) {
            (Profile::Hip, DriverKind::Host) => self.hip().map(Some),
            (Profile::Auto, DriverKind::Host) => Ok(self.hip().map_or_else(
                |error| {
                    tracing::warn!(target: "amdgpu_ep::load", "no backend: {error}");
                    None
                },
                Some,
            )),
            (Profile::Auto, _) => {
                tracing::info!(target: "amdgpu_ep::load", %driver, "there is no backend for this driver yet: no node is taken");
                Ok(None)
            }
            (profile, driver) => {
                tracing::warn!(
                    target: "amdgpu_ep::load", %profile, %driver,
                    "there is no backend for this profile on this driver yet: all nodes stay with other providers"
                );
                Ok(None)
            }
        }
    }

    /// The hip backend. A failure is not remembered: the library may be there the next time.
    fn hip(&self) -> Result<Arc<ForeignFactory>> {
        let mut slot = self.hip.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(loaded) = &*slot {
            return Ok(loaded.clone());
        }
        let loaded = self.load("hip-backend")?;
        *slot = Some(loaded.clone());
        Ok(loaded)
    }

    fn load(&self, stem: &str) -> Result<Arc<ForeignFactory>> {
        let mut tried = Vec::new();
        for file in candidates(stem, PluginHost::own_folder(), env::var_os("AMDGPU_EP_BACKEND_PATH")) {
            match self.host.load(&file) {
                Ok(factory) => {
                    tracing::info!(target: "amdgpu_ep::load", file = %file.display(), "backend loaded");
                    return Ok(factory);
                }
                Err(error) => tried.push(error.message().to_owned()),
            }
        }
        Err(Error::ep_fail(format!(
            "the backend {stem} could not be loaded (tried {})\n  help: put {} beside libamdgpu-ep, or name its folder in AMDGPU_EP_BACKEND_PATH",
            tried.join("; "),
            file_name(stem)
        )))
    }
}

/// The files to try for a backend: beside this library, then the folders of the variable, then the loader's path.
fn candidates(stem: &str, own: Option<PathBuf>, folders: Option<OsString>) -> Vec<OsString> {
    let file = file_name(stem);
    let listed = folders.as_ref().map(|list| env::split_paths(list).collect::<Vec<_>>()).unwrap_or_default();
    let folders = own.into_iter().chain(listed).filter(|folder| !folder.as_os_str().is_empty());
    folders.map(|folder| folder.join(&file).into_os_string()).chain([OsString::from(&file)]).collect()
}

fn file_name(stem: &str) -> String {
    format!("{DLL_PREFIX}{stem}{DLL_SUFFIX}")
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn looks_beside_the_library_first_and_on_the_loaders_path_last() {
        let found = candidates("hip-backend", Some("/opt/ep".into()), Some("/a::/b".into()));
        let want = ["/opt/ep/libhip-backend.so", "/a/libhip-backend.so", "/b/libhip-backend.so", "libhip-backend.so"];
        assert_eq!(found, want);
        assert_eq!(candidates("hip-backend", None, None), ["libhip-backend.so"]);
    }
}
