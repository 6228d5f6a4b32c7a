//! Execution of loads, stores and atomics.

use super::address::Addresses;
use super::atomic::{atomic32, atomic64};
use super::{Access, Action, Address, Data, Space};
use crate::inst::{Dst, Src, reg};
use crate::memory::Window;
use crate::observer::{Event, Observer, Site};
use crate::wave::{Half, LANES, Wave};
use crate::{Fault, Memory};

/// An address that lies outside its memory.
pub(crate) struct Outside {
    pub address: u64,
    pub bytes: u32,
    pub space: Space,
    pub lane: u32,
}

/// The memories that a wave can reach.
pub(crate) struct Reach<'a> {
    pub memory: &'a Memory,
    pub lds: &'a mut [u8],
}

/// The memory of one kind of access. `None` means that an address is outside.
trait Place {
    fn load8(&mut self, address: u64, lane: u32) -> Option<u8>;
    fn load16(&mut self, address: u64, lane: u32) -> Option<u16>;
    fn load32(&mut self, address: u64, lane: u32) -> Option<u32>;
    fn store8(&mut self, address: u64, lane: u32, value: u8) -> Option<()>;
    fn store16(&mut self, address: u64, lane: u32, value: u16) -> Option<()>;
    fn store32(&mut self, address: u64, lane: u32, value: u32) -> Option<()>;
    fn update32(&mut self, address: u64, lane: u32, change: impl Fn(u32) -> u32) -> Option<u32>;
    fn update64(&mut self, address: u64, lane: u32, change: impl Fn(u64) -> u64) -> Option<u64>;
}

/// Device memory. Most lanes of an access are in one window, so the last one is tried first.
struct Global<'a> {
    memory: &'a Memory,
    window: Window,
}

impl Global<'_> {
    #[inline(always)]
    fn with<R>(&mut self, address: u64, access: impl Fn(&Window) -> Option<R>) -> Option<R> {
        if let Some(done) = access(&self.window) {
            return Some(done);
        }
        self.window = self.memory.window(address)?;
        access(&self.window)
    }
}

impl Place for Global<'_> {
    #[inline(always)]
    fn load8(&mut self, address: u64, _: u32) -> Option<u8> {
        self.with(address, |window| window.load8(address))
    }
    #[inline(always)]
    fn load16(&mut self, address: u64, _: u32) -> Option<u16> {
        self.with(address, |window| window.load16(address))
    }
    #[inline(always)]
    fn load32(&mut self, address: u64, _: u32) -> Option<u32> {
        self.with(address, |window| window.load32(address))
    }
    #[inline(always)]
    fn store8(&mut self, address: u64, _: u32, value: u8) -> Option<()> {
        self.with(address, |window| window.store8(address, value))
    }
    #[inline(always)]
    fn store16(&mut self, address: u64, _: u32, value: u16) -> Option<()> {
        self.with(address, |window| window.store16(address, value))
    }
    #[inline(always)]
    fn store32(&mut self, address: u64, _: u32, value: u32) -> Option<()> {
        self.with(address, |window| window.store32(address, value))
    }
    fn update32(&mut self, address: u64, _: u32, change: impl Fn(u32) -> u32) -> Option<u32> {
        self.with(address, |window| window.update32(address, &change))
    }
    fn update64(&mut self, address: u64, _: u32, change: impl Fn(u64) -> u64) -> Option<u64> {
        self.with(address, |window| window.update64(address, &change))
    }
}

/// LDS of a workgroup, or scratch memory, of which each lane has its own part. Only one wave runs at a time.
struct Local<'a> {
    bytes: &'a mut [u8],
    /// Bytes of each lane's part, or `None` for LDS: then accesses out of range read 0 and write nothing.
    part: Option<u64>,
}

impl Local<'_> {
    #[inline(always)]
    fn at<const N: usize>(&mut self, address: u64, lane: u32) -> Option<Option<&mut [u8; N]>> {
        let start = match self.part {
            // The base may be negative: the sum with an offset wraps at 32 bits.
            None => address & u64::from(u32::MAX),
            Some(part) if address.checked_add(N as u64)? <= part => u64::from(lane) * part + address,
            Some(_) => return None,
        };
        Some(usize::try_from(start).ok().and_then(|start| self.bytes.get_mut(start..)?.first_chunk_mut::<N>()))
    }

    #[inline(always)]
    fn load<const N: usize>(&mut self, address: u64, lane: u32) -> Option<[u8; N]> {
        self.at::<N>(address, lane).map(|bytes| bytes.map_or([0; N], |bytes| *bytes))
    }

    #[inline(always)]
    fn store<const N: usize>(&mut self, address: u64, lane: u32, value: [u8; N]) -> Option<()> {
        if let Some(bytes) = self.at::<N>(address, lane)? {
            *bytes = value;
        }
        Some(())
    }
}

