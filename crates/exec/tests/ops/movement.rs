//! Compares data movement on the host device with the definition of each operator, element by element.
use graph::ops::Attribute;
use graph::{DType, Tensor};
use proptest::prelude::*;

use crate::common::{Case, numbers, random, tensor};

const DTYPES: [DType; 6] = [DType::F32, DType::F64, DType::F16, DType::I8, DType::I64, DType::Bool];

/// All indices of a shape in row-major order.
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

fn data(dtype: DType, shape: &[usize]) -> Tensor {
    let count = shape.iter().product();
    let values: Vec<f64> = random(count, 7).into_iter().map(|value| (value * 40.0).round()).collect();
    tensor(dtype, shape, &values)
}

fn ints(values: &[i64]) -> Tensor {
    Tensor::from_i64s(values)
}

/// Fails unless the output has this shape and, at each index, the input's element at the index that `from` returns.
fn assert_moves(case: &Case, input: &Tensor, shape: &[usize], from: impl Fn(&[usize]) -> Option<Vec<usize>>) {
    let found = &case.run().unwrap()[0];
    assert_eq!(found.shape(), shape);
    let values = numbers(input);
    let element = |index: &Vec<usize>| from(index).map_or(0.0, |from| values[flat(input.shape(), &from)]);
    let wanted: Vec<f64> = indices(shape).iter().map(element).collect();
    assert_eq!(numbers(found), wanted, "{} of {input:?}", case.op_type);
}

#[test]
fn transposes_of_every_order() {
    let shape = [2, 3, 4, 5];
    for dtype in DTYPES {
        let input = data(dtype, &shape);
        for order in indices(&[4, 4, 4, 4]) {
            if !(0..4).all(|axis| order.contains(&axis)) {
                continue;
            }
            let perm = order.iter().map(|&axis| axis as i64).collect();
            let case = Case::new("Transpose", 13, vec![input.clone()], &[dtype]);
            let case = case.attribute("perm", Attribute::Ints(perm));
            let to: Vec<usize> = order.iter().map(|&axis| shape[axis]).collect();
            assert_moves(&case, &input, &to, |index| {
                let mut from = vec![0; 4];
                order.iter().zip(index).for_each(|(&axis, &at)| from[axis] = at);
                Some(from)
            });
        }
    }
}

#[test]
fn tiles_and_expansions_repeat() {
    for dtype in DTYPES {
        let input = data(dtype, &[2, 1, 3]);
        let tile = Case::new("Tile", 13, vec![input.clone(), ints(&[2, 3, 2])], &[dtype]);
        assert_moves(&tile, &input, &[4, 3, 6], |index| Some(vec![index[0] % 2, 0, index[2] % 3]));
        let expand = Case::new("Expand", 13, vec![input.clone(), ints(&[2, 1, 4, 1])], &[dtype]);
        assert_moves(&expand, &input, &[2, 2, 4, 3], |index| Some(vec![index[1], 0, index[3]]));
    }
}

#[test]
fn depth_to_space_and_back_follow_their_formulas() {
    let (input, image) = (data(DType::F32, &[2, 12, 3, 2]), data(DType::F32, &[2, 3, 4, 6]));
    for (mode, block_inside) in [("DCR", false), ("CRD", true)] {
        let case = Case::new("DepthToSpace", 13, vec![input.clone()], &[DType::F32]);
        let case = case.attribute("blocksize", Attribute::Int(2)).attribute("mode", Attribute::Text(mode.into()));
        assert_moves(&case, &input, &[2, 3, 6, 4], |index| {
            let place = (index[2] % 2) * 2 + index[3] % 2;
            let channel = if block_inside { index[1] * 4 + place } else { place * 3 + index[1] };
            Some(vec![index[0], channel, index[2] / 2, index[3] / 2])
        });
    }
    let case = Case::new("SpaceToDepth", 13, vec![image.clone()], &[DType::F32]);
    assert_moves(&case.attribute("blocksize", Attribute::Int(2)), &image, &[2, 12, 2, 3], |index| {
        let (place, channel) = (index[1] / 3, index[1] % 3);
        Some(vec![index[0], channel, index[2] * 2 + place / 2, index[3] * 2 + place % 2])
    });
}

#[test]
fn triangles_keep_their_side_for_a_diagonal_given_at_run_time() {
    for dtype in DTYPES {
        let input = data(dtype, &[2, 4, 5]);
        for (upper, k) in [(1, 0), (1, 2), (0, -1), (0, 1), (1, -9)] {
            let diagonal = ints(&[k]).reshaped(&[]).unwrap();
            let case = Case::new("Trilu", 14, vec![input.clone(), diagonal], &[dtype]);
            assert_moves(&case.attribute("upper", Attribute::Int(upper)), &input, &[2, 4, 5], |index| {
                let distance = index[2] as i64 - index[1] as i64;
                let keep = if upper == 1 { distance >= k } else { distance <= k };
                keep.then(|| index.to_vec())
            });
        }
    }
}

