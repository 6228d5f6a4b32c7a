//! The inputs of a run: from files, or random with shapes from the model and the user.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use clap::Args;
use ort_client::{Dim, Element, Kind, Port};

use crate::npy;
use crate::npz;
use crate::ort::{Array, Numeric, dims_text};
use crate::random::Random;

/// The maximum number of elements in a random input.
const MAX_ELEMENTS: usize = 1 << 31;

/// Options for the inputs.
#[derive(Args, Clone, Debug, Default)]
pub struct InputArguments {
    /// Size of a dynamic dimension, by name or as INPUT.AXIS; others are 1
    #[arg(long = "dim", value_name = "NAME=N", value_parser = dim)]
    pub dims: Vec<(String, usize)>,
    /// Seed of the random inputs
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub seed: u64,
}

/// Parses `--dim NAME=N`.
///
/// # Errors
/// When it has another form.
pub fn dim(text: &str) -> Result<(String, usize), String> {
    let wrong = || format!("expected NAME=N, found {text:?}");
    let (name, extent) = text.rsplit_once('=').filter(|(name, _)| !name.is_empty()).ok_or_else(wrong)?;
    Ok((name.to_owned(), extent.parse().map_err(|_| wrong())?))
}

/// A file with inputs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InputFile {
    /// One input, and its file.
    One(String, PathBuf),
    /// An archive of inputs by name.
    Archive(PathBuf),
}

/// Parses `--input NAME=FILE.npy` and `--input FILE.npz`.
///
/// # Errors
/// When it has another form.
pub fn file(text: &str) -> Result<InputFile, String> {
    match text.split_once('=').filter(|(name, file)| !name.is_empty() && !file.is_empty()) {
        Some((_, file)) if has_suffix(file) => Err(format!(
            "{text:?} names one input, but the file holds several\n  help: use --input {file}, which reads all of its arrays by name"
        )),
        Some((name, file)) => Ok(InputFile::One(name.to_owned(), file.into())),
        None if has_suffix(text) => Ok(InputFile::Archive(text.into())),
        None => Err(format!("expected NAME=FILE.npy or FILE.npz, found {text:?}")),
    }
}

fn has_suffix(file: &str) -> bool {
    file.to_ascii_lowercase().ends_with(".npz")
}

impl InputFile {
    fn read(&self) -> Result<Vec<(String, Array)>> {
        match self {
            Self::One(name, path) => Ok(vec![(name.clone(), npy::read(path)?)]),
            Self::Archive(path) => npz::read(path),
        }
    }
}

/// Creates every input of a model, in order.
///
/// # Errors
/// When a name is unknown, a shape or type does not match, or an input cannot be generated.
pub fn make(ports: &[Port], files: &[InputFile], arguments: &InputArguments) -> Result<Vec<Array>> {
    let mut given = BTreeMap::new();
    for file in files {
        for (name, array) in file.read()? {
            let port = ports.iter().find(|port| port.name == name);
            let port = port.with_context(|| format!("the model has no input {name:?}\n  help: {}", list(ports)))?;
            if given.insert(port.name.as_str(), fitting(port, array)?).is_some() {
                bail!("input {name:?} is given twice");
            }
        }
    }
    let extents = extents(ports, &given, &arguments.dims)?;
    let mut random = Random::new(arguments.seed);
    let mut arrays = Vec::with_capacity(ports.len());
    for port in ports {
        arrays.push(match given.remove(port.name.as_str()) {
            Some(array) => array,
            None => made_up(port, &extents, &mut random)?,
        });
    }
    Ok(arrays)
}

/// Adds the inputs to the error of a run, because the model often rejects a generated shape or value.
pub fn failed(what: &str, error: anyhow::Error, ports: &[Port], arrays: &[Array]) -> anyhow::Error {
    let given = ports.iter().zip(arrays).map(|(port, array)| {
        let Kind::Tensor(_, dims) = &port.kind else { return port.name.clone() };
        format!("{} {:?} for {}", port.name, array.shape(), dims_text(dims))
    });
    let given = given.collect::<Vec<_>>().join(", ");
    anyhow::anyhow!(
        "{what} failed: {error:#}\n  help: the inputs were {given}; --dim sets dimensions; `run --input` sets values"
    )
}

