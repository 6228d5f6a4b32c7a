//! Chat templates and tokenizers that ask for too much memory or time: each gives an error that names the file and the
//! limit. Every case runs in a child process with little memory, because a missing limit could bring down the machine.
#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::panic, reason = "test helpers may panic")]

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use textgen::{ChatTemplate, Message, Tokenizer};

/// Address space of a child in KiB, including the stacks and heaps of its threads.
const MEMORY: u64 = 3 << 20;

/// Time limit of a child, for unoptimised builds on a busy machine.
const TIME: Duration = Duration::from_secs(120);

/// Tells a child process which case to run.
const CASE: &str = "TEXTGEN_HOSTILE_CASE";

/// Hostile templates, by name.
const TEMPLATES: &[(&str, &str)] = &[
    (
        "doubling",
        "{% set ns = namespace(s='x') %}{% for i in range(64) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}{{ ns.s }}",
    ),
    (
        "doubling by +",
        "{% set ns = namespace(s='x') %}{% for i in range(64) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
    ),
    (
        "doubling a list",
        "{% set ns = namespace(s=['x']) %}{% for i in range(64) %}{% set ns.s = ns.s + ns.s %}{% endfor %}{{ ns.s | length }}",
    ),
    (
        "doubling a list, then JSON",
        "{% set ns = namespace(s=[1]) %}{% for i in range(40) %}{% set ns.s = [ns.s, ns.s] %}{% endfor %}{{ ns.s | tojson }}",
    ),
    (
        "doubling a map",
        "{% set ns = namespace(s=1) %}{% for i in range(40) %}{% set ns.s = {'a': ns.s, 'b': ns.s} %}{% endfor %}{{ ns.s }}",
    ),
    (
        "comparing doubled lists",
        "{% set ns = namespace(s=[1], t=[1]) %}{% for i in range(40) %}{% set ns.s = [ns.s, ns.s] %}{% set ns.t = [ns.t, ns.t] %}{% endfor %}{{ ns.s == ns.t }}",
    ),
    (
        "nesting without end",
        "{% set ns = namespace(s=1) %}{% for i in range(99999) %}{% set ns.s = [ns.s] %}{% endfor %}x",
    ),
    (
        "namespaces in a chain",
        "{% set ns = namespace(s=1) %}{% for i in range(99999) %}{% set t = namespace() %}{% set t.a = ns.s %}{% set ns.s = t %}{% endfor %}x",
    ),
    ("namespaces in a circle", "{% set a = namespace() %}{% set a.a = a %}{{ a }}"),
    ("namespaces in a circle, compared", "{% set a = namespace() %}{% set a.a = a %}{{ a == a | tojson }}"),
    (
        "slices of slices",
        "{% set ns = namespace(s=[1, 2]) %}{% for i in range(99999) %}{% set ns.s = ns.s[0:] %}{% endfor %}{% for i in range(9) %}{% for i in range(99999) %}{% set ns.s = ns.s[0:] %}{% endfor %}{% endfor %}{{ ns.s }}",
    ),
    (
        "a captured doubling",
        "{% set ns = namespace(s='x') %}{% for i in range(64) %}{% set t %}{{ ns.s }}{{ ns.s }}{% endset %}{% set ns.s = t %}{% endfor %}",
    ),
    (
        "a macro that doubles",
        "{% macro m(n) %}{% if n %}{{ m(n - 1) }}{{ m(n - 1) }}{% else %}xxxxxxxxxxxxxxxx{% endif %}{% endmacro %}{{ m(60) }}",
    ),
    ("a macro without end", "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}"),
    (
        "text without end",
        "{% for i in range(99999) %}{% for i in range(99999) %}xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx{% endfor %}{% endfor %}",
    ),
    ("a wide indent", "{{ 'x\ny' | indent(99999999999) }}"),
    ("a wide indent by name", "{{ 'x\ny' | indent(width=9999999999) }}"),
    ("a wide indent by map", "{{ ['x\ny'] | map('indent', 9999999999) | list }}"),
    ("repeating", "{{ 'x' * 99999999999 }}"),
    ("repeating twice", "{{ ('x' * 99999999) | replace('x', 'x' * 99999999) }}"),
    ("repeating a list", "{{ ([1] * 99999999) | list | length }}"),
    ("repeating a list of lists", "{{ ((([1] * 10000) * 10000) * 10000) | join }}"),
    ("repeating nothing", "{{ ([] * 99999999999) | length }}"),
    ("a range", "{{ range(10 ** 12) | list }}"),
    (
        "ranges of ranges",
        "{% for a in range(99999) %}{% for b in range(99999) %}{% set c = range(99999) | list %}{% endfor %}{% endfor %}",
    ),
    (
        "replacing",
        "{% set ns = namespace(s='xx') %}{% for i in range(40) %}{% set ns.s = ns.s | replace('x', 'xx') %}{% endfor %}",
    ),
    (
        "replacing nothing",
        "{% set ns = namespace(s='xx') %}{% for i in range(40) %}{% set ns.s = ns.s.replace('', 'xxxx') %}{% endfor %}",
    ),
    ("a wide %", "{{ '%1000000000d' | format(1) }}"),
    ("a wide % by argument", "{{ '%*d' | format(1000000000, 1) }}"),
    ("a precise %", "{{ '%.1000000000f' | format(1.5) }}"),
    ("a wide field", "{{ '{:1000000000}'.format(1) }}"),
    ("a wide field by field", "{{ '{:{w}}'.format(1, w=1000000000) }}"),
    ("many fields", "{% set s = '{0}' * 100000 %}{{ s.format('x' * 100000) }}"),
    ("a wide batch", "{{ [1] | batch(9999999999, 'x') | list }}"),
    ("a wide slice", "{{ [1] | slice(9999999999, 'x') | list }}"),
    ("joining", "{% set s = 'x' * 100000 %}{{ ([s] * 100000) | join(s) }}"),
    ("joining as a method", "{% set s = 'x' * 100000 %}{{ s.join([s] * 100000) }}"),
    ("summing", "{% set s = 'x' * 10000 %}{{ ([s] * 10000) | sum(start='') }}"),
    ("JSON with a wide indent", "{{ [[1]] | tojson(indent=9999999999) }}"),
    (
        "escaping",
        "{% set ns = namespace(s='&' * 1000000) %}{% for i in range(99) %}{% set ns.s = ns.s | escape | string %}{% endfor %}",
    ),
    (
        "comparing again and again",
        "{% set a = 'x' * 9999999 %}{% set b = 'x' * 9999999 %}{% for i in range(99999) %}{% if a != b %}x{% endif %}{% endfor %}",
    ),
    (
        "searching again and again",
        "{% set a = 'x' * 9999999 %}{% for i in range(99999) %}{% if 'xy' in a %}x{% endif %}{% endfor %}",
    ),
    (
        "indexing again and again",
        "{% set a = 'x' * 9999999 %}{% for i in range(99999) %}{% set b = a[9999998] %}{% set b = a[1:2] %}{% endfor %}",
    ),
    ("testing again and again", "{% set a = 'x' * 9999999 %}{{ ([a] * 99999) | select('lower') | list | length }}"),
    (
        "splitting again and again",
        "{% set a = 'x ' * 999999 %}{% for i in range(99999) %}{% set b = a.split(' ') %}{% endfor %}",
    ),
    ("a message without end", "{{ raise_exception('x' * 99999999) }}"),
    ("debug output", "{% set a = 'x' * 9999999 %}{% for i in range(999) %}{{ debug() }}{% endfor %}"),
    (
        "macros without end",
        "{% for i in range(99999) %}{% for j in range(99999) %}{% macro m() %}{{ i }}{{ j }}{% endmacro %}{% endfor %}{% endfor %}",
    ),
    (
        "hashing again and again",
        "{% set a = 'x' * 9999999 %}{% for i in range(99999) %}{% set b = {a: 1} %}{% set b = messages[0] | attr(a) %}{% set b = messages[0].get(a) %}{% endfor %}",
    ),
    ("a template in a template", "{% include 'chat' %}"),
    ("a block in a block", "{% block a %}{{ self.a() }}{% endblock %}"),
];

