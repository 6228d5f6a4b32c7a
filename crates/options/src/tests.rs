//! Tests the parser against each row of the option contract.

use std::path::PathBuf;

use super::*;

const NAME: &str = "AMDGPUExecutionProvider";

fn parse(entries: &[(&str, &str)]) -> Result<(Options, Vec<Warning>), OptionsError> {
    Options::parse(NAME, Origin::Trusted, entries.iter().copied())
}

fn accepted(entries: &[(&str, &str)]) -> Options {
    match parse(entries) {
        Ok((options, warnings)) => {
            assert_eq!(warnings, [], "{entries:?}");
            options
        }
        Err(error) => panic!("{entries:?}: {error}"),
    }
}

fn refused(entries: &[(&str, &str)]) -> OptionsError {
    match parse(entries) {
        Ok((options, _)) => panic!("{entries:?} gave {options:?}"),
        Err(error) => error,
    }
}

#[test]
fn no_entries_give_the_defaults() {
    assert_eq!(accepted(&[]), Options::default());
    assert!(Options::default().is_strict());
    assert_eq!(Options::default().profile, Profile::Auto);
    assert_eq!(Options::default().config_entries(), []);
}

#[test]
fn every_profile_spelling_that_ever_shipped_is_accepted() {
    let contract = [
        (Profile::Auto, vec!["auto", "", "0"]),
        (Profile::Eager, vec!["eager", "1"]),
        (Profile::Optimized, vec!["optimize", "optimized", "2"]),
        (Profile::Migraphx, vec!["migraphx", "3"]),
        (Profile::Directx, vec!["directx", "directml", "dml", "4"]),
        (Profile::Hip, vec!["hip", "hipep", "llm", "5"]),
        (Profile::Hipgpu, vec!["hipgpu"]),
    ];
    let count: usize = contract.iter().map(|(_, spellings)| spellings.len()).sum();
    assert_eq!(count, Profile::spellings().count());
    for (profile, spellings) in contract {
        assert_eq!(spellings[0], profile.canonical());
        assert_eq!(profile.to_string().parse(), Ok(profile));
        for spelling in spellings {
            let mut capitalised = spelling.to_owned();
            if let Some(first) = capitalised.get_mut(..1) {
                first.make_ascii_uppercase();
            }
            for text in [spelling, &spelling.to_uppercase(), &capitalised, &format!("  {spelling}\t")] {
                assert_eq!(accepted(&[("ep.amdgpu.profile", text)]).profile, profile, "{text:?}");
            }
        }
    }
}

#[test]
fn an_unknown_profile_error_lists_the_values() {
    let message = refused(&[("ep.amdgpu.profile", "hipp")]).to_string();
    assert!(message.contains("any case); did you mean \"hip\""), "{message}");
    for text in ["fast", "6", "-1", "00", "auto,hip", "mi graphx"] {
        let message = refused(&[("ep.amdgpu.profile", text)]).to_string();
        assert!(message.contains(&format!("option profile is {text:?}")), "{message}");
        for (spelling, _) in Profile::spellings().filter(|(spelling, _)| spelling.parse::<u8>().is_err()) {
            assert!(message.contains(spelling), "{spelling} is missing in {message}");
        }
        assert!(message.contains("a number from 0 to 5"), "{message}");
    }
}

#[test]
fn switches_accept_twelve_words_in_any_case() {
    for (word, on) in ["0", "false", "off", "no", "disable", "disabled"]
        .map(|word| (word, false))
        .into_iter()
        .chain(["1", "true", "on", "yes", "enable", "enabled"].map(|word| (word, true)))
    {
        for text in [word, &word.to_uppercase()] {
            assert_eq!(parse_switch(text), Ok(on), "{text}");
            assert_eq!(accepted(&[("ep.amdgpu.disable_caching", text)]).disable_caching, Some(on));
        }
    }
    for text in ["maybe", "", " 1", "y", "n", "2", "tru", "truee"] {
        assert_eq!(parse_switch(text), Err(NotASwitch { text: text.to_owned() }));
        let message = refused(&[("ep.amdgpu.force_recompile", text)]).to_string();
        let wanted = format!(
            "option force_recompile is {text:?} (entry \"ep.amdgpu.force_recompile\"): expected 1, true, on, yes, \
             enable, enabled or 0, false, off, no, disable, disabled (any case)"
        );
        assert!(message.contains(&wanted), "{message}");
    }
}

