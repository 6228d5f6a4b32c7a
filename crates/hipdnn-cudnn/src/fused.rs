//! What cuDNN's fused attention requires but does not check.
//!
//! Its kernels move queries, keys, values and results 16 bytes at a time: if these are not aligned, results are wrong
//! or the device faults. Some releases give wrong results anyway. cuDNN's own frontend rejects both, and so does this
//! module.

use hipdnn_abi::{Fault, Outcome};

use crate::graph::{Graph, Operation, Storage, View};
use crate::sys::{AttributeName as A, DataType, DescriptorType as D, PointwiseMode};
use crate::translate;

/// 9.10.0 and 9.10.1 give wrong results, and earlier releases expect other numbers in masks.
const LEAST_RELEASE: usize = 91_002;
/// The release that is wrong if queries see a limited number of keys before them and all after.
const WRONG_BOUNDS: usize = 91_400;
/// How many bytes kernels move at a time.
const MOVED_BYTES: i64 = 16;

/// Rejects attention that a release of cuDNN would accept but compute wrongly.
pub fn trusted(graph: &Graph, release: usize) -> Outcome {
    let refuse = |reason: &str| Err(Fault::unsupported(reason));
    if release < LEAST_RELEASE {
        return refuse("cuDNN computes attention correctly only since 9.10.2");
    }
    let mode = |operation: &Operation| operation.code(A::POINTWISE_MODE).map(PointwiseMode);
    let compares = |wanted: PointwiseMode| graph.operations.iter().any(|operation| mode(operation) == Some(wanted));
    if release == WRONG_BOUNDS && compares(PointwiseMode::CMP_GT) && !compares(PointwiseMode::CMP_GE) {
        return refuse("cuDNN 9.14.0 applies the bounds of attention incorrectly");
    }
    let products = graph.operations.iter().filter(|operation| operation.kind == D::OPERATION_MATMUL_DESCRIPTOR);
    for (at, product) in products.enumerate() {
        for (name, view) in product.views().filter(|(_, view)| is_given(graph, view)) {
            // Keys are transposed, so their rows are columns.
            let inner = if at == 0 && *name == A::OPERATION_MATMUL_BDESC { 2 } else { 3 };
            if !matches!(graph.tensors[view.tensor].data_type, DataType::HALF | DataType::BFLOAT16) {
                return refuse("cuDNN supports attention in half precision and bfloat16 only");
            }
            if !is_movable(graph, view, inner) {
                return refuse("cuDNN's attention requires rows that are multiples of 16 bytes");
            }
        }
    }
    for operation in graph.operations.iter().filter(|operation| mode(operation) == Some(PointwiseMode::ADD)) {
        let Some((_, sum)) = operation.writes.first() else { continue };
        for (_, mask) in operation.reads.iter().filter(|(_, view)| is_given(graph, view)) {
            if mask.dims[2..] != sum.dims[2..] {
                return refuse("cuDNN's attention requires masks with a row for each query");
            }
            if !is_movable(graph, mask, 3) {
                return refuse("cuDNN's attention requires masks whose rows are multiples of 16 bytes");
            }
        }
    }
    Ok(())
}

fn is_given(graph: &Graph, view: &View) -> bool {
    graph.tensors[view.tensor].home == Storage::Device
}

