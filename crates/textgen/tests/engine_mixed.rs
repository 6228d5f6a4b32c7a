//! Mixed requests under random arrivals: greedy and seeded, with several choices, stop strings, shared beginnings,
//! cancels and clients that go away. Each gets the tokens that a generator produces for it alone, on ONNX Runtime's CPU
//! provider and on our provider's host device. A few also run on MIGraphX's stand-in, which needs static shapes.
#![allow(clippy::unwrap_used, clippy::panic, reason = "test helpers may panic")]

mod common;

use std::path::PathBuf;

use libtest_mimic::{Arguments, Failed, Trial};
use serde_json::Value;
use tempfile::TempDir;
use testkit::llm::TinyDecoder;
use textgen::engine::{Engine, EngineOptions, Request, Stats};
use textgen::{
    Attached, Generator, GeneratorOptions, Limits, Model, PromptShape, Sampling, TextFinish, Tokenizer, generate_text,
};

use common::served::{Reply, Served, submit};
use common::{On, config, folder, goldens, load, on_the_host_driver};

/// Golden models with other number formats, token ids, positions and attention.
const MODELS: [&str; 6] =
    ["nano-fp32", "nano-fp16", "nano-int4", "nano-int4-io16", "nano-fp32-int32ids-rope", "nano-fp32-window8"];

/// Requests to the model that the tests write themselves, and to each golden model.
const REQUESTS: usize = 200;
const GOLDEN_REQUESTS: usize = 40;

/// Tokens in a block, for PagedAttention, and so few blocks that running sequences lose theirs: one and a half of the
/// longest sequence.
const BLOCK: usize = 16;
const FEW_BLOCKS: usize = 12;

/// Requests to MIGraphX, which is slow without a GPU.
const MIGRAPHX_REQUESTS: usize = 6;

fn main() {
    on_the_host_driver();
    let arguments = Arguments::from_args();
    let mut trials = Vec::new();
    match testkit::place::onnxruntime() {
        Ok(_) => {
            trials.extend([On::Cpu, On::Device].map(|on| tiny(on, REQUESTS, Start::Cold)));
            trials.extend([On::Cpu, On::Device].map(probabilities));
            trials.push(tiny(On::Device, REQUESTS, Start::Warm));
            trials.push(paged(REQUESTS, Some(FEW_BLOCKS), Start::Cold));
            trials.push(paged(GOLDEN_REQUESTS, None, Start::Warm));
            trials.push(tiny(On::Migraphx, MIGRAPHX_REQUESTS, Start::Cold));
            trials.push(Trial::test("scores_of_greedy_requests_stay_on_the_device", || {
                greedy().map_err(|error| Failed::from(format!("{error:#}")))
            }));
            trials.push(Trial::test("requests_make_no_plans_after_the_warm_up", || {
                warm_up().map_err(|error| Failed::from(format!("{error:#}")))
            }));
            trials.push(Trial::test("drafts_on_the_device", || {
                drafts().map_err(|error| Failed::from(format!("{error:#}")))
            }));
        }
        Err(reason) => eprintln!("skipped: {reason}"),
    }
    match goldens() {
        Ok(goldens) => {
            let models = goldens["models"].as_array().unwrap().iter();
            let chosen = models.filter(|model| MODELS.contains(&model["name"].as_str().unwrap()));
            trials.extend(chosen.flat_map(|model| [On::Cpu, On::Device].map(|on| golden(model.clone(), on))));
        }
        Err(reason) => eprintln!("skipped: {reason}"),
    }
    libtest_mimic::run(&arguments, trials).exit();
}

/// Whether runs are prepared before the first request. Prompts are padded then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Start {
    Cold,
    Warm,
}

fn tiny(on: On, count: usize, start: Start) -> Trial {
    trial(format!("mixed_requests_on_{on:?}_{start:?}"), on, count, start, || {
        let folder = tempfile::tempdir()?;
        TinyDecoder::new(5).write(folder.path(), true)?;
        Ok((folder.path().to_path_buf(), Some(folder)))
    })
}

