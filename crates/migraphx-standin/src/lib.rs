//! A stand-in for `libmigraphx_c`, for tests only. It is not MIGraphX and computes on the CPU.
//!
//! It exists for what the real library does not do on demand: fail at a chosen call, count the handles that are alive,
//! number its element types as older releases did, and, on a `gpu` target without a GPU, give programs output parameters,
//! scratch memory and stream order. It knows a handful of operators, see [`compute`].
//!
//! | setting | environment | meaning |
//! |---|---|---|
//! | `fail` | `MIGRAPHX_STANDIN_FAIL` | `program_compile`: every such call fails; `program_compile:2`: the second; `17`: the seventeenth of all |
//! | `datatypes` | `MIGRAPHX_STANDIN_DATATYPES` | `old`: the numbers before 2.14 |
//! | `scratch` | `MIGRAPHX_STANDIN_SCRATCH` | bytes of scratch memory that programs on `gpu` want |
//! | `compile_ms` | `MIGRAPHX_STANDIN_COMPILE_MS` | how long compiling takes |
//! | `log` | `MIGRAPHX_STANDIN_LOG` | a file that gets a line for each call that changes or runs a program |
//!
//! `migraphx_standin_set(setting, value)` changes a setting and starts the count of calls again;
//! `migraphx_standin_calls()`, `migraphx_standin_failed()`, `migraphx_standin_live()` and `migraphx_standin_misuses()` tell
//! how many calls were counted, which one was told to fail, how many handles are alive, and how often something was freed
//! that was no handle. Every copy of the file has a state of its own.

pub mod api;
pub mod compute;
pub mod control;
pub mod element;
pub mod handles;
pub mod hip_stream;
pub mod model;
pub mod program;
mod wire;

/// How the real C library asks for its core, which tells its release.
#[used]
static CORE: [u8; 24] = *b"\0libmigraphx.so.2017000\0";

/// The release that this one claims to be, as saved programs have it.
pub const VERSION: &str = "2.17.0";

/// The version of the format of saved programs.
pub const FORMAT: u8 = 8;
