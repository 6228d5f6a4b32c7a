use std::collections::BTreeMap;
use std::path::Path;

use proptest::prelude::*;

use ::options::migraphx::TABLE;

use super::*;

fn entries(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn parse(pairs: &[(&str, &str)]) -> Result<Options, OptionError> {
    Options::from_entries(&entries(pairs), "AMDGPUExecutionProvider", |_| None).map(|(options, _)| options)
}

fn with_environment(pairs: &[(&str, &str)], environment: &[(&str, &str)]) -> (Options, Vec<String>) {
    let environment = entries(environment);
    Options::from_entries(&entries(pairs), "x", |name| environment.get(name).cloned()).unwrap()
}

#[test]
fn the_default_is_the_gpu_without_a_cache() {
    let options = parse(&[]).unwrap();
    assert_eq!((options.target.as_str(), options.max_programs), ("gpu", 8));
    assert_eq!(options.cache.folder, None);
    assert!(options.batches.is_empty() && options.static_pad.is_none() && !options.hip_graph);
}

#[test]
fn entries_of_others_are_left_alone() {
    let pairs = [("ep.hip.explain_file", "x"), ("ep.amdgpuexecutionprovider.profile", "migraphx"), ("session.x", "1")];
    assert_eq!(parse(&pairs).unwrap(), parse(&[]).unwrap());
}

#[test]
fn the_backends_own_prefix_wins_over_the_registered_name() {
    let pairs = [("ep.amdgpuexecutionprovider.cache_dir", "/a"), ("ep.migraphx.cache_dir", "/b")];
    assert_eq!(parse(&pairs[..1]).unwrap().cache.folder.as_deref(), Some(Path::new("/a")));
    assert_eq!(parse(&pairs).unwrap().cache.folder.as_deref(), Some(Path::new("/b")));
}

#[test]
fn unknown_keys_are_named_with_those_that_exist() {
    let error = parse(&[("ep.migraphx.fp61_enable", "1")]).unwrap_err().to_string();
    assert!(error.contains("ep.migraphx.fp61_enable") && error.contains("fp16_enable"), "{error}");
}

#[test]
fn legacy_names_are_read_and_plain_ones_win() {
    let legacy = ("ep.migraphx.migraphx_fp16_enable", "1");
    assert!(parse(&[legacy]).unwrap().precision.fp16);
    assert!(!parse(&[legacy, ("ep.migraphx.fp16_enable", "0")]).unwrap().precision.fp16);
    let folder = parse(&[("ep.migraphx.migraphx_model_cache_dir", "/c")]).unwrap().cache.folder;
    assert_eq!(folder.as_deref(), Some(Path::new("/c")));
}

#[test]
fn arena_options_of_the_old_provider_are_ignored_with_a_warning() {
    let pairs = entries(&[("ep.migraphx.migraphx_mem_limit", "1000")]);
    let (_, warnings) = Options::from_entries(&pairs, "x", |_| None).unwrap();
    assert!(warnings.len() == 1 && warnings[0].contains("migraphx_mem_limit"), "{warnings:?}");
}

#[test]
fn the_environment_wins_without_its_quotes() {
    let pairs = [("ep.migraphx.cache_dir", "/a"), ("ep.migraphx.fp16_enable", "0")];
    let (options, _) =
        with_environment(&pairs, &[("ORT_MIGRAPHX_CACHE_DIR", " \"/b\" "), ("ORT_MIGRAPHX_FP16_ENABLE", "1")]);
    assert_eq!(options.cache.folder.as_deref(), Some(Path::new("/b")));
    assert!(options.precision.fp16);
    let (shared, _) = with_environment(&[], &[("AMDGPU_EP_CACHE_DIR", "/d")]);
    assert_eq!(shared.cache.folder.as_deref(), Some(Path::new("/d/migraphx")));
    let (target, _) = with_environment(&[("ep.migraphx.target", "gpu")], &[("AMDGPU_EP_MIGRAPHX_TARGET", "ref")]);
    assert_eq!(target.target, "ref");
}

#[test]
fn a_bad_value_names_its_entry_or_variable() {
    let error = parse(&[("ep.migraphx.int8_enable", "maybe")]).unwrap_err().to_string();
    assert!(
        error.contains("option int8_enable is \"maybe\" (entry \"ep.migraphx.int8_enable\"): expected 1, true"),
        "{error}"
    );
    let failed = Options::from_entries(&BTreeMap::new(), "x", |name| {
        (name == "ORT_MIGRAPHX_MAX_DYNAMIC_BATCH").then(|| "many".to_owned())
    });
    assert!(failed.unwrap_err().to_string().starts_with("ORT_MIGRAPHX_MAX_DYNAMIC_BATCH is \"many\""));
}

#[test]
fn conflicting_precisions_are_both_off() {
    let pairs = entries(&[("ep.migraphx.fp16_enable", "1"), ("ep.migraphx.bf16_enable", "1")]);
    let (options, warnings) = Options::from_entries(&pairs, "x", |_| None).unwrap();
    assert!(!options.precision.fp16 && !options.precision.bf16 && warnings.len() == 1);
}

#[test]
fn batches_are_sorted_or_powers_of_two() {
    let batches = |pairs: &[(&str, &str)]| parse(pairs).unwrap().batches;
    assert_eq!(batches(&[("ep.migraphx.compile_batches", "8, 2,x,2,0,16")]), [2, 8, 16]);
    assert_eq!(batches(&[("ep.migraphx.max_dynamic_batch", "5")]), [1, 2, 4, 8]);
    assert_eq!(batches(&[("ep.migraphx.max_dynamic_batch", "1")]), [1]);
    assert_eq!(batches(&[("ep.migraphx.max_dynamic_batch", "8")]), [1, 2, 4, 8]);
}

#[test]
fn padded_inputs_have_axes() {
    let pad = parse(&[
        ("ep.migraphx.static_pad_seq", "1"),
        ("ep.migraphx.static_pad_seq_len", "128"),
        ("ep.migraphx.static_pad_inputs", "input_ids, past : 2, bad:x"),
        ("ep.migraphx.static_pad_outputs", "logits:1"),
    ]);
    let pad = pad.unwrap().static_pad.unwrap();
    assert_eq!(pad.inputs, [("input_ids".to_owned(), 1), ("past".to_owned(), 2)]);
    assert_eq!((pad.length, pad.length_is_forced, pad.outputs.len()), (128, false, 1));
    assert_eq!(parse(&[("ep.migraphx.static_pad_seq", "1")]).unwrap().static_pad, None);
}

#[test]
fn batches_and_sequences_are_not_padded_together() {
    let error = parse(&[
        ("ep.migraphx.static_pad_seq", "1"),
        ("ep.migraphx.static_pad_inputs", "ids"),
        ("ep.migraphx.max_dynamic_batch", "4"),
    ]);
    assert!(matches!(error, Err(OptionError::Together { .. })));
}

proptest! {
    #[test]
    fn no_value_panics(key in 0..TABLE.rows.len(), value in ".*") {
        let _ = parse(&[(&format!("ep.migraphx.{}", TABLE.rows[key].name), &value)]);
    }
}
