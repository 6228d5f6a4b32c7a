//! Recurrent layers: `LSTM`, `GRU` and `RNN`, one primitive per direction.
use crate::lower::Lower;
use crate::ops::{Entry, NodeInfo, Op};
use crate::prim::{self, Activation, ActivationKind, Cell, RecurrentInputs};
use crate::{DType, Declined, LowerError, Prim, Val};

/// A recurrent layer.
#[derive(Debug)]
struct Recurrent {
    name: &'static str,
    cell: Cell,
    hidden: Option<usize>,
    /// One list of gate activations per direction.
    directions: Vec<Direction>,
    clip: Option<f32>,
    input_forget: bool,
    /// The batch axis comes first, before the steps.
    batch_first: bool,
}

#[derive(Debug)]
struct Direction {
    reverse: bool,
    activations: Vec<Activation>,
}

impl Op for Recurrent {
    fn name(&self) -> &'static str {
        self.name
    }

    fn lower(&self, cx: &mut Lower<'_>, inputs: &[Option<Val>]) -> Result<Vec<Val>, LowerError> {
        let given = |at: usize| inputs.get(at).and_then(Option::as_ref);
        let (x, w, r) = (cx.required(inputs, 0)?, cx.required(inputs, 1)?, cx.required(inputs, 2)?);
        let x = self.steps_first(cx, x, "x")?;
        let (&[steps, batch, width], &[.., hidden]) = (x.shape(), r.shape()) else {
            return Err(cx.invalid(format!("x {:?} and r {:?} must have three axes", x.shape(), r.shape())));
        };
        let (gates, count) = (self.gates(), self.directions.len());
        if self.hidden.is_some_and(|wanted| wanted != hidden) {
            return Err(cx.invalid(format!("hidden_size {:?}, but r is {:?}", self.hidden, r.shape())));
        }
        let state = |value: Option<&Val>, name: &str| value.map(|value| self.steps_first(cx, value, name)).transpose();
        let (h, c) = (state(given(5), "initial_h")?, state(given(6).filter(|_| self.cell == Cell::Lstm), "initial_c")?);
        let peepholes = given(7).filter(|_| self.cell == Cell::Lstm);
        let check = |name: &str, value: Option<&Val>, want: &[usize]| match value {
            Some(value) if value.shape() != want => {
                Err(cx.invalid(format!("{name} is {:?}, expected {want:?}", value.shape())))
            }
            _ => Ok(()),
        };
        check("w", Some(w), &[count, gates * hidden, width])?;
        check("r", Some(r), &[count, gates * hidden, hidden])?;
        check("b", given(3), &[count, 2 * gates * hidden])?;
        check("sequence_lens", given(4), &[batch])?;
        check("initial_h", h.as_ref(), &[count, batch, hidden])?;
        check("initial_c", c.as_ref(), &[count, batch, hidden])?;
        check("p", peepholes, &[count, 3 * hidden])?;
        if steps == 0 || width == 0 || hidden == 0 {
            return Err(cx.invalid(format!("x {:?} with a hidden size of {hidden} is empty", x.shape())));
        }
        // The buffers have ONNX's layout; the primitive writes to them through views.
        let (y, last_h, last_c) = if self.batch_first {
            let y = cx.fresh(x.dtype(), &[batch, steps, count, hidden])?;
            (y, cx.fresh(x.dtype(), &[batch, count, hidden])?, cx.fresh(x.dtype(), &[batch, count, hidden])?)
        } else {
            let y = cx.fresh(x.dtype(), &[steps, count, batch, hidden])?;
            (y, cx.fresh(x.dtype(), &[count, batch, hidden])?, cx.fresh(x.dtype(), &[count, batch, hidden])?)
        };
        let one = |value: &Val, axis: usize, at: usize| value.sliced(axis, at, 1, 1).squeezed(axis);
        for (at, direction) in self.directions.iter().enumerate() {
            let mut arguments = vec![x.clone(), one(w, 0, at), one(r, 0, at)];
            arguments.extend(given(3).map(|bias| one(bias, 0, at)));
            arguments.extend(given(4).cloned());
            arguments.extend(h.as_ref().map(|h| one(h, 0, at)));
            arguments.extend(c.as_ref().map(|c| one(c, 0, at)));
            arguments.extend(peepholes.map(|p| one(p, 0, at)));
            let mut results = if self.batch_first {
                vec![one(&y, 2, at).permuted(&[1, 0, 2]), one(&last_h, 1, at)]
            } else {
                vec![one(&y, 1, at), one(&last_h, 0, at)]
            };
            if self.cell == Cell::Lstm {
                results.push(one(&last_c, if self.batch_first { 1 } else { 0 }, at));
            }
            let prim = Prim::Recurrent(prim::Recurrent {
                cell: self.cell,
                reverse: direction.reverse,
                activations: direction.activations.clone(),
                clip: self.clip,
                input_forget: self.input_forget,
                has: RecurrentInputs {
                    bias: given(3).is_some(),
                    lengths: given(4).is_some(),
                    initial_h: h.is_some(),
                    initial_c: c.is_some(),
                    peepholes: peepholes.is_some(),
                },
            });
            if batch > 0 {
                cx.emit(prim, &arguments.iter().collect::<Vec<_>>(), &results.iter().collect::<Vec<_>>());
            }
        }
        Ok(if self.cell == Cell::Lstm { vec![y, last_h, last_c] } else { vec![y, last_h] })
    }
}

