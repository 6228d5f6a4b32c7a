//! The engine's answers on a tiny model: tokens, choices, probabilities, and what comes from the cache.
#![allow(clippy::unwrap_used, clippy::panic, reason = "test helpers may panic")]

mod common;

use std::sync::mpsc;

use testkit::llm::{END, VOCABULARY};
use textgen::engine::{Engine, EngineOptions, Event, Phase, Request};
use textgen::{GeneratorOptions, Sampling, TextFinish};

use common::served::submit;
use common::tiny::{Tiny, steps};

fn engine(tiny: &Tiny, options: EngineOptions) -> Engine {
    Engine::start(&tiny.model, &tiny.tokenizer, options).unwrap()
}

/// A request for at most `max_new_tokens` tokens.
fn request(prompt: &[u32], max_new_tokens: usize) -> Request {
    Request { max_new_tokens: Some(max_new_tokens), ..Request::new(prompt.to_vec()) }
}

fn prompt(seed: u32, length: u32) -> Vec<u32> {
    (0..length).map(|at| (at * 7 + seed * 31) % 256).collect()
}

#[test]
fn requests_at_once_get_the_tokens_of_plain_loops() {
    let Some(tiny) = Tiny::new(true) else { return };
    for slots in [1, 3, 8] {
        let engine = engine(&tiny, EngineOptions { slots, prompt_chunk: 7, ..EngineOptions::default() });
        let prompts: Vec<Vec<u32>> = (0..9).map(|index| prompt(index, 1 + index * 5)).collect();
        let served: Vec<_> = prompts.iter().map(|prompt| submit(&engine, request(prompt, 20))).collect();
        for (prompt, served) in prompts.iter().zip(served) {
            let reply = served.reply();
            assert_eq!(reply.only().tokens, tiny.reference(prompt, 20), "{prompt:?}, {slots} slots");
            assert_eq!(reply.only().text, tiny.tokenizer.decode(&reply.only().tokens).unwrap());
            let usage = reply.end.unwrap();
            assert_eq!((usage.prompt_tokens, usage.new_tokens), (prompt.len(), reply.choices[0].tokens.len()));
            assert!(usage.queued <= usage.first_token && usage.first_token <= usage.total, "{usage:?}");
        }
    }
}

#[test]
fn a_sequence_fills_its_slot_and_ends() {
    let Some(tiny) = Tiny::new(true) else { return };
    let engine = engine(&tiny, EngineOptions { slots: 2, max_length: Some(24), ..EngineOptions::default() });
    assert_eq!(engine.max_length(), 24);
    let sampling = Sampling { min_length: 1000, ..Sampling::default() };
    for (length, most) in [(23, 1), (5, 19), (1, 23)] {
        // Requests more tokens than fit.
        let request =
            Request { max_new_tokens: Some(usize::MAX), sampling: sampling.clone(), ..Request::new(prompt(3, length)) };
        let reply = submit(&engine, request).reply();
        assert_eq!((reply.only().tokens.len(), reply.only().finish), (most, Some(TextFinish::MaxLength)));
    }
}

#[test]
fn an_end_that_is_ignored_is_a_token_like_others() {
    let Some(tiny) = Tiny::new(true) else { return };
    let engine = engine(&tiny, EngineOptions::default());
    let sampling = Sampling { logit_bias: vec![(END[0], 1000.0)], ..Sampling::default() };
    for (ignore_end, tokens, finish) in [(false, 1, TextFinish::EndToken), (true, 6, TextFinish::MaxNewTokens)] {
        let request = Request { sampling: sampling.clone(), ignore_end, ..request(&prompt(1, 4), 6) };
        let reply = submit(&engine, request).reply();
        assert_eq!((&reply.only().tokens[..], reply.only().finish), (&vec![END[0]; tokens][..], Some(finish)));
    }
}

#[test]
fn the_choices_of_a_request_share_one_run_of_the_prompt() {
    let Some(tiny) = Tiny::new(true) else { return };
    let engine = engine(&tiny, EngineOptions { slots: 4, prefix_cache: false, ..EngineOptions::default() });
    let prompt = prompt(1, 40);
    let sampling = |seed| Sampling { do_sample: true, min_length: 1000, seed: Some(seed), ..Sampling::default() };
    let reply = submit(&engine, Request { choices: 3, sampling: sampling(7), ..request(&prompt, 5) }).reply();
    for (choice, seed) in reply.choices.iter().zip(7..) {
        let mut generator =
            tiny.generator(GeneratorOptions { sampling: Some(sampling(seed)), ..GeneratorOptions::default() });
        generator.append(&prompt).unwrap();
        assert_eq!(choice.tokens, steps(&mut generator, 5), "seed {seed}");
        assert_eq!(choice.finish, Some(TextFinish::MaxNewTokens));
    }
    assert_eq!(reply.choices.len(), 3);
    let usage = reply.end.unwrap();
    assert_eq!((usage.prompt_tokens, usage.cached_tokens, usage.new_tokens), (40, 0, 15));
    // The prompt's run chooses the first token of the first choice; all other tokens are chosen in steps.
    let stats = engine.stats();
    assert_eq!((stats.steps, stats.step_rows, stats.new_tokens, stats.prompt_tokens), (5, 14, 15, 40));
}

