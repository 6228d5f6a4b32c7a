//! The encoder: features of audio to keys and values for the decoder.

use std::path::Path;

use half::{bf16, f16};
use ort_client::{Call, Dim, Element, HostTensor, Kind, MadeTensor, Output, Port, RunOptions, Session, Tensor};

use crate::config::EncoderConfig;
use crate::error::Doing;
use crate::model::{self, Model};
use crate::provider;
use crate::{Error, Result, Runtime};

use super::log_mel::FRAMES;

/// More bands than any model has.
const MAX_BANDS: usize = 512;

/// An encoder that is ready to run.
#[derive(Debug)]
pub(super) struct Encoder {
    session: Session,
    call: Call,
    features: HostTensor,
    bands: usize,
    /// The output of the last layer, which the decoder does not read.
    hidden_states: Output,
}

impl Encoder {
    /// Loads the encoder on the provider of the decoder.
    pub fn load(runtime: &Runtime, decoder: &Model, names: &EncoderConfig) -> Result<Encoder> {
        let (config, path) = (decoder.config(), &names.path);
        let settings = || model::session_options(runtime, config);
        let opened = provider::open(runtime, config.provider.as_ref(), &config.session_entries, path, settings);
        let session = opened.map_err(|error| model::refused(path, error))?.session;
        let (element, bands) = input(path, session.inputs(), names)?;
        let hidden_states = output(path, session.outputs(), &names.hidden_states)?;
        for cross in &decoder.layout().cross {
            let found = output(path, session.outputs(), &cross.present)?;
            if found != cross.element {
                let problem = format!(
                    "its output {:?} is {}, but the decoder reads {}",
                    cross.present,
                    found.name(),
                    cross.element.name()
                );
                return Err(wrong(path, problem, "use the encoder and the decoder of the same model"));
            }
        }
        if decoder.layout().cross.is_empty() {
            let problem = "the decoder has no inputs for its output".to_owned();
            return Err(wrong(
                path,
                problem,
                "model.decoder.inputs.cross_past_key_names names them, with %d for the layer",
            ));
        }
        let crosses = decoder.layout().cross.iter().map(|cross| cross.present.as_str());
        let outputs = std::iter::once(names.hidden_states.as_str()).chain(crosses);
        let call = Call::new([names.audio_features.as_str()], outputs).doing("preparing the inputs and outputs")?;
        let shape = [1, bands as i64, FRAMES as i64];
        let features = HostTensor::new(&decoder.layout().host, element, &shape).doing("allocating the features")?;
        let hidden_states = Output::Made(MadeTensor::new(hidden_states));
        Ok(Encoder { session, call, features, bands, hidden_states })
    }

    /// The bands of the features that it reads.
    pub fn bands(&self) -> usize {
        self.bands
    }

    /// Writes keys and values for the decoder into `outputs`, which come in the order of the decoder's layout.
    pub fn run(&mut self, features: &[f32], options: &RunOptions, outputs: &[Tensor]) -> Result<()> {
        match self.features.element() {
            Element::F16 => fill(&mut self.features, features, f16::from_f32),
            Element::Bf16 => fill(&mut self.features, features, bf16::from_f32),
            _ => fill(&mut self.features, features, |value| value),
        }
        let inputs = [self.features.tensor()];
        let ran = self.call.run(&self.session, options, inputs, &mut self.hidden_states, outputs);
        ran.doing("running the encoder")
    }
}

fn fill<T: bytemuck::Pod>(tensor: &mut HostTensor, values: &[f32], convert: fn(f32) -> T) {
    let cells: &mut [T] = bytemuck::cast_slice_mut(tensor.bytes_mut());
    cells.iter_mut().zip(values).for_each(|(cell, &value)| *cell = convert(value));
}

/// The type and the bands of the only input.
fn input(path: &Path, inputs: &[Port], names: &EncoderConfig) -> Result<(Element, usize)> {
    let expected =
        format!("expected the only input {:?}, floats of shape [batch, bands, {FRAMES}]", names.audio_features);
    let [port] = inputs else {
        return Err(wrong(path, format!("it has {} inputs", inputs.len()), &expected));
    };
    if port.name != names.audio_features {
        return Err(wrong(path, format!("it has the input {:?}", port.name), &expected));
    }
    match &port.kind {
        &Kind::Tensor(element @ (Element::F32 | Element::F16 | Element::Bf16), ref dims) => match dims[..] {
            [_, Dim::Size(bands), Dim::Size(FRAMES)] if (1..=MAX_BANDS).contains(&bands) => Ok((element, bands)),
            _ => Err(wrong(path, format!("its input is {}", port.kind), &expected)),
        },
        kind => Err(wrong(path, format!("its input is {kind}"), &expected)),
    }
}

/// The type of an output.
fn output(path: &Path, outputs: &[Port], name: &str) -> Result<Element> {
    match outputs.iter().find(|port| port.name == name).map(|port| &port.kind) {
        Some(&Kind::Tensor(element, _)) => Ok(element),
        Some(kind) => Err(wrong(path, format!("its output {name:?} is {kind}"), "expected a tensor")),
        None => Err(wrong(path, format!("it has no output {name:?}"), "model.encoder.outputs names its outputs")),
    }
}

fn wrong(path: &Path, problem: String, help: &str) -> Error {
    Error::Model { path: path.to_path_buf(), problem, help: help.to_owned() }
}
