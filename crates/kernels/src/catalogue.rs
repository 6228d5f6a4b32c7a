//! Steps that together launch every kernel, in the most common types: used to test compilers, and to compile kernels
//! ahead of time.
use graph::expr::{Binary, Expr, Unary};
use graph::prim::{
    Activation, ActivationKind, Append, AppendAttention, ArgReduce, Attention, Axis, BatchDims, BufferId,
    CachedAttention, Cell, Conv, Coordinates, Cumulative, Epilogue, Filled, Gate, Interpolation, Lrn, Map, MatMul,
    Nearest, Norm, Pool, PoolKind, Positions, Product, ProductKind, QuantMatMul, Recurrent, RecurrentInputs, Reduce,
    ReduceKind, Resize, Rotary, Scatter, ScatterKind, Sinks, Softmax, TopK, WeightLayout, Zeros,
};
use graph::{DType, Prim, Step, View, shape};

/// A step with a label.
pub struct Sample {
    /// Its label: `softmax f16`.
    pub label: String,
    /// The step.
    pub step: Step,
}

const FLOATS: [DType; 3] = [DType::F32, DType::F16, DType::Bf16];

/// All samples.
pub fn catalogue() -> Vec<Sample> {
    let mut samples = Vec::new();
    for dtype in FLOATS {
        elementwise(dtype, &mut samples);
        rows(dtype, &mut samples);
        products(dtype, &mut samples);
        packed(dtype, &mut samples);
        attention(dtype, &mut samples);
        decoder(dtype, &mut samples);
        images(dtype, &mut samples);
        indexing(dtype, &mut samples);
        sequences(dtype, &mut samples);
    }
    operations(&mut samples);
    bytes(&mut samples);
    samples
}

fn view(buffer: u32, dtype: DType, extents: &[usize]) -> View {
    let strides = shape::dense_strides(extents);
    View { buffer: BufferId(buffer), dtype, shape: extents.into(), strides, offset: 0 }
}

/// A step over whole buffers: inputs first, then outputs.
fn sample(label: String, prim: Prim, inputs: &[(DType, &[usize])], outputs: &[(DType, &[usize])]) -> Sample {
    let views = |first: usize, of: &[(DType, &[usize])]| {
        of.iter().enumerate().map(|(at, (dtype, extents))| view((first + at) as u32, *dtype, extents)).collect()
    };
    Sample { label, step: Step { node: 0, prim, inputs: views(0, inputs), outputs: views(inputs.len(), outputs) } }
}

/// `max(a + b, 0)`, or with only one input `tanh(a)`.
fn expression(dtype: DType, inputs: u16) -> Expr {
    let mut expr = Expr::new();
    let a = expr.input(0, dtype);
    let value = if inputs > 1 {
        let b = expr.input(1, dtype);
        let sum = expr.binary(Binary::Add, a, b);
        let zero = expr.constant(graph::Scalar::Float(0.0), dtype);
        expr.binary(Binary::Max, sum, zero)
    } else {
        expr.unary(Unary::Tanh, a)
    };
    let stored = expr.cast(value, dtype);
    expr.finish(stored);
    expr
}

fn elementwise(dtype: DType, samples: &mut Vec<Sample>) {
    let flat: &[usize] = &[64, 1024];
    let map = |inputs| Prim::Map(Map { expr: expression(dtype, inputs) });
    samples.push(sample(format!("map add relu {dtype}"), map(2), &[(dtype, flat), (dtype, flat)], &[(dtype, flat)]));
    samples.push(sample(format!("map tanh {dtype}"), map(1), &[(dtype, flat)], &[(dtype, flat)]));
    let mut broadcast = sample(
        format!("map add relu broadcast {dtype}"),
        map(2),
        &[(dtype, &[8, 32, 7, 7]), (dtype, &[8, 32, 7, 7])],
        &[(dtype, &[8, 32, 7, 7])],
    );
    broadcast.step.inputs[1].strides = [0isize, 1, 0, 0].into_iter().collect();
    samples.push(broadcast);
    let mut transpose = sample(
        format!("map transpose {dtype}"),
        Prim::Map(Map { expr: Expr::copy(dtype, dtype) }),
        &[(dtype, &[4, 96, 80])],
        &[(dtype, &[4, 96, 80])],
    );
    transpose.step.inputs[0].strides = [96 * 80isize, 1, 96].into_iter().collect();
    samples.push(transpose);
    let image: (DType, &[usize]) = (dtype, &[4, 96, 80]);
    let mut joined = sample(format!("map transpose add relu {dtype}"), map(2), &[image, image], &[image]);
    joined.step.inputs[0].strides = [96 * 80isize, 1, 96].into_iter().collect();
    samples.push(joined);
}

