//! Runs single instructions from their text on a wave, without a disassembler.

use gfx_emu::decode::{Context, decode};
use gfx_emu::{Step, Wave};

/// A wave of a chip with all lanes active.
pub fn wave(target: &str, lanes: u32) -> Wave {
    Wave::new(target.parse().unwrap(), lanes)
}

/// Executes one instruction on registers.
pub fn step(wave: &mut Wave, text: &str) {
    let context = Context { target: wave.target, wave_size: wave.lanes() };
    let inst = decode(text, context).unwrap_or_else(|reason| panic!("{text}: {reason}"));
    match &inst.step {
        Step::Alu(run) => run(wave, &inst),
        Step::Form(form) => form.run(wave),
        _ => panic!("{text} is not an operation on registers"),
    }
}

/// Integers with carries, signs and shifts at their limits.
pub const INTS: [u32; 13] =
    [0, 1, 2, 31, 32, 0xff, 0xffff, 0x1234_5678, 0x7fff_ffff, 0x8000_0000, 0x8000_0001, 0xffff_0000, 0xffff_ffff];

/// Floats with zeros, denormals, infinities and NaN.
pub const FLOATS: [f32; 13] = [
    0.0,
    -0.0,
    1.0,
    -1.5,
    std::f32::consts::PI,
    1.0e-40,
    -1.0e-45,
    f32::MIN_POSITIVE,
    f32::MAX,
    f32::INFINITY,
    f32::NEG_INFINITY,
    f32::NAN,
    -16777216.0,
];

/// Runs `text` with v1, v2 and v3 (and v4 for the result) holding all triples of values, 32 at a time, and compares v0.
pub fn each_triple(
    target: &str,
    text: &str,
    values: &[u32],
    same: fn(u32, u32) -> bool,
    want: &dyn Fn(u32, u32, u32) -> u32,
) {
    let triples: Vec<[u32; 3]> =
        values.iter().flat_map(|a| values.iter().flat_map(move |b| values.iter().map(move |c| [*a, *b, *c]))).collect();
    let mut wave = wave(target, 32);
    for chunk in triples.chunks(32) {
        for (lane, triple) in (0..).zip(chunk) {
            (0..3).for_each(|k| wave.set_lane(k + 1, lane, triple[k as usize]));
            wave.set_lane(0, lane, 0xdead_beef);
        }
        // The last lane is inactive and must keep its value.
        wave.set_exec(0x7fff_ffff);
        step(&mut wave, text);
        for (lane, [a, b, c]) in (0..).zip(chunk) {
            let have = wave.lane(0, lane);
            if lane == 31 {
                assert_eq!(have, 0xdead_beef, "{text}: an inactive lane was written");
            } else {
                let want = want(*a, *b, *c);
                assert!(same(have, want), "{text}: {a:#x} {b:#x} {c:#x} gave {have:#x}, not {want:#x}");
            }
        }
    }
}

/// Equal bits.
pub fn exactly(have: u32, want: u32) -> bool {
    have == want
}

/// Equal bits, or both NaN.
pub fn as_float(have: u32, want: u32) -> bool {
    have == want || (f32::from_bits(have).is_nan() && f32::from_bits(want).is_nan())
}
