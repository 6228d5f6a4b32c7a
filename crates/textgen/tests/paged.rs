//! Decoders with PagedAttention, on our provider's host device: ONNX Runtime's CPU provider has no such operator.
#![allow(clippy::unwrap_used, clippy::panic, reason = "test helpers may panic")]

mod common;

use libtest_mimic::{Arguments, Failed, Trial};
use testkit::llm::{TinyDecoder, VOCABULARY};
use textgen::{Generator, GeneratorOptions, Model};

use common::{On, config, load, on_the_host_driver};

/// Tokens in a block.
const BLOCK: usize = 16;

/// How much worse than the best token's the score of a chosen one may be, by the reference in 64-bit floats: keys and
/// values have 16 bits.
const ROUNDING: f64 = 0.05;

fn main() {
    on_the_host_driver();
    let arguments = Arguments::from_args();
    let mut trials = Vec::new();
    match testkit::place::onnxruntime().and_then(|_| testkit::place::staged_library("amdgpu-ep")) {
        Ok(_) => {
            trials.push(test("tokens_are_the_best_of_plain_loops", tokens_are_the_best_of_plain_loops));
            trials.push(test("a_sequence_can_be_rewound_and_continued", rewound));
        }
        Err(reason) => eprintln!("skipped: {reason}"),
    }
    libtest_mimic::run(&arguments, trials).exit();
}

fn test(name: &str, run: fn() -> anyhow::Result<()>) -> Trial {
    Trial::test(name, move || run().map_err(|error| Failed::from(format!("{error:#}"))))
}

fn decoder() -> TinyDecoder {
    TinyDecoder::new(5).paged(BLOCK)
}

fn model() -> anyhow::Result<Model> {
    let folder = tempfile::tempdir()?;
    decoder().write(folder.path(), true)?;
    load(&config(folder.path(), On::Device)?)
}

fn prompt(seed: u32, length: u32) -> Vec<u32> {
    (0..length).map(|at| (at * 7 + seed * 31) % 256).collect()
}

/// Checks each token by the scores after those before it.
fn check(tokens: &[u32], prompt: usize) {
    let decoder = decoder();
    for end in prompt..tokens.len() {
        let scores = decoder.scores(&tokens[..end]);
        let best = scores[..VOCABULARY].iter().copied().fold(f64::MIN, f64::max);
        let found = scores[tokens[end] as usize];
        assert!(found >= best - ROUNDING, "token {end} has the score {found}, the best one {best}");
    }
}

fn steps(generator: &mut Generator, count: usize) -> Vec<u32> {
    (0..count).map_while(|_| generator.step().unwrap().map(|tokens| tokens[0].unwrap())).collect()
}

fn tokens_are_the_best_of_plain_loops() -> anyhow::Result<()> {
    let model = model()?;
    for length in [1, 15, 16, 17, 100] {
        let mut generator = Generator::new(&model, GeneratorOptions::default())?;
        generator.append(&prompt(length, length))?;
        steps(&mut generator, 40);
        check(generator.tokens(0), length as usize);
    }
    let error = Generator::new(&model, GeneratorOptions { batch: 2, ..GeneratorOptions::default() }).unwrap_err();
    assert!(error.to_string().contains("one sequence"), "{error}");
    Ok(())
}

fn rewound() -> anyhow::Result<()> {
    let model = model()?;
    let mut generator = Generator::new(&model, GeneratorOptions::default())?;
    generator.append(&prompt(1, 30))?;
    let first = steps(&mut generator, 10);
    generator.rewind(30)?;
    assert_eq!(steps(&mut generator, 10), first);
    generator.rewind(20)?;
    generator.append(&prompt(2, 9))?;
    steps(&mut generator, 10);
    check(generator.tokens(0), 29);
    Ok(())
}
