//! Copies between tensors with different layouts, as contiguous byte ranges.

/// The strides, in elements, of a dense row-major tensor.
pub(super) fn row_major(lengths: &[usize]) -> Vec<usize> {
    let mut strides = vec![1; lengths.len()];
    for axis in (1..lengths.len()).rev() {
        strides[axis - 1] = strides[axis] * lengths[axis];
    }
    strides
}

/// Copies a box of elements from the layout `from` to the layout `to` (strides in elements). Calls `copy` with target
/// offset, source offset and length in bytes for each contiguous range.
///
/// # Errors
/// The first error of `copy`.
pub(super) fn each_run<E>(
    lengths: &[usize],
    to: &[usize],
    from: &[usize],
    element_bytes: usize,
    mut copy: impl FnMut(usize, usize, usize) -> Result<(), E>,
) -> Result<(), E> {
    if lengths.contains(&0) {
        return Ok(());
    }
    // The innermost axes that are dense on both sides form one contiguous range.
    let (mut outer, mut run) = (lengths.len(), 1);
    while outer > 0 && (lengths[outer - 1] == 1 || (to[outer - 1] == run && from[outer - 1] == run)) {
        run *= lengths[outer - 1];
        outer -= 1;
    }
    let mut index = vec![0; outer];
    loop {
        let offset = |strides: &[usize]| index.iter().zip(strides).map(|(at, stride)| at * stride).sum::<usize>();
        copy(offset(to) * element_bytes, offset(from) * element_bytes, run * element_bytes)?;
        let Some(axis) = (0..outer).rev().find(|&axis| index[axis] + 1 < lengths[axis]) else { return Ok(()) };
        index[axis] += 1;
        index[axis + 1..].fill(0);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn runs(lengths: &[usize], to: &[usize], from: &[usize]) -> Vec<(usize, usize, usize)> {
        let mut all = Vec::new();
        let done: Result<(), ()> = each_run(lengths, to, from, 4, |to, from, bytes| {
            all.push((to, from, bytes));
            Ok(())
        });
        done.unwrap();
        all
    }

    #[test]
    fn equal_layouts_are_one_run() {
        assert_eq!(runs(&[2, 3], &[3, 1], &[3, 1]), [(0, 0, 24)]);
        assert_eq!(runs(&[], &[], &[]), [(0, 0, 4)], "a scalar");
        assert_eq!(runs(&[1], &[1], &[0]), [(0, 0, 4)], "a scalar of MIGraphX");
        assert_eq!(runs(&[2, 0], &[0, 1], &[0, 1]), []);
    }

    #[test]
    fn partial_rows_are_one_run_each() {
        assert_eq!(runs(&[2, 3], &[3, 1], &[5, 1]), [(0, 0, 12), (12, 20, 12)]);
        assert_eq!(runs(&[2, 2], &[2, 1], &[1, 2]).len(), 4, "transposed");
    }

    proptest! {
        #[test]
        fn every_element_arrives(lengths in prop::collection::vec(1..4_usize, 0..4), order in any::<[u32; 4]>()) {
            // The source has any axis order.
            let mut axes: Vec<usize> = (0..lengths.len()).collect();
            axes.sort_by_key(|&axis| order[axis]);
            let mut from = vec![0; lengths.len()];
            let mut stride = 1;
            for &axis in axes.iter().rev() {
                from[axis] = stride;
                stride *= lengths[axis];
            }
            let to = row_major(&lengths);
            let total: usize = lengths.iter().product();
            let mut target = vec![None; total];
            let done: Result<(), ()> = each_run(&lengths, &to, &from, 1, |to, from, bytes| {
                (0..bytes).for_each(|at| target[to + at] = Some(from + at));
                Ok(())
            });
            done.unwrap();
            for (place, found) in target.iter().enumerate() {
                let want: usize = to.iter().zip(&lengths).zip(&from).map(|((stride, length), from)| place / stride % length * from).sum();
                prop_assert_eq!(*found, Some(want));
            }
        }
    }
}
