//! The operators: `Identity` of any type; `Add`, `Sub`, `Mul`, `Div`, `Relu`, `Neg`, `MatMul` and `Gemm` of floats.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::element::FLOAT;
use crate::model::{Graph, Node, Tensor};

/// The operators by name, sorted.
pub const OPERATORS: [&std::ffi::CStr; 9] =
    [c"Add", c"Div", c"Gemm", c"Identity", c"MatMul", c"Mul", c"Neg", c"Relu", c"Sub"];

/// How the precision of arithmetic is reduced.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Precision {
    /// Results are rounded to half precision.
    pub fp16: bool,
    /// Results are rounded to bfloat16.
    pub bf16: bool,
    /// The largest magnitude of the inputs of a `MatMul`, by name: they are clamped to it and rounded to 127 steps.
    pub ranges: BTreeMap<String, f32>,
}

/// Checks that every operator of a graph is known.
pub fn check(graph: &Graph) -> Result<(), String> {
    let known = |node: &&Node| OPERATORS.iter().any(|op| op.to_bytes() == node.op.as_bytes());
    match graph.nodes.iter().find(|node| !known(node)) {
        Some(node) => Err(format!("Unknown operator: {}", node.op)),
        None => Ok(()),
    }
}

/// All values of a graph, given its inputs.
pub fn values(
    graph: &Graph,
    inputs: BTreeMap<String, Tensor>,
    precision: &Precision,
) -> Result<BTreeMap<String, Tensor>, String> {
    let mut values = graph.constants.clone();
    values.extend(inputs);
    for node in &graph.nodes {
        let operand = |index: usize| {
            let name = node.inputs.get(index).ok_or_else(|| format!("{} lacks an input", node.op))?;
            values.get(name).ok_or_else(|| format!("{} reads {name}, which nothing computes", node.op))
        };
        let result = match node.op.as_str() {
            "Identity" => operand(0)?.clone(),
            "MatMul" => {
                let narrowed = |index: usize| narrow(node.inputs.get(index), operand(index)?, precision);
                matmul(&narrowed(0)?, &narrowed(1)?)?
            }
            "Gemm" => gemm(node, operand(0)?, operand(1)?, operand(2).ok())?,
            "Relu" => map(operand(0)?, |x| x.max(0.0))?,
            "Neg" => map(operand(0)?, |x| -x)?,
            "Add" => zip(operand(0)?, operand(1)?, |a, b| a + b)?,
            "Sub" => zip(operand(0)?, operand(1)?, |a, b| a - b)?,
            "Mul" => zip(operand(0)?, operand(1)?, |a, b| a * b)?,
            "Div" => zip(operand(0)?, operand(1)?, |a, b| a / b)?,
            op => return Err(format!("Unknown operator: {op}")),
        };
        let output = node.outputs.first().ok_or_else(|| format!("{} has no output", node.op))?;
        values.insert(output.clone(), rounded(result, precision)?);
    }
    Ok(values)
}

/// The graph input that an output returns unchanged.
pub fn alias<'a>(graph: &'a Graph, output: &'a str) -> Option<&'a str> {
    let mut name = output;
    while let Some(node) = graph.nodes.iter().find(|node| node.outputs.iter().any(|output| output == name)) {
        name = node.inputs.first().filter(|_| node.op == "Identity")?;
    }
    graph.inputs.iter().any(|input| input.name == name).then_some(name)
}

fn floats(tensor: &Tensor) -> Result<Vec<f32>, String> {
    if tensor.element != FLOAT {
        return Err(format!("arithmetic on elements of type {} is not supported", tensor.element.0));
    }
    Ok(tensor.bytes.chunks_exact(4).map(|bytes| f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])).collect())
}

fn of_floats(dims: Vec<usize>, values: impl IntoIterator<Item = f32>) -> Tensor {
    Tensor { element: FLOAT, dims, bytes: values.into_iter().flat_map(f32::to_le_bytes).collect() }
}

fn map(tensor: &Tensor, function: impl Fn(f32) -> f32) -> Result<Tensor, String> {
    Ok(of_floats(tensor.dims.clone(), floats(tensor)?.into_iter().map(function)))
}

fn rounded(tensor: Tensor, precision: &Precision) -> Result<Tensor, String> {
    match (tensor.element == FLOAT, precision) {
        (true, Precision { fp16: true, .. }) => map(&tensor, |x| half::f16::from_f32(x).to_f32()),
        (true, Precision { bf16: true, .. }) => map(&tensor, |x| half::bf16::from_f32(x).to_f32()),
        _ => Ok(tensor),
    }
}

fn narrow(name: Option<&String>, tensor: &Tensor, precision: &Precision) -> Result<Tensor, String> {
    match name.and_then(|name| precision.ranges.get(name)) {
        Some(&range) if range > 0.0 => {
            map(tensor, |x| (x * 127.0 / range).round().clamp(-128.0, 127.0) * range / 127.0)
        }
        _ => Ok(tensor.clone()),
    }
}

