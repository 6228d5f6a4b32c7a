//! Gelu, `0.5 · x · (1 + f(x))` with f the error function or a tanh, in whatever order exporters multiply.
use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI};

use crate::expr::{Binary, Unary};
use crate::ops::fused::Whole;
use crate::pass::pattern::{Found, Search, near, rewrite};
use crate::{Graph, NodeId, ValueId};

/// Coefficients of a polynomial of degree 3, the constant first.
type Cubic = [f64; 4];

pub(super) fn run(graph: &mut Graph) -> usize {
    rewrite(graph, find)
}

fn find(search: Search<'_>, at: NodeId) -> Option<Found> {
    search.operands(at, Binary::Mul)?;
    let mut product = Product { factors: Vec::new(), number: 1.0, nodes: Vec::new() };
    product.multiply(search, search.output(at)?, at);
    let [a, b] = product.factors[..] else { return None };
    if !near(product.number, 0.5) {
        return None;
    }
    let (x, whole, inner) = weighted(search, a, b).or_else(|| weighted(search, b, a))?;
    let nodes = inner.into_iter().chain(product.nodes.into_iter().rev()).collect();
    Some(Found { whole, nodes, inputs: vec![x] })
}

/// A product split into its factors.
struct Product {
    factors: Vec<ValueId>,
    /// The product of all constant factors.
    number: f64,
    nodes: Vec<NodeId>,
}

impl Product {
    /// Splits a value into factors, if `last` produces it or only a node of the product reads it.
    fn multiply(&mut self, search: Search<'_>, value: ValueId, last: NodeId) {
        let own = |node: NodeId| node == last || search.links.only_reader(value).is_some();
        if let Some((node, other, factor)) = search.scaled(value).filter(|scaled| own(scaled.0)) {
            self.nodes.push(node);
            self.number *= factor;
            self.multiply(search, other, last);
        } else if let Some((node, factors)) = search.binary(value, Binary::Mul).filter(|product| own(product.0)) {
            self.nodes.push(node);
            factors.into_iter().for_each(|factor| self.multiply(search, factor, last));
        } else {
            self.factors.push(value);
        }
    }
}

/// Matches `weight` as 1 + f(x).
fn weighted(search: Search<'_>, x: ValueId, weight: ValueId) -> Option<(ValueId, Whole, Vec<NodeId>)> {
    let (add, operands) = search.binary(weight, Binary::Add)?;
    let (curve, one) = search.with_number(operands)?;
    if one != 1.0 {
        return None;
    }
    let mut nodes = Vec::new();
    // √(2/π), and the factor of x³.
    let (slope, share) = (FRAC_2_SQRT_PI * FRAC_1_SQRT_2, 0.044_715);
    let (node, whole) = if let Some((node, inner)) = search.unary(curve, Unary::Erf) {
        let [constant, linear, square, cube] = cubic(search, inner, x, &mut nodes)?;
        let fits = [constant, square, cube] == [0.0; 3] && near(linear, FRAC_1_SQRT_2);
        (node, fits.then_some(Whole::Gelu)?)
    } else {
        let (node, inner) = search.unary(curve, Unary::Tanh)?;
        let [constant, linear, square, cube] = cubic(search, inner, x, &mut nodes)?;
        let fits = [constant, square] == [0.0; 2] && near(linear, slope) && near(cube, slope * share);
        (node, fits.then_some(Whole::TanhGelu)?)
    };
    nodes.extend([node, add]);
    Some((x, whole, nodes))
}

/// A value as a polynomial in x, with the nodes that compute it.
fn cubic(search: Search<'_>, value: ValueId, x: ValueId, nodes: &mut Vec<NodeId>) -> Option<Cubic> {
    if value == x {
        return Some([0.0, 1.0, 0.0, 0.0]);
    }
    if let Some(number) = search.number(value) {
        return Some([number, 0.0, 0.0, 0.0]);
    }
    // A polynomial of degree 3 takes only a few nodes; other chains may be long.
    if nodes.len() > 8 {
        return None;
    }
    if let Some((node, base, exponent)) = search.power(value) {
        nodes.push(node);
        let exponent = [1.0, 2.0, 3.0].iter().position(|&known| known == exponent)? + 1;
        let mut power = [0.0; 4];
        power[exponent] = 1.0;
        return (base == x).then_some(power);
    }
    if let Some((node, factors)) = search.binary(value, Binary::Mul) {
        nodes.push(node);
        let [a, b] = [cubic(search, factors[0], x, nodes)?, cubic(search, factors[1], x, nodes)?];
        return multiplied(&a, &b);
    }
    if let Some((node, [a, b])) = search.binary(value, Binary::Add) {
        nodes.push(node);
        let [a, b] = [cubic(search, a, x, nodes)?, cubic(search, b, x, nodes)?];
        return Some(std::array::from_fn(|at| a[at] + b[at]));
    }
    let (node, other, factor) = search.scaled(value)?;
    nodes.push(node);
    cubic(search, other, x, nodes).map(|other| other.map(|coefficient| coefficient * factor))
}

