//! Generates kernel code for elementwise expressions.
//!
//! [`function`] writes a device function from values in their compute types to the result, with the semantics of
//! [`Expr::eval`]: what is rounded where, how integers wrap, what NaN does. There are two exceptions: compilers may
//! fuse a product and a following sum, and a 64-bit integer is converted to single precision with one rounding instead
//! of two.
use std::fmt::Write;

use graph::expr::{Binary, Expr, Node, Ref, Unary};
use graph::{DType, Scalar};

/// Elementary functions that the prelude lacks, as a header for the kernels that need them.
pub(crate) const MATH: &str = include_str!("../hip/math.h");
/// Wrapping integers, comparisons and conversions, as a header.
pub(crate) const OPERATIONS: &str = include_str!("../hip/expr.h");

/// The headers that kernels with the functions of these expressions need.
pub(crate) fn headers<'a>(exprs: impl IntoIterator<Item = &'a Expr>) -> Vec<&'static str> {
    let needs_math = exprs.into_iter().flat_map(Expr::nodes).any(|(node, _)| match node {
        Node::Unary(op, _) => function_name(*op).is_some(),
        Node::Binary(Binary::Pow | Binary::Mod | Binary::Fmod | Binary::Atan2, ..) => true,
        _ => false,
    });
    if needs_math { vec![MATH, OPERATIONS] } else { vec![OPERATIONS] }
}

/// The type of a value of this type in an expression's function.
pub(crate) const fn value_type(dtype: DType) -> &'static str {
    match dtype {
        DType::Bool => "bool",
        other => other.compute().name(),
    }
}

/// The inputs that an expression reads, each with the type of its value, in order.
pub(crate) fn inputs(expr: &Expr) -> Vec<(u16, DType)> {
    let mut read: Vec<_> = expr
        .nodes()
        .iter()
        .filter_map(|&(node, dtype)| if let Node::Input(number) = node { Some((number, dtype)) } else { None })
        .collect();
    read.sort_unstable();
    read.dedup();
    read
}

/// The axes whose indices an expression uses, in order.
pub(crate) fn axes(expr: &Expr) -> Vec<u16> {
    let mut used: Vec<_> = expr
        .nodes()
        .iter()
        .filter_map(|&(node, _)| if let Node::Index(axis) = node { Some(axis) } else { None })
        .collect();
    used.sort_unstable();
    used.dedup();
    used
}

/// The device function `name`. Its parameters are the values of the [`inputs`], then as i64 the indices along the
/// [`axes`]; it returns the result in the [`value_type`] of `result`, as a value that is stored in that type without
/// further rounding. A kernel with such functions needs the [`headers`].
pub(crate) fn function(name: &str, expr: &Expr, result: DType) -> String {
    let inputs = inputs(expr).into_iter().map(|(number, dtype)| format!("{} in{number}", value_type(dtype)));
    let indices = axes(expr).into_iter().map(|axis| format!("i64 index{axis}"));
    let parameters: Vec<String> = inputs.chain(indices).collect();
    let mut text = format!("DEV {} {name}({}) {{\n", value_type(result), parameters.join(", "));
    for (at, &(node, dtype)) in expr.nodes().iter().enumerate() {
        let _ = writeln!(text, "  {} v{at} = {};", value_type(dtype), operation(expr, node, dtype));
    }
    let last = expr.nodes().len().saturating_sub(1);
    let value = if expr.result() == result {
        format!("v{last}")
    } else {
        conversion(&format!("v{last}"), expr.result(), result)
    };
    let _ = writeln!(text, "  return {value};\n}}");
    text
}

fn operation(expr: &Expr, node: Node, dtype: DType) -> String {
    match node {
        Node::Input(number) => format!("in{number}"),
        Node::Const(value) => constant(value, dtype),
        Node::Index(axis) => format!("index{axis}"),
        Node::Unary(op, a) => unary(op, a, expr.dtype(a)),
        Node::Binary(op, a, b) => binary(op, a, b, expr),
        Node::Select(c, a, b) => format!("v{c} ? v{a} : v{b}"),
        Node::Cast(a) if expr.dtype(a) == dtype => format!("v{a}"),
        Node::Cast(a) => conversion(&format!("v{a}"), expr.dtype(a), dtype),
    }
}

