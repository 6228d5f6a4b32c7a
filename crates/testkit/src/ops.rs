//! Cases of operators that several crates test, with results in 64-bit floats by the operator's definition.

pub mod recurrent;
