//! What atomic operations do to the value in memory.

use super::AtomicOp;
use crate::ops::float;

/// Defines the operations that both widths have. `$packed` computes the others.
macro_rules! atomic {
    ($(#[$about:meta])* $name:ident, $bits:ty, $signed:ty, $float:ty, $min:path, $max:path, $packed:path) => {
        $(#[$about])*
        pub fn $name(op: AtomicOp, old: $bits, operand: $bits, compare: $bits) -> $bits {
            let value = <$float>::from_bits;
            match op {
                AtomicOp::Swap => operand,
                AtomicOp::CompareSwap if old == compare => operand,
                AtomicOp::CompareSwap => old,
                AtomicOp::Add => old.wrapping_add(operand),
                AtomicOp::Sub => old.wrapping_sub(operand),
                AtomicOp::RevSub => operand.wrapping_sub(old),
                AtomicOp::MinI => (old as $signed).min(operand as $signed) as $bits,
                AtomicOp::MaxI => (old as $signed).max(operand as $signed) as $bits,
                AtomicOp::MinU => old.min(operand),
                AtomicOp::MaxU => old.max(operand),
                AtomicOp::And => old & operand,
                AtomicOp::Or => old | operand,
                AtomicOp::Xor => old ^ operand,
                AtomicOp::Inc if old >= operand => 0,
                AtomicOp::Inc => old + 1,
                AtomicOp::Dec if old == 0 || old > operand => operand,
                AtomicOp::Dec => old - 1,
                AtomicOp::SubClamp => old.saturating_sub(operand),
                AtomicOp::AddF => (value(old) + value(operand)).to_bits(),
                AtomicOp::MinF => $min(value(old), value(operand)).to_bits(),
                AtomicOp::MaxF => $max(value(old), value(operand)).to_bits(),
                AtomicOp::AddPkF16 | AtomicOp::AddPkBf16 => $packed(op, old, operand),
            }
        }
    };
}

atomic!(
    /// The new value of 32 bits in memory.
    atomic32, u32, i32, f32, float::min_f32, float::max_f32, packed
);
atomic!(
    /// The new value of 64 bits in memory.
    atomic64, u64, i64, f64, float::min_f64, float::max_f64, unpacked
);

/// Two sums of half precision.
fn packed(op: AtomicOp, old: u32, operand: u32) -> u32 {
    match op {
        AtomicOp::AddPkF16 => float::packed_f16(old, operand, |a, b| a + b),
        _ => float::packed_bf16(old, operand, |a, b| a + b),
    }
}

/// Packed atomics have 32 bits; the decoder makes no wide ones.
fn unpacked(_: AtomicOp, old: u64, _: u64) -> u64 {
    old
}
