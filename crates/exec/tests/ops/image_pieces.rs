//! Compares Col2Im, MaxUnpool, DeformConv, MelWeightMatrix and BatchNormalization in training with plain loops in double
//! precision.
use graph::DType;
use graph::ops::Attribute;

use crate::array::Array;
use crate::common::{Case, assert_close, numbers, tensor};

fn ints(values: &[usize]) -> Attribute {
    Attribute::Ints(values.iter().map(|&value| value as i64).collect())
}

/// The form of a Col2Im with two axes.
struct Columns {
    image: [usize; 2],
    block: [usize; 2],
    strides: [usize; 2],
    dilations: [usize; 2],
    pads: [usize; 4],
}

impl Columns {
    fn check(&self, dtype: DType) {
        let Self { image, block, strides, dilations, pads } = self;
        let (batch, channels) = (2, 3);
        let place = |axis: usize| {
            (image[axis] + pads[axis] + pads[2 + axis] - dilations[axis] * (block[axis] - 1) - 1) / strides[axis] + 1
        };
        let (places, taps) = ([place(0), place(1)], block[0] * block[1]);
        let columns = Array::random(dtype, &[batch, channels * taps, places[0] * places[1]], 1);
        let mut wanted = vec![0.0; batch * channels * image[0] * image[1]];
        for (b, c) in (0..batch * channels).map(|at| (at / channels, at % channels)) {
            for (tap, spot) in (0..taps * places[0] * places[1]).map(|at| (at % taps, at / taps)) {
                let row = (spot / places[1] * strides[0] + tap / block[1] * dilations[0]).checked_sub(pads[0]);
                let column = (spot % places[1] * strides[1] + tap % block[1] * dilations[1]).checked_sub(pads[1]);
                if let (Some(row), Some(column)) = (row.filter(|&it| it < image[0]), column.filter(|&it| it < image[1]))
                {
                    let at = ((b * channels + c) * image[0] + row) * image[1] + column;
                    wanted[at] += columns.at(&[b, c * taps + tap, spot]);
                }
            }
        }
        let shape = |extents: &[usize; 2]| tensor(DType::I64, &[2], &extents.map(|extent| extent as f64));
        let mut case = Case::new("Col2Im", 18, vec![columns.tensor(dtype), shape(image), shape(block)], &[dtype]);
        case.constants = vec![1, 2];
        let case = case.attribute("strides", ints(strides)).attribute("dilations", ints(dilations));
        let found = case.attribute("pads", ints(pads)).run().unwrap();
        assert_eq!(found[0].shape(), [batch, channels, image[0], image[1]]);
        assert_close(&numbers(&found[0]), &wanted, if dtype == DType::F32 { 1e-5 } else { 1e-2 });
    }
}

#[test]
fn columns_add_up_to_an_image() {
    let plain = || Columns { image: [5, 6], block: [2, 3], strides: [1, 1], dilations: [1, 1], pads: [0; 4] };
    plain().check(DType::F32);
    plain().check(DType::F16);
    Columns { strides: [2, 2], pads: [1, 0, 0, 2], ..plain() }.check(DType::F32);
    Columns { dilations: [2, 1], strides: [1, 3], ..plain() }.check(DType::F32);
}

#[test]
fn maxima_return_to_their_places() {
    let x = Array::random(DType::F32, &[1, 2, 2, 2], 1);
    let places = [0.0, 3.0, 9.0, 14.0, 16.0, 18.0, 28.0, 31.0];
    let inputs = vec![x.tensor(DType::F32), tensor(DType::I64, &[1, 2, 2, 2], &places)];
    let case = Case::new("MaxUnpool", 11, inputs, &[DType::F32]);
    let case = case.attribute("kernel_shape", ints(&[2, 2])).attribute("strides", ints(&[2, 2]));
    let mut wanted = vec![0.0; 32];
    places.iter().zip(&x.values).for_each(|(&at, &value)| wanted[at as usize] = value);
    let found = case.run().unwrap();
    assert_eq!(found[0].shape(), [1, 2, 4, 4]);
    assert_eq!(numbers(&found[0]), wanted);
    let shaped =
        Case { inputs: [case.inputs, vec![Some(tensor(DType::I64, &[4], &[1.0, 2.0, 4.0, 4.0]))]].concat(), ..case };
    assert!(shaped.run().unwrap_err().contains("output_shape"));
}

