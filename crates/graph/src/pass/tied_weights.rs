//! Stores equal large constants once.
//!
//! Constants with equal bytes share them. If a table is only gathered from, and a product's matrix is its transpose,
//! the gathers read that matrix instead. Decoders whose embedding and head are tied arrive as two such constants,
//! because ONNX Runtime computes the transpose before it asks any provider. The matrix keeps the layout that suits its
//! product, which reads all of it in each run. A gather then reads columns of it, element by element, but only one per
//! token.
use std::collections::HashMap;
use std::collections::hash_map::Entry;

use bytemuck::Pod;

use crate::pass::links::Links;
use crate::pass::no_ops;
use crate::{DType, Graph, Node, Tensor, ValueId};

/// Constants of at least this size are compared.
const LEAST_BYTES: usize = 64 << 10;
/// Tables of at least this size are worth slower reads.
const LEAST_TABLE_BYTES: usize = 1 << 20;
/// How many elements are compared first.
const SAMPLES: usize = 64;
/// Rows and columns compared at a time. One side is copied first: with the strides of large matrices the two would
/// evict each other from the cache.
const TILE: usize = 64;

pub(super) fn run(graph: &mut Graph) -> usize {
    share_equal(graph) + turn_tables(graph)
}

/// Makes constants with equal bytes share them, and returns how many.
fn share_equal(graph: &mut Graph) -> usize {
    let mut known: HashMap<(DType, usize, Vec<u8>), &Tensor> = HashMap::new();
    let mut instead: HashMap<u64, Tensor> = HashMap::new();
    for tensor in graph.values().iter().filter_map(|value| value.constant.as_ref()) {
        if tensor.len_bytes() < LEAST_BYTES {
            continue;
        }
        // Only the first with equal samples is compared: others that differ from it are unlikely to equal each other.
        match known.entry((tensor.dtype(), tensor.len_bytes(), samples(tensor))) {
            Entry::Vacant(place) => {
                place.insert(tensor);
            }
            Entry::Occupied(first) => {
                if first.get().id() != tensor.id() && first.get().bytes() == tensor.bytes() {
                    instead.insert(tensor.id(), (*first.get()).clone());
                }
            }
        }
    }
    if let Some(smaller) = graph.with_constants(|tensor| instead.get(&tensor.id()).cloned()) {
        *graph = smaller;
    }
    instead.len()
}

/// Bytes sampled from the whole tensor.
fn samples(tensor: &Tensor) -> Vec<u8> {
    let (bytes, width) = (tensor.bytes(), tensor.dtype().bytes());
    places(tensor.elems()).flat_map(|at| &bytes[at * width..][..width]).copied().collect()
}

