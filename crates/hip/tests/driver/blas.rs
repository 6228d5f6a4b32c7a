//! Matrix products against a plain f64 reference.

use hip::{
    BlasLt, DataType, Device, DeviceBuffer, DriverKind, Epilogue, HipError, MatmulAddresses, MatmulDesc, Operand,
};

use crate::{Outcome, Row};

pub const ROWS: &[Row] = &[
    Row::new("products_of_every_type_and_transpose_agree", products_of_every_type_and_transpose_agree)
        .skip_where(has_no_blas),
    Row::new("products_in_batches_agree", products_in_batches_agree).skip_where(has_no_blas),
    Row::new("epilogues_agree", epilogues_agree).skip_where(has_no_blas),
    Row::new("factors_and_row_strides_agree", factors_and_row_strides_agree).skip_where(has_no_blas),
    Row::new("senseless_products_are_refused", senseless_products_are_refused).skip_where(has_no_blas),
];

fn has_no_blas(device: &Device) -> Option<&'static str> {
    match device.kind() {
        DriverKind::Host => Some("the host driver has no BLASLt"),
        _ => BlasLt::new(device).err().map(|error| {
            eprintln!("{error}");
            match error {
                HipError::NoKernels { .. } => "BLASLt has no kernels for the device",
                _ => "there is no BLASLt",
            }
        }),
    }
}

const WORKSPACE: usize = 32 << 20;

/// A product with everything around it, so that a case is a few lines.
struct Case {
    desc: MatmulDesc,
    /// Largest accepted difference from the reference, relative to the sum of magnitudes.
    tolerance: f64,
}

fn case(m: usize, n: usize, k: usize, dtype: DataType) -> Case {
    let tolerance = match dtype {
        DataType::F64 => 1e-13,
        DataType::F32 => 2e-6,
        DataType::F16 => 1e-3,
        _ => 4e-3,
    };
    Case { desc: MatmulDesc { workspace_bytes: WORKSPACE, ..MatmulDesc::new(m, n, k, dtype) }, tolerance }
}

/// Values in sixteenths between -2 and 2: exact in every type used here.
fn values(count: usize, seed: u64) -> Vec<f64> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    (0..count)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state % 65) as f64 / 16.0 - 2.0
        })
        .collect()
}

/// Half precision of a value that needs no rounding and is not subnormal.
fn half_bits(value: f64) -> u16 {
    let bits = (value as f32).to_bits();
    if value == 0.0 {
        return 0;
    }
    let exponent = ((bits >> 23) & 0xff) as i32 - 127 + 15;
    ((bits >> 16 & 0x8000) as i32 | exponent << 10 | (bits >> 13 & 0x3ff) as i32) as u16
}

fn half_value(bits: u16) -> f64 {
    let (sign, exponent, mantissa) = (bits >> 15, i32::from(bits >> 10 & 31), f64::from(bits & 0x3ff));
    let magnitude = match exponent {
        0 => mantissa * 2f64.powi(-24),
        _ => (1.0 + mantissa / 1024.0) * 2f64.powi(exponent - 15),
    };
    if sign == 1 { -magnitude } else { magnitude }
}

fn encode(values: &[f64], dtype: DataType) -> Vec<u8> {
    let each = |value: &f64| match dtype {
        DataType::F64 => value.to_ne_bytes().to_vec(),
        DataType::F32 => (*value as f32).to_ne_bytes().to_vec(),
        DataType::F16 => half_bits(*value).to_ne_bytes().to_vec(),
        _ => (((*value as f32).to_bits() >> 16) as u16).to_ne_bytes().to_vec(),
    };
    values.iter().flat_map(each).collect()
}

fn decode(bytes: &[u8], dtype: DataType) -> Vec<f64> {
    let two = |bytes: &[u8]| u16::from_ne_bytes([bytes[0], bytes[1]]);
    match dtype {
        DataType::F64 => bytes
            .chunks_exact(8)
            .map(|b| f64::from_ne_bytes([b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7]]))
            .collect(),
        DataType::F32 => {
            bytes.chunks_exact(4).map(|b| f64::from(f32::from_ne_bytes([b[0], b[1], b[2], b[3]]))).collect()
        }
        DataType::F16 => bytes.chunks_exact(2).map(|b| half_value(two(b))).collect(),
        _ => bytes.chunks_exact(2).map(|b| f64::from(f32::from_bits(u32::from(two(b)) << 16))).collect(),
    }
}

