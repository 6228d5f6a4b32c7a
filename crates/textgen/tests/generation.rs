//! Generators compared with plain loops in 64-bit floats, and with themselves: the next tokens depend only on the
//! sequence, not on how it was built.
#![allow(clippy::unwrap_used, clippy::panic, reason = "test helpers may panic")]

mod common;

use proptest::prelude::*;
use testkit::llm::{END, PAD, VOCABULARY};
use textgen::{
    ChatTemplate, Conversation, Error, Finish, Generator, GeneratorOptions, Limits, Message, PromptShape, Sampling,
    TextFinish, generate_text,
};

use common::tiny::{Tiny, steps};
use common::{On, config, load};

#[test]
fn tokens_are_those_of_plain_loops() {
    for shared in [true, false] {
        let Some(tiny) = Tiny::new(shared) else { return };
        for prompt in [&b"a"[..], b"Hello", b"The quick brown fox jumps over the lazy dog"] {
            let prompt: Vec<u32> = prompt.iter().map(|&byte| byte.into()).collect();
            let mut generator = tiny.generator(GeneratorOptions::default());
            generator.append(&prompt).unwrap();
            let wanted = tiny.decoder.scores(&prompt);
            for (found, wanted) in generator.scores().unwrap().iter().zip(wanted) {
                assert!((f64::from(*found) - wanted).abs() < 1e-3, "{found} for {wanted}");
            }
            assert_eq!(steps(&mut generator, 40), tiny.reference(&prompt, 40), "shared: {shared}");
        }
    }
}

#[test]
fn rows_of_a_batch_match_separate_runs() {
    for (shared, shape) in [(true, PromptShape::Exact), (true, PromptShape::MaxLength)] {
        let Some(tiny) = Tiny::new(shared) else { return };
        let prompts: [&[u32]; 3] = [&[72, 101, 108, 108, 111], &[84], &[PAD, 104, 101, PAD]];
        let mut generator = tiny.generator(GeneratorOptions {
            batch: 3,
            max_length: Some(40),
            prompt_shape: shape,
            ..GeneratorOptions::default()
        });
        for _ in 0..2 {
            generator.append_rows(&prompts).unwrap();
            while generator.step().unwrap().is_some() {}
            for (row, prompt) in prompts.iter().enumerate() {
                // The longest prompt determines how many columns are left.
                let wanted = tiny.reference(prompt, 35);
                assert_eq!(&generator.tokens(row)[prompt.len()..], wanted, "row {row}, {shape:?}");
            }
            generator.rewind(0).unwrap();
        }
    }
}

#[derive(Clone, Debug)]
enum Act {
    Append(Vec<u32>),
    Step(usize),
    Rewind(f64),
    Cancel,
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        3 => prop::collection::vec(0..256u32, 1..6).prop_map(Act::Append),
        4 => (1usize..5).prop_map(Act::Step),
        2 => (0.0..1.0).prop_map(Act::Rewind),
        1 => Just(Act::Cancel),
    ]
}