/// Maps with all operations on floats and on integers, and all conversions, so that everything in the map headers is
/// compiled.
fn operations(samples: &mut Vec<Sample>) {
    use Binary::{Atan2, Fmod, Max, Min, Mod, Pow, Shl, Shr};
    let functions: &[Unary] = &[
        Unary::Sign,
        Unary::Recip,
        Unary::Sqrt,
        Unary::Rsqrt,
        Unary::Exp,
        Unary::Log,
        Unary::Log1p,
        Unary::Expm1,
        Unary::Erf,
        Unary::Sin,
        Unary::Cos,
        Unary::Tan,
        Unary::Asin,
        Unary::Acos,
        Unary::Atan,
        Unary::Sinh,
        Unary::Cosh,
        Unary::Tanh,
        Unary::Asinh,
        Unary::Acosh,
        Unary::Atanh,
        Unary::Sigmoid,
        Unary::Round,
    ];
    let integers: &[Unary] = &[Unary::Neg, Unary::Abs, Unary::Sign, Unary::Not];
    let of_two = [Max, Min, Pow, Mod, Fmod];
    for (dtype, unary, more) in [(DType::F32, functions, [Atan2, Max]), (DType::I64, integers, [Shl, Shr])] {
        let mut expr = Expr::new();
        let (a, b) = (expr.input(0, dtype), expr.input(1, dtype));
        let mut sum = b;
        for &op in unary {
            let value = expr.unary(op, a);
            sum = expr.binary(Binary::Add, sum, value);
        }
        for op in of_two.into_iter().chain(more) {
            let value = expr.binary(op, a, b);
            sum = expr.binary(Binary::Add, sum, value);
        }
        for to in DType::ALL.into_iter().filter(|&to| to != dtype) {
            let there = expr.cast(a, to);
            let back = expr.cast(there, dtype);
            sum = expr.binary(Binary::Add, sum, back);
        }
        expr.finish(sum);
        let extents: &[usize] = &[64, 1023];
        let operands = [(dtype, extents); 2];
        let prim = Prim::Map(Map { expr });
        let mut all = sample(format!("map all operations {dtype}"), prim, &operands, &operands[..1]);
        // Rows that are not a multiple of a pack: one copy of the code is enough.
        all.step.inputs[1].strides = [0isize, 1].into_iter().collect();
        samples.push(all);
    }
}

