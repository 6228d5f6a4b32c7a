//! Decoders with PagedAttention, on our provider's host device: ONNX Runtime's CPU provider has no such operator.
#![allow(clippy::unwrap_used, clippy::panic, reason = "test helpers may panic")]

mod common;

use std::sync::mpsc;

use libtest_mimic::{Arguments, Failed, Trial};
use testkit::llm::{TinyDecoder, VOCABULARY};
use textgen::engine::{Engine, EngineOptions, Event, Request};
use textgen::{Generator, GeneratorOptions, Model, Sampling, Tokenizer};

use common::served::{Served, submit};
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
            trials.push(test("prompts_that_arrive_together_run_together", together));
            trials.push(test("beginnings_are_shared_by_blocks", shared_beginnings));
            trials.push(test("a_prompt_does_not_wait_for_an_answer", beginnings_that_are_not_worth_a_copy));
            trials.push(test("choices_share_the_blocks_of_their_prompt", choices));
            trials.push(test("a_run_that_fails_changes_nothing_for_the_others", failures));
            trials.push(test("options_that_do_not_fit_are_errors", wrong_options));
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

fn model(decoder: TinyDecoder) -> anyhow::Result<Model> {
    let folder = tempfile::tempdir()?;
    decoder.write(folder.path(), true)?;
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
    let (model, pruned) = (model(decoder())?, model(decoder().pruned())?);
    for (model, length) in [(&model, 1), (&model, 15), (&model, 16), (&pruned, 17), (&model, 17), (&pruned, 100)] {
        let mut generator = Generator::new(model, GeneratorOptions::default())?;
        generator.append(&prompt(length, length))?;
        steps(&mut generator, 40);
        check(generator.tokens(0), length as usize);
    }
    let error = Generator::new(&model, GeneratorOptions { batch: 2, ..GeneratorOptions::default() }).unwrap_err();
    assert!(error.to_string().contains("one sequence"), "{error}");
    Ok(())
}

