//! The built-in rules for `auto`, as data.

use hip::DriverKind;
use options::TEXT_MODELS;

use super::{BackendName, Query};

/// A row. The first row that applies determines the order in which backends are tried.
pub(super) struct Rule {
    pub when: When,
    /// The backends to try. A row does not apply if its first backend does not exist on the platform.
    pub order: &'static [BackendName],
    /// Why the first backend is preferred.
    pub reason: &'static str,
}

/// The condition of a row.
pub(super) enum When {
    Driver(DriverKind),
    Framework(&'static str),
    /// The architecture starts with this prefix.
    Arch(&'static str),
    /// `model_arch` is a language model.
    LanguageModel,
    Always,
}

use BackendName::{DirectX, Hip, MiGraphX};

/// All rows, in order. hipgpu is not among them: it manages its own memory and is used only on request.
pub(super) const RULES: &[Rule] = &[
    Rule { when: When::Driver(DriverKind::Host), order: &[Hip], reason: "the host driver has no GPU" },
    Rule { when: When::Driver(DriverKind::Nvidia), order: &[Hip], reason: "the nvidia driver has no AMD GPU" },
    Rule { when: When::Framework("webnn"), order: &[DirectX, MiGraphX, Hip], reason: "WebNN uses DirectX" },
    // A decoder's sequence grows by one token per step. hip runs new lengths without compiling, and its attention reads
    // the cache in place; MIGraphX compiles for each shape and leaves GroupQueryAttention to the CPU.
    Rule { when: When::LanguageModel, order: &[Hip, MiGraphX, DirectX], reason: "a language model" },
    Rule {
        when: When::Arch("gfx117"),
        order: &[DirectX, MiGraphX, Hip],
        reason: "MIGraphX support for gfx117x is recent",
    },
    Rule { when: When::Arch("gfx11"), order: &[MiGraphX, Hip, DirectX], reason: "an RDNA3 GPU" },
    Rule { when: When::Arch("gfx12"), order: &[MiGraphX, Hip, DirectX], reason: "an RDNA4 GPU" },
    Rule { when: When::Always, order: &[DirectX, MiGraphX, Hip], reason: "supports the most GPUs" },
    Rule { when: When::Arch("gfx9"), order: &[MiGraphX, Hip], reason: "a CDNA or GCN GPU" },
    Rule { when: When::Arch("gfx103"), order: &[MiGraphX, Hip], reason: "an RDNA2 GPU" },
    Rule { when: When::Always, order: &[MiGraphX, Hip], reason: "the default" },
];

/// The name for any language model.
const GENERIC: &str = "llm";

/// Every value of `model_arch` that routing treats as a language model: every type for which GenAI runs a decoder loop,
/// and the generic name.
pub fn language_models() -> impl Iterator<Item = &'static str> {
    TEXT_MODELS.into_iter().chain([GENERIC])
}

impl When {
    pub fn applies(&self, query: &Query<'_>) -> bool {
        let is = |hint: Option<&options::Hint>, word: &str| hint.is_some_and(|hint| hint.as_str() == word);
        match self {
            Self::Driver(driver) => query.driver == *driver,
            Self::Framework(word) => is(query.model_fw, word),
            Self::Arch(prefix) => query.arch.starts_with(prefix),
            Self::LanguageModel => language_models().any(|word| is(query.model_arch, word)),
            Self::Always => true,
        }
    }
}
