//! Groups of nodes that can be fused: no path may leave a group and come back to it.
use std::collections::HashMap;

use crate::Result;
use crate::view::Node;

/// For each node, the earlier nodes that produce its inputs. `nodes` are in the graph's order.
///
/// # Errors
/// The runtime could not describe a node.
pub fn makers(nodes: &[Node<'_>]) -> Result<Vec<Vec<usize>>> {
    let mut maker: HashMap<&str, usize> = HashMap::new();
    let mut all = Vec::with_capacity(nodes.len());
    for (at, node) in nodes.iter().enumerate() {
        let mut from = Vec::new();
        for input in node.inputs()?.into_iter().flatten().chain(node.implicit_inputs()?) {
            from.extend(maker.get(input.name()?));
        }
        from.sort_unstable();
        from.dedup();
        all.push(from);
        for output in node.outputs()?.into_iter().flatten() {
            maker.insert(output.name()?, at);
        }
    }
    Ok(all)
}

/// For each node, how many times a path to it has re-entered the taken nodes from nodes that are not taken.
///
/// Taken nodes of one level, or any connected subset of them, can be fused: a path that leaves them re-enters on a
/// higher level.
pub fn levels(makers: &[Vec<usize>], taken: &[bool]) -> Vec<usize> {
    let mut levels = vec![0; makers.len()];
    for (at, from) in makers.iter().enumerate() {
        let level = from.iter().map(|&from| levels[from] + usize::from(taken[at] && !taken[from]));
        levels[at] = level.max().unwrap_or(0);
    }
    levels
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_rises_where_a_path_comes_back() {
        // 0 → 1 (not taken) → 2, and 0 → 2
        assert_eq!(levels(&[vec![], vec![0], vec![0, 1]], &[true, false, true]), [0, 0, 1]);
        // Two branches, one of which leaves.
        let makers = [vec![], vec![0], vec![0], vec![1, 2]];
        assert_eq!(levels(&makers, &[true, true, false, true]), [0, 0, 0, 1]);
        assert_eq!(levels(&makers, &[true; 4]), [0; 4]);
    }
}
