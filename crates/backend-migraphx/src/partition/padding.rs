//! Shapes that programs are compiled for, where those of a run are padded up to them.
use ort_ep::view::Dim;

use crate::{
    onnx::Value,
    options::{Options, StaticPad},
};

/// The input whose extent is the padded length of sequences.
const MASK: &str = "attention_mask";

/// What is added to the inputs of a run, and cut off its outputs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Padding {
    /// The shapes to compile for, one for each input.
    pub shapes: Vec<Vec<usize>>,
    /// What is padded, if anything is.
    pub along: Option<Along>,
}

/// What is padded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Along {
    /// Batches, by copies of the last row.
    Batch { rows: usize, padded: usize, symbol: Option<String> },
    /// Sequences, by zeros.
    Sequence { length: usize, padded: usize },
}

/// Decides about one run.
pub(super) fn plan(inputs: &[Value], shapes: &[Vec<usize>], options: &Options) -> Padding {
    let along = match &options.static_pad {
        Some(pad) => sequence(inputs, shapes, pad),
        None => batch(inputs, shapes, &options.batches),
    };
    let mut padded = shapes.to_vec();
    for (input, shape) in inputs.iter().zip(&mut padded) {
        match &along {
            Some(Along::Batch { rows, padded, symbol }) if is_batch(input, shape, *rows, symbol.as_deref()) => {
                shape[0] = *padded;
            }
            Some(Along::Sequence { length, padded }) => {
                let axis = options.static_pad.as_ref().and_then(|pad| axis_of(&pad.inputs, &input.name));
                if let Some(extent) = axis.and_then(|axis| shape.get_mut(axis)).filter(|extent| **extent == *length) {
                    *extent = *padded;
                }
            }
            _ => {}
        }
    }
    Padding { shapes: padded, along }
}

/// The shape of an output after cutting.
pub(super) fn cut(padding: &Padding, output: &Value, shape: &[usize], options: &Options) -> Vec<usize> {
    let mut shape = shape.to_vec();
    match &padding.along {
        Some(Along::Batch { rows, padded, symbol }) if is_batch(output, &shape, *padded, symbol.as_deref()) => {
            shape[0] = *rows;
        }
        Some(Along::Sequence { length, padded }) => {
            let axis = options.static_pad.as_ref().and_then(|pad| axis_of(&pad.outputs, &output.name));
            if let Some(extent) = axis.and_then(|axis| shape.get_mut(axis)).filter(|extent| **extent == *padded) {
                *extent = *length;
            }
        }
        _ => {}
    }
    shape
}

/// The shapes for the next larger batch size, after the one in use.
pub(super) fn next_batch(padding: &Padding, inputs: &[Value], options: &Options) -> Option<Vec<Vec<usize>>> {
    let Some(Along::Batch { padded, symbol, .. }) = &padding.along else { return None };
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

/// The batch of a run: the first extent of its first input that has axes and whose first one is open.
fn batch(inputs: &[Value], shapes: &[Vec<usize>], sizes: &[usize]) -> Option<Along> {
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
    (rows > 0).then_some(Along::Batch { rows, padded, symbol })
}

/// True for values whose first axis is the batch: of the same symbol, or, where the model names none, of the same extent
/// and open.
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

/// The sequence of a run: the first listed input that is longer than a token and shorter than the padded length.
fn sequence(inputs: &[Value], shapes: &[Vec<usize>], pad: &StaticPad) -> Option<Along> {
    let named = |name: &str| inputs.iter().position(|input| input.name == name).map(|at| &shapes[at]);
    let mask = named(MASK).and_then(|shape| shape.get(1)).copied();
    let padded = mask.filter(|_| !pad.length_is_forced).unwrap_or(pad.length);
    let extents = pad.inputs.iter().filter_map(|(name, axis)| named(name)?.get(*axis).copied());
    let length = extents.into_iter().find(|&extent| 1 < extent && extent < padded)?;
    Some(Along::Sequence { length, padded })
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
        let plan = plan(&[value("x", &["n", "4"])], &[vec![3, 4]], &options(&[]));
        assert_eq!(plan, Padding { shapes: vec![vec![3, 4]], along: None });
    }

    #[test]
    fn a_batch_grows_to_the_next_size_and_outputs_shrink_back() {
        let options = options(&[("compile_batches", "1,4,8")]);
        let inputs = [value("w", &["4", "4"]), value("x", &["n", "4"]), value("y", &["n"]), value("z", &["m"])];
        let padding = plan(&inputs, &[vec![4, 4], vec![3, 4], vec![3], vec![3]], &options);
        assert_eq!(padding.shapes, [vec![4, 4], vec![4, 4], vec![4], vec![3]], "z is of another symbol");
        assert_eq!(cut(&padding, &value("out", &["n", "4"]), &[4, 4], &options), [3, 4]);
        assert_eq!(cut(&padding, &value("w", &["4", "4"]), &[4, 4], &options), [4, 4], "a fixed extent is no batch");
        assert_eq!(next_batch(&padding, &inputs, &options).unwrap()[2], [8]);
        let largest = plan(&inputs, &[vec![4, 4], vec![8, 4], vec![8], vec![3]], &options);
        assert_eq!(next_batch(&largest, &inputs, &options), None);
        let beyond = plan(&inputs, &[vec![4, 4], vec![9, 4], vec![9], vec![3]], &options);
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

    #[test]
    fn the_masks_extent_is_the_padded_length() {
        let inputs = [value("attention_mask", &["b", "t"]), value("input_ids", &["b", "s"]), value("x", &["s"])];
        let padding = plan(&inputs, &[vec![1, 16], vec![1, 5], vec![5]], &padded());
        assert_eq!(padding.shapes, [vec![1, 16], vec![1, 16], vec![5]]);
        assert_eq!(cut(&padding, &value("logits", &["b", "s", "9"]), &[1, 16, 9], &padded()), [1, 5, 9]);
        assert_eq!(cut(&padding, &value("present", &["b", "s"]), &[1, 16], &padded()), [1, 16], "not listed");
        let without = plan(&inputs[1..], &[vec![1, 5], vec![5]], &padded());
        assert_eq!(without.shapes[0], [1, 64]);
    }

    #[test]
    fn decoding_and_long_prompts_are_left_alone() {
        let inputs = [value("attention_mask", &["b", "t"]), value("input_ids", &["b", "s"])];
        for length in [1, 16, 17] {
            let shapes = [vec![1, 16], vec![1, length]];
            assert_eq!(plan(&inputs, &shapes, &padded()).along, None, "{length}");
        }
    }

    proptest! {
        #[test]
        fn what_is_padded_is_cut_back(rows in 1..20_usize, other in 1..20_usize) {
            let options = options(&[("max_dynamic_batch", "16")]);
            let inputs = [value("x", &["n", "?"]), value("y", &["n"])];
            let shapes = [vec![rows, other], vec![rows]];
            let padding = plan(&inputs, &shapes, &options);
            for (input, (padded, shape)) in inputs.iter().zip(padding.shapes.iter().zip(&shapes)) {
                prop_assert!(padded.iter().zip(shape).all(|(padded, extent)| padded >= extent));
                prop_assert_eq!(&cut(&padding, input, padded, &options), shape);
            }
        }
    }
}
