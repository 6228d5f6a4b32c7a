//! Matrix and dot products of small integers, which are exact in every format.

use super::machine::{step, wave};
use gfx_emu::Wave;
use half::{bf16, f16};

/// Element (row, k) of A and (k, column) of B.
fn a(row: u32, k: u32) -> i32 {
    ((row * 5 + k * 3) % 11) as i32 - 5
}

fn b(k: u32, column: u32) -> i32 {
    ((column * 7 + k * 2) % 9) as i32 - 4
}

fn c(row: u32, column: u32) -> i32 {
    (row * 16 + column) as i32 - 100
}

fn product(row: u32, column: u32, depth: u32) -> i32 {
    c(row, column) + (0..depth).map(|k| a(row, k) * b(k, column)).sum::<i32>()
}

fn put16(wave: &mut Wave, first: u16, lane: u32, at: u32, bits: u16) {
    let register = first + at as u16 / 2;
    let (old, shift) = (wave.lane(register, lane), at % 2 * 16);
    wave.set_lane(register, lane, old & !(0xffff << shift) | u32::from(bits) << shift);
}

/// Where each family keeps an operand's element (row or column, k) and a result's (row, column).
struct Layout {
    target: &'static str,
    lanes: u32,
    /// The name of the product, with `TYPE` for the format.
    name: &'static str,
    /// Lane and element of an operand.
    operand: fn(u32, u32) -> Vec<(u32, u32)>,
    /// Row of result `i` of a lane.
    row: fn(u32, u32) -> u32,
}

const LAYOUTS: [Layout; 3] = [
    Layout {
        target: "gfx1100",
        lanes: 32,
        name: "v_wmma_f32_16x16x16_TYPE v[0:7], v[8:15], v[16:23], v[0:7]",
        operand: |at, k| vec![(at, k), (at + 16, k)],
        row: |lane, i| 2 * i + lane / 16,
    },
    Layout {
        target: "gfx1201",
        lanes: 32,
        name: "v_wmma_f32_16x16x16_TYPE v[0:7], v[8:11], v[16:19], v[0:7]",
        operand: |at, k| vec![(at + 16 * (k / 8), k % 8)],
        row: |lane, i| i + 8 * (lane / 16),
    },
    Layout {
        target: "gfx942",
        lanes: 64,
        name: "v_mfma_f32_16x16x16_TYPE v[0:3], v[8:9], v[16:17], v[0:3]",
        operand: |at, k| vec![(at + 16 * (k / 4), k % 4)],
        row: |lane, i| 4 * (lane / 16) + i,
    },
];

#[test]
fn products_of_16_by_16_match_integer_arithmetic() {
    for layout in LAYOUTS {
        for format in ["f16", "bf16"] {
            let bits = |value: i32| {
                if format == "f16" {
                    f16::from_f32(value as f32).to_bits()
                } else {
                    bf16::from_f32(value as f32).to_bits()
                }
            };
            let mut wave = wave(layout.target, layout.lanes);
            for at in 0..16 {
                for k in 0..16 {
                    for (lane, element) in (layout.operand)(at, k) {
                        put16(&mut wave, 8, lane, element, bits(a(at, k)));
                        put16(&mut wave, 16, lane, element, bits(b(k, at)));
                    }
                }
            }
            let results = 256 / layout.lanes;
            for lane in 0..layout.lanes {
                for i in 0..results {
                    let value = c((layout.row)(lane, i), lane % 16) as f32;
                    wave.set_lane(i as u16, lane, value.to_bits());
                }
            }
            step(&mut wave, &layout.name.replace("TYPE", format));
            for lane in 0..layout.lanes {
                for i in 0..results {
                    let (row, column) = ((layout.row)(lane, i), lane % 16);
                    let have = f32::from_bits(wave.lane(i as u16, lane));
                    assert_eq!(have, product(row, column, 16) as f32, "{} {format} {row} {column}", layout.target);
                }
            }
        }
    }
}

#[test]
fn bytes_are_signed_where_neg_lo_says_so() {
    for (text, want) in [
        ("v_dot4_i32_iu8 v0, v1, v2, v3", 255 * 255 + 128 + 6 + 1000),
        ("v_dot4_i32_iu8 v0, v1, v2, v3 neg_lo:[1,0,0]", -255 + -128 + 6 + 1000),
        ("v_dot4_i32_iu8 v0, v1, v2, v3 neg_lo:[1,1,0]", 1 + -128 + 6 + 1000),
        ("v_dot4_u32_u8 v0, v1, v2, v3", 255 * 255 + 128 + 6 + 1000),
    ] {
        let mut wave = wave("gfx1100", 32);
        wave.set_lane(1, 3, u32::from_le_bytes([255, 128, 2, 0]));
        wave.set_lane(2, 3, u32::from_le_bytes([255, 1, 3, 9]));
        wave.set_lane(3, 3, 1000);
        step(&mut wave, text);
        assert_eq!(wave.lane(0, 3) as i32, want, "{text}");
    }
}
