//! Weights that turn a spectrum into bins of the mel scale: MelWeightMatrix.
use crate::lower::Lower;
use crate::ops::cast::dtype_attribute;
use crate::ops::{Entry, NodeInfo, Op};
use crate::{DType, Declined, LowerError, Scalar, Tensor, Val};

/// `MelWeightMatrix`: inputs are the number of bins, the length of the transform, the sample rate, and the lower and
/// upper edge in hertz.
#[derive(Debug)]
struct MelWeightMatrix {
    dtype: DType,
}

impl Op for MelWeightMatrix {
    fn name(&self) -> &'static str {
        "MelWeightMatrix"
    }

    fn host_inputs(&self) -> &[usize] {
        &[0, 1, 2, 3, 4]
    }

    fn lower(&self, cx: &mut Lower<'_>, inputs: &[Option<Val>]) -> Result<Vec<Val>, LowerError> {
        let mut numbers = [0.0; 5];
        for (at, number) in numbers.iter_mut().enumerate() {
            let known = cx.known(inputs, at)?;
            let mut values = known.scalars().map(Scalar::as_f64);
            *number = match (values.next(), values.next()) {
                (Some(value), None) => value,
                _ => return Err(cx.invalid(format!("input {at} has shape {:?}, expected one number", known.shape()))),
            };
        }
        let [bins, length, rate, low, high] = numbers;
        if !(bins >= 1.0 && length >= 0.0 && rate > 0.0 && bins + length < 1e9) {
            return Err(cx.invalid(format!("{bins} bins of a transform of {length} samples at {rate} hertz")));
        }
        let (bins, spectrum) = (bins as usize, length as usize / 2 + 1);
        cx.bytes(self.dtype, &[spectrum, bins])?;
        let mel = |hertz: f64| 2595.0 * (1.0 + hertz / 700.0).log10();
        let step = (mel(high) - mel(low)) / (bins + 2) as f64;
        // As ONNX defines it, the last edge is one step below the upper one.
        // The bins of the spectrum at the edges and centres.
        let edge = |at: usize| {
            let hertz = 700.0 * (10f64.powf((mel(low) + at as f64 * step) / 2595.0) - 1.0);
            ((length + 1.0) * hertz / rate).floor()
        };
        let edges: Vec<f64> = (0..bins + 2).map(edge).collect();
        let weight = |row: usize, bin: usize| {
            let (row, [left, centre, right]) = (row as f64, [0, 1, 2].map(|at| edges[bin + at]));
            let up = if centre > left { (row - left) / (centre - left) } else { 0.0 };
            match row {
                row if centre == left && row == centre => 1.0,
                row if row >= left && row <= centre && centre > left => up,
                row if row >= centre && row < right => (right - row) / (right - centre),
                _ => 0.0,
            }
        };
        let values = (0..spectrum).flat_map(|row| (0..bins).map(move |bin| (row, bin)));
        let values = values.map(|(row, bin)| Scalar::Float(weight(row, bin)));
        let made = Tensor::from_scalars(self.dtype, &[spectrum, bins], values);
        Ok(vec![Val::known(made.ok_or_else(|| cx.invalid("the matrix is too large"))?)])
    }
}

fn parse(node: &NodeInfo<'_>) -> Result<Box<dyn Op>, Declined> {
    let dtype = dtype_attribute(node, "output_datatype")?.unwrap_or(DType::F32);
    if !dtype.is_float() {
        return Err(Declined::new(format!("output_datatype {dtype} is not supported")));
    }
    Ok(Box::new(MelWeightMatrix { dtype }))
}

pub(super) const OPS: &[Entry] = &[Entry { domain: "", op_type: "MelWeightMatrix", parse }];