/// Both shapes with the same rank, and the shape they broadcast to.
fn broadcast(a: &[usize], b: &[usize]) -> Result<Vec<usize>, String> {
    let rank = a.len().max(b.len());
    let at = |dims: &[usize], axis: usize| (axis + dims.len()).checked_sub(rank).map_or(1, |axis| dims[axis]);
    (0..rank)
        .map(|axis| match (at(a, axis), at(b, axis)) {
            (x, y) if x == y || y == 1 => Ok(x),
            (1, y) => Ok(y),
            _ => Err(format!("shapes {a:?} and {b:?} cannot be broadcast")),
        })
        .collect()
}

/// The position of a broadcast tensor's element for one index of the result.
fn position(dims: &[usize], whole: &[usize], mut index: usize) -> usize {
    let (mut at, mut stride) = (0, 1);
    for axis in (0..whole.len()).rev() {
        let coordinate = index % whole[axis];
        index /= whole[axis];
        if let Some(own) = (axis + dims.len()).checked_sub(whole.len()) {
            at += if dims[own] == 1 { 0 } else { coordinate * stride };
            stride *= dims[own];
        }
    }
    at
}

fn zip(a: &Tensor, b: &Tensor, function: impl Fn(f32, f32) -> f32) -> Result<Tensor, String> {
    let dims = broadcast(&a.dims, &b.dims)?;
    let (x, y) = (floats(a)?, floats(b)?);
    let elements = dims.iter().product::<usize>();
    let values: Vec<f32> = (0..elements)
        .map(|index| function(x[position(&a.dims, &dims, index)], y[position(&b.dims, &dims, index)]))
        .collect();
    Ok(of_floats(dims, values))
}

fn matmul(a: &Tensor, b: &Tensor) -> Result<Tensor, String> {
    let ([a_batch @ .., rows, inner], [b_batch @ .., b_inner, columns]) = (a.dims.as_slice(), b.dims.as_slice()) else {
        return Err("MatMul of a vector is not supported".into());
    };
    if inner != b_inner {
        return Err(format!("MatMul of mismatched shapes {:?} and {:?}", a.dims, b.dims));
    }
    let batch = broadcast(a_batch, b_batch)?;
    let (x, y) = (floats(a)?, floats(b)?);
    let mut values = Vec::new();
    for index in 0..batch.iter().product() {
        let x = &x[position(a_batch, &batch, index) * rows * inner..];
        let y = &y[position(b_batch, &batch, index) * inner * columns..];
        for row in 0..*rows {
            for column in 0..*columns {
                values.push((0..*inner).map(|k| x[row * inner + k] * y[k * columns + column]).sum::<f32>());
            }
        }
    }
    Ok(of_floats([batch.as_slice(), &[*rows, *columns]].concat(), values))
}

fn gemm(node: &Node, a: &Tensor, b: &Tensor, c: Option<&Tensor>) -> Result<Tensor, String> {
    let number = |name: &str, default: f32| node.numbers.get(name).copied().unwrap_or(default);
    let turned = |name: &str, matrix: &Tensor| if number(name, 0.0) == 0.0 { Ok(matrix.clone()) } else { turn(matrix) };
    let product = matmul(&turned("transA", a)?, &turned("transB", b)?)?;
    let product = map(&product, |x| x * number("alpha", 1.0))?;
    c.map_or(Ok(product.clone()), |c| zip(&product, &map(c, |x| x * number("beta", 1.0))?, |x, y| x + y))
}

fn turn(matrix: &Tensor) -> Result<Tensor, String> {
    let [rows, columns] = matrix.dims[..] else { return Err("a transposed operand of Gemm is not a matrix".into()) };
    let values = floats(matrix)?;
    let at = |index: usize| values[index % rows * columns + index / rows];
    Ok(of_floats(vec![columns, rows], (0..rows * columns).map(at)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_and_columns_broadcast() {
        let column = of_floats(vec![2, 1], [1.0, 2.0]);
        let row = of_floats(vec![3], [10.0, 20.0, 30.0]);
        let sum = zip(&column, &row, |a, b| a + b).unwrap();
        assert_eq!(sum, of_floats(vec![2, 3], [11.0, 21.0, 31.0, 12.0, 22.0, 32.0]));
        assert!(zip(&of_floats(vec![2], [0.0; 2]), &row, |a, _| a).is_err());
    }

    #[test]
    fn gemm_turns_scales_and_adds() {
        let numbers = [("transB".to_owned(), 1.0), ("alpha".to_owned(), 2.0), ("beta".to_owned(), 0.5)].into();
        let node = Node { op: "Gemm".into(), numbers, ..Node::default() };
        let a = of_floats(vec![1, 2], [1.0, 10.0]);
        let b = of_floats(vec![3, 2], [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        let c = of_floats(vec![3], [2.0, 4.0, 6.0]);
        assert_eq!(gemm(&node, &a, &b, Some(&c)).unwrap(), of_floats(vec![1, 3], [43.0, 88.0, 133.0]));
    }

    #[test]
    fn a_batch_of_matrices_is_multiplied_by_one() {
        let a = of_floats(vec![2, 1, 2], [1.0, 2.0, 3.0, 4.0]);
        let b = of_floats(vec![2, 1], [10.0, 1.0]);
        assert_eq!(matmul(&a, &b).unwrap(), of_floats(vec![2, 1, 1], [12.0, 34.0]));
    }
}
