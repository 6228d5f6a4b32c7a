//! The ONNX operators that MIGraphX's parser supports, by name without a domain.

use std::collections::BTreeSet;

use crate::mgx::result;
use crate::mgx::sys::Loaded;

/// The operators assumed for releases before 2.15, which cannot list them.
const BEFORE_2_15: &str = "Abs Acos Acosh Add And ArgMax ArgMin Asin Asinh Atan Atanh ATen Attention AveragePool \
BatchNormalization BiasGelu Cast Ceil Celu Clip Concat Constant ConstantFill ConstantOfShape Conv ConvInteger \
ConvTranspose Cos Cosh CumSum DepthToSpace DequantizeLinear Div Dropout DynamicQuantizeLinear Einsum Elu Equal Erf Exp \
Expand EyeLike FastGelu Flatten Floor GRU Gather GatherElements GatherND Gelu Gemm GlobalAveragePool GlobalMaxPool \
Greater GreaterOrEqual GroupNorm GroupNormalization GroupQueryAttention HardSigmoid HardSwish Identity If ImageScaler \
InstanceNormalization IsNaN LayerNormalization LeakyRelu Less LessOrEqual Log LogSoftmax Loop LpNormalization LRN LSTM \
MatMul MatMulInteger MatMulNBits Max MaxPool Mean Min Mod Mul Multinomial MultiHeadAttention Neg \
NegativeLogLikelihoodLoss NhwcConv NonMaxSuppression NonZero Not OneHot Or Pad Pow PRelu QLinearAdd QLinearAveragePool \
QLinearConv QLinearGlobalAveragePool QLinearMatMul QuantizeLinear QuickGelu RandomNormal RandomNormalLike \
RandomUniform RandomUniformLike Range Reciprocal ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean \
ReduceMin ReduceProd ReduceSum ReduceSumSquare Relu Reshape Resize ReverseSequence RNN RoiAlign RotaryEmbedding Round \
Scatter ScatterElements ScatterND Selu Shape Sigmoid Sign SimplifiedLayerNormalization Sin Sinh SkipLayerNormalization \
SkipSimplifiedLayerNormalization Slice Softmax SoftmaxCrossEntropyLoss Softplus Softsign SpaceToDepth Split Sqrt \
Squeeze Sub Sum Tan Tanh ThresholdedRelu Tile TopK Transpose Trilu Unsqueeze Upsample Where Xor";

/// The library's own list, or ours if it has none.
pub(super) fn of(library: &Loaded) -> BTreeSet<String> {
    let listed = result::onnx::operators(library, &|| "listing the operators".to_owned()).unwrap_or_default();
    if listed.is_empty() {
        return BEFORE_2_15.split_whitespace().map(str::to_owned).collect();
    }
    listed.into_iter().collect()
}
