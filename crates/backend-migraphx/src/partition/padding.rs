//! Pads the shapes of a run to the shapes that programs are compiled for.
use ort_ep::ElementType;
use ort_ep::view::Dim;

use crate::onnx::Value;
use crate::options::{Options, StaticPad};

/// The input whose extent gives the padded sequence length.
const MASK: &str = "attention_mask";

/// How the inputs of a run are padded, and its outputs trimmed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Padding {
    /// The shapes to compile for, one per input.
    pub shapes: Vec<Vec<usize>>,
    /// What is padded; `None` if nothing is.
    pub along: Option<PaddingKind>,
}

/// The kind of padding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PaddingKind {
    /// Pads batches with copies of the last row.
    Batch { rows: usize, padded: usize, symbol: Option<String> },
    /// Pads sequences with zeros.
    Sequence { length: usize, padded: usize },
}

/// The sequence axis of each input and output of a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Sequences {
    inputs: Vec<Option<usize>>,
    pub outputs: Vec<Option<usize>>,
}

impl Sequences {
    /// Finds the sequence axes: those of the values listed in the options, and those of the token states, `[batch,
    /// symbol, width]`, that pass between partitions and are trimmed in between. `None` if the partition cannot be
    /// padded, because some value might keep padding that nothing trims.
    pub fn of(inputs: &[Value], outputs: &[Value], pad: &StaticPad, symbol: Option<&str>) -> Option<Self> {
        let inputs = inputs.iter().map(|value| sequence_axis(value, &pad.inputs, symbol));
        let outputs = outputs.iter().map(|value| {
            let is_listed = axis_of(&pad.outputs, &value.name).is_some();
            // Integers may be derived from the length.
            (is_listed || is_float(value.element)).then(|| sequence_axis(value, &pad.outputs, symbol))?
        });
        Some(Self { inputs: inputs.collect::<Option<_>>()?, outputs: outputs.collect::<Option<_>>()? })
    }
}

/// The sequence axis of a value; the inner `None` means it is not a sequence, the outer `None` that it is unclear.
fn sequence_axis(value: &Value, listed: &[(String, usize)], symbol: Option<&str>) -> Option<Option<usize>> {
    let dims = value.shape.as_deref();
    if let Some(axis) = axis_of(listed, &value.name) {
        let is_open = dims.and_then(|dims| dims.get(axis)).is_none_or(|dim| dim.fixed().is_none());
        return Some(is_open.then_some(axis));
    }
    let dims = dims.filter(|dims| !dims.contains(&Dim::Unknown))?;
    let is_sequence = |dim: &Dim| matches!(dim, Dim::Symbol(name) if Some(name.as_str()) == symbol);
    match dims.iter().filter(|dim| is_sequence(dim)).count() {
        0 => Some(None),
        1 if dims.len() == 3 && is_sequence(&dims[1]) && is_float(value.element) => Some(Some(1)),
        _ => None,
    }
}

fn is_float(element: ElementType) -> bool {
    matches!(element, ElementType::F16 | ElementType::Bf16 | ElementType::F32 | ElementType::F64)
}

/// Decides the padding for one run of a partition. `sequences` are the partition's own.
pub(super) fn plan(
    inputs: &[Value],
    shapes: &[Vec<usize>],
    options: &Options,
    sequences: Option<&Sequences>,
) -> Padding {
    let along = match &options.static_pad {
        Some(pad) => sequences.and_then(|sequences| sequence(inputs, shapes, pad, sequences)),
        None => batch(inputs, shapes, &options.batches),
    };
    let mut padded = shapes.to_vec();
    for (at, (input, shape)) in inputs.iter().zip(&mut padded).enumerate() {
        match &along {
            Some(PaddingKind::Batch { rows, padded, symbol }) if is_batch(input, shape, *rows, symbol.as_deref()) => {
                shape[0] = *padded;
            }
            Some(PaddingKind::Sequence { length, padded }) => {
                let axis = sequences.and_then(|sequences| sequences.inputs[at]);
                if let Some(extent) = axis.and_then(|axis| shape.get_mut(axis)).filter(|extent| **extent == *length) {
                    *extent = *padded;
                }
            }
            _ => {}
        }
    }
    Padding { shapes: padded, along }
}

/// The shape of an output after trimming; `axis` is its sequence axis.
pub(super) fn cut(padding: &Padding, output: &Value, axis: Option<usize>, shape: &[usize]) -> Vec<usize> {
    let mut shape = shape.to_vec();
    match &padding.along {
        Some(PaddingKind::Batch { rows, padded, symbol }) if is_batch(output, &shape, *padded, symbol.as_deref()) => {
            shape[0] = *rows;
        }
        Some(PaddingKind::Sequence { length, padded }) => {
            if let Some(extent) = axis.and_then(|axis| shape.get_mut(axis)).filter(|extent| **extent == *padded) {
                *extent = *length;
            }
        }
        _ => {}
    }
    shape
}

