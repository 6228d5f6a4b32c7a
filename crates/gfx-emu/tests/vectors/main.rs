//! A test vector for every mnemonic that the emulator knows.
//!
//! Each row has a mnemonic, its operands and what it computes, written down from AMD's public documents without the
//! emulator's own functions. A row is assembled by clang, disassembled by LLVM, decoded and executed, on every target
//! whose assembler knows the mnemonic, in waves of 32 and 64 lanes with some lanes inactive.
//! `complete.rs` fails for mnemonics without a row.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a failure here fails the test")]
#![allow(clippy::precedence, reason = "fields of bits are read by a shift and a mask; the shift binds first")]
#![allow(clippy::type_complexity, reason = "rows are tuples with functions")]
#![allow(
    clippy::neg_cmp_op_on_partial_ord,
    clippy::nonminimal_bool,
    clippy::if_same_then_else,
    clippy::implicit_saturating_sub,
    clippy::manual_is_multiple_of,
    reason = "the cases are those of the documents, in their order, and comparisons say what they do with NaN"
)]

#[path = "../common/mod.rs"]
mod common;

mod approximate;
mod assembler;
mod compare;
mod complete;
mod convert;
mod cross;
mod divide;
mod dot;
mod float16;
mod float32;
mod float64;
mod integer;
mod integer16;
mod lanes;
mod matrix;
mod programs;
mod scalar;
mod scalar_float;
mod soft;
mod text_only;
mod transfers;
