//! The operations, one file per family: attributes, rules, inference.

mod attention;
mod batch_norm;
mod block_scale;
mod convolution;
mod custom;
mod matmul;
mod moe;
mod norm;
mod pointwise;
mod reduction;
mod resample;

pub use attention::{Attention, Dropout};
pub(super) use attention::{AttentionGradients, attention, attention_backward};
pub use batch_norm::{BatchNormStatistics, RunningStatistics};
pub(super) use batch_norm::{TrainingTensors, batch_norm_backward, batch_norm_inference, batch_norm_training};
pub(super) use block_scale::{dequantize, quantize};
pub use convolution::Convolution;
pub(super) use convolution::{Direction, convolution};
pub(super) use custom::custom;
pub(super) use matmul::matmul;
pub use moe::MoeGroupedMatmul;
pub(super) use moe::{moe_grouped_matmul, moe_grouped_matmul_backward};
pub(super) use norm::{NormGradients, NormKind, NormTensors, norm, norm_backward};
pub use pointwise::Pointwise;
pub(super) use pointwise::pointwise;
pub use reduction::Reduction;
pub(super) use reduction::reduction;
pub use resample::Resample;
pub(super) use resample::{resample, resample_backward};
