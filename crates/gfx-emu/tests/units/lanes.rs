//! Operations across lanes, and the forms DPP, SDWA and VOPD.

use super::machine::{step, wave};
use gfx_emu::Wave;

fn numbered(target: &str, lanes: u32) -> Wave {
    let mut wave = wave(target, lanes);
    (0..lanes).for_each(|lane| wave.set_lane(1, lane, 100 + lane));
    (0..lanes).for_each(|lane| wave.set_lane(0, lane, 7));
    wave
}

fn result(wave: &Wave) -> Vec<u32> {
    (0..wave.lanes()).map(|lane| wave.lane(0, lane)).collect()
}

#[test]
fn dpp_shuffles_rows_of_16_lanes() {
    type Source = fn(u32) -> Option<u32>;
    let rows: [(&str, Source); 8] = [
        ("row_shr:1", |lane| (lane % 16 >= 1).then(|| lane - 1)),
        ("row_shl:3", |lane| (lane % 16 < 13).then_some(lane + 3)),
        ("row_ror:4", |lane| Some(lane / 16 * 16 + (lane % 16 + 12) % 16)),
        ("quad_perm:[3,2,1,0]", |lane| Some(lane / 4 * 4 + 3 - lane % 4)),
        ("row_mirror", |lane| Some(lane / 16 * 16 + 15 - lane % 16)),
        ("row_half_mirror", |lane| Some(lane / 8 * 8 + 7 - lane % 8)),
        ("row_share:5", |lane| Some(lane / 16 * 16 + 5)),
        ("row_xmask:6", |lane| Some(lane ^ 6)),
    ];
    for (control, source) in rows {
        for (bound, missing) in [("", 7), (" bound_ctrl:1", 0)] {
            let mut wave = numbered("gfx1100", 32);
            step(&mut wave, &format!("v_mov_b32_dpp v0, v1 {control} row_mask:0xf bank_mask:0xf{bound}"));
            let want: Vec<u32> = (0..32).map(|lane| source(lane).map_or(missing, |from| 100 + from)).collect();
            assert_eq!(result(&wave), want, "{control}{bound}");
        }
    }
    let mut wave = numbered("gfx1100", 32);
    step(&mut wave, "v_mov_b32_dpp v0, v1 dpp8:[7,6,5,4,3,2,1,0]");
    assert_eq!(result(&wave), (0..32).map(|lane| 100 + (lane ^ 7)).collect::<Vec<_>>());
    let mut wave = numbered("gfx1100", 32);
    step(&mut wave, "v_add_nc_u32_dpp v0, v1, v1 row_shr:1 row_mask:0x2 bank_mask:0xf");
    let want = (0..32).map(|lane: u32| if lane > 16 { 100 + lane - 1 + 100 + lane } else { 7 });
    assert_eq!(result(&wave), want.collect::<Vec<_>>());
}

