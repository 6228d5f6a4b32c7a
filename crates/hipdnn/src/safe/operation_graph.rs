//! A graph that a backend has accepted, and the engines that support it.

use std::fmt;
use std::sync::Arc;

use super::handle::{RawHandle, require_same};
use super::{Descriptor, Handle, KnobInfo, KnobValue, Plan};
use crate::result::{self, last_error};
use crate::sys::{AttributeName as A, AttributeType, BehaviorNote, DescriptorType, HeurMode, RankingOutcome, Status};
use crate::{Error, Result};

/// A graph that a backend has accepted.
pub struct OperationGraph {
    descriptor: Descriptor,
    name: String,
    preferred: Option<i64>,
    handle: Arc<RawHandle>,
}

/// An engine that supports a graph. Candidates come in the backend's order of preference.
pub struct Candidate {
    config: Descriptor,
    /// The engine's id.
    pub engine: i64,
    handle: Arc<RawHandle>,
}

/// Which engines may create a plan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Choice {
    /// The maximum workspace of a plan in bytes.
    pub max_workspace_bytes: Option<usize>,
    /// Engines to leave out, by id.
    pub barred: Vec<i64>,
}

/// Why an engine did not create a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The engine's id.
    pub engine: i64,
    /// The reason.
    pub reason: String,
    /// The backend's status, if the backend rejected the call.
    pub status: Option<Status>,
}

impl Refusal {
    /// Excluded by the caller's choice.
    fn by_choice(engine: i64, reason: String) -> Self {
        Self { engine, reason, status: None }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "engine {:#x}: {}", self.engine, self.reason)
    }
}

impl Choice {
    fn refuses(&self, engine: i64) -> Option<Refusal> {
        self.barred.contains(&engine).then(|| Refusal::by_choice(engine, "it was excluded".into()))
    }

    fn check(&self, plan: Plan) -> Result<Plan, Refusal> {
        let (engine, bytes) = (plan.engine(), plan.workspace_bytes());
        match self.max_workspace_bytes {
            Some(most) if bytes > most => {
                let reason = format!("it needs {bytes} bytes of workspace, but only {most} are allowed");
                Err(Refusal::by_choice(engine, reason))
            }
            _ => Ok(plan),
        }
    }
}

impl OperationGraph {
    pub(crate) fn new(descriptor: Descriptor, name: String, preferred: Option<i64>, handle: &Handle) -> Self {
        Self { descriptor, name, preferred, handle: handle.shared() }
    }

    /// The raw descriptor of the graph, for calls that this crate does not make.
    pub fn descriptor(&self) -> &Descriptor {
        &self.descriptor
    }

    /// The graph's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The engines that support the graph, best first; an empty list is not an error. An engine that the graph
    /// [prefers](crate::Graph::preferring) comes before the others.
    ///
    /// # Errors
    /// The backend cannot list them.
    pub fn candidates(&self) -> Result<Vec<Candidate>> {
        let heuristic = self.heuristic(false)?;
        let backend = heuristic.backend();
        let count = heuristic.count(A::ENGINEHEUR_RESULTS, AttributeType::BACKEND_DESCRIPTOR)?;
        let configs = (0..count)
            .map(|_| Descriptor::new(backend, DescriptorType::ENGINECFG_DESCRIPTOR))
            .collect::<Result<Vec<_>>>()?;
        let filled = if count == 0 { 0 } else { heuristic.fill(A::ENGINEHEUR_RESULTS, &configs)? };
        let mut candidates = configs
            .into_iter()
            .take(filled)
            .map(|config| {
                config.finalize()?;
                let engine = config.descriptor(A::ENGINECFG_ENGINE, DescriptorType::ENGINE_DESCRIPTOR)?;
                let engine = engine.i64(A::ENGINE_GLOBAL_INDEX)?;
                Ok(Candidate { config, engine, handle: self.handle.clone() })
            })
            .collect::<Result<Vec<_>>>()?;
        candidates.sort_by_key(|candidate| Some(candidate.engine) != self.preferred);
        Ok(candidates)
    }

