//! The policy: which backend runs a step of a plan.
//!
//! Results of tuning decide first: the fastest measured candidate runs the step. Without them, the backends are asked
//! in [`order`], and the first that accepts the step runs it. The host runs what no backend accepts.
//!
//! | backend | is asked for | rule |
//! |---|---|---|
//! | BLASLt | matrix products of many rows, and convolutions that are such products, that are large enough for a library call | [`check_blas`], [`check_blas_size`] |
//! | hipDNN | what the session offers to it | [`Mode::offers`], [`Offers::check`] |
//! | our kernels | everything | – |
//!
//! This file only decides what is worthwhile. Whether a backend is able to run a step is known where the step is
//! translated for it: `gpu/blas.rs`, `dnn/operations.rs`, and the `kernels` crate.
use std::str::FromStr;

use graph::prim::ProductKind;
use graph::{Declined, Prim, Step};
use hip::DriverKind;
use kernels::Arch;

/// A backend that a GPU asks to run a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Backend {
    /// The vendor's library for matrix products.
    BlasLt,
    /// A hipDNN library.
    HipDnn,
    /// Our own kernels.
    Kernels,
}

/// The order in which backends are asked for a step if no measurement decides.
pub(crate) fn order(prim: &Prim) -> [Backend; 3] {
    // Convolutions with one tap are products too, but hipDNN has kernels made for convolutions.
    if asks_dnn_first(prim) {
        [Backend::HipDnn, Backend::BlasLt, Backend::Kernels]
    } else {
        [Backend::BlasLt, Backend::HipDnn, Backend::Kernels]
    }
}

/// The number of BLASLt algorithms that tuning measures for a product.
pub(crate) const BLAS_ALGORITHMS: usize = 8;

/// The number of hipDNN engines that tuning measures for a step.
pub(crate) const DNN_ENGINES: usize = 4;

/// Products with fewer multiplications than this are not worth a hipDNN call: a launch costs as much.
const SMALL_FOR_DNN: usize = 1 << 20;
/// Products with fewer multiplications than this use our kernels instead of BLASLt, because they fuse any epilogue.
const SMALL_FOR_BLAS: usize = 1 << 24;
/// The same limit for products whose epilogue needs a separate pass after BLASLt.
const SMALL_FOR_BLAS_WITH_PASS: usize = 1 << 27;

/// Whether BLASLt is asked for a step.
///
/// # Errors
/// Our kernel is the better choice.
pub(crate) fn check_blas(step: &Step) -> Result<(), Declined> {
    // Measured on an H200 with one row: our kernel takes 0.86 to 1.0 of cuBLAS's time and also fuses normalisation and
    // gating.
    if kernels::has_few_rows(step) {
        return Err(Declined::new("it has few rows: BLASLt is faster only for many"));
    }
    Ok(())
}

/// Whether a product is large enough for BLASLt, and for the separate pass over its result if it needs one.
///
/// # Errors
/// It is too small.
pub(crate) fn check_blas_size(multiplications: usize, has_pass: bool) -> Result<(), Declined> {
    let least = if has_pass { SMALL_FOR_BLAS_WITH_PASS } else { SMALL_FOR_BLAS };
    if multiplications < least { Err(Declined::new("the product is too small for BLASLt")) } else { Ok(()) }
}

/// True if hipDNN is the first backend that is asked for a step that it has an operation for. Its plan is then built
/// ahead of time.
pub(crate) fn asks_dnn_first(prim: &Prim) -> bool {
    !prim.product().is_some_and(|product| matches!(product.kind, ProductKind::MatMul(_)))
}

/// What a session wants from BLASLt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BlasMode {
    /// The products that are expected to be faster there.
    #[default]
    Auto,
    /// Nothing.
    Off,
}

impl BlasMode {
    /// Whether BLASLt may be asked for a product of matrices.
    pub(crate) fn check(self) -> Result<(), Declined> {
        match self {
            Self::Auto => Ok(()),
            Self::Off => Err(Declined::new("BLASLt is turned off")),
        }
    }
}

/// The text is not one of the two modes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected auto or off")]
pub struct UnknownBlasMode;

impl FromStr for BlasMode {
    type Err = UnknownBlasMode;

