//! Methods that add operations to a graph. Each returns its results, which are virtual tensors.

use super::ops::{
    self, Attention, AttentionGradients, BatchNormStatistics, Convolution, Direction, NormGradients, NormKind,
    NormTensors, Pointwise,
};
use super::ops::{MoeGroupedMatmul, Reduction, Resample, RunningStatistics, TrainingTensors};
use super::{Graph, Tensor, TensorId};
use crate::sys::DataType;

impl Graph {
    /// Convolves `x` with the filters `w`.
    pub fn convolution(&mut self, x: TensorId, w: TensorId, parameters: Convolution) -> TensorId {
        let y = self.result(Tensor::default());
        self.convolve(Direction::Forward, x, w, y, parameters);
        y
    }

    /// The gradient of a convolution's data; its extents must be given.
    pub fn convolution_to_data(
        &mut self,
        dy: TensorId,
        w: TensorId,
        dims: &[i64],
        parameters: Convolution,
    ) -> TensorId {
        let dx = self.result(Tensor { dims: dims.to_vec(), ..Tensor::default() });
        self.convolve(Direction::ToData, dx, w, dy, parameters);
        dx
    }

    /// The gradient of a convolution's filter; its extents must be given.
    pub fn convolution_to_filter(
        &mut self,
        x: TensorId,
        dy: TensorId,
        dims: &[i64],
        parameters: Convolution,
    ) -> TensorId {
        let dw = self.result(Tensor { dims: dims.to_vec(), ..Tensor::default() });
        self.convolve(Direction::ToFilter, x, dw, dy, parameters);
        dw
    }

    fn convolve(&mut self, direction: Direction, x: TensorId, w: TensorId, y: TensorId, parameters: Convolution) {
        self.operations.push(ops::convolution(direction, x, w, y, parameters));
    }

    /// Multiplies matrices.
    pub fn matmul(&mut self, a: TensorId, b: TensorId) -> TensorId {
        let c = self.result(Tensor::default());
        self.operations.push(ops::matmul(a, b, c));
        c
    }

    /// Applies an operation to each element of one, two or three tensors.
    pub fn pointwise(&mut self, what: impl Into<Pointwise>, inputs: &[TensorId]) -> TensorId {
        let output = self.result(Tensor::default());
        self.operations.push(ops::pointwise(what.into(), inputs, output));
        output
    }

    /// Reduces the axes whose extent is 1 in `dims`.
    pub fn reduction(&mut self, what: impl Into<Reduction>, x: TensorId, dims: &[i64]) -> TensorId {
        let y = self.result(Tensor { dims: dims.to_vec(), ..Tensor::default() });
        self.operations.push(ops::reduction(what.into(), x, y));
        y
    }

    /// Normalises the last `axes` axes to mean 0 and standard deviation 1, then scales and shifts.
    pub fn layer_norm(
        &mut self,
        x: TensorId,
        [scale, bias]: [TensorId; 2],
        epsilon: TensorId,
        axes: usize,
    ) -> TensorId {
        self.norm(NormKind::Layer, x, scale, Some(bias), epsilon, axes, 0).0
    }

    /// Like [`layer_norm`](Self::layer_norm), and also returns mean and inverse standard deviation, for training.
    pub fn layer_norm_training(
        &mut self,
        x: TensorId,
        [scale, bias]: [TensorId; 2],
        epsilon: TensorId,
        axes: usize,
    ) -> (TensorId, [TensorId; 2]) {
        let (y, statistics) = self.norm(NormKind::Layer, x, scale, Some(bias), epsilon, axes, 2);
        (y, [statistics[0], statistics[1]])
    }

    /// Divides the last `axes` axes by their root mean square, then scales and shifts.
    pub fn rms_norm(
        &mut self,
        x: TensorId,
        scale: TensorId,
        bias: Option<TensorId>,
        epsilon: TensorId,
        axes: usize,
    ) -> TensorId {
        self.norm(NormKind::Rms, x, scale, bias, epsilon, axes, 0).0
    }

    /// Like [`rms_norm`](Self::rms_norm), and also returns the inverse root mean square, for training.
    pub fn rms_norm_training(
        &mut self,
        x: TensorId,
        scale: TensorId,
        bias: Option<TensorId>,
        epsilon: TensorId,
        axes: usize,
    ) -> (TensorId, TensorId) {
        let (y, statistics) = self.norm(NormKind::Rms, x, scale, bias, epsilon, axes, 1);
        (y, statistics[0])
    }

