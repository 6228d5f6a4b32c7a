//! A graph that a backend has accepted, and the engines that can run it.

use std::fmt;
use std::sync::Arc;

use crate::descriptor::Descriptor;
use crate::handle::{Handle, RawHandle, check, last_error, require, require_same};
use crate::knob::{KnobInfo, KnobValue};
use crate::plan::Plan;
use crate::sys::{AttributeName as A, AttributeType, BehaviorNote, DescriptorType, HeurMode, RankingOutcome, Status};
use crate::{Error, Result};

/// A graph that a backend has accepted.
pub struct OperationGraph {
    descriptor: Descriptor,
    name: String,
    preferred: Option<i64>,
    handle: Arc<RawHandle>,
}

/// An engine that can run a graph, in the order of the backend's preference.
pub struct Candidate {
    config: Descriptor,
    /// The engine's id.
    pub engine: i64,
    handle: Arc<RawHandle>,
}

/// Which engines may make a plan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Choice {
    /// The most bytes of workspace that a plan may need.
    pub max_workspace_bytes: Option<usize>,
    /// Engines that are left out, by id.
    pub barred: Vec<i64>,
}

/// Why an engine made no plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The engine's id.
    pub engine: i64,
    /// The reason.
    pub reason: String,
    /// The backend's status, where it was the backend that refused.
    pub status: Option<Status>,
}

impl Refusal {
    /// Ruled out by the caller's own choice.
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
        self.barred.contains(&engine).then(|| Refusal::by_choice(engine, "it was left out".into()))
    }

    fn check(&self, plan: Plan) -> Result<Plan, Refusal> {
        let (engine, bytes) = (plan.engine(), plan.workspace_bytes());
        match self.max_workspace_bytes {
            Some(most) if bytes > most => {
                let reason = format!("it needs {bytes} bytes of workspace, and {most} are allowed");
                Err(Refusal::by_choice(engine, reason))
            }
            _ => Ok(plan),
        }
    }
}

impl OperationGraph {
    pub(crate) fn new(descriptor: Descriptor, name: String, preferred: Option<i64>, handle: &Handle) -> Self {
        Self { descriptor, name, preferred, handle: handle.keep() }
    }

    /// The graph's own descriptor, for calls that this crate does not make.
    pub fn descriptor(&self) -> &Descriptor {
        &self.descriptor
    }

    /// The graph's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The engines that can run the graph, the best first; none is an answer, not an error. An engine that the graph
    /// [prefers](crate::Graph::preferring) comes before the others.
    ///
    /// # Errors
    /// The backend could not say.
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

    /// One engine by its id, with knobs turned.
    ///
    /// # Errors
    /// The engine can't run the graph, or does not know a knob.
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

    /// True if some engine runs the graph; cheaper than asking for all.
    ///
    /// # Errors
    /// The backend could not say.
    pub fn is_supported(&self) -> Result<bool> {
        let heuristic = self.heuristic(true)?;
        Ok(heuristic.count(A::ENGINEHEUR_RESULTS, AttributeType::BACKEND_DESCRIPTOR)? > 0)
    }

    /// A plan on the best engine that can make one.
    ///
    /// # Errors
    /// [`Error::NotSupported`] if no engine runs the graph, [`Error::NoPlan`] if none could make a plan.
    pub fn plan(&self) -> Result<Plan> {
        self.plan_with(&Choice::default())
    }

    /// A plan on the best engine that can make one and is not ruled out.
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

    /// A plan on each engine that can make one and is not ruled out, the best engine first; and why the others made none.
    ///
    /// # Errors
    /// [`Error::NotSupported`] if no engine runs the graph.
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

    /// A plan on the engine at this place of [`candidates`](Self::candidates).
    ///
    /// # Errors
    /// There is none, or it refuses.
    pub fn plan_at(&self, index: usize) -> Result<Plan> {
        let candidates = self.some_candidates()?;
        let count = candidates.len();
        let candidate = candidates.into_iter().nth(index);
        let none = || Error::invalid(self.label(), format!("it has no engine {index}, but {count}"));
        candidate.ok_or_else(none)?.plan()
    }

    /// A plan on the engine of this id.
    ///
    /// # Errors
    /// It can't run the graph, or refuses.
    pub fn plan_on(&self, engine: i64) -> Result<Plan> {
        let mut candidates = self.some_candidates()?.into_iter();
        let candidate = candidates.find(|candidate| candidate.engine == engine);
        let none = || Error::invalid(self.label(), format!("engine {engine:#x} does not run it"));
        candidate.ok_or_else(none)?.plan()
    }

    /// A plan on the engine of this name.
    ///
    /// # Errors
    /// There is none, it can't run the graph, or refuses.
    pub fn plan_named(&self, handle: &Handle, engine: &str) -> Result<Plan> {
        self.plan_on(handle.engine_id(engine)?)
    }

    /// Gives the backend an order of engines, the best first, to remember for graphs like this one; see
    /// [`autotune`](Self::autotune).
    ///
    /// # Errors
    /// The backend has no memory for it, or the handle is another one's. That it declines to write is an outcome, not an error.
    pub fn remember_ranking(&self, handle: &Handle, engines: &[i64]) -> Result<RankingOutcome> {
        let backend = self.descriptor.backend();
        require_same(backend, handle.backend())?;
        require(&**backend, "hipdnnBackendWriteEngineRankingResults_ext")?;
        let mut outcome = RankingOutcome::DECLINED_DISABLED;
        let (ids, count, graph) = (engines.as_ptr(), engines.len(), self.descriptor.raw());
        // SAFETY: handle and graph are alive; as many ids as said.
        let status = unsafe { backend.write_engine_ranking(handle.raw(), graph, ids, count, &mut outcome) };
        check(&**backend, || "writing a ranking of engines".into(), status)?;
        Ok(outcome)
    }

    fn some_candidates(&self) -> Result<Vec<Candidate>> {
        let backend = self.descriptor.backend();
        // That no engine runs a graph is no failure to a backend, but some leave a reason; older words are not it.
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
    /// A plan on this engine, which may compile code.
    ///
    /// # Errors
    /// The engine refuses.
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
    /// The backend can't say.
    pub fn engine_name(&self) -> Result<String> {
        self.engine()?.text(A::ENGINE_NAME_EXT)
    }

    /// The most bytes of workspace that a plan will need.
    ///
    /// # Errors
    /// The backend can't say.
    pub fn workspace_bytes(&self) -> Result<usize> {
        Ok(usize::try_from(self.config.i64(A::ENGINECFG_WORKSPACE_SIZE)?).unwrap_or(0))
    }

    /// What is special about the engine.
    ///
    /// # Errors
    /// The backend can't say.
    pub fn notes(&self) -> Result<Vec<BehaviorNote>> {
        let numbers: Vec<i32> = self.engine()?.list(A::ENGINE_BEHAVIOR_NOTE, AttributeType::BEHAVIOR_NOTE)?;
        Ok(numbers.into_iter().map(BehaviorNote).collect())
    }

    /// The knobs of the engine.
    ///
    /// # Errors
    /// The backend can't say.
    pub fn knobs(&self) -> Result<Vec<KnobInfo>> {
        let infos = self.engine()?.descriptors(A::ENGINE_KNOB_INFO, DescriptorType::KNOB_INFO_DESCRIPTOR)?;
        infos.iter().map(KnobInfo::read).collect()
    }

    fn engine(&self) -> Result<Descriptor> {
        self.config.descriptor(A::ENGINECFG_ENGINE, DescriptorType::ENGINE_DESCRIPTOR)
    }
}
