//! Passes the user's options on to a backend.
use std::collections::BTreeMap;

use options::{BackendTable, OPTIONS, Options};
use ort_ep::{Error, Result};

/// The entries to add for a backend that reads `ep.<namespace>.*`: every set option it may know (all of them for one
/// without a `table`), and the device that was actually selected. An entry that the user already gave under the
/// backend's own name stays as it is.
///
/// # Errors
/// An option was given under our name and under the backend's, with different values.
pub(super) fn relayed(
    options: &Options,
    device_id: u32,
    namespace: &str,
    table: Option<&BackendTable>,
    given: &BTreeMap<String, String>,
) -> Result<Vec<(String, String)>> {
    let selected = Options { device_id: Some(device_id), ..options.clone() };
    let mut entries = Vec::new();
    let is_known = |name: &str| table.is_none_or(|table| table.find(name).is_some());
    for row in OPTIONS.iter().filter(|row| row.relayed && is_known(row.name)) {
        let Some(ours) = row.text(&selected) else { continue };
        let key = format!("ep.{namespace}.{}", row.name);
        match given.get(&key) {
            None => entries.push((key, ours)),
            Some(theirs) if row.means_the_same(theirs, &ours) => {}
            Some(theirs) => {
                return Err(Error::invalid_argument(format!(
                    "{key} is {theirs:?}, which contradicts {}{ours:?}\n  help: set it only once, in either place",
                    if row.text(options).is_some() {
                        format!("the option {}=", row.name)
                    } else {
                        "the selected device ".to_owned()
                    },
                )));
            }
        }
    }
    Ok(entries)
}

#[cfg(test)]
mod tests {
    use options::{Origin, hip};

    use super::*;

    fn given(entries: &[(&str, &str)]) -> BTreeMap<String, String> {
        entries.iter().map(|&(key, value)| (key.to_owned(), value.to_owned())).collect()
    }

    fn parsed(entries: &[(&str, &str)]) -> Options {
        Options::parse("Name", Origin::Trusted, entries.iter().copied()).unwrap().0
    }

    #[test]
    fn set_options_and_the_selected_device_are_passed_on() {
        let options =
            parsed(&[("ep.name.cache_dir", "/a b"), ("ep.name.profile", "hip"), ("ep.name.exhaustive_tune", "ON")]);
        let want = [("ep.hip.device_id", "3"), ("ep.hip.cache_dir", "/a b"), ("ep.hip.exhaustive_tune", "1")];
        let want = want.map(|(key, value)| (key.to_owned(), value.to_owned()));
        assert_eq!(
            relayed(&options, 3, "hip", None, &given(&[])).unwrap(),
            want,
            "a plugin that is not ours may know all"
        );
        assert_eq!(relayed(&options, 3, "hip", Some(&hip::TABLE), &given(&[])).unwrap(), want[..2]);
    }

    #[test]
    fn the_same_value_in_two_spellings_is_not_a_contradiction() {
        let options = parsed(&[("ep.name.static_pad_seq", "true")]);
        let entries = relayed(&options, 0, "migraphx", None, &given(&[("ep.migraphx.static_pad_seq", "1")])).unwrap();
        assert_eq!(entries, [("ep.migraphx.device_id".to_owned(), "0".to_owned())]);
    }

    #[test]
    fn contradicting_values_are_rejected_with_both() {
        let options = parsed(&[("ep.name.static_pad_seq_len", "64")]);
        let error =
            relayed(&options, 0, "migraphx", None, &given(&[("ep.migraphx.static_pad_seq_len", "128")])).unwrap_err();
        for word in ["ep.migraphx.static_pad_seq_len", "128", "static_pad_seq_len=\"64\"", "help"] {
            assert!(error.message().contains(word), "{error}");
        }
        let error = relayed(&Options::default(), 1, "hip", Some(&hip::TABLE), &given(&[("ep.hip.device_id", "0")]))
            .unwrap_err();
        assert!(error.message().contains("the selected device \"1\""), "{error}");
    }

    #[test]
    fn entries_of_other_backends_do_not_matter() {
        let options = parsed(&[("ep.name.static_pad_seq_len", "64")]);
        let others = given(&[("ep.migraphx.static_pad_seq_len", "128"), ("ep.hip.unknown", "x")]);
        assert!(relayed(&options, 0, "hip", None, &others).is_ok());
    }
}
