//! Options of the hip backend, `ep.hip.*`.

use super::backend::{BackendOption, BackendTable};
use super::prefix::Namespace;
use super::slot::Kind;
use super::trust::SetBy;

macro_rules! hip_options {
    ($($constant:ident: $name:literal $(or $old:literal)*, $kind:expr, $set_by:ident, $default:literal, $meaning:literal;)*) => {
        $(#[doc = concat!("`ep.hip.", $name, "`: ", $meaning, ".")] pub const $constant: &str = concat!("ep.hip.", $name);)*

        const ROWS: &[BackendOption] = &[$(BackendOption {
            name: $name,
            old_names: &[$($old),*],
            kind: $kind,
            set_by: SetBy::$set_by,
            default: $default,
            meaning: $meaning,
            environment: &[],
        }),*];
    };
}

const AUTO_ON_OFF: Kind = Kind::Choice(&["auto", "on", "off"]);

hip_options! {
    HIPDNN: "hipdnn", AUTO_ON_OFF, Anyone, "`auto`", "which steps may run on hipDNN ([engine-libraries.md](engine-libraries.md#hipdnn))";
    BLASLT: "blaslt", Kind::Choice(&["auto", "off"]), Anyone, "`auto`", "on a GPU: `off` keeps matrix products from BLASLt, so that hipDNN or our own kernels run them ([engine-libraries.md](engine-libraries.md#what-runs-a-step))";
    REPLAY: "replay" or "graph", AUTO_ON_OFF, Anyone, "`auto`", "on a GPU: `auto` captures a plan and replays it once its addresses repeat, `on` also captures every new set of addresses, `off` launches each kernel";
    GRAPH_CAPTURE: "graph_capture", Kind::Switch, Anyone, "`0`", "`1` lets ONNX Runtime capture runs and replay them ([engine-captures.md](engine-captures.md))";
    TF32: "tf32", Kind::Switch, Anyone, "`0`", "`1` lets a GPU round the operands of single-precision matrix products to TF32";
    TUNE: "tune", Kind::Choice(&["auto", "on", "again", "off"]), Anyone, "`auto`", "on a GPU: `auto` uses existing measurements, `on` measures steps without one, `again` measures all steps, `off` ignores measurements ([engine-libraries.md](engine-libraries.md#tuning))";
    LAST_LOGITS: "last_logits", Kind::Choice(&["on", "alone", "off"]), Anyone, "`off`", "`on`: the application reads only the logits of each sequence's last token, so the other rows are not computed and are zero. `alone` leaves those rows out of the output ([engine-decoders.md](engine-decoders.md#only-the-last-logits))";
    STATIC_PAD_SEQ: "static_pad_seq", Kind::Switch, Anyone, "that of `ep.migraphx.static_pad_seq`, which ONNX Runtime GenAI sets", "`1`: the application pads attention masks to a fixed width, so the length of a sequence is taken from the mask's values ([engine-decoders.md](engine-decoders.md#longrope))";
    DISABLE_PASSES: "disable_passes", Kind::List, Anyone, "", "passes and stages to skip, by name ([engine.md](engine.md))";
    MODEL_ARCH: "model_arch", Kind::Hint, Anyone, "", "the type of the model, such as llama, for messages; routing reads the provider's option of this name";
    CPU_CONTROL_FLOW: "cpu_control_flow", Kind::Switch, Anyone, "`0`", "`1` keeps If, Loop and Scan on the CPU provider, and runs only their bodies on the device";
    DEVICE_ID: "device_id", Kind::Number, Anyone, "", "HIP ordinal of the device; must match the device that ONNX Runtime selected";
    CACHE_DIR: "cache_dir", Kind::Path, Trusted, "`AMDGPU_EP_CACHE_DIR`, then the user's cache folder", "folder for compiled kernels and measurements; same as the provider's `cache_dir`";
    DUMP_DIR: "dump_dir", Kind::Path, Trusted, "", "folder for text files, one for each stage of each partition";
    REPORT_DIR: "report_dir", Kind::Path, Trusted, "", "folder for the reports `explain`, `memory` and `progress`, one file each ([reports.md](reports.md))";
    EXPLAIN_FILE: "explain_file", Kind::Path, Trusted, "", "file for the report [explain](reports.md#explain): which nodes were claimed, why others were declined, what runs each step";
    PROGRESS_FILE: "progress_file", Kind::Path, Trusted, "", "on a GPU: file for the report [progress](reports.md#progress): how many kernels are compiled and how many steps are measured";
    MEMORY_FILE: "memory_file", Kind::Path, Trusted, "", "file for the report [memory](reports.md#memory): how much memory was used and for what";
    PROFILE_FILE: "profile_file", Kind::Path, Trusted, "", "file for the report [profile](reports.md#profile): how long each step of a run took; on a GPU, device events measure it. Slows runs down";
}

/// Every option of the hip backend.
pub static TABLE: BackendTable = BackendTable { namespace: Namespace::Hip, rows: ROWS, ignored: &[], old_prefix: None };