fn rewound() -> anyhow::Result<()> {
    let model = model(decoder())?;
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

/// An engine, whose folder has been deleted.
fn engine(decoder: &TinyDecoder, options: EngineOptions) -> anyhow::Result<Engine> {
    let folder = tempfile::tempdir()?;
    decoder.write(folder.path(), true)?;
    let model = load(&config(folder.path(), On::Device)?)?;
    Ok(Engine::start(&model, &Tokenizer::from_folder(model.config())?, options)?)
}

/// A request for exactly so many tokens.
fn request(prompt: &[u32], count: usize) -> Request {
    let sampling = Sampling { min_length: 1000, ..Sampling::default() };
    Request { max_new_tokens: Some(count), sampling, ..Request::new(prompt.to_vec()) }
}

/// Four prompts of 5 tokens run at once: three steps give the other tokens. With a chunk of 5, one prompt joins each step.
fn together() -> anyhow::Result<()> {
    for (chunk, steps, rows) in [(256, 3, 12), (5, 6, 12)] {
        let options = EngineOptions { slots: 4, prompt_chunk: chunk, ..EngineOptions::default() };
        let engine = engine(&decoder(), options)?;
        // The engine waits in the sink of a first request until all others are there.
        let ((here, is_waiting), (open, gate)) = (mpsc::channel(), mpsc::channel::<()>());
        let sink = move |_| {
            let _ = here.send(());
            assert!(gate.recv().is_err());
        };
        let first = engine.submit(request(&[1, 2], 1), sink)?;
        is_waiting.recv()?;
        let served: Vec<Served> = (0..4).map(|seed| submit(&engine, request(&prompt(seed, 5), 4))).collect();
        drop(open);
        served.into_iter().for_each(|served| assert_eq!(served.reply().only().tokens.len(), 4));
        first.detach();
        let stats = engine.stats();
        assert_eq!((stats.steps, stats.step_rows), (steps, rows), "chunk {chunk}");
    }
    Ok(())
}

/// The second prompt shares a block with the first one, of which it holds all but two tokens when the first is done.
fn beginnings_that_are_not_worth_a_copy() -> anyhow::Result<()> {
    let options = EngineOptions { slots: 2, prompt_chunk: 30, ..EngineOptions::default() };
    let engine = engine(&TinyDecoder::new(5).paged(32), options)?;
    let ((here, is_waiting), (open, gate)) = (mpsc::channel(), mpsc::channel::<()>());
    let hold = move |_| {
        let _ = here.send(());
        assert!(gate.recv().is_err());
    };
    let first = engine.submit(request(&[1, 2], 1), hold)?;
    is_waiting.recv()?;
    let (one, mut other) = (prompt(1, 40), prompt(2, 50));
    other[..33].copy_from_slice(&one[..33]);
    // Both sinks are called by the engine's thread, so their order is that of the answers.
    let (ends, order) = mpsc::channel();
    let tickets = [(one, 150), (other, 2)].map(|(prompt, count)| {
        let ends = ends.clone();
        let sink = move |event| {
            if matches!(event, Event::Finished { .. }) {
                let _ = ends.send(count);
            }
        };
        engine.submit(request(&prompt, count), sink)
    });
    drop((open, ends));
    assert_eq!(order.iter().collect::<Vec<_>>(), [2, 150]);
    for ticket in tickets {
        ticket?.detach();
    }
    first.detach();
    Ok(())
}

fn shared_beginnings() -> anyhow::Result<()> {
    for prefix_cache in [true, false] {
        let engine = engine(&decoder(), EngineOptions { slots: 2, prefix_cache, ..EngineOptions::default() })?;
        let ask = |tokens: &[u32]| {
            let reply = submit(&engine, request(tokens, 6)).reply();
            let all = [tokens, &reply.only().tokens].concat();
            (all, reply.end.unwrap().cached_tokens)
        };
        let (chat, cached) = ask(&prompt(1, 40));
        assert_eq!(cached, 0);
        // All 45 tokens that ran, whose last block is copied only from 16 tokens on.
        assert_eq!(ask(&[&chat[..], &[7, 8]].concat()).1, if prefix_cache { 2 * BLOCK } else { 0 });
        // The last token of a prompt always runs.
        assert_eq!(ask(&prompt(1, 33)).1, if prefix_cache { 2 * BLOCK } else { 0 });
        assert_eq!(ask(&prompt(1, 32)).1, if prefix_cache { BLOCK } else { 0 });
        assert_eq!(ask(&prompt(2, 33)).1, 0);
    }
    Ok(())
}

fn choices() -> anyhow::Result<()> {
    // Room for one sequence of 256 tokens. Each choice needs a block of its own for the end of the prompt.
    let engine = engine(&decoder(), EngineOptions { slots: 6, blocks: Some(16), ..EngineOptions::default() })?;
    let prompt = prompt(3, 216);
    let alone = submit(&engine, request(&prompt, 8)).reply().only().tokens.clone();
    let reply = submit(&engine, Request { choices: 3, ..request(&prompt, 8) }).reply();
    assert!(reply.choices.len() == 3 && reply.choices.iter().all(|choice| choice.tokens == alone), "{reply:?}");
    assert_eq!(engine.stats().preempted, 0);
    Ok(())
}

fn failures() -> anyhow::Result<()> {
    // The last token has no embedding.
    let decoder = TinyDecoder::new(5).without_embeddings(1).paged(BLOCK);
    let engine = engine(&decoder, EngineOptions::default())?;
    let good: Vec<Served> = (0..3).map(|seed| submit(&engine, request(&prompt(seed, 20), 10))).collect();
    let sampling = Sampling { logit_bias: vec![(VOCABULARY as u32 - 1, 1000.0)], ..Sampling::default() };
    let bad = submit(&engine, Request { sampling, ignore_end: true, ..request(&[1, 2], 3) });
    let replies: Vec<Vec<u32>> = good.into_iter().map(|served| served.reply().only().tokens.clone()).collect();
    assert!(bad.reply().end.is_err());
    for (seed, tokens) in (0..).zip(replies) {
        assert_eq!(submit(&engine, request(&prompt(seed, 20), 10)).reply().only().tokens, tokens, "seed {seed}");
    }
    assert_eq!(engine.stats().failed, 1);
    Ok(())
}

fn wrong_options() -> anyhow::Result<()> {
    let options = |blocks, speculation| EngineOptions { blocks, speculation, ..EngineOptions::default() };
    for (options, problem) in [(options(Some(15), 0), "15 blocks of 16 tokens"), (options(None, 2), "speculation")] {
        let error = engine(&decoder(), options).unwrap_err().to_string();
        assert!(error.contains(problem) && error.contains("help: "), "{error}");
    }
    Ok(())
}
