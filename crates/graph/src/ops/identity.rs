//! Operators that return a value unchanged, or one from their attributes.
use crate::lower::Lower;
use crate::ops::{Attribute, Entry, Meaning, NodeInfo, Op};
use crate::{DType, Declined, LowerError, Scalar, Tensor, Val, shape};

#[derive(Debug)]
struct Identity;

impl Op for Identity {
    fn name(&self) -> &'static str {
        "Identity"
    }

    fn meaning(&self) -> Meaning<'_> {
        Meaning::Same
    }

    fn lower(&self, cx: &mut Lower<'_>, inputs: &[Option<Val>]) -> Result<Vec<Val>, LowerError> {
        Ok(vec![cx.required(inputs, 0)?.clone()])
    }
}

/// Dropout at inference: keeps every element, and the mask says so.
#[derive(Debug)]
struct Dropout {
    /// Bool since opset 10; before that the input's type.
    mask: DType,
    /// The mask's value: true since opset 12. Before that ONNX did not specify it, and ONNX Runtime fills in zeros.
    kept: bool,
}

impl Op for Dropout {
    fn name(&self) -> &'static str {
        "Dropout"
    }

    fn meaning(&self) -> Meaning<'_> {
        Meaning::Same
    }

    fn lower(&self, cx: &mut Lower<'_>, inputs: &[Option<Val>]) -> Result<Vec<Val>, LowerError> {
        let x = cx.required(inputs, 0)?;
        let mask = cx.full(self.mask, x.shape(), Scalar::from_i64(self.kept.into(), self.mask))?;
        Ok(vec![x.clone(), mask])
    }
}

fn parse_dropout(node: &NodeInfo<'_>) -> Result<Box<dyn Op>, Declined> {
    let dtype = node.input(0)?.dtype;
    let constant = |index: usize| {
        node.optional(index).map(|input| input.constant.filter(|t| t.elems() == 1).map(|tensor| tensor.get(0)))
    };
    let training = match constant(2) {
        None => false,
        Some(Some(value)) => value.as_bool(),
        Some(None) => return Err(Declined::new("training_mode is not a constant")),
    };
    let nothing_dropped = matches!(constant(1), Some(Some(ratio)) if ratio.as_f64() == 0.0);
    if training && !nothing_dropped {
        return Err(Declined::new("training_mode is not supported"));
    }
    let mask = if node.since_version < 10 { dtype } else { DType::Bool };
    Ok(Box::new(Dropout { mask, kept: node.since_version >= 12 }))
}

#[derive(Debug)]
struct Constant(Tensor);

impl Op for Constant {
    fn name(&self) -> &'static str {
        "Constant"
    }

    fn lower(&self, _: &mut Lower<'_>, _: &[Option<Val>]) -> Result<Vec<Val>, LowerError> {
        Ok(vec![Val::known(self.0.clone())])
    }
}

fn parse_constant(node: &NodeInfo<'_>) -> Result<Box<dyn Op>, Declined> {
    let mut values = node.attributes.0.iter().filter(|(name, _)| name.contains("value"));
    let (Some((name, value)), None) = (values.next(), values.next()) else {
        return Err(Declined::new("expected exactly one of the value attributes"));
    };
    let floats = |values: &[f32]| values.iter().map(|&value| Scalar::Float(value.into())).collect::<Vec<_>>();
    let tensor = match (name.as_str(), value) {
        ("value", Attribute::Tensor(tensor)) => Some(tensor.clone()),
        ("value_float", Attribute::Float(value)) => Some(Tensor::scalar(DType::F32, Scalar::Float((*value).into()))),
        ("value_floats", Attribute::Floats(list)) => Tensor::from_scalars(DType::F32, &[list.len()], floats(list)),
        ("value_int", Attribute::Int(value)) => Some(Tensor::scalar(DType::I64, Scalar::Int(*value))),
        ("value_ints", Attribute::Ints(list)) => Some(Tensor::from_i64s(list)),
        _ => None,
    };
    let tensor = tensor.ok_or_else(|| Declined::new(format!("attribute {name} is not a tensor of numbers")))?;
    Ok(Box::new(Constant(tensor)))
}

/// A factor for all pixels and an offset per channel.
#[derive(Debug)]
struct ImageScaler {
    scale: f32,
    bias: Vec<f32>,
}

