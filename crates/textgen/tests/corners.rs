//! Corner cases: texts that end inside characters, rows that end at different steps, full sequences, cancellation at
//! any moment.
#![allow(clippy::unwrap_used, clippy::panic, reason = "test helpers may panic")]

mod common;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use proptest::prelude::*;
use testkit::llm::{END, PAD, TinyDecoder, VOCABULARY};
use textgen::{
    Error, Finish, Generator, GeneratorOptions, Limits, PromptShape, Result, Sampling, TextFinish, TokenFilter,
    generate_text,
};

use common::tiny::{Tiny, steps};

/// Allows one given token after the other, then end tokens.
#[derive(Debug)]
struct Script {
    tokens: std::vec::IntoIter<u32>,
}

impl TokenFilter for Script {
    fn filter(&mut self, scores: &mut [f32]) -> Result<()> {
        let next = self.tokens.as_slice().first().copied().unwrap_or(END[0]);
        (0u32..).zip(scores).filter(|&(token, _)| token != next).for_each(|(_, score)| *score = f32::MIN);
        Ok(())
    }

    fn accept(&mut self, token: u32) -> Result<()> {
        assert_eq!(self.tokens.next().unwrap_or(END[0]), token);
        Ok(())
    }
}

/// A generator that will produce these tokens.
fn saying(tiny: &Tiny, tokens: impl IntoIterator<Item = u32>) -> Generator {
    let mut generator = tiny.generator(GeneratorOptions::default());
    generator.append(&[65]).unwrap();
    let tokens: Vec<u32> = tokens.into_iter().collect();
    generator.constrain(Box::new(Script { tokens: tokens.into_iter() })).unwrap();
    generator
}

fn bytes(text: &str) -> impl Iterator<Item = u32> {
    text.bytes().map(u32::from)
}

fn limits(max_new_tokens: Option<usize>, stops: &[&str]) -> Limits {
    Limits { max_new_tokens, stops: stops.iter().map(|&stop| stop.to_owned()).collect() }
}

#[test]
fn a_stop_string_of_many_tokens_begins_and_ends_inside_of_characters() {
    let Some(tiny) = Tiny::new(true) else { return };
    let say = |text: &str, limits: &Limits| {
        let mut shown = Vec::new();
        let mut generator = saying(&tiny, bytes(text));
        let answer = generate_text(&mut generator, &tiny.tokenizer, limits, |step| shown.push(step.text.to_owned()));
        let answer = answer.unwrap();
        assert_eq!(shown.concat(), answer.text);
        (answer.text, answer.tokens.len(), answer.finish)
    };
    let stopped = |text: &str, tokens: usize| (text.to_owned(), tokens, TextFinish::StopString);
    assert_eq!(say("ab漢字END", &limits(None, &["漢字E"])), stopped("ab", 9));
    assert_eq!(say("ab漢字END", &limits(None, &["字"])), stopped("ab漢", 8));
    // A false start overlaps the real stop string, of the same or another one.
    assert_eq!(say("xaaab", &limits(None, &["aab"])), stopped("xa", 5));
    assert_eq!(say("é\u{301}é", &limits(None, &["\u{301}é", "é\u{301}\u{301}"])), stopped("é", 6));
    // A limit inside a character shows the incomplete character, and the text held back for a stop string.
    let cut = say("ab漢字", &limits(Some(4), &["b漢字"]));
    assert_eq!(cut, ("ab\u{fffd}".to_owned(), 4, TextFinish::MaxNewTokens));
    // The limit and the stop string are reached with the same token.
    assert_eq!(say("abc", &limits(Some(2), &["b"])), stopped("a", 2));
    assert_eq!(say("abc", &limits(None, &[""])), ("abc".to_owned(), 4, TextFinish::EndToken));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn texts_end_before_the_first_stop_string(
        text in "[ab漢é🦀 ]{0,24}", stops in prop::collection::vec("[ab漢é🦀]{1,3}", 0..3), specials in 0usize..6,
    ) {
        let Some(tiny) = Tiny::new(true) else { return Ok(()) };
        // Special tokens have no text, and do not count while waiting for the rest of a character.
        let tokens = text.chars().flat_map(|letter| {
            let letter = letter.to_string();
            bytes(&letter).chain(std::iter::repeat_n(PAD, specials)).collect::<Vec<_>>()
        });
        let stops: Vec<&str> = stops.iter().map(String::as_str).collect();
        let ends = text.char_indices().map(|(at, letter)| &text[..at + letter.len_utf8()]);
        let found = ends.into_iter().find_map(|seen| stops.iter().filter_map(|stop| seen.find(stop)).min());
        let mut generator = saying(&tiny, tokens);
        let answer = generate_text(&mut generator, &tiny.tokenizer, &limits(None, &stops), |_| {}).unwrap();
        prop_assert_eq!(&answer.text, &text[..found.unwrap_or(text.len())]);
        let wanted = if found.is_some() { TextFinish::StopString } else { TextFinish::EndToken };
        prop_assert_eq!(answer.finish, wanted);
    }
}

