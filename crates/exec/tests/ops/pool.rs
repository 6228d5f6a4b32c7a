//! Compares pools with loops in double precision.
use graph::DType;
use graph::ops::Attribute;
use proptest::prelude::*;

use crate::array::{Array, indices};
use crate::common::{Case, assert_close, numbers};

#[derive(Clone, Debug)]
struct Window {
    kernel: Vec<usize>,
    strides: Vec<usize>,
    dilations: Vec<usize>,
    pads: Vec<usize>,
    ceil: bool,
}

impl Window {
    fn plain(kernel: &[usize]) -> Self {
        let rank = kernel.len();
        let (strides, dilations) = (vec![1; rank], vec![1; rank]);
        Self { kernel: kernel.to_vec(), strides, dilations, pads: vec![0; 2 * rank], ceil: false }
    }

    fn on(&self, case: Case) -> Case {
        let ints = |list: &[usize]| Attribute::Ints(list.iter().map(|&value| value as i64).collect());
        case.attribute("kernel_shape", ints(&self.kernel))
            .attribute("strides", ints(&self.strides))
            .attribute("dilations", ints(&self.dilations))
            .attribute("pads", ints(&self.pads))
            .attribute("ceil_mode", Attribute::Int(i64::from(self.ceil)))
    }

    fn output(&self, input: &[usize]) -> Vec<usize> {
        let rank = input.len();
        (0..rank)
            .map(|axis| {
                let reach = (self.kernel[axis] - 1) * self.dilations[axis] + 1;
                let room = input[axis] + self.pads[axis] + self.pads[rank + axis] - reach;
                if !self.ceil {
                    return room / self.strides[axis] + 1;
                }
                let count = room.div_ceil(self.strides[axis]) + 1;
                let starts_outside = (count - 1) * self.strides[axis] >= input[axis] + self.pads[axis];
                count - usize::from(starts_outside)
            })
            .collect()
    }

    /// The positions of a window's elements in the input, and how many positions are in the input or its padding.
    fn places(&self, input: &[usize], window: &[usize]) -> (Vec<Vec<usize>>, usize) {
        let rank = input.len();
        let (mut found, mut counted) = (Vec::new(), 0);
        for offset in indices(&self.kernel) {
            let at: Vec<usize> =
                (0..rank).map(|axis| window[axis] * self.strides[axis] + offset[axis] * self.dilations[axis]).collect();
            let inside = |axis: usize| at[axis] < input[axis] + self.pads[axis] + self.pads[rank + axis];
            counted += usize::from((0..rank).all(inside));
            let place: Option<Vec<usize>> = (0..rank)
                .map(|axis| at[axis].checked_sub(self.pads[axis]).filter(|&place| place < input[axis]))
                .collect();
            found.extend(place);
        }
        (found, counted)
    }
}

/// Pools every window with a function of its elements and the number of counted positions.
fn pooled(x: &Array, window: &Window, fold: impl Fn(&[f64], usize) -> f64) -> Array {
    let shape = [&x.shape[..2], &window.output(&x.shape[2..])[..]].concat();
    Array::of(&shape, |index| {
        let (places, counted) = window.places(&x.shape[2..], &index[2..]);
        let values: Vec<f64> = places.iter().map(|place| x.at(&[&index[..2], &place[..]].concat())).collect();
        fold(&values, counted)
    })
}

fn largest(values: &[f64], _: usize) -> f64 {
    values.iter().copied().fold(f64::NEG_INFINITY, f64::max)
}

fn mean(values: &[f64], _: usize) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

fn mean_with_padding(values: &[f64], counted: usize) -> f64 {
    values.iter().sum::<f64>() / counted as f64
}

fn check(x: &Array, window: &Window, dtype: DType, tolerance: f64) {
    let case = |op_type| window.on(Case::new(op_type, 22, vec![x.tensor(dtype)], &[dtype]));
    let compare = |case: Case, wanted: Array| {
        let found = case.run().unwrap();
        assert_eq!(found[0].shape(), wanted.shape, "{window:?}");
        assert_close(&numbers(&found[0]), &wanted.values, tolerance);
    };
    compare(case("MaxPool"), pooled(x, window, largest));
    compare(case("AveragePool"), pooled(x, window, mean));
    let counting = case("AveragePool").attribute("count_include_pad", Attribute::Int(1));
    compare(counting, pooled(x, window, mean_with_padding));
    for p in [1, 2, 3] {
        let norm =
            |values: &[f64], _| values.iter().map(|value| value.abs().powi(p)).sum::<f64>().powf(1.0 / f64::from(p));
        compare(case("LpPool").attribute("p", Attribute::Int(i64::from(p))), pooled(x, window, norm));
    }
}

