//! Converts elementwise operations and reductions to the few forms that cuDNN's engines support.
//!
//! Axes have no meaning for such operations: they can be put in the order they have in memory, and those that are
//! contiguous in every tensor can be merged. Three axes or fewer then become `[batch, row, column]`, more become
//! channels-last data; with a reduction, two axes remain as rows and channels.

use std::ops::Range;

use crate::graph::{Graph, Operation, View};
use crate::safe::Setting;
use crate::sys::{AttributeName, DescriptorType as D};

/// The operations in canonical form; `None` if they have none.
pub fn canonical(graph: &Graph, range: &Range<usize>) -> Option<Vec<Operation>> {
    let operations = &graph.operations[range.clone()];
    let kinds = [D::OPERATION_POINTWISE_DESCRIPTOR, D::OPERATION_REDUCTION_DESCRIPTOR];
    if operations.iter().any(|operation| !kinds.contains(&operation.kind)) {
        return None;
    }
    // Axes along which an operation generates indices stay as they are.
    let numbered: Vec<usize> = operations.iter().filter_map(axis_of).collect();
    let views: Vec<&View> = operations.iter().flat_map(Operation::views).map(|(_, view)| view).collect();
    let rank = views.first()?.dims.len();
    if views.iter().any(|view| view.dims.len() != rank) {
        return None;
    }
    let full: Vec<i64> = (0..rank).map(|axis| views.iter().map(|view| view.dims[axis]).max().unwrap_or(1)).collect();
    let is_bound = |view: &View| graph.is_bound(view.tensor, range);
    let widest = |view: &&&View| view.dims == full;
    let bound = views.iter().filter(widest).find(|view| is_bound(view));
    let reference = bound.or_else(|| views.iter().find(widest))?;
    let mut order: Vec<usize> = (0..rank).filter(|&axis| full[axis] > 1).collect();
    order.sort_by_key(|&axis| std::cmp::Reverse((reference.strides[axis], full[axis])));

    let mut groups: Vec<Vec<usize>> = Vec::new();
    for axis in order {
        let joins = |last: usize| {
            !numbered.contains(&last)
                && !numbered.contains(&axis)
                && views.iter().all(|view| match (view.dims[last] == 1, view.dims[axis] == 1) {
                    (true, true) => true,
                    (false, false) => !is_bound(view) || view.strides[last] == view.dims[axis] * view.strides[axis],
                    _ => false,
                })
        };
        match groups.last_mut() {
            Some(group) if group.last().is_some_and(|&last| joins(last)) => group.push(axis),
            _ => groups.push(vec![axis]),
        }
    }
    let reduces = operations.iter().any(|operation| operation.kind == D::OPERATION_REDUCTION_DESCRIPTOR);
    let places = places(groups.len(), reduces)?;
    let form = |view: &View| reshaped(view, &groups, &places, is_bound(view));
    let mut formed = operations.to_vec();
    for operation in &mut formed {
        if let Some(axis) = axis_of(operation) {
            let group = groups.iter().position(|group| group.contains(&axis));
            let place = places.iter().position(|place| *place == group)?;
            set_axis(operation, place);
        }
        for (_, view) in operation.reads.iter_mut().chain(&mut operation.writes) {
            *view = form(view);
        }
    }
    Some(formed)
}

/// The axis along which an operation generates indices.
fn axis_of(operation: &Operation) -> Option<usize> {
    let settings = operation.parameters.iter().flat_map(|parameters| &parameters.settings);
    settings.into_iter().find_map(|(name, value)| match value {
        Setting::I64s(axes) if *name == AttributeName::POINTWISE_AXIS => usize::try_from(*axes.first()?).ok(),
        _ => None,
    })
}

fn set_axis(operation: &mut Operation, axis: usize) {
    let settings = operation.parameters.iter_mut().flat_map(|parameters| &mut parameters.settings);
    for (_, value) in settings.filter(|(name, _)| *name == AttributeName::POINTWISE_AXIS) {
        *value = Setting::I64s(vec![axis as i64]);
    }
}

/// Which group of axes goes to each position of the canonical form, with the outermost as 0; `None` is an axis of
/// extent 1.
fn places(groups: usize, reduces: bool) -> Option<Vec<Option<usize>>> {
    Some(match (groups, reduces) {
        (0, true) => vec![None; 4],
        (1, true) => vec![None, Some(0), None, None],
        (2, true) => vec![Some(0), Some(1), None, None],
        (_, true) => return None,
        (0..=3, false) => (0..3).map(|place| (place + groups).checked_sub(3)).collect(),
        // Channels last: the innermost group goes to the channels' position.
        (4..=5, false) => std::iter::once(0).chain([groups - 1]).chain(1..groups - 1).map(Some).collect(),
        _ => return None,
    })
}