#[test]
fn an_invalid_switch_lists_the_accepted_words() {
    let Err(error) = parse_switch("maybe") else { panic!("accepted") };
    assert!(error.to_string().starts_with("invalid switch \"maybe\": expected 1, true"), "{error}");
}

#[test]
fn device_id_is_a_plain_decimal_number_in_range() {
    for (text, id) in [("0", 0), ("7", 7), ("007", 7), ("2147483647", 2_147_483_647)] {
        assert_eq!(accepted(&[("ep.amdgpu.device_id", text)]).device_id, Some(id));
    }
    for text in
        ["-1", "2147483648", "4294967296", "99999999999999999999", "", " 1", "1 ", "1x", "0x1", "+1", "1.0", "٣"]
    {
        let message = refused(&[("ep.amdgpu.device_id", text)]).to_string();
        assert!(message.contains(&format!("option device_id is {text:?}")), "{message}");
        assert!(message.contains("expected an integer from 0 to 2147483647"), "{message}");
    }
}

#[test]
fn cache_dir_is_kept_verbatim_including_spaces() {
    for text in ["/var/cache/amdgpu", r"C:\Users\Some Body\App Data", "  leading and trailing  ", "\"quoted\"", "ü/ß"]
    {
        assert_eq!(accepted(&[("ep.amdgpu.cache_dir", text)]).cache_dir, Some(PathBuf::from(text)));
    }
    assert_eq!(accepted(&[("ep.amdgpu.cache_dir", "")]).cache_dir, None);
}

#[test]
fn lists_are_split_at_commas_and_trimmed() {
    let options = accepted(&[("ep.amdgpu.mlss_use_specific_ops", " conv, dot ,,attention,")]);
    assert_eq!(options.mlss_use_specific_ops, ["conv", "dot", "attention"]);
}

#[test]
fn pairs_have_a_key_each() {
    let options = accepted(&[("ep.amdgpu.backend_device", " ov_device = CPU ,,a=b=c, empty=")]);
    let want = [("ov_device", "CPU"), ("a", "b=c"), ("empty", "")];
    assert_eq!(options.backend_device, want.map(|(key, value)| (key.to_owned(), value.to_owned())));
    for text in ["CPU", "=CPU", "a=b,c"] {
        let message = refused(&[("ep.amdgpu.backend_device", text)]).to_string();
        assert!(message.contains("expected key=value separated by commas"), "{message}");
    }
}

#[test]
fn hints_are_normalised() {
    let options = accepted(&[("ep.amdgpu.model_arch", "  LLaMA "), ("ep.amdgpu.model_fw", " ")]);
    assert_eq!(options.model_arch.as_ref().map(Hint::as_str), Some("llama"));
    assert_eq!(options.model_fw, None);
}

#[test]
fn the_entries_genai_sends_are_accepted_and_kept_separate() {
    let options = accepted(&[
        ("ep.migraphx.static_pad_seq", "1"),
        ("ep.migraphx.static_pad_seq_len", "256"),
        ("ep.migraphx.static_pad_inputs", "input_ids:1,position_ids:1"),
        ("ep.migraphx.static_pad_outputs", "logits:1"),
        ("ep.migraphx.hip_graph_enable", "1"),
        ("ep.amdgpuexecutionprovider.model_arch", "llama"),
        ("ep.directml.enable_host_accessible", "1"),
        ("session.use_env_allocators", "1"),
    ]);
    let migraphx = &options.backend_entries[&Namespace::Migraphx];
    assert_eq!(migraphx.len(), 5);
    assert_eq!(migraphx["static_pad_inputs"], "input_ids:1,position_ids:1");
    assert_eq!(options.backend_entries[&Namespace::Directml]["enable_host_accessible"], "1");
    assert!(!options.backend_entries.contains_key(&Namespace::Hip));
    assert_eq!(options.static_pad_seq, None, "a backend's entry is not ours");
    assert_eq!(options.relayed_to_migraphx().collect::<Vec<_>>(), [("model_arch", "llama".to_owned())]);
}