    /// One engine by its id, with the given knob settings.
    ///
    /// # Errors
    /// The engine does not support the graph, or lacks one of the knobs.
    pub fn candidate(&self, engine: i64, knobs: &[(&str, KnobValue)]) -> Result<Candidate> {
        let backend = self.descriptor.backend();
        let chosen = Descriptor::new(backend, DescriptorType::ENGINE_DESCRIPTOR)?;
        chosen.set_descriptors(A::ENGINE_OPERATION_GRAPH, [&self.descriptor])?;
        chosen.set_i64s(A::ENGINE_GLOBAL_INDEX, &[engine])?;
        chosen.finalize()?;
        let config = Descriptor::new(backend, DescriptorType::ENGINECFG_DESCRIPTOR)?;
        config.set_descriptors(A::ENGINECFG_ENGINE, [&chosen])?;
        let turned = knobs.iter().map(|(id, value)| value.choose(backend, id)).collect::<Result<Vec<_>>>()?;
        if !turned.is_empty() {
            config.set_descriptors(A::ENGINECFG_KNOB_CHOICES, &turned)?;
        }
        config.finalize()?;
        Ok(Candidate { config, engine, handle: self.handle.clone() })
    }

    /// True if any engine supports the graph; cheaper than listing all of them.
    ///
    /// # Errors
    /// The backend cannot tell.
    pub fn is_supported(&self) -> Result<bool> {
        let heuristic = self.heuristic(true)?;
        Ok(heuristic.count(A::ENGINEHEUR_RESULTS, AttributeType::BACKEND_DESCRIPTOR)? > 0)
    }

    /// Creates a plan on the best engine that can.
    ///
    /// # Errors
    /// [`Error::NotSupported`] if no engine supports the graph, [`Error::NoPlan`] if none could create a plan.
    pub fn plan(&self) -> Result<Plan> {
        self.plan_with(&Choice::default())
    }

    /// Creates a plan on the best engine that can and is not excluded.
    ///
    /// # Errors
    /// As for [`plan`](Self::plan).
    pub fn plan_with(&self, choice: &Choice) -> Result<Plan> {
        let mut refused = Vec::new();
        for candidate in self.some_candidates()? {
            match candidate.plan_with(choice) {
                Ok(plan) => return Ok(plan),
                Err(refusal) => refused.push(refusal),
            }
        }
        Err(self.no_plan(refused))
    }

    /// Creates a plan on each engine that can and is not excluded, best engine first; also returns why the others did
    /// not.
    ///
    /// # Errors
    /// [`Error::NotSupported`] if no engine supports the graph.
    pub fn plans(&self, choice: &Choice) -> Result<(Vec<Plan>, Vec<Refusal>)> {
        let (mut plans, mut refused) = (Vec::new(), Vec::new());
        for candidate in self.some_candidates()? {
            match candidate.plan_with(choice) {
                Ok(plan) => plans.push(plan),
                Err(refusal) => refused.push(refusal),
            }
        }
        Ok((plans, refused))
    }

    /// Creates a plan on the engine at this index of [`candidates`](Self::candidates).
    ///
    /// # Errors
    /// There is no such engine, or it cannot create a plan.
    pub fn plan_at(&self, index: usize) -> Result<Plan> {
        let candidates = self.some_candidates()?;
        let count = candidates.len();
        let candidate = candidates.into_iter().nth(index);
        let none = || Error::invalid(self.label(), format!("it has no engine {index}, only {count}"));
        candidate.ok_or_else(none)?.plan()
    }

    /// Creates a plan on the engine with this id.
    ///
    /// # Errors
    /// It does not support the graph, or cannot create a plan.
    pub fn plan_on(&self, engine: i64) -> Result<Plan> {
        let mut candidates = self.some_candidates()?.into_iter();
        let candidate = candidates.find(|candidate| candidate.engine == engine);
        let none = || Error::invalid(self.label(), format!("engine {engine:#x} cannot run it"));
        candidate.ok_or_else(none)?.plan()
    }

    /// Creates a plan on the engine with this name.
    ///
    /// # Errors
    /// There is no such engine, it does not support the graph, or it cannot create a plan.
    pub fn plan_named(&self, handle: &Handle, engine: &str) -> Result<Plan> {
        self.plan_on(handle.engine_id(engine)?)
    }

