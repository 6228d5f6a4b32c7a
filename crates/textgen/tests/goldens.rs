//! Compares tokens with those that ONNX Runtime GenAI and a numpy reference produced for the tiny models, on the CPU
//! and on our provider, with its hip backend or MIGraphX.
//!
//! MIGraphX is slow without a GPU, so it runs only the first case of each kind, and only greedy ones, because sampling
//! does not depend on the provider. The real MIGraphX runs the nano models; the stand-in runs two of them.
#![allow(clippy::unwrap_used, clippy::panic, reason = "test helpers may panic")]

mod common;

use libtest_mimic::{Arguments, Failed, Trial};
use serde_json::Value;
use textgen::{Generator, GeneratorOptions, Model, PromptShape, Sampling};

use common::{On, config, folder, goldens, has_real_migraphx, ids, load, on_the_host_driver};

/// The models that run on the stand-in: 64-bit and 32-bit token ids.
const ON_THE_STAND_IN: [&str; 2] = ["nano-fp32", "nano-fp32-int32ids-rope"];

fn main() {
    on_the_host_driver();
    let arguments = Arguments::from_args();
    let trials = match goldens() {
        Ok(goldens) => {
            let models = goldens["models"].as_array().unwrap().clone();
            let rows = |model: Value| {
                let name = model["name"].as_str().unwrap();
                let on_migraphx =
                    if has_real_migraphx() { name.starts_with("nano") } else { ON_THE_STAND_IN.contains(&name) };
                let on = [On::Cpu, On::Device].into_iter().chain(on_migraphx.then_some(On::Migraphx));
                on.map(move |on| trial(model.clone(), on)).collect::<Vec<_>>()
            };
            models.into_iter().flat_map(rows).collect()
        }
        Err(reason) => {
            eprintln!("skipped: {reason}");
            Vec::new()
        }
    };
    libtest_mimic::run(&arguments, trials).exit();
}

fn trial(golden: Value, on: On) -> Trial {
    let name = format!("{}_on_{on:?}", golden["name"].as_str().unwrap()).to_lowercase();
    Trial::test(name, move || model(&golden, on).map_err(|error| Failed::from(format!("{error:#}"))))
}

fn model(golden: &Value, on: On) -> anyhow::Result<()> {
    let model = load(&config(&folder(golden)?, on)?)?;
    let mut seen = Vec::new();
    for case in golden["cases"].as_array().unwrap() {
        let kind = case["kind"].as_str().unwrap();
        if on == On::Migraphx && (seen.contains(&kind) || ["greedy_penalty", "sample"].contains(&kind)) {
            continue;
        }
        seen.push(kind);
        match kind {
            "greedy" => greedy(&model, case, shapes(on))?,
            "greedy_batch_right_padded" => batch(&model, case, shapes(on))?,
            "greedy_penalty" => options(&model, case, false)?,
            "sample" => options(&model, case, true)?,
            "continue" => continued(&model, case)?,
            "rewind_append" => rewound(&model, case)?,
            other => panic!("unknown kind of case: {other}"),
        }
    }
    Ok(())
}

fn shapes(on: On) -> &'static [PromptShape] {
    match on {
        On::Migraphx => &[PromptShape::Auto],
        On::Cpu | On::Device => &[PromptShape::Exact, PromptShape::MaxLength],
    }
}

fn generator(model: &Model, case: &Value, change: impl FnOnce(&mut GeneratorOptions)) -> anyhow::Result<Generator> {
    let max_length = case["max_length"].as_u64().unwrap_or(128) as usize;
    let mut options = GeneratorOptions { max_length: Some(max_length), ..GeneratorOptions::default() };
    change(&mut options);
    Ok(Generator::new(model, options)?)
}

/// The tokens of the next `most` steps.
fn steps(generator: &mut Generator, most: usize) -> anyhow::Result<Vec<u32>> {
    let mut new = Vec::new();
    while new.len() < most {
        let Some(newest) = generator.step()? else { break };
        new.extend(newest[0]);
    }
    Ok(new)
}