/// With PagedAttention, which ONNX Runtime's CPU provider does not have.
fn paged(count: usize, blocks: Option<usize>, start: Start) -> Trial {
    let name =
        format!("mixed_requests_on_{}_blocks_{start:?}", blocks.map_or("all".to_owned(), |blocks| blocks.to_string()));
    let run = move || -> anyhow::Result<()> {
        let folder = tempfile::tempdir()?;
        let decoder = TinyDecoder::new(5).paged(BLOCK);
        let decoder = if start == Start::Warm { decoder.pruned() } else { decoder };
        decoder.write(folder.path(), true)?;
        let model = load(&config(folder.path(), On::Device)?)?;
        let tokenizer = Tokenizer::from_folder(model.config())?;
        check(&model, &tokenizer, count, start, Cache::Blocks(blocks));
        Ok(())
    };
    Trial::test(name.to_lowercase(), move || run().map_err(|error| Failed::from(format!("{error:#}"))))
}

/// Greedy requests read no scores of steps, unless a token is not allowed yet.
fn greedy() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    TinyDecoder::new(5).write(folder.path(), true)?;
    let model = load(&config(folder.path(), On::Device)?)?;
    let tokenizer = Tokenizer::from_folder(model.config())?;
    let engine = Engine::start(&model, &tokenizer, EngineOptions::default())?;
    let request =
        |seed: u32| Request { max_new_tokens: Some(20), ..Request::new((1..3 + seed).map(|at| at * 7).collect()) };
    let served: Vec<Served> = (0..5).map(|seed| submit(&engine, request(seed))).collect();
    served.into_iter().for_each(|served| assert!(served.reply().end.is_ok()));
    let stats = engine.stats();
    // The first token of each request comes from the run of its prompt.
    assert_eq!(stats.chosen_on_device, stats.new_tokens - 5, "{stats:?}");
    let sampling = Sampling { do_sample: true, seed: Some(3), ..Sampling::default() };
    submit(&engine, Request { sampling, ..request(5) }).reply();
    assert_eq!(engine.stats().chosen_on_device, stats.chosen_on_device);
    Ok(())
}

/// After the warm-up, neither a step of any size nor a prompt of any length makes a plan, and slots are still empty.
fn warm_up() -> anyhow::Result<()> {
    const CHUNK: usize = 40;
    let folder = tempfile::tempdir()?;
    TinyDecoder::new(5).write(folder.path(), true)?;
    let sampling = Sampling { min_length: 1000, ..Sampling::default() };
    let request = |seed: u32| Request {
        max_new_tokens: Some(6),
        sampling: sampling.clone(),
        ..Request::new((0..1 + seed * 17).map(|at| (at * 31 + seed * 7) % 256).collect())
    };
    let tokens = [false, true].map(|is_warm| {
        let report = folder.path().join(format!("{is_warm}.jsonl"));
        let mut config = config(folder.path(), On::Device).unwrap();
        config.session_entries.push(("ep.hip.explain_file".to_owned(), report.display().to_string()));
        let model = load(&config).unwrap();
        let options = EngineOptions {
            slots: 6,
            prompt_chunk: CHUNK,
            prefix_cache: false,
            warm_up: Some(is_warm),
            ..EngineOptions::default()
        };
        // The report has a line with steps for each plan, of the decoder and of the model that finds the best tokens.
        let plans = || std::fs::read_to_string(&report).unwrap().matches("\"steps\":").count();
        let loaded = plans();
        let engine = Engine::start(&model, &Tokenizer::from_folder(&config).unwrap(), options).unwrap();
        let (started, stats) = (plans(), engine.stats());
        assert!(stats.slots.iter().all(|slot| slot.tokens == 0) && stats.steps == 0, "{stats:?}");
        let mut replies = Vec::new();
        for count in [1, 2, 4, 6] {
            let served: Vec<Served> = (0..count).map(|seed| submit(&engine, request(seed))).collect();
            replies.extend(served.into_iter().map(|served| served.reply().only().tokens.clone()));
        }
        println!("{loaded} plans after loading, {started} when the engine started, {} after the requests", plans());
        assert_eq!((started > loaded, plans() > started), (is_warm, !is_warm));
        replies
    });
    assert_eq!(tokens[0], tokens[1]);
    Ok(())
}