fn list(ports: &[Port]) -> String {
    let ports: Vec<String> = ports.iter().map(describe).collect();
    format!("its inputs are {}", if ports.is_empty() { "none".to_owned() } else { ports.join(", ") })
}

fn describe(port: &Port) -> String {
    match &port.kind {
        Kind::Tensor(element, dims) => format!("{} ({} {})", port.name, element.name(), dims_text(dims)),
        kind => format!("{} ({kind})", port.name),
    }
}

/// Checks a file's array against the model. Inputs of floats that numpy lacks are converted from other floats.
fn fitting(port: &Port, array: Array) -> Result<Array> {
    let name = &port.name;
    let Kind::Tensor(element, dims) = &port.kind else {
        bail!("input {} cannot be read from a file of numbers", describe(port));
    };
    let fits = |(dim, &extent): (&Dim, &usize)| !matches!(dim, Dim::Size(size) if *size != extent);
    if dims.len() != array.shape().len() || !dims.iter().zip(array.shape()).all(fits) {
        bail!("input {name}: the file has shape {:?}, the model expects {}", array.shape(), dims_text(dims));
    }
    match (element, array.element()) {
        (want, found) if *want == found => Ok(array),
        (want, found) if want.numpy().is_empty() && found.is_float() => Ok(array.cast(*want)),
        (want, found) => bail!(
            "input {name}: the file holds {}, the model expects {}\n  help: save x.astype(\"{}\")",
            found.name(),
            want.name(),
            want.name()
        ),
    }
}

/// Converts dimensions to their names in the model, by which ONNX Runtime overrides them.
///
/// # Errors
/// When a dimension has no name.
pub fn named(ports: &[Port], asked: &[(String, usize)]) -> Result<Vec<(String, usize)>> {
    let known: BTreeSet<String> =
        dynamic(ports).filter(|(key, port, axis)| *key != by_axis(port, *axis)).map(|(key, ..)| key).collect();
    asked
        .iter()
        .map(|(name, extent)| match resolved(ports, name).filter(|key| known.contains(key)) {
            Some(key) => Ok((key, *extent)),
            None => bail!("the model has no dimension named {name:?}\n  help: {}", list(ports)),
        })
        .collect()
}

/// The key of a dynamic dimension that the user gives by name or as `input.axis`.
fn resolved(ports: &[Port], asked: &str) -> Option<String> {
    // A name may look like `input.axis`; names take precedence.
    let by_name = dynamic(ports).find(|(key, ..)| key == asked);
    let found = by_name.or_else(|| dynamic(ports).find(|(_, port, axis)| by_axis(port, *axis) == asked));
    found.map(|(key, ..)| key)
}

fn by_axis(port: &Port, axis: usize) -> String {
    format!("{}.{axis}", port.name)
}

/// The extent of every dynamic dimension, with its name or `input.axis` as the key.
fn extents(
    ports: &[Port],
    given: &BTreeMap<&str, Array>,
    asked: &[(String, usize)],
) -> Result<BTreeMap<String, usize>> {
    let mut extents: BTreeMap<String, Option<usize>> = BTreeMap::new();
    for (name, _, _) in dynamic(ports) {
        extents.entry(name).or_default();
    }
    for (name, extent) in asked {
        let Some(slot) = resolved(ports, name).and_then(|key| extents.get_mut(&key)) else {
            let known: Vec<&str> = extents.keys().map(String::as_str).collect();
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            bail!("the model has no dynamic dimension {name:?}\n  help: its dynamic dimensions are: {known}");
        };
        if slot.replace(*extent).is_some_and(|other| other != *extent) {
            bail!("dimension {name} is given twice, with different extents");
        }
    }
    for (name, port, axis) in dynamic(ports) {
        let Some(&extent) = given.get(port.name.as_str()).and_then(|array| array.shape().get(axis)) else { continue };
        let slot = extents.entry(name.clone()).or_default();
        if let Some(other) = slot.replace(extent).filter(|&other| other != extent) {
            bail!("input {}: dimension {name} is {extent} in its file and {other} elsewhere", port.name);
        }
    }
    Ok(extents.into_iter().map(|(name, extent)| (name, extent.unwrap_or(1))).collect())
}

