//! Attention on cuDNN for a device that is described but not present: engines are found and plans built, nothing is
//! run.
//!
//! cuDNN is found as the library finds it (`AMDGPU_EP_CUDNN_LIBRARY`, `AMDGPU_EP_CUDA_LIBRARY_PATH`, the loader).
//! Without cuDNN 9.8 or later, these tests say so and check nothing.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use hipdnn::sys::{Backend, DataType};
use hipdnn::{Attention, Graph, Handle, Loaded, Search, Tensor};

/// Batch, query heads, key heads, queries, keys, head size.
#[derive(Clone, Copy, Debug)]
struct Sizes {
    batch: i64,
    heads: i64,
    shared: i64,
    queries: i64,
    keys: i64,
    size: i64,
}

const fn prompt(shared: i64, size: i64) -> Sizes {
    Sizes { batch: 1, heads: 32, shared, queries: 2048, keys: 2048, size }
}

/// The memory layout of heads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HeadLayout {
    /// Head after head, each with its tokens.
    HeadsFirst,
    /// Token after token, each with its heads.
    TokensFirst,
    /// Head after head with room for this many tokens each.
    Roomy(i64),
}

struct Case {
    name: &'static str,
    sizes: Sizes,
    data_type: DataType,
    /// Queries and results; keys and values.
    lies: [HeadLayout; 2],
    what: Attention,
    /// The extents of a mask that is added.
    mask: Option<[i64; 4]>,
    /// Part of the reason, if it is rejected.
    refusal: Option<&'static str>,
}

fn cases() -> Vec<Case> {
    let tokens = [HeadLayout::TokensFirst; 2];
    let plain = || Attention { scale: Some(0.125), ..Attention::default() };
    let causal = || Attention { is_causal: true, ..plain() };
    let case = |name, sizes, what| Case {
        name,
        sizes,
        data_type: DataType::HALF,
        lies: tokens,
        what,
        mask: None,
        refusal: None,
    };
    vec![
        case("plain, 64", prompt(32, 64), plain()),
        case("plain, 128", prompt(32, 128), plain()),
        Case { data_type: DataType::BFLOAT16, ..case("brain, 64", prompt(32, 64), plain()) },
        Case { lies: [HeadLayout::HeadsFirst; 2], ..case("heads first", prompt(32, 64), plain()) },
        case("causal, 64", prompt(32, 64), causal()),
        case("causal and shared, 128", prompt(8, 128), causal()),
        Case {
            lies: [HeadLayout::TokensFirst, HeadLayout::Roomy(4096)],
            ..case("keys in a cache", prompt(8, 128), causal())
        },
        Case { mask: Some([1, 1, 2048, 2048]), ..case("mask", prompt(32, 64), plain()) },
        Case { mask: Some([1, 32, 2048, 2048]), ..case("mask by head", prompt(32, 64), plain()) },
        case("short", Sizes { batch: 2, heads: 12, shared: 12, queries: 128, keys: 128, size: 64 }, plain()),
        case("odd", Sizes { batch: 1, heads: 12, shared: 12, queries: 77, keys: 77, size: 64 }, plain()),
        case("crossed", Sizes { batch: 2, heads: 8, shared: 8, queries: 4096, keys: 77, size: 40 }, plain()),
        case(
            "from the end",
            Sizes { batch: 1, heads: 8, shared: 8, queries: 512, keys: 1024, size: 64 },
            Attention { aligns_ends: true, ..causal() },
        ),
        case("bounded", prompt(32, 64), Attention { left_bound: Some(256), ..causal() }),
        case("not scaled", prompt(32, 64), Attention::default()),
        Case {
            mask: Some([1, 1, 1, 2048]),
            refusal: Some("a row for each query"),
            ..case("mask of keys", prompt(32, 64), plain())
        },
        Case { refusal: Some("TF32"), data_type: DataType::FLOAT, ..case("single", prompt(32, 64), plain()) },
        Case { refusal: Some("16 bytes"), ..case("narrow", prompt(32, 36), plain()) },
    ]
}

/// `[batch, heads, tokens, size]` in its layout.
fn tensor(lie: HeadLayout, [batch, heads, tokens, size]: [i64; 4]) -> Tensor {
    let strides = match lie {
        HeadLayout::HeadsFirst => [heads * tokens * size, tokens * size, size, 1],
        HeadLayout::TokensFirst => [tokens * heads * size, size, heads * size, 1],
        HeadLayout::Roomy(room) => [heads * room * size, room * size, size, 1],
    };
    Tensor::new(&[batch, heads, tokens, size]).strides(&strides)
}

