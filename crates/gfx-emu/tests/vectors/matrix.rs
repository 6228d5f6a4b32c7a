//! Matrix products of small integers, which are exact in every format.

use gfx_emu::Wave;

use super::assembler::{SETTINGS, Setting};
use super::common::Compiler;
use super::lanes::execute;
use super::soft::{to_bf16, to_f16, to_f32};

/// Element (row, k) of A, (k, column) of B, and (row, column) of C.
fn a(row: u32, k: u32) -> i64 {
    i64::from((row * 5 + k * 3) % 7) - 3
}

fn b(k: u32, column: u32) -> i64 {
    i64::from((column * 7 + k * 2) % 5) - 2
}

fn c(row: u32, column: u32) -> i64 {
    i64::from(row * 3 + column) - 40
}

/// A format of operands or results.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Format {
    F64,
    F32,
    F16,
    Bf16,
    I32,
    /// Unsigned unless neg_lo says otherwise.
    I8,
    I4,
}

impl Format {
    fn bits(self) -> u32 {
        match self {
            Format::F64 => 64,
            Format::F32 | Format::I32 => 32,
            Format::F16 | Format::Bf16 => 16,
            Format::I8 => 8,
            Format::I4 => 4,
        }
    }

    fn encode(self, value: i64) -> u64 {
        match self {
            Format::F64 => (value as f64).to_bits(),
            Format::F32 => to_f32(value as f64),
            Format::F16 => to_f16(value as f64),
            Format::Bf16 => to_bf16(value as f64),
            Format::I32 | Format::I8 | Format::I4 => value as u64 & ((1 << self.bits()) - 1),
        }
    }
}

/// Puts element `at` of a format into registers from `first` on.
fn put(wave: &mut Wave, first: u16, lane: u32, at: u32, format: Format, value: i64) {
    let bits = format.encode(value);
    for (word, part) in
        [(0, bits as u32), (1, (bits >> 32) as u32)].into_iter().take(format.bits().div_ceil(32) as usize)
    {
        let place = at * format.bits() + word * 32;
        let register = first + place as u16 / 32;
        let shift = place % 32;
        let mask = if format.bits() >= 32 { u32::MAX } else { (1 << format.bits()) - 1 };
        let old = wave.lane(register, lane);
        wave.set_lane(register, lane, old & !(mask << shift) | part << shift);
    }
}

fn get(wave: &Wave, first: u16, lane: u32, at: u32, format: Format) -> u64 {
    let place = at * format.bits();
    let word = |index: u32| u64::from(wave.lane(first + (place / 32 + index) as u16, lane));
    let whole = word(0) >> (place % 32);
    if format.bits() == 64 { whole | word(1) << 32 } else { whole & ((1 << format.bits()) - 1) }
}

/// A product of `size x size x depth`.
struct Product {
    names: &'static str,
    operand: Format,
    sum: Format,
    size: u32,
    depth: u32,
}

const fn of(names: &'static str, operand: Format, sum: Format, size: u32, depth: u32) -> Product {
    Product { names, operand, sum, size, depth }
}

use Format::{Bf16, F16, F32, F64, I4, I8, I32};

const WMMA: &[Product] = &[
    of("v_wmma_f32_16x16x16_f16", F16, F32, 16, 16),
    of("v_wmma_f32_16x16x16_bf16", Bf16, F32, 16, 16),
    of("v_wmma_f16_16x16x16_f16", F16, F16, 16, 16),
    of("v_wmma_bf16_16x16x16_bf16", Bf16, Bf16, 16, 16),
    of("v_wmma_i32_16x16x16_iu8", I8, I32, 16, 16),
    of("v_wmma_i32_16x16x16_iu4", I4, I32, 16, 16),
    of("v_wmma_i32_16x16x32_iu4", I4, I32, 16, 32),
];

