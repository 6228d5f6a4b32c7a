//! Arbitrary keys and registration names: every key has exactly one owner, and backends keep theirs.
#![no_main]

use libfuzzer_sys::fuzz_target;
use options::{ConfigKey, Namespace, Prefixes};

fuzz_target!(|input: (&str, &str)| {
    let (registration_name, key) = input;
    let prefixes = Prefixes::new(registration_name);
    let longest_own = prefixes.own().filter(|prefix| key.starts_with(prefix)).map(str::len).max();
    match prefixes.classify(key) {
        ConfigKey::Own(option) => {
            assert_eq!(longest_own, Some(key.len() - option.len()));
            assert!(!option.starts_with("arena."));
        }
        ConfigKey::Arena(setting) => assert_eq!(longest_own, Some(key.len() - "arena.".len() - setting.len())),
        ConfigKey::Backend(namespace, rest) => {
            assert_eq!(key, format!("ep.{namespace}.{rest}"));
            assert_eq!(longest_own, None);
        }
        ConfigKey::Foreign => {
            assert_eq!(longest_own, None);
            let is_backend = |namespace: Namespace| key.starts_with(&format!("ep.{namespace}."));
            assert!(!Namespace::ALL.into_iter().any(is_backend));
        }
    }
    // For any name, keys built as ONNX Runtime does are recognised, unless a backend owns that namespace.
    let lower = registration_name.to_ascii_lowercase();
    let own_key = format!("ep.{lower}.{key}");
    let is_namespace = Namespace::ALL.iter().any(|namespace| namespace.as_str() == lower);
    let is_ours = matches!(prefixes.classify(&own_key), ConfigKey::Own(_) | ConfigKey::Arena(_));
    assert_eq!(is_ours, !lower.is_empty() && !is_namespace);
});