fn rows(dtype: DType, samples: &mut Vec<Sample>) {
    let (wide, narrow): (&[usize], &[usize]) = (&[64, 1024], &[4096, 49]);
    for (name, extents) in [("", wide), ("short ", narrow)] {
        for (kind, word) in [(ReduceKind::Sum, "sum"), (ReduceKind::Mean, "mean"), (ReduceKind::Max, "max")] {
            let prim = Prim::Reduce(Reduce { kind, axes: 1 });
            let label = format!("reduce {word} {name}{dtype}");
            samples.push(sample(label, prim, &[(dtype, extents)], &[(dtype, &extents[..1])]));
        }
        let prim = Prim::Softmax(Softmax { log: false });
        samples.push(sample(format!("softmax {name}{dtype}"), prim, &[(dtype, extents)], &[(dtype, extents)]));
    }
    for (centre, word) in [(true, "layer"), (false, "RMS")] {
        let prim =
            Prim::Norm(Norm { axes: 1, epsilon: 1e-5, centre, scale: true, bias: centre, round_before_scale: !centre });
        let (x, by_column) = ((dtype, wide), (dtype, &wide[1..]));
        let inputs: &[_] = if centre { &[x, by_column, by_column] } else { &[x, by_column] };
        samples.push(sample(format!("norm {word} {dtype}"), prim, inputs, &[x]));
    }
    // Enough rows that threads hold more of each, with lengths for one wave, for several, and not a multiple of a pack.
    for (word, extents) in [("many", [1 << 16, 1024]), ("wide", [1 << 16, 4096]), ("odd", [1 << 18, 197])] {
        let (x, by_row) = ((dtype, &extents[..]), (dtype, &extents[..1]));
        samples.push(sample(format!("reduce sum {word} {dtype}"), reduce_sum(), &[x], &[by_row]));
        let prim = Prim::Softmax(Softmax { log: false });
        samples.push(sample(format!("softmax {word} {dtype}"), prim, &[x], &[x]));
        let norm = Norm { axes: 1, epsilon: 1e-5, centre: true, scale: true, bias: true, round_before_scale: false };
        let by_column = (dtype, &extents[1..]);
        samples.push(sample(format!("norm {word} {dtype}"), Prim::Norm(norm), &[x, by_column, by_column], &[x]));
    }
    let mut columns =
        sample(format!("reduce sum columns {dtype}"), reduce_sum(), &[(dtype, wide)], &[(dtype, &wide[..1])]);
    columns.step.inputs[0].strides = [1isize, 64].into_iter().collect();
    samples.push(columns);
    let long: (DType, &[usize]) = (dtype, &[8, 32_768]);
    samples.push(sample(format!("reduce sum long {dtype}"), reduce_sum(), &[long], &[(dtype, &[8])]));
    samples.push(sample(format!("softmax long {dtype}"), Prim::Softmax(Softmax { log: false }), &[long], &[long]));
    let prim = Prim::ArgReduce(ArgReduce { largest: true, last: false });
    samples.push(sample(format!("arg_reduce {dtype}"), prim, &[(dtype, wide)], &[(DType::I64, &wide[..1])]));
    let prim = Prim::TopK(TopK { k: 5, largest: true, sorted: true });
    let outputs: &[(DType, &[usize])] = &[(dtype, &[64, 5]), (DType::I64, &[64, 5])];
    samples.push(sample(format!("top_k {dtype}"), prim, &[(dtype, wide)], outputs));
    let prim = Prim::Cumulative(Cumulative { product: false, exclusive: false, reverse: false });
    let extents: &[usize] = &[64, 1024, 1];
    samples.push(sample(format!("cumulative {dtype}"), prim.clone(), &[(dtype, extents)], &[(dtype, extents)]));
    let extents: &[usize] = &[64, 16, 32];
    samples.push(sample(format!("cumulative short {dtype}"), prim, &[(dtype, extents)], &[(dtype, extents)]));
}

fn reduce_sum() -> Prim {
    Prim::Reduce(Reduce { kind: ReduceKind::Sum, axes: 1 })
}

/// Recurrent layers.
fn sequences(dtype: DType, samples: &mut Vec<Sample>) {
    let activation = |kind| Activation { kind, alpha: 0.0, beta: 0.0 };
    for (cell, word, gates) in [(Cell::Lstm, "LSTM", 4usize), (Cell::Gru { linear_before_reset: true }, "GRU", 3)] {
        let prim = Prim::Recurrent(Recurrent {
            cell,
            reverse: false,
            activations: [ActivationKind::Sigmoid, ActivationKind::Tanh, ActivationKind::Tanh].map(activation).to_vec(),
            clip: None,
            input_forget: false,
            has: RecurrentInputs::default(),
        });
        let weights = [gates * 256, 256];
        let inputs: [(DType, &[usize]); 3] = [(dtype, &[2, 4, 256]), (dtype, &weights), (dtype, &weights)];
        let state: (DType, &[usize]) = (dtype, &[4, 256]);
        let outputs: [(DType, &[usize]); 3] = [(dtype, &[2, 4, 256]), state, state];
        let count = if cell == Cell::Lstm { 3 } else { 2 };
        samples.push(sample(format!("recurrent {word} {dtype}"), prim, &inputs, &outputs[..count]));
    }
}

