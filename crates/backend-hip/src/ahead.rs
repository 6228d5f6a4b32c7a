//! Shapes to plan for when a session is created, so that the first runs need not wait for the compiler.
//!
//! A decoder's shapes are dynamic, but its axes have well-known names. It is planned for prompts and for one token of one
//! sequence. Kernels are chosen by the kind of a shape (one row, a few, many) rather than by exact lengths, so runs with
//! other lengths mostly find their kernels compiled.
use ort_ep::view::Dim;

/// The runs of a decoder to plan for: the tokens that are new, and all tokens so far. Lengths that packs of elements
/// divide choose other kernels than the rest do.
const RUNS: [(usize, usize); 4] = [(64, 64), (61, 61), (1, 64), (1, 65)];

/// The length of the key/value cache to plan for, which the caller allocates once.
const CACHE: usize = 256;

/// The input shapes to plan for: the one that the model fixes, those of a decoder, or none.
pub(crate) fn shapes(inputs: &[&[Dim]]) -> Vec<Vec<Vec<usize>>> {
    if let Some(fixed) = resolved(inputs, &|_| None) {
        return vec![fixed];
    }
    let mut axes = inputs.iter().copied().flatten();
    if !axes.any(|axis| matches!(axis, Dim::Symbol(name) if is_of_cache(name))) {
        return Vec::new();
    }
    RUNS.into_iter().filter_map(|run| resolved(inputs, &|axis| decoder_extent(axis, run))).collect()
}

/// The shapes with a number for every named axis; `None` if one has none.
fn resolved(inputs: &[&[Dim]], named: &dyn Fn(&str) -> Option<usize>) -> Option<Vec<Vec<usize>>> {
    let extent = |dim: &Dim| match dim {
        Dim::Fixed(extent) => usize::try_from(*extent).ok(),
        Dim::Symbol(name) => named(name),
        Dim::Unknown => None,
    };
    inputs.iter().map(|dims| dims.iter().map(extent).collect()).collect()
}

fn is_of_cache(axis: &str) -> bool {
    axis.contains("past")
}

/// The length of a decoder's axis in a run. Exporters name axes `batch_size`, `sequence_length`, `past_sequence_length`
/// and `total_sequence_length`, or similar.
fn decoder_extent(axis: &str, (new, total): (usize, usize)) -> Option<usize> {
    let has = |word: &str| axis.contains(word);
    match axis {
        _ if has("batch") => Some(1),
        _ if is_of_cache(axis) || has("max") => Some(CACHE),
        _ if has("total") => Some(total),
        _ if has("seq") => Some(new),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(names: &[&str]) -> Vec<Dim> {
        let dim = |name: &&str| name.parse().map_or_else(|_| Dim::Symbol((*name).to_owned()), Dim::Fixed);
        names.iter().map(dim).collect()
    }

    fn shapes_of(inputs: &[&[&str]]) -> Vec<Vec<Vec<usize>>> {
        let inputs: Vec<Vec<Dim>> = inputs.iter().map(|names| named(names)).collect();
        shapes(&inputs.iter().map(Vec::as_slice).collect::<Vec<_>>())
    }

    #[test]
    fn fixed_shapes_are_planned_as_they_are() {
        assert_eq!(shapes_of(&[&["2", "3"], &[]]), [vec![vec![2, 3], vec![]]]);
        assert_eq!(shapes_of(&[]), [Vec::<Vec<usize>>::new()]);
    }

    #[test]
    fn a_decoder_is_planned_for_prompts_and_tokens() {
        let ids = ["batch_size", "sequence_length"];
        let (mask, keys) = (["batch_size", "total_sequence_length"], ["batch_size", "4", "past_sequence_length", "16"]);
        let planned = shapes_of(&[&ids, &mask, &keys]);
        let of = |(new, total)| vec![vec![1, new], vec![1, total], vec![1, 4, CACHE, 16]];
        assert_eq!(planned, RUNS.map(of));
    }

    #[test]
    fn other_dynamic_shapes_are_left_to_the_first_run() {
        for inputs in [&["batch_size", "sequence_length"][..], &["rows", "4"], &["past_length", "width"]] {
            assert!(shapes_of(&[inputs]).is_empty(), "{inputs:?}");
        }
        let unknown = [Dim::Symbol("past".into()), Dim::Unknown];
        assert!(shapes(&[&unknown]).is_empty());
        assert!(shapes_of(&[&["-1"]]).is_empty());
    }
}