/// Drafted tokens are verified in one run, if the provider returns the scores of all tokens.
fn drafts() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    TinyDecoder::new(5).write(folder.path(), true)?;
    let mut config = config(folder.path(), On::Device)?;
    let options = EngineOptions { speculation: 4, ..EngineOptions::default() };
    let tokenizer = Tokenizer::from_folder(&config)?;
    let error = Engine::start(&load(&config)?, &tokenizer, options.clone()).unwrap_err().to_string();
    assert!(error.contains("ep.hip.last_logits=off"), "{error}");
    config.session_entries.push(("ep.hip.last_logits".to_owned(), "off".to_owned()));
    let model = load(&config)?;
    let prompt = [1, 2, 3, 4, 5, 6].repeat(4);
    let sampling = Sampling { logit_bias: (0..4).map(|token| (token, 20.0)).collect(), ..Sampling::default() };
    let options = [EngineOptions::default(), options];
    let [plain, drafted] = options.map(|options| Engine::start(&model, &tokenizer, options).unwrap());
    let request = || Request { sampling: sampling.clone(), max_new_tokens: Some(60), ..Request::new(prompt.clone()) };
    let wanted = submit(&plain, request()).reply();
    assert_eq!(submit(&drafted, request()).reply().only().tokens, wanted.only().tokens);
    let stats = drafted.stats();
    assert!(stats.accepted_tokens > 0 && stats.steps < plain.stats().steps, "{stats:?}");
    Ok(())
}

/// How much a batch may change the logarithm of a probability: other rows change the order of sums at most.
const ROUNDING: f32 = 1e-4;

fn probabilities(on: On) -> Trial {
    Trial::test(format!("probabilities_do_not_depend_on_the_batch_on_{on:?}").to_lowercase(), move || {
        compare_probabilities(on).map_err(|error| Failed::from(format!("{error:#}")))
    })
}

/// Compares the probabilities of requests that run together with those of the same requests one by one.
fn compare_probabilities(on: On) -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    TinyDecoder::new(5).write(folder.path(), true)?;
    let model = load(&config(folder.path(), on)?)?;
    let tokenizer = Tokenizer::from_folder(model.config())?;
    let options = EngineOptions { slots: 8, prefix_cache: false, ..EngineOptions::default() };
    let engine = Engine::start(&model, &tokenizer, options)?;
    let request = |seed: u32| Request {
        max_new_tokens: Some(40),
        top_logprobs: Some(8),
        sampling: Sampling { do_sample: true, seed: Some(seed), ..Sampling::default() },
        ..Request::new((0..1 + seed * 9).map(|at| (at * 31 + seed) % 256).collect())
    };
    let together: Vec<Served> = (0..8).map(|seed| submit(&engine, request(seed))).collect();
    let mut most: f32 = 0.0;
    for (seed, together) in (0..).zip(together) {
        let (together, alone) = (together.reply(), submit(&engine, request(seed)).reply());
        assert_eq!(together.only().tokens, alone.only().tokens, "seed {seed}");
        for (left, right) in together.only().logprobs.iter().zip(&alone.only().logprobs) {
            let pairs = left.top.iter().zip(&right.top);
            assert!(pairs.clone().all(|(left, right)| left.0 == right.0), "{left:?} and {right:?}");
            let differences = pairs.map(|(left, right)| (left.1 - right.1).abs());
            most = differences.fold(most.max((left.logprob - right.logprob).abs()), f32::max);
        }
    }
    println!("largest difference: {most:e}");
    assert!(most <= ROUNDING, "{most}");
    Ok(())
}

fn golden(golden: Value, on: On) -> Trial {
    let name = format!("{}_on_{on:?}", golden["name"].as_str().unwrap());
    let start = if on == On::Device { Start::Warm } else { Start::Cold };
    trial(name, on, GOLDEN_REQUESTS, start, move || Ok((folder(&golden)?, None)))
}

/// A model folder, and what deletes it.
type Folder = (PathBuf, Option<TempDir>);

fn trial(
    name: String,
    on: On,
    count: usize,
    start: Start,
    folder: impl FnOnce() -> anyhow::Result<Folder> + Send + 'static,
) -> Trial {
    let run = move || -> anyhow::Result<()> {
        let (path, _folder) = folder()?;
        let model = load(&config(&path, on)?)?;
        let tokenizer = Tokenizer::from_folder(model.config())?;
        check(&model, &tokenizer, count, start, Cache::Rows);
        Ok(())
    };
    Trial::test(name.to_lowercase(), move || run().map_err(|error| Failed::from(format!("{error:#}"))))
}

