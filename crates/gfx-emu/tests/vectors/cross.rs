//! Operations across lanes.

use gfx_emu::Wave;

use super::assembler::{SETTINGS, Setting};
use super::common::Compiler;
use super::lanes::execute;

/// What a wave holds before: v2 has data, v4 has numbers of lanes or addresses, s2 and s4 have patterns.
struct Before {
    lanes: u32,
    exec: u64,
    /// Whether lanes of different halves of a wave of 64 cannot exchange data through the LDS unit.
    halves: bool,
}

const PATTERNS: [u32; 2] = [0x7620_1fa3, 0x0123_cdef];

impl Before {
    fn data(&self, lane: u32) -> u32 {
        lane * 0x0101_0101 + 7
    }

    /// A number for each lane, larger than the wave.
    fn pick(&self, lane: u32) -> u32 {
        lane * 37 + 5
    }

    fn is_active(&self, lane: u32) -> bool {
        self.exec >> lane & 1 == 1
    }

    /// The lanes that one lane reaches through the LDS unit start here, and how many they are.
    fn reach(&self, lane: u32) -> (u32, u32) {
        if self.halves { (lane / 32 * 32, 32) } else { (0, self.lanes) }
    }

    /// The number of four bits of a lane in its row, in the two patterns.
    fn nibble(&self, lane: u32) -> u32 {
        PATTERNS[(lane % 16 / 8) as usize] >> (lane % 8 * 4) & 15
    }
}

/// The new value of an active lane of v0, or `None` if it stays.
type Want = fn(&Before, u32) -> Option<u32>;

