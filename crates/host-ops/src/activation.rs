//! Activations of recurrent layers.
use graph::prim::{Activation, ActivationKind};

use crate::real::Real;
use crate::simd::vectorised;

/// Clips values to ±clip, if there is one, then applies the activation.
pub(crate) fn activate<C: Real>(activation: Activation, clip: Option<f32>, values: &mut [C]) {
    if let Some(clip) = clip {
        bound(values, C::of(-clip), C::of(clip));
    }
    apply(values, activation.kind, C::of(activation.alpha), C::of(activation.beta));
}

vectorised! {
    fn bound<C: Real>(values: &mut [C], low: C, high: C) {
        for value in values {
            let raised = if *value < low { low } else { *value };
            *value = if raised > high { high } else { raised };
        }
    }
}

vectorised! {
    fn apply<C: Real>(values: &mut [C], kind: ActivationKind, alpha: C, beta: C) {
        let (zero, one) = (C::ZERO, C::of(1.0));
        match kind {
            ActivationKind::Sigmoid => each(values, |x| x.sigmoid()),
            ActivationKind::Tanh => each(values, |x| x.tanh()),
            ActivationKind::Relu => each(values, |x| if x < zero { zero } else { x }),
            ActivationKind::Affine => each(values, |x| alpha.times(x).plus(beta)),
            ActivationKind::LeakyRelu => each(values, |x| if x < zero { alpha.times(x) } else { x }),
            ActivationKind::ThresholdedRelu => each(values, |x| if x < alpha { zero } else { x }),
            ActivationKind::ScaledTanh => each(values, |x| alpha.times(beta.times(x).tanh())),
            ActivationKind::HardSigmoid => each(values, |x| {
                let y = alpha.times(x).plus(beta);
                let raised = if y < zero { zero } else { y };
                if raised > one { one } else { raised }
            }),
            ActivationKind::Elu => each(values, |x| if x < zero { alpha.times(x.expm1()) } else { x }),
            ActivationKind::Softsign => each(values, |x| x.over(one.plus(x.absolute()))),
            // ln(1 + e^x) without overflow: max(x, 0) plus the rest.
            ActivationKind::Softplus => each(values, |x| {
                let left = zero.minus(x.absolute()).exp().ln_1p();
                if x > zero { x.plus(left) } else { left }
            }),
        }
    }
}

#[inline(always)]
fn each<C: Real>(values: &mut [C], f: impl Fn(C) -> C) {
    for value in values {
        *value = f(*value);
    }
}