/// A deformable convolution of an image `[2, 4, 6, 5]` with windows `[3, 2]`.
struct Deformed {
    dtype: DType,
    groups: usize,
    offset_groups: usize,
    strides: [usize; 2],
    dilations: [usize; 2],
    pads: [usize; 4],
    bias: bool,
    mask: bool,
}

impl Deformed {
    fn check(&self) {
        let (dtype, image, window) = (self.dtype, [6usize, 5usize], [3usize, 2usize]);
        let (channels, filters, taps) = (4, 6, 6);
        let extent = |axis: usize| {
            let whole = image[axis] + self.pads[axis] + self.pads[2 + axis];
            (whole - self.dilations[axis] * (window[axis] - 1) - 1) / self.strides[axis] + 1
        };
        let to = [extent(0), extent(1)];
        let x = Array::random(dtype, &[2, channels, 6, 5], 1);
        let weights = Array::random(dtype, &[filters, channels / self.groups, 3, 2], 2);
        let offsets = Array::random(dtype, &[2, 2 * self.offset_groups * taps, to[0], to[1]], 3);
        let bias = Array::random(dtype, &[filters], 4);
        let mask = Array::random(dtype, &[2, self.offset_groups * taps, to[0], to[1]], 5);
        let pixel = |n: usize, c: usize, row: f64, column: f64| {
            let inside = row >= 0.0 && column >= 0.0 && row < 6.0 && column < 5.0;
            if inside { x.at(&[n, c, row as usize, column as usize]) } else { 0.0 }
        };
        let sampled = |n: usize, c: usize, y: f64, x: f64| {
            let (top, left) = (y.floor(), x.floor());
            let (down, right) = (y - top, x - left);
            pixel(n, c, top, left) * (1.0 - down) * (1.0 - right)
                + pixel(n, c, top, left + 1.0) * (1.0 - down) * right
                + pixel(n, c, top + 1.0, left) * down * (1.0 - right)
                + pixel(n, c, top + 1.0, left + 1.0) * down * right
        };
        let depth = channels / self.groups;
        let wanted = Array::of(&[2, filters, to[0], to[1]], |at| {
            let (n, filter, row, column) = (at[0], at[1], at[2], at[3]);
            let group = filter / (filters / self.groups);
            let mut sum = if self.bias { bias.at(&[filter]) } else { 0.0 };
            for (d, tap) in (0..depth * taps).map(|at| (at / taps, at % taps)) {
                let channel = group * depth + d;
                let set = channel / (channels / self.offset_groups);
                let place = |axis: usize| {
                    let (spot, inner) = if axis == 0 { (row, tap / 2) } else { (column, tap % 2) };
                    let base =
                        (spot * self.strides[axis] + inner * self.dilations[axis]) as f64 - self.pads[axis] as f64;
                    base + offsets.at(&[n, 2 * (set * taps + tap) + axis, row, column])
                };
                let factor = if self.mask { mask.at(&[n, set * taps + tap, row, column]) } else { 1.0 };
                sum += weights.at(&[filter, d, tap / 2, tap % 2]) * factor * sampled(n, channel, place(0), place(1));
            }
            sum
        });
        let inputs = vec![x.tensor(dtype), weights.tensor(dtype), offsets.tensor(dtype)];
        let mut case = Case::new("DeformConv", 19, inputs, &[dtype]);
        case.inputs.push(self.bias.then(|| bias.tensor(dtype)));
        case.inputs.push(self.mask.then(|| mask.tensor(dtype)));
        let case = case
            .attribute("strides", ints(&self.strides))
            .attribute("dilations", ints(&self.dilations))
            .attribute("pads", ints(&self.pads))
            .attribute("group", Attribute::Int(self.groups as i64))
            .attribute("offset_group", Attribute::Int(self.offset_groups as i64));
        let found = case.run().unwrap();
        assert_eq!(found[0].shape(), wanted.shape);
        assert_close(&numbers(&found[0]), &wanted.values, if dtype == DType::F32 { 1e-4 } else { 5e-2 });
    }
}