/// Random numbers by splitmix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, most: usize) -> usize {
        (self.next() % most as u64) as usize
    }

    fn is(&mut self, one_in: usize) -> bool {
        self.below(one_in) == 0
    }
}

/// What is asked, and how the client behaves.
struct Plan {
    prompt: Vec<u32>,
    max_new_tokens: usize,
    sampling: Sampling,
    stops: Vec<String>,
    choices: usize,
    client: Client,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Client {
    Stays,
    /// Cancels after this many events.
    Cancels(usize),
    /// Panics in its sink.
    Panics,
}

impl Plan {
    fn random(random: &mut Random, beginnings: &[Vec<u32>], vocabulary: usize) -> Plan {
        let mut prompt = match random.is(2) {
            true => beginnings[random.below(beginnings.len())].clone(),
            false => Vec::new(),
        };
        prompt.extend((0..1 + random.below(30)).map(|_| random.below(vocabulary) as u32));
        let drawn = Sampling {
            do_sample: true,
            temperature: 0.5 + random.below(10) as f32 / 8.0,
            top_k: [0, 5, 50][random.below(3)],
            top_p: [1.0, 0.9][random.below(2)],
            min_p: [0.0, 0.05][random.below(2)],
            seed: Some(random.below(1000) as u32),
            ..Sampling::default()
        };
        let greedy = Sampling {
            repetition_penalty: [1.0, 1.2][random.below(2)],
            no_repeat_ngram_size: [0, 3][random.below(2)],
            min_length: random.below(40),
            ..Sampling::default()
        };
        Plan {
            prompt,
            max_new_tokens: random.below(30),
            sampling: if random.is(2) { drawn } else { greedy },
            stops: if random.is(4) { vec!["e".into(), "the".into(), "\u{fffd}".into()] } else { Vec::new() },
            choices: if random.is(6) { 2 + random.below(3) } else { 1 },
            client: match random.below(10) {
                0 | 1 => Client::Cancels(random.below(12)),
                2 => Client::Panics,
                _ => Client::Stays,
            },
        }
    }

    fn request(&self, random: &mut Random) -> Request {
        Request {
            max_new_tokens: Some(self.max_new_tokens),
            sampling: self.sampling.clone(),
            stops: self.stops.clone(),
            choices: self.choices,
            priority: random.below(3) as i32,
            ..Request::new(self.prompt.clone())
        }
    }

    /// Compares a reply with the text of a generator that does nothing else.
    fn check(&self, model: &Model, tokenizer: &Tokenizer, reply: &Reply, number: usize) {
        let usage = reply.end.as_ref().unwrap();
        assert_eq!((usage.prompt_tokens, reply.choices.len()), (self.prompt.len(), self.choices), "request {number}");
        for (index, choice) in reply.choices.iter().enumerate() {
            let sampling =
                Sampling { seed: self.sampling.seed.map(|seed| seed + index as u32), ..self.sampling.clone() };
            let max_length = Some(self.prompt.len() + self.max_new_tokens + 1);
            let options = GeneratorOptions { sampling: Some(sampling), max_length, ..GeneratorOptions::default() };
            let mut generator = Generator::new(model, options).unwrap();
            generator.append(&self.prompt).unwrap();
            let limits = Limits { max_new_tokens: Some(self.max_new_tokens), stops: self.stops.clone() };
            let wanted = generate_text(&mut generator, tokenizer, &limits, |_| ()).unwrap();
            let found = format!("request {number}, choice {index}: {:?}", self.sampling);
            if choice.finish == Some(TextFinish::Cancelled) {
                assert!(self.client != Client::Stays, "{found}");
                assert!(wanted.tokens.starts_with(&choice.tokens), "{found}: {:?} {:?}", choice.tokens, wanted.tokens);
            } else {
                assert_eq!(choice.tokens, wanted.tokens, "{found}");
                assert_eq!((&choice.text, choice.finish), (&wanted.text, Some(wanted.finish)), "{found}");
            }
        }
    }
}

/// A request under way.
enum Sent {
    Served(Served),
    /// The client panics at every event.
    Broken,
}

/// The kind of cache.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Cache {
    Rows,
    /// How many blocks there are.
    Blocks(Option<usize>),
}