/// Performs the acts, and checks the cache by the tokens that follow.
fn check_acts(tiny: &Tiny, acts: &[Act]) {
    let mut generator = tiny.generator(GeneratorOptions { max_length: Some(200), ..GeneratorOptions::default() });
    let mut tokens: Vec<u32> = Vec::new();
    for act in acts {
        match act {
            Act::Append(more) => {
                if tokens.len() + more.len() > 150 {
                    continue;
                }
                generator.append(more).unwrap();
                tokens.extend(more);
            }
            Act::Step(count) => {
                if tokens.is_empty() || tokens.len() + count > 150 || generator.finish(0).is_some() {
                    continue;
                }
                let new = steps(&mut generator, *count);
                assert_eq!(new, tiny.reference(&tokens, *count));
                tokens.extend(new);
            }
            Act::Rewind(share) => {
                let length = (tokens.len() as f64 * share) as usize;
                generator.rewind(length).unwrap();
                tokens.truncate(length);
            }
            Act::Cancel => {
                if tokens.is_empty() || generator.finish(0).is_some() {
                    continue;
                }
                generator.canceller().cancel();
                assert!(matches!(generator.step(), Err(Error::Cancelled)));
            }
        }
        assert_eq!(generator.tokens(0), tokens);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn the_order_of_appends_does_not_matter(acts in prop::collection::vec(act(), 1..14), shared: bool) {
        let Some(tiny) = Tiny::new(shared) else { return Ok(()) };
        check_acts(&tiny, &acts);
    }
}

#[test]
fn prompts_in_chunks_give_the_same_tokens() {
    let Some(tiny) = Tiny::new(true) else { return };
    let prompt: Vec<u32> = (0..50).map(|index| index * 7 % 256).collect();
    for chunk in [1, 7, 49, 50, 60] {
        let mut config = config(&tiny.model.config().folder, On::Cpu).unwrap();
        config.search.chunk_size = Some(chunk);
        let mut generator = Generator::new(&load(&config).unwrap(), GeneratorOptions::default()).unwrap();
        generator.append(&prompt).unwrap();
        assert_eq!(steps(&mut generator, 8), tiny.reference(&prompt, 8), "chunks of {chunk}");
    }
}

#[test]
fn generators_of_one_model_take_turns_and_threads() {
    let Some(tiny) = Tiny::new(true) else { return };
    std::thread::scope(|scope| {
        for start in 0..4u32 {
            let (tiny, prompt) = (&tiny, [start * 50, 3, 9]);
            scope.spawn(move || {
                let mut generator = tiny.generator(GeneratorOptions::default());
                generator.append(&prompt).unwrap();
                assert_eq!(steps(&mut generator, 30), tiny.reference(&prompt, 30));
            });
        }
    });
}

#[test]
fn a_generator_outlives_its_model() {
    let Some(Tiny { decoder, model, tokenizer, _folder }) = Tiny::new(true) else { return };
    let mut generator = Generator::new(&model, GeneratorOptions::default()).unwrap();
    drop((model, tokenizer, decoder));
    generator.append(&[1, 2, 3]).unwrap();
    assert!(!steps(&mut generator, 3).is_empty());
}

#[test]
fn a_running_prompt_is_cancelled_from_another_thread() {
    let Some(tiny) = Tiny::new(true) else { return };
    let mut generator = tiny.generator(GeneratorOptions::default());
    generator.append(&[1, 2, 3]).unwrap();
    let canceller = generator.canceller();
    let stopped = std::thread::scope(|scope| {
        scope.spawn(move || canceller.cancel());
        // Whenever the cancellation arrives, the generation stops once and can then continue. A thread that starts
        // late may find it finished.
        loop {
            match generator.step() {
                Err(Error::Cancelled) => break true,
                step => drop(step.unwrap()),
            }
            if generator.finish(0).is_some() {
                break false;
            }
        }
    });
    let tokens = generator.tokens(0).to_vec();
    if stopped {
        assert_eq!(steps(&mut generator, 4), tiny.reference(&tokens, 4));
    }
}

#[test]
fn finish_reasons_are_distinguished() {
    let Some(tiny) = Tiny::new(true) else { return };
    let mut generator = tiny.generator(GeneratorOptions { max_length: Some(8), ..GeneratorOptions::default() });
    generator.append(&[65, 66]).unwrap();
    assert_eq!(steps(&mut generator, 100).len(), 6);
    assert_eq!(generator.finish(0), Some(Finish::MaxLength));
    assert!(generator.step().unwrap().is_none());
    assert!(generator.append(&[1]).unwrap_err().to_string().contains("max_length"));

    let sampling = Sampling { logit_bias: vec![(END[1], 1000.0)], min_length: 5, ..Sampling::default() };
    let options = GeneratorOptions { sampling: Some(sampling), ..GeneratorOptions::default() };
    let mut generator = tiny.generator(options);
    generator.append(&[65, 66]).unwrap();
    let new = steps(&mut generator, 100);
    assert_eq!((new.len(), new[3], generator.finish(0)), (4, END[1], Some(Finish::EndToken)), "{new:?}");
    // The sequence continues after more tokens are appended; the end token stays part of it.
    generator.append(&[67]).unwrap();
    assert_eq!(generator.tokens(0).len(), 7);
    assert!(generator.step().unwrap().is_some());
}

#[test]
fn invalid_requests_are_rejected_with_a_message() {
    let Some(tiny) = Tiny::new(true) else { return };
    let refused = |options: GeneratorOptions| Generator::new(&tiny.model, options).unwrap_err().to_string();
    let sampling = |sampling: Sampling| GeneratorOptions { sampling: Some(sampling), ..GeneratorOptions::default() };
    let cases = [
        (refused(GeneratorOptions { batch: 33, ..GeneratorOptions::default() }), "batch of 33"),
        (refused(GeneratorOptions { max_length: Some(0), ..GeneratorOptions::default() }), "max_length is 0"),
        (refused(GeneratorOptions { max_length: Some(257), ..GeneratorOptions::default() }), "max_length is 257"),
        (refused(GeneratorOptions { end_tokens: vec![999], ..GeneratorOptions::default() }), "token 999"),
        (refused(sampling(Sampling { top_k: 500, ..Sampling::default() })), "top_k is 500"),
        (refused(sampling(Sampling { temperature: f32::NAN, ..Sampling::default() })), "temperature is NaN"),
        (refused(sampling(Sampling { logit_bias: vec![(999, 1.0)], ..Sampling::default() })), "token 999"),
    ];
    for (error, wanted) in cases {
        assert!(error.contains(wanted) && error.contains("\n  help: "), "{wanted}: {error}");
    }
    let mut generator = tiny.generator(GeneratorOptions::default());
    assert!(generator.step().unwrap_err().to_string().contains("no prompt"));
    assert!(generator.append(&[VOCABULARY as u32]).unwrap_err().to_string().contains("not in the vocabulary"));
    assert!(generator.append(&[0; 257]).unwrap_err().to_string().contains("max_length"));
    assert!(generator.rewind(1).unwrap_err().to_string().contains("cannot rewind"));
    let mut batch = tiny.generator(GeneratorOptions { batch: 2, ..GeneratorOptions::default() });
    assert!(batch.append(&[1]).unwrap_err().to_string().contains("1 rows"));
    assert!(batch.append_rows(&[&[1], &[]]).unwrap_err().to_string().contains("empty"));
    batch.append_rows(&[&[1], &[1, 2]]).unwrap();
    assert!(batch.append_rows(&[&[1], &[1]]).unwrap_err().to_string().contains("only one append"));
    assert!(batch.rewind(1).unwrap_err().to_string().contains("batch"));
}

#[test]
fn a_seed_gives_one_text_and_another_seed_another() {
    let Some(tiny) = Tiny::new(true) else { return };
    let text = |seed: u32| {
        let sampling = Sampling { do_sample: true, temperature: 2.0, seed: Some(seed), ..Sampling::default() };
        let mut generator =
            tiny.generator(GeneratorOptions { sampling: Some(sampling), ..GeneratorOptions::default() });
        generator.append(&[65]).unwrap();
        steps(&mut generator, 20)
    };
    assert_eq!(text(7), text(7));
    assert_ne!(text(7), text(8));
}

#[test]
fn text_is_delivered_in_whole_characters() {
    let Some(tiny) = Tiny::new(true) else { return };
    let said = "aé漢字 🦀e\u{301} end";
    let tokens = tiny.tokenizer.encode(said).unwrap();
    assert_eq!(tokens.len(), said.len(), "a token is a byte");
    let mut stream = tiny.tokenizer.stream();
    let pieces: Vec<String> = tokens.iter().map(|&token| stream.push(token).unwrap()).collect();
    assert_eq!(pieces.concat() + &stream.finish().unwrap(), said);
    assert!(pieces.iter().all(|piece| !piece.contains('\u{fffd}')), "{pieces:?}");
    // A character that is never completed is shown as broken, and does not hold up the following text.
    let broken: Vec<u32> = "🦀".bytes().take(2).chain(*b"ok then").map(u32::from).collect();
    let mut shown: String = broken.iter().map(|&token| stream.push(token).unwrap()).collect();
    shown += &stream.finish().unwrap();
    assert!(shown.starts_with('\u{fffd}') && shown.ends_with("ok then"), "{shown:?}");
}

#[test]
fn stop_strings_and_limits_end_a_text() {
    let Some(tiny) = Tiny::new(true) else { return };
    let generate = |limits: &Limits| {
        let mut generator = tiny.generator(GeneratorOptions::default());
        generator.append(&[72, 101, 108, 108, 111]).unwrap();
        let mut shown = String::new();
        let answer = generate_text(&mut generator, &tiny.tokenizer, limits, |step| shown.push_str(step.text)).unwrap();
        assert_eq!(shown, answer.text);
        answer
    };
    let free = generate(&Limits { max_new_tokens: Some(30), ..Limits::default() });
    assert_eq!((free.tokens.len(), free.finish), (30, TextFinish::MaxNewTokens));
    assert_eq!(free.text, tiny.tokenizer.decode(&free.tokens).unwrap());
    assert_eq!(free.prompt_tokens, 5);
    let middle: String = free.text.chars().skip(5).take(3).collect();
    let stopped = generate(&Limits { max_new_tokens: Some(30), stops: vec![middle.clone(), "\u{1}never".into()] });
    assert_eq!(stopped.finish, TextFinish::StopString);
    assert_eq!(Some(stopped.text.as_str()), free.text.split_once(&middle).map(|(before, _)| before));
    let none = generate(&Limits { max_new_tokens: Some(0), ..Limits::default() });
    assert_eq!((none.tokens.len(), none.text.as_str()), (0, ""));
}

#[test]
fn a_conversation_is_its_whole_prompt_at_every_turn() {
    let Some(tiny) = Tiny::new(true) else { return };
    let template = || ChatTemplate::from_folder(tiny.model.config()).unwrap();
    let limits = Limits { max_new_tokens: Some(12), ..Limits::default() };
    let generator = tiny.generator(GeneratorOptions::default());
    let mut conversation = Conversation::new(generator, tiny.tokenizer.clone(), template(), Some("Be kind".into()));
    let mut said = vec![Message::new("system", "Be kind")];
    for turn in ["Hi", "And now?"] {
        let answer = conversation.ask(turn, &limits, |_| {}).unwrap();
        said.push(Message::new("user", turn));
        let prompt = tiny.tokenizer.encode(&template().render(&said, true).unwrap()).unwrap();
        assert_eq!(answer.tokens, tiny.reference(&prompt, 12), "{turn}");
        said.push(Message::new("assistant", answer.text));
    }
    assert_eq!(conversation.messages(), said);
    let long = "x".repeat(300);
    assert!(conversation.ask(&long, &limits, |_| {}).unwrap_err().to_string().contains("too many to add an answer"));
    assert_eq!(conversation.messages(), said, "a rejected message must not stay in the history");
    conversation.reset().unwrap();
    assert_eq!(conversation.messages(), &said[..1]);
    assert!(conversation.ask("Hi", &limits, |_| {}).is_ok());
}
