//! Which device a session runs on: a pure function.

/// The properties that the choice depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The device's number, as in the option `device_id`.
    pub id: u32,
    /// Whether it shares the host's memory.
    pub integrated: bool,
    /// Bytes of memory.
    pub total_memory: usize,
}

/// Why no device is available.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SelectionError {
    /// The provider has no devices.
    #[error("no device is available\n  help: amdgpu-ep doctor says why")]
    NoDevice,
    /// There is no device with this number.
    #[error("device_id {asked} does not exist: the devices are numbered {}", list(.known))]
    Unknown {
        /// The number.
        asked: u32,
        /// The numbers of all devices.
        known: Vec<u32>,
    },
    /// Another device was selected.
    #[error(
        "device_id {asked} contradicts the selected device{}\n  help: omit device_id, or select the device with that number",
        if .selected.len() == 1 { format!(" {}", list(.selected)) } else { format!("s {}", list(.selected)) }
    )]
    Contradiction {
        /// The number.
        asked: u32,
        /// The numbers of the selected devices.
        selected: Vec<u32>,
    },
}

/// Smaller is better: discrete before integrated, then more memory before less.
pub(crate) fn rank_of(device: &Candidate) -> impl Ord + use<> {
    (device.integrated, std::cmp::Reverse(device.total_memory))
}

/// Picks one of the `selected` devices, or of all `known` ones if none was selected.
///
/// Clients such as ONNX Runtime GenAI select every device of the provider, so several devices are not an error.
///
/// # Errors
/// There is no device, or `device_id` is not the number of one that may be picked.
pub fn select(known: &[Candidate], selected: &[u32], device_id: Option<u32>) -> Result<u32, SelectionError> {
    if known.is_empty() {
        return Err(SelectionError::NoDevice);
    }
    let ids = |devices: &[Candidate]| devices.iter().map(|device| device.id).collect::<Vec<_>>();
    if let Some(asked) = device_id {
        if !known.iter().any(|device| device.id == asked) {
            let mut known = ids(known);
            known.sort_unstable();
            return Err(SelectionError::Unknown { asked, known });
        }
        if !selected.is_empty() && !selected.contains(&asked) {
            return Err(SelectionError::Contradiction { asked, selected: selected.to_vec() });
        }
        return Ok(asked);
    }
    let candidates = known.iter().filter(|device| selected.is_empty() || selected.contains(&device.id));
    // Of equal devices, the first one wins.
    candidates.min_by_key(|device| rank_of(device)).map(|device| device.id).ok_or(SelectionError::NoDevice)
}

fn list(ids: &[u32]) -> String {
    ids.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const IGPU: Candidate = Candidate { id: 0, integrated: true, total_memory: 64 << 30 };
    const SMALL: Candidate = Candidate { id: 1, integrated: false, total_memory: 8 << 30 };
    const LARGE: Candidate = Candidate { id: 2, integrated: false, total_memory: 24 << 30 };
    const ALL: [Candidate; 3] = [IGPU, SMALL, LARGE];

    #[test]
    fn prefers_discrete_then_memory() {
        assert_eq!(select(&ALL, &[], None), Ok(2));
        assert_eq!(select(&ALL, &[0, 1], None), Ok(1));
        assert_eq!(select(&ALL, &[0], None), Ok(0));
    }

    #[test]
    fn device_id_decides_among_the_selected() {
        assert_eq!(select(&ALL, &[0, 1, 2], Some(0)), Ok(0));
        assert_eq!(select(&ALL, &[], Some(1)), Ok(1));
    }

    #[test]
    fn says_what_is_wrong() {
        assert_eq!(select(&[], &[], None), Err(SelectionError::NoDevice));
        let message = select(&ALL, &[1], Some(7)).unwrap_err().to_string();
        assert_eq!(message, "device_id 7 does not exist: the devices are numbered 0, 1, 2");
        let message = select(&ALL, &[1], Some(2)).unwrap_err().to_string();
        assert!(message.starts_with("device_id 2 contradicts the selected device 1\n"), "{message}");
    }

    proptest! {
        #[test]
        fn the_choice_is_known_and_selected(
            devices in prop::collection::vec((any::<bool>(), 0usize..4), 0..6),
            selected in prop::collection::vec(0u32..6, 0..6),
            device_id in prop::option::of(0u32..8),
        ) {
            let known: Vec<_> = devices
                .iter()
                .enumerate()
                .map(|(id, &(integrated, total_memory))| Candidate { id: id as u32, integrated, total_memory })
                .collect();
            if let Ok(id) = select(&known, &selected, device_id) {
                prop_assert!(known.iter().any(|device| device.id == id));
                prop_assert!(selected.is_empty() || selected.contains(&id));
                prop_assert!(device_id.is_none_or(|asked| asked == id));
            }
        }
    }
}