/// A constant of a type that is computed in.
fn constant(value: Scalar, dtype: DType) -> String {
    let name = value_type(dtype);
    match value {
        Scalar::Float(v) if v.is_nan() => format!("({name})bits_f32(0x7fc00000u)"),
        Scalar::Float(v) if v.is_infinite() => format!("{}INFINITY_OF({name})", if v < 0.0 { "-" } else { "" }),
        // The shortest text that parses to the same number.
        Scalar::Float(v) if dtype == DType::F64 => format!("{v:e}"),
        Scalar::Float(v) => format!("{:e}f", v as f32),
        // There is no literal for the lowest number.
        Scalar::Int(v) if v < 0 => format!("({name})({}ll - 1)", v + 1),
        Scalar::Int(v) => format!("({name}){v}ll"),
        Scalar::Uint(v) => format!("({name}){v}ull"),
    }
}

/// Converts a value from one type to another, like [`Scalar::cast`].
fn conversion(value: &str, from: DType, to: DType) -> String {
    match to {
        DType::F16 => format!("round_f16({value})"),
        DType::Bf16 => format!("round_bf16({value})"),
        _ if value_type(from) == value_type(to) => value.to_owned(),
        _ => format!("cast<{}>({value})", value_type(to)),
    }
}

/// The result of an operation on operands of this type, rounded to it.
fn rounded(value: String, dtype: DType) -> String {
    if dtype == dtype.compute() { value } else { conversion(&value, DType::F32, dtype) }
}

/// The function of `hip/math.h` and the prelude for an operation that needs one.
const fn function_name(op: Unary) -> Option<&'static str> {
    Some(match op {
        Unary::Recip => "recip_of",
        Unary::Sqrt => "sqrt_of",
        Unary::Rsqrt => "rsqrt_of",
        Unary::Exp => "exp_of",
        Unary::Log => "log_of",
        Unary::Log1p => "log1p_of",
        Unary::Expm1 => "expm1_of",
        Unary::Erf => "erf_of",
        Unary::Sin => "sin_of",
        Unary::Cos => "cos_of",
        Unary::Tan => "tan_of",
        Unary::Asin => "asin_of",
        Unary::Acos => "acos_of",
        Unary::Atan => "atan_of",
        Unary::Sinh => "sinh_of",
        Unary::Cosh => "cosh_of",
        Unary::Tanh => "tanh_of",
        Unary::Asinh => "asinh_of",
        Unary::Acosh => "acosh_of",
        Unary::Atanh => "atanh_of",
        Unary::Sigmoid => "sigmoid_of",
        _ => return None,
    })
}

fn unary(op: Unary, a: Ref, dtype: DType) -> String {
    let single = |name: &str| {
        let suffix = if dtype == DType::F64 { "" } else { "f" };
        format!("{name}{suffix}(v{a})")
    };
    if matches!(op, Unary::IsNan | Unary::IsInf) {
        let test = match op {
            _ if !dtype.is_float() => "false".to_owned(),
            Unary::IsNan => format!("v{a} != v{a}"),
            _ => format!("v{a} == v{a} && v{a} - v{a} != v{a} - v{a}"),
        };
        return test;
    }
    if dtype == DType::Bool {
        return if op == Unary::Not { format!("!v{a}") } else { format!("v{a}") };
    }
    if !dtype.is_float() {
        return match op {
            Unary::Neg => format!("neg_of(v{a})"),
            Unary::Abs if dtype.is_signed() => format!("abs_of(v{a})"),
            Unary::Sign => format!("sign_of(v{a})"),
            Unary::Not => format!("({})~v{a}", value_type(dtype)),
            // The other operations are not defined for integers and leave them unchanged.
            _ => format!("v{a}"),
        };
    }
    let value = match op {
        Unary::Neg => format!("-v{a}"),
        Unary::Abs => single("fabs"),
        Unary::Sign => format!("sign_of(v{a})"),
        Unary::Not => format!("({})(v{a} == 0)", value_type(dtype)),
        Unary::Ceil => single("ceil"),
        Unary::Floor => single("floor"),
        Unary::Round => single("rint"),
        Unary::Trunc => single("trunc"),
        _ => format!("{}(v{a})", function_name(op).unwrap_or_default()),
    };
    rounded(value, dtype)
}

