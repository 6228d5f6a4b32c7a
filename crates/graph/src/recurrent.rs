//! Recurrent layers.

/// Which recurrent layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cell {
    /// Four gates, in the order input, output, forget, cell.
    Lstm,
    /// Three gates, in the order update, reset, hidden; `linear_before_reset` as in ONNX.
    Gru {
        /// The reset gate applies after the product.
        linear_before_reset: bool,
    },
    /// One gate.
    Rnn,
}

/// A gate's activation, with its two parameters where it has any.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Activation {
    /// Which.
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

/// A recurrent layer of one direction: inputs x `[steps, batch, input]`, w `[gates·hidden, input]`, r
/// `[gates·hidden, hidden]`, then where flagged bias `[2·gates·hidden]`, lengths `[batch]` i32, initial h
/// `[batch, hidden]`, initial c `[batch, hidden]`, peepholes `[3·hidden]`; outputs y `[steps, batch, hidden]`, last h
/// `[batch, hidden]` and, for an LSTM, last c.
#[derive(Clone, Debug, PartialEq)]
pub struct Recurrent {
    /// Which layer.
    pub cell: Cell,
    /// From the last step to the first.
    pub reverse: bool,
    /// Gate activations in ONNX's order.
    pub activations: Vec<Activation>,
    /// Bounds what gates' activations see to ±clip; an LSTM's cell state is not bounded.
    pub clip: Option<f32>,
    /// Couples input and forget gates.
    pub input_forget: bool,
    /// Which optional inputs are there.
    pub has: RecurrentInputs,
}

/// Which optional inputs of a [`Recurrent`] are there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct RecurrentInputs {
    pub bias: bool,
    pub lengths: bool,
    pub initial_h: bool,
    pub initial_c: bool,
    pub peepholes: bool,
}
