//! com.microsoft's `QAttention`: `Attention` whose input and weights are 8-bit integers.
use crate::lower::Lower;
use crate::ops::contrib_attention::{Attention, Common, Context, decline_mask};
use crate::ops::integer_float::Product;
use crate::ops::quantized::byte;
use crate::ops::{Entry, NodeInfo, Op};
use crate::{DType, Declined, LowerError, Val};

/// The input numbers.
mod input {
    pub const BIAS: usize = 2;
    pub const SCALE: usize = 3;
    pub const WEIGHT_SCALE: usize = 4;
    pub const MASK: usize = 5;
    pub const ZERO: usize = 6;
    pub const WEIGHT_ZERO: usize = 7;
    pub const PAST: usize = 8;
}

#[derive(Debug)]
struct QAttention {
    attention: Attention,
}

impl Op for QAttention {
    fn name(&self) -> &'static str {
        "QAttention"
    }

    fn follows_known_values(&self) -> bool {
        false
    }

    fn lower(&self, cx: &mut Lower<'_>, inputs: &[Option<Val>]) -> Result<Vec<Val>, LowerError> {
        let given = |at: usize| inputs.get(at).and_then(Option::as_ref);
        let bias = cx.required(inputs, input::BIAS)?;
        let product = Product {
            a: cx.required(inputs, 0)?,
            a_scale: cx.required(inputs, input::SCALE)?,
            a_zero: given(input::ZERO),
            b: cx.required(inputs, 1)?,
            b_scale: cx.required(inputs, input::WEIGHT_SCALE)?,
            b_zero: given(input::WEIGHT_ZERO),
            bias: Some(bias),
        };
        let all = product.lower(cx, bias.dtype())?;
        let context = Context { mask: given(input::MASK), past: given(input::PAST), ..Context::default() };
        self.attention.attend(cx, &all, context)
    }
}

fn parse(node: &NodeInfo<'_>) -> Result<Box<dyn Op>, Declined> {
    node.accept(0, byte)?;
    node.accept(1, byte)?;
    let dtype = node.accept(input::BIAS, |dtype| matches!(dtype, DType::F32 | DType::F16))?;
    for at in [input::SCALE, input::WEIGHT_SCALE, input::PAST] {
        if let Some(input) = node.optional(at).filter(|input| input.dtype != dtype) {
            return Err(Declined::new(format!("input {at} has type {}, expected {dtype}", input.dtype)));
        }
    }
    for name in ["do_rotary", "past_present_share_buffer"] {
        if node.attributes.flag(name)? {
            return Err(Declined::new(format!("{name} is not supported")));
        }
    }
    decline_mask(node, input::MASK)?;
    let attention = Attention { common: Common::parse(node)?, widths: None, in_place: false };
    Ok(Box::new(QAttention { attention }))
}

pub(super) const OPS: &[Entry] = &[Entry { domain: "com.microsoft", op_type: "QAttention", parse }];
