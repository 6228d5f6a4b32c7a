//! Elementwise operators: arithmetic, comparison, logic, bits, and functions of one operand.
use crate::expr::{Binary, Unary};
use crate::lower::Lower;
use crate::ops::{Entry, Meaning, NodeInfo, Op, RowWise};
use crate::{DType, Declined, LowerError, Val};

/// An operator that is one unary operation.
#[derive(Debug)]
struct UnaryOp {
    name: &'static str,
    op: Unary,
}

impl Op for UnaryOp {
    fn name(&self) -> &'static str {
        self.name
    }

    fn meaning(&self) -> Meaning<'_> {
        Meaning::Unary(self.op)
    }

    fn row_wise(&self) -> RowWise {
        RowWise::Elements
    }

    fn lower(&self, cx: &mut Lower<'_>, inputs: &[Option<Val>]) -> Result<Vec<Val>, LowerError> {
        let value = cx.required(inputs, 0)?;
        Ok(vec![cx.unary(self.op, value)?])
    }
}

/// An operator that is one binary operation on operands of one type.
#[derive(Debug)]
pub(super) struct BinaryOp {
    pub name: &'static str,
    pub op: Binary,
}

impl Op for BinaryOp {
    fn name(&self) -> &'static str {
        self.name
    }

    fn meaning(&self) -> Meaning<'_> {
        Meaning::Binary(self.op)
    }

    fn row_wise(&self) -> RowWise {
        RowWise::Elements
    }

    fn lower(&self, cx: &mut Lower<'_>, inputs: &[Option<Val>]) -> Result<Vec<Val>, LowerError> {
        let (a, b) = (cx.required(inputs, 0)?, cx.required(inputs, 1)?);
        Ok(vec![cx.binary(self.op, a, b)?])
    }
}

macro_rules! unary {
    ($($op_type:literal => $op:ident, $accepted:expr;)*) => {
        &[$(Entry {
            domain: "",
            op_type: $op_type,
            parse: |node| {
                node.accept(0, $accepted)?;
                Ok(Box::new(UnaryOp { name: $op_type, op: Unary::$op }))
            },
        }),*]
    };
}

macro_rules! binary {
    ($($op_type:literal => $op:ident, $accepted:expr;)*) => {
        &[$(Entry {
            domain: "",
            op_type: $op_type,
            parse: |node| {
                binary_types(node, $accepted)?;
                Ok(Box::new(BinaryOp { name: $op_type, op: Binary::$op }))
            },
        }),*]
    };
}

/// Declines the broadcasting of opset 6 and older, which had its own attributes, and unsupported types.
fn binary_types(node: &NodeInfo<'_>, accepted: fn(DType) -> bool) -> Result<(), Declined> {
    if node.attributes.get("axis").is_some() || node.attributes.get("broadcast").is_some() {
        return Err(Declined::new("broadcasting by attributes (opset 6) is not supported"));
    }
    let (a, b) = (node.accept(0, accepted)?, node.accept(1, accepted)?);
    if a == b { Ok(()) } else { Err(Declined::new(format!("operands have different types {a} and {b}"))) }
}

const fn float(dtype: DType) -> bool {
    dtype.is_float()
}

const fn number(dtype: DType) -> bool {
    dtype.is_float() || dtype.is_int()
}

const fn signed(dtype: DType) -> bool {
    dtype.is_signed()
}

const fn boolean(dtype: DType) -> bool {
    matches!(dtype, DType::Bool)
}

const fn integer(dtype: DType) -> bool {
    dtype.is_int()
}

const fn any(_: DType) -> bool {
    true
}

pub(super) const UNARY: &[Entry] = unary! {
    "Neg" => Neg, signed;
    "Abs" => Abs, number;
    "Sign" => Sign, number;
    "Not" => Not, boolean;
    "BitwiseNot" => Not, integer;
    "Reciprocal" => Recip, float;
    "Sqrt" => Sqrt, float;
    "Exp" => Exp, float;
    "Log" => Log, float;
    "Erf" => Erf, float;
    "Sin" => Sin, float;
    "Cos" => Cos, float;
    "Tan" => Tan, float;
    "Asin" => Asin, float;
    "Acos" => Acos, float;
    "Atan" => Atan, float;
    "Sinh" => Sinh, float;
    "Cosh" => Cosh, float;
    "Tanh" => Tanh, float;
    "Asinh" => Asinh, float;
    "Acosh" => Acosh, float;
    "Atanh" => Atanh, float;
    "Sigmoid" => Sigmoid, float;
    "Ceil" => Ceil, float;
    "Floor" => Floor, float;
    "Round" => Round, float;
    "IsNaN" => IsNan, float;
};

pub(super) const BINARY: &[Entry] = binary! {
    "Add" => Add, number;
    "Sub" => Sub, number;
    "Mul" => Mul, number;
    "Div" => Div, number;
    "And" => And, boolean;
    "Or" => Or, boolean;
    "Xor" => Xor, boolean;
    "BitwiseAnd" => And, integer;
    "BitwiseOr" => Or, integer;
    "BitwiseXor" => Xor, integer;
    "Equal" => Eq, any;
    "Less" => Lt, number;
    "LessOrEqual" => Le, number;
    "Greater" => Gt, number;
    "GreaterOrEqual" => Ge, number;
};