fn upload(device: &Device, values: &[f64], dtype: DataType) -> Result<DeviceBuffer, HipError> {
    let bytes = encode(values, dtype);
    let mut buffer = device.alloc(bytes.len())?;
    buffer.copy_to_device(0, &bytes)?;
    Ok(buffer)
}

/// The number of elements an operand needs, and the index of element (row, column) of its logical matrix.
fn place(operand: &Operand, rows: usize, cols: usize) -> (usize, impl Fn(usize, usize, usize) -> usize) {
    let operand = *operand;
    let (stored_rows, stored_cols) = if operand.transposed { (cols, rows) } else { (rows, cols) };
    let row_stride = operand.row_stride.unwrap_or(stored_cols);
    let at = move |batch: usize, row: usize, col: usize| {
        let (row, col) = if operand.transposed { (col, row) } else { (row, col) };
        batch * operand.batch_stride + row * row_stride + col
    };
    (stored_rows * row_stride, at)
}

fn epilogue(kind: Epilogue, value: f64) -> f64 {
    let gelu = |x: f64| 0.5 * x * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x * x * x)).tanh());
    match kind {
        Epilogue::Relu | Epilogue::BiasRelu => value.max(0.0),
        Epilogue::Gelu | Epilogue::BiasGelu => gelu(value),
        Epilogue::None | Epilogue::Bias => value,
    }
}

impl Case {
    fn check(&self, device: &Device, blas: &BlasLt) -> Outcome {
        let MatmulDesc { m, n, k, batch, .. } = self.desc;
        let sized = |operand: &Operand, elems: usize| elems + operand.batch_stride * (batch - 1);
        let (a_elems, a_at) = place(&self.desc.a, m, k);
        let (b_elems, b_at) = place(&self.desc.b, k, n);
        let (d_elems, d_at) = place(&self.desc.d, m, n);
        let a = values(sized(&self.desc.a, a_elems), 1);
        let b = values(sized(&self.desc.b, b_elems), 2);
        let c = values(sized(&self.desc.d, d_elems), 3);
        let bias = values(n, 4);
        let matmul = blas.prepare(&self.desc, 4)?;
        if matmul.algorithms().is_empty() {
            // hipBLASLt has no kernels for some targets; cublasLt has one for everything here.
            assert_ne!(device.kind(), DriverKind::Nvidia, "{:?}", self.desc);
            eprintln!("no kernel for {:?}", self.desc);
            return Ok(());
        }
        let (a_on, b_on) = (upload(device, &a, self.desc.a.dtype)?, upload(device, &b, self.desc.b.dtype)?);
        let (c_on, d_on) = (upload(device, &c, self.desc.d.dtype)?, upload(device, &c, self.desc.d.dtype)?);
        let bias_on = upload(device, &bias, self.desc.bias_type)?;
        let workspace = device.alloc(WORKSPACE)?;
        let stream = device.stream()?;
        let addresses = MatmulAddresses {
            a: a_on.address().as_ptr(),
            b: b_on.address().as_ptr(),
            c: c_on.address().as_ptr(),
            d: d_on.address().as_ptr(),
            bias: bias_on.address().as_ptr(),
            workspace: workspace.address().as_ptr(),
            workspace_bytes: workspace.bytes(),
        };
        for algorithm in matmul.algorithms() {
            // SAFETY: the buffers have the sizes of the description and live until the stream is synchronised.
            unsafe { matmul.run_with(algorithm, addresses, stream.raw())? };
            stream.synchronize()?;
            let mut bytes = vec![0; d_on.bytes()];
            d_on.copy_to_host(0, &mut bytes)?;
            let got = decode(&bytes, self.desc.d.dtype);
            for (index, row, col) in (0..batch).flat_map(|i| (0..m).flat_map(move |r| (0..n).map(move |c| (i, r, c)))) {
                let terms = (0..k).map(|inner| a[a_at(index, row, inner)] * b[b_at(index, inner, col)]);
                let (sum, magnitude) = terms.fold((0.0, 0.0), |(s, t), term: f64| (s + term, t + term.abs()));
                let before = self.desc.alpha * sum
                    + self.desc.beta * c[d_at(index, row, col)]
                    + if self.desc.epilogue.has_bias() { bias[col] } else { 0.0 };
                let wanted = epilogue(self.desc.epilogue, before);
                let found = got[d_at(index, row, col)];
                let scale = magnitude * self.desc.alpha.abs() + 4.0;
                assert!(
                    (found - wanted).abs() <= self.tolerance * scale,
                    "{:?} at {index}, {row}, {col}: {found} instead of {wanted}",
                    self.desc
                );
            }
        }
        Ok(())
    }
}