    #[allow(clippy::too_many_arguments)]
    fn norm(
        &mut self,
        kind: NormKind,
        x: TensorId,
        scale: TensorId,
        bias: Option<TensorId>,
        epsilon: TensorId,
        axes: usize,
        statistics: usize,
    ) -> (TensorId, Vec<TensorId>) {
        let y = self.result(Tensor::default());
        let statistics: Vec<_> = (0..statistics).map(|_| self.result(Tensor::default())).collect();
        let tensors = NormTensors { x, scale, bias, epsilon, y, statistics: statistics.clone() };
        self.operations.push(ops::norm(kind, tensors, axes));
        (y, statistics)
    }

    /// The gradients of a layer norm: of its data, scale and bias.
    pub fn layer_norm_backward(
        &mut self,
        [dy, x, scale]: [TensorId; 3],
        statistics: [TensorId; 2],
        axes: usize,
    ) -> [TensorId; 3] {
        let [dx, dscale, dbias] = [(); 3].map(|()| self.result(Tensor::default()));
        let statistics = statistics.to_vec();
        let tensors = NormGradients { dy, x, scale, statistics, dx, dscale, dbias: Some(dbias) };
        self.operations.push(ops::norm_backward(NormKind::Layer, tensors, axes));
        [dx, dscale, dbias]
    }

    /// The gradients of an RMS norm without bias: of its data and scale.
    pub fn rms_norm_backward(
        &mut self,
        [dy, x, scale]: [TensorId; 3],
        inverse: TensorId,
        axes: usize,
    ) -> [TensorId; 2] {
        let [dx, dscale] = [(); 2].map(|()| self.result(Tensor::default()));
        let tensors = NormGradients { dy, x, scale, statistics: vec![inverse], dx, dscale, dbias: None };
        self.operations.push(ops::norm_backward(NormKind::Rms, tensors, axes));
        [dx, dscale]
    }

    /// The gradients of an RMS norm: of its data, scale and bias.
    pub fn rms_norm_backward_with_bias(
        &mut self,
        [dy, x, scale]: [TensorId; 3],
        inverse: TensorId,
        axes: usize,
    ) -> [TensorId; 3] {
        let [dx, dscale, dbias] = [(); 3].map(|()| self.result(Tensor::default()));
        let tensors = NormGradients { dy, x, scale, statistics: vec![inverse], dx, dscale, dbias: Some(dbias) };
        self.operations.push(ops::norm_backward(NormKind::Rms, tensors, axes));
        [dx, dscale, dbias]
    }

    /// Normalises each channel with given statistics.
    pub fn batch_norm_inference(
        &mut self,
        x: TensorId,
        mean: TensorId,
        statistics: BatchNormStatistics,
        scale_and_bias: [TensorId; 2],
    ) -> TensorId {
        let y = self.result(Tensor::default());
        self.operations.push(ops::batch_norm_inference(x, mean, statistics, scale_and_bias, y));
        y
    }

    /// Normalises each channel with its own statistics. Returns the result, then mean and inverse standard deviation,
    /// then the new running mean and variance if `running` is given.
    pub fn batch_norm_training(
        &mut self,
        x: TensorId,
        [scale, bias]: [TensorId; 2],
        epsilon: TensorId,
        running: Option<RunningStatistics>,
    ) -> (TensorId, [TensorId; 2], Option<[TensorId; 2]>) {
        let [y, mean, inverse_deviation] = [(); 3].map(|()| self.result(Tensor::default()));
        let running = running.map(|before| (before, [(); 2].map(|()| self.result(Tensor::default()))));
        let tensors = TrainingTensors { x, scale, bias, epsilon, y, mean, inverse_deviation, running };
        self.operations.push(ops::batch_norm_training(tensors));
        (y, [mean, inverse_deviation], running.map(|(_, after)| after))
    }

    /// The gradients of a batch norm: of its data, scale and bias.
    pub fn batch_norm_backward(&mut self, inputs: [TensorId; 3], statistics: Option<[TensorId; 2]>) -> [TensorId; 3] {
        let made = [(); 3].map(|()| self.result(Tensor::default()));
        self.operations.push(ops::batch_norm_backward(inputs, statistics, made));
        made
    }

    /// Pools over windows.
    pub fn resample(&mut self, what: Resample, x: TensorId) -> TensorId {
        let y = self.result(Tensor::default());
        self.operations.push(ops::resample(what, x, y, None));
        y
    }