#[test]
fn entries_of_other_providers_are_skipped() {
    let entries = [
        ("ep.context_enable", "1"),
        ("ep.context_file_path", "x.onnx"),
        ("ep.share_ep_contexts", "1"),
        ("ep.nnapi.partitioning_stop_ops", "Conv"),
        ("ep.cudaexecutionprovider.device_id", "-7"),
        ("ep.hipgpu.anything", "1"),
        ("ep.amdgpux.profile", "nonsense"),
        ("ep.AMDGPU.profile", "nonsense"),
        ("xep.amdgpu.profile", "nonsense"),
        ("profile", "nonsense"),
        ("ep.amdgpu", "nonsense"),
        ("ep", ""),
        ("ep.", ""),
        ("", ""),
    ];
    assert_eq!(accepted(&entries), Options::default());
}

#[test]
fn arena_settings_are_accepted_and_ignored() {
    let entries = [("ep.amdgpu.arena.extend_strategy", "x"), ("ep.amdgpuexecutionprovider.arena.", "")];
    assert_eq!(accepted(&entries), Options::default());
    assert!(refused(&[("ep.amdgpu.arena", "1")]).to_string().contains("unknown option \"arena\""));
}

#[test]
fn a_registration_name_adds_its_prefix() {
    let entries = [("ep.migraphxexecutionprovider.profile", "hip")];
    let options = Options::parse("MIGraphXExecutionProvider", Origin::Trusted, entries).unwrap().0;
    assert_eq!(options.profile, Profile::Hip);
    assert_eq!(accepted(&entries), Options::default(), "another registration's options are not ours");
    let options = Options::parse("Amdgpu.Virtual", Origin::Trusted, [("ep.amdgpu.virtual.profile", "hip")]).unwrap().0;
    assert_eq!(options.profile, Profile::Hip);
}

#[test]
fn a_registration_named_like_a_backend_leaves_the_backend_its_keys() {
    for (name, key, namespace) in [
        ("hip", "ep.hip.device_id", Namespace::Hip),
        ("HIP", "ep.hip.device_id", Namespace::Hip),
        ("MIGraphX", "ep.migraphx.device_id", Namespace::Migraphx),
        ("DirectML", "ep.directml.device_id", Namespace::Directml),
    ] {
        let entries = [(key, "3"), ("ep.amdgpu.profile", "hip")];
        let (options, warnings) = Options::parse(name, Origin::Trusted, entries).unwrap();
        assert_eq!((options.profile, options.device_id), (Profile::Hip, None), "{name}");
        assert_eq!(options.backend_entries[&namespace]["device_id"], "3", "{name}");
        assert_eq!(warnings, [], "{name}");
    }
    let options =
        Options::parse("hip.virtual", Origin::Trusted, [("ep.hip.virtual.profile", "hip"), ("ep.hip.tf32", "1")])
            .unwrap()
            .0;
    assert_eq!(options.profile, Profile::Hip);
    assert_eq!(options.backend_entries[&Namespace::Hip].len(), 1);
}

#[test]
fn an_empty_registration_name_adds_no_prefix() {
    assert_eq!(Prefixes::new("").own().collect::<Vec<_>>(), ["ep.amdgpuexecutionprovider.", "ep.amdgpu."]);
    assert_eq!(Prefixes::new("").classify("ep..profile"), ConfigKey::Foreign);
}

#[test]
fn the_last_value_of_a_repeated_key_wins() {
    let entries = [("ep.amdgpu.profile", "nonsense"), ("ep.amdgpu.profile", "eager"), ("ep.amdgpu.profile", "hip")];
    assert_eq!(accepted(&entries).profile, Profile::Hip);
}

#[test]
fn equal_values_under_two_prefixes_agree_in_any_spelling() {
    let options = accepted(&[
        ("ep.amdgpu.profile", "llm"),
        ("ep.amdgpuexecutionprovider.profile", "HIP"),
        ("ep.amdgpu.fp16_enable", "on"),
        ("ep.amdgpuexecutionprovider.fp16_enable", "1"),
    ]);
    assert_eq!((options.profile, options.fp16_enable), (Profile::Hip, Some(true)));
}

