//! Steps that together launch every kernel, in the most common types: used to test compilers, and to compile kernels
//! ahead of time.
mod attention;
mod decoders;
mod elementwise;
mod images;
mod products;
mod rows;

use graph::expr::{Binary, Expr, Unary};
use graph::prim::BufferId;
use graph::{DType, Prim, Step, View, shape};

/// A step with a label.
pub struct Sample {
    /// The label: `softmax f16`.
    pub label: String,
    /// The step.
    pub step: Step,
}

const FLOATS: [DType; 3] = [DType::F32, DType::F16, DType::Bf16];

/// All samples.
pub fn catalogue() -> Vec<Sample> {
    let mut samples = Vec::new();
    for dtype in FLOATS {
        elementwise::elementwise(dtype, &mut samples);
        rows::rows(dtype, &mut samples);
        products::products(dtype, &mut samples);
        products::packed(dtype, &mut samples);
        attention::attention(dtype, &mut samples);
        attention::decoder(dtype, &mut samples);
        attention::paged(dtype, &mut samples);
        decoders::experts(dtype, &mut samples);
        decoders::states(dtype, &mut samples);
        images::images(dtype, &mut samples);
        rows::indexing(dtype, &mut samples);
        rows::sequences(dtype, &mut samples);
    }
    elementwise::operations(&mut samples);
    elementwise::bytes(&mut samples);
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

#[cfg(test)]
mod tests {
    use graph::prim::{Append, Filled, Positions, Product, ProductKind, Rotary};

    use super::*;
    use crate::products::rms_norm;

    #[test]
    fn the_catalogue_has_normed_products_and_rotated_appends() {
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
