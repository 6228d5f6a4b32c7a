//! Compares reading and writing by index on the host device with loops over the definition of each operator.
use graph::ops::Attribute;
use graph::{DType, Tensor};
use proptest::prelude::*;

use crate::common::{Case, numbers, random, tensor};

fn indices(shape: &[usize]) -> Vec<Vec<usize>> {
    let mut all = vec![vec![]];
    for &extent in shape {
        all = all.iter().flat_map(|index| (0..extent).map(|at| [&index[..], &[at]].concat())).collect();
    }
    all
}

fn flat(shape: &[usize], index: &[usize]) -> usize {
    shape.iter().zip(index).fold(0, |at, (extent, index)| at * extent + index)
}

fn data(dtype: DType, shape: &[usize], seed: u64) -> Tensor {
    let values: Vec<f64> =
        random(shape.iter().product(), seed).into_iter().map(|value| (value * 3.0).round()).collect();
    tensor(dtype, shape, &values)
}

/// Indices below an extent, about half of them counted from the end.
fn places(dtype: DType, shape: &[usize], extents: impl Fn(usize) -> usize, seed: u64) -> Tensor {
    let draws = random(shape.iter().product(), seed);
    let values: Vec<f64> = draws
        .iter()
        .enumerate()
        .map(|(at, draw)| {
            (draw / 2.0 * extents(at) as f64).floor().clamp(-(extents(at) as f64), extents(at) as f64 - 1.0)
        })
        .collect();
    tensor(dtype, shape, &values)
}

fn resolved(places: &Tensor, at: usize, extent: usize) -> usize {
    let place = places.get(at).as_i64();
    (if place < 0 { place + extent as i64 } else { place }) as usize
}

/// The first output, which must be the same whether the device or the planner computes it.
fn run(mut case: Case) -> Tensor {
    case.constants = (0..case.inputs.len()).collect();
    let planned = case.run().unwrap().remove(0);
    case.constants.clear();
    let found = case.run().unwrap().remove(0);
    assert_eq!(found, planned);
    found
}

fn index_type() -> impl Strategy<Value = DType> {
    prop::sample::select(vec![DType::I32, DType::I64])
}

fn element_type() -> impl Strategy<Value = DType> {
    prop::sample::select(vec![DType::F32, DType::F16, DType::F64, DType::I8, DType::U16, DType::I64, DType::Bool])
}

fn small_shape() -> impl Strategy<Value = Vec<usize>> {
    prop::collection::vec(1usize..5, 1..4)
}

/// One update of an element, in its own type: integers wrap at every step, and a longer product would not be exact in
/// f64.
fn meet(dtype: DType, reduction: &str, old: f64, new: f64) -> f64 {
    let exact = match reduction {
        "add" => old + new,
        "mul" => old * new,
        "max" => old.max(new),
        "min" => old.min(new),
        _ => new,
    };
    numbers(&tensor(dtype, &[], &[exact]))[0]
}

fn reduction() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec!["none", "add", "mul", "max", "min"])
}

