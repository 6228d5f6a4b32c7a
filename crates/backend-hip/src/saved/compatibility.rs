//! The compatibility string of a compiled model: says where the model can run.
use ort_ep::ModelCompatibility;

use super::{ARCH, FORMAT, VERSION};

/// The prefix of this library's compatibility strings.
const OWNER: &str = "hip-backend";

/// The string for models compiled by this library.
pub(crate) fn info() -> String {
    format!("{OWNER};format={FORMAT};version={VERSION};arch={ARCH}")
}

/// Whether a model with this string can run here.
pub(crate) fn compatibility(info: &str) -> ModelCompatibility {
    let mut parts = info.split(';');
    if parts.next() != Some(OWNER) {
        return ModelCompatibility::NotApplicable;
    }
    let (mut format, mut version, mut arch) = (None, None, None);
    for part in parts {
        match part.split_once('=') {
            Some(("format", value)) => format = value.parse().ok(),
            Some(("version", value)) => version = Some(value),
            Some(("arch", value)) => arch = Some(value),
            // A later version may add fields.
            _ => {}
        }
    }
    match (format, arch) {
        (Some(FORMAT), Some(ARCH)) if version == Some(VERSION) => ModelCompatibility::Optimal,
        (Some(FORMAT), Some(ARCH)) => ModelCompatibility::PreferRecompilation,
        _ => ModelCompatibility::Unsupported,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_library_reads_its_own_models_best() {
        assert_eq!(compatibility(&info()), ModelCompatibility::Optimal);
    }

    #[test]
    fn other_versions_devices_and_owners_are_distinguished() {
        for (text, want) in [
            ("hip-backend;format=1;version=0.0.1;arch=any", ModelCompatibility::PreferRecompilation),
            ("hip-backend;arch=any;more=1;format=1", ModelCompatibility::PreferRecompilation),
            ("hip-backend;format=2;version=0.1.0;arch=any", ModelCompatibility::Unsupported),
            ("hip-backend;format=1;version=0.1.0;arch=gfx1100", ModelCompatibility::Unsupported),
            ("hip-backend", ModelCompatibility::Unsupported),
            ("hip-backend2;format=1", ModelCompatibility::NotApplicable),
            ("", ModelCompatibility::NotApplicable),
        ] {
            assert_eq!(compatibility(text), want, "{text}");
        }
    }
}
