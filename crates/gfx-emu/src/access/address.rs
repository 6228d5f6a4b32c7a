//! The addresses of all lanes.

use super::{Access, Action, Address, Space};
use crate::inst::Src;
use crate::wave::{LANES, PRIVATE_APERTURE, SHARED_APERTURE, Wave};

/// One address for each lane.
pub type Addresses = [u64; 2 * LANES];

impl Access {
    /// Fills in the addresses of a vector access. Returns the lanes that a buffer resource excludes.
    pub(super) fn addresses(&self, wave: &Wave, addresses: &mut Addresses) -> u64 {
        let offset = i64::from(self.offset) as u64;
        let mut dropped = 0;
        for half in 0..wave.halves {
            let out = &mut addresses[half * LANES..][..LANES];
            match self.address {
                Address::Vector(register) => {
                    let (low, high) = (wave.v(register, half), wave.v(register + 1, half));
                    for lane in 0..LANES {
                        let base = u64::from(low[lane]) | u64::from(high[lane]) << 32;
                        out[lane] = base.wrapping_add(offset);
                    }
                }
                Address::Base(base, index) => {
                    let base = wave.s64(Src::S(base)).wrapping_add(offset);
                    match index {
                        Some(register) => {
                            let index = wave.v(register, half);
                            (0..LANES).for_each(|lane| out[lane] = base.wrapping_add(u64::from(index[lane])));
                        }
                        None => out.fill(base),
                    }
                }
                Address::Scratch(index, scalar) => {
                    let base = wave.s32(scalar).wrapping_add(self.offset as u32);
                    match index {
                        Some(register) => {
                            let index = wave.v(register, half);
                            (0..LANES).for_each(|lane| out[lane] = u64::from(base.wrapping_add(index[lane])));
                        }
                        None => out.fill(u64::from(base)),
                    }
                }
                Address::Lds(register) => {
                    let index = wave.v(register, half);
                    // The two offsets of a double access are added later.
                    let double = matches!(self.action, Action::Load2(_) | Action::Store2(_));
                    let offset = if double { 0 } else { offset };
                    (0..LANES).for_each(|lane| out[lane] = u64::from(index[lane]).wrapping_add(offset));
                }
                Address::Buffer { resource, index, offset, scalar } => {
                    let outside = self.buffer(wave, half, (resource, index, offset, scalar), out);
                    dropped |= u64::from(outside) << (half * LANES);
                }
                Address::Scalar(..) | Address::ScalarBuffer(..) => {}
            }
        }
        dropped
    }

    /// Addresses through a buffer resource without swizzling; returns the lanes out of range.
    fn buffer(
        &self,
        wave: &Wave,
        half: usize,
        (resource, index, offset, scalar): (u16, Option<u16>, Option<u16>, Src),
        out: &mut [u64],
    ) -> u32 {
        let word = |at: u16| u64::from(wave.scalar[(resource + at) as usize]);
        let base = (word(0) | word(1) << 32) & 0xffff_ffff_ffff;
        let stride = word(1) >> 16 & 0x3fff;
        let records = word(2);
        let scalar = u64::from(wave.s32(scalar));
        let bytes = u64::from(self.bytes());
        if self.is_scratch_buffer(wave) {
            // The offset for all lanes counts the bytes of the whole wave, as lanes are interleaved.
            let base = scalar / u64::from(wave.lanes()) + self.offset as u64;
            for lane in 0..LANES {
                let own = offset.map_or(0, |register| u64::from(wave.v(register, half)[lane]));
                out[lane] = base.wrapping_add(own) & u64::from(u32::MAX);
            }
            return 0;
        }
        let mut dropped = 0;
        for lane in 0..LANES {
            let of = |register: Option<u16>| register.map_or(0, |register| u64::from(wave.v(register, half)[lane]));
            let (at, local) = (of(index), of(offset) + self.offset as u64);
            let outside = if stride == 0 {
                local + scalar + bytes > records
            } else {
                at >= records || (offset.is_some() && local + bytes > stride)
            };
            dropped |= u32::from(outside) << lane;
            out[lane] = base.wrapping_add(scalar).wrapping_add(at * stride).wrapping_add(local);
        }
        dropped
    }

    /// Whether the access is to scratch memory through the buffer resource that a kernel gets in its first registers: gfx90a
    /// and gfx1030. Kernels only add the wave's offset to it, which is 0 here.
    pub(super) fn is_scratch_buffer(&self, wave: &Wave) -> bool {
        let Address::Buffer { resource, .. } = self.address else { return false };
        wave.s64(Src::S(resource)) == u64::from(PRIVATE_APERTURE) << 32
    }

    /// Assigns flat addresses to LDS, scratch or global memory, lane by lane. Those in LDS and scratch become offsets.
    pub(super) fn split(&self, wave: &Wave, addresses: &mut Addresses, mask: u64) -> [(Space, u64); 3] {
        if self.is_scratch_buffer(wave) {
            return [(Space::Scratch, mask), (Space::Scratch, 0), (Space::Scratch, 0)];
        }
        if self.space != Space::Flat {
            return [(self.space, mask), (self.space, 0), (self.space, 0)];
        }
        let (mut shared, mut private) = (0, 0);
        for lane in super::bits(mask) {
            let address = &mut addresses[lane as usize];
            let high = (*address >> 32) as u32;
            if high == SHARED_APERTURE {
                shared |= 1 << lane;
                *address &= 0xffff_ffff;
            } else if high == PRIVATE_APERTURE {
                private |= 1 << lane;
                *address &= 0xffff_ffff;
            }
        }
        [(Space::Global, mask & !shared & !private), (Space::Lds, shared), (Space::Scratch, private)]
    }
}