fn binary(op: Binary, a: Ref, b: Ref, expr: &Expr) -> String {
    let dtype = expr.dtype(a);
    let infix = |operator: &str| format!("v{a} {operator} v{b}");
    let call = |name: &str| format!("{name}(v{a}, v{b})");
    match op {
        Binary::Eq => return infix("=="),
        Binary::Ne => return infix("!="),
        Binary::Lt => return infix("<"),
        Binary::Le => return infix("<="),
        Binary::Gt => return infix(">"),
        Binary::Ge => return infix(">="),
        _ => {}
    }
    if dtype.is_float() {
        let value = match op {
            Binary::Add => infix("+"),
            Binary::Sub => infix("-"),
            Binary::Mul => infix("*"),
            Binary::Div => infix("/"),
            Binary::Max => call("larger_of"),
            Binary::Min => call("smaller_of"),
            Binary::Pow => power(a, b, expr),
            Binary::Mod => call("floor_mod"),
            Binary::Fmod => call("fmod_of"),
            Binary::Atan2 => call("atan2_of"),
            // The other operations are not defined for floats and return the first operand.
            _ => format!("v{a}"),
        };
        return rounded(value, dtype);
    }
    let name = match op {
        Binary::Add => "add_of",
        Binary::Sub => "sub_of",
        Binary::Mul => "mul_of",
        Binary::Div => "div_of",
        Binary::Max => "larger_of",
        Binary::Min => "smaller_of",
        Binary::Pow => "power_of",
        Binary::Mod => "mod_of",
        Binary::Fmod => "rem_of",
        Binary::Shl => "shl_of",
        Binary::Shr => "shr_of",
        Binary::And | Binary::Or | Binary::Xor => {
            let operator = if op == Binary::And {
                "&"
            } else if op == Binary::Or {
                "|"
            } else {
                "^"
            };
            return format!("({})(v{a} {operator} v{b})", value_type(dtype));
        }
        _ => return format!("v{a}"),
    };
    if dtype == DType::Bool {
        // The lowest bit of the integer result.
        return format!("({name}((i32)v{a}, (i32)v{b}) & 1) != 0");
    }
    call(name)
}

/// A power of floats; squares and cubes are products.
fn power(a: Ref, b: Ref, expr: &Expr) -> String {
    match expr.nodes()[usize::from(b)].0 {
        Node::Const(Scalar::Float(2.0)) => format!("v{a} * v{a}"),
        Node::Const(Scalar::Float(3.0)) => format!("v{a} * v{a} * v{a}"),
        _ => format!("pow_of(v{a}, v{b})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_is_written_like_its_expression() {
        let mut expr = Expr::new();
        let (x, y) = (expr.input(0, DType::F16), expr.input(2, DType::I32));
        let scale = expr.constant(Scalar::Float(0.5), DType::F32);
        let product = expr.binary(Binary::Mul, x, scale);
        let whole = expr.cast(product, DType::I32);
        let sum = expr.binary(Binary::Add, whole, y);
        expr.cast(sum, DType::F16);
        assert_eq!(
            function("map_of", &expr, DType::F16),
            "DEV f32 map_of(f32 in0, i32 in2) {\n  f32 v0 = in0;\n  i32 v1 = in2;\n  f32 v2 = 5e-1f;\n  f32 v3 = v0 * v2;\n  \
             i32 v4 = cast<i32>(v3);\n  i32 v5 = add_of(v4, v1);\n  f32 v6 = round_f16(v5);\n  return v6;\n}\n"
        );
        assert_eq!(headers([&expr]), [OPERATIONS]);
    }

    #[test]
    fn constants_are_exact() {
        assert_eq!(constant(Scalar::Int(i64::MIN), DType::I64), "(i64)(-9223372036854775807ll - 1)");
        assert_eq!(constant(Scalar::Uint(u64::MAX), DType::U64), "(u64)18446744073709551615ull");
        assert_eq!(constant(Scalar::Float(f64::from(0.1f32)), DType::F32), "1e-1f");
        assert_eq!(constant(Scalar::Float(-0.0), DType::F64), "-0e0");
        assert_eq!(constant(Scalar::Float(f64::NEG_INFINITY), DType::F32), "-INFINITY_OF(f32)");
        assert_eq!(constant(Scalar::Int(1), DType::Bool), "(bool)1ll");
    }
}
