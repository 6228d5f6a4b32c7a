//! hipDNN's operations as test cases for any backend library.
//!
//! A *family* ([`FAMILIES`]) is one function: it draws the parameters of a case from a seed ([`Draw`]), builds a graph
//! with the frontend, runs it on a [`Bench`], and compares with loops in double precision. The bench is a backend
//! library with the memory it computes in: RAM for the host, a driver's device memory for a GPU. So the same cases run
//! on every library: `hipdnn-host`'s tests require that all pass; the program `hipdnn-suite` prints which pass, and why
//! others are not supported.

mod bench;
mod data;
mod draw;
mod element;
mod families;
mod report;

pub use bench::{Answer, Bench, ExpectedOutput, Failure};
pub use data::{Data, assert_close, flat, indices};
pub use draw::Draw;
pub use element::Element;
pub use families::{FAMILIES, Family};
pub use report::{Report, Row};