/// Long templates, generated by a loop.
fn long_template(name: &str) -> Option<String> {
    Some(match name {
        "operators in a row" => format!("{{{{ 1{} }}}}", "+1".repeat(400_000)),
        "filters in a row" => format!("{{{{ 'x'{} }}}}", "|upper".repeat(150_000)),
        "brackets in brackets" => format!("{{{{ {}1{} }}}}", "[".repeat(400_000), "]".repeat(400_000)),
        "elif in a row" => format!("{{% if 0 %}}{}{{% endif %}}", "{% elif 0 %}".repeat(80_000)),
        "loops in loops" => "{% for i in range(9) %}".repeat(40_000),
        "a long template" => "x".repeat(2 << 20),
        _ => return None,
    })
}

const LONG_TEMPLATES: &[&str] = &[
    "operators in a row",
    "filters in a row",
    "brackets in brackets",
    "elif in a row",
    "loops in loops",
    "a long template",
];

/// A tokenizer with a hostile part, and a text.
fn tokenizer(name: &str) -> Option<(Value, String)> {
    let mut file = json!({
        "version": "1.0", "truncation": null, "padding": null, "normalizer": null, "pre_tokenizer": null,
        "post_processor": null, "decoder": null, "added_tokens": [],
        "model": {"type": "WordLevel", "vocab": {"x": 0, "?": 1}, "unk_token": "?"}
    });
    let mut text = "x".to_owned();
    let replace = json!({"type": "Replace", "pattern": {"String": "x"}, "content": "x".repeat(16)});
    match name {
        "chained Replace" => file["normalizer"] = json!({"type": "Sequence", "normalizers": vec![replace; 30]}),
        "Replace in sequences of sequences" => {
            let inner = json!({"type": "Sequence", "normalizers": vec![replace; 5]});
            file["normalizer"] = json!({"type": "Sequence", "normalizers": vec![inner; 6]});
        }
        "Replace without a type" => {
            let untyped = json!({"pattern": {"String": "x"}, "content": "x".repeat(16)});
            file["normalizer"] = json!({"normalizers": vec![untyped; 30]});
        }
        "Replace of nothing" => {
            let step = json!({"type": "Replace", "pattern": {"Regex": ""}, "content": "xxxxxxxx"});
            file["normalizer"] = json!({"type": "Sequence", "normalizers": vec![step; 30]});
        }
        "Prepend, then Replace" => {
            let prepend = json!({"type": "Prepend", "prepend": "x".repeat(1 << 20)});
            file["normalizer"] =
                json!({"type": "Sequence", "normalizers": [prepend, replace, replace, replace, replace]});
        }
        "chained ByteLevel" => {
            let step =
                json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false});
            file["pre_tokenizer"] = json!({"type": "Sequence", "pretokenizers": vec![step; 40]});
            text = "é".to_owned();
        }
        "Replace in a decoder" => {
            file["decoder"] = json!({"type": "Sequence", "decoders": vec![replace; 30]});
        }
        "an expression in a decoder" => {
            file["decoder"] = json!({"type": "Replace", "pattern": {"Regex": "(x+x+)+y"}, "content": ""});
        }
        "a sentence many times" => {
            let single = vec![json!({"Sequence": {"id": "A", "type_id": 0}}); 100_000];
            file["post_processor"] =
                json!({"type": "TemplateProcessing", "single": single, "pair": single, "special_tokens": {}});
        }
        "sentences of sentences" => {
            let single = vec![json!({"Sequence": {"id": "A", "type_id": 0}}); 100];
            let step = json!({"type": "TemplateProcessing", "single": single, "pair": single, "special_tokens": {}});
            file["post_processor"] = json!({"type": "Sequence", "processors": vec![step; 10]});
        }
        "a slow expression" => {
            // Each match costs as much as the library allows.
            let pattern = json!({"Regex": "(?=(x|xx|xxx)*?(x|xx|xxx)*?(x|xx|xxx)*?y)z|x"});
            file["pre_tokenizer"] =
                json!({"type": "Split", "pattern": pattern, "behavior": "Isolated", "invert": false});
            text = "x".repeat(200_000);
        }
        "a long token" => {
            let word = "x".repeat(20 << 20);
            file["model"] = json!({"type": "Unigram", "unk_id": 0, "vocab": [["?", 0.0], [word, -1.0]]});
        }
        "long words" => {
            file["model"] = json!({"type": "WordPiece", "unk_token": "?", "continuing_subword_prefix": "",
                "max_input_chars_per_word": 1_000_000_000, "vocab": {"x": 0, "?": 1}});
            text = "x".repeat(200_000);
        }
        "a large id" => file["model"]["vocab"]["y"] = json!(4_294_967_295u32),
        "JSON in JSON" => {
            file["normalizer"] = Value::Null;
            let deep = format!("{}{}", "[".repeat(1_000_000), "]".repeat(1_000_000));
            return Some((Value::String(deep), text));
        }
        _ => return None,
    }
    Some((file, text))
}

