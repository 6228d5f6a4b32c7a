//! Inserts copies into layouts that cuDNN supports, around operations whose tensors have other layouts.

use crate::graph::{Graph, Operation, Storage, View};
use crate::sys::{DataType, DescriptorType as D, PointwiseMode};

/// A graph with copies before and after the operations that need them.
pub fn arranged(graph: &Graph) -> Graph {
    let mut made = Graph { tensors: graph.tensors.clone(), ..Graph::default() };
    for operation in &graph.operations {
        let wanted = wanted(operation);
        let mut operation = operation.clone();
        for (at, (_, view)) in operation.reads.iter_mut().enumerate() {
            if let Some(order) = wanted.reads[at].as_ref().filter(|_| is_movable(graph, view)) {
                let copy = made.add_inside(made.tensors[view.tensor].data_type, &view.dims, order);
                made.operations.push(copied(graph, view, &copy));
                *view = copy;
            }
        }
        let mut after = Vec::new();
        for (at, (_, view)) in operation.writes.iter_mut().enumerate() {
            if let Some(order) = wanted.writes[at].as_ref().filter(|_| is_movable(graph, view)) {
                let copy = made.add_inside(made.tensors[view.tensor].data_type, &view.dims, order);
                after.push(copied(graph, &copy, view));
                *view = copy;
            }
        }
        made.operations.push(operation);
        made.operations.extend(after);
    }
    made
}

/// The order of axes that each tensor is copied into; `None` if it can stay.
struct AxisOrders {
    reads: Vec<Option<Vec<usize>>>,
    writes: Vec<Option<Vec<usize>>>,
}

fn wanted(operation: &Operation) -> AxisOrders {
    let choose = |choose: &dyn Fn(&View) -> Option<Vec<usize>>| AxisOrders {
        reads: operation.reads.iter().map(|(_, view)| choose(view)).collect(),
        writes: operation.writes.iter().map(|(_, view)| choose(view)).collect(),
    };
    match operation.kind {
        D::OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR
        | D::OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR
        | D::OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR
        | D::OPERATION_RESAMPLE_FWD_DESCRIPTOR
        | D::OPERATION_RESAMPLE_BWD_DESCRIPTOR => {
            let first: Vec<usize> = (0..operation.writes[0].1.dims.len()).collect();
            let last: Vec<usize> = std::iter::once(0).chain(2..first.len()).chain([1]).collect();
            let is_gradient = operation.kind == D::OPERATION_RESAMPLE_BWD_DESCRIPTOR;
            if !is_gradient && operation.views().all(|(_, view)| view.is_packed(&first)) {
                return choose(&|_| None);
            }
            choose(&|view| (!view.is_packed(&last)).then(|| last.clone()))
        }
        D::OPERATION_MATMUL_DESCRIPTOR => choose(&|view| {
            let rows: Vec<usize> = (0..view.dims.len()).collect();
            (!view.is_packed(&rows)).then_some(rows)
        }),
        D::OPERATION_POINTWISE_DESCRIPTOR => {
            let to = &operation.writes[0].1;
            let mut order: Vec<usize> = (0..to.dims.len()).collect();
            order.sort_by_key(|&axis| std::cmp::Reverse(to.strides[axis]));
            choose(&|view| (!view.is_packed(&order)).then(|| order.clone()))
        }
        _ => choose(&|_| None),
    }
}

/// True for tensors that can be copied: scalars are not in device memory, and cuDNN's booleans are not in memory at
/// all.
fn is_movable(graph: &Graph, view: &View) -> bool {
    let tensor = &graph.tensors[view.tensor];
    matches!(tensor.home, Storage::Device | Storage::Inside) && tensor.data_type != DataType::BOOLEAN
}

fn copied(graph: &Graph, from: &View, to: &View) -> Operation {
    let known = |view: &View| graph.tensors.get(view.tensor);
    let data_type = known(from).or_else(|| known(to)).map_or(DataType::FLOAT, |tensor| tensor.data_type);
    let compute = match data_type {
        DataType::DOUBLE | DataType::INT32 | DataType::INT64 => data_type,
        _ => DataType::FLOAT,
    };
    Operation::pointwise(PointwiseMode::IDENTITY, &[from], to, compute, Vec::new())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(dims: &[i64], strides: &[i64]) -> View {
        View { tensor: 0, dims: dims.to_vec(), strides: strides.to_vec() }
    }

    #[test]
    fn layouts_are_distinguished() {
        assert!(view(&[2, 3, 4], &[12, 4, 1]).is_packed(&[0, 1, 2]));
        assert!(view(&[2, 3, 1], &[3, 1, 77]).is_packed(&[0, 1, 2]), "an axis of extent 1 may have any stride");
        assert!(!view(&[2, 3, 4], &[24, 4, 1]).is_packed(&[0, 1, 2]), "a gap");
        assert!(!view(&[2, 3, 4], &[12, 1, 3]).is_packed(&[0, 1, 2]), "another order");
        assert!(view(&[2, 3, 4], &[12, 1, 3]).is_dense());
        assert!(!view(&[2, 3, 4], &[24, 4, 1]).is_dense());
    }
}
