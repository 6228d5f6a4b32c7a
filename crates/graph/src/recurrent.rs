//! Recurrent layers.

/// The kind of recurrent layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cell {
    /// Four gates, in the order input, output, forget, cell.
    Lstm,
    /// Three gates, in the order update, reset, hidden; `linear_before_reset` as in ONNX.
    Gru {
        /// Applies the reset gate after the product.
        linear_before_reset: bool,
    },
    /// One gate.
    Rnn,
}

/// A gate's activation, with its parameters if it has any.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Activation {
    /// The function.
    pub kind: ActivationKind,
    /// First parameter.
    pub alpha: f32,
    /// Second parameter.
    pub beta: f32,
}

/// Activations of recurrent layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum ActivationKind {
    Sigmoid,
    Tanh,
    Relu,
    Affine,
    LeakyRelu,
    ThresholdedRelu,
    ScaledTanh,
    HardSigmoid,
    Elu,
    Softsign,
    Softplus,
}

/// A recurrent layer in one direction: inputs x `[steps, batch, input]`, w `[gates·hidden, input]`, r
/// `[gates·hidden, hidden]`, then the flagged ones of bias `[2·gates·hidden]`, lengths `[batch]` i32, initial h
/// `[batch, hidden]`, initial c `[batch, hidden]`, peepholes `[3·hidden]`; outputs y `[steps, batch, hidden]`, last h
/// `[batch, hidden]` and, for an LSTM, last c.
#[derive(Clone, Debug, PartialEq)]
pub struct Recurrent {
    /// The kind of layer.
    pub cell: Cell,
    /// Runs from the last step to the first.
    pub reverse: bool,
    /// Gate activations in ONNX's order.
    pub activations: Vec<Activation>,
    /// Clamps the input of gate activations to ±clip; an LSTM's cell state is not clamped.
    pub clip: Option<f32>,
    /// Couples input and forget gates.
    pub input_forget: bool,
    /// Which optional inputs are present.
    pub has: RecurrentInputs,
}

/// Which optional inputs of a [`Recurrent`] are present.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct RecurrentInputs {
    pub bias: bool,
    pub lengths: bool,
    pub initial_h: bool,
    pub initial_c: bool,
    pub peepholes: bool,
}