/// The product of two polynomials, if its degree is at most 3.
fn multiplied(a: &Cubic, b: &Cubic) -> Option<Cubic> {
    let mut product = [0.0; 4];
    for (i, &left) in a.iter().enumerate() {
        for (j, &right) in b.iter().enumerate().filter(|(_, right)| left * **right != 0.0) {
            *product.get_mut(i + j)? += left * right;
        }
    }
    Some(product)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DType;
    use crate::pass::testing::{Build, names};

    fn weight(build: &mut Build, x: ValueId, root: f64, one: f64) -> ValueId {
        let (root, one) = (build.number(root), build.number(one));
        let inner = build.node("Div", &[x, root]);
        let curve = build.node("Erf", &[inner]);
        build.node("Add", &[curve, one])
    }

    fn fires(build: &Build, out: ValueId, debug: &str) {
        let mut graph = build.outputs(&[out]);
        assert_eq!(run(&mut graph), 1);
        graph.verify().unwrap();
        assert_eq!(names(&graph), ["Gelu"]);
        let found = format!("{:?}", graph.nodes()[0].op);
        assert!(found.starts_with(debug), "{found}");
    }

    #[test]
    fn the_error_function_in_any_order_of_factors_is_one_node() {
        for order in 0..3 {
            let mut build = Build::new();
            let x = build.input("x", DType::F32);
            let weight = weight(&mut build, x, std::f64::consts::SQRT_2, 1.0);
            let half = build.number(0.5);
            let [first, second, last] = [[x, weight, half], [x, half, weight], [weight, half, x]][order];
            let part = build.node("Mul", &[first, second]);
            let out = build.node("Mul", &[part, last]);
            fires(&build, out, "Gelu of 5 nodes");
        }
    }

    #[test]
    fn a_preceding_product_is_not_split() {
        let mut build = Build::new();
        let (a, b) = (build.input("a", DType::F32), build.input("b", DType::F32));
        let x = build.node("Mul", &[a, b]);
        let weight = weight(&mut build, x, std::f64::consts::SQRT_2, 1.0);
        let half = build.number(0.5);
        let part = build.node("Mul", &[x, weight]);
        let out = build.node("Mul", &[part, half]);
        let mut graph = build.outputs(&[out]);
        assert_eq!(run(&mut graph), 1);
        assert_eq!(names(&graph), ["Mul", "Gelu"]);
    }

    #[test]
    fn wrong_numbers_and_other_readers_prevent_fusion() {
        for (root, one, half) in
            [(1.5, 1.0, 0.5), (std::f64::consts::SQRT_2, 2.0, 0.5), (std::f64::consts::SQRT_2, 1.0, 0.4)]
        {
            let mut build = Build::new();
            let x = build.input("x", DType::F32);
            let weight = weight(&mut build, x, root, one);
            let half = build.number(half);
            let part = build.node("Mul", &[x, weight]);
            let out = build.node("Mul", &[part, half]);
            assert_eq!(run(&mut build.outputs(&[out])), 0, "{root} {one}");
        }
        let mut build = Build::new();
        let x = build.input("x", DType::F32);
        let weight = weight(&mut build, x, std::f64::consts::SQRT_2, 1.0);
        let half = build.number(0.5);
        let part = build.node("Mul", &[x, weight]);
        let out = build.node("Mul", &[part, half]);
        assert_eq!(run(&mut build.outputs(&[out, weight])), 0);
        assert_eq!(run(&mut build.outputs(&[out, part])), 0);
    }

    #[test]
    fn the_tanh_form_is_one_node_however_its_cubic_is_written() {
        let (slope, share) = (0.797_884_6, 0.044_715);
        for form in 0..2 {
            let mut build = Build::new();
            let x = build.input("x", DType::F32);
            let [slope, share, one, half, three] = [slope, share, 1.0, 0.5, 3.0].map(|number| build.number(number));
            let inner = if form == 0 {
                // √(2/π) · (x + 0.044715 · x³)
                let cube = build.node("Pow", &[x, three]);
                let part = build.node("Mul", &[cube, share]);
                let sum = build.node("Add", &[x, part]);
                build.node("Mul", &[sum, slope])
            } else {
                // x · √(2/π) · (1 + 0.044715 · x · x)
                let square = build.node("Mul", &[x, x]);
                let part = build.node("Mul", &[share, square]);
                let sum = build.node("Add", &[part, one]);
                let line = build.node("Mul", &[slope, x]);
                build.node("Mul", &[line, sum])
            };
            let curve = build.node("Tanh", &[inner]);
            let weight = build.node("Add", &[one, curve]);
            let line = build.node("Mul", &[x, half]);
            let out = build.node("Mul", &[line, weight]);
            fires(&build, out, "TanhGelu of");
        }
    }
}