const MFMA: &[Product] = &[
    of("v_mfma_f32_16x16x16_f16 v_mfma_f32_16x16x16f16", F16, F32, 16, 16),
    of("v_mfma_f32_16x16x16_bf16 v_mfma_f32_16x16x16bf16_1k", Bf16, F32, 16, 16),
    of("v_mfma_f32_32x32x8_f16 v_mfma_f32_32x32x8f16", F16, F32, 32, 8),
    of("v_mfma_f32_32x32x8_bf16 v_mfma_f32_32x32x8bf16_1k", Bf16, F32, 32, 8),
    of("v_mfma_f32_16x16x4_f32 v_mfma_f32_16x16x4f32", F32, F32, 16, 4),
    of("v_mfma_f32_32x32x2_f32 v_mfma_f32_32x32x2f32", F32, F32, 32, 2),
    of("v_mfma_f64_16x16x4_f64 v_mfma_f64_16x16x4f64", F64, F64, 16, 4),
    of("v_mfma_i32_16x16x32_i8", I8, I32, 16, 32),
    of("v_mfma_i32_32x32x16_i8", I8, I32, 32, 16),
    of("v_mfma_i32_16x16x16i8", I8, I32, 16, 16),
];

/// What gfx950 adds, and clang 19 does not know.
const GFX950: &[Product] = &[
    of("v_mfma_f32_16x16x32_f16", F16, F32, 16, 32),
    of("v_mfma_f32_16x16x32_bf16", Bf16, F32, 16, 32),
    of("v_mfma_f32_32x32x16_f16", F16, F32, 32, 16),
    of("v_mfma_f32_32x32x16_bf16", Bf16, F32, 32, 16),
    of("v_mfma_i32_16x16x64_i8", I8, I32, 16, 64),
    of("v_mfma_i32_32x32x32_i8", I8, I32, 32, 32),
];

/// Registers of 32 bits for a number of elements.
fn registers(elements: u32, format: Format) -> u32 {
    (elements * format.bits()).div_ceil(32)
}

fn range(first: u32, count: u32) -> String {
    if count == 1 { format!("v{first}") } else { format!("v[{first}:{}]", first + count - 1) }
}

/// Where a family keeps elements: lanes and places of an operand's (row or column, k), and a result's (row, column).
struct Layout {
    operand: Box<dyn Fn(u32, u32) -> Vec<(u32, u32)>>,
    /// The row of result `i` of a lane; the column is the lane's number modulo the size.
    row: Box<dyn Fn(u32, u32) -> u32>,
    /// Elements of an operand and of a result in a lane.
    elements: (u32, u32),
    /// Results of 16 bits have a register each.
    sparse: bool,
}

fn wmma(product: &Product, setting: Setting) -> Layout {
    let (groups, depth) = (setting.lanes / 16, product.depth);
    let results = 256 / setting.lanes;
    if setting.target.starts_with("gfx12") {
        let each = depth / groups;
        Layout {
            operand: Box::new(move |at, k| vec![(at + 16 * (k / each), k % each)]),
            row: Box::new(move |lane, i| i + results * (lane / 16)),
            elements: (each, results),
            sparse: false,
        }
    } else {
        Layout {
            // Every group of 16 lanes has the same.
            operand: Box::new(move |at, k| (0..groups).map(|group| (at + 16 * group, k)).collect()),
            row: Box::new(move |lane, i| i * groups + lane / 16),
            elements: (depth, results),
            sparse: true,
        }
    }
}

fn mfma(product: &Product) -> Layout {
    let (size, each, is_double) = (product.size, product.size * product.depth / 64, product.sum == F64);
    Layout {
        operand: Box::new(move |at, k| vec![(at + size * (k / each), k % each)]),
        // Groups of four rows go round the lanes; of 64-bit floats, single rows.
        row: Box::new(move |lane, i| {
            let (group, run) = (64 / size, if is_double { 1 } else { 4 });
            i / run * run * group + lane / size * run + i % run
        }),
        elements: (each, size * size / 64),
        sparse: false,
    }
}

