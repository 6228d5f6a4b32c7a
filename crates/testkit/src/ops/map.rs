//! The operations of expressions, by the types they take.

use graph::expr::{Binary, Unary};

/// Operations on one float, without those that round it.
pub const FLOAT_UNARY: [Unary; 25] = [
    Unary::Neg,
    Unary::Abs,
    Unary::Sign,
    Unary::Not,
    Unary::Recip,
    Unary::Sqrt,
    Unary::Rsqrt,
    Unary::Exp,
    Unary::Log,
    Unary::Log1p,
    Unary::Expm1,
    Unary::Erf,
    Unary::Sin,
    Unary::Cos,
    Unary::Asin,
    Unary::Acos,
    Unary::Atan,
    Unary::Sinh,
    Unary::Cosh,
    Unary::Tanh,
    Unary::Asinh,
    Unary::Acosh,
    Unary::Atanh,
    Unary::Sigmoid,
    Unary::Tan,
];

/// Operations on one integer; truths have only the last.
pub const INT_UNARY: [Unary; 4] = [Unary::Neg, Unary::Abs, Unary::Sign, Unary::Not];

/// Operations on two floats.
pub const FLOAT_BINARY: [Binary; 10] = [
    Binary::Add,
    Binary::Sub,
    Binary::Mul,
    Binary::Div,
    Binary::Max,
    Binary::Min,
    Binary::Pow,
    Binary::Mod,
    Binary::Fmod,
    Binary::Atan2,
];

/// Operations on two integers.
pub const INT_BINARY: [Binary; 14] = [
    Binary::Add,
    Binary::Sub,
    Binary::Mul,
    Binary::Div,
    Binary::Max,
    Binary::Min,
    Binary::Pow,
    Binary::Mod,
    Binary::Fmod,
    Binary::And,
    Binary::Or,
    Binary::Xor,
    Binary::Shl,
    Binary::Shr,
];

/// Comparisons of two numbers.
pub const COMPARISONS: [Binary; 6] = [Binary::Eq, Binary::Ne, Binary::Lt, Binary::Le, Binary::Gt, Binary::Ge];
