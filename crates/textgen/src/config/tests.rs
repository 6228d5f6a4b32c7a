use std::path::Path;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn written() -> Value {
    json!({
        "model": {
            "type": "llama", "context_length": 256, "vocab_size": 512,
            "pad_token_id": 506, "bos_token_id": 504, "eos_token_id": [505, 508],
            "decoder": {
                "filename": "model.onnx", "head_size": 16, "hidden_size": 64, "num_attention_heads": 4,
                "num_hidden_layers": 2, "num_key_value_heads": 2,
                "inputs": {"input_ids": "input_ids", "past_key_names": "past_key_values.%d.key"},
                "outputs": {"logits": "logits"},
                "session_options": {"log_id": "tiny", "provider_options": []}
            }
        },
        "search": {"max_length": 128, "do_sample": true, "top_k": 50, "top_p": 0.9, "num_beams": 1}
    })
}

fn read(value: &Value) -> Result<Config> {
    Config::from_text(Path::new("folder"), &value.to_string())
}

/// The configuration with the field at this path changed, or removed for `None`.
fn changed(path: &str, to: Option<Value>) -> Value {
    let mut value = written();
    let pointer = format!("/{}", path.replace('.', "/"));
    let (parent, name) = pointer.rsplit_once('/').unwrap();
    let parent = value.pointer_mut(parent).unwrap().as_object_mut().unwrap();
    match to {
        Some(to) => drop(parent.insert(name.to_owned(), to)),
        None => drop(parent.remove(name)),
    }
    value
}

#[test]
fn a_folder_is_read() {
    let config = read(&written()).unwrap();
    assert_eq!((config.context_length, config.vocab_size, config.pad_token), (256, 512, 506));
    assert_eq!(config.eos_tokens, [505, 508]);
    assert_eq!((config.layers, config.kv_heads, config.head_size), (2, 2, 16));
    assert_eq!(config.decoder, Path::new("folder/model.onnx"));
    assert_eq!(config.names.past_value, "past_key_values.%d.value");
    assert_eq!((config.search.max_length, config.search.top_k, config.search.do_sample), (128, 50, true));
    assert_eq!((config.provider, config.search.seed), (None, None));
    assert_eq!(config.notices, Vec::<String>::new());
}

#[test]
fn forbidden_folder_settings_are_ignored_and_named_once() {
    let mut value = written();
    value["model"]["decoder"]["session_options"] = json!({
        "session.disable_prepacking": "1", "ep.hip.tf32": "1", "ep.hip.dump_dir": "/d", "ep.context_file_path": "/c",
        "enable_profiling": "/p", "custom_ops_library": "evil.so",
        "provider_options": [{"AMDGPU": {"profile": "hip", "backend_library": "./evil.so", "cache_dir": "/c"}}]
    });
    value["model"]["decoder"]["run_options"] = json!({"gpu_graph_id": "1", "a.later.key": "1"});
    let config = read(&value).unwrap();
    let keys = |entries: &[(String, String)]| entries.iter().map(|(key, _)| key.clone()).collect::<Vec<_>>();
    assert_eq!(keys(&config.session_entries), ["ep.hip.tf32", "session.disable_prepacking"]);
    assert_eq!(keys(&config.run_entries), ["gpu_graph_id"]);
    assert_eq!(keys(&config.provider.unwrap().options), ["profile"]);
    let [notice] = &config.notices[..] else { panic!("{:?}", config.notices) };
    let refused = "custom_ops_library, enable_profiling, ep.context_file_path, ep.hip.dump_dir, a.later.key, backend_library, cache_dir";
    let file = Path::new("folder").join("genai_config.json").display().to_string();
    assert!(notice.starts_with(&format!("{file}: ignored")) && notice.contains(refused), "{notice}");
}

#[test]
fn very_many_unknown_fields_make_one_short_notice() {
    let mut value = written();
    (0..100_000).for_each(|number| value["model"][format!("x{number}")] = json!(1));
    let notices = read(&value).unwrap().notices;
    assert!(notices.len() == 1 && notices[0].len() < 500 && notices[0].ends_with("and 99992 more"), "{notices:?}");
}

#[test]
fn a_folder_gets_no_more_threads_than_there_are_processors() {
    let config = read(&changed("model.decoder.session_options.intra_op_num_threads", Some(json!(4096)))).unwrap();
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    assert_eq!(config.session.intra_threads, Some(processors.min(4096)));
}