fn fused(kind: ProductKind, operands: usize, dtype: DType) -> Prim {
    Product::from(kind).with_epilogue(Epilogue { operands, dtype, expr: expression(dtype, 2) }).into()
}

fn matmul() -> ProductKind {
    ProductKind::MatMul(MatMul { alpha: 1.0 })
}

fn products(dtype: DType, samples: &mut Vec<Sample>) {
    for (name, m) in [("", 256usize), ("one row ", 1)] {
        let (a, b, y): (&[usize], &[usize], &[usize]) = (&[2, m, 256], &[2, 256, 256], &[2, m, 256]);
        let inputs = [(dtype, a), (dtype, b)];
        samples.push(sample(format!("matmul {name}{dtype}"), matmul().into(), &inputs, &[(dtype, y)]));
        let inputs = [(dtype, a), (dtype, b), (dtype, y)];
        samples.push(sample(
            format!("matmul {name}add relu {dtype}"),
            fused(matmul(), 2, dtype),
            &inputs,
            &[(dtype, y)],
        ));
    }
    let prim = Prim::matmul(1.0);
    let large: (DType, &[usize]) = (dtype, &[4, 2048, 2048]);
    samples.push(sample(format!("matmul large {dtype}"), prim.clone(), &[large, large], &[large]));
    let deep: [(DType, &[usize]); 2] = [(dtype, &[1, 64, 4096]), (dtype, &[1, 4096, 64])];
    samples.push(sample(format!("matmul deep {dtype}"), prim.clone(), &deep, &[(dtype, &[1, 64, 64])]));
    let tiny: (DType, &[usize]) = (dtype, &[4096, 8, 8]);
    samples.push(sample(format!("matmul tiny {dtype}"), prim.clone(), &[tiny, tiny], &[tiny]));
    for (name, m) in [("", 256usize), ("one row ", 1)] {
        let inputs: [(DType, &[usize]); 2] = [(dtype, &[1, m, 256]), (dtype, &[1, 256, 256])];
        let label = format!("matmul {name}by columns {dtype}");
        let mut by_columns = sample(label, prim.clone(), &inputs, &[(dtype, &[1, m, 256])]);
        by_columns.step.inputs[1].strides = [0isize, 1, 256].into_iter().collect();
        samples.push(by_columns);
    }
    // As wide as real layers, which decides how a row is split.
    for rows in [1usize, 2] {
        let (k, n) = (2048usize, 3072usize);
        let (a, b, scale, y): ([usize; 3], [usize; 3], [usize; 1], [usize; 3]) =
            ([1, rows, k], [1, k, n], [k], [1, rows, n]);
        let inputs = [(dtype, &a[..]), (dtype, &b[..])];
        samples.push(sample(format!("matmul wide {rows} rows {dtype}"), prim.clone(), &inputs, &[(dtype, &y)]));
        let normed = Product::from(matmul()).with_prologue(rms_norm());
        let inputs = [(dtype, &a[..]), (dtype, &b[..]), (dtype, &scale[..])];
        let (gated, half) = (normed.clone().with_gate(Gate { dtype, expr: silu(dtype) }), [1, rows, n / 2]);
        let label = format!("gated_normed_matmul {rows} rows {dtype}");
        samples.push(sample(label, gated.into(), &inputs, &[(dtype, &half)]));
        samples.push(sample(format!("normed_matmul {rows} rows {dtype}"), normed.into(), &inputs, &[(dtype, &y)]));
    }
}