#[test]
fn a_chat_that_continues_runs_only_its_new_tokens() {
    let Some(tiny) = Tiny::new(true) else { return };
    for slots in [1, 4] {
        let engine = engine(&tiny, EngineOptions { slots, ..EngineOptions::default() });
        let mut chats = [prompt(1, 30), prompt(2, 25)];
        let mut held = [0; 2];
        for turn in 0..3 {
            for (chat, held) in chats.iter_mut().zip(&mut held) {
                let reply = submit(&engine, request(chat, 6)).reply();
                let wanted = tiny.reference(chat, 6);
                assert_eq!(reply.only().tokens, wanted, "turn {turn}, {slots} slots");
                // With one slot, the other chat has overwritten it.
                let cached = if slots == 1 { 0 } else { *held };
                assert_eq!(reply.end.unwrap().cached_tokens, cached, "turn {turn}, {slots} slots");
                chat.extend(&wanted);
                // The last token has not run.
                *held = chat.len() - 1;
                chat.extend(prompt(turn, 4));
            }
        }
        let stats = engine.stats();
        assert_eq!(stats.cached_tokens > 0, slots > 1, "{stats:?}");
    }
}

#[test]
fn a_prompt_that_several_send_at_once_runs_once() {
    let Some(tiny) = Tiny::new(true) else { return };
    let engine = engine(&tiny, EngineOptions { slots: 4, prompt_chunk: 8, ..EngineOptions::default() });
    let prompts: Vec<Vec<u32>> = (0..4).map(|index| [prompt(1, 50), prompt(2 + index, 3)].concat()).collect();
    let served: Vec<_> = prompts.iter().map(|prompt| submit(&engine, request(prompt, 5))).collect();
    for (index, (prompt, served)) in prompts.iter().zip(served).enumerate() {
        let reply = served.reply();
        assert_eq!(reply.only().tokens, tiny.reference(prompt, 5));
        assert_eq!(reply.end.unwrap().cached_tokens, if index == 0 { 0 } else { 50 }, "request {index}");
    }
}

#[test]
fn short_prompts_that_wait_run_before_the_next_step() {
    let Some(tiny) = Tiny::new(true) else { return };
    let sampling = Sampling { min_length: 1000, ..Sampling::default() };
    // Two or four prompts of 5 tokens, which fit into a chunk or not, and 5 new tokens each.
    for (chunk, prompts, steps) in [(20, 4, 4), (19, 4, 5), (256, 4, 4), (256, 5, 5), (5, 4, 7), (9, 2, 5)] {
        let options = EngineOptions { prompt_chunk: chunk, prefix_cache: false, ..EngineOptions::default() };
        let engine = engine(&tiny, options);
        // The engine waits in the sink of a first request until all others are there.
        let ((here, is_waiting), (open, gate)) = (mpsc::channel(), mpsc::channel::<()>());
        let sink = move |_| {
            let _ = here.send(());
            assert!(gate.recv().is_err());
        };
        let first = engine.submit(request(&[1, 2], 1), sink).unwrap();
        is_waiting.recv().unwrap();
        let request = |seed| Request { sampling: sampling.clone(), ..request(&prompt(seed, 5), 5) };
        let served: Vec<_> = (0..prompts).map(|seed| submit(&engine, request(seed))).collect();
        drop(open);
        served.into_iter().for_each(|served| assert_eq!(served.reply().only().tokens.len(), 5));
        first.detach();
        let stats = engine.stats();
        assert_eq!((stats.steps, stats.step_rows), (steps, 4 * u64::from(prompts)), "{prompts} prompts, chunk {chunk}");
    }
}

#[test]
fn nothing_is_reused_without_a_prefix_cache() {
    let Some(tiny) = Tiny::new(true) else { return };
    let engine = engine(&tiny, EngineOptions { prefix_cache: false, ..EngineOptions::default() });
    for _ in 0..2 {
        let reply = submit(&engine, request(&prompt(1, 30), 3)).reply();
        assert_eq!(reply.only().tokens, tiny.reference(&prompt(1, 30), 3));
        assert_eq!(reply.end.unwrap().cached_tokens, 0);
    }
}

