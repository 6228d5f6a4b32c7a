//! Which passes run.
use crate::{
    pass::PASSES,
    plan::{APPEND_ATTENTION, ATTENTION, CHANNELS_LAST, GATED, NORMED, OPTIONAL_STAGES},
};

/// The passes and optional planning stages that run: all except those disabled by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    off: Vec<&'static str>,
    channels_last: bool,
    attention: bool,
    normed_products: bool,
    gated_products: bool,
    append_attention: bool,
}

impl Selection {
    /// All passes except those in a comma-separated list, and the names in the list that are unknown.
    pub fn without(list: &str) -> (Self, Vec<String>) {
        let mut selection = Self::default();
        let mut unknown = Vec::new();
        for name in list.split(',').map(str::trim).filter(|name| !name.is_empty()) {
            match Self::names().find(|known| known.eq_ignore_ascii_case(name)) {
                Some(known) => selection.off.push(known),
                None => unknown.push(name.to_owned()),
            }
        }
        (selection, unknown)
    }

    /// No pass at all.
    pub fn none() -> Self {
        Self { off: Self::names().collect(), ..Self::default() }
    }

    /// The names that can be disabled.
    pub fn names() -> impl Iterator<Item = &'static str> {
        PASSES.iter().map(|pass| pass.name).chain(OPTIONAL_STAGES)
    }

    /// Lays images out with their channels innermost, if the device wants that and it is not disabled.
    #[must_use]
    pub fn with_channels_last(mut self, wanted: bool) -> Self {
        self.channels_last = wanted;
        self
    }

    /// Makes attention one step, if the device wants that and it is not disabled.
    #[must_use]
    pub fn with_attention(mut self, wanted: bool) -> Self {
        self.attention = wanted;
        self
    }

    /// Merges norms of few rows into the product that follows, if the device wants that and it is not disabled.
    #[must_use]
    pub fn with_normed_products(mut self, wanted: bool) -> Self {
        self.normed_products = wanted;
        self
    }

    /// Merges work on both halves of a product's columns into the product, if the device wants that and it is not
    /// disabled.
    #[must_use]
    pub fn with_gated_products(mut self, wanted: bool) -> Self {
        self.gated_products = wanted;
        self
    }

    /// Makes one token's attention and the cache update before it one step, if the device wants that and it is not
    /// disabled.
    #[must_use]
    pub fn with_append_attention(mut self, wanted: bool) -> Self {
        self.append_attention = wanted;
        self
    }

    /// True if the pass or stage with this name runs.
    pub fn runs(&self, name: &str) -> bool {
        let wanted = match name {
            CHANNELS_LAST => self.channels_last,
            ATTENTION => self.attention,
            NORMED => self.normed_products,
            GATED => self.gated_products,
            APPEND_ATTENTION => self.append_attention,
            _ => true,
        };
        wanted && !self.off.contains(&name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_switches_passes_off_and_tells_strangers() {
        let (selection, unknown) = Selection::without(" Attention,layer-norm,,fast-math ");
        assert_eq!(unknown, ["fast-math"]);
        assert!(!selection.runs("attention") && !selection.runs("layer-norm") && selection.runs("gelu"));
        assert_eq!(Selection::without(""), (Selection::default(), vec![]));
        assert!(Selection::names().all(|name| !Selection::none().runs(name)));
    }
}
