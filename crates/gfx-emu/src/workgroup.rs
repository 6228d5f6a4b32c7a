//! The waves of one workgroup, their LDS and barriers.

use std::sync::Arc;

use crate::access::Reach;
use crate::chip::{Chip, Dispatch, Stats};
use crate::descriptor::{Descriptor, UserData};
use crate::inst::{Control, Dst, Step, When, reg};
use crate::observer::{Event, Observer, Site};
use crate::program::Program;
use crate::wave::{Mode, PRIVATE_APERTURE, Wave};
use crate::{Fault, Memory};

/// Instructions that a wave runs before another one gets its turn, so that spinning waves do not block the others.
const QUANTUM: u32 = 2048;

/// What all workgroups of a dispatch have in common.
pub(crate) struct Setup<'a> {
    pub chip: &'a Chip,
    pub dispatch: &'a Dispatch,
    pub descriptor: &'a Descriptor,
    pub memory: &'a Memory,
    pub wave_size: u32,
    pub program: Arc<Program>,
}

/// Why a wave does not run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Ready,
    /// Waits until the barrier's round is over.
    Waiting(u64),
    Ended,
}

struct Slot {
    wave: Wave,
    program: Arc<Program>,
    pc: usize,
    state: State,
    /// The barrier's round when the wave last signalled.
    signalled: Option<u64>,
}

/// Counts the signals of one round after the other.
#[derive(Default)]
struct Barrier {
    round: u64,
    signals: usize,
}

/// Room for the waves of a workgroup, used again for the next one.
pub(crate) struct Workgroup {
    slots: Vec<Slot>,
    lds: Vec<u8>,
    barrier: Barrier,
    id: [u32; 3],
}

impl Workgroup {
    pub fn new(setup: &Setup<'_>) -> Workgroup {
        let items: u32 = setup.dispatch.group.iter().product();
        let slots = (0..items.div_ceil(setup.wave_size)).map(|_| Slot {
            wave: setup.chip.wave(setup.wave_size),
            program: setup.program.clone(),
            pc: 0,
            state: State::Ready,
            signalled: None,
        });
        let lds = setup.dispatch.group_size.max(setup.descriptor.lds_bytes) as usize;
        Workgroup { slots: slots.collect(), lds: vec![0; lds], barrier: Barrier::default(), id: [0; 3] }
    }

    /// The waves, for the workgroups of later dispatches.
    pub fn into_waves(self) -> impl Iterator<Item = Wave> {
        self.slots.into_iter().map(|slot| slot.wave)
    }

    /// Runs one workgroup to its end.
    pub fn run<O: Observer>(
        &mut self,
        setup: &Setup<'_>,
        id: [u32; 3],
        observer: &mut O,
        stats: &mut Stats,
    ) -> Result<(), Fault> {
        self.start(setup, id);
        stats.workgroups += 1;
        if O::ACTIVE {
            for slot in self.slots.iter().filter(|slot| slot.state == State::Ready) {
                let site = Site { program: &slot.program, index: slot.pc, group: id, wave: slot.wave.id };
                observer.event(&site, Event::Start(&slot.wave))?;
            }
        }
        stats.waves += self.slots.iter().filter(|slot| slot.state == State::Ready).count() as u64;
        loop {
            let (mut ran, mut left) = (false, 0);
            for at in 0..self.slots.len() {
                if let State::Waiting(round) = self.slots[at].state
                    && self.barrier.round > round
                {
                    self.slots[at].state = State::Ready;
                    if O::ACTIVE {
                        let slot = &self.slots[at];
                        let index = slot.pc.saturating_sub(1);
                        let site = Site { program: &slot.program, index, group: id, wave: slot.wave.id };
                        observer.event(&site, Event::Pass)?;
                    }
                }
                if self.slots[at].state == State::Ready {
                    ran = true;
                    stats.instructions += self.turn(setup, at, observer)?;
                }
                left += usize::from(self.slots[at].state != State::Ended);
            }
            if left == 0 {
                return Ok(());
            }
            let freed = |slot: &Slot| matches!(slot.state, State::Waiting(round) if self.barrier.round > round);
            if !ran && !self.slots.iter().any(freed) {
                return Err(Fault::Deadlock { group: id, waiting: left });
            }
        }
    }

