//! The session-config entries that the backend reads, and what the documents say of them.

/// One entry as the documents see it.
#[cfg(test)]
struct Row {
    key: &'static str,
    values: &'static str,
    default: &'static str,
    meaning: &'static str,
}

macro_rules! entries {
    ($($name:ident: $key:literal, $values:literal, $default:literal, $meaning:literal;)*) => {
        $(#[doc = concat!("`", $key, "`: ", $meaning, ".")] pub(crate) const $name: &str = $key;)*

        #[cfg(test)]
        const ROWS: &[Row] = &[$(Row { key: $key, values: $values, default: $default, meaning: $meaning }),*];
    };
}

entries! {
    HIPDNN: "ep.hip.hipdnn", "`auto`, `on`, `off`", "`auto`", "which steps are offered to hipDNN ([engine.md](engine.md#hipdnn))";
    GRAPH: "ep.hip.graph", "`auto`, `on`, `off`", "`auto`", "on a GPU: `auto` replays a plan as one captured graph once its addresses come back, `on` records it for every new set of addresses too, `off` launches kernel by kernel";
    GRAPH_CAPTURE: "ep.hip.graph_capture", "`0`, `1`", "`0`", "`1` lets ONNX Runtime capture runs and replay them ([engine.md](engine.md#captures))";
    TF32: "ep.hip.tf32", "`0`, `1`", "`0`", "`1` lets a GPU round the operands of single-precision products to TF32";
    TUNE: "ep.hip.tune", "`auto`, `on`, `again`, `off`", "`auto`", "on a GPU: `auto` uses what was measured before, `on` measures steps that were not, `again` measures all, `off` looks at nothing ([engine.md](engine.md#tuning))";
    CACHE_DIR: "ep.hip.cache_dir", "a path", "`AMDGPU_EP_CACHE_DIR`, then the user's cache folder", "where compiled kernels and measurements are kept; the umbrella's `cache_dir` is the same";
    LAST_LOGITS: "ep.hip.last_logits", "`on`, `alone`, `off`", "`off`", "`on` promises that of a decoder's logits only the row of each sequence's last token is read: the others are not computed, and come out as zeros. With `alone` they are left out ([engine.md](engine.md#decoders))";
    DISABLE_PASSES: "ep.hip.disable_passes", "names separated by commas", "", "passes and stages that shall not run ([engine.md](engine.md))";
    DUMP_DIR: "ep.hip.dump_dir", "a path", "", "a folder for text files, one for each stage of each partition";
    EXPLAIN_FILE: "ep.hip.explain_file", "a path", "", "a file to which the backend appends what it placed and why not the rest, as JSON lines ([cli.md](cli.md))";
    PROGRESS_FILE: "ep.hip.progress_file", "a path", "", "a file to which the backend appends how many kernels are compiled and how many steps are measured, as JSON lines; on a GPU";
    MEMORY_FILE: "ep.hip.memory_file", "a path", "", "a file to which the backend appends, when the session ends, how much memory it held and what for, as a line of JSON ([cli.md](cli.md#memory))";
    PROFILE_FILE: "ep.hip.profile_file", "a path", "", "a file to which each run of a partition appends what its steps took, as a line of JSON; on a GPU by events of the device. Runs are slower for it ([cli.md](cli.md))";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documented_options_are_the_real_ones() {
        let mut text = String::from("| Entry | Value | Default | Meaning |\n|---|---|---|---|\n");
        for Row { key, values, default, meaning } in ROWS {
            text += &format!("| `{key}` | {values} | {default} | {meaning} |\n");
        }
        testkit::held::hold("crates/backend-hip/src/entries.md", &text).unwrap();
    }

    #[test]
    fn keys_are_unique_and_ours() {
        for (index, row) in ROWS.iter().enumerate() {
            assert!(row.key.starts_with("ep.hip.") && ROWS[..index].iter().all(|other| other.key != row.key));
        }
    }
}