fn check(model: &Model, tokenizer: &Tokenizer, count: usize, start: Start, cache: Cache) {
    let mut random = Random(count as u64);
    let vocabulary = model.config().vocab_size;
    let beginnings: Vec<Vec<u32>> =
        (1..4).map(|length| (0..length * 20).map(|_| random.below(vocabulary) as u32).collect()).collect();
    let options = EngineOptions {
        slots: 6,
        max_length: Some(128),
        queue: count,
        blocks: if let Cache::Blocks(blocks) = cache { blocks } else { None },
        prompt_chunk: 20,
        warm_up: Some(start == Start::Warm),
        ..EngineOptions::default()
    };
    let engine = Engine::start(model, tokenizer, options).unwrap();
    let plans: Vec<Plan> = (0..count).map(|_| Plan::random(&mut random, &beginnings, vocabulary)).collect();
    let mut sent: Vec<Option<Sent>> = Vec::new();
    let mut replies: Vec<Option<Reply>> = Vec::new();
    for plan in &plans {
        let request = plan.request(&mut random);
        sent.push(Some(send(&engine, plan, request)));
        replies.push(None);
        // Sometimes wait for a request, so that the load rises and falls, and cancel while others run.
        let newest = sent.len() - 1;
        match plan.client {
            Client::Cancels(_) if !random.is(4) => collect(&plans, &mut sent, &mut replies, newest),
            _ if random.is(3) => collect(&plans, &mut sent, &mut replies, random.below(newest + 1)),
            _ => {}
        }
    }
    (0..count).for_each(|number| collect(&plans, &mut sent, &mut replies, number));
    let broken = plans.iter().filter(|plan| plan.client == Client::Panics).count() as u64;
    let stats = settled(&engine, count as u64);
    println!(
        "{} steps of {:.2} rows, {} of {} prompt tokens cached, {} cancelled ({broken} clients panicked)",
        stats.steps,
        stats.step_rows as f64 / stats.steps as f64,
        stats.cached_tokens,
        stats.prompt_tokens,
        stats.cancelled,
    );
    assert!(stats.step_rows > stats.steps && stats.failed == 0, "{stats:?}");
    assert_eq!(stats.preempted > 0, cache == Cache::Blocks(Some(FEW_BLOCKS)), "{stats:?}");
    // Padded prompts always run as a whole.
    assert_eq!(stats.cached_tokens > 0, !model.has_static_shapes(PromptShape::Auto), "{stats:?}");
    assert!(stats.cancelled >= broken, "{stats:?}");
    let is_on_device = matches!(model.attached(), Attached::Plugin { .. });
    let chooses_there = is_on_device && cache == Cache::Rows && !model.has_static_shapes(PromptShape::Auto);
    assert_eq!(stats.chosen_on_device > 0, chooses_there, "{stats:?}");
    for (number, (plan, reply)) in plans.iter().zip(&replies).enumerate() {
        if let Some(reply) = reply {
            plan.check(model, tokenizer, reply, number);
        }
    }
}

fn send(engine: &Engine, plan: &Plan, request: Request) -> Sent {
    if plan.client != Client::Panics {
        return Sent::Served(submit(engine, request));
    }
    engine.submit(request, |_| panic!("the client is broken")).unwrap().detach();
    Sent::Broken
}

/// Waits for the end of a request, unless its reply has been collected already.
fn collect(plans: &[Plan], sent: &mut [Option<Sent>], replies: &mut [Option<Reply>], number: usize) {
    match sent[number].take() {
        Some(Sent::Served(served)) => {
            let reply = match plans[number].client {
                Client::Cancels(after) => served.cancelled_after(after),
                _ => served.reply(),
            };
            replies[number] = Some(reply);
        }
        other => sent[number] = other,
    }
}

/// The statistics when all requests have ended.
fn settled(engine: &Engine, count: u64) -> Stats {
    loop {
        let stats = engine.stats();
        if stats.finished + stats.cancelled + stats.failed == count {
            return stats;
        }
        std::thread::yield_now();
    }
}