const TOKENIZERS: &[&str] = &[
    "chained Replace",
    "Replace in sequences of sequences",
    "Replace without a type",
    "Replace of nothing",
    "Prepend, then Replace",
    "chained ByteLevel",
    "Replace in a decoder",
    "an expression in a decoder",
    "a sentence many times",
    "sentences of sentences",
    "a slow expression",
    "a long token",
    "long words",
    "a large id",
    "JSON in JSON",
];

/// Runs a case and prints its error; for the child process.
#[test]
#[ignore = "started as a child process by other tests"]
fn child() {
    let case = std::env::var(CASE).unwrap();
    let path = Path::new("folder/file");
    let short = TEMPLATES.iter().find(|(name, _)| *name == case).map(|(_, text)| (*text).to_owned());
    let said = if let Some(text) = short.or_else(|| long_template(&case)) {
        let rendered =
            ChatTemplate::from_text(text, path).and_then(|it| it.render(&[Message::new("user", "hi")], true));
        rendered.map(|prompt| format!("{} bytes", prompt.len()))
    } else {
        let (file, text) = tokenizer(&case).unwrap();
        let bytes = file.as_str().map_or_else(|| file.to_string(), str::to_owned).into_bytes();
        Tokenizer::from_bytes(bytes, path).and_then(|tokenizer| {
            let tokens = tokenizer.encode(&text)?;
            Ok(format!("{} tokens, {} bytes", tokens.len(), tokenizer.decode(&[0])?.len()))
        })
    };
    match said {
        Ok(done) => println!("done: {done}"),
        Err(error) => println!("said: {error}"),
    }
    // Abandoned threads may still be running.
    std::process::exit(0);
}