/// All dynamic dimensions, with their input and axis.
fn dynamic(ports: &[Port]) -> impl Iterator<Item = (String, &Port, usize)> {
    let dims = |port: &'_ Port| match &port.kind {
        Kind::Tensor(_, dims) => dims.clone(),
        _ => Vec::new(),
    };
    ports.iter().flat_map(move |port| {
        let named = dims(port).into_iter().enumerate();
        named.filter_map(move |(axis, dim)| Some((key(port, axis, &dim)?, port, axis)))
    })
}

fn key(port: &Port, axis: usize, dim: &Dim) -> Option<String> {
    match dim {
        Dim::Size(_) => None,
        Dim::Named(name) => Some(name.clone()),
        Dim::Any => Some(by_axis(port, axis)),
    }
}

fn made_up(port: &Port, extents: &BTreeMap<String, usize>, random: &mut Random) -> Result<Array> {
    let Kind::Tensor(element, dims) = &port.kind else {
        bail!("input {} cannot be generated: only numeric tensors can", describe(port));
    };
    let mut shape = Vec::with_capacity(dims.len());
    for (axis, dim) in dims.iter().enumerate() {
        shape.push(match dim {
            Dim::Size(size) => *size,
            dim => key(port, axis, dim).and_then(|key| extents.get(&key).copied()).unwrap_or(1),
        });
    }
    let count = shape.iter().try_fold(1usize, |count, &extent| count.checked_mul(extent));
    let count = count.filter(|&count| count <= MAX_ELEMENTS);
    let count = count.with_context(|| format!("input {} would be too large: {shape:?}", port.name))?;
    let mut bytes = Vec::with_capacity(count * element.bytes());
    for _ in 0..count {
        element.write(number(random, *element), &mut bytes);
    }
    Array::new(*element, shape, bytes).context("a random input does not fill its shape")
}

