use super::*;

mod arbitrary;
mod inference;
mod rules;

use crate::sys::PointwiseMode;

fn graph() -> Graph {
    Graph::new(DataType::FLOAT, DataType::FLOAT).named("test")
}

#[test]
fn a_convolution_with_bias_and_relu_is_inferred_in_the_datas_layout() {
    let mut graph = graph();
    let x = graph.tensor(Tensor::new(&[2, 8, 16, 16]).channels_last());
    let w = graph.tensor(Tensor::new(&[12, 4, 3, 3]));
    let bias = graph.tensor(Tensor::new(&[1, 12, 1, 1]));
    let parameters = Convolution::new(2).padding(&[1, 1]).strides(&[2, 2]);
    let y = graph.convolution(x, w, parameters);
    let sum = graph.pointwise(PointwiseMode::ADD, &[y, bias]);
    let relu = graph.pointwise(PointwiseMode::RELU_FWD, &[sum]);
    graph.output(relu, Tensor::default());
    graph.validate().unwrap();
    assert_eq!(graph.extents(relu), (&[2, 12, 8, 8][..], &[768, 1, 96, 12][..]));
    assert_eq!([x, w, bias, y].map(|id| graph.uid(id)), [Some(0), Some(1), Some(2), Some(3)]);
}

#[test]
fn batches_of_a_product_repeat_where_they_divide() {
    let mut graph = graph();
    let a = graph.tensor(Tensor::new(&[6, 3, 5]));
    let b = graph.tensor(Tensor::new(&[2, 5, 7]));
    let c = graph.matmul(a, b);
    graph.validate().unwrap();
    assert_eq!(graph.extents(c).0, [6, 3, 7]);
}

#[test]
fn broken_rules_name_the_tensor() {
    type Build = fn(&mut Graph);
    let cases: [(Build, &str); 9] = [
        (|_| {}, "no operation"),
        (
            |graph| {
                let x = graph.tensor(Tensor::new(&[1, 5, 4, 4]).named("x"));
                let w = graph.tensor(Tensor::new(&[2, 3, 1, 1]).named("w"));
                graph.convolution(x, w, Convolution::new(2));
            },
            "tensor \"w\": 5 channels",
        ),
        (
            |graph| {
                let x = graph.tensor(Tensor::new(&[1, 3, 2, 2]).named("x"));
                let w = graph.tensor(Tensor::new(&[2, 3, 3, 3]));
                graph.convolution(x, w, Convolution::new(2));
            },
            "tensor \"x\": extent 2 of spatial axis 0",
        ),
        (
            |graph| {
                let x = graph.tensor(Tensor::new(&[1, 3, 2, 2]));
                let w = graph.tensor(Tensor::new(&[2, 3, 1, 1]));
                graph.convolution(x, w, Convolution::new(1));
            },
            "1 numbers for 2 spatial axes",
        ),
        (
            |graph| {
                let a = graph.tensor(Tensor::new(&[2, 3]));
                let b = graph.tensor(Tensor::new(&[4, 5]).named("b"));
                graph.matmul(a, b);
            },
            "tensor \"b\": 4 rows meet 3 columns",
        ),
        (
            |graph| {
                let a = graph.tensor(Tensor::new(&[2, 3]));
                graph.pointwise(PointwiseMode::ADD, &[a]);
            },
            "ADD reads 2 tensors and was given 1",
        ),
        (
            |graph| {
                let a = graph.tensor(Tensor::new(&[2, 1]));
                let b = graph.tensor(Tensor::new(&[1, 3]));
                graph.pointwise(PointwiseMode::ADD, &[a, b]);
            },
            "its strides must be given",
        ),
        (
            |graph| {
                let a = graph.tensor(Tensor::new(&[2, 3]).uid(7));
                let b = graph.tensor(Tensor::new(&[2, 3]).uid(7).named("twin"));
                graph.pointwise(PointwiseMode::ADD, &[a, b]);
            },
            "tensor \"twin\": uid 7",
        ),
        (
            |graph| {
                for _ in 0..2 {
                    let a = graph.tensor(Tensor::new(&[2, 3]));
                    graph.pointwise(PointwiseMode::ABS, &[a]);
                }
            },
            "no tensor in common",
        ),
    ];
    for (build, wanted) in cases {
        let mut graph = graph();
        build(&mut graph);
        let error = graph.validate().unwrap_err().to_string();
        assert!(error.contains(wanted), "{wanted:?} is not in {error:?}");
    }
}
