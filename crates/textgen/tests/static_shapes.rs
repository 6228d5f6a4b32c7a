//! MIGraphX compiles every new shape, so all prompts have one shape and all steps another. Programs are counted by
//! their files in the cache; tokens are compared with plain loops.
#![allow(clippy::unwrap_used, clippy::panic, reason = "test helpers may panic")]

mod common;

use std::path::Path;

use libtest_mimic::{Arguments, Trial};
use tempfile::TempDir;
use testkit::llm::TinyDecoder;
use textgen::{Attached, Generator, GeneratorOptions, Model, PromptShape, Tokenizer};
use tiny::{Tiny, steps};

use common::{On, config, load, on_the_host_driver, tiny};

const LONGEST: usize = 32;

fn main() {
    on_the_host_driver();
    let arguments = Arguments::from_args();
    let rows: [(&str, fn()); 5] = [
        ("prompts_of_any_length_share_a_program", prompts_of_any_length_share_a_program),
        ("appended_tokens_need_no_program", appended_tokens_need_no_program),
        ("rows_of_any_length_share_a_program", rows_of_any_length_share_a_program),
        ("exact_prompts_have_a_program_for_each_length", exact_prompts_have_a_program_for_each_length),
        ("other_providers_are_fed_exact_prompts", other_providers_are_fed_exact_prompts),
    ];
    let trials = match testkit::place::onnxruntime() {
        Ok(_) => rows
            .map(|(name, check)| {
                Trial::test(name, move || {
                    check();
                    Ok(())
                })
            })
            .into(),
        Err(reason) => {
            eprintln!("skipped: {reason}");
            Vec::new()
        }
    };
    libtest_mimic::run(&arguments, trials).exit();
}

/// The tiny decoder on MIGraphX, with a cache folder for its programs.
struct Compiled {
    tiny: Tiny,
    cache: TempDir,
}

impl Compiled {
    fn new() -> Compiled {
        let (folder, cache) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let decoder = TinyDecoder::new(5);
        decoder.write(folder.path(), true).unwrap();
        let mut config = config(folder.path(), On::Migraphx).unwrap();
        config.session_entries.push(("ep.migraphx.cache_dir".to_owned(), cache.path().display().to_string()));
        let model = load(&config).unwrap();
        let tokenizer = Tokenizer::from_folder(&config).unwrap();
        Compiled { tiny: Tiny { decoder, model, tokenizer, _folder: folder }, cache }
    }

    fn programs(&self) -> usize {
        let is_program = |file: &Path| file.extension().is_some_and(|extension| extension == "mxr");
        std::fs::read_dir(&self.cache).unwrap().filter(|entry| is_program(&entry.as_ref().unwrap().path())).count()
    }

    fn generator(&self, batch: usize, prompt_shape: PromptShape) -> Generator {
        let max_length = Some(LONGEST);
        self.tiny.generator(GeneratorOptions { batch, max_length, prompt_shape, ..GeneratorOptions::default() })
    }

    /// Generates from a prompt, and checks the tokens.
    fn check(&self, prompt_shape: PromptShape, length: usize) {
        let mut generator = self.generator(1, prompt_shape);
        generator.append(&prompt(length)).unwrap();
        assert_eq!(steps(&mut generator, 3), self.tiny.reference(&prompt(length), 3), "{length}");
    }

    /// The number of programs for one shape. There may be several, because attention runs elsewhere and splits the
    /// decoder into partitions. A prompt of one token has the shape of a step.
    fn programs_of_steps(&self) -> usize {
        self.check(PromptShape::Auto, 1);
        let programs = self.programs();
        assert!(programs > 0, "nothing was compiled");
        programs
    }
}

fn prompt(length: usize) -> Vec<u32> {
    (0..length as u32).map(|index| (index * 37 + 11) % 256).collect()
}

fn prompts_of_any_length_share_a_program() {
    let compiled = Compiled::new();
    let steps = compiled.programs_of_steps();
    for length in [5, 6, 7, 8, 2, 27] {
        compiled.check(PromptShape::Auto, length);
        assert_eq!(compiled.programs(), 2 * steps, "one for prompts and one for decoding, after a prompt of {length}");
    }
}

fn appended_tokens_need_no_program() {
    let compiled = Compiled::new();
    let programs = 2 * compiled.programs_of_steps();
    let mut generator = compiled.generator(1, PromptShape::Auto);
    for length in [4, 1, 3, 6] {
        generator.append(&prompt(length)).unwrap();
        let sequence = generator.tokens(0).to_vec();
        assert_eq!(steps(&mut generator, 2), compiled.tiny.reference(&sequence, 2), "after {length} more");
        assert_eq!(compiled.programs(), programs);
    }
    generator.rewind(9).unwrap();
    generator.append(&prompt(5)).unwrap();
    let sequence = generator.tokens(0).to_vec();
    assert_eq!(steps(&mut generator, 2), compiled.tiny.reference(&sequence, 2), "after rewinding");
    assert_eq!(compiled.programs(), programs);
}

fn rows_of_any_length_share_a_program() {
    let compiled = Compiled::new();
    let steps = compiled.programs_of_steps();
    for lengths in [[5, 1, 4], [2, 9, 3], [7, 7, 7]] {
        let prompts = lengths.map(prompt);
        let mut generator = compiled.generator(prompts.len(), PromptShape::Auto);
        generator.append_rows(&prompts.each_ref().map(Vec::as_slice)).unwrap();
        for _ in 0..3 {
            generator.step().unwrap();
        }
        for (row, prompt) in prompts.iter().enumerate() {
            assert_eq!(
                generator.tokens(row)[prompt.len()..],
                compiled.tiny.reference(prompt, 3),
                "row {row} of {lengths:?}"
            );
        }
        assert_eq!(compiled.programs(), 3 * steps, "a batch needs its own programs, after {lengths:?}");
    }
}

fn exact_prompts_have_a_program_for_each_length() {
    let compiled = Compiled::new();
    let steps = compiled.programs_of_steps();
    for (count, length) in [5, 6, 7, 8].into_iter().enumerate() {
        compiled.check(PromptShape::Exact, length);
        assert_eq!(compiled.programs(), (2 + count) * steps);
    }
}

fn other_providers_are_fed_exact_prompts() {
    let folder = tempfile::tempdir().unwrap();
    TinyDecoder::new(5).write(folder.path(), true).unwrap();
    let model = |on: On| -> Model { load(&config(folder.path(), on).unwrap()).unwrap() };
    for (on, backend) in [(On::Cpu, None), (On::Device, Some("hip")), (On::Migraphx, Some("migraphx"))] {
        let model = model(on);
        assert_eq!(model.has_static_shapes(PromptShape::Auto), on == On::Migraphx, "{on:?}");
        assert!(model.has_static_shapes(PromptShape::MaxLength) && !model.has_static_shapes(PromptShape::Exact));
        let Attached::Plugin { backend: found, .. } = model.attached() else {
            assert_eq!(on, On::Cpu);
            continue;
        };
        assert_eq!(found.as_deref(), backend);
    }
}