fn reshaped(view: &View, groups: &[Vec<usize>], places: &[Option<usize>], is_bound: bool) -> View {
    let extent = |group: usize| groups[group].iter().map(|&axis| view.dims[axis]).product::<i64>();
    let packed = |group: usize| (group + 1..groups.len()).map(extent).product::<i64>();
    let stride = |group: usize| match groups[group].last() {
        Some(&axis) if is_bound => view.strides[axis],
        _ => packed(group),
    };
    let dims: Vec<i64> = places.iter().map(|place| place.map_or(1, extent)).collect();
    // The stride of an axis of extent 1 spans all the others.
    let reach = dims.iter().product::<i64>().max(1);
    let strides = places.iter().map(|place| match *place {
        Some(group) if extent(group) > 1 => stride(group),
        Some(group) => packed(group),
        None => reach,
    });
    let strides = strides.collect();
    View { tensor: view.tensor, dims, strides }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::{Storage, Tensor};
    use crate::sys::DataType;

    fn graph(views: [(&[i64], &[i64]); 3], kind: D) -> Graph {
        let tensor = Tensor {
            uid: Some(1),
            home: Storage::Device,
            data_type: DataType::FLOAT,
            alignment: 16,
            bytes: None,
            is_boolean: false,
        };
        let view = |tensor: usize| View { tensor, dims: views[tensor].0.to_vec(), strides: views[tensor].1.to_vec() };
        let operation = Operation {
            kind,
            parameters: None,
            settings: Vec::new(),
            reads: vec![
                (AttributeName::OPERATION_POINTWISE_XDESC, view(0)),
                (AttributeName::OPERATION_POINTWISE_BDESC, view(1)),
            ],
            writes: vec![(AttributeName::OPERATION_POINTWISE_YDESC, view(2))],
        };
        Graph { tensors: vec![tensor; 3], operations: vec![operation], is_attention: false }
    }

    fn forms(graph: &Graph) -> Option<Vec<(Vec<i64>, Vec<i64>)>> {
        let formed = canonical(graph, &(0..1))?;
        Some(formed[0].views().map(|(_, view)| (view.dims.clone(), view.strides.clone())).collect())
    }

    #[test]
    fn a_bias_over_channels_first_data_becomes_three_axes() {
        let data: (&[i64], &[i64]) = (&[2, 3, 4, 5], &[60, 20, 5, 1]);
        let bias: (&[i64], &[i64]) = (&[1, 3, 1, 1], &[3, 1, 1, 1]);
        let forms = forms(&graph([data, bias, data], D::OPERATION_POINTWISE_DESCRIPTOR)).unwrap();
        assert_eq!(forms[0], (vec![2, 3, 20], vec![60, 20, 1]));
        assert_eq!(forms[1].0, [1, 3, 1]);
        assert_eq!(forms[1].1[1], 1);
        assert_eq!(forms[2], forms[0]);
    }

    #[test]
    fn packed_data_is_one_row_whatever_its_layout() {
        let data: (&[i64], &[i64]) = (&[2, 3, 4, 5], &[60, 1, 15, 3]);
        let forms = forms(&graph([data; 3], D::OPERATION_POINTWISE_DESCRIPTOR)).unwrap();
        assert_eq!(forms[0], (vec![1, 1, 120], vec![120, 120, 1]));
    }

    #[test]
    fn gaps_are_not_merged() {
        let gapped: (&[i64], &[i64]) = (&[2, 3, 4], &[20, 6, 1]);
        let packed: (&[i64], &[i64]) = (&[2, 3, 4], &[12, 4, 1]);
        let forms = forms(&graph([gapped, packed, packed], D::OPERATION_POINTWISE_DESCRIPTOR)).unwrap();
        assert_eq!(forms[0], (vec![2, 3, 4], vec![20, 6, 1]));
        assert_eq!(forms[1], (vec![2, 3, 4], vec![12, 4, 1]));
    }

    #[test]
    fn rows_are_reduced_as_channels_of_rows() {
        let data: (&[i64], &[i64]) = (&[2, 3, 4, 5], &[60, 20, 5, 1]);
        let rows: (&[i64], &[i64]) = (&[2, 3, 1, 1], &[3, 1, 1, 1]);
        let found = forms(&graph([data, data, rows], D::OPERATION_REDUCTION_DESCRIPTOR)).unwrap();
        assert_eq!(found[0].0, [6, 20, 1, 1]);
        assert_eq!((found[2].0.clone(), found[2].1[0]), (vec![6, 1, 1, 1], 1));
        let middle: (&[i64], &[i64]) = (&[2, 1, 4, 5], &[20, 20, 5, 1]);
        assert_eq!(forms(&graph([data, data, middle], D::OPERATION_REDUCTION_DESCRIPTOR)), None);
    }
}
