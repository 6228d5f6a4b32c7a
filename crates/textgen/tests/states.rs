//! Decoders with states of fixed size and several rows of positions. The tokens are compared with plain loops.
#![allow(clippy::unwrap_used, clippy::panic, reason = "test helpers may panic")]

mod common;

use libtest_mimic::{Arguments, Trial};
use testkit::llm::TinyDecoder;
use textgen::engine::{Engine, EngineOptions};
use textgen::{GeneratorOptions, PromptShape, Tokenizer};
use tiny::{Tiny, steps};

use common::{On, config, load, on_the_host_driver, tiny};

/// A test of a decoder on some provider.
type Check = fn(&Tiny);

fn main() {
    on_the_host_driver();
    let arguments = Arguments::from_args();
    let mut trials = Vec::new();
    match testkit::place::onnxruntime() {
        Ok(_) => {
            for on in [On::Cpu, On::Device] {
                let rows: [(&str, Check); 6] = [
                    ("states_carry_over_from_step_to_step", states_carry_over_from_step_to_step),
                    ("prompts_may_run_in_chunks", prompts_may_run_in_chunks),
                    ("going_back_starts_over", going_back_starts_over),
                    ("rows_of_a_batch_have_their_own_states", rows_of_a_batch_have_their_own_states),
                    ("padding_is_refused", padding_is_refused),
                    ("the_engine_refuses_states", the_engine_refuses_states),
                ];
                trials.extend(rows.map(|(name, check)| {
                    Trial::test(format!("{on:?}::{name}"), move || {
                        check(&decoder(on, None));
                        Ok(())
                    })
                }));
            }
        }
        Err(reason) => eprintln!("skipped: {reason}"),
    }
    libtest_mimic::run(&arguments, trials).exit();
}

fn decoder(on: On, chunk: Option<usize>) -> Tiny {
    let folder = tempfile::tempdir().unwrap();
    let decoder = TinyDecoder::new(7).hybrid();
    decoder.write(folder.path(), true).unwrap();
    let mut config = config(folder.path(), on).unwrap();
    config.search.chunk_size = chunk;
    // The type says nothing about what a decoder needs.
    config.kind = "telepathy".to_owned();
    let model = load(&config).unwrap();
    let tokenizer = Tokenizer::from_folder(model.config()).unwrap();
    Tiny { decoder, model, tokenizer, _folder: folder }
}

fn prompt(length: usize, seed: usize) -> Vec<u32> {
    (0..length).map(|at| ((at * 37 + seed * 11) % 250) as u32).collect()
}

fn options(batch: usize) -> GeneratorOptions {
    GeneratorOptions { batch, max_length: Some(40), ..GeneratorOptions::default() }
}

fn states_carry_over_from_step_to_step(tiny: &Tiny) {
    for (length, prompt_shape) in
        [(1, PromptShape::Auto), (2, PromptShape::Exact), (9, PromptShape::Auto), (9, PromptShape::MaxLength)]
    {
        let mut generator = tiny.generator(GeneratorOptions { prompt_shape, ..options(1) });
        generator.append(&prompt(length, 1)).unwrap();
        assert_eq!(steps(&mut generator, 8), tiny.reference(&prompt(length, 1), 8), "{length} tokens");
        let seen = generator.tokens(0).to_vec();
        generator.append(&prompt(3, 2)).unwrap();
        let all = [&seen[..], &prompt(3, 2)].concat();
        assert_eq!(steps(&mut generator, 4), tiny.reference(&all, 4), "{length} tokens, then 3 more");
    }
}

fn prompts_may_run_in_chunks(tiny: &Tiny) {
    let on = if tiny.model.config().provider.is_some() { On::Device } else { On::Cpu };
    let tiny = decoder(on, Some(4));
    let mut generator = tiny.generator(options(1));
    generator.append(&prompt(11, 3)).unwrap();
    assert_eq!(steps(&mut generator, 5), tiny.reference(&prompt(11, 3), 5));
}

fn going_back_starts_over(tiny: &Tiny) {
    let mut generator = tiny.generator(options(1));
    generator.append(&prompt(12, 4)).unwrap();
    steps(&mut generator, 3);
    generator.rewind(7).unwrap();
    assert_eq!(steps(&mut generator, 5), tiny.reference(&prompt(7, 4), 5));
    generator.rewind(0).unwrap();
    generator.append(&prompt(5, 5)).unwrap();
    generator.scores().unwrap();
    assert_eq!(steps(&mut generator, 5), tiny.reference(&prompt(5, 5), 5));
}

fn rows_of_a_batch_have_their_own_states(tiny: &Tiny) {
    let rows = [prompt(6, 6), prompt(6, 7)];
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

fn padding_is_refused(tiny: &Tiny) {
    let mut generator = tiny.generator(options(2));
    let error = generator.append_rows(&[&prompt(4, 8), &prompt(6, 9)]).unwrap_err().to_string();
    assert!(error.contains("past.0.conv") && error.contains("equal length"), "{error}");
}

fn the_engine_refuses_states(tiny: &Tiny) {
    let refused = Engine::start(&tiny.model, &tiny.tokenizer, EngineOptions::default()).unwrap_err().to_string();
    assert!(refused.contains("its decoder has states besides the cache"), "{refused}");
}