    /// Prepares all waves for a workgroup.
    fn start(&mut self, setup: &Setup<'_>, id: [u32; 3]) {
        self.id = id;
        self.lds.fill(0);
        self.barrier = Barrier::default();
        let (dispatch, descriptor) = (setup.dispatch, setup.descriptor);
        // Sizes of this workgroup, which may be a partial one at the end of the grid.
        let size = [0, 1, 2].map(|at| dispatch.group[at].min(dispatch.grid[at] - id[at] * dispatch.group[at]));
        let items: u32 = size.iter().product();
        let waves = items.div_ceil(setup.wave_size);
        for (slot, index) in self.slots.iter_mut().zip(0u32..) {
            slot.program = setup.program.clone();
            slot.pc = setup.program.entry();
            slot.signalled = None;
            slot.state = if index < waves { State::Ready } else { State::Ended };
            if index >= waves {
                continue;
            }
            let wave = &mut slot.wave;
            wave.id = index;
            wave.scc = false;
            wave.trouble = None;
            wave.mode = Mode::new(descriptor.float_mode() | u32::from(descriptor.clamps_nan()) << 8);
            wave.scratch_bytes = dispatch.private_size.max(descriptor.scratch_bytes).next_multiple_of(4);
            wave.scratch.clear();
            wave.scratch.resize(wave.scratch_bytes as usize * setup.wave_size as usize, 0);
            wave.scalar.fill(0);
            let first = index * setup.wave_size;
            let active = (items - first).min(setup.wave_size);
            wave.set_exec(if active == 64 { u64::MAX } else { (1 << active) - 1 });
            scalars(wave, setup, id, waves);
            items_of(wave, descriptor, size, first, active);
        }
    }

    /// Lets a wave run until it waits, ends, or its turn is over. Returns the number of instructions.
    fn turn<O: Observer>(&mut self, setup: &Setup<'_>, at: usize, observer: &mut O) -> Result<u64, Fault> {
        let group = self.id;
        let alive = self.slots.iter().filter(|slot| slot.state != State::Ended).count();
        let Workgroup { slots, lds, barrier, .. } = self;
        let slot = &mut slots[at];
        let mut reach = Reach { memory: setup.memory, lds };
        let mut program = slot.program.clone();
        let mut pc = slot.pc;
        let mut count = 0;
        while count < QUANTUM {
            let Some(inst) = program.insts().get(pc) else {
                return Err(Fault::NotCode { address: program.next(program.insts().len() - 1), bytes: Vec::new() });
            };
            count += 1;
            let site = Site { program: &program, index: pc, group, wave: slot.wave.id };
            if O::ACTIVE {
                observer.event(&site, Event::Instruction(inst, &slot.wave))?;
            }
            match &inst.step {
                Step::Alu(run) => {
                    run(&mut slot.wave, inst);
                    pc += 1;
                    if let Some(reason) = slot.wave.trouble {
                        return Err(unsupported(&site, reason));
                    }
                }
                Step::Access(access) => {
                    if let Err(outside) = access.run(&mut slot.wave, &mut reach, observer, &site)? {
                        let line = site.line();
                        return Err(Fault::BadAddress {
                            address: outside.address,
                            bytes: outside.bytes,
                            space: outside.space,
                            lane: outside.lane,
                            text: line.text.clone(),
                            pc: line.address,
                        });
                    }
                    pc += 1;
                }
                Step::Form(form) => {
                    form.run(&mut slot.wave);
                    pc += 1;
                    if let Some(reason) = slot.wave.trouble {
                        return Err(unsupported(&site, reason));
                    }
                }
                Step::Unsupported => {
                    let reason = site.line().reason.clone().unwrap_or_default();
                    return Err(unsupported(&site, &reason));
                }
                Step::Control(control) => {
                    let next = program.next(pc);
                    let mut jump = None;
                    match *control {
                        Control::Branch(when, target) => {
                            pc = if holds(&slot.wave, when) { target as usize } else { pc + 1 };
                            continue;
                        }
                        Control::Nop | Control::Wait(_) => {}
                        Control::End => {
                            if O::ACTIVE {
                                observer.event(&site, Event::End)?;
                            }
                            slot.state = State::Ended;
                            // The others no longer wait for this one.
                            barrier.check(alive - 1);
                            return Ok(u64::from(count));
                        }
                        Control::Barrier => {
                            if O::ACTIVE {
                                observer.event(&site, Event::Arrive(&slot.wave))?;
                            }
                            slot.pc = pc + 1;
                            slot.program = program.clone();
                            slot.state = State::Waiting(barrier.round);
                            barrier.signal(alive);
                            return Ok(u64::from(count));
                        }
                        Control::Signal | Control::SignalFirst => {
                            if O::ACTIVE {
                                observer.event(&site, Event::Arrive(&slot.wave))?;
                            }
                            if *control == Control::SignalFirst {
                                slot.wave.scc = barrier.signals == 0;
                            }
                            slot.signalled = Some(barrier.round);
                            barrier.signal(alive);
                        }
                        Control::AwaitBarrier => {
                            let Some(round) = slot.signalled.take() else {
                                return Err(unsupported(&site, "waits for a barrier without a signal"));
                            };
                            slot.pc = pc + 1;
                            slot.program = program.clone();
                            slot.state = State::Waiting(round);
                            return Ok(u64::from(count));
                        }
                        Control::GetPc => slot.wave.set_s64(inst.dst, next),
                        Control::SetPc => jump = Some(slot.wave.s64(inst.src[0])),
                        Control::SwapPc => {
                            jump = Some(slot.wave.s64(inst.src[0]));
                            slot.wave.set_s64(inst.dst, next);
                        }
                        Control::Call(target) => {
                            slot.wave.set_s64(inst.dst, next);
                            pc = target as usize;
                            continue;
                        }
                        Control::Sleep => {
                            slot.pc = pc + 1;
                            slot.program = program.clone();
                            return Ok(u64::from(count));
                        }
                        Control::Trap(id) => return Err(Fault::Trap { id, address: site.line().address }),
                    }
                    match jump {
                        None => pc += 1,
                        Some(address) => match program.at(address) {
                            Some(index) => pc = index,
                            None => {
                                program = setup.chip.program(setup.memory, address, setup.wave_size)?;
                                pc = program.entry();
                            }
                        },
                    }
                }
            }
        }
        slot.pc = pc;
        slot.program = program;
        Ok(u64::from(count))
    }
}

