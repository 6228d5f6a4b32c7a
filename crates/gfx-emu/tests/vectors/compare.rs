//! Comparisons that write a mask.

use super::lanes::{Case, Same, check};
use super::soft::{DOUBLES, HALVES, INTS, LONGS, SHORTS, SINGLES, from_f16, from_f32};
use std::cmp::Ordering::{self, Equal, Greater, Less};

/// Whether the order of two numbers satisfies a test of that name. NaN has no order.
fn holds(test: &str, order: Option<Ordering>) -> bool {
    if let Some(positive) = test.strip_prefix('n').filter(|rest| !rest.is_empty() && *rest != "e") {
        // "neq" negates "eq", and so on.
        return !holds(positive, order);
    }
    match test {
        "eq" => order == Some(Equal),
        "ne" => order != Some(Equal),
        "lg" => matches!(order, Some(Less | Greater)),
        "lt" => order == Some(Less),
        "le" => matches!(order, Some(Less | Equal)),
        "gt" => order == Some(Greater),
        "ge" => matches!(order, Some(Greater | Equal)),
        "o" => order.is_some(),
        "u" => order.is_none(),
        _ => panic!("unknown test {test}"),
    }
}

const INT_TESTS: [&str; 6] = ["eq", "ne", "lt", "le", "gt", "ge"];
const FLOAT_TESTS: [&str; 14] =
    ["eq", "neq", "lg", "nlg", "lt", "nlt", "le", "nle", "gt", "ngt", "ge", "nge", "o", "u"];

type Order = fn(u64, u64) -> Option<Ordering>;

/// Formats, registers per operand, values, and how two of them are ordered.
const FORMATS: [(&str, bool, &[u64], Order); 9] = [
    ("u32", false, INTS, |a, b| Some(a.cmp(&b))),
    ("i32", false, INTS, |a, b| Some((a as i32).cmp(&(b as i32)))),
    ("u64", true, LONGS, |a, b| Some(a.cmp(&b))),
    ("i64", true, LONGS, |a, b| Some((a as i64).cmp(&(b as i64)))),
    ("u16", false, SHORTS, |a, b| Some((a as u16).cmp(&(b as u16)))),
    ("i16", false, SHORTS, |a, b| Some((a as i16).cmp(&(b as i16)))),
    ("f32", false, SINGLES, |a, b| from_f32(a).partial_cmp(&from_f32(b))),
    ("f64", true, DOUBLES, |a, b| f64::from_bits(a).partial_cmp(&f64::from_bits(b))),
    ("f16", false, HALVES, |a, b| from_f16(a).partial_cmp(&from_f16(b))),
];

/// The number of a class: signalling NaN, quiet NaN, then from -infinity to +infinity.
fn class(bits: u64, width: u32, fraction: u32) -> u32 {
    let size = bits & ((1 << (width - 1)) - 1);
    let (exponent, rest) = (size >> fraction, size & ((1 << fraction) - 1));
    let largest = (1 << (width - 1 - fraction)) - 1;
    let positive = match (exponent == largest, exponent == 0, rest == 0) {
        (true, _, false) => return u32::from(rest >> (fraction - 1) == 1),
        (true, _, true) => 9,
        (_, true, true) => 6,
        (_, true, false) => 7,
        _ => 8,
    };
    if bits >> (width - 1) & 1 == 1 { 11 - positive } else { positive }
}

type Test = Box<dyn Fn(u64, u64) -> bool>;

fn case(name: String, text: String, values: &'static [u64], want: Test) -> Case {
    let names: &'static str = Box::leak(name.into_boxed_str());
    let want = Box::new(move |[a, b, _]: [u64; 3], _| (0, Some(want(a, b))));
    Case { names, text, values, bits: 0, same: Same::Bits, adds: false, want }
}

fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    let mut add = |name: String, text: String, values, want: Test| cases.push(case(name, text, values, want));
    for (format, wide, values, order) in FORMATS {
        let (a, b) = if wide { ("v[2:3]", "v[4:5]") } else { ("v2", "v4") };
        let tests: &[&'static str] = if format.starts_with('f') { &FLOAT_TESTS } else { &INT_TESTS };
        for test in tests {
            let want = || -> Test { Box::new(move |a, b| holds(test, order(a, b))) };
            add(format!("v_cmp_{test}_{format}"), format!("{{}} VCC, {a}, {b}"), values, want());
            add(format!("v_cmp_{test}_{format}_e64"), format!("{{}} MASK, {a}, {b}"), values, want());
            // Since gfx10, v_cmpx has no result operand; before, it writes one too.
            add(format!("v_cmpx_{test}_{format}"), format!("{{}} VCC, {a}, {b}"), values, want());
            add(format!("v_cmpx_{test}_{format}_e32"), format!("{{}} {a}, {b}"), values, want());
        }
    }
    for (format, width, fraction, values, a) in
        [("f32", 32, 23, SINGLES, "v2"), ("f64", 64, 52, DOUBLES, "v[2:3]"), ("f16", 16, 10, HALVES, "v2")]
    {
        for mask in [0x001, 0x002, 0x00c, 0x030, 0x0c0, 0x100, 0x200, 0x3ff_u32] {
            for (name, result) in [("v_cmp_class", "MASK, "), ("v_cmpx_class", "VCC, "), ("v_cmpx_class", "")] {
                let want = Box::new(move |a, _| mask >> class(a, width, fraction) & 1 == 1);
                let text = format!("v_mov_b32 v4, {mask:#x}\n{{}} {result}{a}, v4");
                add(format!("{name}_{format}_e64"), text, values, want);
            }
        }
    }
    cases
}

/// Mnemonics with a row here.
pub fn names() -> Vec<&'static str> {
    cases().iter().map(|case| case.names.trim_end_matches("_e64").trim_end_matches("_e32")).collect()
}

#[test]
fn comparisons_write_masks_and_know_nan() {
    check(&cases());
}
