//! Convolutions, pooling and resizing.
use graph::prim::{Conv, Coordinates, Interpolation, Lrn, Nearest, Pool, PoolKind, ProductKind, Resize};
use graph::{DType, Prim, View};

use crate::products::fused;
use crate::{Sample, sample};

pub(crate) fn images(dtype: DType, samples: &mut Vec<Sample>) {
    let x: (DType, &[usize]) = (dtype, &[2, 64, 28, 28]);
    for (name, groups) in [("", 1usize), ("depthwise ", 64)] {
        let (w, bias): ([usize; 4], (DType, &[usize])) = ([64, 64 / groups, 3, 3], (dtype, &[64]));
        let inputs = [x, (dtype, &w[..]), bias];
        let kind = ProductKind::Conv(conv(groups));
        samples.push(sample(format!("conv {name}{dtype}"), kind.clone().into(), &inputs, &[x]));
        let inputs = [x, (dtype, &w[..]), bias, x];
        samples.push(sample(format!("conv {name}add relu {dtype}"), fused(kind, 3, dtype), &inputs, &[x]));
    }
    let weights: (DType, &[usize]) = (dtype, &[64, 64, 3, 3]);
    let inputs = [x, weights, (dtype, &[64][..])];
    let mut turned = sample(format!("conv channels last {dtype}"), ProductKind::Conv(conv(1)).into(), &inputs, &[x]);
    turn(turned.step.inputs.iter_mut().take(1).chain(&mut turned.step.outputs));
    samples.push(turned);
    tiled(dtype, samples);
    let prim = ProductKind::ConvTranspose(Conv { strides: [2usize, 2].into_iter().collect(), ..conv(1) }).into();
    samples.push(sample(format!("conv_transpose {dtype}"), prim, &inputs, &[(dtype, &[2, 64, 55, 55])]));
    for (kind, word) in
        [(PoolKind::Max { column_major: false }, "max"), (PoolKind::Average { count_pad: false }, "average")]
    {
        let mut pool = sample(format!("pool {word} {dtype}"), pool(kind, 3, 2), &[x], &[(dtype, &[2, 64, 14, 14])]);
        samples.push(Sample { label: pool.label.clone(), step: pool.step.clone() });
        pool.label = format!("pool {word} channels last {dtype}");
        turn(pool.step.inputs.iter_mut().chain(&mut pool.step.outputs));
        samples.push(pool);
        // Enough elements that threads compute several, and windows of any size.
        let (from, to): ([usize; 4], [usize; 4]) = ([32, 64, 112, 112], [32, 64, 56, 56]);
        let prim = self::pool(kind, 3, 2);
        samples.push(sample(format!("pool {word} many {dtype}"), prim, &[(dtype, &from)], &[(dtype, &to)]));
        samples.push(sample(format!("pool {word} wide {dtype}"), self::pool(kind, 5, 1), &[x], &[x]));
    }
    for (interpolation, word) in
        [(Interpolation::Nearest(Nearest::Floor), "nearest"), (Interpolation::Linear, "linear")]
    {
        let prim = Prim::Resize(Resize {
            interpolation,
            coordinates: Coordinates::HalfPixel,
            scales: vec![1.0, 1.0, 2.0, 2.0],
            roi: Vec::new(),
            extrapolation: 0.0,
            antialias: false,
        });
        samples.push(sample(format!("resize {word} {dtype}"), prim, &[x], &[(dtype, &[2, 64, 56, 56])]));
    }
    let prim = Prim::Lrn(Lrn { alpha: 1e-4, beta: 0.75, bias: 1.0, size: 5 });
    samples.push(sample(format!("lrn {dtype}"), prim, &[x], &[x]));
}

/// Convolutions of images and weights with channels innermost: as they are and with an epilogue, with so many rows and
/// columns that they use each tile, deep enough to be split, and with few channels.
fn tiled(dtype: DType, samples: &mut Vec<Sample>) {
    for (name, images, channels, maps, extent) in [
        ("", 2usize, 64usize, 64usize, 28usize),
        ("many ", 32, 64, 64, 56),
        ("wide ", 64, 128, 128, 28),
        ("deep ", 1, 512, 512, 7),
        ("few channels ", 32, 3, 64, 112),
    ] {
        let (x, w, y) = ([images, channels, extent, extent], [maps, channels, 3, 3], [images, maps, extent, extent]);
        let inputs: [(DType, &[usize]); 4] = [(dtype, &x), (dtype, &w), (dtype, &[maps]), (dtype, &y)];
        let kind = ProductKind::Conv(conv(1));
        for (word, prim, inputs) in
            [("", kind.clone().into(), &inputs[..3]), ("add relu ", fused(kind, 3, dtype), &inputs)]
        {
            let mut step = sample(format!("conv tiled {name}{word}{dtype}"), prim, inputs, &[(dtype, &y)]);
            turn(step.step.inputs.iter_mut().chain(&mut step.step.outputs));
            samples.push(step);
        }
    }
}

/// Lays images out with their channels innermost.
fn turn<'a>(views: impl Iterator<Item = &'a mut View>) {
    for view in views.filter(|view| view.shape.len() == 4) {
        let [c, h, w] = [1, 2, 3].map(|axis| view.shape[axis] as isize);
        view.strides = [c * h * w, 1, w * c, c].into_iter().collect();
    }
}

/// Pooling over square windows, with centred padding.
fn pool(kind: PoolKind, window: usize, stride: usize) -> Prim {
    let pads: graph::shape::Strides = [(window / 2) as isize; 2].into_iter().collect();
    Prim::Pool(Pool {
        kind,
        kernel: [window; 2].into_iter().collect(),
        strides: [stride; 2].into_iter().collect(),
        pads: pads.clone(),
        pads_end: pads,
        dilations: [1usize, 1].into_iter().collect(),
    })
}

pub(crate) fn conv(groups: usize) -> Conv {
    Conv {
        strides: [1usize, 1].into_iter().collect(),
        pads: [1isize, 1].into_iter().collect(),
        dilations: [1usize, 1].into_iter().collect(),
        groups,
        bias: true,
    }
}