#[test]
fn different_values_under_two_prefixes_contradict() {
    let error = refused(&[("ep.amdgpu.device_id", "0"), ("ep.amdgpuexecutionprovider.device_id", "1")]);
    let message = error.to_string();
    assert!(
        message.contains(
            "option device_id is given twice with different values: \"0\" (entry \"ep.amdgpu.device_id\") and \"1\" \
             (entry \"ep.amdgpuexecutionprovider.device_id\")"
        ),
        "{message}"
    );
    assert!(message.ends_with("help: correct or remove the options listed above"), "{message}");
}

#[test]
fn every_problem_is_reported_at_once() {
    let error = refused(&[
        ("ep.amdgpu.profil", "hip"),
        ("ep.amdgpu.xyzzy", "1"),
        ("ep.amdgpu.exhaustive_tune", "maybe"),
        ("ep.amdgpu.device_id", "-1"),
        ("ep.amdgpu.model_arch", "llama"),
        ("ep.amdgpuexecutionprovider.model_arch", "phi3"),
        ("ep.amdgpuexecutionprovider.profile", "fast"),
    ]);
    assert_eq!(error.problems.len(), 6);
    let expected = r#"6 problems with the options of "AMDGPUExecutionProvider":
  - option device_id is "-1" (entry "ep.amdgpu.device_id"): expected an integer from 0 to 2147483647
  - option exhaustive_tune is "maybe" (entry "ep.amdgpu.exhaustive_tune"): expected 1, true, on, yes, enable, enabled or 0, false, off, no, disable, disabled (any case)
  - option model_arch is given twice with different values: "llama" (entry "ep.amdgpu.model_arch") and "phi3" (entry "ep.amdgpuexecutionprovider.model_arch")
  - unknown option "profil" (entry "ep.amdgpu.profil"); did you mean "profile"?
  - unknown option "xyzzy" (entry "ep.amdgpu.xyzzy")
  - option profile is "fast" (entry "ep.amdgpuexecutionprovider.profile"): expected one of auto, eager, optimize, migraphx, directx, hip, hipgpu (also optimized, directml, dml, hipep, llm or a number from 0 to 5; any case)
  help: the options are profile, device_id,"#;
    let message = error.to_string();
    assert!(message.starts_with(expected), "{message}");
    assert!(message.ends_with("strict_options=0 turns unknown options into warnings"), "{message}");
}

#[test]
fn lenient_mode_accepts_unknown_names_but_not_malformed_values() {
    let lenient = ("ep.amdgpu.strict_options", "0");
    let (options, warnings) = parse(&[lenient, ("ep.amdgpu.profil", "hip"), ("ep.amdgpu.profile", "eager")]).unwrap();
    assert_eq!(options.profile, Profile::Eager);
    assert_eq!(warnings.len(), 1);
    assert_eq!(
        warnings[0].to_string(),
        "unknown option \"profil\" (entry \"ep.amdgpu.profil\") is ignored; did you mean \"profile\"?"
    );
    let error = refused(&[lenient, ("ep.amdgpu.profil", "hip"), ("ep.amdgpu.profile", "fast")]);
    assert_eq!(error.problems.len(), 1);
    assert!(matches!(&error.problems[0], Problem::Malformed { option: "profile", .. }));
    let error = refused(&[("ep.amdgpu.strict_options", "never"), ("ep.amdgpu.profil", "hip")]);
    assert_eq!(error.problems.len(), 2, "an unreadable strict_options leaves the default");
}