#[test]
fn split_parts_concatenate_to_the_original() {
    let input = data(DType::F16, &[3, 7, 2]);
    let split = Case::new("Split", 13, vec![input.clone(), ints(&[2, 0, 5])], &[DType::F16; 3]);
    let parts = split.attribute("axis", Attribute::Int(1)).run().unwrap();
    let shapes: Vec<&[usize]> = parts.iter().map(Tensor::shape).collect();
    assert_eq!(shapes, [[3, 2, 2], [3, 0, 2], [3, 5, 2]]);
    let join = Case::new("Concat", 13, parts, &[DType::F16]).attribute("axis", Attribute::Int(-2));
    assert_moves(&join, &input, &[3, 7, 2], |index| Some(index.to_vec()));
}

#[test]
fn large_tensors_are_computed_on_the_device() {
    let scalar = |value: f64| tensor(DType::F32, &[], &[value]);
    let range = Case::new("Range", 11, vec![scalar(2.0), scalar(2502.0), scalar(0.5)], &[DType::F32]);
    let wanted: Vec<f64> = (0..5000).map(|at| 2.0 + 0.5 * f64::from(at)).collect();
    assert_eq!(numbers(&range.run().unwrap()[0]), wanted);
    let like = data(DType::F32, &[70, 80]);
    let eye = Case::new("EyeLike", 9, vec![like], &[DType::I32]).attribute("k", Attribute::Int(3)).run().unwrap();
    let wanted: Vec<f64> =
        indices(&[70, 80]).iter().map(|index| f64::from(u8::from(index[0] + 3 == index[1]))).collect();
    assert_eq!(numbers(&eye[0]), wanted);
    let value = Attribute::Tensor(tensor(DType::I16, &[1], &[-7.0]));
    let case = Case::new("ConstantOfShape", 9, vec![ints(&[50, 100])], &[DType::I16]).attribute("value", value);
    assert_eq!(numbers(&case.run().unwrap()[0]), [-7.0; 5000]);
}

/// Reflects an index at both ends, one step at a time.
fn reflected(mut at: i64, extent: i64) -> i64 {
    while extent > 1 && !(0..extent).contains(&at) {
        at = if at < 0 { -at } else { 2 * (extent - 1) - at };
    }
    if extent == 1 { 0 } else { at }
}

fn small_shape() -> impl Strategy<Value = Vec<usize>> {
    prop::collection::vec(1usize..5, 1..4)
}

proptest! {
    #[test]
    fn slices_follow_pythons_rules(
        shape in small_shape(),
        bounds in prop::collection::vec((-6i64..7, -6i64..7, prop::sample::select(vec![-3i64, -2, -1, 1, 2, 3])), 3),
    ) {
        let input = data(DType::F32, &shape);
        let bounds = &bounds[..shape.len()];
        let walks: Vec<Vec<usize>> = shape.iter().zip(bounds).map(|(&extent, &(start, end, step))| {
            let extent = extent as i64;
            let absolute = |at: i64| if at < 0 { at + extent } else { at };
            let (low, high) = if step > 0 { (0, extent) } else { (-1, extent - 1) };
            let (mut at, end) = (absolute(start).clamp(low, high), absolute(end).clamp(low, high));
            let mut walk = Vec::new();
            while (step > 0 && at < end) || (step < 0 && at > end) {
                walk.push(at as usize);
                at += step;
            }
            walk
        }).collect();
        let column = |pick: fn(&(i64, i64, i64)) -> i64| ints(&bounds.iter().map(pick).collect::<Vec<_>>());
        let axes = ints(&(0..shape.len() as i64).collect::<Vec<_>>());
        let inputs = vec![input.clone(), column(|b| b.0), column(|b| b.1), axes, column(|b| b.2)];
        let to: Vec<usize> = walks.iter().map(Vec::len).collect();
        assert_moves(&Case::new("Slice", 13, inputs, &[DType::F32]), &input, &to, |index| {
            Some(index.iter().zip(&walks).map(|(&at, walk)| walk[at]).collect())
        });
    }

    #[test]
    fn pads_of_every_mode_and_sign(
        shape in small_shape(),
        amounts in prop::collection::vec((-2i64..7, -2i64..7), 3),
        mode in 0usize..4,
    ) {
        let amounts = &amounts[..shape.len()];
        let left = |at: usize| shape[at] as i64 + amounts[at].0.min(0) + amounts[at].1.min(0);
        let fits = |at: usize| left(at) > 0;
        prop_assume!((0..shape.len()).all(fits));
        let input = data(DType::F32, &shape);
        let pads: Vec<i64> = amounts.iter().map(|a| a.0).chain(amounts.iter().map(|a| a.1)).collect();
        let name = ["constant", "edge", "reflect", "wrap"][mode];
        let case = Case::new("Pad", 19, vec![input.clone(), ints(&pads)], &[DType::F32]);
        let to: Vec<usize> = (0..shape.len()).map(|at| (shape[at] as i64 + amounts[at].0 + amounts[at].1) as usize).collect();
        assert_moves(&case.attribute("mode", Attribute::Text(name.into())), &input, &to, |index| {
            index.iter().enumerate().map(|(axis, &at)| {
                let (at, extent) = (at as i64 - amounts[axis].0.max(0), left(axis));
                let inside = match name {
                    "constant" => (0..extent).contains(&at).then_some(at)?,
                    "edge" => at.clamp(0, extent - 1),
                    "reflect" => reflected(at, extent),
                    _ => at.rem_euclid(extent),
                };
                Some((inside - amounts[axis].0.min(0)) as usize)
            }).collect()
        });
    }
}
