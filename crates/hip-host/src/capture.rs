//! Stream capture: operations become nodes of a graph instead of running.

use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::ThreadId;

use crate::errors::Status;
use crate::graph::{Graph, Node};
use crate::handles::{self, lock};
use crate::stream::{Role, Stream};
use crate::thread;
use crate::work::Step;

/// `hipStreamCaptureMode`: where calls that could disturb a capture are refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mode {
    /// On every thread.
    Global,
    /// On the thread that began the capture.
    ThreadLocal,
    /// Nowhere.
    Relaxed,
}

impl TryFrom<i32> for Mode {
    type Error = Status;

    fn try_from(mode: i32) -> Result<Self, Status> {
        [Mode::Global, Mode::ThreadLocal, Mode::Relaxed]
            .into_iter()
            .find(|known| *known as i32 == mode)
            .ok_or(Status::InvalidValue)
    }
}

/// The nodes the next operation of a stream depends on, by index.
pub(crate) type Dependencies = Vec<usize>;

/// A capture, shared by all streams that take part.
pub(crate) struct Capture {
    pub(crate) id: u64,
    mode: Mode,
    thread: ThreadId,
    origin: usize,
    state: Mutex<State>,
}

struct State {
    phase: Phase,
    nodes: Vec<Node>,
    members: Vec<Member>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    Active,
    Invalidated,
    Ended,
}

struct Member {
    stream: Arc<Stream>,
    tips: Dependencies,
}

impl Capture {
    pub(crate) fn phase(&self) -> Phase {
        lock(&self.state).phase
    }

    /// Invalidates the capture: it can only be ended, and yields no graph.
    pub(crate) fn invalidate(&self) {
        let mut state = lock(&self.state);
        if state.phase == Phase::Active {
            state.phase = Phase::Invalidated;
        }
    }

    /// Invalidates the capture and returns the error, for calls that cannot be captured.
    pub(crate) fn refuse<T>(&self) -> Result<T, Status> {
        self.invalidate();
        Err(Status::StreamCaptureUnsupported)
    }

    /// Records `step` as the next operation of `stream`.
    pub(crate) fn record(&self, stream: &Stream, step: Step) -> Result<(), Status> {
        let mut state = self.active()?;
        let index = state.nodes.len();
        let tips = &mut state.member(stream)?.tips;
        let after = std::mem::replace(tips, vec![index]);
        state.nodes.push(Node { handle: handles::fresh(), step, after });
        Ok(())
    }

    /// The dependencies of a new operation of `stream`.
    pub(crate) fn tips(&self, stream: &Stream) -> Result<Dependencies, Status> {
        let mut state = self.active()?;
        Ok(state.member(stream)?.tips.clone())
    }

    /// Makes the next operation of `stream` also depend on `tips`; a stream that is not capturing yet joins.
    fn depend(self: &Arc<Self>, stream: &Arc<Stream>, tips: &Dependencies) -> Result<(), Status> {
        let mut state = self.active()?;
        if let Ok(member) = state.member(stream) {
            let missing = tips.iter().filter(|tip| !member.tips.contains(tip)).copied().collect::<Dependencies>();
            member.tips.extend(missing);
            return Ok(());
        }
        state.members.push(Member { stream: Arc::clone(stream), tips: tips.clone() });
        drop(state);
        *lock(&stream.capture) = Some(Arc::clone(self));
        Ok(())
    }

    fn active(&self) -> Result<std::sync::MutexGuard<'_, State>, Status> {
        let state = lock(&self.state);
        match state.phase {
            Phase::Active => Ok(state),
            Phase::Invalidated => Err(Status::StreamCaptureInvalidated),
            Phase::Ended => Err(Status::IllegalState),
        }
    }

    /// Whether a stream for which `matches` is true takes part.
    fn involves(&self, matches: impl Fn(&Stream) -> bool) -> bool {
        lock(&self.state).members.iter().any(|member| matches(&member.stream))
    }

    /// Whether a potentially unsafe call of the current thread must fail.
    fn forbids_unsafe_calls(&self) -> bool {
        let own = self.mode != Mode::Relaxed && self.thread == std::thread::current().id();
        match thread::capture_mode() {
            Mode::Global => own || self.mode == Mode::Global,
            Mode::ThreadLocal => own,
            Mode::Relaxed => false,
        }
    }
}

impl State {
    fn member(&mut self, stream: &Stream) -> Result<&mut Member, Status> {
        self.members.iter_mut().find(|member| member.stream.handle == stream.handle).ok_or(Status::IllegalState)
    }
}

/// The active captures.
#[derive(Default)]
pub(crate) struct Captures {
    /// The length of the list, so that the usual case of no capture costs one load.
    count: AtomicUsize,
    list: Mutex<Vec<Arc<Capture>>>,
}

impl Captures {
    /// The capture `stream` records into.
    pub(crate) fn of(&self, stream: &Stream) -> Option<Arc<Capture>> {
        if self.count.load(Ordering::Acquire) == 0 {
            return None;
        }
        lock(&stream.capture).clone()
    }

    pub(crate) fn begin(&self, stream: &Arc<Stream>, mode: Mode) -> Result<(), Status> {
        if stream.role == Role::Legacy {
            return Err(Status::StreamCaptureUnsupported);
        }
        let mut slot = lock(&stream.capture);
        if slot.is_some() {
            return Err(Status::IllegalState);
        }
        let member = Member { stream: Arc::clone(stream), tips: Dependencies::new() };
        let capture = Arc::new(Capture {
            id: handles::fresh() as u64,
            mode,
            thread: std::thread::current().id(),
            origin: stream.handle,
            state: Mutex::new(State { phase: Phase::Active, nodes: Vec::new(), members: vec![member] }),
        });
        *slot = Some(Arc::clone(&capture));
        let mut list = lock(&self.list);
        list.push(capture);
        self.count.store(list.len(), Ordering::Release);
        Ok(())
    }