#[test]
fn entries_beyond_the_limits_are_named() {
    let prefix = "ep.amdgpu.";
    let longest = format!("{prefix}{}", "k".repeat(MAX_KEY_BYTES - prefix.len()));
    assert!(matches!(refused(&[(&longest, "1")]).problems[..], [Problem::Unknown { .. }]));
    let key = format!("{longest}k");
    let message = refused(&[(&key, "1")]).to_string();
    assert!(message.contains("the key of entry \"ep.amdgpu.kkk"), "{message}");
    assert!(message.contains("has 1025 bytes: ONNX Runtime accepts at most 1024"), "{message}");
    assert!(message.len() < 500, "{message}");

    let value = "v".repeat(MAX_VALUE_BYTES);
    assert_eq!(accepted(&[("ep.amdgpu.cache_dir", &value)]).cache_dir, Some(PathBuf::from(&value)));
    let value = format!("{value}v");
    for key in ["ep.amdgpu.cache_dir", "ep.hip.dump_dir"] {
        let message = refused(&[(key, &value)]).to_string();
        assert!(message.contains(&format!("the value of entry {key:?} has 8193 bytes")), "{message}");
    }
    assert_eq!(accepted(&[("session.foreign", &value)]), Options::default());
}

#[test]
fn legacy_names_of_the_in_tree_provider_are_understood() {
    let options = accepted(&[
        ("ep.amdgpu.migraphx_fp16_enable", "1"),
        ("ep.amdgpu.migraphx_model_cache_dir", "/c"),
        ("ep.amdgpu.migraphx_hip_graph_enable", "0"),
    ]);
    assert_eq!(options.fp16_enable, Some(true));
    assert_eq!(options.cache_dir, Some(PathBuf::from("/c")));
    assert_eq!(options.hip_graph_enable, Some(false));
    assert!(refused(&[("ep.amdgpu.migraphx_profile", "hip")]).to_string().contains("did you mean \"profile\"?"));
}

#[test]
fn a_current_name_wins_over_its_legacy_name_with_a_warning() {
    let (options, warnings) =
        parse(&[("ep.amdgpu.migraphx_fp16_enable", "1"), ("ep.amdgpu.fp16_enable", "0")]).unwrap();
    assert_eq!(options.fp16_enable, Some(false));
    assert!(matches!(&warnings[..], [Warning::LegacyOverridden { option: "fp16_enable", .. }]), "{warnings:?}");
    let error = refused(&[("ep.amdgpu.migraphx_fp16_enable", "maybe"), ("ep.amdgpu.fp16_enable", "0")]);
    assert_eq!(error.problems.len(), 1);
}

#[test]
fn a_backends_current_name_wins_over_an_older_one_with_a_warning() {
    let (options, warnings) = parse(&[("ep.hip.graph", "off"), ("ep.hip.replay", "on")]).unwrap();
    assert_eq!(options.backend_entries[&Namespace::Hip].len(), 2, "both reach the backend, which decides alike");
    assert!(matches!(&warnings[..], [Warning::LegacyOverridden { option: "replay", .. }]), "{warnings:?}");
    accepted(&[("ep.hip.graph", "ON"), ("ep.hip.replay", "on")]);
    accepted(&[("ep.hip.graph", "off")]);
}

#[test]
fn legacy_memory_options_are_ignored_with_a_warning() {
    let (options, warnings) = parse(&[("ep.amdgpu.migraphx_mem_limit", "1073741824")]).unwrap();
    assert_eq!(options, Options::default());
    assert!(matches!(&warnings[..], [Warning::LegacyIgnored { .. }]), "{warnings:?}");
}

#[test]
fn relayed_values_are_canonical() {
    let options = accepted(&[
        ("ep.amdgpu.profile", "hip"),
        ("ep.amdgpu.disable_caching", "Enabled"),
        ("ep.amdgpu.device_id", "01"),
        ("ep.amdgpu.model_fw", "webnn"),
    ]);
    let relayed: Vec<_> = options.relayed_to_migraphx().collect();
    assert_eq!(relayed, [("device_id", "1".to_owned()), ("disable_caching", "1".to_owned())]);
}

#[test]
fn option_names_are_unique_and_each_is_documented() {
    let table = markdown_table();
    assert_eq!(table.lines().filter(|line| line.starts_with("| `")).count(), OPTIONS.len());
    for (index, row) in OPTIONS.iter().enumerate() {
        assert!(OPTIONS[..index].iter().all(|earlier| earlier.name != row.name), "{} appears twice", row.name);
        assert_eq!(table.lines().filter(|line| line.starts_with(&format!("| `{}` |", row.name))).count(), 1);
        assert!(!row.meaning.is_empty() && !row.meaning.contains(['|', '\n']), "{}", row.name);
    }
}