/// Runs a case in a child process, and returns its error.
fn run(case: &str) -> Result<String, String> {
    let script = format!("ulimit -v {MEMORY}; ulimit -c 0; exec \"$0\" \"$@\"");
    let mut child = Command::new("sh");
    child.args(["-c", &script]).arg(std::env::current_exe().unwrap());
    child.args(["--exact", "child", "--ignored", "--nocapture", "--test-threads=1"]);
    let mut child = child.env(CASE, case).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let start = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if start.elapsed() > TIME {
            child.kill().unwrap();
            return Err(format!("{case}: still running after {TIME:?}"));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    match text.split_once("said: ") {
        Some((_, said)) if output.status.success() => Ok(said.to_owned()),
        _ => Err(format!("{case}: {}: {text}{}", output.status, String::from_utf8_lossy(&output.stderr))),
    }
}

/// Runs cases, and returns the failures.
fn wrong(cases: impl Iterator<Item = &'static str>, says: &[&str]) -> Vec<String> {
    let check = |case: &'static str| match run(case) {
        Ok(said) if says.iter().all(|word| said.contains(word)) => None,
        Ok(said) => Some(format!("{case}: {said}")),
        Err(problem) => Some(problem),
    };
    cases.filter_map(check).collect()
}

#[test]
fn hostile_templates_give_a_result_or_a_readable_error() {
    let failed = wrong(TEMPLATES.iter().map(|(name, _)| *name), &["folder/file: the chat template", "help:"]);
    assert!(failed.is_empty(), "{failed:#?}");
}

#[test]
fn long_templates_give_a_result_or_a_readable_error() {
    let failed = wrong(LONG_TEMPLATES.iter().copied(), &["folder/file: the chat template", "help:"]);
    assert!(failed.is_empty(), "{failed:#?}");
}

#[test]
fn hostile_tokenizers_give_a_result_or_a_readable_error() {
    let failed = wrong(TOKENIZERS.iter().copied(), &["folder/file: ", "tokenizer", "help:"]);
    assert!(failed.is_empty(), "{failed:#?}");
}

#[test]
fn prompts_are_neither_padded_nor_cut() {
    let file = json!({
        "version": "1.0", "normalizer": null, "pre_tokenizer": {"type": "Whitespace"}, "post_processor": null,
        "decoder": null, "added_tokens": [], "model": {"type": "WordLevel", "vocab": {"x": 0, "?": 1}, "unk_token": "?"},
        "padding": {"strategy": {"Fixed": 1u64 << 40}, "direction": "Right", "pad_to_multiple_of": 1u64 << 40, "pad_id": 0,
            "pad_type_id": 0, "pad_token": "x"},
        "truncation": {"direction": "Right", "max_length": 1, "strategy": "LongestFirst", "stride": 0}
    });
    let tokenizer = Tokenizer::from_bytes(file.to_string().into_bytes(), Path::new("tokenizer.json")).unwrap();
    assert_eq!(tokenizer.encode("x y x").unwrap(), [0, 1, 0]);
}

#[test]
fn the_limit_is_named() {
    for (case, limit) in
        [("doubling", "bytes of memory"), ("chained Replace", "the limit is"), ("a long template", "1048576")]
    {
        let said = run(case).unwrap();
        assert!(said.contains(limit), "{said}");
    }
}