fn products_of_every_type_and_transpose_agree(device: &Device) -> Outcome {
    let blas = device.blas_lt()?;
    for dtype in [DataType::F32, DataType::F16, DataType::Bf16, DataType::F64] {
        for (m, n, k) in [(16, 32, 64), (72, 40, 96), (1, 128, 256)] {
            for (transposed_a, transposed_b) in [(false, false), (false, true), (true, false), (true, true)] {
                let mut case = case(m, n, k, dtype);
                case.desc.a.transposed = transposed_a;
                case.desc.b.transposed = transposed_b;
                // cublasLt requires rows of a multiple of 16 bytes for the half types; a transposed row of 1 element is
                // not.
                if m == 1 && transposed_a {
                    continue;
                }
                case.check(device, &blas)?;
            }
        }
    }
    let mut mixed = case(48, 64, 80, DataType::F16);
    mixed.desc.d.dtype = DataType::F32;
    mixed.check(device, &blas)
}

fn products_in_batches_agree(device: &Device) -> Outcome {
    let blas = device.blas_lt()?;
    let (m, n, k) = (24, 48, 32);
    let mut batched = case(m, n, k, DataType::F16);
    batched.desc.batch = 5;
    batched.desc.a.batch_stride = m * k;
    batched.desc.b.batch_stride = k * n + 64;
    batched.desc.d.batch_stride = m * n;
    batched.check(device, &blas)?;
    // One right-hand matrix for the whole batch, as ONNX MatMul broadcasts.
    batched.desc.b.batch_stride = 0;
    batched.check(device, &blas)
}

fn epilogues_agree(device: &Device) -> Outcome {
    let blas = device.blas_lt()?;
    for dtype in [DataType::F16, DataType::Bf16, DataType::F32] {
        for kind in [Epilogue::Relu, Epilogue::Gelu, Epilogue::Bias, Epilogue::BiasRelu, Epilogue::BiasGelu] {
            let mut with = case(32, 64, 48, dtype);
            with.desc.epilogue = kind;
            // The device's tanh is an approximation; the sums here reach a few dozen.
            if matches!(kind, Epilogue::Gelu | Epilogue::BiasGelu) {
                with.tolerance = with.tolerance.max(1e-4);
            }
            with.check(device, &blas)?;
        }
    }
    Ok(())
}

fn factors_and_row_strides_agree(device: &Device) -> Outcome {
    let blas = device.blas_lt()?;
    let mut scaled = case(40, 56, 64, DataType::F32);
    scaled.desc.alpha = -0.5;
    scaled.desc.beta = 2.0;
    scaled.check(device, &blas)?;
    let mut apart = case(40, 56, 64, DataType::F16);
    apart.desc.a.row_stride = Some(80);
    apart.desc.b.row_stride = Some(64);
    apart.desc.d.row_stride = Some(72);
    apart.check(device, &blas)
}

fn senseless_products_are_refused(device: &Device) -> Outcome {
    let blas = device.blas_lt()?;
    let refused = blas.prepare(&MatmulDesc::new(0, 4, 4, DataType::F32), 1);
    assert!(matches!(refused, Err(HipError::Invalid { .. })), "{refused:?}");
    Ok(())
}