/// The norm that can be fused into products.
fn rms_norm() -> Norm {
    Norm { axes: 1, epsilon: 1e-5, centre: false, scale: true, bias: false, round_before_scale: false }
}

/// `in0 * sigmoid(in0) * in1`, each rounded to the type.
fn silu(dtype: DType) -> Expr {
    let mut expr = Expr::new();
    let parts = [0, 1].map(|number| {
        let part = expr.input(number, dtype);
        expr.cast(part, dtype)
    });
    let mut value = expr.unary(Unary::Sigmoid, parts[0]);
    for part in parts {
        value = expr.cast(value, dtype);
        value = expr.binary(Binary::Mul, part, value);
    }
    let value = expr.cast(value, dtype);
    expr.finish(value);
    expr
}

/// Products with packed weights, with all their kernels.
fn packed(dtype: DType, samples: &mut Vec<Sample>) {
    let (k, n) = (2048usize, 2048usize);
    for (bits, block, zeros, rows, add) in [
        (4usize, 32usize, Zeros::Middle, 1usize, false),
        (4, 32, Zeros::Middle, 1, true),
        (4, 32, Zeros::Packed, 1, false),
        (8, 32, Zeros::Packed, 1, false),
        (2, 64, Zeros::Middle, 1, false),
        (4, 32, Zeros::Packed, 4, false),
        (4, 32, Zeros::Middle, 8, true),
        (8, 128, Zeros::Packed, 16, false),
        (4, 128, Zeros::Middle, 16, true),
        (4, 32, Zeros::Packed, 512, false),
        (8, 32, Zeros::Middle, 512, false),
        (2, 64, Zeros::Middle, 512, false),
    ] {
        let prim = QuantMatMul { bits, block, zeros, rounds_activations: false, layout: WeightLayout::Onnx };
        let weights = [n, k / block, prim.block_bytes()];
        let (scales, points) = ([n, k / block], [n, prim.zero_bytes(k)]);
        let (a, y): ([usize; 3], [usize; 3]) = ([1, rows, k], [1, rows, n]);
        let mut inputs = vec![(dtype, &a[..]), (DType::U8, &weights[..]), (dtype, &scales[..])];
        let word = if zeros == Zeros::Packed { " zeros" } else { "" };
        if zeros == Zeros::Packed {
            inputs.push((DType::U8, &points[..]));
        }
        let own = inputs.len();
        // The row counts for which `graph` fuses the norm into the product.
        if rows <= 8 && !add {
            let normed = Product::from(ProductKind::QuantMatMul(prim.clone())).with_prologue(rms_norm());
            let (label, scale) = (format!("normed_quant_matmul {bits} bits{word} {rows} rows {dtype}"), [k]);
            let inputs = [&inputs[..], &[(dtype, &scale[..])]].concat();
            let half: [usize; 3] = [1, rows, n / 2];
            let gated = normed.clone().with_gate(Gate { dtype, expr: silu(dtype) });
            samples.push(sample(format!("gated_{label}"), gated.into(), &inputs, &[(dtype, &half)]));
            samples.push(sample(label, normed.into(), &inputs, &[(dtype, &y)]));
        }
        let kind = ProductKind::QuantMatMul(prim);
        let made = if add {
            inputs.push((dtype, &y[..]));
            fused(kind, own, dtype)
        } else {
            kind.into()
        };
        let end = if add { " add relu" } else { "" };
        let label = format!("quant_matmul {bits} bits{word} {rows} rows{end} {dtype}");
        samples.push(sample(label, made, &inputs, &[(dtype, &y)]));
    }
}