    fn from_str(text: &str) -> Result<Self, UnknownBlasMode> {
        match text {
            "auto" => Ok(Self::Auto),
            "off" => Ok(Self::Off),
            _ => Err(UnknownBlasMode),
        }
    }
}

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
pub(crate) enum Offers {
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
    pub(crate) fn offers(self, driver: DriverKind, target: &str) -> Option<Offers> {
        match (self, driver) {
            (Self::Off, _) | (Self::Auto, DriverKind::Host) => None,
            (Self::Auto, _) => Some(Offers::Worthwhile { tokens: Arch::new(target, 0).library_attention }),
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
    /// True if a step that the library refuses as one graph is offered again in parts.
    ///
    /// This applies to convolutions, because a vendor's convolution followed by our map is faster than our own fused
    /// code. Other products and attention are split only for sessions that want all of hipDNN, and only if no other
    /// backend takes them before hipDNN is asked.
    pub(crate) fn splits(self, step: &Step, is_taken: &dyn Fn(&Step) -> bool) -> bool {
        match (&step.prim, step.prim.product_and_epilogue()) {
            (_, Some((ProductKind::Conv(_) | ProductKind::ConvTranspose(_), _))) => true,
            (Prim::Attention(_), _) | (_, Some((ProductKind::MatMul(_), _))) => {
                self == Self::Everything && !is_taken(step)
            }
            _ => false,
        }
    }

    /// True if a step that the library has no operation for is offered as a chain of smaller ones. Our own attention
    /// does not store scores, so only sessions that want all of hipDNN use a chain.
    pub(crate) fn chains(self, step: &Step) -> bool {
        self == Self::Everything && matches!(step.prim, Prim::Attention(_))
    }

    /// Whether a step is worthwhile for the library.
    pub(crate) fn check(self, step: &Step) -> Result<(), Declined> {
        let Self::Worthwhile { tokens } = self else { return Ok(()) };
        if let Some(extents) = attended(step) {
            return match tokens {
                None => Err(Declined::new("our own attention is one launch")),
                Some(tokens) if extents.iter().all(|&extent| extent > 0 && extent.is_multiple_of(tokens)) => Ok(()),
                Some(tokens) => Err(Declined::new(format!(
                    "our own attention supports any length; {} and {} are not multiples of {tokens}",
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
        if multiplications < SMALL_FOR_DNN {
            return Err(Declined::new(format!("it is too small: {multiplications} multiplications")));
        }
        if kernels::has_few_rows(step) {
            return Err(Declined::new("it has few rows: our own kernel reads the other operand once"));
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
    fn the_host_offers_nothing_unless_requested() {
        assert_eq!(Mode::Auto.offers(DriverKind::Host, "host"), None);
        assert_eq!(Mode::On.offers(DriverKind::Host, "host"), Some(Offers::Everything));
        assert_eq!(Mode::Auto.offers(DriverKind::Nvidia, "sm_90"), Some(Offers::Worthwhile { tokens: Some(1024) }));
        assert_eq!(Mode::Auto.offers(DriverKind::Nvidia, "sm_80"), Some(USUAL));
        assert_eq!(Mode::Auto.offers(DriverKind::Amd, "gfx942:sramecc+:xnack-"), Some(USUAL));
        assert_eq!(Mode::Off.offers(DriverKind::Amd, "gfx942"), None);
    }

    #[test]
    fn long_attention_is_offered_on_listed_devices() {
        use graph::expr::Expr;
        use graph::prim::{Attention, BufferId, CachedAttention, Filled, Sinks};
        use graph::shape::dense_strides;
        use graph::{DType, Shape, View};
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
            assert!(there.check(&left).is_err_and(|declined| declined.0.contains("not multiples of 512")));
            assert_eq!(Offers::Everything.check(&left), Ok(()));
        }
    }

    #[test]
    fn attention_and_small_products_are_offered_only_on_request() {
        use graph::expr::Expr;
        use graph::prim::Attention;
        let (shape, scores) = ([2usize, 2].as_slice().into(), Expr::new());
        let step = |prim| Step { node: 0, prim, inputs: Vec::new(), outputs: Vec::new() };
        let attention = step(Prim::Attention(Attention { alpha: 1.0, shape, scores, zero_if_hidden: false }));
        assert!(USUAL.check(&attention).is_err());
        assert!(Offers::Everything.check(&attention).is_ok());
        assert!(USUAL.check(&step(Prim::matmul(1.0))).is_ok());
    }

    #[test]
    fn hipdnn_is_asked_first_for_convolutions_and_last_for_products() {
        use graph::prim::Conv;
        let one = || [1usize, 1].into_iter().collect();
        let conv =
            Conv { strides: one(), pads: [0, 0].into_iter().collect(), dilations: one(), groups: 1, bias: false };
        assert_eq!(order(&ProductKind::Conv(conv).into())[..2], [Backend::HipDnn, Backend::BlasLt]);
        assert_eq!(order(&Prim::matmul(1.0))[..2], [Backend::BlasLt, Backend::HipDnn]);
    }

    #[test]
    fn blaslt_gets_large_products_and_larger_ones_with_a_pass_after_them() {
        let small = Err(Declined::new("the product is too small for BLASLt"));
        assert_eq!(check_blas_size(SMALL_FOR_BLAS - 1, false), small);
        assert_eq!(check_blas_size(SMALL_FOR_BLAS, false), Ok(()));
        assert_eq!(check_blas_size(SMALL_FOR_BLAS, true), small);
        assert_eq!(check_blas_size(SMALL_FOR_BLAS_WITH_PASS, true), Ok(()));
    }

    #[test]
    fn only_auto_on_and_off_are_modes() {
        assert_eq!("on".parse(), Ok(Mode::On));
        for text in ["", "ON", "1", "true", " on"] {
            assert_eq!(text.parse::<Mode>(), Err(UnknownMode), "{text:?}");
        }
        assert_eq!(("auto".parse(), "off".parse()), (Ok(BlasMode::Auto), Ok(BlasMode::Off)));
        assert_eq!("on".parse::<BlasMode>(), Err(UnknownBlasMode));
    }
}