#[test]
fn bytes_that_are_not_characters_leave_the_text_around_them_intact() {
    let Some(tiny) = Tiny::new(true) else { return };
    let before_and_after = [&b"\xff\xff\xff"[..], "漢".as_bytes(), b"\xe6\xe6", "é".as_bytes(), b"\xf0\x9f"].concat();
    let mut stream = tiny.tokenizer.stream();
    let mut shown: String = before_and_after.iter().map(|&byte| stream.push(byte.into()).unwrap()).collect();
    shown += &stream.finish().unwrap();
    assert_eq!(shown, String::from_utf8_lossy(&before_and_after));
}

#[test]
fn rewinding_into_a_prompt_forgets_its_rest() {
    let prompt: Vec<u32> = (0..30).map(|index| index * 11 % 256).collect();
    for (shared, prompt_shape) in
        [(true, PromptShape::Exact), (true, PromptShape::MaxLength), (false, PromptShape::Exact)]
    {
        let Some(tiny) = Tiny::new(shared) else { return };
        let mut generator = tiny.generator(GeneratorOptions { prompt_shape, ..GeneratorOptions::default() });
        generator.append(&prompt).unwrap();
        assert_eq!(steps(&mut generator, 3), tiny.reference(&prompt, 3));
        // With and without more tokens; to the same length again; and before anything ran again.
        for length in [30, 17, 17, 9, 1] {
            generator.rewind(length).unwrap();
            assert_eq!(steps(&mut generator, 2), tiny.reference(&prompt[..length], 2), "{length}, {prompt_shape:?}");
            generator.rewind(length).unwrap();
            generator.append(&[7]).unwrap();
            generator.rewind(length).unwrap();
            generator.append(&[9, 8]).unwrap();
            let sequence = [&prompt[..length], &[9, 8]].concat();
            assert_eq!(steps(&mut generator, 2), tiny.reference(&sequence, 2), "{length}, {prompt_shape:?}");
        }
    }
}

#[test]
fn a_prompt_that_fills_the_sequence_has_scores_and_no_token() {
    let prompt: Vec<u32> = (0..20).map(|index| index * 13 % 256).collect();
    for prompt_shape in [PromptShape::Exact, PromptShape::MaxLength] {
        let Some(tiny) = Tiny::new(true) else { return };
        let options = GeneratorOptions { max_length: Some(20), prompt_shape, ..GeneratorOptions::default() };
        let mut generator = tiny.generator(options);
        generator.append(&prompt).unwrap();
        let answer = generate_text(&mut generator, &tiny.tokenizer, &Limits::default(), |_| {}).unwrap();
        assert_eq!((answer.tokens.len(), answer.finish), (0, TextFinish::MaxLength));
        let wanted = tiny.decoder.scores(&prompt);
        let found = generator.scores().unwrap();
        assert!(found.iter().zip(&wanted).all(|(&found, wanted)| (f64::from(found) - wanted).abs() < 1e-3));
        generator.rewind(19).unwrap();
        assert_eq!(steps(&mut generator, 5), tiny.reference(&prompt[..19], 1));
        assert_eq!((generator.finish(0), generator.room()), (Some(Finish::MaxLength), 0));
    }
}

#[test]
fn a_finished_text_repeats_its_finish_reason() {
    let Some(tiny) = Tiny::new(true) else { return };
    let mut generator = saying(&tiny, bytes("ab"));
    for (tokens, text) in [(3, "ab"), (0, "")] {
        let answer = generate_text(&mut generator, &tiny.tokenizer, &Limits::default(), |_| {}).unwrap();
        assert_eq!((answer.tokens.len(), answer.text.as_str()), (tokens, text));
        assert_eq!(answer.finish, TextFinish::EndToken);
    }
}

