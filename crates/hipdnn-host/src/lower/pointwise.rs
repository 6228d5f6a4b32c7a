//! Pointwise modes as combinations of the engine's operators.

use graph::DType;
use graph::ops::Attribute;
use hipdnn::sys::{AttributeName as A, PointwiseMode as M};
use hipdnn_abi::Descriptor;

use super::{Answer, LoweredValue, Lowering};

impl Lowering {
    pub(super) fn pointwise(&mut self, operation: &Descriptor) -> Answer {
        let mode = M(operation.number(A::POINTWISE_MODE).unwrap_or(0));
        let slots = [A::OPERATION_POINTWISE_IN_0_EXT, A::OPERATION_POINTWISE_IN_1_EXT, A::OPERATION_POINTWISE_IN_2_EXT];
        let mut inputs = Vec::new();
        for slot in slots {
            inputs.extend(self.read_optional(operation, slot)?);
        }
        if mode.inputs() != Some(inputs.len()) {
            return Err(format!("{mode:?} does not take {} inputs", inputs.len()));
        }
        // hipDNN matches axes from the left, the engine from the right.
        let rank = inputs.iter().map(|made| made.dims.len()).max().unwrap_or(0);
        for input in &mut inputs {
            let mut dims = input.dims.clone();
            dims.resize(rank, 1);
            *input = self.reshape(input, &dims)?;
        }
        let made = match &inputs[..] {
            [x] => self.unary(operation, mode, x)?,
            [x, y] => self.binary(operation, mode, x, y)?,
            [x, y, mask] => {
                let zero = self.scalar(0.0);
                let differs = self.elementwise_to("Equal", &[mask, &zero], DType::Bool)?;
                self.elementwise("Where", &[&differs, y, x])?
            }
            _ => return Err(format!("{mode:?} needs inputs")),
        };
        self.write(operation, A::OPERATION_POINTWISE_OUT_0_EXT, &made)
    }

    fn unary(&mut self, operation: &Descriptor, mode: M, x: &LoweredValue) -> Answer<LoweredValue> {
        let plain = match mode {
            M::ABS => "Abs",
            M::CEIL => "Ceil",
            M::ERF => "Erf",
            M::EXP => "Exp",
            M::FLOOR => "Floor",
            M::IDENTITY => return Ok(x.clone()),
            M::LOG => "Log",
            M::NEG => "Neg",
            M::RECIPROCAL => "Reciprocal",
            M::SIGMOID_FWD => "Sigmoid",
            M::SIN => "Sin",
            M::SQRT => "Sqrt",
            M::TAN => "Tan",
            M::TANH_FWD => "Tanh",
            _ => return self.composed(operation, mode, x),
        };
        self.elementwise(plain, &[x])
    }

    fn composed(&mut self, operation: &Descriptor, mode: M, x: &LoweredValue) -> Answer<LoweredValue> {
        match mode {
            M::RSQRT => {
                let root = self.elementwise("Sqrt", &[x])?;
                self.elementwise("Reciprocal", &[&root])
            }
            M::RELU_FWD => self.relu(operation, x),
            M::ELU_FWD => {
                let alpha = operation.f32(A::POINTWISE_ELU_ALPHA).unwrap_or(1.0);
                let made = self.node("Elu", &[("alpha", Attribute::Float(alpha))], &[x], x.dtype)?;
                Ok(LoweredValue { dims: x.dims.clone(), ..made })
            }
            M::SOFTPLUS_FWD => {
                let beta = self.parameter(operation, A::POINTWISE_SOFTPLUS_BETA);
                let scaled = self.elementwise("Mul", &[x, &beta])?;
                let soft = self.elementwise("Softplus", &[&scaled])?;
                self.elementwise("Div", &[&soft, &beta])
            }
            M::SWISH_FWD => {
                let gate = self.swish_gate(operation, x)?;
                self.elementwise("Mul", &[x, &gate])
            }
            M::GELU_FWD => self.gelu(x, "none"),
            M::GELU_APPROX_TANH_FWD => self.gelu(x, "tanh"),
            M::LOGICAL_NOT => {
                let zero = self.scalar(0.0);
                let is_zero = self.elementwise_to("Equal", &[x, &zero], DType::Bool)?;
                self.cast(&is_zero, self.compute())
            }
            M::GEN_INDEX => self.index(operation, x),
            other => Err(format!("the pointwise mode {other:?} is not supported")),
        }
    }

    fn parameter(&mut self, operation: &Descriptor, name: A) -> LoweredValue {
        self.scalar(f64::from(operation.f32(name).unwrap_or(1.0)))
    }

    fn swish_gate(&mut self, operation: &Descriptor, x: &LoweredValue) -> Answer<LoweredValue> {
        let beta = self.parameter(operation, A::POINTWISE_SWISH_BETA);
        let scaled = self.elementwise("Mul", &[x, &beta])?;
        self.elementwise("Sigmoid", &[&scaled])
    }