impl Op for ImageScaler {
    fn name(&self) -> &'static str {
        "ImageScaler"
    }

    fn lower(&self, cx: &mut Lower<'_>, inputs: &[Option<Val>]) -> Result<Vec<Val>, LowerError> {
        let x = cx.required(inputs, 0)?;
        if x.rank() != 4 || x.shape()[1] != self.bias.len() {
            return Err(cx.invalid(format!(
                "{} biases do not match an input of shape {:?}",
                self.bias.len(),
                x.shape()
            )));
        }
        let scalars = self.bias.iter().map(|&bias| Scalar::Float(bias.into()));
        let bias = Tensor::from_scalars(x.dtype().compute(), &[self.bias.len(), 1, 1], scalars)
            .ok_or_else(|| cx.invalid("the biases do not match the channels"))?;
        let result = cx.map_to(&[x, &Val::known(bias)], x.dtype(), x.shape(), |expr, arguments| {
            let scale = expr.constant(Scalar::Float(self.scale.into()), expr.dtype(arguments[0]));
            let scaled = expr.binary(crate::expr::Binary::Mul, arguments[0], scale);
            expr.binary(crate::expr::Binary::Add, scaled, arguments[1])
        })?;
        Ok(vec![result])
    }
}

fn parse_image_scaler(node: &NodeInfo<'_>) -> Result<Box<dyn Op>, Declined> {
    node.accept(0, DType::is_float)?;
    let bias = node.attributes.floats("bias")?.ok_or_else(|| Declined::new("attribute bias is missing"))?.to_vec();
    Ok(Box::new(ImageScaler { scale: node.attributes.float("scale", 1.0)?, bias }))
}

/// Crops images.
#[derive(Debug)]
struct Crop {
    /// Left, top, right, bottom.
    border: [usize; 4],
    /// Height and width of the crop, if given.
    scale: Option<[usize; 2]>,
}

impl Op for Crop {
    fn name(&self) -> &'static str {
        "Crop"
    }

    fn lower(&self, cx: &mut Lower<'_>, inputs: &[Option<Val>]) -> Result<Vec<Val>, LowerError> {
        let x = cx.required(inputs, 0)?;
        if x.rank() != 4 {
            return Err(cx.invalid(format!("an input of shape {:?} is not a batch of images", x.shape())));
        }
        let [left, top, right, bottom] = self.border;
        let extent = |start: usize, given: Option<usize>, end: usize, whole: usize| match given {
            Some(extent) => (start.checked_add(extent)? <= whole).then_some(extent),
            None => whole.checked_sub(start)?.checked_sub(end),
        };
        let height = extent(top, self.scale.map(|scale| scale[0]), bottom, x.shape()[2]);
        let width = extent(left, self.scale.map(|scale| scale[1]), right, x.shape()[3]);
        let (Some(height), Some(width)) = (height, width) else {
            return Err(cx.invalid(format!(
                "border {:?} and scale {:?} do not fit into shape {:?}",
                self.border,
                self.scale,
                x.shape()
            )));
        };
        Ok(vec![x.sliced(2, top, 1, height).sliced(3, left, 1, width)])
    }
}

fn parse_crop(node: &NodeInfo<'_>) -> Result<Box<dyn Op>, Declined> {
    node.input(0)?;
    let extents = |name: &str| -> Result<Option<shape::Shape>, Declined> {
        let Some(list) = node.attributes.ints(name)? else { return Ok(None) };
        let list = list.iter().map(|&extent| usize::try_from(extent)).collect::<Result<_, _>>();
        list.map(Some).map_err(|_| Declined::new(format!("attribute {name} has negative numbers")))
    };
    let border = extents("border")?.and_then(|list| list.as_slice().try_into().ok());
    let border = border.ok_or_else(|| Declined::new("attribute border must have four numbers"))?;
    let scale = extents("scale")?.map(|list| list.as_slice().try_into());
    let scale = scale.transpose().map_err(|_| Declined::new("attribute scale must have two numbers"))?;
    Ok(Box::new(Crop { border, scale }))
}

fn parse_identity(node: &NodeInfo<'_>) -> Result<Box<dyn Op>, Declined> {
    node.input(0)?;
    Ok(Box::new(Identity))
}