fn built(case: Case, handle: &Handle) -> hipdnn::Result<(usize, usize)> {
    let Sizes { batch, heads, shared, queries, keys, size } = case.sizes;
    let [lie, keys_lie] = case.lies;
    let mut graph = Graph::new(case.data_type, DataType::FLOAT);
    let q = graph.tensor(tensor(lie, [batch, heads, queries, size]));
    let [k, v] = [(); 2].map(|()| graph.tensor(tensor(keys_lie, [batch, shared, keys, size])));
    let mask = case.mask.map(|dims| graph.tensor(Tensor::new(&dims)));
    let o = graph.attention(Attention { mask, ..case.what }, [q, k, v]);
    graph.output(o, tensor(lie, [batch, heads, queries, size]));
    let built = graph.build(handle)?;
    let plan = built.plan()?;
    Ok((built.candidates()?.len(), plan.workspace_bytes()))
}

/// The library built with these tests.
fn library() -> PathBuf {
    let program = std::env::current_exe().unwrap();
    let folder = program.parent().unwrap();
    let found = [folder, folder.parent().unwrap()].map(|folder| folder.join("libhipdnn_cudnn.so"));
    found.iter().find(|file| file.exists()).unwrap_or_else(|| panic!("none of {found:?} exists")).clone()
}

#[test]
#[ignore = "started as a child process by the test below"]
fn prints_what_cudnn_says() {
    let search = Search { place: Some(library()), ..Search::default() };
    let backend: Arc<dyn Backend> = Arc::new(Loaded::open(&search).unwrap());
    let handle = match Handle::new(backend) {
        Ok(handle) => handle,
        Err(error) => return println!("absent: {}", error.to_string().replace('\n', " ")),
    };
    for case in cases() {
        let name = case.name;
        match built(case, &handle) {
            Ok((engines, workspace)) => {
                let most = if workspace < 1 << 20 { "workspace below 1 MiB" } else { "much workspace" };
                println!("{name}: taken, {engines} engines, {most}");
            }
            Err(error) => println!("{name}: refused: {error}"),
        }
    }
}

/// Runs the test above with a described device, and a driver without devices.
fn asked(cache: &Path) -> String {
    let folder = cache.join("driver");
    std::fs::create_dir_all(&folder).unwrap();
    let mut compile = Command::new("cc");
    compile
        .args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o"])
        .arg(folder.join("libcuda.so.1"));
    compile.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/nodevice.c"));
    assert!(compile.status().unwrap().success());
    let folders = std::env::var("LD_LIBRARY_PATH").unwrap_or_default();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "prints_what_cudnn_says", "--ignored", "--nocapture"]);
    command.env("AMDGPU_EP_CUDNN_DEVICE_FILE", concat!(env!("CARGO_MANIFEST_DIR"), "/tests/devices/h200.json"));
    command.env("AMDGPU_EP_CACHE_DIR", cache).env("LD_LIBRARY_PATH", format!("{}:{folders}", folder.display()));
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    let answers = said.lines().filter(|line| line.contains(": ") && !line.starts_with("test result"));
    answers.map(|line| format!("{line}\n")).collect()
}

fn line_of<'a>(said: &'a str, name: &str) -> &'a str {
    let found = said.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
    found.unwrap_or_else(|| panic!("{name} is missing in {said}"))
}

#[test]
fn cudnn_runs_attention_as_a_whole_except_the_forms_that_it_gets_wrong() {
    let cache = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("attention-{}", std::process::id()));
    let said = asked(&cache);
    if let Some(reason) = said.lines().find(|line| line.starts_with("absent: ")) {
        std::fs::remove_dir_all(&cache).unwrap();
        return println!("skipped, no cuDNN that takes a described device: {reason}");
    }
    for Case { name, refusal, .. } in cases() {
        let line = line_of(&said, name);
        match refusal {
            // A plan of the fused engines stores no scores: those alone would be 268 MB.
            None => assert!(line.starts_with("taken, ") && line.ends_with(" workspace below 1 MiB"), "{name}: {line}"),
            Some(reason) => assert!(line.contains(reason), "{name}: {line}"),
        }
    }
    let kernel = "sdpa_sm90_flash_fprop_wgmma";
    let kept: Vec<_> = std::fs::read_dir(cache.join("cudnn")).unwrap().map(|file| file.unwrap().path()).collect();
    let taken = cases().iter().filter(|case| case.refusal.is_none()).count();
    assert_eq!(kept.len(), taken, "one plan is cached for each");
    for file in &kept {
        let bytes = std::fs::read(file).unwrap();
        assert!(
            bytes.windows(kernel.len()).any(|part| part == kernel.as_bytes()),
            "{} has no {kernel}",
            file.display()
        );
    }
    assert_eq!(asked(&cache), said, "cached plans give the same results");
    std::fs::remove_dir_all(&cache).unwrap();
}
