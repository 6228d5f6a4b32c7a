//! com.microsoft's operators on images with the channels last: `NhwcConv`, `NhwcFusedConv`, `NhwcMaxPool`, and
//! `QLinearConv` and `QLinearAveragePool` with the attribute `channels_last`.
//!
//! Each is the operator on images with the channels second, between two permutations, which are views.
use crate::lower::{Lower, axis_back, axis_last};
use crate::ops::{Entry, NodeInfo, Op, Parse, conv, fused_conv, pool, qlinear_mean};
use crate::{DType, Declined, LowerError, Val};

/// An operator whose images have their channels last.
#[derive(Debug)]
struct ChannelsLast {
    name: &'static str,
    /// The operator with the channels second.
    op: Box<dyn Op>,
    /// The inputs that are images, besides the first one.
    images: &'static [usize],
}

impl Op for ChannelsLast {
    fn name(&self) -> &'static str {
        self.name
    }

    fn lower(&self, cx: &mut Lower<'_>, inputs: &[Option<Val>]) -> Result<Vec<Val>, LowerError> {
        let mut inputs = inputs.to_vec();
        for &at in [0].iter().chain(self.images) {
            if let Some(image) = inputs.get_mut(at).and_then(Option::as_mut) {
                *image = second(cx, image)?;
            }
        }
        let results = self.op.lower(cx, &inputs)?;
        Ok(results.iter().map(|result| axis_last(result, 1)).collect())
    }
}

/// An image with its last axis moved behind the first one.
fn second(cx: &Lower<'_>, image: &Val) -> Result<Val, LowerError> {
    if image.rank() < 3 {
        return Err(cx.invalid(format!("shape {:?} has no spatial axes", image.shape())));
    }
    Ok(axis_back(image, 1))
}

fn wrapped(
    node: &NodeInfo<'_>,
    name: &'static str,
    parse: Parse,
    images: &'static [usize],
) -> Result<Box<dyn Op>, Declined> {
    Ok(Box::new(ChannelsLast { name, op: parse(node)?, images }))
}

/// An operator whose attribute `channels_last` says where the channels are.
fn either(node: &NodeInfo<'_>, name: &'static str, parse: Parse) -> Result<Box<dyn Op>, Declined> {
    if node.attributes.flag("channels_last")? { wrapped(node, name, parse, &[]) } else { parse(node) }
}

fn parse_max_pool(node: &NodeInfo<'_>) -> Result<Box<dyn Op>, Declined> {
    node.accept(0, |dtype| matches!(dtype, DType::I8 | DType::U8))?;
    wrapped(node, "NhwcMaxPool", pool::parse_max_pool, &[])
}

const MICROSOFT: &str = "com.microsoft";

pub(super) const OPS: &[Entry] = &[
    Entry { domain: MICROSOFT, op_type: "NhwcConv", parse: |node| wrapped(node, "NhwcConv", conv::parse_conv, &[]) },
    Entry {
        domain: MICROSOFT,
        op_type: "NhwcFusedConv",
        // The summand Z is an image, too.
        parse: |node| wrapped(node, "NhwcFusedConv", fused_conv::parse, &[3]),
    },
    Entry { domain: MICROSOFT, op_type: "NhwcMaxPool", parse: parse_max_pool },
    Entry {
        domain: MICROSOFT,
        op_type: "QLinearConv",
        parse: |node| either(node, "QLinearConv", conv::parse_qlinear_conv),
    },
    Entry {
        domain: MICROSOFT,
        op_type: "QLinearAveragePool",
        parse: |node| either(node, "QLinearAveragePool", qlinear_mean::parse_average_pool),
    },
];

#[cfg(test)]
mod tests {
    use crate::DType;
    use crate::ops::trial::{Given, Trial};

    #[test]
    fn results_have_the_channels_last() {
        let conv = Trial::new("NhwcConv", 1).domain("com.microsoft").input(Given::Device(DType::F32, &[2, 7, 9, 4]));
        let conv = conv.input(Given::Device(DType::F32, &[6, 4, 3, 3])).ints("strides", &[2, 1]);
        assert_eq!(conv.shapes(), Ok(vec![vec![2, 3, 7, 6]]));
        let pool = Trial::new("NhwcMaxPool", 1).domain("com.microsoft").ints("kernel_shape", &[2, 2]);
        let given = |dtype| pool.clone().input(Given::Device(dtype, &[1, 4, 5, 3])).gives(&[dtype]);
        assert_eq!(given(DType::U8).shapes(), Ok(vec![vec![1, 3, 4, 3]]));
        assert_eq!(given(DType::F32).shapes(), Err("input 0 has unsupported type f32".to_owned()));
    }

    #[test]
    fn images_without_spatial_axes_are_rejected() {
        let pool = Trial::new("NhwcMaxPool", 1).domain("com.microsoft").ints("kernel_shape", &[1]);
        let found = pool.input(Given::Device(DType::U8, &[4, 5])).gives(&[DType::U8]).shapes();
        assert_eq!(found, Err("NhwcMaxPool: shape [4, 5] has no spatial axes".to_owned()));
    }
}
