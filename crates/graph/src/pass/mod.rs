//! Passes: rewrite a partition to fewer nodes, before any shape is known.
//!
//! They run once per partition, in the order of [`PASSES`]. Each returns how often it changed something; after each,
//! debug builds check the graph against its spec ([`Graph::verify`]) and name the pass that broke it. A caller can
//! watch the graph after each pass.
//!
//! A pattern takes only nodes whose results have no other reader, and leaves a node that keeps its parts: if the
//! pattern does not apply to the shapes of a run, the original parts are lowered.
use crate::Graph;

mod attention;
mod common;
mod dead_code;
mod gelu;
mod last_rows;
mod layer_norm;
mod links;
mod no_ops;
mod norm;
mod pattern;
mod products;
mod rms_norm;
mod selection;
mod silu;
#[cfg(test)]
pub(crate) mod testing;
mod tied_weights;
mod true_lengths;

pub use selection::Selection;
pub use true_lengths::padded_choice;

/// A pass.
pub struct Pass {
    /// The name in options, dumps and records.
    pub name: &'static str,
    /// Changes the graph and returns how often.
    run: fn(&mut Graph) -> usize,
}

/// All passes, in the order in which they run.
pub const PASSES: &[Pass] = &[
    Pass { name: "no-ops", run: no_ops::run },
    Pass { name: "common-subexpressions", run: common::run },
    Pass { name: "true-lengths", run: true_lengths::run },
    Pass { name: "dead-code", run: dead_code::run },
    Pass { name: "layer-norm", run: layer_norm::run },
    Pass { name: "rms-norm", run: rms_norm::run },
    Pass { name: "gelu", run: gelu::run },
    Pass { name: "silu", run: silu::run },
    Pass { name: "attention", run: attention::run },
    // Runs before `merged-products`, so that matrices that become unused are left out first.
    Pass { name: "tied-weights", run: tied_weights::run },
    Pass { name: "merged-products", run: products::run },
    Pass { name: "last-rows", run: last_rows::run },
];

/// How often a pass changed a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fired {
    /// The pass.
    pub pass: &'static str,
    /// How often.
    pub count: usize,
}

/// Runs the selected passes and returns those that changed something; `watch` sees the graph after each of these.
pub fn run(graph: &mut Graph, selection: &Selection, watch: &mut dyn FnMut(&Pass, &Graph)) -> Vec<Fired> {
    run_all(PASSES, graph, selection, watch)
}

fn run_all(
    passes: &[Pass],
    graph: &mut Graph,
    selection: &Selection,
    watch: &mut dyn FnMut(&Pass, &Graph),
) -> Vec<Fired> {
    let mut fired = Vec::new();
    for pass in passes.iter().filter(|pass| selection.runs(pass.name)) {
        let count = (pass.run)(graph);
        if count == 0 {
            continue;
        }
        if cfg!(debug_assertions) {
            let broken = graph.verify().err();
            debug_assert!(broken.is_none(), "pass {} broke the graph: {}", pass.name, broken.unwrap_or_default());
        }
        watch(pass, graph);
        fired.push(Fired { pass: pass.name, count });
    }
    fired
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DType;
    use crate::pass::testing::Build;

    #[test]
    fn passes_have_unique_names() {
        let names: Vec<&str> = Selection::names().collect();
        for (at, name) in names.iter().enumerate() {
            assert!(!names[..at].contains(name), "{name}");
        }
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "pass vandal broke the graph: output ValueId(1) is never produced")]
    fn a_pass_that_breaks_the_graph_is_named() {
        let mut build = Build::new();
        let x = build.input("x", DType::F32);
        let exp = build.node("Exp", &[x]);
        let vandal = |graph: &mut Graph| {
            graph.keep_nodes(|_| false);
            1
        };
        let passes = [Pass { name: "vandal", run: vandal }];
        run_all(&passes, &mut build.outputs(&[exp]), &Selection::default(), &mut |_, _| {});
    }

    #[test]
    fn only_selected_passes_run_and_each_change_is_seen() {
        let graph = || {
            let mut build = Build::new();
            let x = build.input("x", DType::F32);
            let same = build.node("Identity", &[x]);
            let exp = build.node("Exp", &[same]);
            build.outputs(&[exp])
        };
        let mut seen = Vec::new();
        let fired = run(&mut graph(), &Selection::default(), &mut |pass, graph| {
            seen.push((pass.name, graph.nodes().len()));
        });
        let once = |pass| Fired { pass, count: 1 };
        assert_eq!(fired, [once("no-ops"), once("dead-code")]);
        assert_eq!(seen, [("no-ops", 2), ("dead-code", 1)]);
        let (selection, unknown) = Selection::without("no-ops");
        assert!(unknown.is_empty());
        assert_eq!(run(&mut graph(), &selection, &mut |_, _| {}), []);
    }
}