pub(super) const OPS: &[Entry] = &[
    Entry { domain: "", op_type: "Identity", parse: parse_identity },
    Entry { domain: "", op_type: "Dropout", parse: parse_dropout },
    Entry { domain: "", op_type: "Constant", parse: parse_constant },
    Entry { domain: "", op_type: "ImageScaler", parse: parse_image_scaler },
    Entry { domain: "", op_type: "Crop", parse: parse_crop },
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::case::{Case, tensor, vector};

    #[test]
    fn identity_takes_no_step() {
        let case = Case::new("Identity", 16).input(vector(DType::Bool, &[1.0])).output(DType::Bool);
        assert!(case.lower(false).unwrap().steps.is_empty());
    }

    fn dropout(version: i32) -> Case {
        Case::new("Dropout", version).input(vector(DType::F32, &[1.0, 2.0])).output(DType::F32)
    }

    #[test]
    fn dropout_keeps_every_element_and_returns_a_full_mask() {
        let outputs = dropout(13).output(DType::Bool).run().unwrap();
        assert_eq!(outputs[0], vector(DType::F32, &[1.0, 2.0]));
        assert_eq!(outputs[1], vector(DType::Bool, &[1.0, 1.0]));
        let old = dropout(7).output(DType::F32).run().unwrap();
        assert_eq!(old[0], vector(DType::F32, &[1.0, 2.0]));
        assert_eq!(old[1], vector(DType::F32, &[0.0, 0.0]));
    }

    #[test]
    fn dropout_in_training_mode_is_declined_unless_its_ratio_is_zero() {
        let scalar = |dtype, value| tensor(dtype, &[], &[value]);
        let training = |ratio| dropout(13).input(scalar(DType::F32, ratio)).input(scalar(DType::Bool, 1.0));
        assert_eq!(training(0.5).parse().unwrap_err(), "training_mode is not supported");
        assert_eq!(training(0.0).run().unwrap().len(), 1);
        assert_eq!(training(0.0).without_constants().parse().unwrap_err(), "training_mode is not a constant");
        let by_default = dropout(13).left_out().input(scalar(DType::Bool, 1.0));
        assert_eq!(by_default.parse().unwrap_err(), "training_mode is not supported");
        let inference = dropout(13).input(scalar(DType::F32, 0.5)).input(scalar(DType::Bool, 0.0));
        assert!(inference.parse().is_ok());
    }

    #[test]
    fn constants_come_from_each_kind_of_attribute() {
        let constant = |name, value, dtype| Case::new("Constant", 13).with(name, value).output(dtype).run();
        for (name, value, wanted) in [
            (
                "value",
                Attribute::Tensor(tensor(DType::U8, &[1, 2], &[3.0, 4.0])),
                tensor(DType::U8, &[1, 2], &[3.0, 4.0]),
            ),
            ("value_float", Attribute::Float(0.5), tensor(DType::F32, &[], &[0.5])),
            ("value_floats", Attribute::Floats(vec![0.5, 1.5]), vector(DType::F32, &[0.5, 1.5])),
            ("value_int", Attribute::Int(-7), tensor(DType::I64, &[], &[-7.0])),
            ("value_ints", Attribute::Ints(vec![1, 2, 3]), vector(DType::I64, &[1.0, 2.0, 3.0])),
        ] {
            assert_eq!(constant(name, value, wanted.dtype()).unwrap(), [wanted]);
        }
        let text = constant("value_string", Attribute::Text("a".into()), DType::U8);
        assert_eq!(text.unwrap_err(), "attribute value_string is not a tensor of numbers");
        assert!(Case::new("Constant", 13).parse().is_err());
    }

    #[test]
    fn images_are_scaled_by_channel() {
        let case = Case::new("ImageScaler", 1)
            .with("scale", Attribute::Float(2.0))
            .with("bias", Attribute::Floats(vec![1.0, -1.0]))
            .input(tensor(DType::F32, &[1, 2, 1, 2], &[1.0, 2.0, 3.0, 4.0]));
        assert_eq!(case.output(DType::F32).floats(), [3.0, 5.0, 5.0, 7.0]);
    }

    #[test]
    fn a_crop_is_a_view_within_the_image() {
        let image = tensor(DType::F32, &[1, 1, 3, 4], &std::array::from_fn::<_, 12, _>(|at| at as f64));
        let crop = |border: &[i64]| {
            Case::new("Crop", 1)
                .with("border", Attribute::Ints(border.to_vec()))
                .input(image.clone())
                .output(DType::F32)
        };
        assert_eq!(crop(&[1, 1, 2, 0]).floats(), [5.0, 9.0]);
        assert!(crop(&[1, 1, 2, 0]).lower(false).unwrap().steps.is_empty());
        assert_eq!(crop(&[1, 0, 0, 0]).with("scale", Attribute::Ints(vec![2, 2])).floats(), [1.0, 2.0, 5.0, 6.0]);
        assert!(crop(&[3, 0, 2, 0]).run().unwrap_err().contains("do not fit into shape [1, 1, 3, 4]"));
        assert!(crop(&[0, 2, 0, 0]).with("scale", Attribute::Ints(vec![2, 2])).run().is_err());
        assert_eq!(crop(&[1, 2]).parse().unwrap_err(), "attribute border must have four numbers");
    }
}
