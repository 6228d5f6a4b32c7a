#![allow(clippy::unwrap_used)]
use std::sync::Mutex;

use graph::Tensor as Constant;
use graph::prim::Zeros;
use graph::quant::QuantWeights;

use super::*;
use crate::Serial;
use crate::quant::panel::whole;

/// Deterministic bytes.
fn bytes(count: usize, seed: u32) -> Vec<u8> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    (0..count).map(|_| next()).collect()
}

fn floats(count: usize, seed: u32) -> Vec<f32> {
    bytes(count, seed).iter().map(|&byte| f32::from(byte) / 64.0 - 2.0).collect()
}

fn constant(dtype: DType, shape: &[usize], bytes: &[u8]) -> Constant {
    Constant::from_bytes(dtype, shape, bytes).unwrap()
}

fn of_floats(shape: &[usize], values: &[f32]) -> Constant {
    constant(DType::F32, shape, &values.iter().flat_map(|value| value.to_ne_bytes()).collect::<Vec<_>>())
}

fn shown<'a>(view: &'a graph::View, tensor: &'a Constant) -> Tensor<'a> {
    // SAFETY: the view shows all of the constant.
    unsafe { Tensor::new(view, tensor.bytes().as_ptr()) }
}

/// All rows and columns with one set of kernels.
fn multiply(kernels: &'static Kernels, given: &QuantWeights, a: &Constant) -> Vec<f32> {
    let (prim, rows, columns) = (&given.product, a.shape()[1], given.columns);
    let views: Vec<_> = given.tensors.iter().map(whole).collect();
    let operands: Vec<_> = views.iter().zip(&given.tensors).map(|(view, tensor)| shown(view, tensor)).collect();
    let view = whole(a);
    let left = shown(&view, a);
    let panels = Panels::new(prim, columns, given.depth, &operands);
    let layout = Layout::new(prim, rows, given.depth, kernels.rounds);
    let (mut memory, mut own) = (vec![0u8; layout.bytes()], vec![0u8; panels.scratch_bytes()]);
    // SAFETY: the view shows all of the constant.
    let activations = unsafe { layout.fill::<f32>(&left, &mut memory, &Serial) };
    let out = Mutex::new(vec![f32::NAN; rows * columns]);
    let store = |tile: &Tile<'_, f32>| {
        let mut out = out.lock().unwrap();
        tile.each_row(|row, values| out[row * columns + tile.column..][..values.len()].copy_from_slice(values));
    };
    let width = if rows == 1 { ROW_WIDTH } else { WIDTH };
    let product = Product { kernels, panels: &panels, activations: &activations, rows, columns, width, store: &store };
    (0..columns).step_by(width).for_each(|first| product.columns(first, &mut own));
    out.into_inner().unwrap()
}

#[test]
fn every_set_of_kernels_of_this_processor_agrees_with_plain_loops() {
    for kernels in kernel::choices(true) {
        for bits in [2, 4, 8] {
            for (zeros, block) in [(Zeros::Middle, 16), (Zeros::Packed, 32), (Zeros::Floats, 64)] {
                for (rows, columns) in [(1, 37), (kernels.rows, 32), (kernels.rows + 1, 19), (5, 16)] {
                    check(kernels, bits, zeros, block, rows, columns);
                }
            }
        }
    }
}

fn check(kernels: &'static Kernels, bits: usize, zeros: Zeros, block: usize, rows: usize, columns: usize) {
    let layout = WeightLayout::Onnx;
    let product = QuantMatMul { bits, block, zeros, rounds_activations: true, layout };
    let depth = 3 * block - 5;
    let (blocks, zero_bytes) = (product.blocks(depth), product.zero_bytes(depth));
    let row_bytes = blocks * product.block_bytes();
    let (weights, packed) = (bytes(columns * row_bytes, 1), bytes(columns * zero_bytes, 2));
    let (scales, bases) = (floats(columns * blocks, 3), floats(columns * blocks, 4));
    let mut tensors = vec![
        constant(DType::U8, &[columns, blocks, product.block_bytes()], &weights),
        of_floats(&[columns, blocks], &scales),
    ];
    match zeros {
        Zeros::Middle => {}
        Zeros::Packed => tensors.push(constant(DType::U8, &[columns, zero_bytes], &packed)),
        Zeros::Floats => tensors.push(of_floats(&[columns, blocks], &bases)),
    }
    let a = floats(rows * depth, 5);
    let field = |bytes: &[u8], at: usize| f64::from(bytes[at * bits / 8] >> (at * bits % 8) & (255 >> (8 - bits)));
    let weight = |n: usize, k: usize| {
        let zero = match zeros {
            Zeros::Middle => product.middle() as f64,
            Zeros::Packed => field(&packed[n * zero_bytes..], k / block),
            Zeros::Floats => f64::from(bases[n * blocks + k / block]),
        };
        (field(&weights[n * row_bytes..], k) - zero) * f64::from(scales[n * blocks + k / block])
    };
    let given = QuantWeights { product: product.clone(), columns, depth, tensors };
    let in_place = interleaved(&given).unwrap();
    assert!(interleaved(&in_place).is_none());
    let left = of_floats(&[1, rows, depth], &a);
    let found = multiply(kernels, &given, &left);
    assert_eq!(found, multiply(kernels, &in_place, &left), "both layouts give the same bits");
    for m in 0..rows {
        for n in 0..columns {
            let term = |k: usize| f64::from(a[m * depth + k]) * weight(n, k);
            let wanted: f64 = (0..depth).map(term).sum();
            let size: f64 = (0..depth).map(|k| term(k).abs()).sum();
            // At most half a step of 1/127 of the largest number of a block.
            let allowed = if kernels.rounds { 8e-3 } else { 1e-6 } * size;
            let error = (f64::from(found[m * columns + n]) - wanted).abs();
            assert!(error <= allowed, "{bits} bits, {zeros:?}, {rows}x{columns}: {error} at {m},{n}");
        }
    }
}