    /// Max-pools over windows, and also returns the index of the maximum in each window.
    pub fn resample_with_index(&mut self, what: Resample, x: TensorId, index: DataType) -> (TensorId, TensorId) {
        let (y, index) = (self.result(Tensor::default()), self.result(Tensor::default().typed(index)));
        self.operations.push(ops::resample(what, x, y, Some(index)));
        (y, index)
    }

    /// The gradient of pooling; its extents must be given.
    pub fn resample_backward(
        &mut self,
        what: Resample,
        dy: TensorId,
        index: Option<TensorId>,
        dims: &[i64],
    ) -> TensorId {
        let dx = self.result(Tensor { dims: dims.to_vec(), ..Tensor::default() });
        self.operations.push(ops::resample_backward(what, dy, index, dx));
        dx
    }

    /// Attention of queries over keys and values.
    pub fn attention(&mut self, what: Attention, qkv: [TensorId; 3]) -> TensorId {
        let o = self.result(Tensor::default());
        self.operations.push(ops::attention(what, qkv, o, None));
        o
    }

    /// Like [`attention`](Self::attention), and also returns the log-sum-exp of each row, for training.
    pub fn attention_training(&mut self, what: Attention, qkv: [TensorId; 3]) -> (TensorId, TensorId) {
        let (o, statistics) = (self.result(Tensor::default()), self.result(Tensor::default()));
        self.operations.push(ops::attention(what, qkv, o, Some(statistics)));
        (o, statistics)
    }

    /// The gradients of attention: of its queries, keys and values, from the results of the forward pass and `d_o`.
    pub fn attention_backward(
        &mut self,
        what: Attention,
        qkv: [TensorId; 3],
        [o, statistics]: [TensorId; 2],
        d_o: TensorId,
    ) -> [TensorId; 3] {
        let made = [(); 3].map(|()| self.result(Tensor::default()));
        let of = AttentionGradients { o, statistics, d_o, made };
        self.operations.push(ops::attention_backward(what, qkv, of));
        made
    }

    /// Multiplies each expert's tokens by its weights; `inputs` are the tokens, the weights, and each expert's first
    /// row. The extents of a gathered or scattered result must be given.
    pub fn moe_grouped_matmul(
        &mut self,
        what: MoeGroupedMatmul,
        inputs: [TensorId; 3],
        dims: Option<&[i64]>,
    ) -> TensorId {
        let output = self.result(Tensor { dims: dims.unwrap_or_default().to_vec(), ..Tensor::default() });
        self.operations.push(ops::moe_grouped_matmul(what, inputs, output));
        output
    }

    /// The gradient of the experts' weights; `inputs` are the result's gradient, the tokens, and each expert's first
    /// row.
    pub fn moe_grouped_matmul_backward(&mut self, inputs: [TensorId; 3]) -> TensorId {
        let d_weight = self.result(Tensor::default());
        self.operations.push(ops::moe_grouped_matmul_backward(inputs, d_weight));
        d_weight
    }

    /// Quantises blocks along an axis (the last one if `None`): returns the quantised values and their scales.
    pub fn block_scale_quantize(
        &mut self,
        x: TensorId,
        [small, scale]: [DataType; 2],
        block: i32,
        axis: Option<i64>,
    ) -> [TensorId; 2] {
        let made = [small, scale].map(|data_type| self.result(Tensor::default().typed(data_type)));
        self.operations.push(ops::quantize(x, made, block, axis, false));
        made
    }

    /// Like [`block_scale_quantize`](Self::block_scale_quantize), with the quantised values of a block contiguous in
    /// memory.
    pub fn block_scale_quantize_transposed(
        &mut self,
        x: TensorId,
        [small, scale]: [DataType; 2],
        block: i32,
        axis: i64,
    ) -> [TensorId; 2] {
        let made = [small, scale].map(|data_type| self.result(Tensor::default().typed(data_type)));
        self.operations.push(ops::quantize(x, made, block, Some(axis), true));
        made
    }

    /// Multiplies blocks by their scales.
    pub fn block_scale_dequantize(&mut self, x: TensorId, scale: TensorId, blocks: &[i32]) -> TensorId {
        let y = self.result(Tensor::default());
        self.operations.push(ops::dequantize(x, scale, y, blocks));
        y
    }

    /// An operation that only one plugin supports, by its id (`plugin.operation`), with results of these descriptions.
    pub fn custom(&mut self, id: &str, data: &[u8], inputs: &[TensorId], results: Vec<Tensor>) -> Vec<TensorId> {
        let outputs: Vec<_> = results.into_iter().map(|tensor| self.result(tensor)).collect();
        self.operations.push(ops::custom(id, data, inputs, &outputs));
        outputs
    }
}
