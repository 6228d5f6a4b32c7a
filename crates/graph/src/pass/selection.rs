//! Which passes run.
use crate::pass::PASSES;
use crate::plan::{Capabilities, STAGES, Stage};

/// The passes and optional planning stages that run: all except those disabled by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    off: Vec<&'static str>,
    capabilities: Capabilities,
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
        PASSES.iter().map(|pass| pass.name).chain(STAGES.iter().map(|stage| stage.name))
    }

    /// For a device with these capabilities: stages that need others do not run.
    #[must_use]
    pub fn with_capabilities(self, capabilities: Capabilities) -> Self {
        Self { capabilities, ..self }
    }

    /// True if the pass with this name runs.
    pub fn runs(&self, name: &str) -> bool {
        !self.off.contains(&name)
    }

    /// True if the stage runs.
    pub(crate) fn runs_stage(&self, stage: &Stage) -> bool {
        self.runs(stage.name) && stage.needs.is_none_or(|capability| self.capabilities.has(capability))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_disables_passes_and_reports_unknown_names() {
        let (selection, unknown) = Selection::without(" Attention,layer-norm,,fast-math ");
        assert_eq!(unknown, ["fast-math"]);
        assert!(!selection.runs("attention") && !selection.runs("layer-norm") && selection.runs("gelu"));
        assert_eq!(Selection::without(""), (Selection::default(), vec![]));
        assert!(Selection::names().all(|name| !Selection::none().runs(name)));
    }

    #[test]
    fn a_stage_runs_only_on_devices_with_its_capability() {
        for stage in STAGES {
            let Some(capability) = stage.needs else {
                assert!(Selection::default().runs_stage(stage), "{}", stage.name);
                continue;
            };
            let has = Capabilities::NONE.with(capability);
            assert!(!Selection::default().runs_stage(stage), "{}", stage.name);
            assert!(Selection::default().with_capabilities(has).runs_stage(stage), "{}", stage.name);
            assert!(!Selection::none().with_capabilities(has).runs_stage(stage), "{}", stage.name);
        }
    }
}