/// Attention with a mask for each key, and causal attention.
fn attention(dtype: DType, samples: &mut Vec<Sample>) {
    for (name, rows, size) in [("", 512usize, 64usize), ("one row ", 1, 64), ("heads of 160 ", 512, 160)] {
        let shape: [usize; 4] = [2, 12, rows, 4096];
        let prim = Prim::Attention(Attention {
            alpha: 0.125,
            shape: shape.into_iter().collect(),
            scores: expression(dtype, 2),
            zero_if_hidden: false,
        });
        let (k, v): (&[usize], &[usize]) = (&[24, size, 4096], &[24, 4096, size]);
        let inputs = [(dtype, &[24, rows, size][..]), (dtype, k), (dtype, v), (dtype, &shape[..])];
        let label = format!("attention {name}{dtype}");
        let mut made = sample(label, prim, &inputs, &[(dtype, &[2, 12, rows, size])]);
        made.step.inputs[1].strides = [size as isize * 4096, 1, size as isize].into_iter().collect();
        made.step.inputs[3].strides = [4096isize, 0, 0, 1].into_iter().collect();
        samples.push(made);
    }
    for size in [64, 128] {
        let (rows, shape) = ([24, 512, size], [2, 12, 512, size]);
        let prim = Prim::Attention(Attention {
            alpha: 0.125,
            shape: [2, 12, 512, 512].into_iter().collect(),
            scores: up_to_own(dtype),
            zero_if_hidden: false,
        });
        let inputs = [(dtype, &rows[..]), (dtype, &[24, size, 512]), (dtype, &rows)];
        let mut made = sample(format!("attention causal {size} {dtype}"), prim, &inputs, &[(dtype, &shape)]);
        made.step.inputs[1].strides = [size as isize * 512, 1, size as isize].into_iter().collect();
        samples.push(made);
    }
}

/// Products of a row with the keys up to its own.
fn up_to_own(dtype: DType) -> Expr {
    let mut expr = Expr::new();
    let product = expr.input(0, dtype);
    let (row, key) = (expr.index(2), expr.index(3));
    let is_ahead = expr.binary(Binary::Gt, key, row);
    let never = expr.constant(graph::Scalar::Float(f64::NEG_INFINITY), dtype);
    let value = expr.select(is_ahead, never, product);
    expr.finish(value);
    expr
}

/// A decoder's steps on its caches: a prompt, and one token.
fn decoder(dtype: DType, samples: &mut Vec<Sample>) {
    let filled = Filled { shift: 0 };
    let lengths: (DType, &[usize]) = (DType::I32, &[2]);
    for (rows, word) in [(512usize, "prompt"), (1, "token")] {
        let given = [2, rows];
        let behind = (Positions::Behind(filled), lengths, "");
        let turns = [behind, (Positions::Given, (DType::I64, &given[..]), " given")].into_iter().flat_map(
            |(positions, operand, end)| {
                [(false, ""), (true, " interleaved")].map(|(interleaved, kind)| {
                    (Rotary { interleaved, positions }, operand, format!("{kind}{end} {word} {dtype}"))
                })
            },
        );
        for (rotary, operand, label) in turns.clone() {
            let x: (DType, &[usize]) = (dtype, &[2, rows, 40, 64]);
            let angles: (DType, &[usize]) = (dtype, &[4096, 32]);
            samples.push(sample(format!("rotary{label}"), Prim::Rotary(rotary), &[x, angles, angles, operand], &[x]));
        }
        let (new, cache): (&[usize], &[usize]) = (&[2, 8, rows, 64], &[2, 8, 4096, 64]);
        let prim = Prim::Append(Append { filled, past: true, rotary: None });
        let inputs = [lengths, (dtype, new), (dtype, new), (dtype, cache), (dtype, cache)];
        samples.push(sample(format!("append {word} {dtype}"), prim, &inputs, &[(dtype, cache), (dtype, cache)]));
        for (rotary, operand, label) in turns.clone() {
            let prim = Prim::Append(Append { filled, past: true, rotary: Some(rotary) });
            let (queries, angles): (&[usize], &[usize]) = (&[2, 32, rows, 64], &[4096, 32]);
            let more = [(dtype, queries), (dtype, angles), (dtype, angles), operand];
            let outputs = [(dtype, cache), (dtype, cache), (dtype, queries)];
            samples.push(sample(format!("rotary_append{label}"), prim, &[&inputs[..], &more].concat(), &outputs));
        }
        for (heads, size, softcap) in
            [(8usize, 128usize, None), (32, 64, None), (64, 128, None), (16, 256, None), (16, 256, Some(50.0))]
        {
            let attention = CachedAttention {
                alpha: 0.125,
                filled,
                causal: true,
                window: None,
                softcap,
                bias: false,
                sinks: Sinks::None,
            };
            let (q, cache): (&[usize], &[usize]) = (&[2, heads, rows, size], &[2, 8, 4096, size]);
            let inputs = [(dtype, q), (dtype, cache), (dtype, cache), lengths];
            let name = if softcap.is_some() { "attention softcap" } else { "attention" };
            let label = format!("cached_{name} {word} {heads} heads of {size} {dtype}");
            samples.push(sample(label, Prim::CachedAttention(attention), &inputs, &[(dtype, q)]));
            // For one token, both are one launch.
            for (rotary, operand, label) in turns.clone().filter(|_| rows == 1) {
                let append = Append { filled, past: true, rotary: Some(rotary) };
                let prim = Prim::AppendAttention(AppendAttention { append, attention });
                let (new, angles): (&[usize], &[usize]) = (&[2, 8, 1, size], &[4096, size / 2]);
                let [new, cache, angles, q] = [new, cache, angles, q].map(|extents| (dtype, extents));
                let inputs = [lengths, new, new, cache, cache, q, angles, angles, operand];
                let label = format!("rotary_append_{name} {heads} heads of {size}{label}");
                samples.push(sample(label, prim, &inputs, &[cache, cache, q, q]));
            }
        }
    }
}

