//! Property tests of the parser with arbitrary entries.

use proptest::prelude::*;

use super::*;

/// A valid text of this kind, not only in its canonical spelling.
fn valid_text(kind: Kind) -> BoxedStrategy<String> {
    match kind {
        Kind::Profile => prop::sample::select(Profile::spellings().map(|(text, _)| text).collect::<Vec<_>>())
            .prop_map(|text| format!(" {} ", text.to_uppercase()))
            .boxed(),
        Kind::Switch => {
            prop::sample::select(vec!["0", "OFF", "disabled", "1", "True", "enable"]).prop_map(str::to_owned).boxed()
        }
        Kind::Number => (0..=i32::MAX).prop_map(|number| number.to_string()).boxed(),
        Kind::Pairs => "( ?[a-z]{1,5} ?= ?[A-Z=]{0,5} ?,){0,3}".boxed(),
        Kind::Bytes => any::<u64>().prop_map(|bytes| bytes.to_string()).boxed(),
        Kind::Choice(words) => prop::sample::select(words.to_vec()).prop_map(str::to_uppercase).boxed(),
        Kind::Path | Kind::Text | Kind::List | Kind::Hint => ".{0,40}".boxed(),
    }
}

/// A set of distinct options with valid texts.
fn valid_options() -> impl Strategy<Value = Vec<(&'static str, String)>> {
    prop::sample::subsequence((0..OPTIONS.len()).collect::<Vec<_>>(), 0..=OPTIONS.len()).prop_flat_map(|rows| {
        rows.into_iter().map(|row| (Just(OPTIONS[row].name), valid_text(OPTIONS[row].kind))).collect::<Vec<_>>()
    })
}

/// Valid entries of our backends, and arbitrary ones for a backend that is not ours.
fn valid_backend_entries() -> impl Strategy<Value = Vec<(String, String)>> {
    let rows: Vec<_> = [&hip::TABLE, &migraphx::TABLE]
        .into_iter()
        .flat_map(|table| table.rows.iter().map(|row| (format!("ep.{}.{}", table.namespace, row.name), row.kind)))
        .collect();
    let ours = prop::sample::select(rows).prop_flat_map(|(key, kind)| (Just(key), valid_text(kind)));
    let foreign = (".{0,20}", any_value()).prop_map(|(key, text)| (format!("ep.directml.{key}"), text));
    prop::collection::vec(prop_oneof![ours, foreign], 0..6)
}

/// Keys that match prefixes and options, near misses, and noise.
fn any_key() -> impl Strategy<Value = String> {
    let prefix = prop::sample::select(vec![
        "ep.amdgpu.",
        "ep.amdgpuexecutionprovider.",
        "ep.myname.",
        "ep.hip.",
        "ep.migraphx.",
        "ep.directml.",
        "ep.",
        "",
    ]);
    let names: Vec<&'static str> =
        OPTIONS.iter().map(|row| row.name).chain(["arena.x", "migraphx_mem_limit"]).collect();
    let name = prop_oneof![
        prop::sample::select(names.clone()).prop_map(str::to_owned),
        prop::sample::select(names).prop_map(|name| format!("migraphx_{name}")),
        ".{0,20}",
    ];
    prop_oneof![4 => (prefix, name).prop_map(|(prefix, name)| format!("{prefix}{name}")), 1 => ".{0,30}"]
}

fn any_value() -> impl Strategy<Value = String> {
    prop_oneof![".{0,20}", Just("1".to_owned()), Just("hip".to_owned()), "-?[0-9]{1,20}"]
}

fn borrowed(entries: &[(String, String)]) -> impl Iterator<Item = (&str, &str)> {
    entries.iter().map(|(key, value)| (key.as_str(), value.as_str()))
}

