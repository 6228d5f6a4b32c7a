//! What a session wants from hipDNN, and which steps that covers.
use std::str::FromStr;

use graph::{Declined, Prim, Step, prim::ProductKind};
use hip::DriverKind;

/// Products with fewer multiplications than this are not worth a library call: a launch costs as much.
const SMALL_PRODUCT: usize = 1 << 20;

/// Devices where a library's kernels run long attention faster than our own: a prefix of the device's name, and the
/// number that the counts of queries and keys must be a multiple of. The library builds code for each length, which
/// takes cuDNN a second.
///
/// A device is listed only if this was measured through hipDNN: docs/performance.md, "Attention of a prompt".
const LONG_ATTENTION: &[(&str, usize)] = &[("sm_90", 1024)];

/// What a session wants from hipDNN.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// The steps that are known to be faster: on GPUs, those that vendor libraries are made for; on the host, none,
    /// because the library there runs the engine's own code.
    #[default]
    Auto,
    /// Every step that the library accepts.
    On,
    /// Nothing.
    Off,
}

/// Which steps are offered to the library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Offers {
    /// Convolutions, pooling, products that are large enough and have more than a few rows, and, if `tokens` is set,
    /// attention whose counts of queries and keys are multiples of it.
    Worthwhile {
        /// The number that the counts must be a multiple of.
        tokens: Option<usize>,
    },
    /// Everything that hipDNN has operations for.
    Everything,
}

impl Mode {
    /// The steps that are offered on a driver's device; `None` if the library is not wanted.
    pub(super) fn offers(self, driver: DriverKind, target: &str) -> Option<Offers> {
        match (self, driver) {
            (Self::Off, _) | (Self::Auto, DriverKind::Host) => None,
            (Self::Auto, _) => {
                let known = LONG_ATTENTION.iter().find(|(name, _)| target.starts_with(name));
                Some(Offers::Worthwhile { tokens: known.map(|&(_, tokens)| tokens) })
            }
            (Self::On, _) => Some(Offers::Everything),
        }
    }
}

/// The text is not one of the three modes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected auto, on or off")]
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
    /// Whether a step is worthwhile for the library.
    pub(super) fn check(self, step: &Step) -> Result<(), Declined> {
        let Self::Worthwhile { tokens } = self else { return Ok(()) };
        if let Some(extents) = attended(step) {
            return match tokens {
                None => Err(Declined::new("our own attention is one launch")),
                Some(tokens) if extents.iter().all(|&extent| extent > 0 && extent.is_multiple_of(tokens)) => Ok(()),
                Some(tokens) => Err(Declined::new(format!(
                    "our own attention takes any length: {} and {} are no multiples of {tokens}",
                    extents[0], extents[1]
                ))),
            };
        }
        if matches!(step.prim, Prim::Norm(_)) {
            // Measured on an H200: cuDNN takes 8.4 µs for 2048 rows of 2048 halves, our kernel 8.6, and cuDNN has plans
            // to build.
            return Err(Declined::new("our own normalisation is as fast"));
        }
        if !matches!(step.prim.product_and_epilogue(), Some((ProductKind::MatMul(_), _))) {
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

/// The number of queries and keys per head, if the step is attention.
fn attended(step: &Step) -> Option<[usize; 2]> {
    match &step.prim {
        Prim::Attention(prim) => {
            let [.., queries, keys] = prim.shape[..] else { return None };
            Some([queries, keys])
        }
        // If the cache was empty, the keys are those of the current rows.
        Prim::CachedAttention(_) => step.inputs.first().and_then(|queries| queries.shape.get(2)).map(|&rows| [rows; 2]),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const USUAL: Offers = Offers::Worthwhile { tokens: None };

    #[test]
    fn the_host_is_left_alone_unless_asked_for() {
        assert_eq!(Mode::Auto.offers(DriverKind::Host, "host"), None);
        assert_eq!(Mode::On.offers(DriverKind::Host, "host"), Some(Offers::Everything));
        assert_eq!(Mode::Auto.offers(DriverKind::Nvidia, "sm_90"), Some(Offers::Worthwhile { tokens: Some(1024) }));
        assert_eq!(Mode::Auto.offers(DriverKind::Nvidia, "sm_80"), Some(USUAL));
        assert_eq!(Mode::Auto.offers(DriverKind::Amd, "gfx942:sramecc+:xnack-"), Some(USUAL));
        assert_eq!(Mode::Off.offers(DriverKind::Amd, "gfx942"), None);
    }

    #[test]
    fn long_attention_is_offered_where_a_device_is_listed_for_it() {
        use graph::{
            DType, Shape, View,
            expr::Expr,
            prim::{Attention, BufferId, CachedAttention, Filled, Sinks},
            shape::dense_strides,
        };
        let attention = |queries: usize, keys: usize| {
            let shape = [2, 4, queries, keys].as_slice().into();
            let prim = Prim::Attention(Attention { alpha: 1.0, shape, scores: Expr::new(), zero_if_hidden: false });
            Step { node: 0, prim, inputs: Vec::new(), outputs: Vec::new() }
        };
        let prompt = |rows: usize| {
            let prim = CachedAttention {
                alpha: 1.0,
                filled: Filled::EMPTY,
                causal: true,
                window: None,
                softcap: None,
                bias: false,
                sinks: Sinks::None,
            };
            let shape = [1, 4, rows, 64];
            let (shape, strides) = (Shape::from_slice(&shape), dense_strides(&shape));
            let queries = View { buffer: BufferId(0), dtype: DType::F16, shape, strides, offset: 0 };
            Step { node: 0, prim: Prim::CachedAttention(prim), inputs: vec![queries], outputs: Vec::new() }
        };
        let there = Offers::Worthwhile { tokens: Some(512) };
        for taken in [attention(512, 512), attention(2048, 1024), prompt(2048)] {
            assert_eq!(there.check(&taken), Ok(()));
            assert_eq!(USUAL.check(&taken), Err(Declined::new("our own attention is one launch")));
        }
        for left in [attention(128, 128), attention(513, 512), attention(1024, 77), prompt(1), prompt(700)] {
            assert!(there.check(&left).is_err_and(|declined| declined.0.contains("no multiples of 512")));
            assert_eq!(Offers::Everything.check(&left), Ok(()));
        }
    }

    #[test]
    fn attention_and_small_products_stay_with_us_unless_all_is_wanted() {
        use graph::{expr::Expr, prim::Attention};
        let (shape, scores) = ([2usize, 2].as_slice().into(), Expr::new());
        let step = |prim| Step { node: 0, prim, inputs: Vec::new(), outputs: Vec::new() };
        let attention = step(Prim::Attention(Attention { alpha: 1.0, shape, scores, zero_if_hidden: false }));
        assert!(USUAL.check(&attention).is_err());
        assert!(Offers::Everything.check(&attention).is_ok());
        assert!(USUAL.check(&step(Prim::matmul(1.0))).is_ok());
    }

    #[test]
    fn only_the_three_words_are_modes() {
        assert_eq!("on".parse(), Ok(Mode::On));
        for text in ["", "ON", "1", "true", " on"] {
            assert_eq!(text.parse::<Mode>(), Err(UnknownMode), "{text:?}");
        }
    }
}