#[test]
fn documented_options_are_the_real_ones() {
    testkit::generated::check("crates/options/src/table.md", &markdown_table()).unwrap();
}

#[test]
fn typos_in_a_backends_options_are_errors_of_the_provider_too() {
    let message =
        refused(&[("ep.hip.bogus", "1"), ("ep.hip.replay", "maybe"), ("ep.migraphx.fp61_enable", "1")]).to_string();
    for wanted in [
        "unknown option \"bogus\" (entry \"ep.hip.bogus\")",
        "option replay is \"maybe\" (entry \"ep.hip.replay\"): expected auto, on or off",
        "unknown option \"fp61_enable\" (entry \"ep.migraphx.fp61_enable\"); did you mean \"fp16_enable\"",
        "the options ep.hip.* are hipdnn,",
        "the options ep.migraphx.* are target,",
    ] {
        assert!(message.contains(wanted), "{message}");
    }
    let (options, warnings) = parse(&[("ep.amdgpu.strict_options", "0"), ("ep.hip.bogus", "1")]).unwrap();
    assert_eq!((options.withheld, warnings.len()), (vec!["ep.hip.bogus".to_owned()], 1));
}

#[test]
fn options_of_a_backend_that_is_not_ours_are_passed_on() {
    let entries = [("ep.amdgpu.backend_library", "/x.so"), ("ep.hip.bogus", "1"), ("ep.hipgpu.any", "1")];
    let options = accepted(&entries);
    assert_eq!(options.backend_entries[&Namespace::Hip]["bogus"], "1");
    assert!(options.withheld.is_empty());
}

#[test]
fn untrusted_options_that_act_on_the_machine_are_refused_in_one_warning() {
    let entries = [
        ("ep.amdgpu.backend_library", "./evil.so"),
        ("ep.amdgpu.routing_table", "rows.txt"),
        ("ep.amdgpu.profile", "hip"),
        ("ep.hip.explain_file", "/etc/passwd"),
        ("ep.hip.dump_dir", ""),
        ("ep.context_enable", "0"),
        ("ep.context_file_path", "/x"),
        ("ep.migraphx.migraphx_model_cache_dir", "/c"),
    ];
    let (options, warnings) = Options::parse(NAME, Origin::Untrusted, entries).unwrap();
    assert_eq!((options.profile, options.backend_library, options.routing_table), (Profile::Hip, None, None));
    let refused = [
        "ep.amdgpu.backend_library",
        "ep.amdgpu.routing_table",
        "ep.context_file_path",
        "ep.hip.explain_file",
        "ep.migraphx.migraphx_model_cache_dir",
    ];
    assert_eq!(options.withheld, refused);
    let [warning] = &warnings[..] else { panic!("{warnings:?}") };
    let text = warning.to_string();
    for wanted in refused.into_iter().chain([TRUST_VARIABLE, "trust_options=True"]) {
        assert!(text.contains(wanted), "{text}");
    }
    assert!(!options.backend_entries.contains_key(&Namespace::Migraphx));
    assert_eq!(accepted(&entries[..1]).backend_library, Some(PathBuf::from("./evil.so")));
}

#[test]
fn a_refused_key_cannot_break_the_line_of_the_log() {
    let (_, warnings) = Options::parse("a\nb", Origin::Untrusted, [("ep.a\nb.cache_dir", "/c")]).unwrap();
    let text = warnings[0].to_string();
    assert!(text.contains("ep.a\\nb.cache_dir") && !text.contains('\n'), "{text}");
}

#[test]
fn writing_a_compiled_model_needs_trust() {
    let entries = [("ep.context_enable", "1")];
    let error = Options::parse(NAME, Origin::Untrusted, entries).unwrap_err();
    assert!(matches!(&error.problems[..], [Problem::NeedsTrust { .. }]), "{error}");
    assert!(error.to_string().contains(TRUST_VARIABLE), "{error}");
    accepted(&entries);
}

#[test]
fn every_option_with_a_path_needs_trust() {
    for row in OPTIONS.iter().filter(|row| row.kind == Kind::Path) {
        assert_eq!(row.set_by, SetBy::Trusted, "{}", row.name);
    }
}