const ROWS: &[(&str, &str, Want)] = &[
    ("v_mbcnt_lo_u32_b32", "{} v0, s2, v2", |b, lane| {
        Some((0..lane.min(32)).filter(|bit| PATTERNS[0] >> bit & 1 == 1).count() as u32 + b.data(lane))
    }),
    ("v_mbcnt_hi_u32_b32", "{} v0, s2, v2", |b, lane| {
        Some((0..lane.saturating_sub(32)).filter(|bit| PATTERNS[0] >> bit & 1 == 1).count() as u32 + b.data(lane))
    }),
    ("v_permlane16_b32", "{} v0, v2, s2, s4", |b, lane| {
        let from = lane / 16 * 16 + b.nibble(lane);
        b.is_active(from).then(|| b.data(from))
    }),
    ("v_permlane16_b32", "{} v0, v2, s2, s4 op_sel:[1,0]", |b, lane| Some(b.data(lane / 16 * 16 + b.nibble(lane)))),
    ("v_permlane16_b32", "{} v0, v2, s2, s4 op_sel:[0,1]", |b, lane| {
        let from = lane / 16 * 16 + b.nibble(lane);
        Some(if b.is_active(from) { b.data(from) } else { 0 })
    }),
    ("v_permlanex16_b32", "{} v0, v2, s2, s4 op_sel:[1,0]", |b, lane| {
        Some(b.data((lane / 16 ^ 1) * 16 + b.nibble(lane)))
    }),
    ("v_permlane16_var_b32", "{} v0, v2, v4 op_sel:[1,0]", |b, lane| Some(b.data(lane / 16 * 16 + b.pick(lane) % 16))),
    ("v_permlanex16_var_b32", "{} v0, v2, v4 op_sel:[1,0]", |b, lane| {
        Some(b.data((lane / 16 ^ 1) * 16 + b.pick(lane) % 16))
    }),
    ("v_permlane64_b32", "{} v0, v2", |b, lane| (b.lanes == 64).then(|| b.data(lane ^ 32))),
    ("ds_bpermute_b32", "{} v0, v4, v2", |b, lane| {
        let (first, count) = b.reach(lane);
        let from = first + b.pick(lane) / 4 % count;
        Some(if b.is_active(from) { b.data(from) } else { 0 })
    }),
    ("ds_bpermute_b32", "{} v0, v4, v2 offset:20", |b, lane| {
        let (first, count) = b.reach(lane);
        let from = first + (b.pick(lane) + 20) / 4 % count;
        Some(if b.is_active(from) { b.data(from) } else { 0 })
    }),
    ("ds_permute_b32", "{} v0, v4, v2", |b, lane| {
        let (first, count) = b.reach(lane);
        let mut writers =
            (first..first + count).filter(|from| b.is_active(*from) && first + b.pick(*from) / 4 % count == lane);
        Some(writers.next_back().map_or(0, |from| b.data(from)))
    }),
    ("ds_swizzle_b32", "{} v0, v2 offset:swizzle(QUAD_PERM, 2, 0, 3, 1)", |b, lane| {
        Some(from_active(b, lane / 4 * 4 + [2, 0, 3, 1][lane as usize % 4]))
    }),
    ("ds_swizzle_b32", "{} v0, v2 offset:swizzle(BROADCAST, 8, 3)", |b, lane| Some(from_active(b, lane / 8 * 8 + 3))),
    ("ds_swizzle_b32", "{} v0, v2 offset:swizzle(SWAP, 16)", |b, lane| Some(from_active(b, lane ^ 16))),
    ("ds_swizzle_b32", "{} v0, v2 offset:swizzle(REVERSE, 16)", |b, lane| Some(from_active(b, lane ^ 15))),
    ("ds_swizzle_b32", "{} v0, v2 offset:swizzle(BITMASK_PERM, \"01pip\")", |b, lane| {
        Some(from_active(b, lane / 32 * 32 | 0b01000 | lane & 0b101 | !lane & 0b10))
    }),
    // The first source of any operation can be shuffled.
    ("v_mov_b32_dpp", "{} v0, v2 quad_perm:[3,1,0,2] row_mask:0xf bank_mask:0xf", |b, lane| {
        active(b, lane / 4 * 4 + [3, 1, 0, 2][lane as usize % 4])
    }),
    ("v_mov_b32_dpp", "{} v0, v2 row_shl:3 row_mask:0xf bank_mask:0xf", |b, lane| {
        (lane % 16 < 13).then(|| active(b, lane + 3)).flatten()
    }),
    ("v_mov_b32_dpp", "{} v0, v2 row_shr:1 row_mask:0xf bank_mask:0xf bound_ctrl:1", |b, lane| {
        Some(if lane % 16 == 0 { 0 } else { active(b, lane - 1).unwrap_or(0) })
    }),
    ("v_mov_b32_dpp", "{} v0, v2 row_ror:5 row_mask:0xf bank_mask:0xf", |b, lane| {
        active(b, lane / 16 * 16 + (lane + 16 - 5) % 16)
    }),
    ("v_mov_b32_dpp", "{} v0, v2 row_mirror row_mask:0x5 bank_mask:0xf", |b, lane| {
        (lane / 16 % 2 == 0).then(|| active(b, lane / 16 * 16 + 15 - lane % 16)).flatten()
    }),
    ("v_mov_b32_dpp", "{} v0, v2 row_half_mirror row_mask:0xf bank_mask:0x6", |b, lane| {
        (matches!(lane / 4 % 4, 1 | 2)).then(|| active(b, lane / 8 * 8 + 7 - lane % 8)).flatten()
    }),
    ("v_mov_b32_dpp", "{} v0, v2 row_bcast:15 row_mask:0xf bank_mask:0xf", |b, lane| {
        (lane >= 16).then(|| active(b, lane / 16 * 16 - 1)).flatten()
    }),
    ("v_mov_b32_dpp", "{} v0, v2 wave_ror:1 row_mask:0xf bank_mask:0xf", |b, lane| {
        active(b, (lane + b.lanes - 1) % b.lanes)
    }),
    ("v_mov_b32_dpp", "{} v0, v2 row_share:6 row_mask:0xf bank_mask:0xf", |b, lane| active(b, lane / 16 * 16 + 6)),
    ("v_mov_b32_dpp", "{} v0, v2 row_xmask:9 row_mask:0xf bank_mask:0xf", |b, lane| active(b, lane ^ 9)),
    ("v_mov_b32_dpp", "{} v0, v2 dpp8:[7,6,5,0,1,2,3,4]", |b, lane| {
        active(b, lane / 8 * 8 + [7, 6, 5, 0, 1, 2, 3, 4][lane as usize % 8])
    }),
    ("v_add_f32_sdwa", "{} v0, v2, v2 dst_sel:DWORD src0_sel:DWORD src1_sel:DWORD", |b, lane| {
        let value = f32::from_bits(b.data(lane));
        Some((value + value).to_bits())
    }),
];

/// Data of a lane that the LDS unit reads: 0 if it is not active.
fn from_active(b: &Before, lane: u32) -> u32 {
    if b.is_active(lane) { b.data(lane) } else { 0 }
}

/// Data of a lane, if it is active; else the result stays.
fn active(b: &Before, lane: u32) -> Option<u32> {
    b.is_active(lane).then(|| b.data(lane))
}

fn prepared(setting: Setting, before: &Before) -> Wave {
    let mut wave = Wave::new(setting.target.parse().unwrap(), setting.lanes);
    for lane in 0..setting.lanes {
        for (register, value) in [(0, 0xdead_beef), (2, before.data(lane)), (4, before.pick(lane))] {
            wave.set_lane(register, lane, value);
        }
    }
    (wave.scalar[2], wave.scalar[4]) = (PATTERNS[0], PATTERNS[1]);
    wave.set_exec(before.exec);
    wave
}