fn greedy(model: &Model, case: &Value, shapes: &[PromptShape]) -> anyhow::Result<()> {
    for &shape in shapes {
        let mut generator = generator(model, case, |options| options.prompt_shape = shape)?;
        generator.append(&ids(&case["prompt_ids"][0]))?;
        let scores = generator.scores()?;
        // Sums of 16-bit floats of this size may differ by this much, depending on their order.
        for best in case["top_scores"].as_array().unwrap() {
            let (token, score) = (best[0].as_u64().unwrap() as usize, best[1].as_f64().unwrap() as f32);
            assert!((scores[token] - score).abs() < 0.05, "{shape:?}: {} for {score}", scores[token]);
        }
        assert_eq!(steps(&mut generator, usize::MAX)?, ids(&case["new_ids"][0]), "{shape:?}");
        // Once more, reusing the existing buffers.
        generator.rewind(0)?;
        generator.append(&ids(&case["prompt_ids"][0]))?;
        assert_eq!(steps(&mut generator, usize::MAX)?, ids(&case["new_ids"][0]), "{shape:?}, again");
    }
    Ok(())
}

fn batch(model: &Model, case: &Value, shapes: &[PromptShape]) -> anyhow::Result<()> {
    let prompts: Vec<Vec<u32>> = case["prompt_ids"].as_array().unwrap().iter().map(ids).collect();
    let rows: Vec<&[u32]> = prompts.iter().map(Vec::as_slice).collect();
    for &shape in shapes {
        let mut generator = generator(model, case, |options| {
            options.batch = rows.len();
            options.prompt_shape = shape;
        })?;
        generator.append_rows(&rows)?;
        while generator.step()?.is_some() {}
        for (row, prompt) in prompts.iter().enumerate() {
            let new = &generator.tokens(row)[prompt.len()..];
            let wanted = ids(&case["new_ids"][row]);
            // After a row's end, the golden continues with padding.
            assert_eq!(new, &wanted[..new.len()], "{shape:?}, row {row}");
            let padding = &wanted[new.len()..];
            assert!(padding.iter().all(|&token| token == model.config().pad_token), "{shape:?}, row {row}");
        }
    }
    Ok(())
}

fn options(model: &Model, case: &Value, do_sample: bool) -> anyhow::Result<()> {
    let given = &case["options"];
    let number = |name: &str| given[name].as_f64().map(|number| number as f32);
    let whole = |name: &str| given[name].as_u64().map(|number| number as usize);
    let mut sampling = Sampling { do_sample, ..Sampling::from(&model.config().search) };
    sampling.repetition_penalty = number("repetition_penalty").unwrap_or(sampling.repetition_penalty);
    sampling.no_repeat_ngram_size = whole("no_repeat_ngram_size").unwrap_or(sampling.no_repeat_ngram_size);
    sampling.min_length = whole("min_length").unwrap_or(sampling.min_length);
    sampling.top_k = whole("top_k").unwrap_or(sampling.top_k);
    sampling.top_p = number("top_p").unwrap_or(sampling.top_p);
    sampling.temperature = number("temperature").unwrap_or(sampling.temperature);
    sampling.seed = whole("random_seed").map(|seed| seed as u32);
    let mut generator = generator(model, case, |options| options.sampling = Some(sampling))?;
    generator.append(&ids(&case["prompt_ids"][0]))?;
    assert_eq!(steps(&mut generator, usize::MAX)?, ids(&case["new_ids"][0]), "{given}");
    Ok(())
}

fn continued(model: &Model, case: &Value) -> anyhow::Result<()> {
    let mut generator = generator(model, case, |_| {})?;
    generator.append(&ids(&case["prompt_ids"]))?;
    assert_eq!(steps(&mut generator, 8)?, ids(&case["first_new"]));
    generator.append(&ids(&case["append_ids"]))?;
    assert_eq!(steps(&mut generator, 8)?, ids(&case["second_new"]));
    assert_eq!(generator.tokens(0), ids(&case["sequence"]));
    Ok(())
}

fn rewound(model: &Model, case: &Value) -> anyhow::Result<()> {
    let mut generator = generator(model, case, |_| {})?;
    generator.append(&ids(&case["prompt_ids"]))?;
    assert_eq!(steps(&mut generator, 8)?, ids(&case["first_new"]));
    generator.rewind(case["rewind_to"].as_u64().unwrap() as usize)?;
    generator.append(&ids(&case["append_ids"]))?;
    assert_eq!(steps(&mut generator, 8)?, ids(&case["second_new"]));
    assert_eq!(generator.tokens(0), ids(&case["sequence"]));
    Ok(())
}