    fn gelu(&mut self, x: &LoweredValue, approximate: &str) -> Answer<LoweredValue> {
        let made = self.node("Gelu", &[("approximate", Attribute::Text(approximate.into()))], &[x], x.dtype)?;
        Ok(LoweredValue { dims: x.dims.clone(), ..made })
    }

    /// Below the lower clip a ReLU continues with its slope; above the upper clip it is constant.
    fn relu(&mut self, operation: &Descriptor, x: &LoweredValue) -> Answer<LoweredValue> {
        let (lower, upper, slope) = clips(operation);
        let low = self.scalar(lower);
        let mut made = self.elementwise("Max", &[x, &low])?;
        if upper.is_finite() {
            let high = self.scalar(upper);
            made = self.elementwise("Min", &[&made, &high])?;
        }
        if slope != 0.0 {
            let below = self.elementwise("Min", &[x, &low])?;
            let below = self.elementwise("Sub", &[&below, &low])?;
            let slope = self.scalar(slope);
            let below = self.elementwise("Mul", &[&below, &slope])?;
            made = self.elementwise("Add", &[&made, &below])?;
        }
        Ok(made)
    }

    fn index(&mut self, operation: &Descriptor, x: &LoweredValue) -> Answer<LoweredValue> {
        let axis = operation.i64s(A::POINTWISE_AXIS).first().copied().unwrap_or(0);
        let axis = usize::try_from(axis).ok().filter(|&axis| axis < x.dims.len()).ok_or("no such axis")?;
        let along = self.along(self.compute(), x.dims.len(), axis, x.dims[axis], |at| at)?;
        let whole = self.numbers(&x.dims);
        self.compute_node("Expand", &[], &[&along, &whole], &x.dims)
    }

    fn binary(&mut self, operation: &Descriptor, mode: M, x: &LoweredValue, y: &LoweredValue) -> Answer<LoweredValue> {
        let arithmetic = match mode {
            M::ADD => Some("Add"),
            M::SUB => Some("Sub"),
            M::MUL => Some("Mul"),
            M::DIV => Some("Div"),
            M::MAX => Some("Max"),
            M::MIN => Some("Min"),
            _ => None,
        };
        if let Some(op) = arithmetic {
            return self.elementwise(op, &[x, y]);
        }
        let comparison = match mode {
            M::CMP_EQ | M::CMP_NEQ => Some("Equal"),
            M::CMP_GE => Some("GreaterOrEqual"),
            M::CMP_GT => Some("Greater"),
            M::CMP_LE => Some("LessOrEqual"),
            M::CMP_LT => Some("Less"),
            _ => None,
        };
        if let Some(op) = comparison {
            let mut truth = self.elementwise_to(op, &[x, y], DType::Bool)?;
            if mode == M::CMP_NEQ {
                truth = self.elementwise_to("Not", &[&truth], DType::Bool)?;
            }
            return self.cast(&truth, self.compute());
        }
        match mode {
            M::ADD_SQUARE => {
                let square = self.elementwise("Mul", &[y, y])?;
                self.elementwise("Add", &[x, &square])
            }
            M::LOGICAL_AND | M::LOGICAL_OR => {
                let (x, y) = (self.cast(x, DType::Bool)?, self.cast(y, DType::Bool)?);
                let op = if mode == M::LOGICAL_AND { "And" } else { "Or" };
                let truth = self.elementwise_to(op, &[&x, &y], DType::Bool)?;
                self.cast(&truth, self.compute())
            }
            _ => {
                let slope = self.slope(operation, mode, y)?;
                self.elementwise("Mul", &[x, &slope])
            }
        }
    }

