//! The observer of one dispatch.

use std::collections::HashMap;
use std::sync::Arc;

use super::Shared;
use super::device::Touch;
use super::finding::{Accessed, Bug, Finding, Place};
use super::group::Group;
use super::races::{How, Mark, Page, Pages, Synchronisation};
use super::shadow::Allocation;
use crate::access::{Access, Address, Space};
use crate::chip::{Chip, Dispatch};
use crate::descriptor::Descriptor;
use crate::inst::{Control, Inst, Src, Step};
use crate::observer::{Event, Observer, Site};
use crate::wave::Wave;
use crate::{Fault, Memory, Target};

/// What all threads of a dispatch share.
pub(super) struct Run {
    pub target: Target,
    pub kernel: Option<String>,
    pub entry: u64,
    pub kernarg: u64,
    pub kernarg_bytes: u64,
    pub lds_bytes: u32,
    pub groups: [u32; 3],
    pub pages: Pages,
    pub sync: Synchronisation,
}

/// Sees one dispatch on one thread.
pub struct Watch<'a> {
    pub(super) shared: Arc<Shared>,
    pub(super) run: Arc<Run>,
    pub(super) memory: &'a Memory,
    pub(super) group: Group,
    /// The allocation of the last access, and all pages that were used.
    pub(super) last: Option<Arc<Allocation>>,
    pub(super) pages: HashMap<u64, Option<Arc<Page>>>,
    /// The access that comes next is relative to the arguments' address.
    pub(super) is_argument: bool,
    pub(super) touches: Vec<Touch>,
}

