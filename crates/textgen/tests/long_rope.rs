//! Decoders with LongRoPE choose rotary tables by the width of the mask. The tokens are compared with plain loops that
//! choose by the length of the sequence.
#![allow(clippy::unwrap_used, clippy::panic, reason = "test helpers may panic")]

mod common;

use libtest_mimic::{Arguments, Trial};
use testkit::llm::TinyDecoder;
use textgen::engine::{Engine, EngineOptions, Request};
use textgen::{GeneratorOptions, PromptShape, Tokenizer};
use tiny::{Tiny, steps};

use common::served::submit;
use common::{On, config, load, on_the_host_driver, tiny};

/// Longer sequences use the other tables.
const THRESHOLD: usize = 24;

/// Far above the threshold, so that a wide mask would choose the wrong tables.
const LONGEST: usize = 64;

/// A test of a decoder on some provider.
type Check = fn(&Tiny);

fn main() {
    on_the_host_driver();
    let arguments = Arguments::from_args();
    let mut trials = Vec::new();
    match testkit::place::onnxruntime() {
        Ok(_) => {
            for on in [On::Cpu, On::Device, On::Migraphx] {
                let rows: [(&str, Check); 5] = [
                    ("short_sequences_use_the_short_tables", short_sequences_use_the_short_tables),
                    ("growing_sequences_switch_tables", growing_sequences_switch_tables),
                    ("shortened_sequences_switch_back", shortened_sequences_switch_back),
                    ("a_batch_of_short_rows_uses_the_short_tables", a_batch_of_short_rows_uses_the_short_tables),
                    ("the_engine_runs_only_short_sequences", the_engine_runs_only_short_sequences),
                ];
                trials.extend(rows.map(|(name, check)| {
                    Trial::test(format!("{on:?}::{name}"), move || {
                        check(&decoder(on));
                        Ok(())
                    })
                }));
            }
        }
        Err(reason) => eprintln!("skipped: {reason}"),
    }
    libtest_mimic::run(&arguments, trials).exit();
}

fn decoder(on: On) -> Tiny {
    let folder = tempfile::tempdir().unwrap();
    let decoder = TinyDecoder::new(11).long_rope(THRESHOLD);
    decoder.write(folder.path(), true).unwrap();
    let model = load(&config(folder.path(), on).unwrap()).unwrap();
    let tokenizer = Tokenizer::from_folder(model.config()).unwrap();
    Tiny { decoder, model, tokenizer, _folder: folder }
}

fn prompt(length: usize, seed: usize) -> Vec<u32> {
    (0..length).map(|at| ((at * 37 + seed * 11) % 250) as u32).collect()
}

fn options(batch: usize) -> GeneratorOptions {
    GeneratorOptions { batch, max_length: Some(LONGEST), prompt_shape: PromptShape::Auto, ..Default::default() }
}

fn short_sequences_use_the_short_tables(tiny: &Tiny) {
    for seed in 0..4 {
        let mut generator = tiny.generator(options(1));
        generator.append(&prompt(6, seed)).unwrap();
        assert_eq!(steps(&mut generator, 8), tiny.reference(&prompt(6, seed), 8), "seed {seed}");
    }
}

fn growing_sequences_switch_tables(tiny: &Tiny) {
    for length in [THRESHOLD - 4, THRESHOLD, THRESHOLD + 1, THRESHOLD + 9] {
        let mut generator = tiny.generator(options(1));
        generator.append(&prompt(length, 1)).unwrap();
        assert_eq!(steps(&mut generator, 9), tiny.reference(&prompt(length, 1), 9), "{length} tokens");
    }
}

fn shortened_sequences_switch_back(tiny: &Tiny) {
    let mut generator = tiny.generator(options(1));
    generator.append(&prompt(THRESHOLD + 6, 2)).unwrap();
    generator.step().unwrap();
    generator.rewind(9).unwrap();
    assert_eq!(steps(&mut generator, 5), tiny.reference(&prompt(9, 2), 5));
}

fn a_batch_of_short_rows_uses_the_short_tables(tiny: &Tiny) {
    let rows = [prompt(5, 3), prompt(9, 4)];
    let mut generator = tiny.generator(options(2));
    generator.append_rows(&[&rows[0], &rows[1]]).unwrap();
    for _ in 0..5 {
        generator.step().unwrap();
    }
    for (row, prompt) in rows.iter().enumerate() {
        let wanted = tiny.reference(prompt, 5);
        assert_eq!(generator.tokens(row)[prompt.len()..][..wanted.len()], wanted, "row {row}");
    }
}

/// Rows of a batch share a mask, so they cannot use different tables.
fn the_engine_runs_only_short_sequences(tiny: &Tiny) {
    let too_long = EngineOptions { max_length: Some(LONGEST), ..EngineOptions::default() };
    let refused = Engine::start(&tiny.model, &tiny.tokenizer, too_long).unwrap_err().to_string();
    assert!(refused.contains("use at most 24"), "{refused}");
    let engine = Engine::start(&tiny.model, &tiny.tokenizer, EngineOptions::default()).unwrap();
    assert_eq!(engine.max_length(), THRESHOLD);
    let prompts = [3, 8, 14].map(|length| prompt(length, length));
    let request = |prompt: &Vec<u32>| Request { max_new_tokens: Some(8), ..Request::new(prompt.clone()) };
    let served = prompts.each_ref().map(|prompt| submit(&engine, request(prompt)));
    for (prompt, served) in prompts.iter().zip(served) {
        assert_eq!(served.reply().only().tokens, tiny.reference(prompt, 8), "{} tokens", prompt.len());
    }
}