    /// Passes the backend an order of engines, best first, to store for graphs like this one; see
    /// [`autotune`](Self::autotune).
    ///
    /// # Errors
    /// The backend cannot store rankings, or the handle belongs to another library. If it declines to write, that is an
    /// outcome, not an error.
    pub fn remember_ranking(&self, handle: &Handle, engines: &[i64]) -> Result<RankingOutcome> {
        let backend = self.descriptor.backend();
        require_same(backend, handle.backend())?;
        // SAFETY: handle and graph are alive, and of the same backend.
        unsafe { result::plan::write_ranking(&**backend, handle.raw(), self.descriptor.raw(), engines) }
    }

    fn some_candidates(&self) -> Result<Vec<Candidate>> {
        let backend = self.descriptor.backend();
        // Backends do not treat an unsupported graph as a failure, but some leave a reason; clear older messages first.
        last_error(&**backend);
        let candidates = self.candidates()?;
        if candidates.is_empty() {
            let (backend, reason) = (backend.describe(), last_error(&**backend));
            return Err(Error::NotSupported { backend, graph: self.name.clone(), reason });
        }
        Ok(candidates)
    }

    pub(crate) fn no_plan(&self, refused: Vec<Refusal>) -> Error {
        Error::NoPlan { graph: self.name.clone(), refused }
    }

    fn label(&self) -> String {
        format!("graph {:?}", self.name)
    }

    fn heuristic(&self, first_only: bool) -> Result<Descriptor> {
        let heuristic = Descriptor::new(self.descriptor.backend(), DescriptorType::ENGINEHEUR_DESCRIPTOR)?;
        heuristic.set_descriptors(A::ENGINEHEUR_OPERATION_GRAPH, [&self.descriptor])?;
        heuristic.set_mode(A::ENGINEHEUR_MODE, AttributeType::HEUR_MODE, HeurMode::FALLBACK.0)?;
        if first_only {
            heuristic.set_bool(A::ENGINEHEUR_FIND_FIRST_EXT, true)?;
        }
        heuristic.finalize()?;
        Ok(heuristic)
    }
}

impl Candidate {
    /// Creates a plan on this engine, which may compile code.
    ///
    /// # Errors
    /// The engine cannot create a plan.
    pub fn plan(&self) -> Result<Plan> {
        let plan = Descriptor::new(self.config.backend(), DescriptorType::EXECUTION_PLAN_DESCRIPTOR)?;
        plan.set_descriptors(A::EXECUTION_PLAN_ENGINE_CONFIG, [&self.config])?;
        plan.finalize()?;
        Plan::new(plan, self.engine, self.handle.clone())
    }

    fn plan_with(&self, choice: &Choice) -> Result<Plan, Refusal> {
        if let Some(refusal) = choice.refuses(self.engine) {
            return Err(refusal);
        }
        let refusal = |error: Error| Refusal { engine: self.engine, status: error.status(), reason: error.to_string() };
        self.plan().map_err(refusal).and_then(|plan| choice.check(plan))
    }

    /// The engine's name.
    ///
    /// # Errors
    /// The backend cannot report it.
    pub fn engine_name(&self) -> Result<String> {
        self.engine()?.text(A::ENGINE_NAME_EXT)
    }

    /// The maximum workspace of a plan in bytes.
    ///
    /// # Errors
    /// The backend cannot report it.
    pub fn workspace_bytes(&self) -> Result<usize> {
        Ok(usize::try_from(self.config.i64(A::ENGINECFG_WORKSPACE_SIZE)?).unwrap_or(0))
    }

    /// The engine's behaviour notes.
    ///
    /// # Errors
    /// The backend cannot report them.
    pub fn notes(&self) -> Result<Vec<BehaviorNote>> {
        let numbers = self.engine()?.modes(A::ENGINE_BEHAVIOR_NOTE, AttributeType::BEHAVIOR_NOTE)?;
        Ok(numbers.into_iter().map(BehaviorNote).collect())
    }

    /// The knobs of the engine.
    ///
    /// # Errors
    /// The backend cannot report them.
    pub fn knobs(&self) -> Result<Vec<KnobInfo>> {
        let infos = self.engine()?.descriptors(A::ENGINE_KNOB_INFO, DescriptorType::KNOB_INFO_DESCRIPTOR)?;
        infos.iter().map(KnobInfo::read).collect()
    }

    fn engine(&self) -> Result<Descriptor> {
        self.config.descriptor(A::ENGINECFG_ENGINE, DescriptorType::ENGINE_DESCRIPTOR)
    }
}
