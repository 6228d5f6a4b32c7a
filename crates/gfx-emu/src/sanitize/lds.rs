//! Accesses to LDS.

use super::finding::{Accessed, Bug};
use super::group::LdsBug;
use super::races::{for_words, how, stored};
use super::watch::Watch;
use crate::access::{Access, Action, Space, bits};
use crate::observer::Site;
use crate::wave::Wave;

impl Watch<'_> {
    /// Checks an access to LDS.
    pub(super) fn lds(&mut self, site: &Site<'_>, (access, wave): (&Access, &Wave), bytes: u32, at: &[u64], mask: u64) {
        let (how, reads) = how(access);
        let number = self.group.wave(site.wave).outstanding.next_lds();
        // A flat access has no number: it counts as complete.
        let time = if access.space == Space::Flat { 0 } else { number };
        let mut now = self.mark(site, how);
        now.time = time.saturating_sub(1);
        let offsets = match access.action {
            Action::Load2(_) | Action::Store2(_) => [Some(access.offset), Some(access.offset2)],
            _ => [Some(0), None],
        };
        let limit = u64::from(self.run.lds_bytes);
        for lane in bits(mask) {
            for (offset, second) in offsets.into_iter().flatten().zip([false, true]) {
                let address = at[lane as usize].wrapping_add_signed(i64::from(offset)) & u64::from(u32::MAX);
                let allocation = Some((0, limit));
                let accessed = Accessed { space: Space::Lds, address, bytes, writes: how.writes(), allocation };
                if address + u64::from(bytes) > limit {
                    self.report(Bug::OutOfBounds, site, Some(lane), Some(accessed), || {
                        format!("the workgroup has {limit} bytes of LDS")
                    });
                    continue;
                }
                let mut found = None;
                for_words(address, bytes, |word, part| {
                    now.bytes = part;
                    now.value = stored(access, wave, lane, (address, word), second);
                    let bug = self.group.lds_access((word / 4) as usize, now, reads);
                    found = found.take().or(bug);
                });
                match found {
                    Some(LdsBug::Race(earlier)) => self.report(Bug::Race, site, Some(lane), Some(accessed), || {
                        format!("not ordered after {}", self.other(site, &earlier))
                    }),
                    Some(LdsBug::NotWaitedFor(earlier)) => {
                        self.report(Bug::MissingWait, site, Some(lane), Some(accessed), || {
                            format!("no wait before the barrier after {}", self.other(site, &earlier))
                        });
                    }
                    Some(LdsBug::Uninitialised) => {
                        self.report(Bug::Uninitialised, site, Some(lane), Some(accessed), String::new);
                    }
                    None => {}
                }
            }
        }
    }
}
