//! Rows that compute a value or a condition in each lane.

use gfx_emu::decode::{Context, decode};
use gfx_emu::{Step, Wave};

use super::assembler::{SETTINGS, Setting};
use super::common::Compiler;
use super::soft::{from_f16, from_f32};

/// How a result is compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Same {
    /// Equal bits.
    Bits,
    /// Equal bits, or NaN both.
    Float,
    /// At most two units in the last place apart; denormals may be 0.
    Near,
    /// At most a millionth apart, or a thousandth for 16 bits.
    Absolute,
}

/// The value in the result's register and the lane's bit in the result's mask, from three sources and the lane's bit in
/// the mask that is read.
pub type Want = Box<dyn Fn([u64; 3], bool) -> (u64, Option<bool>)>;

/// One row. Sources are v2, v4 and v6, each with the register after it; results are v0 and v1.
pub struct Case {
    /// Mnemonics of all families with this meaning.
    pub names: &'static str,
    /// The instruction, with `{}` for the mnemonic.
    pub text: String,
    pub values: &'static [u64],
    /// Bits of the result: 16, 32 or 64, or 0 if there is only a mask.
    pub bits: u32,
    pub same: Same,
    /// Whether v0 is also a source: the third one.
    pub adds: bool,
    pub want: Want,
}