/// True if the rows along an axis are contiguous and start at multiples of 16 bytes.
fn is_movable(graph: &Graph, view: &View, inner: usize) -> bool {
    let tensor = &graph.tensors[view.tensor];
    let bytes = translate::bytes_of(tensor.data_type).map_or(1, |bytes| bytes as i64);
    let fits = |elems: i64| elems * bytes % MOVED_BYTES == 0;
    let mut outer = (0..view.dims.len()).filter(|&axis| axis != inner && view.dims[axis] > 1);
    tensor.alignment % MOVED_BYTES == 0
        && view.strides[inner] == 1
        && fits(view.dims[inner])
        && outer.all(|axis| view.strides[axis] > 0 && fits(view.strides[axis]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::Parameters;

    const RELEASE: usize = 91_900;

    /// Two heads of 16 elements with 32 tokens each: queries, keys and values in their layout, and a mask.
    struct Sketch {
        strides: [[i64; 4]; 3],
        data_type: DataType,
        alignment: i64,
        mask: Option<([i64; 4], [i64; 4])>,
    }

    const BY_TOKENS: [i64; 4] = [1024, 16, 32, 1];

    impl Default for Sketch {
        fn default() -> Self {
            Self { strides: [BY_TOKENS; 3], data_type: DataType::HALF, alignment: 16, mask: None }
        }
    }

    impl Sketch {
        fn refusal(&self, release: usize) -> Option<String> {
            trusted(&self.graph(), release).err().map(|fault| fault.text)
        }

        fn graph(&self) -> Graph {
            let mut graph = Graph { is_attention: true, ..Graph::default() };
            let dims = vec![1, 2, 32, 16];
            let [q, k, v] = self.strides.map(|strides| {
                let view = View { tensor: 0, dims: dims.clone(), strides: strides.to_vec() };
                let view = graph.add(Some(1), Storage::Device, self.data_type, view);
                graph.tensors[view.tensor].alignment = self.alignment;
                view
            });
            let turned = View {
                dims: vec![1, 2, 16, 32],
                strides: [0, 1, 3, 2].map(|axis: usize| k.strides[axis]).to_vec(),
                ..k
            };
            let scores = graph.add_inside(DataType::FLOAT, &[1, 2, 32, 32], &[0, 1, 2, 3]);
            let o = View { tensor: 0, dims, strides: BY_TOKENS.to_vec() };
            let o = graph.add(Some(4), Storage::Device, self.data_type, o);
            graph.operations.push(product(&q, &turned, &scores));
            if let Some((dims, strides)) = self.mask {
                let mask = View { tensor: 0, dims: dims.to_vec(), strides: strides.to_vec() };
                let mask = graph.add(Some(5), Storage::Device, self.data_type, mask);
                let sum =
                    Operation::pointwise(PointwiseMode::ADD, &[&scores, &mask], &scores, DataType::FLOAT, Vec::new());
                graph.operations.push(sum);
            }
            graph.operations.push(product(&scores, &v, &o));
            graph
        }
    }

    fn product(a: &View, b: &View, c: &View) -> Operation {
        Operation {
            kind: D::OPERATION_MATMUL_DESCRIPTOR,
            parameters: None::<Parameters>,
            settings: Vec::new(),
            reads: vec![(A::OPERATION_MATMUL_ADESC, a.clone()), (A::OPERATION_MATMUL_BDESC, b.clone())],
            writes: vec![(A::OPERATION_MATMUL_CDESC, c.clone())],
        }
    }

    #[test]
    fn interleaved_consecutive_and_cached_heads_are_accepted() {
        assert_eq!(Sketch::default().refusal(RELEASE), None);
        let by_heads = [1024, 512, 16, 1];
        assert_eq!(Sketch { strides: [by_heads; 3], ..Sketch::default() }.refusal(RELEASE), None);
        let cache = [4096, 2048, 16, 1];
        assert_eq!(Sketch { strides: [BY_TOKENS, cache, cache], ..Sketch::default() }.refusal(RELEASE), None);
        assert_eq!(Sketch { data_type: DataType::BFLOAT16, ..Sketch::default() }.refusal(RELEASE), None);
    }

    #[test]
    fn rows_misaligned_to_16_bytes_are_rejected() {
        for at in 0..3 {
            for wrong in [[1024, 16, 36, 1], [1024, 20, 32, 1], [1024, 512, 1, 32], [1024, 16, 0, 1]] {
                let mut sketch = Sketch::default();
                sketch.strides[at] = wrong;
                assert!(sketch.refusal(RELEASE).is_some_and(|text| text.contains("16 bytes")), "{at} {wrong:?}");
            }
        }
        assert!(Sketch { alignment: 8, ..Sketch::default() }.refusal(RELEASE).is_some());
    }

    #[test]
    fn masks_have_all_rows() {
        let with = |dims, strides| Sketch { mask: Some((dims, strides)), ..Sketch::default() }.refusal(RELEASE);
        assert_eq!(with([1, 1, 32, 32], [1024, 1024, 32, 1]), None);
        assert_eq!(with([1, 2, 32, 32], [2048, 1024, 32, 1]), None);
        assert!(with([1, 1, 1, 32], [32, 32, 32, 1]).is_some());
        assert!(with([1, 1, 32, 1], [32, 32, 1, 1]).is_some());
        assert!(with([1, 1, 32, 32], [1056, 1056, 33, 1]).is_some());
    }

    #[test]
    fn single_precision_and_old_releases_are_refused() {
        assert!(Sketch { data_type: DataType::FLOAT, ..Sketch::default() }.refusal(RELEASE).is_some());
        assert!(Sketch::default().refusal(91_001).is_some_and(|text| text.contains("9.10.2")));
        assert_eq!(Sketch::default().refusal(91_002), None);
    }
}
