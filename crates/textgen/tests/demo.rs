//! The demo model generates the tokens that were recorded with ONNX Runtime GenAI, both greedy and sampled.
#![allow(clippy::unwrap_used, clippy::panic, reason = "test helpers may panic")]

mod common;

use serde_json::Value;
use testkit::place;
use textgen::{Generator, GeneratorOptions, Sampling};

use common::{On, config, ids, load};

#[test]
fn the_demo_generates_the_recorded_text() {
    if let Err(reason) = place::onnxruntime() {
        println!("skipped: {reason}");
        return;
    }
    let demo = place::root().join("demo");
    let model = load(&config(&demo.join("model"), On::Cpu).unwrap()).unwrap();
    let goldens = std::fs::read_to_string(demo.join("goldens.json")).unwrap();
    let goldens: Vec<Value> = serde_json::from_str(&goldens).unwrap();
    for golden in &goldens {
        let search = &golden["search"];
        let number = |name: &str, default: f64| search[name].as_f64().unwrap_or(default);
        let sampling = Sampling {
            do_sample: search["do_sample"] == true,
            temperature: number("temperature", 1.0) as f32,
            top_k: number("top_k", 0.0) as usize,
            top_p: number("top_p", 1.0) as f32,
            seed: search["random_seed"].as_u64().map(|seed| seed as u32),
            ..Sampling::default()
        };
        let options = GeneratorOptions { sampling: Some(sampling), ..GeneratorOptions::default() };
        let mut generator = Generator::new(&model, options).unwrap();
        let (prompt, wanted) = (ids(&golden["prompt_ids"]), ids(&golden["new_ids"]));
        generator.append(&prompt).unwrap();
        for _ in 0..wanted.len() {
            generator.step().unwrap();
        }
        assert_eq!(generator.tokens(0)[prompt.len()..], wanted, "{search}");
    }
    assert!(goldens.iter().any(|golden| golden["search"]["do_sample"] == true));
}
