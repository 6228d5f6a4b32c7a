//! The hooks that the umbrella itself implements for a session.
use std::sync::Arc;

use options::{ConfigKey, Prefixes, Profile};
use ort_ep::view::Graph;
use ort_ep::{Claims, Ep, Error, MemoryDevice, Result};

use crate::context::DeviceContext;

/// A session on one device. It claims no nodes itself: the backend does, if there is one. Memory and streams always
/// come from the device.
pub(crate) struct AmdGpuEp {
    context: Arc<DeviceContext>,
    prefixes: Prefixes,
    profile: Profile,
    /// Several devices were selected, so ONNX Runtime must be told which one is used.
    names_memory: bool,
}

impl AmdGpuEp {
    pub fn new(context: Arc<DeviceContext>, name: &str, profile: Profile, selected: usize) -> Self {
        Self { context, prefixes: Prefixes::new(name), profile, names_memory: selected > 1 }
    }
}

impl Ep for AmdGpuEp {
    fn claim(&self, _: Graph<'_>, _: &mut Claims<'_>) -> Result<()> {
        Ok(())
    }

    fn set_dynamic_options(&self, options: &[(String, String)]) -> Result<()> {
        options.iter().try_for_each(|(key, value)| check_dynamic(&self.prefixes, self.profile, key, value))
    }

    fn sync(&self) -> Result<()> {
        self.context.synchronize()
    }

    fn default_memory(&self) -> Option<MemoryDevice> {
        self.names_memory.then(|| self.context.memory())
    }

    fn available_bytes(&self) -> Option<u64> {
        // A driver that reports 0 of 0 bytes does not know its memory: a budget of zero would leave every node to other
        // providers.
        self.context.device.memory_info().ok().filter(|memory| memory.total > 0).map(|memory| memory.free as u64)
    }
}

/// The umbrella's own options are fixed when a session is created; other keys are for backends and other providers.
fn check_dynamic(prefixes: &Prefixes, profile: Profile, key: &str, value: &str) -> Result<()> {
    let option = match prefixes.classify(key) {
        ConfigKey::Own(option) => option,
        _ if key == "profile" => key,
        _ => return Ok(()),
    };
    if option == "profile" && value.parse() == Ok(profile) {
        return Ok(());
    }
    let now = if option == "profile" { format!(" (it is {profile})") } else { String::new() };
    Err(Error::invalid_argument(format!(
        "{key}={value:?}: the option {option} cannot be changed after the session was created{now}\n  help: create a new session with it"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_options_cannot_change_but_may_be_repeated() {
        let prefixes = Prefixes::new("Name");
        let check = |key, value| check_dynamic(&prefixes, Profile::Hip, key, value);
        for (key, value) in
            [("ep.dynamic.workload_type", "Default"), ("ep.hip.x", "1"), ("anything", ""), ("profile", "HIP")]
        {
            assert_eq!(check(key, value), Ok(()), "{key}");
        }
        let error = check("ep.name.profile", "migraphx").unwrap_err();
        assert!(error.message().contains("(it is hip)"), "{error}");
        for (key, value) in [("profile", "auto"), ("ep.amdgpu.profile", "x"), ("ep.name.cache_dir", "/tmp")] {
            assert!(check(key, value).is_err(), "{key}");
        }
    }
}
