//! Many conversations on one generator. Text is appended, and answers are started, cancelled and rewound at random.
//! Every token is compared with plain loops over its sequence, and memory must not grow.
//!
//! `TEXTGEN_SOAK_CHATS` sets how many; the default is a thousand.
#![allow(clippy::unwrap_used, clippy::panic, reason = "test helpers may panic")]

mod common;

use std::sync::Barrier;

use libtest_mimic::{Arguments, Failed, Trial};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config as Cases, RngAlgorithm, TestRng, TestRunner};
use testkit::llm::{TinyDecoder, VOCABULARY};
use textgen::{Error, Generator, GeneratorOptions};

use common::{On, config, load, on_the_host_driver};

/// The maximum number of tokens in a conversation: the loops take quadratic time.
const LONGEST: usize = 48;

/// Limit of the total memory growth over all chats.
const GROWTH_BYTES: usize = 16 << 20;

fn main() {
    on_the_host_driver();
    let arguments = Arguments::from_args();
    let trial = |name: &str, on: On, chats: usize| {
        Trial::test(name, move || soak(on, chats).map_err(|error| Failed::from(format!("{error:#}"))))
    };
    let chats = std::env::var("TEXTGEN_SOAK_CHATS").ok().and_then(|chats| chats.parse().ok()).unwrap_or(1000);
    let trials = match testkit::place::onnxruntime() {
        Ok(_) => vec![
            Trial::test("models_are_loaded_on_threads_at_once", || {
                load_at_once().map_err(|error| Failed::from(format!("{error:#}")))
            }),
            trial("chats_on_cpu", On::Cpu, chats),
            trial("chats_on_device", On::Device, chats),
        ],
        Err(reason) => {
            eprintln!("skipped: {reason}");
            Vec::new()
        }
    };
    libtest_mimic::run(&arguments, trials).exit();
}

/// Loads models on several threads at once. The first one registers the provider, which must happen only once.
fn load_at_once() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    TinyDecoder::new(5).write(folder.path(), true)?;
    let config = config(folder.path(), On::Device)?;
    let start = Barrier::new(8);
    std::thread::scope(|scope| {
        let loads: Vec<_> = (0..8)
            .map(|_| {
                scope.spawn(|| {
                    start.wait();
                    load(&config).map(drop)
                })
            })
            .collect();
        loads.into_iter().try_for_each(|load| load.join().unwrap())
    })
}

#[derive(Clone, Debug)]
enum Act {
    Append(Vec<u32>),
    Answer(usize),
    Cancel,
    Rewind(f64),
    Reset,
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        6 => prop::collection::vec(0..256u32, 1..8).prop_map(Act::Append),
        6 => (1usize..6).prop_map(Act::Answer),
        2 => Just(Act::Cancel),
        3 => (0.0..1.0).prop_map(Act::Rewind),
        1 => Just(Act::Reset),
    ]
}

fn soak(on: On, chats: usize) -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let decoder = TinyDecoder::new(5);
    decoder.write(folder.path(), true)?;
    let model = load(&config(folder.path(), on)?)?;
    let mut generator =
        Generator::new(&model, GeneratorOptions { max_length: Some(64), ..GeneratorOptions::default() })?;
    let random = TestRng::from_seed(RngAlgorithm::ChaCha, &[7; 32]);
    let mut runner = TestRunner::new_with_rng(Cases::default(), random);
    let strategy = prop::collection::vec(act(), 6..20);
    let (mut tokens, mut cancelled) = (0, 0);
    let mut settled = 0;
    for chat in 0..chats {
        let acts = strategy.new_tree(&mut runner).map_err(|reason| anyhow::anyhow!("{reason}"))?.current();
        generator.rewind(0)?;
        generator.append(&[chat as u32 % 256])?;
        let said = converse(&decoder, &mut generator, &acts);
        tokens += said.0;
        cancelled += said.1;
        // By now the caches of ONNX Runtime and of the provider have seen all shapes.
        if chat == chats / 2 {
            settled = resident_bytes();
        }
    }
    let grown = resident_bytes().saturating_sub(settled);
    println!("{on:?}: {chats} chats, {tokens} tokens, {cancelled} cancelled, {} KiB growth", grown >> 10);
    assert!(grown < GROWTH_BYTES, "memory grew by {grown} bytes in {} chats", chats / 2);
    Ok(())
}

/// Returns how many tokens were generated and checked, and how many cancellations there were.
fn converse(decoder: &TinyDecoder, generator: &mut Generator, acts: &[Act]) -> (usize, usize) {
    let (mut generated, mut cancelled) = (0, 0);
    for act in acts {
        let length = generator.tokens(0).len();
        match act {
            Act::Append(more) if length + more.len() <= LONGEST => generator.append(more).unwrap(),
            Act::Answer(count) if length > 0 => {
                for _ in 0..*count {
                    if generator.tokens(0).len() >= LONGEST || generator.finish(0).is_some() {
                        break;
                    }
                    let wanted = best(&decoder.scores(generator.tokens(0)));
                    let newest = generator.step().unwrap().unwrap()[0];
                    assert_eq!(newest, Some(wanted), "after {:?} in {acts:?}", generator.tokens(0));
                    generated += 1;
                }
            }
            Act::Cancel if length > 0 && generator.finish(0).is_none() => {
                generator.canceller().cancel();
                assert!(matches!(generator.step(), Err(Error::Cancelled)));
                cancelled += 1;
            }
            Act::Rewind(share) => generator.rewind((length as f64 * share) as usize).unwrap(),
            Act::Reset => generator.rewind(0).unwrap(),
            _ => {}
        }
    }
    assert!(generator.tokens(0).iter().all(|&token| (token as usize) < VOCABULARY));
    (generated, cancelled)
}

fn best(scores: &[f64]) -> u32 {
    let best = (0..scores.len()).max_by(|&a, &b| scores[a].total_cmp(&scores[b])).unwrap();
    best as u32
}

/// Resident memory of this process, if the system reports it.
fn resident_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    statm.split_whitespace().nth(1).and_then(|pages| pages.parse::<usize>().ok()).unwrap_or(0) * 4096
}
