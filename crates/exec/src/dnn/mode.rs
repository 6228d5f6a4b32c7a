//! What a session wants of hipDNN, and which steps that means.
use std::str::FromStr;

use graph::{Declined, Prim, Step};
use hip::DriverKind;

/// Products with fewer multiplications than this are not worth a vendor's library: a launch costs as much.
const SMALL_PRODUCT: usize = 1 << 20;

/// What a session wants of hipDNN.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// What is faster, as far as that is known: on GPUs the steps that vendors' libraries are made for, nothing on the
    /// host, where the library runs the engine's own code.
    #[default]
    Auto,
    /// Every step that the library takes.
    On,
    /// Nothing.
    Off,
}

/// Which steps are offered to the library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Offers {
    /// Convolutions, pooling, and products of some size and more than a few rows.
    Worthwhile,
    /// Everything that hipDNN has operations for.
    Everything,
}

impl Mode {
    /// The steps that are offered on a driver; `None` if the library is not wanted at all.
    pub(super) fn offers(self, driver: DriverKind) -> Option<Offers> {
        match (self, driver) {
            (Self::Off, _) | (Self::Auto, DriverKind::Host) => None,
            (Self::Auto, _) => Some(Offers::Worthwhile),
            (Self::On, _) => Some(Offers::Everything),
        }
    }
}

/// The text is none of the three.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it is none of auto, on and off")]
pub struct UnknownMode;

impl FromStr for Mode {
    type Err = UnknownMode;

    fn from_str(text: &str) -> Result<Self, UnknownMode> {
        match text {
            "auto" => Ok(Self::Auto),
            "on" => Ok(Self::On),
            "off" => Ok(Self::Off),
            _ => Err(UnknownMode),
        }
    }
}

impl Offers {
    /// Whether a step is worth the library's while.
    pub(super) fn check(self, step: &Step) -> Result<(), Declined> {
        let product = match &step.prim {
            Prim::Fused(fused) => &fused.product,
            other => other,
        };
        if self == Self::Everything {
            return Ok(());
        }
        if matches!(product, Prim::Attention(_) | Prim::CachedAttention(_)) {
            // cuDNN's fused engine takes it too, which no device has run by way of hipDNN yet.
            return Err(Declined::new("our own attention is one launch"));
        }
        if matches!(product, Prim::Norm(_)) {
            // Measured on an H200: cuDNN takes as long, 8.4 µs for 2048 rows of 2048 halves and ours 8.6, and has plans to make.
            return Err(Declined::new("our own normalisation is as fast"));
        }
        if !matches!(product, Prim::MatMul(_)) {
            return Ok(());
        }
        let (Some(made), Some(a)) = (step.outputs.first(), step.inputs.first()) else { return Ok(()) };
        let multiplications = made.elems().saturating_mul(a.shape.last().copied().unwrap_or(1));
        if multiplications < SMALL_PRODUCT {
            return Err(Declined::new(format!("it is small: {multiplications} multiplications")));
        }
        if kernels::has_few_rows(step) {
            return Err(Declined::new("its rows are few: our own kernel reads the other operand once"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_is_left_alone_unless_asked_for() {
        assert_eq!(Mode::Auto.offers(DriverKind::Host), None);
        assert_eq!(Mode::On.offers(DriverKind::Host), Some(Offers::Everything));
        assert_eq!(Mode::Auto.offers(DriverKind::Nvidia), Some(Offers::Worthwhile));
        assert_eq!(Mode::Auto.offers(DriverKind::Amd), Some(Offers::Worthwhile));
        assert_eq!(Mode::Off.offers(DriverKind::Amd), None);
    }

    #[test]
    fn attention_and_small_products_stay_with_us_unless_all_is_wanted() {
        use graph::{
            expr::Expr,
            prim::{Attention, CachedAttention, Filled, MatMul, Sinks},
        };
        let (shape, scores) = ([2usize, 2].as_slice().into(), Expr::new());
        let step = |prim| Step { node: 0, prim, inputs: Vec::new(), outputs: Vec::new() };
        let attention = step(Prim::Attention(Attention { alpha: 1.0, shape, scores, zero_if_hidden: false }));
        let prompt = step(Prim::CachedAttention(CachedAttention {
            alpha: 1.0,
            filled: Filled::EMPTY,
            causal: true,
            window: None,
            softcap: None,
            bias: false,
            sinks: Sinks::None,
        }));
        for attention in [attention, prompt] {
            assert_eq!(Offers::Worthwhile.check(&attention), Err(Declined::new("our own attention is one launch")));
            assert_eq!(Offers::Everything.check(&attention), Ok(()));
        }
        assert!(Offers::Worthwhile.check(&step(Prim::MatMul(MatMul { alpha: 1.0 }))).is_ok());
    }

    #[test]
    fn only_the_three_words_are_modes() {
        assert_eq!("on".parse(), Ok(Mode::On));
        for text in ["", "ON", "1", "true", " on"] {
            assert_eq!(text.parse::<Mode>(), Err(UnknownMode), "{text:?}");
        }
    }
}