#[test]
fn an_unknown_field_is_named() {
    let config = read(&changed("search.max_lenght", Some(json!(9)))).unwrap();
    let file = Path::new("folder").join("genai_config.json").display().to_string();
    assert_eq!(config.notices, [format!("{file}: unknown fields are ignored: search.max_lenght")]);
}

#[test]
fn fields_of_the_model_builder_are_known() {
    let mut value = written();
    let decoder = &mut value["model"]["decoder"];
    decoder["sliding_window"] = json!({
        "window_size": 16, "slide_key_value_cache": false, "slide_inputs": false, "layers": [0, 7], "cache_slack": 0
    });
    decoder["layer_types"] = json!(["conv", "full_attention"]);
    decoder["conv_cache_size"] = json!(2);
    decoder["inputs"]["past_conv_names"] = json!("past.%d.c");
    decoder["outputs"]["present_recurrent_names"] = json!("now.%d.r");
    value["model"]["type"] = json!("gemma3_vl_text");
    value["model"]["sep_token_id"] = json!(7);
    let config = read(&value).unwrap();
    assert_eq!(config.notices, Vec::<String>::new());
    assert_eq!(config.windows, Some(Windows { size: 16, layers: vec![0] }), "there are two layers");
    assert_eq!((config.names.past_conv.as_str(), config.names.present_conv.as_str()), ("past.%d.c", "present.%d.conv"));
    assert_eq!(config.names.present_recurrent, "now.%d.r");
}

#[test]
fn omitted_fields_have_genais_defaults() {
    let config = read(&changed("search", None)).unwrap();
    assert_eq!(config.search.max_length, 256, "the context");
    assert_eq!((config.search.top_k, config.search.top_p, config.search.temperature), (50, 0.0, 1.0));
    assert!(!config.search.do_sample && !config.search.share_buffer);
    assert_eq!(read(&changed("model.eos_token_id", None)).unwrap().eos_tokens, [506], "the padding");
    assert_eq!(read(&changed("model.eos_token_id", Some(json!(7)))).unwrap().eos_tokens, [7], "one is a list of one");
    assert_eq!(read(&changed("search.random_seed", Some(json!(-1)))).unwrap().search.seed, None);
    assert_eq!(read(&changed("search.random_seed", Some(json!(42)))).unwrap().search.seed, Some(42));
}

#[test]
fn errors_name_the_file_the_field_and_what_to_do() {
    let wrong = [
        ("model.type", Some(json!(""))),
        ("model.type", Some(json!("two words"))),
        ("model.type", None),
        ("model.context_length", Some(json!(0))),
        ("model.context_length", Some(json!("long"))),
        ("model.context_length", Some(json!(1u64 << 62))),
        ("model.vocab_size", Some(json!(0))),
        ("model.vocab_size", Some(json!(-5))),
        ("model.vocab_size", Some(json!(5.5))),
        ("model.eos_token_id", Some(json!(512))),
        ("model.eos_token_id", Some(json!("</s>"))),
        ("model.pad_token_id", Some(json!(-1))),
        ("model.decoder", None),
        ("model.decoder.filename", Some(json!("../other/model.onnx"))),
        ("model.decoder.filename", Some(json!("/etc/passwd"))),
        ("model.decoder.filename", Some(json!(""))),
        ("model.decoder.num_hidden_layers", Some(json!(0))),
        ("model.decoder.num_hidden_layers", Some(json!(1_000_000_000))),
        ("model.decoder.num_key_value_heads", None),
        ("model.decoder.head_size", Some(json!([]))),
        ("model.decoder.inputs.past_key_names", Some(json!("past"))),
        ("model.decoder.sliding_window", Some(json!({"window_size": 8}))),
        ("model.decoder.session_options.intra_op_num_threads", Some(json!(-1))),
        ("search.max_length", Some(json!(257))),
        ("search.top_p", Some(json!(1.5))),
        ("search.temperature", Some(json!(-1))),
        ("search.num_beams", Some(json!(4))),
        ("search.do_sample", Some(json!("yes"))),
    ];
    for (field, value) in wrong {
        let error = read(&changed(field, value.clone())).unwrap_err().to_string();
        // For a missing field, serde names the field, and the error's path names the object that lacks it.
        let name = if value.is_none() { field.rsplit('.').next().unwrap() } else { field };
        for part in ["genai_config.json", name, "\n  help: "] {
            assert!(error.contains(part), "{field} {value:?}: {part:?} is not in {error}");
        }
    }
}