impl Place for Local<'_> {
    #[inline(always)]
    fn load8(&mut self, address: u64, lane: u32) -> Option<u8> {
        self.load::<1>(address, lane).map(u8::from_le_bytes)
    }
    #[inline(always)]
    fn load16(&mut self, address: u64, lane: u32) -> Option<u16> {
        self.load(address, lane).map(u16::from_le_bytes)
    }
    #[inline(always)]
    fn load32(&mut self, address: u64, lane: u32) -> Option<u32> {
        self.load(address, lane).map(u32::from_le_bytes)
    }
    #[inline(always)]
    fn store8(&mut self, address: u64, lane: u32, value: u8) -> Option<()> {
        self.store(address, lane, [value])
    }
    #[inline(always)]
    fn store16(&mut self, address: u64, lane: u32, value: u16) -> Option<()> {
        self.store(address, lane, value.to_le_bytes())
    }
    #[inline(always)]
    fn store32(&mut self, address: u64, lane: u32, value: u32) -> Option<()> {
        self.store(address, lane, value.to_le_bytes())
    }
    fn update32(&mut self, address: u64, lane: u32, change: impl Fn(u32) -> u32) -> Option<u32> {
        let old = self.load32(address, lane)?;
        self.store32(address, lane, change(old))?;
        Some(old)
    }
    fn update64(&mut self, address: u64, lane: u32, change: impl Fn(u64) -> u64) -> Option<u64> {
        let old = self.load(address, lane).map(u64::from_le_bytes)?;
        self.store(address, lane, change(old).to_le_bytes())?;
        Some(old)
    }
}

impl Access {
    /// Executes the access for the active lanes.
    pub(crate) fn run<O: Observer>(
        &self,
        wave: &mut Wave,
        reach: &mut Reach<'_>,
        observer: &mut O,
        site: &Site<'_>,
    ) -> Result<Result<(), Outside>, Fault> {
        if self.space == Space::Scalar {
            return self.run_scalar(wave, reach.memory, observer, site);
        }
        let exec = wave.exec();
        if exec == 0 {
            return Ok(Ok(()));
        }
        let mut addresses = [0; 2 * LANES];
        let dropped = self.addresses(wave, &mut addresses) & exec;
        if dropped != 0 {
            self.zero(wave, dropped);
        }
        for (space, mask) in self.split(wave, &mut addresses, exec & !dropped) {
            if mask == 0 {
                continue;
            }
            if O::ACTIVE {
                let (addresses, bytes) = (&addresses, self.bytes());
                observer.event(site, Event::Access { access: self, space, addresses, mask, bytes, wave })?;
            }
            let done = match space {
                Space::Lds => self.perform(wave, &mut Local { bytes: reach.lds, part: None }, &addresses, mask),
                Space::Scratch => {
                    let mut scratch = std::mem::take(&mut wave.scratch);
                    let part = Some(u64::from(wave.scratch_bytes));
                    let done = self.perform(wave, &mut Local { bytes: &mut scratch, part }, &addresses, mask);
                    wave.scratch = scratch;
                    done
                }
                Space::Global | Space::Flat | Space::Scalar => {
                    let first = mask.trailing_zeros();
                    match reach.memory.window(addresses[first as usize]) {
                        Some(window) => {
                            let mut place = Global { memory: reach.memory, window };
                            self.perform(wave, &mut place, &addresses, mask)
                        }
                        None => Err(first),
                    }
                }
            };
            if let Err(lane) = done {
                let address = addresses[lane as usize];
                return Ok(Err(Outside { address, bytes: self.bytes(), space, lane }));
            }
        }
        Ok(Ok(()))
    }