proptest! {
    #[test]
    fn arbitrary_entries_never_panic_and_errors_are_never_empty(
        name in prop_oneof![Just("MyName".to_owned()), Just("hip".to_owned()), ".{0,20}"],
        entries in prop::collection::vec((any_key(), any_value()), 0..12),
    ) {
        match Options::parse(&name, Origin::Trusted, borrowed(&entries)) {
            Ok((_, warnings)) => for warning in warnings {
                prop_assert!(!warning.to_string().is_empty());
            },
            Err(error) => {
                prop_assert!(!error.problems.is_empty());
                prop_assert_eq!(error.to_string().lines().count(), error.problems.len() + 2);
            }
        }
    }

    #[test]
    fn accepted_options_survive_a_round_trip_through_their_canonical_entries(
        valid in valid_options(),
        backend in valid_backend_entries(),
    ) {
        let mut entries: Vec<_> = valid.into_iter().map(|(name, text)| (format!("ep.amdgpu.{name}"), text)).collect();
        entries.extend(backend);
        let (options, _) = Options::parse("MyName", Origin::Trusted, borrowed(&entries))?;
        let canonical = options.config_entries();
        let (again, _) = Options::parse("Other", Origin::Trusted, borrowed(&canonical))?;
        prop_assert_eq!(&again, &options);
        prop_assert_eq!(again.config_entries(), canonical);
    }

    #[test]
    fn an_untrusted_origin_never_sets_what_needs_trust(
        entries in prop::collection::vec((any_key(), any_value()), 0..12),
        valid in valid_options(),
        backend in valid_backend_entries(),
    ) {
        let valid = valid.into_iter().map(|(name, text)| (format!("ep.amdgpu.{name}"), text));
        let entries: Vec<_> = entries.into_iter().chain(valid).chain(backend).collect();
        let Ok((options, warnings)) = Options::parse("MyName", Origin::Untrusted, borrowed(&entries)) else {
            return Ok(());
        };
        for row in OPTIONS.iter().filter(|row| row.set_by == SetBy::Trusted) {
            prop_assert_eq!(row.text(&options), None, "{}", row.name);
        }
        for (namespace, entries) in &options.backend_entries {
            for (name, text) in entries.iter().filter(|(_, text)| !text.is_empty()) {
                prop_assert!(may_set(Origin::Untrusted, &format!("ep.{namespace}.{name}"))
                    || *namespace == Namespace::Directml, "{namespace} {name} {text}");
            }
        }
        let refusals = warnings.iter().filter(|warning| matches!(warning, Warning::Refused { .. })).count();
        prop_assert!(refusals <= 1);
    }

    #[test]
    fn the_order_of_distinct_keys_does_not_matter(
        entries in prop::collection::btree_map(any_key(), any_value(), 0..12)
            .prop_map(|map| map.into_iter().collect::<Vec<_>>())
            .prop_flat_map(|entries| (Just(entries.clone()), Just(entries).prop_shuffle())),
    ) {
        let (sorted, shuffled) = entries;
        prop_assert_eq!(Options::parse("MyName", Origin::Trusted, borrowed(&sorted)), Options::parse("MyName", Origin::Trusted, borrowed(&shuffled)));
    }

    #[test]
    fn every_unknown_name_is_named_in_the_error(names in prop::collection::btree_set("[a-zäöü\"\\\\ ]{0,30}", 1..8)) {
        let names: Vec<String> = names.into_iter().filter(|name| OPTIONS.iter().all(|row| row.name != name)).collect();
        prop_assume!(!names.is_empty());
        let entries: Vec<_> = names.iter().map(|name| (format!("ep.amdgpu.{name}"), "1".to_owned())).collect();
        let Err(error) = Options::parse("MyName", Origin::Trusted, borrowed(&entries)) else { panic!("accepted") };
        prop_assert_eq!(error.problems.len(), names.len());
        let message = error.to_string();
        for name in &names {
            prop_assert!(message.contains(&format!("unknown option {name:?} ")), "{} is missing in {}", name, message);
        }
    }

    #[test]
    fn valid_options_are_accepted_alike_under_every_prefix(valid in valid_options(), name in "[A-Za-z]{1,20}") {
        prop_assume!(Namespace::ALL.iter().all(|namespace| !name.eq_ignore_ascii_case(namespace.as_str())));
        let parsed = ["amdgpu", "amdgpuexecutionprovider", &name.to_ascii_lowercase()].map(|prefix| {
            let entries: Vec<_> =
                valid.iter().map(|(name, text)| (format!("ep.{prefix}.{name}"), text.clone())).collect();
            Options::parse(&name, Origin::Trusted, borrowed(&entries))
        });
        prop_assert!(parsed[0].is_ok(), "{:?}", parsed[0]);
        prop_assert_eq!(&parsed[0], &parsed[1]);
        prop_assert_eq!(&parsed[0], &parsed[2]);
    }
}