impl Recurrent {
    const fn gates(&self) -> usize {
        match self.cell {
            Cell::Lstm => 4,
            Cell::Gru { .. } => 3,
            Cell::Rnn => 1,
        }
    }

    /// A value of rank 3 with its first two axes in the order of layout 0.
    fn steps_first(&self, cx: &Lower<'_>, value: &Val, name: &str) -> Result<Val, LowerError> {
        if value.rank() != 3 {
            return Err(cx.invalid(format!("{name} is {:?}, expected three axes", value.shape())));
        }
        Ok(if self.batch_first { value.permuted(&[1, 0, 2]) } else { value.clone() })
    }
}

pub(super) fn parse_lstm(node: &NodeInfo<'_>) -> Result<Box<dyn Op>, Declined> {
    layer("LSTM", node, Cell::Lstm, &["Sigmoid", "Tanh", "Tanh"])
}

fn parse_gru(node: &NodeInfo<'_>) -> Result<Box<dyn Op>, Declined> {
    let linear_before_reset = node.attributes.flag("linear_before_reset")?;
    layer("GRU", node, Cell::Gru { linear_before_reset }, &["Sigmoid", "Tanh"])
}

fn parse_rnn(node: &NodeInfo<'_>) -> Result<Box<dyn Op>, Declined> {
    layer("RNN", node, Cell::Rnn, &["Tanh"])
}

fn layer(name: &'static str, node: &NodeInfo<'_>, cell: Cell, defaults: &[&str]) -> Result<Box<dyn Op>, Declined> {
    let attributes = node.attributes;
    node.accept(0, DType::is_float)?;
    if node.optional(4).is_some_and(|lengths| lengths.dtype != DType::I32) {
        return Err(Declined::new("sequence_lens is not int32"));
    }
    let reversed: &[bool] = match attributes.text("direction", "forward")? {
        "forward" => &[false],
        "reverse" => &[true],
        "bidirectional" => &[false, true],
        other => return Err(Declined::new(format!("unsupported direction {other}"))),
    };
    let wanted = defaults.len() * reversed.len();
    let names: Vec<String> = match attributes.texts("activations")? {
        // RNN's schema fills in one activation for each of two directions, even if there is only one.
        Some(names) if cell == Cell::Rnn && names.len() > wanted => names[..wanted].to_vec(),
        Some(names) if !names.is_empty() => names.to_vec(),
        _ => defaults.iter().cycle().take(wanted).map(|&name| name.to_owned()).collect(),
    };
    if names.len() != wanted {
        return Err(Declined::new(format!("got {} activations for {} directions", names.len(), reversed.len())));
    }
    let mut alphas = attributes.floats("activation_alpha")?.unwrap_or_default().iter().copied();
    let mut betas = attributes.floats("activation_beta")?.unwrap_or_default().iter().copied();
    let activations =
        names.iter().map(|name| activation(name, &mut alphas, &mut betas)).collect::<Result<Vec<_>, _>>()?;
    let directions = reversed
        .iter()
        .zip(activations.chunks(defaults.len()))
        .map(|(&reverse, activations)| Direction { reverse, activations: activations.to_vec() })
        .collect();
    let clip = attributes.float("clip", 0.0)?;
    Ok(Box::new(Recurrent {
        name,
        cell,
        hidden: usize::try_from(attributes.int("hidden_size", 0)?).ok().filter(|&hidden| hidden > 0),
        directions,
        clip: (clip > 0.0).then_some(clip),
        input_forget: attributes.flag("input_forget")?,
        batch_first: attributes.flag("layout")?,
    }))
}