#[test]
fn windows_with_offsets() {
    let plain = || Deformed {
        dtype: DType::F32,
        groups: 1,
        offset_groups: 1,
        strides: [1, 1],
        dilations: [1, 1],
        pads: [0; 4],
        bias: false,
        mask: false,
    };
    plain().check();
    Deformed { groups: 2, offset_groups: 2, bias: true, mask: true, pads: [1, 0, 2, 1], ..plain() }.check();
    Deformed { strides: [2, 1], dilations: [1, 2], offset_groups: 4, mask: true, ..plain() }.check();
    Deformed { dtype: DType::F16, bias: true, ..plain() }.check();
}

/// A bin without width is 1 at its centre; others rise to their centre and fall to their right edge.
#[test]
fn mel_weights_are_triangles() {
    let (bins, length, rate, low, high) = (8usize, 16usize, 8192.0f64, 0.0f64, 4096.0f64);
    let number = |dtype, value: f64| tensor(dtype, &[], &[value]);
    let inputs = vec![
        number(DType::I64, bins as f64),
        number(DType::I64, length as f64),
        number(DType::I64, rate),
        number(DType::F32, low),
        number(DType::F32, high),
    ];
    let mut case = Case::new("MelWeightMatrix", 17, inputs, &[DType::F32]);
    case.constants = (0..5).collect();
    let found = case.run().unwrap();
    assert_eq!(found[0].shape(), [9, 8]);
    let mel = |hertz: f64| 2595.0 * (1.0 + hertz / 700.0).log10();
    let edges: Vec<usize> = (0..bins + 2)
        .map(|at| {
            let at = mel(low) + at as f64 * (mel(high) - mel(low)) / (bins + 2) as f64;
            (((length + 1) as f64 * 700.0 * (10f64.powf(at / 2595.0) - 1.0)) / rate).floor() as usize
        })
        .collect();
    let mut wanted = vec![0.0; 9 * bins];
    for bin in 0..bins {
        let [left, centre, right] = [edges[bin], edges[bin + 1], edges[bin + 2]];
        (left..=centre).for_each(|row| {
            wanted[row * bins + bin] = if left == centre { 1.0 } else { (row - left) as f64 / (centre - left) as f64 };
        });
        (centre..right).for_each(|row| wanted[row * bins + bin] = (right - row) as f64 / (right - centre) as f64);
    }
    assert_close(&numbers(&found[0]), &wanted, 1e-6);
}

#[test]
fn batches_are_normalised_by_their_own_statistics() {
    for (dtype, allowed) in [(DType::F32, 1e-4), (DType::F16, 2e-2)] {
        let x = Array::random(dtype, &[3, 2, 4, 5], 1);
        let vectors: Vec<Array> = (0..4).map(|seed| Array::random(dtype, &[2], 2 + seed)).collect();
        let of_channel =
            |c: usize| x.values.iter().enumerate().filter(move |(at, _)| at / 20 % 2 == c).map(|(_, &x)| x);
        let mean = [0, 1].map(|c| of_channel(c).sum::<f64>() / 60.0);
        let variance = [0, 1].map(|c| of_channel(c).map(|x| (x - mean[c]).powi(2)).sum::<f64>() / 60.0);
        let y = Array::of(&x.shape, |at| {
            let c = at[1];
            (x.at(at) - mean[c]) / (variance[c] + 1e-2).sqrt() * vectors[0].at(&[c]) + vectors[1].at(&[c])
        });
        let running = |old: &Array, new: [f64; 2]| [0, 1].map(|c| 0.7 * old.at(&[c]) + (1.0 - 0.7) * new[c]);
        let inputs = [&x].into_iter().chain(&vectors).map(|array| array.tensor(dtype)).collect();
        let case = Case::new("BatchNormalization", 15, inputs, &[dtype; 3])
            .attribute("training_mode", Attribute::Int(1))
            .attribute("epsilon", Attribute::Float(1e-2))
            .attribute("momentum", Attribute::Float(0.7));
        let found = case.run().unwrap();
        assert_close(&numbers(&found[0]), &y.values, allowed);
        assert_close(&numbers(&found[1]), &running(&vectors[2], mean), allowed);
        assert_close(&numbers(&found[2]), &running(&vectors[3], variance), allowed);
    }
}