#[test]
fn probabilities_are_those_of_the_scores() {
    let Some(tiny) = Tiny::new(true) else { return };
    let engine = engine(&tiny, EngineOptions::default());
    let prompt = prompt(4, 9);
    // The bias changes the choice, but not the reported probabilities.
    let sampling = Sampling { logit_bias: vec![(65, 100.0)], ..Sampling::default() };
    for count in [0, 5] {
        let request = Request { sampling: sampling.clone(), top_logprobs: Some(count), ..request(&prompt, 3) };
        let reply = submit(&engine, request).reply();
        let mut tokens = prompt.clone();
        for (token, found) in reply.only().tokens.iter().zip(&reply.only().logprobs) {
            let scores = tiny.decoder.scores(&tokens);
            let total = scores.iter().map(|score| score.exp()).sum::<f64>().ln();
            let mut order: Vec<usize> = (0..VOCABULARY).collect();
            order.sort_by(|&left, &right| scores[right].total_cmp(&scores[left]));
            let near = |found: f32, token: usize| (f64::from(found) - (scores[token] - total)).abs() < 1e-3;
            assert!(*token == 65 && near(found.logprob, 65), "{found:?}");
            assert_eq!(found.top.iter().map(|&(token, _)| token as usize).collect::<Vec<_>>(), order[..count]);
            assert!(found.top.iter().all(|&(token, logprob)| near(logprob, token as usize)), "{found:?}");
            tokens.push(*token);
        }
        assert_eq!(reply.only().logprobs.len(), 3);
    }
    assert!(submit(&engine, request(&prompt, 3)).reply().only().logprobs.is_empty());
}

#[test]
fn drafts_do_not_change_the_tokens() {
    let Some(tiny) = Tiny::new(true) else { return };
    let speculative = engine(&tiny, EngineOptions { speculation: 4, slots: 2, ..EngineOptions::default() });
    let plain = engine(&tiny, EngineOptions::default());
    let repeated = [prompt(1, 12), prompt(1, 12), prompt(1, 12)].concat();
    for seed in 0..6 {
        // A bias towards few tokens makes repetitions, and so right drafts, likely.
        let sampling = Sampling {
            do_sample: seed > 0,
            logit_bias: (0..4).map(|token| (token, 20.0)).collect(),
            seed: Some(seed),
            ..Sampling::default()
        };
        let asked = || Request { sampling: sampling.clone(), ..request(&repeated, 60) };
        let wanted = submit(&plain, asked()).reply();
        assert_eq!(submit(&speculative, asked()).reply().only().tokens, wanted.only().tokens, "seed {seed}");
        // Two at once run without drafts until one ends.
        let both = [submit(&speculative, asked()), submit(&speculative, asked())].map(|served| served.reply());
        assert!(both.iter().all(|reply| reply.only().tokens == wanted.only().tokens), "seed {seed}");
    }
    let stats = speculative.stats();
    assert!(stats.drafted_tokens > stats.accepted_tokens && stats.accepted_tokens > 0, "{stats:?}");
    assert!(stats.steps < stats.new_tokens, "{stats:?}");
    assert_eq!(plain.stats().drafted_tokens, 0);
}

#[test]
fn statistics_describe_the_slots() {
    let Some(tiny) = Tiny::new(true) else { return };
    let engine = engine(&tiny, EngineOptions { slots: 2, max_length: Some(100), ..EngineOptions::default() });
    let stats = engine.stats();
    assert_eq!(stats.cache_bytes, (2 * 100 * tiny.model.cache_bytes_per_token()) as u64);
    assert!(stats.slots.len() == 2 && stats.slots.iter().all(|slot| slot.phase == Phase::Idle));
    submit(&engine, request(&prompt(1, 10), 4)).reply();
    let stats = engine.stats();
    assert_eq!((stats.submitted, stats.finished, stats.waiting, stats.new_tokens), (1, 1, 0, 4));
    assert_eq!((stats.slots[0].request, stats.slots[0].tokens), (None, 13));
}

#[test]
fn a_slot_is_free_when_its_client_has_the_end_of_the_answer() {
    const REQUESTS: usize = 200;
    let Some(tiny) = Tiny::new(true) else { return };
    let engine = engine(&tiny, EngineOptions { slots: 1, queue: 0, ..EngineOptions::default() });
    let (sender, ends) = mpsc::channel();
    send_after_the_end(&engine, REQUESTS, &sender);
    drop(sender);
    assert_eq!(ends.iter().collect::<Vec<_>>(), (1..=REQUESTS).rev().collect::<Vec<_>>());
    assert_eq!(engine.stats().rejected, 0);
}

/// Sends a request, and so many altogether: each one as soon as the one before has the end of its answer. Some have no
/// tokens to generate, and some are cancelled.
fn send_after_the_end(engine: &Engine, left: usize, ends: &mpsc::Sender<usize>) {
    let (next, sender) = (engine.clone(), ends.clone());
    let asked = Request { choices: 1 + left % 2, ..request(&prompt(left as u32, 5), left % 3) };
    let mut open = asked.choices;
    let sink = move |event| {
        open -= usize::from(matches!(event, Event::Finished { .. }));
        if matches!(event, Event::Finished { .. }) && open == 0 {
            sender.send(left).unwrap();
            if left > 1 {
                send_after_the_end(&next, left - 1, &sender);
            }
        }
    };
    let ticket = engine.submit(asked, sink).unwrap();
    if !left.is_multiple_of(5) {
        ticket.detach();
    }
}

#[test]
fn a_folder_without_shared_buffers_is_refused() {
    let Some(tiny) = Tiny::new(false) else { return };
    let error = Engine::start(&tiny.model, &tiny.tokenizer, EngineOptions::default()).unwrap_err().to_string();
    assert!(error.contains("shared buffers") && error.contains("\n  help: "), "{error}");
}