/// The shapes for the next batch size above the current one.
pub(super) fn next_batch(padding: &Padding, inputs: &[Value], options: &Options) -> Option<Vec<Vec<usize>>> {
    let Some(PaddingKind::Batch { padded, symbol, .. }) = &padding.along else { return None };
    let next = *options.batches.iter().find(|size| *size > padded)?;
    let mut shapes = padding.shapes.clone();
    for (input, shape) in inputs.iter().zip(&mut shapes) {
        if is_batch(input, shape, *padded, symbol.as_deref()) {
            shape[0] = next;
        }
    }
    Some(shapes)
}

fn axis_of(list: &[(String, usize)], name: &str) -> Option<usize> {
    list.iter().find(|(listed, _)| listed == name).map(|(_, axis)| *axis)
}

/// The batch size of a run: the first extent of the first input that has axes and whose first axis is dynamic.
fn batch(inputs: &[Value], shapes: &[Vec<usize>], sizes: &[usize]) -> Option<PaddingKind> {
    if sizes.is_empty() {
        return None;
    }
    let open = |input: &Value| {
        input.shape.as_ref().is_none_or(|dims| matches!(dims.first(), Some(dim) if dim.fixed().is_none()))
    };
    let (input, shape) = inputs.iter().zip(shapes).find(|(input, shape)| !shape.is_empty() && open(input))?;
    let rows = shape[0];
    let padded = *sizes.iter().find(|size| **size >= rows)?;
    let symbol = match input.shape.as_ref().and_then(|dims| dims.first()) {
        Some(Dim::Symbol(name)) => Some(name.clone()),
        _ => None,
    };
    (rows > 0).then_some(PaddingKind::Batch { rows, padded, symbol })
}

/// True if the value's first axis is the batch: it has the batch's symbol or, if the model names none, it is dynamic
/// and has the same extent.
fn is_batch(value: &Value, shape: &[usize], rows: usize, symbol: Option<&str>) -> bool {
    if shape.first() != Some(&rows) {
        return false;
    }
    match (value.shape.as_ref().and_then(|dims| dims.first()), symbol) {
        (Some(Dim::Fixed(_)), _) => false,
        (Some(Dim::Symbol(own)), Some(symbol)) => own == symbol,
        _ => true,
    }
}

