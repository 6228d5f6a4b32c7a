//! Kernel sources.
use std::fmt::Write;

const PRELUDE: &str = include_str!("../hip/prelude.h");

/// A kernel: a family's source with its settings. Equal kernels are compiled once.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Kernel {
    /// The entry point.
    pub name: &'static str,
    /// The family's source, a file of `hip/`.
    pub family: &'static str,
    /// Additional files of `hip/`, after the prelude.
    pub headers: Vec<&'static str>,
    /// Macros that the source uses, in order.
    pub settings: Vec<(&'static str, String)>,
    /// Code generated for this kernel alone, between the settings and the family's source.
    pub generated: String,
}

impl Kernel {
    /// A kernel of a family without settings.
    pub fn new(name: &'static str, family: &'static str) -> Self {
        Self { name, family, headers: Vec::new(), settings: Vec::new(), generated: String::new() }
    }

    /// Adds files after the prelude.
    #[must_use]
    pub fn with(mut self, headers: impl IntoIterator<Item = &'static str>) -> Self {
        self.headers.extend(headers);
        self
    }

    /// Sets a macro.
    #[must_use]
    pub fn set(mut self, macro_name: &'static str, value: impl ToString) -> Self {
        self.settings.push((macro_name, value.to_string()));
        self
    }

    /// The complete source for the compiler.
    pub fn text(&self) -> String {
        let mut text = String::with_capacity(PRELUDE.len() + self.generated.len() + self.family.len() + 256);
        text.push_str(PRELUDE);
        self.headers.iter().for_each(|header| text.push_str(header));
        for (name, value) in &self.settings {
            let _ = writeln!(text, "#define {name} {value}");
        }
        text.push_str(&self.generated);
        text.push_str(self.family);
        text
    }
}

/// The name of an element type in kernel sources.
pub(crate) const fn type_name(dtype: graph::DType) -> &'static str {
    match dtype {
        graph::DType::Bool => "b8",
        other => other.name(),
    }
}

/// The name of an unsigned type of the same width, for moving elements.
pub(crate) const fn word_name(dtype: graph::DType) -> &'static str {
    match dtype.bytes() {
        1 => "u8",
        2 => "u16",
        4 => "u32",
        _ => "u64",
    }
}