    /// Performs the action for some lanes; the error is the lane whose address is outside.
    fn perform(&self, wave: &mut Wave, place: &mut impl Place, addresses: &Addresses, mask: u64) -> Result<(), u32> {
        let second = u64::from(self.bytes() / 4) as u16;
        match (self.action, self.dst) {
            (Action::Load(data), Dst::V(register)) => load(wave, place, addresses, mask, (register, data, 0)),
            (Action::Load2(data), Dst::V(register)) => {
                let (one, two) = (self.offset as u64, self.offset2 as u64);
                load(wave, place, addresses, mask, (register, data, one))?;
                load(wave, place, addresses, mask, (register + second, data, two))
            }
            (Action::Store(data), _) => store(wave, place, addresses, mask, (self.data, data, 0)),
            (Action::Store2(data), _) => {
                store(wave, place, addresses, mask, (self.data, data, self.offset as u64))?;
                store(wave, place, addresses, mask, (self.data2, data, self.offset2 as u64))
            }
            (Action::Atomic(op, wide), dst) => {
                for lane in bits(mask) {
                    let address = addresses[lane as usize];
                    if wide {
                        let (operand, compare) = (lane64(wave, self.data, lane), lane64(wave, self.data2, lane));
                        let old = place.update64(address, lane, |old| atomic64(op, old, operand, compare));
                        let old = old.ok_or(lane)?;
                        if let Dst::V(register) = dst {
                            wave.set_lane(register, lane, old as u32);
                            wave.set_lane(register + 1, lane, (old >> 32) as u32);
                        }
                    } else {
                        let (operand, compare) = (wave.lane(self.data, lane), wave.lane(self.data2, lane));
                        let old = place.update32(address, lane, |old| atomic32(op, old, operand, compare));
                        let old = old.ok_or(lane)?;
                        if let Dst::V(register) = dst {
                            wave.set_lane(register, lane, old);
                        }
                    }
                }
                Ok(())
            }
            (Action::Load(_) | Action::Load2(_), _) => Ok(()),
        }
    }

    /// Loads through a buffer return 0 out of range.
    fn zero(&self, wave: &mut Wave, lanes: u64) {
        if let (Action::Load(data), Dst::V(register)) = (self.action, self.dst) {
            for lane in bits(lanes) {
                let words = if let Data::Words(count) = data { u16::from(count) } else { 1 };
                for word in 0..words {
                    let new = extend(data, 0, wave.lane(register + word, lane));
                    wave.set_lane(register + word, lane, new);
                }
            }
        }
    }

    fn run_scalar<O: Observer>(
        &self,
        wave: &mut Wave,
        memory: &Memory,
        observer: &mut O,
        site: &Site<'_>,
    ) -> Result<Result<(), Outside>, Fault> {
        let (Action::Load(data), Dst::S(first)) = (self.action, self.dst) else { return Ok(Ok(())) };
        let mut limit = u64::MAX;
        let address = match self.address {
            Address::Scalar(base, scalar) => {
                let offset = u64::from(wave.s32(scalar)).wrapping_add(i64::from(self.offset) as u64);
                wave.s64(Src::S(base)).wrapping_add(offset) & if data.bytes() >= 4 { !3 } else { !0 }
            }
            Address::ScalarBuffer(resource, scalar) => {
                let base = wave.s64(Src::S(resource)) & 0xffff_ffff_ffff;
                let stride = u64::from(wave.scalar[resource as usize + 1]) >> 16 & 0x3fff;
                limit = base + u64::from(wave.scalar[resource as usize + 2]) * stride.max(1);
                base.wrapping_add(u64::from(wave.s32(scalar)).wrapping_add(self.offset as u64) & !3)
            }
            _ => return Ok(Ok(())),
        };
        if O::ACTIVE {
            let (addresses, bytes) = ([address], data.bytes());
            let space = Space::Scalar;
            let event = Event::Access { access: self, space, addresses: &addresses, mask: 1, bytes, wave };
            observer.event(site, event)?;
        }
        let outside = Outside { address, bytes: data.bytes(), space: Space::Scalar, lane: 0 };
        let Some(window) = memory.window(address) else { return Ok(Err(outside)) };
        let loaded = match data {
            Data::Words(count) => (0..u16::from(count)).try_for_each(|word| {
                let at = address.wrapping_add(u64::from(word) * 4);
                let value = if at.saturating_add(4) > limit { 0 } else { window.load32(at)? };
                wave.scalar[(first + word) as usize] = value;
                Some(())
            }),
            narrow => narrow_load(&mut Global { memory, window }, address, 0, narrow)
                .map(|value| wave.scalar[first as usize] = extend(narrow, value, 0)),
        };
        Ok(loaded.ok_or(outside))
    }
}