/// Floats are in -1..1 and 8-bit integers in their full range. Wider integers are 0 or 1: they are often indices or
/// masks, for which other values may be out of range.
fn number(random: &mut Random, element: Element) -> f64 {
    let bits = random.bits();
    match element {
        element if element.is_float() => (bits >> 40) as f64 / f64::from(1 << 23) - 1.0,
        Element::U8 => f64::from((bits >> 56) as u8),
        Element::I8 => f64::from((bits >> 56) as u8 as i8),
        _ => (bits >> 63) as f64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn port(name: &str, element: Element, dims: &[Dim]) -> Port {
        Port { name: name.into(), kind: Kind::Tensor(element, dims.to_vec()) }
    }

    fn named(name: &str) -> Dim {
        Dim::Named(name.into())
    }

    fn with(dims: &[(&str, usize)]) -> InputArguments {
        InputArguments { dims: dims.iter().map(|&(name, extent)| (name.to_owned(), extent)).collect(), seed: 7 }
    }

    #[test]
    fn dynamic_dimensions_are_one_unless_named() {
        let ports = [
            port("x", Element::F32, &[named("batch"), Dim::Size(3), Dim::Any]),
            port("y", Element::I64, &[named("batch")]),
        ];
        let shapes = |arguments| {
            let arrays = make(&ports, &[], &arguments).unwrap();
            arrays.iter().map(|array| array.shape().to_vec()).collect::<Vec<_>>()
        };
        assert_eq!(shapes(with(&[])), [vec![1, 3, 1], vec![1]]);
        assert_eq!(shapes(with(&[("batch", 4), ("x.2", 5)])), [vec![4, 3, 5], vec![4]]);
    }

    #[test]
    fn unknown_dimension_is_named_with_the_known_ones() {
        let ports = [port("x", Element::F32, &[named("batch"), Dim::Size(3)])];
        let error = make(&ports, &[], &with(&[("bath", 4)])).unwrap_err().to_string();
        assert_eq!(error, "the model has no dynamic dimension \"bath\"\n  help: its dynamic dimensions are: batch");
    }

    #[test]
    fn a_files_shape_sets_the_dimensions_of_other_inputs() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("x.npy");
        npy::write(&file, &Array::new(Element::F32, vec![4, 3], vec![0; 48]).unwrap()).unwrap();
        let ports = [
            port("x", Element::F32, &[named("batch"), Dim::Size(3)]),
            port("y", Element::U8, &[named("batch"), Dim::Size(2)]),
        ];
        let files = [InputFile::One("x".to_owned(), file)];
        assert_eq!(make(&ports, &files, &with(&[])).unwrap()[1].shape(), [4, 2]);
        let error = make(&ports, &files, &with(&[("batch", 2)])).unwrap_err().to_string();
        assert_eq!(error, "input x: dimension batch is 4 in its file and 2 elsewhere");
    }

    #[test]
    fn a_file_must_have_the_models_type_and_shape() {
        let x = port("x", Element::F32, &[named("batch"), Dim::Size(3)]);
        let error = |element: Element, shape: &[usize]| {
            let bytes = vec![0; shape.iter().product::<usize>() * element.bytes()];
            fitting(&x, Array::new(element, shape.to_vec(), bytes).unwrap()).unwrap_err().to_string()
        };
        assert_eq!(error(Element::F32, &[2, 4]), "input x: the file has shape [2, 4], the model expects [batch, 3]");
        assert_eq!(error(Element::F32, &[2]), "input x: the file has shape [2], the model expects [batch, 3]");
        assert!(
            error(Element::F64, &[2, 3]).starts_with("input x: the file holds float64, the model expects float32\n")
        );
    }

    #[test]
    fn random_numbers_follow_the_seed_and_the_type() {
        let ports = [port("x", Element::F32, &[Dim::Size(1000)]), port("i", Element::I64, &[Dim::Size(1000)])];
        let arrays = make(&ports, &[], &with(&[])).unwrap();
        assert_eq!(arrays, make(&ports, &[], &with(&[])).unwrap());
        assert_ne!(arrays, make(&ports, &[], &InputArguments { seed: 8, ..with(&[]) }).unwrap());
        assert!(arrays[0].numbers().all(|number| (-1.0..1.0).contains(&number)));
        assert!(arrays[0].numbers().any(|number| number < -0.5) && arrays[0].numbers().any(|number| number > 0.5));
        assert!(arrays[1].numbers().all(|number| number == 0.0 || number == 1.0));
    }

    #[test]
    fn a_failure_says_what_the_inputs_were() {
        let ports = [port("x", Element::F32, &[named("batch"), Dim::Size(3)])];
        let arrays = make(&ports, &[], &with(&[])).unwrap();
        let error = failed("the run", anyhow::anyhow!("a window does not fit"), &ports, &arrays).to_string();
        assert!(
            error
                .starts_with("the run failed: a window does not fit\n  help: the inputs were x [1, 3] for [batch, 3];")
        );
    }

    #[test]
    fn absurd_extents_are_rejected() {
        let ports = [port("x", Element::F32, &[named("a"), named("b")])];
        let error = make(&ports, &[], &with(&[("a", usize::MAX), ("b", 2)])).unwrap_err().to_string();
        assert!(error.starts_with("input x would be too large"), "{error}");
    }

    #[test]
    fn arguments_are_pairs() {
        assert_eq!(dim("batch=4"), Ok(("batch".to_owned(), 4)));
        assert!(dim("batch").is_err() && dim("=4").is_err() && dim("batch=-1").is_err());
        assert_eq!(file("x=a=b.npy"), Ok(InputFile::One("x".to_owned(), "a=b.npy".into())));
        assert_eq!(file("all.npz"), Ok(InputFile::Archive("all.npz".into())));
        assert!(file("x.npy").is_err() && file("x=").is_err() && file("x=all.npz").is_err());
    }
}