#[test]
fn one_two_and_three_axes_in_every_type() {
    for (dtype, tolerance) in [(DType::F32, 1e-5), (DType::F64, 1e-12), (DType::F16, 5e-3)] {
        check(&Array::random(dtype, &[2, 3, 9], 1), &Window::plain(&[3]), dtype, tolerance);
        check(&Array::random(dtype, &[1, 3, 6, 7], 2), &Window::plain(&[2, 3]), dtype, tolerance);
        check(&Array::random(dtype, &[1, 2, 4, 5, 4], 3), &Window::plain(&[2, 2, 3]), dtype, tolerance);
    }
}

#[test]
fn integers_have_a_maximum() {
    for dtype in [DType::I8, DType::U8] {
        let x = Array::random(dtype, &[1, 2, 5, 5], 1);
        let window = Window { pads: vec![1; 4], ..Window::plain(&[3, 3]) };
        let found = window.on(Case::new("MaxPool", 12, vec![x.tensor(dtype)], &[dtype])).run().unwrap();
        assert_eq!(numbers(&found[0]), pooled(&x, &window, largest).values);
    }
}

#[test]
fn indices_of_maxima_count_over_the_whole_input_in_either_order() {
    let x = Array::random(DType::F32, &[2, 2, 5, 4], 1);
    let window = Window { pads: vec![1; 4], strides: vec![2, 2], ..Window::plain(&[3, 3]) };
    for column_major in [false, true] {
        let case = Case::new("MaxPool", 12, vec![x.tensor(DType::F32)], &[DType::F32, DType::I64]);
        let found = window.on(case.attribute("storage_order", Attribute::Int(i64::from(column_major)))).run().unwrap();
        let shape = [&x.shape[..2], &window.output(&x.shape[2..])[..]].concat();
        let wanted = Array::of(&shape, |index| {
            let (places, _) = window.places(&x.shape[2..], &index[2..]);
            let value = |place: &Vec<usize>| x.at(&[&index[..2], &place[..]].concat());
            let best =
                places.iter().fold(&places[0], |best, place| if value(place) > value(best) { place } else { best });
            let plane = (index[0] * 2 + index[1]) * 20;
            (plane + if column_major { best[1] * 5 + best[0] } else { best[0] * 4 + best[1] }) as f64
        });
        assert_eq!(numbers(&found[1]), wanted.values);
    }
}

#[test]
fn global_pools_leave_one_element_per_channel() {
    let x = Array::random(DType::F32, &[2, 3, 5, 4], 1);
    let window = Window::plain(&[5, 4]);
    let norm = |p: i32| {
        move |values: &[f64], _: usize| {
            values.iter().map(|value| value.abs().powi(p)).sum::<f64>().powf(1.0 / f64::from(p))
        }
    };
    let case = |op_type| Case::new(op_type, 1, vec![x.tensor(DType::F32)], &[DType::F32]);
    let lp = |p: i64| case("GlobalLpPool").attribute("p", Attribute::Int(p));
    for (case, wanted) in [
        (case("GlobalMaxPool"), pooled(&x, &window, largest)),
        (case("GlobalAveragePool"), pooled(&x, &window, mean)),
        (lp(1), pooled(&x, &window, norm(1))),
        (lp(2), pooled(&x, &window, norm(2))),
        (lp(3), pooled(&x, &window, norm(3))),
    ] {
        let found = case.run().unwrap();
        assert_eq!(found[0].shape(), [2, 3, 1, 1]);
        assert_close(&numbers(&found[0]), &wanted.values, 1e-5);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    #[test]
    fn random_windows_agree_with_the_loops(
        extents in prop::collection::vec(4usize..9, 1..3), kernel in 2usize..4, stride in 1usize..4,
        dilation in 1usize..3, front in 0usize..2, back in 0usize..2, ceil in any::<bool>(), seed in any::<u64>(),
    ) {
        let rank = extents.len();
        prop_assume!(extents.iter().all(|&extent| extent + front + back > (kernel - 1) * dilation));
        // A window that sees only padding has no mean.
        prop_assume!(dilation == 1 || front + back == 0);
        let mut pads = vec![front; rank];
        pads.resize(2 * rank, back);
        let window = Window { strides: vec![stride; rank], dilations: vec![dilation; rank], pads, ceil, ..Window::plain(&vec![kernel; rank]) };
        let x = Array::random(DType::F32, &[&[2, 2], &extents[..]].concat(), seed);
        check(&x, &window, DType::F32, 1e-5);
    }
}