#[test]
fn rows_end_independently() {
    let prompts: [&[u32]; 3] = [&[72, 101, 108, 108, 111, 33], &[84], &[10, 20, 30, PAD]];
    for shared in [true, false] {
        let Some(tiny) = Tiny::new(shared) else { return };
        let free: Vec<Vec<u32>> = prompts.iter().map(|prompt| tiny.reference(prompt, 20)).collect();
        let end_tokens = vec![free[0][1], free[1][6], free[2][11]];
        let is_end = |token: &u32| end_tokens.contains(token) || END.contains(token);
        let wanted: Vec<&[u32]> =
            free.iter().map(|row| &row[..row.iter().position(is_end).map_or(row.len(), |at| at + 1)]).collect();
        let lengths: Vec<usize> = wanted.iter().map(|row| row.len()).collect();
        assert!(lengths[0] != lengths[1] && lengths[1] != lengths[2], "{lengths:?}");
        let mut generator = tiny.generator(GeneratorOptions {
            batch: 3,
            end_tokens: end_tokens.clone(),
            ..GeneratorOptions::default()
        });
        generator.append_rows(&prompts).unwrap();
        let mut step = 0;
        while let Some(newest) = generator.step().unwrap().map(<[_]>::to_vec) {
            let expected: Vec<Option<u32>> = wanted.iter().map(|row| row.get(step).copied()).collect();
            assert_eq!(newest, expected, "step {step}, shared: {shared}");
            step += 1;
        }
        assert_eq!(Some(&step), lengths.iter().max());
        assert!((0..3).all(|row| generator.finish(row) == Some(Finish::EndToken)));
    }
}

#[test]
fn a_bias_against_all_but_one_token_selects_that_token() {
    let Some(tiny) = Tiny::new(true) else { return };
    let others = (0..VOCABULARY as u32).filter(|&token| token != 77);
    let logit_bias: Vec<(u32, f32)> = others.map(|token| (token, -1e6)).collect();
    for do_sample in [false, true] {
        for (top_k, top_p) in [(0, 1.0), (0, 0.9), (50, 1.0), (50, 0.5)] {
            let sampling = Sampling { do_sample, top_k, top_p, logit_bias: logit_bias.clone(), ..Sampling::default() };
            let mut generator =
                tiny.generator(GeneratorOptions { sampling: Some(sampling), ..GeneratorOptions::default() });
            generator.append(&[1, 2]).unwrap();
            assert_eq!(steps(&mut generator, 5), [77; 5], "{do_sample}, {top_k}, {top_p}");
        }
    }
    for bias in [f32::NEG_INFINITY, f32::INFINITY, f32::NAN] {
        let sampling = Sampling { logit_bias: vec![(3, bias)], ..Sampling::default() };
        let options = GeneratorOptions { sampling: Some(sampling), ..GeneratorOptions::default() };
        assert!(Generator::new(&tiny.model, options).unwrap_err().to_string().contains("a logit bias is"));
    }
}

#[test]
fn penalties_are_those_of_plain_loops_above_and_below_zero() {
    let Some(tiny) = Tiny::new(true) else { return };
    let sampling =
        Sampling { repetition_penalty: 1.7, presence_penalty: 0.4, frequency_penalty: 0.3, ..Sampling::default() };
    let prompt = [72, 101, 108, 108, 111];
    let mut generator = tiny.generator(GeneratorOptions { sampling: Some(sampling), ..GeneratorOptions::default() });
    generator.append(&prompt).unwrap();
    let new = steps(&mut generator, 60);
    let (mut sequence, mut below_zero) = (prompt.to_vec(), 0);
    for &token in &new {
        let mut scores = tiny.decoder.scores(&sequence);
        for (other, score) in scores.iter_mut().enumerate() {
            let count = |tokens: &[u32]| tokens.iter().filter(|&&token| token as usize == other).count() as f64;
            if count(&sequence) > 0.0 {
                below_zero += usize::from(*score < 0.0);
                *score *= if *score < 0.0 { 1.7 } else { 1.0 / 1.7 };
            }
            let generated = count(&sequence[prompt.len()..]);
            *score -= 0.4 * f64::from(u8::from(generated > 0.0)) + 0.3 * generated;
        }
        let best = (0..VOCABULARY).max_by(|&a, &b| scores[a].total_cmp(&scores[b])).unwrap();
        assert_eq!(token, best as u32, "after {sequence:?}");
        sequence.push(token);
    }
    assert!(new.len() > 3 && below_zero > 20, "{} tokens, {below_zero} scores", new.len());
}