proptest! {
    #[test]
    fn gathers_slices(
        shape in small_shape(),
        list in prop::collection::vec(0usize..4, 0..3),
        axis in any::<prop::sample::Index>(),
        (dtype, index_dtype) in (element_type(), index_type()),
        seed in 1u64..1000,
    ) {
        let axis = axis.index(shape.len());
        let (input, list) = (data(dtype, &shape, seed), places(index_dtype, &list, |_| shape[axis], seed + 1));
        let case = Case::new("Gather", 13, vec![input.clone(), list.clone()], &[dtype]);
        let found = &run(case.attribute("axis", Attribute::Int(axis as i64)));
        let to = [&shape[..axis], list.shape(), &shape[axis + 1..]].concat();
        prop_assert_eq!(found.shape(), &to[..]);
        let values = numbers(&input);
        let wanted: Vec<f64> = indices(&to).iter().map(|index| {
            let rank = list.shape().len();
            let place = resolved(&list, flat(list.shape(), &index[axis..axis + rank]), shape[axis]);
            values[flat(&shape, &[&index[..axis], &[place], &index[axis + rank..]].concat())]
        }).collect();
        prop_assert_eq!(numbers(found), wanted);
    }

    #[test]
    fn gathers_elements(
        shape in small_shape(),
        smaller in prop::collection::vec(0usize..4, 3),
        count in 0usize..6,
        axis in any::<prop::sample::Index>(),
        (dtype, index_dtype) in (element_type(), index_type()),
        seed in 1u64..1000,
    ) {
        let axis = axis.index(shape.len());
        let mut to: Vec<usize> = shape.iter().zip(&smaller).map(|(&extent, &less)| extent.min(less.max(1))).collect();
        to[axis] = count;
        let (input, list) = (data(dtype, &shape, seed), places(index_dtype, &to, |_| shape[axis], seed + 1));
        let case = Case::new("GatherElements", 13, vec![input.clone(), list.clone()], &[dtype]);
        let found = &run(case.attribute("axis", Attribute::Int(axis as i64)));
        let values = numbers(&input);
        let wanted: Vec<f64> = indices(&to).iter().map(|index| {
            let mut from = index.clone();
            from[axis] = resolved(&list, flat(&to, index), shape[axis]);
            values[flat(&shape, &from)]
        }).collect();
        prop_assert_eq!(numbers(found), wanted);
    }

    #[test]
    fn gathers_and_scatters_slices_by_tuples(
        shape in small_shape(),
        (batch, depth, count) in (0usize..2, 1usize..4, 1usize..4),
        (dtype, index_dtype) in (element_type(), index_type()),
        reduction in reduction(),
        seed in 1u64..1000,
    ) {
        let batch = batch.min(shape.len() - 1);
        let depth = depth.min(shape.len() - batch);
        let tuples = |batch: usize| {
            let list = [&shape[..batch], &[count, depth]].concat();
            places(index_dtype, &list, |at| shape[batch + at % depth], seed + 1)
        };
        let place = |list: &Tensor, batch: usize, index: &[usize]| -> Vec<usize> {
            let tuple = flat(&list.shape()[..=batch], &index[..=batch]) * depth;
            let chosen = (0..depth).map(|at| resolved(list, tuple + at, shape[batch + at]));
            index[..batch].iter().copied().chain(chosen).chain(index[batch + 1..].iter().copied()).collect()
        };
        let input = data(dtype, &shape, seed);
        let values = numbers(&input);

        let list = tuples(batch);
        let case = Case::new("GatherND", 13, vec![input.clone(), list.clone()], &[dtype]);
        let found = &run(case.attribute("batch_dims", Attribute::Int(batch as i64)));
        let to = [&shape[..batch], &[count], &shape[batch + depth..]].concat();
        prop_assert_eq!(found.shape(), &to[..]);
        let wanted: Vec<f64> = indices(&to).iter().map(|index| values[flat(&shape, &place(&list, batch, index))]).collect();
        prop_assert_eq!(numbers(found), wanted);

        let depth_only = depth.min(shape.len());
        let list = tuples(0);
        let to = [&[count], &shape[depth_only..]].concat();
        let reduction = if dtype == DType::Bool { "none" } else { reduction };
        let updates = data(dtype, &to, seed + 2);
        let case = Case::new("ScatterND", 18, vec![input.clone(), list.clone(), updates.clone()], &[dtype]);
        let found = &run(case.attribute("reduction", Attribute::Text(reduction.into())));
        let mut wanted = values.clone();
        for (index, update) in indices(&to).iter().zip(numbers(&updates)) {
            let at = flat(&shape, &place(&list, 0, index));
            wanted[at] = meet(dtype, reduction, wanted[at], update);
        }
        prop_assert_eq!(numbers(found), wanted, "{}", reduction);
    }

    #[test]
    fn scatters_elements(
        shape in small_shape(),
        count in 0usize..4,
        axis in any::<prop::sample::Index>(),
        (dtype, index_dtype) in (element_type(), index_type()),
        reduction in reduction(),
        seed in 1u64..1000,
    ) {
        let axis = axis.index(shape.len());
        let mut to = shape.clone();
        to[axis] = count;
        let reduction = if dtype == DType::Bool { "none" } else { reduction };
        let (input, updates) = (data(dtype, &shape, seed), data(dtype, &to, seed + 2));
        let list = places(index_dtype, &to, |_| shape[axis], seed + 1);
        let case = Case::new("ScatterElements", 18, vec![input.clone(), list.clone(), updates.clone()], &[dtype]);
        let case = case.attribute("axis", Attribute::Int(axis as i64));
        let found = &run(case.attribute("reduction", Attribute::Text(reduction.into())));
        let mut wanted = numbers(&input);
        for (number, index) in indices(&to).iter().enumerate() {
            let mut place = index.clone();
            place[axis] = resolved(&list, number, shape[axis]);
            let at = flat(&shape, &place);
            wanted[at] = meet(dtype, reduction, wanted[at], numbers(&updates)[number]);
        }
        prop_assert_eq!(numbers(found), wanted, "{}", reduction);
    }

    #[test]
    fn one_hot_marks_each_index(
        shape in prop::collection::vec(1usize..4, 0..3),
        (depth, axis) in (1usize..6, any::<prop::sample::Index>()),
        seed in 1u64..1000,
    ) {
        let axis = axis.index(shape.len() + 1);
        let draws: Vec<f64> = random(shape.iter().product(), seed).iter().map(|draw| (draw * 4.0).round()).collect();
        let list = tensor(DType::I32, &shape, &draws);
        let given = vec![list, tensor(DType::I64, &[], &[depth as f64]), tensor(DType::F32, &[2], &[0.25, 4.0])];
        let case = Case::new("OneHot", 11, given, &[DType::F32]).attribute("axis", Attribute::Int(axis as i64));
        let found = &run(case);
        let mut to = shape.clone();
        to.insert(axis, depth);
        prop_assert_eq!(found.shape(), &to[..]);
        let wanted: Vec<f64> = indices(&to).iter().map(|index| {
            let mut rest = index.clone();
            let place = rest.remove(axis) as f64;
            let draw = draws[flat(&shape, &rest)];
            if draw == place || draw + depth as f64 == place { 4.0 } else { 0.25 }
        }).collect();
        prop_assert_eq!(numbers(found), wanted);
    }
}