#[test]
fn lanes_read_other_lanes() {
    let Some(compiler) = Compiler::find() else { return };
    let texts: Vec<String> = ROWS.iter().map(|(name, text, _)| text.replace("{}", name)).collect();
    let mut ran = vec![false; texts.len()];
    for setting in SETTINGS {
        let Some(known) = setting.assembled(&compiler, &texts) else { return };
        for (((_, _, want), found), ran) in ROWS.iter().zip(known).zip(&mut ran) {
            let Some(found) = found else { continue };
            *ran = true;
            let all = if setting.lanes == 64 { u64::MAX } else { 0xffff_ffff };
            for exec in [all, 0xf0f0_3333_a5a5_fffe & all, 1] {
                let halves =
                    setting.lanes == 64 && (setting.target == "gfx1030" || setting.target.starts_with("gfx11"));
                let before = Before { lanes: setting.lanes, exec, halves };
                let mut wave = prepared(setting, &before);
                execute(&mut wave, setting, &found);
                for lane in 0..setting.lanes {
                    let new = before.is_active(lane).then(|| want(&before, lane)).flatten();
                    let label =
                        format!("{} of {} lanes, lane {lane} of {exec:#x}: {found:?}", setting.target, setting.lanes);
                    assert_eq!(wave.lane(0, lane), new.unwrap_or(0xdead_beef), "{label}");
                }
            }
        }
    }
    let never: Vec<&String> = texts.iter().zip(ran).filter(|(_, ran)| !ran).map(|(text, _)| text).collect();
    assert!(never.is_empty(), "no target's assembler knows {never:?}");
}

#[test]
fn single_lanes_are_read_and_written() {
    let Some(compiler) = Compiler::find() else { return };
    let texts = [
        "v_readfirstlane_b32 s6, v2",
        "v_readlane_b32 s7, v2, 17",
        "v_readlane_b32 s8, v2, s2",
        "v_writelane_b32 v0, s4, 3",
        "v_readfirstlane_b32 s9, v2",
    ];
    for setting in SETTINGS {
        let lines = texts.map(str::to_owned);
        let Some(known) = setting.assembled(&compiler, &lines) else { return };
        let known: Vec<String> = known.into_iter().flat_map(|found| found.unwrap()).collect();
        let before = Before { lanes: setting.lanes, exec: 0x00f0, halves: false };
        let mut wave = prepared(setting, &before);
        execute(&mut wave, setting, &known[..4]);
        // Inactive lanes are read and written too; the number of the lane wraps around.
        let picked = PATTERNS[0] % setting.lanes;
        assert_eq!((wave.scalar[6], wave.scalar[7]), (before.data(4), before.data(17)), "{}", setting.target);
        assert_eq!(wave.scalar[8], before.data(picked), "{}", setting.target);
        assert_eq!((wave.lane(0, 3), wave.lane(0, 4)), (PATTERNS[1], 0xdead_beef), "{}", setting.target);
        // Without active lanes, the first lane is lane 0.
        wave.set_exec(0);
        execute(&mut wave, setting, &known[4..]);
        assert_eq!(wave.scalar[9], before.data(0), "{}", setting.target);
    }
}

/// The assembler of clang 19 does not know it.
#[test]
fn inactive_lanes_can_be_read_through_the_lds_unit_of_gfx12() {
    for setting in SETTINGS.into_iter().filter(|setting| setting.target == "gfx1201") {
        let before = Before { lanes: setting.lanes, exec: 0xa5a5, halves: false };
        let mut wave = prepared(setting, &before);
        execute(&mut wave, setting, &["ds_bpermute_fi_b32 v0, v4, v2".to_owned()]);
        for lane in (0..setting.lanes).filter(|lane| before.is_active(*lane)) {
            assert_eq!(wave.lane(0, lane), before.data(before.pick(lane) / 4 % setting.lanes), "lane {lane}");
        }
    }
}

/// Odd groups of lanes of one register and even ones of the other change places.
#[test]
fn groups_of_lanes_of_gfx950_are_exchanged() {
    for setting in SETTINGS.into_iter().filter(|setting| setting.target == "gfx950") {
        for count in [16, 32] {
            let before = Before { lanes: setting.lanes, exec: u64::MAX, halves: false };
            let mut wave = prepared(setting, &before);
            execute(&mut wave, setting, &[format!("v_permlane{count}_swap_b32 v4, v2")]);
            for lane in 0..setting.lanes {
                let is_odd = lane / count % 2 == 1;
                let wanted = if is_odd {
                    (before.data(lane - count), before.data(lane))
                } else {
                    (before.pick(lane), before.pick(lane + count))
                };
                assert_eq!((wave.lane(4, lane), wave.lane(2, lane)), wanted, "{count}: lane {lane}");
            }
        }
    }
}

/// Mnemonics with a row here.
pub fn names() -> Vec<&'static str> {
    let single = [
        "v_permlane16_swap_b32",
        "v_permlane32_swap_b32",
        "ds_bpermute_fi_b32",
        "v_readfirstlane_b32",
        "v_readlane_b32",
        "v_writelane_b32",
    ];
    ROWS.iter().map(|(name, ..)| *name).chain(single).collect()
}