    /// The derivative of an activation at `x`, which a backward mode multiplies by the upstream gradient.
    fn slope(&mut self, operation: &Descriptor, mode: M, x: &LoweredValue) -> Answer<LoweredValue> {
        let one = self.scalar(1.0);
        match mode {
            M::RELU_BWD => {
                let (lower, upper, slope) = clips(operation);
                let (low, slope) = (self.scalar(lower), self.scalar(slope));
                let above = self.elementwise_to("Greater", &[x, &low], DType::Bool)?;
                let made = self.elementwise("Where", &[&above, &one, &slope])?;
                if upper.is_infinite() {
                    return Ok(made);
                }
                let (high, zero) = (self.scalar(upper), self.scalar(0.0));
                let below = self.elementwise_to("Less", &[x, &high], DType::Bool)?;
                self.elementwise("Where", &[&below, &made, &zero])
            }
            M::SIGMOID_BWD => {
                let sigmoid = self.elementwise("Sigmoid", &[x])?;
                let rest = self.elementwise("Sub", &[&one, &sigmoid])?;
                self.elementwise("Mul", &[&sigmoid, &rest])
            }
            M::TANH_BWD => {
                let tanh = self.elementwise("Tanh", &[x])?;
                let square = self.elementwise("Mul", &[&tanh, &tanh])?;
                self.elementwise("Sub", &[&one, &square])
            }
            M::ELU_BWD => {
                let (zero, alpha) = (self.scalar(0.0), self.parameter(operation, A::POINTWISE_ELU_ALPHA));
                let above = self.elementwise_to("Greater", &[x, &zero], DType::Bool)?;
                let exp = self.elementwise("Exp", &[x])?;
                let below = self.elementwise("Mul", &[&exp, &alpha])?;
                self.elementwise("Where", &[&above, &one, &below])
            }
            M::SOFTPLUS_BWD => {
                let beta = self.parameter(operation, A::POINTWISE_SOFTPLUS_BETA);
                let scaled = self.elementwise("Mul", &[x, &beta])?;
                self.elementwise("Sigmoid", &[&scaled])
            }
            M::SWISH_BWD => {
                let gate = self.swish_gate(operation, x)?;
                let beta = self.parameter(operation, A::POINTWISE_SWISH_BETA);
                let rest = self.elementwise("Sub", &[&one, &gate])?;
                let product = self.elementwise("Mul", &[&gate, &rest])?;
                let scaled = self.elementwise("Mul", &[x, &beta])?;
                let bend = self.elementwise("Mul", &[&scaled, &product])?;
                self.elementwise("Add", &[&gate, &bend])
            }
            M::GELU_BWD => {
                let (half, root) = (self.scalar(0.5), self.scalar(std::f64::consts::FRAC_1_SQRT_2));
                let scaled = self.elementwise("Mul", &[x, &root])?;
                let erf = self.elementwise("Erf", &[&scaled])?;
                let erf = self.elementwise("Add", &[&erf, &one])?;
                let share = self.elementwise("Mul", &[&erf, &half])?;
                let square = self.elementwise("Mul", &[&scaled, &scaled])?;
                let square = self.elementwise("Neg", &[&square])?;
                let bell = self.elementwise("Exp", &[&square])?;
                let height = self.scalar((2.0 * std::f64::consts::PI).sqrt().recip());
                let bell = self.elementwise("Mul", &[&bell, &height])?;
                let bend = self.elementwise("Mul", &[x, &bell])?;
                self.elementwise("Add", &[&share, &bend])
            }
            M::GELU_APPROX_TANH_BWD => self.gelu_tanh_slope(x),
            other => Err(format!("the pointwise mode {other:?} is not supported")),
        }
    }

    /// With `u = k (x + c x³)`: `(1 + tanh u) / 2 + x (1 - tanh² u) k (1 + 3 c x²) / 2`.
    fn gelu_tanh_slope(&mut self, x: &LoweredValue) -> Answer<LoweredValue> {
        let [one, half] = [1.0, 0.5].map(|value| self.scalar(value));
        let (factor, cubic) = ((2.0 / std::f64::consts::PI).sqrt(), 0.044715);
        let [factor, cubic, thrice] = [factor, cubic, 3.0 * cubic].map(|value| self.scalar(value));
        let square = self.elementwise("Mul", &[x, x])?;
        let inner = self.elementwise("Mul", &[&square, &cubic])?;
        let inner = self.elementwise("Add", &[&inner, &one])?;
        let inner = self.elementwise("Mul", &[&inner, x])?;
        let inner = self.elementwise("Mul", &[&inner, &factor])?;
        let tanh = self.elementwise("Tanh", &[&inner])?;
        let share = self.elementwise("Add", &[&tanh, &one])?;
        let squared = self.elementwise("Mul", &[&tanh, &tanh])?;
        let steep = self.elementwise("Sub", &[&one, &squared])?;
        let rise = self.elementwise("Mul", &[&square, &thrice])?;
        let rise = self.elementwise("Add", &[&rise, &one])?;
        let rise = self.elementwise("Mul", &[&rise, &factor])?;
        let bend = self.elementwise("Mul", &[x, &steep])?;
        let bend = self.elementwise("Mul", &[&bend, &rise])?;
        let sum = self.elementwise("Add", &[&share, &bend])?;
        self.elementwise("Mul", &[&sum, &half])
    }
}

/// Lower clip, upper clip, slope below the lower one.
fn clips(operation: &Descriptor) -> (f64, f64, f64) {
    let lower = f64::from(operation.f32(A::POINTWISE_RELU_LOWER_CLIP).unwrap_or(0.0));
    let upper = operation.f32(A::POINTWISE_RELU_UPPER_CLIP).map_or(f64::INFINITY, f64::from);
    (lower, upper, f64::from(operation.f32(A::POINTWISE_RELU_LOWER_CLIP_SLOPE).unwrap_or(0.0)))
}