/// Products of bytes, of a type of activations and one of weights.
fn bytes(samples: &mut Vec<Sample>) {
    let zeros = [128, 0];
    for (name, m) in [("", 1024usize), ("one row ", 1)] {
        let inputs: [(DType, &[usize]); 2] = [(DType::U8, &[1, m, 1024]), (DType::I8, &[1, 1024, 1024])];
        let y: (DType, &[usize]) = (DType::I32, &[1, m, 1024]);
        let prim = ProductKind::IntegerMatMul { zeros }.into();
        samples.push(sample(format!("integer matmul {name}u8 i8"), prim, &inputs, &[y]));
    }
    for (name, groups) in [("", 1usize), ("depthwise ", 64)] {
        let prim = ProductKind::IntegerConv { conv: Conv { bias: false, ..conv(groups) }, zeros }.into();
        let weights = [64, 64 / groups, 3, 3];
        let inputs: [(DType, &[usize]); 2] = [(DType::U8, &[2, 64, 28, 28]), (DType::I8, &weights)];
        let y: (DType, &[usize]) = (DType::I32, &[2, 64, 28, 28]);
        samples.push(sample(format!("integer conv {name}u8 i8"), prim, &inputs, &[y]));
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

fn conv(groups: usize) -> Conv {
    Conv {
        strides: [1usize, 1].into_iter().collect(),
        pads: [1isize, 1].into_iter().collect(),
        dilations: [1usize, 1].into_iter().collect(),
        groups,
        bias: true,
    }
}

fn images(dtype: DType, samples: &mut Vec<Sample>) {
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
    for view in turned.step.inputs.iter_mut().take(1).chain(&mut turned.step.outputs) {
        view.strides = [64 * 28 * 28isize, 1, 28 * 64, 64].into_iter().collect();
    }
    samples.push(turned);
    let prim = ProductKind::ConvTranspose(Conv { strides: [2usize, 2].into_iter().collect(), ..conv(1) }).into();
    samples.push(sample(format!("conv_transpose {dtype}"), prim, &inputs, &[(dtype, &[2, 64, 55, 55])]));
    for (kind, word) in
        [(PoolKind::Max { column_major: false }, "max"), (PoolKind::Average { count_pad: false }, "average")]
    {
        let mut pool = sample(format!("pool {word} {dtype}"), pool(kind, 3, 2), &[x], &[(dtype, &[2, 64, 14, 14])]);
        samples.push(Sample { label: pool.label.clone(), step: pool.step.clone() });
        pool.label = format!("pool {word} channels last {dtype}");
        for view in pool.step.inputs.iter_mut().chain(&mut pool.step.outputs) {
            let [c, h, w] = [1, 2, 3].map(|axis| view.shape[axis] as isize);
            view.strides = [c * h * w, 1, w * c, c].into_iter().collect();
        }
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

fn indexing(dtype: DType, samples: &mut Vec<Sample>) {
    let data: (DType, &[usize]) = (dtype, &[1, 1000, 256]);
    let inputs: [(DType, &[usize]); 2] = [data, (DType::I64, &[64])];
    samples.push(sample(format!("gather {dtype}"), Prim::Gather, &inputs, &[(dtype, &[1, 64, 256])]));
    let flat: (DType, &[usize]) = (dtype, &[64, 256]);
    let inputs: [(DType, &[usize]); 2] = [flat, (DType::I64, &[16, 256])];
    let prim = Prim::GatherElements(Axis(0));
    samples.push(sample(format!("gather_elements {dtype}"), prim, &inputs, &[(dtype, &[16, 256])]));
    let inputs: [(DType, &[usize]); 2] = [flat, (DType::I64, &[16, 1])];
    let prim = Prim::GatherNd(BatchDims(0));
    samples.push(sample(format!("gather_nd {dtype}"), prim, &inputs, &[(dtype, &[16, 256])]));
    let inputs: [(DType, &[usize]); 3] = [flat, (DType::I64, &[16, 1]), (dtype, &[16, 256])];
    let prim = Prim::ScatterNd(Scatter { kind: ScatterKind::Replace, axis: 0 });
    samples.push(sample(format!("scatter_nd {dtype}"), prim, &inputs, &[flat]));
    let inputs: [(DType, &[usize]); 3] = [flat, (DType::I64, &[16, 256]), (dtype, &[16, 256])];
    let prim = Prim::ScatterElements(Scatter { kind: ScatterKind::Add, axis: 0 });
    samples.push(sample(format!("scatter_elements add {dtype}"), prim, &inputs, &[flat]));
    let inputs: [(DType, &[usize]); 3] = [(dtype, &[1000]), (DType::I64, &[4096, 1]), (dtype, &[4096])];
    let prim = Prim::ScatterNd(Scatter { kind: ScatterKind::Add, axis: 0 });
    samples.push(sample(format!("scatter_nd add {dtype}"), prim, &inputs, &[(dtype, &[1000])]));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_of_few_rows_ship_with_a_norm_and_turning_appends_with_all_positions() {
        let samples = catalogue();
        let has = |wanted: &Prim| samples.iter().any(|sample| sample.step.prim == *wanted);
        let (mut products, mut appends) = (0, 0);
        for sample in &samples {
            match &sample.step.prim {
                Prim::Product(
                    plain @ Product { kind: ProductKind::QuantMatMul(_), prologue: None, epilogue: None, .. },
                ) if sample.step.inputs[0].shape[1] <= 8 => {
                    let mut normed = samples.iter().filter(|other| other.step.inputs[0] == sample.step.inputs[0]);
                    let twin = Prim::from(plain.clone().with_prologue(rms_norm()));
                    assert!(normed.any(|other| other.step.prim == twin), "{}", sample.label);
                    products += 1;
                }
                Prim::Append(Append { rotary: Some(rotary), .. }) => {
                    let plain = Rotary { positions: Positions::Given, ..*rotary };
                    let append = Append { filled: Filled { shift: 0 }, past: true, rotary: Some(plain) };
                    assert!(has(&Prim::Append(append)) && has(&Prim::Rotary(plain)), "{}", sample.label);
                    appends += 1;
                }
                _ => {}
            }
        }
        assert!(products >= 15 && appends >= 24, "{products} products, {appends} appends");
    }
}