impl Barrier {
    fn signal(&mut self, alive: usize) {
        self.signals += 1;
        self.check(alive);
    }

    fn check(&mut self, alive: usize) {
        if self.signals > 0 && self.signals >= alive {
            self.round += 1;
            self.signals = 0;
        }
    }
}

fn unsupported(site: &Site<'_>, reason: &str) -> Fault {
    let line = site.line();
    Fault::Unsupported { text: line.text.clone(), address: line.address, reason: reason.to_owned() }
}

#[inline(always)]
fn holds(wave: &Wave, when: When) -> bool {
    match when {
        When::Always => true,
        When::Scc0 => !wave.scc,
        When::Scc1 => wave.scc,
        When::VccZ => wave.vcc() == 0,
        When::VccNz => wave.vcc() != 0,
        When::ExecZ => wave.exec() == 0,
        When::ExecNz => wave.exec() != 0,
    }
}

/// Scalar registers at the start: what the kernel asks for, then the workgroup's id.
fn scalars(wave: &mut Wave, setup: &Setup<'_>, id: [u32; 3], waves: u32) {
    let (dispatch, descriptor) = (setup.dispatch, setup.descriptor);
    let mut next = 0;
    for (index, (data, registers)) in UserData::ALL.into_iter().enumerate() {
        if !descriptor.has(index) {
            continue;
        }
        let value = match data {
            UserData::DispatchPointer => dispatch.dispatch_packet,
            UserData::QueuePointer => dispatch.queue,
            UserData::KernargPointer => dispatch.kernarg,
            UserData::PrivateSize => u64::from(wave.scratch_bytes),
            // The other half of the buffer resource stays 0; `Access` knows the resource by this address.
            UserData::FlatScratch | UserData::PrivateBuffer => u64::from(PRIVATE_APERTURE) << 32,
            UserData::DispatchId => 0,
        };
        if registers == 1 {
            wave.set_s32(Dst::S(next), value as u32);
        } else {
            wave.set_s64(Dst::S(next), value);
        }
        next += registers as u16;
    }
    let mut next = descriptor.user_registers() as u16;
    let target = setup.chip.target();
    if target.workgroup_ids_in_ttmp() {
        wave.scalar[reg::TTMP as usize + 9] = id[0];
        wave.scalar[reg::TTMP as usize + 7] = id[1] & 0xffff | id[2] << 16;
        return;
    }
    for (dimension, at) in id.into_iter().enumerate() {
        if descriptor.wants_group(dimension) {
            wave.scalar[next as usize] = at;
            next += 1;
        }
    }
    if descriptor.wants_group_info() {
        wave.scalar[next as usize] = waves << 6;
        next += 1;
    }
    if descriptor.wants_scratch_offset() {
        wave.scalar[next as usize] = 0;
    }
}

/// Vector registers at the start: ids in the workgroup.
fn items_of(wave: &mut Wave, descriptor: &Descriptor, size: [u32; 3], first: u32, active: u32) {
    let dimensions = descriptor.item_dimensions();
    let packed = wave.target.packs_workitem_ids();
    for lane in 0..wave.lanes() {
        let at = if lane < active { first + lane } else { 0 };
        let id = [at % size[0], at / size[0] % size[1], at / size[0] / size[1]];
        if packed {
            let y = if dimensions >= 1 { id[1] << 10 } else { 0 };
            let z = if dimensions >= 2 { id[2] << 20 } else { 0 };
            wave.set_lane(0, lane, id[0] | y | z);
        } else {
            for (register, value) in (0..=dimensions as u16).zip(id) {
                wave.set_lane(register, lane, value);
            }
        }
    }
}