impl Case {
    /// A row without masks.
    pub fn new(
        names: &'static str,
        operands: &str,
        (values, bits, same): (&'static [u64], u32, Same),
        want: impl Fn([u64; 3]) -> u64 + 'static,
    ) -> Case {
        let want: Want = Box::new(move |sources, _| (want(sources), None));
        Case { names, text: format!("{{}} {operands}"), values, bits, same, adds: false, want }
    }
}

/// The lanes that are active.
const ACTIVE: u64 = 0xbfff_fffe_7fef_fffd;
/// The mask that instructions read.
const TAKEN: u64 = 0x9669_a5c3_5aa5_c33c;
/// What registers hold before.
const BEFORE: u64 = 0xdead_beef_dead_beef;

/// Runs rows on all targets. Returns `false` if clang or LLVM is missing.
pub fn check(cases: &[Case]) {
    let Some(compiler) = Compiler::find() else { return };
    let texts: Vec<(usize, &str, String)> = (0..)
        .zip(cases)
        .flat_map(|(at, case)| case.names.split(' ').map(move |name| (at, name, case.text.replace("{}", name))))
        .collect();
    let mut ran = vec![false; texts.len()];
    for setting in SETTINGS {
        let lines: Vec<String> = texts.iter().map(|(.., text)| text.clone()).collect();
        let Some(known) = setting.assembled(&compiler, &lines) else { return };
        for (((at, name, _), found), ran) in texts.iter().zip(known).zip(&mut ran) {
            if let Some(found) = found {
                *ran = true;
                run(&cases[*at], name, setting, &found);
            }
        }
    }
    let never: Vec<&str> = texts.iter().zip(ran).filter(|(_, ran)| !ran).map(|((.., text), _)| text.as_str()).collect();
    assert!(never.is_empty(), "no target's assembler knows\n{}", never.join("\n"));
}

/// Executes instructions on registers, from their text.
pub fn execute(wave: &mut Wave, setting: Setting, texts: &[String]) {
    for text in texts {
        let context = Context { target: setting.target.parse().unwrap(), wave_size: setting.lanes };
        let inst = decode(text, context).unwrap_or_else(|reason| panic!("{}: {text}: {reason}", setting.target));
        match &inst.step {
            Step::Alu(run) => run(wave, &inst),
            Step::Form(form) => form.run(wave),
            _ => panic!("{text} is not an operation on registers"),
        }
    }
}

pub fn run(case: &Case, name: &str, setting: Setting, texts: &[String]) {
    let count = 1 + usize::from(uses(&case.text, 4)) + usize::from(uses(&case.text, 6) || case.adds);
    let list = |used: bool| if used { case.values } else { &case.values[..1] };
    let third = list(uses(&case.text, 6) || case.adds);
    let sources: Vec<[u64; 3]> = case
        .values
        .iter()
        .flat_map(|a| list(count > 1 && uses(&case.text, 4)).iter().map(move |b| (*a, *b)))
        .flat_map(|(a, b)| third.iter().map(move |c| [a, b, *c]))
        .collect();
    let mut wave = Wave::new(setting.target.parse().unwrap(), setting.lanes);
    let all = if setting.lanes == 64 { u64::MAX } else { 0xffff_ffff };
    let lanes_active: Vec<u32> = (0..setting.lanes).filter(|lane| ACTIVE >> lane & 1 == 1).collect();
    for chunk in sources.chunks(lanes_active.len()) {
        for lane in 0..setting.lanes {
            put(&mut wave, 0, lane, BEFORE);
        }
        let active = lanes_active[..chunk.len()].iter().fold(0, |mask, lane| mask | 1u64 << lane);
        for (lane, sources) in lanes_active.iter().zip(chunk) {
            (0..3).for_each(|k| put(&mut wave, 2 + 2 * k as u16, *lane, sources[k]));
            if case.adds {
                put(&mut wave, 0, *lane, sources[2]);
            }
        }
        wave.set_exec(active);
        for (register, mask) in [(106, TAKEN), (10, u64::MAX), (12, TAKEN)] {
            wave.scalar[register] = mask as u32;
            wave.scalar[register + 1] = (mask >> 32) as u32;
        }
        execute(&mut wave, setting, texts);
        let label =
            |lane: u32| format!("{} of {} lanes, lane {lane}: {}", setting.target, setting.lanes, texts.join("; "));
        let mut mask = 0;
        let mut has_mask = false;
        for (lane, sources) in lanes_active.iter().zip(chunk) {
            let (want, bit) = (case.want)(*sources, TAKEN >> lane & 1 == 1);
            mask |= u64::from(bit == Some(true)) << lane;
            has_mask |= bit.is_some();
            compare(case, name, setting, (get(&wave, *lane), want), || {
                format!("{} of {:#x} {:#x} {:#x}", label(*lane), sources[0], sources[1], sources[2])
            });
        }
        if has_mask {
            // v_cmpx writes EXEC; the masks of others are in VCC or in s[10:11].
            let have = if name.starts_with("v_cmpx") {
                wave.exec()
            } else if case.text.contains("VCC") {
                wave.mask(106)
            } else {
                wave.mask(10)
            };
            assert_eq!(have & all, mask, "{}: the mask of {:x?}", label(0), chunk);
        }
        for lane in (0..setting.lanes).filter(|lane| active >> lane & 1 == 0) {
            assert_eq!(get(&wave, lane), BEFORE, "{}: an inactive lane was written", label(lane));
        }
    }
}

fn uses(text: &str, register: u32) -> bool {
    text.contains(&format!("v{register}")) || text.contains(&format!("v[{register}:"))
}

fn put(wave: &mut Wave, register: u16, lane: u32, value: u64) {
    wave.set_lane(register, lane, value as u32);
    wave.set_lane(register + 1, lane, (value >> 32) as u32);
}

fn get(wave: &Wave, lane: u32) -> u64 {
    u64::from(wave.lane(0, lane)) | u64::from(wave.lane(1, lane)) << 32
}

fn compare(case: &Case, name: &str, setting: Setting, (have, want): (u64, u64), label: impl Fn() -> String) {
    let width = match case.bits {
        0 => return,
        64 => u64::MAX,
        bits => (1 << bits) - 1,
    };
    let same = match (case.same, case.bits) {
        (Same::Bits, _) => have & width == want & width,
        (_, 64) => {
            near(f64::from_bits(have), f64::from_bits(want), have == want, case.same, f64::EPSILON, f64::MIN_POSITIVE)
        }
        (_, 32) => {
            let limit = (f64::from(f32::EPSILON), f64::from(f32::MIN_POSITIVE));
            near(from_f32(have), from_f32(want), have & width == want & width, case.same, limit.0, limit.1)
        }
        _ => {
            let equal = have & width == want & width;
            near(from_f16(have), from_f16(want), equal, case.same, 1.0 / 1024.0, 1.0 / 16384.0)
        }
    };
    assert!(same, "{}\n  gave {:#x}, expected {:#x}", label(), have & width, want & width);
    if case.bits == 16 && !case.adds {
        // CDNA clears the other half of the register; RDNA keeps it.
        let clears = match name {
            "v_fma_mixlo_f16" => false,
            "v_sat_pk_u8_i16" => setting.target.starts_with("gfx9") || setting.target == "gfx1030",
            _ => setting.target.starts_with("gfx9"),
        };
        let kept = if clears { 0 } else { 0xdead_0000 };
        assert_eq!(have & 0xffff_0000, kept, "{}: the other half", label());
    }
}

fn near(have: f64, want: f64, equal: bool, same: Same, unit: f64, smallest: f64) -> bool {
    if equal || have.is_nan() && want.is_nan() {
        return true;
    }
    if same == Same::Absolute {
        return (have - want).abs() <= if unit > 1.0e-4 { 1.0e-3 } else { 1.0e-6 };
    }
    same == Same::Near
        && ((have - want).abs() <= 2.0 * unit * want.abs() || have.abs() <= smallest && want.abs() <= smallest)
}