/// An activation by name. The parameter lists hold one entry for each activation that takes one.
fn activation(
    name: &str,
    alphas: &mut impl Iterator<Item = f32>,
    betas: &mut impl Iterator<Item = f32>,
) -> Result<Activation, Declined> {
    let missing = || Declined::new(format!("activation {name} lacks its parameters"));
    let (kind, alpha, beta) = match name.to_ascii_lowercase().as_str() {
        "sigmoid" => (ActivationKind::Sigmoid, 0.0, 0.0),
        "tanh" => (ActivationKind::Tanh, 0.0, 0.0),
        "relu" => (ActivationKind::Relu, 0.0, 0.0),
        "softsign" => (ActivationKind::Softsign, 0.0, 0.0),
        "softplus" => (ActivationKind::Softplus, 0.0, 0.0),
        "leakyrelu" => (ActivationKind::LeakyRelu, alphas.next().unwrap_or(0.01), 0.0),
        "thresholdedrelu" => (ActivationKind::ThresholdedRelu, alphas.next().unwrap_or(1.0), 0.0),
        "elu" => (ActivationKind::Elu, alphas.next().unwrap_or(1.0), 0.0),
        "hardsigmoid" => (ActivationKind::HardSigmoid, alphas.next().unwrap_or(0.2), betas.next().unwrap_or(0.5)),
        "affine" => (ActivationKind::Affine, alphas.next().ok_or_else(missing)?, betas.next().ok_or_else(missing)?),
        "scaledtanh" => {
            (ActivationKind::ScaledTanh, alphas.next().ok_or_else(missing)?, betas.next().ok_or_else(missing)?)
        }
        other => return Err(Declined::new(format!("unsupported activation {other}"))),
    };
    Ok(Activation { kind, alpha, beta })
}

pub(super) const OPS: &[Entry] = &[
    Entry { domain: "", op_type: "LSTM", parse: parse_lstm },
    Entry { domain: "", op_type: "GRU", parse: parse_gru },
    Entry { domain: "", op_type: "RNN", parse: parse_rnn },
];

#[cfg(test)]
mod tests {
    use crate::DType;
    use crate::ops::trial::{Trial, device};

    #[test]
    fn layers_have_the_shapes_that_onnx_defines_in_both_layouts() {
        let lstm = |x| {
            let trial = Trial::new("LSTM", 14).text("direction", "bidirectional").gives(&[DType::F32; 3]);
            trial.input(device(x)).input(device(&[2, 20, 4])).input(device(&[2, 20, 5]))
        };
        assert_eq!(lstm(&[7, 3, 4]).shapes(), Ok(vec![vec![7, 2, 3, 5], vec![2, 3, 5], vec![2, 3, 5]]));
        let batch_first = lstm(&[3, 7, 4]).int("layout", 1);
        assert_eq!(batch_first.shapes(), Ok(vec![vec![3, 7, 2, 5], vec![3, 2, 5], vec![3, 2, 5]]));
        assert_eq!(lstm(&[7, 3, 4]).steps(), Ok(vec!["recurrent", "recurrent"]));
    }

    #[test]
    fn errors_name_wrong_weights_and_activations() {
        let gru = || Trial::new("GRU", 14).input(device(&[7, 3, 4])).input(device(&[1, 15, 4]));
        let found = gru().input(device(&[1, 15, 6])).shapes();
        assert_eq!(found, Err("GRU: w is [1, 15, 4], expected [1, 18, 4]".to_owned()));
        let found = gru().input(device(&[1, 15, 5])).int("hidden_size", 4).shapes();
        assert_eq!(found, Err("GRU: hidden_size Some(4), but r is [1, 15, 5]".to_owned()));
        let found = gru().input(device(&[1, 15, 5])).text("direction", "sideways").shapes();
        assert_eq!(found, Err("unsupported direction sideways".to_owned()));
    }
}