#[test]
fn sequences_are_reversed_up_to_their_lengths() {
    let input = data(DType::F16, &[5, 4, 2], 3);
    let lengths = [5usize, 1, 0, 3];
    let list = Tensor::from_i64s(&lengths.map(|length| length as i64));
    let found = run(Case::new("ReverseSequence", 10, vec![input.clone(), list], &[DType::F16]));
    let values = numbers(&input);
    let wanted: Vec<f64> = indices(&[5, 4, 2])
        .iter()
        .map(|index| {
            let length = lengths[index[1]];
            let step = if index[0] < length { length - 1 - index[0] } else { index[0] };
            values[flat(&[5, 4, 2], &[step, index[1], index[2]])]
        })
        .collect();
    assert_eq!(numbers(&found), wanted);
}

#[test]
fn a_cache_is_updated_at_the_position_of_each_batch() {
    let (cache, update) = (data(DType::F32, &[2, 3, 4, 2], 5), data(DType::F32, &[2, 3, 2, 2], 6));
    for (mode, starts) in [("linear", [0usize, 2]), ("circular", [3, 6])] {
        let list = Tensor::from_i64s(&starts.map(|start| start as i64));
        let case = Case::new("TensorScatter", 24, vec![cache.clone(), update.clone(), list], &[DType::F32]);
        let found = run(case.attribute("mode", Attribute::Text(mode.into())));
        let mut wanted = numbers(&cache);
        for (index, value) in indices(&[2, 3, 2, 2]).iter().zip(numbers(&update)) {
            let place = (starts[index[0]] + index[2]) % 4;
            wanted[flat(&[2, 3, 4, 2], &[index[0], index[1], place, index[3]])] = value;
        }
        assert_eq!(numbers(&found), wanted, "{mode}");
    }
}

#[test]
fn an_index_out_of_range_fails_the_run_with_a_readable_error() {
    let input = data(DType::F32, &[3, 2], 1);
    for (op_type, index) in [("Gather", 3.0), ("Gather", -4.0), ("GatherElements", 3.0), ("GatherND", -4.0)] {
        let list = tensor(DType::I64, &[1, 1], &[index]);
        let error = Case::new(op_type, 13, vec![input.clone(), list], &[DType::F32]).run().unwrap_err();
        assert_reports(&error, index);
    }
    for (op_type, update) in [("ScatterElements", &[1, 1][..]), ("ScatterND", &[1, 2])] {
        let (list, updates) = (tensor(DType::I64, &[1, 1], &[3.0]), data(DType::F32, update, 2));
        let error = Case::new(op_type, 18, vec![input.clone(), list, updates], &[DType::F32]).run().unwrap_err();
        assert_reports(&error, 3.0);
    }
}

/// A kernel reports that an index is wrong, but not which one.
fn assert_reports(error: &str, index: f64) {
    let whole = format!("index {index} is out of range for an axis of 3 elements");
    let wanted = if crate::common::device::is_host() { whole.as_str() } else { "an index is out of range" };
    assert!(error.contains(wanted), "{error}");
}
