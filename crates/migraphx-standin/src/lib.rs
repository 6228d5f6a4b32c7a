//! A stand-in for `libmigraphx_c`, for tests only. It is not MIGraphX and computes on the CPU.
//!
//! It does what the real library cannot do on demand: fail at a chosen call, count live handles, number its element
//! types as older releases did, and, on a `gpu` target without a GPU, give programs output parameters, scratch memory
//! and stream order. It supports only a few operators, see [`compute`].
//!
//! | setting | environment | meaning |
//! |---|---|---|
//! | `fail` | `MIGRAPHX_STANDIN_FAIL` | `program_compile`: every such call fails; `program_compile:2`: the second; `17`: the seventeenth of all |
//! | `datatypes` | `MIGRAPHX_STANDIN_DATATYPES` | `old`: the numbers before 2.14 |
//! | `scratch` | `MIGRAPHX_STANDIN_SCRATCH` | bytes of scratch memory that programs on `gpu` need |
//! | `compile_ms` | `MIGRAPHX_STANDIN_COMPILE_MS` | how long compiling takes |
//! | `log` | `MIGRAPHX_STANDIN_LOG` | a file that receives a line per call that changes or runs a program |
//!
//! `migraphx_standin_set(setting, value)` changes a setting and restarts the count of calls.
//! `migraphx_standin_calls()`, `migraphx_standin_failed()`, `migraphx_standin_live()` and `migraphx_standin_misuses()`
//! return the number of calls, the one that was made to fail, the number of live handles, and the number of invalid
//! frees. Every copy of the file has its own state.

pub mod api;
pub mod compute;
pub mod control;
pub mod element;
pub mod handles;
pub mod hip_stream;
pub mod model;
pub mod program;
mod wire;

/// The core library's name that the real C library depends on; it identifies the release.
#[used]
static CORE: [u8; 24] = *b"\0libmigraphx.so.2017000\0";

/// The release that this one claims to be, as recorded in saved programs.
pub const VERSION: &str = "2.17.0";

/// The format version of saved programs.
pub const FORMAT: u8 = 8;