#[test]
fn a_file_that_is_not_json_is_an_error() {
    for text in ["", "{", "[]", "null", "{} {}", "{\"model\": 1e999}"] {
        let error = Config::from_text(Path::new("f"), text).unwrap_err().to_string();
        assert!(error.contains("genai_config.json") && error.contains("help:"), "{text:?}: {error}");
    }
    let error = Config::from_folder(Path::new("there-is-no-such-folder")).unwrap_err().to_string();
    assert!(error.contains("there-is-no-such-folder") && error.contains("help:"), "{error}");
}

#[test]
fn providers_in_the_folder_are_understood() {
    let options = json!([
        {"AMDGPU": {"profile": "hip", "device_filtering_options": {"hardware_device_type": "GPU", "hardware_vendor_id": 4098}}},
        {"cuda": {"enable_cuda_graph": "0"}}
    ]);
    let config = read(&changed("model.decoder.session_options.provider_options", Some(options))).unwrap();
    let request = config.provider.unwrap();
    assert_eq!(request.options, [("profile".to_owned(), "hip".to_owned())]);
    assert_eq!(request.filter.kind, Some(HardwareKind::Gpu));
    assert_eq!((request.filter.vendor_id, request.filter.device_id), (Some(0x1002), None));
    assert!(config.notices.iter().any(|notice| notice.contains("\"cuda\"")), "{:?}", config.notices);

    let number = json!([{"amdgpu": {"device_id": 1}}]);
    let error = read(&changed("model.decoder.session_options.provider_options", Some(number))).unwrap_err();
    assert!(error.to_string().contains("provider_options.amdgpu.device_id: expected a string, found 1"), "{error}");
}

#[test]
fn a_provider_is_appended_by_any_name() {
    let mut config = read(&written()).unwrap();
    config.append_provider("AMDGPUExecutionProvider", [("a", "1"), ("b", "2")]).unwrap();
    config.append_provider("amdgpu", [("a", "3")]).unwrap();
    let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    assert_eq!(config.provider.as_ref().unwrap().options, [pair("b", "2"), pair("a", "3")]);
    let error = config.append_provider("cuda", [("a", "3")]).unwrap_err().to_string();
    assert!(error.contains("\"cuda\"") && error.contains("amdgpu or cpu"), "{error}");
    config.append_provider("cpu", [("a", "3")]).unwrap();
    assert_eq!(config.provider, None);
}

#[test]
fn texts_of_the_session_options_are_entries() {
    let entries = json!({"session.use_env_allocators": "1", "odd": 3});
    let config = read(&changed("model.decoder.session_options", Some(entries))).unwrap();
    assert_eq!(config.session_entries, [("session.use_env_allocators".to_owned(), "1".to_owned())]);
    assert!(config.notices.iter().any(|notice| notice.contains("session_options.odd")), "{:?}", config.notices);
}

/// Any JSON value.
fn anything() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "\\PC{0,12}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[a-z_%.]{0,8}", inner, 0..4).prop_map(|map| json!(map)),
        ]
    })
}

/// The paths of all fields of the example.
fn fields(value: &Value, path: &str, found: &mut Vec<String>) {
    for (key, inner) in value.as_object().into_iter().flatten() {
        let path = format!("{path}/{key}");
        fields(inner, &path, found);
        found.push(path);
    }
}

proptest! {
    #[test]
    fn any_config_text_is_handled(text in "\\PC{0,200}") {
        let _ = Config::from_text(Path::new("f"), &text);
    }

    #[test]
    fn any_config_field_is_handled(which in any::<prop::sample::Index>(), to in anything()) {
        let mut value = written();
        let mut paths = Vec::new();
        fields(&value, "", &mut paths);
        *value.pointer_mut(which.get(&paths[..]).as_str()).unwrap() = to;
        if let Ok(config) = read(&value) {
            // Accepted values are within their limits.
            prop_assert!(config.vocab_size > 0 && config.search.max_length <= config.context_length);
            prop_assert!(config.eos_tokens.iter().all(|&token| (token as usize) < config.vocab_size));
            prop_assert!(config.decoder.starts_with("folder"));
            prop_assert!(config.search.temperature >= 0.0 && config.search.top_k <= config.vocab_size);
        }
    }
}