/// The instruction's operands: results from v0, A from v100, B from v150.
fn text(product: &Product, layout: &Layout) -> String {
    let operands = registers(layout.elements.0, product.operand);
    let results = if layout.sparse && product.sum.bits() == 16 {
        layout.elements.1
    } else {
        registers(layout.elements.1, product.sum)
    };
    let signs = if product.names.contains("_iu") { " neg_lo:[1,1,0]" } else { "" };
    format!("{}, {}, {}, {}{signs}", range(0, results), range(100, operands), range(150, operands), range(0, results))
}

fn check(product: &Product, layout: &Layout, setting: Setting, found: &[String]) {
    let mut wave = Wave::new(setting.target.parse().unwrap(), setting.lanes);
    for at in 0..product.size {
        for k in 0..product.depth {
            for (lane, element) in (layout.operand)(at, k) {
                put(&mut wave, 100, lane, element, product.operand, a(at, k));
                put(&mut wave, 150, lane, element, product.operand, b(k, at));
            }
        }
    }
    // Results of 16 bits in the low half of a register each.
    let spread = if layout.sparse && product.sum.bits() == 16 { 2 } else { 1 };
    let places: Vec<(u32, u32, u32, u32)> = (0..setting.lanes)
        .flat_map(|lane| (0..layout.elements.1).map(move |i| (lane, i)))
        .map(|(lane, i)| (lane, i * spread, (layout.row)(lane, i), lane % product.size))
        .collect();
    for &(lane, i, row, column) in &places {
        put(&mut wave, 0, lane, i, product.sum, c(row, column));
    }
    // Matrix instructions ignore EXEC.
    wave.set_exec(0x7);
    execute(&mut wave, setting, found);
    for &(lane, i, row, column) in &places {
        let want = c(row, column) + (0..product.depth).map(|k| a(row, k) * b(k, column)).sum::<i64>();
        let have = get(&wave, 0, lane, i, product.sum);
        assert_eq!(have, product.sum.encode(want), "{}: {found:?} {row} {column}", setting.target);
    }
}

#[test]
fn matrix_products_match_integer_arithmetic() {
    let Some(compiler) = Compiler::find() else { return };
    let mut missing: Vec<&str> = WMMA.iter().chain(MFMA).flat_map(|product| product.names.split(' ')).collect();
    for setting in SETTINGS {
        let is_cdna = setting.target.starts_with("gfx9");
        let rows: Vec<(&Product, Layout, &str)> = if is_cdna { MFMA } else { WMMA }
            .iter()
            .flat_map(|product| product.names.split(' ').map(move |name| (product, name)))
            .map(|(product, name)| (product, if is_cdna { mfma(product) } else { wmma(product, setting) }, name))
            .collect();
        let lines: Vec<String> =
            rows.iter().map(|(product, layout, name)| format!("{name} {}", text(product, layout))).collect();
        let Some(known) = setting.assembled(&compiler, &lines) else { return };
        for ((product, layout, name), found) in rows.iter().zip(known) {
            if let Some(found) = found {
                check(product, layout, setting, &found);
                missing.retain(|other| other != name);
            }
        }
    }
    assert!(missing.is_empty(), "no target's assembler knows {missing:?}");
}

#[test]
fn deeper_products_of_gfx950_are_executed_from_their_text() {
    for setting in SETTINGS.into_iter().filter(|setting| setting.target == "gfx950") {
        for product in GFX950 {
            let layout = mfma(product);
            check(product, &layout, setting, &[format!("{} {}", product.names, text(product, &layout))]);
        }
    }
}

/// Mnemonics with a row here.
pub fn names() -> Vec<&'static str> {
    WMMA.iter().chain(MFMA).chain(GFX950).flat_map(|product| product.names.split(' ')).collect()
}
