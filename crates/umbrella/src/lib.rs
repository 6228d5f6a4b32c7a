//! (in the making)

pub mod options;
