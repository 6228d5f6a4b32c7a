//! The sanitizer on kernels with planted bugs, and on the same kernels without them.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a failure here fails the test")]

#[path = "../common/mod.rs"]
mod common;

mod clean;
mod memory;
mod planted;
mod races;
mod waits;