/// Reads into registers from `first` on, for some lanes.
#[inline(always)]
fn load(
    wave: &mut Wave,
    place: &mut impl Place,
    addresses: &Addresses,
    mask: u64,
    (first, data, offset): (u16, Data, u64),
) -> Result<(), u32> {
    for half in 0..wave.halves {
        let (at, base) = (&addresses[half * LANES..][..LANES], (half * LANES) as u32);
        let mask = mask >> base & 0xffff_ffff;
        match data {
            Data::Words(count) => {
                for word in 0..u16::from(count) {
                    let out: &mut Half = wave.v_mut(first + word, half);
                    let offset = offset.wrapping_add(u64::from(word) * 4);
                    for lane in bits(mask) {
                        let address = at[lane as usize].wrapping_add(offset);
                        out[lane as usize] = place.load32(address, base + lane).ok_or(base + lane)?;
                    }
                }
            }
            narrow => {
                let out: &mut Half = wave.v_mut(first, half);
                for lane in bits(mask) {
                    let address = at[lane as usize].wrapping_add(offset);
                    let value = narrow_load(place, address, base + lane, narrow).ok_or(base + lane)?;
                    out[lane as usize] = extend(narrow, value, out[lane as usize]);
                }
            }
        }
    }
    Ok(())
}

/// Writes registers from `first` on, for some lanes.
#[inline(always)]
fn store(
    wave: &Wave,
    place: &mut impl Place,
    addresses: &Addresses,
    mask: u64,
    (first, data, offset): (u16, Data, u64),
) -> Result<(), u32> {
    for half in 0..wave.halves {
        let (at, base) = (&addresses[half * LANES..][..LANES], (half * LANES) as u32);
        let mask = mask >> base & 0xffff_ffff;
        let words = if let Data::Words(count) = data { u16::from(count) } else { 1 };
        for word in 0..words {
            let values: &Half = wave.v(first + word, half);
            let offset = offset.wrapping_add(u64::from(word) * 4);
            for lane in bits(mask) {
                let (address, value) = (at[lane as usize].wrapping_add(offset), values[lane as usize]);
                let stored = match data {
                    Data::Words(_) => place.store32(address, base + lane, value),
                    Data::U8 | Data::I8 | Data::HalfU8(false) | Data::HalfI8(false) => {
                        place.store8(address, base + lane, value as u8)
                    }
                    Data::HalfU8(true) | Data::HalfI8(true) => place.store8(address, base + lane, (value >> 16) as u8),
                    Data::U16 | Data::I16 | Data::Half(false) => place.store16(address, base + lane, value as u16),
                    Data::Half(true) => place.store16(address, base + lane, (value >> 16) as u16),
                };
                stored.ok_or(base + lane)?;
            }
        }
    }
    Ok(())
}

#[inline(always)]
fn narrow_load(place: &mut impl Place, address: u64, lane: u32, data: Data) -> Option<u32> {
    if data.bytes() == 1 {
        place.load8(address, lane).map(u32::from)
    } else {
        place.load16(address, lane).map(u32::from)
    }
}

/// The register after a load of one word or less.
#[inline(always)]
fn extend(data: Data, value: u32, old: u32) -> u32 {
    let half = |high: bool, bits: u32| if high { old & 0xffff | bits << 16 } else { old & 0xffff_0000 | bits & 0xffff };
    match data {
        Data::U8 | Data::U16 | Data::Words(_) => value,
        Data::I8 => value as u8 as i8 as u32,
        Data::I16 => value as u16 as i16 as u32,
        Data::HalfU8(high) | Data::Half(high) => half(high, value),
        Data::HalfI8(high) => half(high, value as u8 as i8 as u32),
    }
}

/// The numbers of the set bits.
#[inline(always)]
pub(crate) fn bits(mut mask: u64) -> impl Iterator<Item = u32> {
    std::iter::from_fn(move || {
        let lane = (mask != 0).then(|| mask.trailing_zeros())?;
        mask &= mask - 1;
        Some(lane)
    })
}

#[inline(always)]
fn lane64(wave: &Wave, register: u16, lane: u32) -> u64 {
    u64::from(wave.lane(register, lane)) | u64::from(wave.lane((register + 1).min(reg::TEMPORARY), lane)) << 32
}
