//! Graphs without a backend.

use super::*;

mod arbitrary;
mod inference;
mod rules;

fn graph() -> Graph {
    Graph::new(DataType::FLOAT, DataType::FLOAT).named("test")
}