#[test]
fn scores_of_sixteen_bits_choose_the_same_tokens() {
    let Some(tiny) = Tiny::of(TinyDecoder::new(5).half_logits(), true) else { return };
    for prompt in [&[65u32, 66][..], &[9, 200, 31, 7, 7]] {
        let mut generator = tiny.generator(GeneratorOptions::default());
        generator.append(prompt).unwrap();
        let wanted = tiny.decoder.scores(prompt);
        for (&found, wanted) in generator.scores().unwrap().iter().zip(&wanted) {
            assert!((f64::from(found) - wanted).abs() <= 1e-3 + wanted.abs() / 1024.0, "{found} for {wanted}");
        }
        for _ in 0..10 {
            let best = generator.scores().unwrap().iter().copied().fold(f32::MIN, f32::max);
            let first = generator.scores().unwrap().iter().position(|&score| score == best).unwrap();
            let token = generator.step().unwrap().unwrap()[0];
            assert_eq!(token, Some(first as u32));
        }
    }
}

/// Tells the scope's thread to stop, even if an assertion fails.
struct Done<'a>(&'a AtomicBool);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn cancelling_at_any_moment_works_without_side_effects() {
    let Some(tiny) = Tiny::new(true) else { return };
    let wanted = tiny.reference(&[1, 2, 3], 3);
    let mut generator = tiny.generator(GeneratorOptions::default());
    let (canceller, done) = (generator.canceller(), AtomicBool::new(false));
    let (mut tokens, mut cancelled) = (0, 0);
    std::thread::scope(|scope| {
        let _done = Done(&done);
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                canceller.cancel();
                std::thread::yield_now();
            }
        });
        let start = Instant::now();
        while !canceller.is_cancelled() {
            assert!(start.elapsed() < Duration::from_secs(60), "the other thread did not start");
            std::thread::yield_now();
        }
        while tokens < 100 && cancelled < 20_000 {
            generator.rewind(0).unwrap();
            generator.append(&[1, 2, 3]).unwrap();
            for &wanted in &wanted {
                // Both steps and scores can be cancelled.
                let stepped = match cancelled % 2 {
                    0 => {
                        generator.scores().map(|_| ()).and_then(|()| generator.step().map(|new| new.map(<[_]>::to_vec)))
                    }
                    _ => generator.step().map(|new| new.map(<[_]>::to_vec)),
                };
                match stepped {
                    Ok(new) => assert_eq!(new.unwrap(), [Some(wanted)]),
                    Err(Error::Cancelled) => {
                        cancelled += 1;
                        break;
                    }
                    Err(other) => panic!("after {cancelled}: {other}"),
                }
                tokens += 1;
            }
        }
    });
    assert!(cancelled > 0);
    generator.canceller().reset();
    generator.rewind(0).unwrap();
    generator.append(&[1, 2, 3]).unwrap();
    assert_eq!(steps(&mut generator, 3), wanted);
}

#[test]
fn a_filter_that_fails_leaves_the_sequence_as_it_was() {
    #[derive(Debug)]
    struct Refusing;
    impl TokenFilter for Refusing {
        fn filter(&mut self, _scores: &mut [f32]) -> Result<()> {
            Err(Error::Request { problem: "nothing may come".to_owned(), help: "ask for something else".to_owned() })
        }
        fn accept(&mut self, _token: u32) -> Result<()> {
            Ok(())
        }
    }
    let Some(tiny) = Tiny::new(true) else { return };
    let mut generator = tiny.generator(GeneratorOptions::default());
    generator.append(&[1, 2]).unwrap();
    generator.constrain(Box::new(Refusing)).unwrap();
    assert!(generator.step().unwrap_err().to_string().contains("nothing may come"));
    assert_eq!(generator.tokens(0), [1, 2]);
    generator.append(&[3]).unwrap();
    assert_eq!(steps(&mut generator, 4), tiny.reference(&[1, 2, 3], 4));
}