impl<'a> Watch<'a> {
    pub(super) fn new(
        shared: Arc<Shared>,
        chip: &Chip,
        dispatch: &Dispatch,
        memory: &'a Memory,
    ) -> Result<Watch<'a>, Fault> {
        let descriptor = Descriptor::read(memory, dispatch.kernel_object)?;
        let run = Run {
            target: chip.target(),
            kernel: shared.symbols.kernel(dispatch.kernel_object),
            entry: descriptor.entry,
            kernarg: dispatch.kernarg,
            // Compilers round the size of the last load up.
            kernarg_bytes: u64::from(descriptor.kernarg_bytes).next_multiple_of(16),
            lds_bytes: dispatch.group_size.max(descriptor.lds_bytes),
            groups: [0, 1, 2].map(|at| dispatch.grid[at].div_ceil(dispatch.group[at].max(1))),
            pages: Pages::default(),
            sync: Synchronisation::default(),
        };
        Ok(Watch::of(shared, Arc::new(run), memory))
    }

    fn of(shared: Arc<Shared>, run: Arc<Run>, memory: &'a Memory) -> Watch<'a> {
        let (pages, touches) = (HashMap::new(), Vec::new());
        Watch { shared, run, memory, group: Group::default(), last: None, pages, is_argument: false, touches }
    }

    /// The instruction at an index of the site's program.
    fn place(&self, site: &Site<'_>, index: usize) -> Place {
        let line = site.program.line(index);
        Place {
            text: line.text.clone(),
            address: line.address,
            offset: line.address.wrapping_sub(self.run.entry).cast_signed(),
            source: self.shared.symbols.source(line.address),
        }
    }

    fn report_at(
        &self,
        bug: Bug,
        (site, index): (&Site<'_>, usize),
        lane: Option<u32>,
        accessed: Option<Accessed>,
        detail: impl FnOnce() -> String,
    ) {
        let address = site.program.line(index).address;
        self.shared.findings().add(bug, address, || Finding {
            bug,
            kernel: self.run.kernel.clone(),
            place: self.place(site, index),
            group: site.group,
            wave: site.wave,
            lane,
            accessed,
            detail: detail(),
            count: 1,
        });
    }

    pub(super) fn report(
        &self,
        bug: Bug,
        site: &Site<'_>,
        lane: Option<u32>,
        accessed: Option<Accessed>,
        detail: impl FnOnce() -> String,
    ) {
        self.report_at(bug, (site, site.index), lane, accessed, detail);
    }

    /// Some waves wait for a barrier, and no other one runs.
    pub(super) fn report_hang(&self, group: [u32; 3], waiting: usize) {
        let place = Place { text: "barrier".to_owned(), address: self.run.entry, offset: 0, source: None };
        self.shared.findings().add(Bug::DivergentBarrier, self.run.entry, || Finding {
            bug: Bug::DivergentBarrier,
            kernel: self.run.kernel.clone(),
            place,
            group,
            wave: 0,
            lane: None,
            accessed: None,
            detail: format!("{waiting} waves wait for ever"),
            count: 1,
        });
    }

    /// The other access of a race.
    pub(super) fn other(&self, site: &Site<'_>, mark: &Mark) -> String {
        let address = self.run.entry.wrapping_add_signed(i64::from(mark.offset));
        let text = site.program.at(address).map_or("unknown", |index| &site.program.line(index).text);
        let number = mark.group.wrapping_sub(1);
        let [x, y, _] = self.run.groups.map(|count| count.max(1));
        let group = [number % x, number / x % y, number / x / y];
        let source = self.shared.symbols.source(address).map(|source| format!(" ({source})")).unwrap_or_default();
        format!("`{text}`{source} at code offset {:#x} in workgroup {group:?}, wave {}", mark.offset, mark.wave)
    }

    fn instruction(&mut self, site: &Site<'_>, inst: &Inst, wave: &Wave) {
        self.settle(site);
        let (effects, family) = (site.program.effects(site.index), self.run.target.family());
        let state = self.group.wave(site.wave);
        if let Some(early) = state.outstanding.check(effects, family) {
            self.report(Bug::MissingWait, site, None, None, || {
                let load = self.place(site, early.load);
                format!(
                    "{} is used before its load is complete: {load} needs a wait on {}",
                    early.register, early.counter
                )
            });
        }
        let state = self.group.wave(site.wave);
        match &inst.step {
            Step::Control(Control::Wait(waits)) => state.outstanding.wait(*waits, family),
            Step::Access(access) => {
                self.is_argument = match access.address {
                    Address::Scalar(base, _) | Address::Base(base, _) => wave.s64(Src::S(base)) == self.run.kernarg,
                    _ => false,
                };
            }
            _ => {}
        }
        if let Some(issued) = effects.issued {
            let flat = matches!(&inst.step, Step::Access(access) if access.space == Space::Flat);
            state.outstanding.issue(issued, flat, effects.written_later, site.index);
        }
    }

    fn access(
        &mut self,
        site: &Site<'_>,
        (access, wave): (&Access, &Wave),
        (space, bytes): (Space, u32),
        at: &[u64],
        mask: u64,
    ) -> Result<(), Fault> {
        match space {
            Space::Scratch => Ok(()),
            Space::Lds => {
                self.lds(site, (access, wave), bytes, at, mask);
                Ok(())
            }
            Space::Global | Space::Flat | Space::Scalar => self.device(site, (access, wave), (space, bytes), at, mask),
        }
    }

    /// A mark of the site's wave, for its current epoch.
    pub(super) fn mark(&mut self, site: &Site<'_>, how: How) -> Mark {
        let offset = site.line().address.wrapping_sub(self.run.entry) as i32;
        let (group, state) = (self.group.number, self.group.wave(site.wave));
        Mark { group, offset, time: 0, epoch: state.signals + 1, wave: site.wave as u8, bytes: 0, how, value: 0 }
    }

    fn arrive(&mut self, site: &Site<'_>, wave: &Wave) {
        let state = self.group.wave(site.wave);
        let missing = state.lanes & !wave.exec();
        state.signal();
        state.waits_at = Some(site.index);
        if let Some(ended) = self.group.ended_before(site.wave) {
            self.report(Bug::DivergentBarrier, site, None, None, || format!("wave {ended} has ended before it"));
        }
        if missing != 0 {
            let lane = missing.trailing_zeros();
            self.report(Bug::DivergentBarrier, site, Some(lane), None, || {
                format!("{} lanes of the wave are not active", missing.count_ones())
            });
        }
    }

    fn end(&mut self, site: &Site<'_>) {
        if let Some((waiting, index)) = self.group.waits_for(site.wave) {
            self.report_at(Bug::DivergentBarrier, (site, index), None, None, || {
                format!("this wave ends while wave {waiting} waits")
            });
        }
        self.group.wave(site.wave).has_ended = true;
    }
}

impl Observer for Watch<'_> {
    fn fork(&self) -> Self {
        Watch::of(Arc::clone(&self.shared), Arc::clone(&self.run), self.memory)
    }

    fn join(&mut self, _: Self) {}

    fn event(&mut self, site: &Site<'_>, event: Event<'_>) -> Result<(), Fault> {
        match event {
            Event::Start(wave) => {
                let [x, y, _] = self.run.groups;
                let [at_x, at_y, at_z] = site.group;
                let number = at_x.wrapping_add(x.wrapping_mul(at_y.wrapping_add(y.wrapping_mul(at_z)))).wrapping_add(1);
                if site.wave == 0 {
                    self.group.start(number, self.run.lds_bytes);
                }
                self.group.wave(site.wave).lanes = wave.exec();
            }
            Event::Instruction(inst, wave) => self.instruction(site, inst, wave),
            Event::Access { access, space, addresses, mask, bytes, wave } => {
                return self.access(site, (access, wave), (space, bytes), addresses, mask);
            }
            Event::Arrive(wave) => self.arrive(site, wave),
            Event::Pass => {
                let state = self.group.wave(site.wave);
                state.passed = state.passed.wrapping_add(1);
                state.waits_at = None;
            }
            Event::End => self.end(site),
        }
        Ok(())
    }
}