/// Positions spread over the elements, in no particular order.
fn places(elems: usize) -> impl Iterator<Item = usize> {
    // Multiples of an irrational fraction of the range are spread evenly.
    let golden = |number: usize| (number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (0..SAMPLES).map(move |number| ((u128::from(golden(number)) * elems as u128) >> 64) as usize)
}

/// Makes gathers read from the transposes of their tables, and returns for how many tables.
fn turn_tables(graph: &mut Graph) -> usize {
    let links = Links::new(graph);
    let ids = (0..graph.values().len() as u32).map(ValueId);
    let (tables, others): (Vec<_>, Vec<_>) =
        ids.filter(|id| matrix(graph, *id).is_some()).partition(|id| is_table(graph, &links, *id));
    let is_factor = |id: &ValueId| links.readers(*id).iter().any(|reader| multiplies(graph.node(*reader), *id));
    let factors: Vec<ValueId> = others.into_iter().filter(is_factor).collect();
    let mut turned: Vec<Node> = Vec::new();
    for table in tables {
        let same = |other: &&ValueId| is_transpose(graph, table, **other).unwrap_or(false);
        let Some(&other) = factors.iter().find(same) else { continue };
        let Some(op) = no_ops::transpose(graph, other, vec![1, 0]) else { continue };
        let name = graph.unused_name(&format!("{} turned", graph.value(other).name));
        let rows = graph.add_value(name.clone(), graph.value(other).dtype, None);
        turned.push(Node { name, op, inputs: vec![Some(other)], outputs: vec![Some(rows)] });
        for reader in links.readers(table) {
            graph.nodes_mut()[reader.0 as usize].inputs[0] = Some(rows);
        }
    }
    let count = turned.len();
    if count > 0 {
        turned.extend_from_slice(graph.nodes());
        graph.set_nodes(turned);
        graph.keep_nodes(|_| true);
    }
    count
}

/// A constant that is a large matrix.
fn matrix(graph: &Graph, id: ValueId) -> Option<(&Tensor, [usize; 2])> {
    // An input with a default value is not a constant.
    let tensor = graph.value(id).constant.as_ref().filter(|_| !graph.inputs().contains(&id))?;
    let &[rows, columns] = tensor.shape() else { return None };
    (tensor.len_bytes() >= LEAST_TABLE_BYTES).then_some((tensor, [rows, columns]))
}

/// True if only gathers read a value.
fn is_table(graph: &Graph, links: &Links, id: ValueId) -> bool {
    let gathers = |node: &Node| {
        node.op.name() == "Gather" && matches!(node.inputs[..], [Some(data), Some(by)] if data == id && by != id)
    };
    !links.is_wanted(id)
        && !links.readers(id).is_empty()
        && links.readers(id).iter().all(|reader| gathers(graph.node(*reader)))
}

/// True if the node is a product with a value as its matrix, untransposed.
fn multiplies(node: &Node, id: ValueId) -> bool {
    matches!(node.op.name(), "MatMul" | "FusedMatMul" | "Gemm" | "FusedGemm") && node.inputs.get(1) == Some(&Some(id))
}

/// True if one large constant is the other's transpose.
fn is_transpose(graph: &Graph, one: ValueId, other: ValueId) -> Option<bool> {
    let ((one, [rows, columns]), (other, other_shape)) = (matrix(graph, one)?, matrix(graph, other)?);
    if one.dtype() != other.dtype() || other_shape != [columns, rows] {
        return Some(false);
    }
    Some(match one.dtype().bytes() {
        1 => mirrors::<u8>(one, other, rows, columns),
        2 => mirrors::<u16>(one, other, rows, columns),
        4 => mirrors::<u32>(one, other, rows, columns),
        _ => mirrors::<u64>(one, other, rows, columns),
    })
}

/// True if the elements of one tensor, compared as words, equal those of the other's transpose.
fn mirrors<T: Pod + Eq>(one: &Tensor, other: &Tensor, rows: usize, columns: usize) -> bool {
    let (Ok(one), Ok(other)) = (bytemuck::try_cast_slice::<_, T>(one.bytes()), bytemuck::try_cast_slice(other.bytes()))
    else {
        return false;
    };
    let fits = |at: usize| one[at] == other[at % columns * rows + at / columns];
    if !places(rows * columns).all(fits) {
        return false;
    }
    let mut tile = [T::zeroed(); TILE * TILE];
    for row in (0..rows).step_by(TILE) {
        let height = TILE.min(rows - row);
        for column in (0..columns).step_by(TILE) {
            let width = TILE.min(columns - column);
            for (at, line) in tile.chunks_exact_mut(TILE).take(height).enumerate() {
                line[..width].copy_from_slice(&one[(row + at) * columns + column..][..width]);
            }
            // Branch-free per element.
            let same = (0..width).fold(true, |same, at| {
                let line = &other[(column + at) * rows + row..][..height];
                line.iter().zip(tile[at..].iter().step_by(TILE)).fold(same, |same, (one, other)| same & (one == other))
            });
            if !same {
                return false;
            }
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::ops::Attribute;
    use crate::pass::testing::{Build, names};

    const WORDS: usize = 700;
    const WIDTH: usize = 400;

    /// 32-bit words, all different.
    fn numbers(rows: usize, columns: usize, number: impl Fn(usize, usize) -> usize) -> Tensor {
        let words: Vec<u32> = (0..rows * columns).map(|at| number(at / columns, at % columns) as u32).collect();
        Tensor::from_bytes(DType::F32, &[rows, columns], bytemuck::cast_slice(&words)).unwrap()
    }

    fn table() -> Tensor {
        numbers(WORDS, WIDTH, |row, column| row * WIDTH + column)
    }

    fn head() -> Tensor {
        numbers(WIDTH, WORDS, |row, column| column * WIDTH + row)
    }

    /// A decoder with only an embedding and a head.
    struct Ends {
        build: Build,
        table: ValueId,
        head: ValueId,
        outputs: Vec<ValueId>,
    }

    fn ends(table: Tensor, head: Tensor) -> Ends {
        let mut build = Build::new();
        let ids = build.input("ids", DType::I64);
        let (table, head) = (build.constant("table", table), build.constant("head", head));
        let rows = build.node("Gather", &[table, ids]);
        let logits = build.node("MatMul", &[rows, head]);
        Ends { build, table, head, outputs: vec![logits] }
    }

    impl Ends {
        fn run(&self) -> (Graph, usize) {
            let mut graph = self.build.outputs(&self.outputs);
            let count = run(&mut graph);
            graph.verify().unwrap();
            (graph, count)
        }
    }

    fn ids(graph: &Graph) -> Vec<u64> {
        graph.values().iter().filter_map(|value| value.constant.as_ref()).map(Tensor::id).collect()
    }

    #[test]
    fn a_table_is_read_from_the_matrix_that_is_its_transpose() {
        let head = head();
        let (graph, count) = ends(table(), head.clone()).run();
        assert_eq!((count, names(&graph)), (1, vec!["Transpose", "Gather", "MatMul"]));
        assert_eq!(ids(&graph), [head.id()], "the table is gone, the head is unchanged");
        assert_eq!(graph.nodes()[1].inputs[0], graph.nodes()[0].outputs[0]);
        assert_eq!(graph.nodes()[0].inputs[0], graph.nodes()[2].inputs[1]);
    }

    #[test]
    fn all_gathers_from_a_table_read_the_matrix() {
        let mut ends = ends(table(), head());
        let others = ends.build.input("others", DType::I64);
        let more = ends.build.with("Gather", &[ends.table, others], &[("axis", Attribute::Int(1))]);
        ends.outputs.push(more);
        let (graph, count) = ends.run();
        assert_eq!((count, names(&graph)), (1, vec!["Transpose", "Gather", "MatMul", "Gather"]));
        assert_eq!(ids(&graph).len(), 1);
    }

    #[test]
    fn a_table_that_differs_in_one_bit_stays() {
        let odd = (WIDTH - 1, WORDS - 1);
        let other = numbers(WIDTH, WORDS, |row, column| column * WIDTH + row + usize::from((row, column) == odd));
        assert_eq!(ends(table(), other).run().1, 0);
    }

    #[test]
    fn a_table_with_other_readers_stays() {
        let mut ends = ends(table(), head());
        let read = ends.build.node("Exp", &[ends.table]);
        ends.outputs.push(read);
        assert_eq!(ends.run().1, 0, "its rows are read in sequence");
        ends.outputs[1] = ends.table;
        assert_eq!(ends.run().1, 0, "it is an output");
    }

    #[test]
    fn a_matrix_without_a_plain_product_is_not_used_for_a_table() {
        let mut build = Build::new();
        let ids = build.input("ids", DType::I64);
        let (table, head) = (build.constant("table", table()), build.constant("head", head()));
        let rows = build.node("Gather", &[table, ids]);
        let cast = build.to("Cast", &[head], DType::F64, &[("to", Attribute::Int(11))]);
        let turned = build.with("Gather", &[head, ids], &[]);
        assert_eq!(run(&mut build.outputs(&[rows, cast])), 0);
        assert_eq!(run(&mut build.outputs(&[rows, turned])), 0);
    }

    #[test]
    fn overridable_initializers_are_not_constants() {
        for replaced in [true, false] {
            let ends = ends(table(), head());
            let mut graph = ends.build.outputs(&ends.outputs);
            let also = if replaced { ends.head } else { ends.table };
            graph.set_inputs([graph.inputs(), &[also]].concat());
            assert_eq!(run(&mut graph), 0);
        }
    }

    #[test]
    fn equal_constants_share_their_bytes_whatever_their_shape() {
        let mut build = Build::new();
        let x = build.input("x", DType::F32);
        let flat = table().reshaped(&[WORDS * WIDTH]).unwrap();
        let odd = numbers(WORDS, WIDTH, |row, column| row * WIDTH + column + row / (WORDS - 1));
        let small = || numbers(1, 4, |_, column| column);
        let all = [table(), flat, odd.clone(), small(), small()];
        let sums: Vec<ValueId> = all
            .into_iter()
            .enumerate()
            .map(|(at, tensor)| {
                let constant = build.constant(&format!("c{at}"), tensor);
                build.node("Add", &[x, constant])
            })
            .collect();
        let mut graph = build.outputs(&sums);
        assert_eq!(run(&mut graph), 1);
        graph.verify().unwrap();
        let (ids, shapes) = (ids(&graph), graph.values().iter().filter_map(|value| value.constant.as_ref()));
        assert_eq!(ids[0], ids[1]);
        assert_eq!(ids[2], odd.id());
        assert_ne!(ids[3], ids[4]);
        assert_eq!(shapes.map(|tensor| tensor.shape().len()).collect::<Vec<_>>(), [2, 1, 2, 2, 2]);
        assert_eq!(run(&mut graph), 0, "they are not counted again");
    }

    proptest! {
        #[test]
        fn only_the_transpose_is_recognised(rows in 1usize..200, columns in 1usize..200, at: prop::sample::Index) {
            let one = numbers(rows, columns, |row, column| row * columns + column);
            let at = at.index(rows * columns);
            for other in [usize::MAX, at] {
                let turned = numbers(columns, rows, |row, column| {
                    let number = column * columns + row;
                    if number == other { rows * columns } else { number }
                });
                prop_assert_eq!(mirrors::<u32>(&one, &turned, rows, columns), other == usize::MAX);
            }
        }

        #[test]
        fn samples_are_within_the_tensor(elems in 1usize..1_000_000_000) {
            prop_assert!(places(elems).all(|at| at < elems));
        }
    }
}