    /// Ends the capture that began in `stream` and returns its graph.
    pub(crate) fn end(&self, stream: &Stream) -> Result<Graph, Status> {
        let capture = self.of(stream).ok_or(Status::IllegalState)?;
        if capture.mode != Mode::Relaxed && capture.thread != std::thread::current().id() {
            return Err(Status::StreamCaptureWrongThread);
        }
        if capture.origin != stream.handle {
            return Err(Status::StreamCaptureUnmatched);
        }
        let (phase, nodes, members) = self.stop(&capture);
        if phase != Phase::Active {
            return Err(Status::StreamCaptureInvalidated);
        }
        let tips = members.iter().find(|member| member.stream.handle == stream.handle).map(|member| &member.tips);
        let joined = ancestors(&nodes, tips.unwrap_or(&Dependencies::new()));
        if members.iter().flat_map(|member| &member.tips).any(|tip| !joined.contains(tip)) {
            return Err(Status::StreamCaptureUnjoined);
        }
        Ok(Graph { nodes })
    }

    /// A capturing stream is destroyed: its capture can no longer be completed.
    pub(crate) fn abandon(&self, stream: &Stream) {
        let Some(capture) = self.of(stream) else { return };
        capture.invalidate();
        if capture.origin == stream.handle {
            self.stop(&capture);
        }
    }

    /// `hipStreamWaitEvent` on an event last recorded in `source`, before `tips`.
    pub(crate) fn wait_captured(
        &self,
        stream: &Arc<Stream>,
        source: Option<Arc<Capture>>,
        tips: &Dependencies,
    ) -> Result<(), Status> {
        let target = self.of(stream);
        let source = source.filter(|capture| capture.phase() != Phase::Ended);
        match (source, target) {
            (Some(source), None) if stream.role == Role::Legacy => {
                source.invalidate();
                Err(Status::StreamCaptureImplicit)
            }
            (Some(source), None) => source.depend(stream, tips),
            (Some(source), Some(target)) if source.id == target.id => source.depend(stream, tips),
            (Some(source), Some(target)) => {
                source.invalidate();
                target.invalidate();
                Err(Status::StreamCaptureMerge)
            }
            (None, Some(target)) => {
                target.invalidate();
                Err(Status::StreamCaptureIsolation)
            }
            (None, None) => Err(Status::CapturedEvent),
        }
    }

    /// Refuses a call that may disturb a capture (allocation, synchronous copies, event queries, ...), as required by
    /// the modes of the captures and of the calling thread. A refused call invalidates the captures it would have
    /// disturbed.
    pub(crate) fn refuse_unsafe_call(&self) -> Result<(), Status> {
        self.refuse(Status::StreamCaptureUnsupported, Capture::forbids_unsafe_calls)
    }

    /// Refuses to wait for a device with a capturing stream.
    pub(crate) fn refuse_on_device(&self, device: usize) -> Result<(), Status> {
        self.refuse(Status::StreamCaptureUnsupported, |capture| capture.involves(|stream| stream.device == device))
    }

    /// Refuses work on the legacy default stream while a stream that is ordered with it is capturing.
    pub(crate) fn refuse_implicit(&self, stream: &Stream) -> Result<(), Status> {
        if stream.role != Role::Legacy {
            return Ok(());
        }
        let ordered = |other: &Stream| other.device == stream.device && other.role == Role::Blocking;
        self.refuse(Status::StreamCaptureImplicit, |capture| capture.involves(ordered))
    }

    /// Refuses to run work on the legacy default stream while any stream of the process is capturing, in any mode. CUDA
    /// is less strict, but AMD's runtime is not, and code that works here must work there.
    pub(crate) fn refuse_legacy_work(&self, stream: &Stream) -> Result<(), Status> {
        if stream.role != Role::Legacy {
            return Ok(());
        }
        self.refuse(Status::StreamCaptureImplicit, |_| true)
    }

    fn refuse(&self, status: Status, disturbs: impl Fn(&Capture) -> bool) -> Result<(), Status> {
        if self.count.load(Ordering::Acquire) == 0 {
            return Ok(());
        }
        let list = lock(&self.list);
        let mut answer = Ok(());
        for capture in list.iter().filter(|capture| disturbs(capture)) {
            capture.invalidate();
            answer = Err(status);
        }
        answer
    }

    /// Removes the capture from the list, and its streams from the capture.
    fn stop(&self, capture: &Arc<Capture>) -> (Phase, Vec<Node>, Vec<Member>) {
        let (phase, nodes, members) = {
            let mut state = lock(&capture.state);
            let phase = std::mem::replace(&mut state.phase, Phase::Ended);
            (phase, std::mem::take(&mut state.nodes), std::mem::take(&mut state.members))
        };
        for member in &members {
            lock(&member.stream.capture).take_if(|current| current.id == capture.id);
        }
        let mut list = lock(&self.list);
        list.retain(|other| other.id != capture.id);
        self.count.store(list.len(), Ordering::Release);
        (phase, nodes, members)
    }
}

/// `tips` and everything they depend on.
fn ancestors(nodes: &[Node], tips: &Dependencies) -> HashSet<usize> {
    let mut seen = HashSet::new();
    let mut open = tips.clone();
    while let Some(at) = open.pop() {
        if seen.insert(at) {
            open.extend(&nodes[at].after);
        }
    }
    seen
}