#[test]
fn lanes_are_read_written_and_permuted() {
    let mut wave = numbered("gfx1100", 32);
    wave.set_exec(0xfff0);
    step(&mut wave, "v_readfirstlane_b32 s0, v1");
    step(&mut wave, "v_readlane_b32 s1, v1, 33");
    assert_eq!((wave.scalar[0], wave.scalar[1]), (104, 101));
    step(&mut wave, "v_writelane_b32 v0, s0, 2");
    assert_eq!(wave.lane(0, 2), 104);
    step(&mut wave, "v_mbcnt_lo_u32_b32 v2, -1, 5");
    assert_eq!((wave.lane(2, 4), wave.lane(2, 15), wave.lane(2, 16)), (9, 20, 0));
    let mut wave = numbered("gfx1100", 32);
    (0..32).for_each(|lane| wave.set_lane(2, lane, (lane * 5 % 32) * 4));
    step(&mut wave, "ds_bpermute_b32 v0, v2, v1");
    assert_eq!(result(&wave), (0..32).map(|lane| 100 + lane * 5 % 32).collect::<Vec<_>>());
    wave.set_exec(0x0000_ffff);
    step(&mut wave, "ds_bpermute_b32 v0, v2, v1");
    // Lane 4 reads lane 20, which is inactive now.
    assert_eq!((wave.lane(0, 3), wave.lane(0, 4), wave.lane(0, 31)), (115, 0, 100 + 31 * 5 % 32));
    let mut wave = numbered("gfx1100", 32);
    step(&mut wave, "ds_swizzle_b32 v0, v1 offset:swizzle(SWAP,16)");
    assert_eq!(result(&wave), (0..32).map(|lane| 100 + (lane ^ 16)).collect::<Vec<_>>());
    step(&mut wave, "ds_swizzle_b32 v0, v1 offset:swizzle(BROADCAST,8,3)");
    assert_eq!(result(&wave), (0..32).map(|lane| 100 + lane / 8 * 8 + 3).collect::<Vec<_>>());
    let mut wave = numbered("gfx1100", 32);
    (wave.scalar[2], wave.scalar[3]) = (0x0123_4567, 0x89ab_cdef);
    step(&mut wave, "v_permlanex16_b32 v0, v1, s2, s3");
    let nibble = |at: u32| 0x89ab_cdef_0123_4567u64 >> (at * 4) & 15;
    assert_eq!(
        result(&wave),
        (0..32).map(|lane| 100 + ((lane / 16 * 16) ^ 16) + nibble(lane % 16) as u32).collect::<Vec<_>>()
    );
}

#[test]
fn dual_operations_read_before_either_writes() {
    let mut wave = wave("gfx1100", 32);
    wave.set_lane(0, 0, 3.0f32.to_bits());
    wave.set_lane(1, 0, 5.0f32.to_bits());
    step(&mut wave, "v_dual_mov_b32 v0, v1 :: v_dual_mov_b32 v1, v0");
    assert_eq!((f32::from_bits(wave.lane(0, 0)), f32::from_bits(wave.lane(1, 0))), (5.0, 3.0));
    step(&mut wave, "v_dual_mul_f32 v0, v0, v1 :: v_dual_add_f32 v3, v0, v1");
    assert_eq!((f32::from_bits(wave.lane(0, 0)), f32::from_bits(wave.lane(3, 0))), (15.0, 8.0));
}

#[test]
fn dual_selects_read_vcc_without_naming_it() {
    let mut wave = numbered("gfx1100", 32);
    wave.scalar[106] = 0xf0f0_0f0f;
    step(&mut wave, "v_dual_cndmask_b32 v0, v0, v1 :: v_dual_mov_b32 v3, v0");
    let want = (0..32).map(|lane| if 0xf0f0_0f0fu32 >> lane & 1 == 1 { 100 + lane } else { 7 });
    assert_eq!(result(&wave), want.collect::<Vec<_>>());
    assert_eq!(wave.lane(3, 0), 7);
}

#[test]
fn sdwa_reads_and_writes_parts_of_registers() {
    let mut wave = wave("gfx942", 64);
    let (a, b) = (0x8899_aabb, 0x0102_0304);
    for (text, want) in [
        (
            "v_add_u32_sdwa v0, v1, v2 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:BYTE_1 src1_sel:WORD_1",
            0xaa + 0x0102,
        ),
        (
            "v_add_u32_sdwa v0, sext(v1), v2 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:BYTE_3 src1_sel:BYTE_0",
            0xffff_ff8c,
        ),
        (
            "v_or_b32_sdwa v0, v1, v2 dst_sel:BYTE_2 dst_unused:UNUSED_PRESERVE src0_sel:BYTE_0 src1_sel:BYTE_0",
            0xdebf_beef,
        ),
        ("v_or_b32_sdwa v0, v1, v2 dst_sel:WORD_1 dst_unused:UNUSED_PAD src0_sel:WORD_0 src1_sel:BYTE_0", 0xaabf_0000),
    ] {
        for (register, value) in [(0, 0xdead_beef), (1, a), (2, b)] {
            wave.set_lane(register, 40, value);
        }
        step(&mut wave, text);
        assert_eq!(wave.lane(0, 40), want, "{text}");
    }
}