/// The sequence length of a run: that of the first sequence input longer than one token and shorter than the padded
/// length.
fn sequence(inputs: &[Value], shapes: &[Vec<usize>], pad: &StaticPad, sequences: &Sequences) -> Option<PaddingKind> {
    let mask = inputs.iter().position(|input| input.name == MASK).and_then(|at| shapes[at].get(1)).copied();
    let padded = mask.filter(|_| !pad.length_is_forced).unwrap_or(pad.length);
    let mut extents = sequences.inputs.iter().zip(shapes).filter_map(|(axis, shape)| shape.get((*axis)?).copied());
    let length = extents.find(|&extent| 1 < extent && extent < padded)?;
    Some(PaddingKind::Sequence { length, padded })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use ort_ep::ElementType;
    use proptest::prelude::*;

    use super::*;

    fn value(name: &str, dims: &[&str]) -> Value {
        let dim = |text: &&str| match text.parse() {
            Ok(length) => Dim::Fixed(length),
            Err(_) if *text == "?" => Dim::Unknown,
            Err(_) => Dim::Symbol((*text).to_owned()),
        };
        Value { name: name.to_owned(), element: ElementType::F32, shape: Some(dims.iter().map(dim).collect()) }
    }

    fn options(pairs: &[(&str, &str)]) -> Options {
        let entries: BTreeMap<_, _> =
            pairs.iter().map(|(key, value)| (format!("ep.migraphx.{key}"), (*value).to_owned())).collect();
        Options::from_entries(&entries, "x", |_| None).unwrap().0
    }

    #[test]
    fn without_options_shapes_stay() {
        let plan = plan(&[value("x", &["n", "4"])], &[vec![3, 4]], &options(&[]), None);
        assert_eq!(plan, Padding { shapes: vec![vec![3, 4]], along: None });
    }

    #[test]
    fn a_batch_grows_to_the_next_size_and_outputs_shrink_back() {
        let options = options(&[("compile_batches", "1,4,8")]);
        let inputs = [value("w", &["4", "4"]), value("x", &["n", "4"]), value("y", &["n"]), value("z", &["m"])];
        let padding = plan(&inputs, &[vec![4, 4], vec![3, 4], vec![3], vec![3]], &options, None);
        assert_eq!(padding.shapes, [vec![4, 4], vec![4, 4], vec![4], vec![3]], "z has another symbol");
        assert_eq!(cut(&padding, &value("out", &["n", "4"]), None, &[4, 4]), [3, 4]);
        assert_eq!(cut(&padding, &value("w", &["4", "4"]), None, &[4, 4]), [4, 4], "a fixed extent is not a batch");
        assert_eq!(next_batch(&padding, &inputs, &options).unwrap()[2], [8]);
        let largest = plan(&inputs, &[vec![4, 4], vec![8, 4], vec![8], vec![3]], &options, None);
        assert_eq!(next_batch(&largest, &inputs, &options), None);
        let beyond = plan(&inputs, &[vec![4, 4], vec![9, 4], vec![9], vec![3]], &options, None);
        assert_eq!((beyond.shapes[1].clone(), beyond.along), (vec![9, 4], None), "no size is large enough");
    }

    fn padded() -> Options {
        options(&[
            ("static_pad_seq", "1"),
            ("static_pad_seq_len", "64"),
            ("static_pad_inputs", "input_ids,position_ids:1"),
            ("static_pad_outputs", "logits"),
        ])
    }

    fn integers(name: &str, element: ElementType) -> Value {
        Value { element, ..value(name, &["b", "s"]) }
    }

    fn sequences(inputs: &[Value], outputs: &[Value]) -> Option<Sequences> {
        Sequences::of(inputs, outputs, &padded().static_pad.unwrap(), Some("s"))
    }

    #[test]
    fn the_masks_extent_is_the_padded_length_for_ids_of_both_widths_and_batches() {
        let outputs = [value("logits", &["b", "s", "9"]), value("present", &["b", "2", "t", "8"])];
        for (element, rows) in [(ElementType::I32, 1), (ElementType::I64, 1), (ElementType::I64, 3)] {
            let ids = [integers("input_ids", element), integers("position_ids", element)];
            let inputs = [vec![value("attention_mask", &["b", "t"])], ids.to_vec()].concat();
            let found = sequences(&inputs, &outputs).unwrap();
            let shapes = [vec![rows, 16], vec![rows, 5], vec![rows, 5]];
            let padding = plan(&inputs, &shapes, &padded(), Some(&found));
            assert_eq!(padding.shapes, vec![vec![rows, 16]; 3]);
            assert_eq!(cut(&padding, &outputs[0], found.outputs[0], &[rows, 16, 9]), [rows, 5, 9]);
            assert_eq!(
                cut(&padding, &outputs[1], found.outputs[1], &[rows, 2, 16, 8]),
                [rows, 2, 16, 8],
                "a cache stays"
            );
            let without = plan(&inputs[1..], &shapes[1..], &padded(), sequences(&inputs[1..], &outputs).as_ref());
            assert_eq!(without.shapes, vec![vec![rows, 64]; 2], "without a mask, the length of the options");
        }
    }

    #[test]
    fn token_states_are_padded_and_trimmed_between_partitions() {
        let inputs = [value("attended", &["b", "s", "8"]), value("cos", &["64", "4"])];
        let outputs = [value("packed", &["b", "s", "24"])];
        let found = sequences(&inputs, &outputs).unwrap();
        let padding = plan(&inputs, &[vec![3, 5, 8], vec![64, 4]], &padded(), Some(&found));
        assert_eq!(padding.shapes, [vec![3, 64, 8], vec![64, 4]]);
        assert_eq!(cut(&padding, &outputs[0], found.outputs[0], &[3, 64, 24]), [3, 5, 24]);
    }

    #[test]
    fn a_partition_that_could_leak_padding_is_not_padded() {
        let ids = [integers("input_ids", ElementType::I64)];
        for output in [
            value("unknown", &["b", "?", "8"]),
            Value { shape: None, ..value("rankless", &[]) },
            value("scores", &["b", "2", "s", "s"]),
            value("flat", &["s", "8"]),
            Value { element: ElementType::I64, ..value("length", &[]) },
        ] {
            assert_eq!(sequences(&ids, std::slice::from_ref(&output)), None, "{}", output.name);
        }
        let bias = value("bias", &["b", "1", "s", "s"]);
        assert_eq!(sequences(&[ids[0].clone(), bias], &[value("states", &["b", "s", "8"])]), None);
        let kept = plan(&ids, &[vec![1, 5]], &padded(), None);
        assert_eq!(kept, Padding { shapes: vec![vec![1, 5]], along: None });
    }

    #[test]
    fn decoding_long_prompts_and_fixed_lengths_are_left_alone() {
        let inputs = [value("attention_mask", &["b", "t"]), value("input_ids", &["b", "s"])];
        let found = sequences(&inputs, &[]);
        for length in [1, 16, 17] {
            let shapes = [vec![1, 16], vec![1, length]];
            assert_eq!(plan(&inputs, &shapes, &padded(), found.as_ref()).along, None, "{length}");
        }
        let fixed = [value("attention_mask", &["1", "16"]), value("input_ids", &["1", "5"])];
        let shapes = [vec![1, 16], vec![1, 5]];
        assert_eq!(plan(&fixed, &shapes, &padded(), sequences(&fixed, &[]).as_ref()).along, None);
    }

    proptest! {
        #[test]
        fn padded_axes_are_trimmed_again(rows in 1..20_usize, other in 1..20_usize) {
            let options = options(&[("max_dynamic_batch", "16")]);
            let inputs = [value("x", &["n", "?"]), value("y", &["n"])];
            let shapes = [vec![rows, other], vec![rows]];
            let padding = plan(&inputs, &shapes, &options, None);
            for (input, (padded, shape)) in inputs.iter().zip(padding.shapes.iter().zip(&shapes)) {
                prop_assert!(padded.iter().zip(shape).all(|(padded, extent)| padded >= extent));
                prop_assert_eq!(&cut(&padding, input, None, padded), shape);
            }
        }
    }
}
