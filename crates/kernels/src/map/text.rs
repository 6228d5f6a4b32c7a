//! Generates the code for each expression, around `hip/map.hip`.
use std::fmt::Write;

use graph::View;
use graph::expr::Expr;

use super::operand::{Across, Operand, Turn, Walk};
use crate::Kernel;
use crate::expr::{function, headers, value_type};
use crate::kernel::type_name;

const FAMILY: &str = include_str!("../../hip/map.hip");
/// With more operations, a thread has only one pack: its code is long enough.
const LONG: usize = 48;

/// How many packs a thread has in large work: enough to hide memory latency.
pub(super) fn packs_per_thread(expr: &Expr, operands: &[Operand], pack: u32) -> u32 {
    match (operands.len() > 4 || expr.nodes().len() > LONG, pack) {
        (true, _) => 1,
        (false, 1) => 4,
        (false, _) => 2,
    }
}

/// The kernel that walks along rows.
pub(super) fn rows(expr: &Expr, operands: &[Operand], y: &View, walk: &Walk, pack: u32) -> Kernel {
    let kernel = Kernel::new("map_rows", FAMILY).set("V", pack).set("K", packs_per_thread(expr, operands, pack));
    let kinds: Vec<String> =
        operands.iter().zip(&walk.strides).map(|(operand, strides)| kind(operand, strides[0], pack)).collect();
    let mut loads = String::new();
    for (at, operand) in operands.iter().enumerate() {
        let _ = write!(loads, " l.{}.load({}, a.strides[{at}][0]);", operand.field(), address(operand, at));
    }
    let macros = format!("{}#define LOAD_PACK(l, a, at){loads}\n", packs(operands, &kinds));
    finish(kernel, expr, operands, y, walk, &macros)
}

/// The kernel whose packs do not end with rows: dense operands are loaded in packs (LOAD_DENSE), others element by
/// element (LOAD_LOOSE).
pub(super) fn flat(expr: &Expr, operands: &[Operand], y: &View, walk: &Walk, loose: &[bool], pack: u32) -> Kernel {
    let kernel = Kernel::new("map_flat", FAMILY).set("FLAT", 1).set("V", pack);
    let [mut fields, mut dense, mut single, mut aligned] = [const { String::new() }; 4];
    for (at, (operand, loose)) in operands.iter().zip(loose).enumerate() {
        let (field, element) = (operand.field(), type_name(operand.view.dtype));
        if *loose {
            let kind = if operand.is_index() { "LooseIndex".to_owned() } else { format!("Loose<{element}>") };
            let _ = write!(fields, " {kind} {field};");
            let _ = write!(single, " l.{field}.set({}, j);", address(operand, at));
        } else {
            let _ = write!(fields, " Dense<{element}> {field};");
            let _ = write!(dense, " l.{field}.load(a.{field} + (e), 1);");
            let _ = write!(aligned, " && is_pack<V>(a.{field})");
        }
    }
    let macros = format!(
        "#define FLAT_PACKS{fields}\n#define IS_PACKED(a) is_pack<V>(a.y){aligned}\n#define LOAD_DENSE(l, a, e){dense}\n\
         #define LOAD_LOOSE(l, a, at, j){single}\n"
    );
    finish(kernel, expr, operands, y, walk, &macros)
}

/// The kernel that transposes inputs.
pub(super) fn across(expr: &Expr, operands: &[Operand], y: &View, walk: &Walk, across: &Across) -> Kernel {
    match across.how {
        Turn::Packs(pack) => turned(expr, operands, y, walk, across, pack),
        Turn::Tile(side) => tile(expr, operands, y, walk, across, side),
    }
}

/// In registers: transposed operands are loaded once (LOAD_TURNED), the rest for each row of a square (LOAD_ROW).
fn turned(expr: &Expr, operands: &[Operand], y: &View, walk: &Walk, across: &Across, pack: u32) -> Kernel {
    let kernel = Kernel::new("map_turned", FAMILY).set("TURN", 1).set("V", pack);
    let [mut once, mut rows] = [const { String::new() }; 2];
    let mut kinds = Vec::new();
    for (at, (operand, across)) in operands.iter().zip(&across.operands).enumerate() {
        let (field, address) = (operand.field(), address(operand, at));
        if *across {
            kinds.push(format!("Turned<{}>", type_name(operand.view.dtype)));
            let _ = write!(once, " l.{field}.load({address}, a.strides[{at}][0]);");
            let _ = write!(rows, " l.{field}.r = r;");
        } else {
            kinds.push(kind(operand, walk.strides[at][0], pack));
            let row = format!("{address} + (OFFSET)(r) * a.strides[{at}][1]");
            let _ = write!(rows, " l.{field}.load({row}, a.strides[{at}][0]);");
        }
    }
    let packs = packs(operands, &kinds);
    let macros = format!("{packs}#define LOAD_TURNED(l, a, at){once}\n#define LOAD_ROW(l, a, at, r){rows}\n");
    finish(kernel, expr, operands, y, walk, &macros)
}

/// The macros for the type of an operand's packs, and for whether addresses are aligned to packs.
fn packs(operands: &[Operand], kinds: &[String]) -> String {
    let fields: String =
        operands.iter().zip(kinds).map(|(operand, kind)| format!(" {kind} {};", operand.field())).collect();
    let aligned =
        operands.iter().zip(kinds).filter(|(_, kind)| kind.starts_with("Dense") || kind.starts_with("Turned"));
    let aligned: String = aligned.map(|(operand, _)| format!(" && is_pack<V>(a.{})", operand.name())).collect();
    format!("#define PACKS{fields}\n#define IS_PACKED(a) is_pack<V>(a.y){aligned}\n")
}

/// In LDS: a transposed operand has an array `held` of what a thread reads (FETCH), which it then stores in the tile
/// (FILL) for others.
fn tile(expr: &Expr, operands: &[Operand], y: &View, walk: &Walk, across: &Across, side: u32) -> Kernel {
    let kernel = Kernel::new("map_tile", FAMILY).set("TILE", side);
    let [mut tiles, mut fetch, mut fill, mut loads] = [const { String::new() }; 4];
    for (at, (operand, across)) in operands.iter().zip(&across.operands).enumerate() {
        let (field, element) = (operand.field(), type_name(operand.view.dtype));
        let place =
            format!("{} + (OFFSET)(c) * a.strides[{at}][0] + (OFFSET)(r) * a.strides[{at}][1]", address(operand, at));
        if *across {
            let _ = write!(tiles, " SHARED({element}, tile{at}, TILE * PITCH({element})); {element} held{at}[EACH];");
            let _ = write!(fetch, " held{at}[k] = *({place});");
            let _ = write!(fill, " tile{at}[(c) * PITCH({element}) + (r)] = held{at}[k];");
            let _ = write!(loads, " l.{field}.load(tile{at} + (c) * PITCH({element}) + (r));");
        } else {
            let _ = write!(loads, " l.{field}.load({place});");
        }
    }
    let macros = format!(
        "#define TILES{tiles}\n#define FETCH(k, c, r){fetch}\n#define FILL(k, c, r){fill}\n\
         #define LOAD_TILED(l, a, at, c, r){loads}\n"
    );
    finish(kernel, expr, operands, y, walk, &macros)
}

/// The location of an operand's element: a pointer, or an index itself.
fn address(operand: &Operand, at: usize) -> String {
    if operand.is_index() { format!("at[{at}]") } else { format!("a.{} + at[{at}]", operand.name()) }
}

/// The type that holds an operand's elements of one pack.
fn kind(operand: &Operand, stride: i64, pack: u32) -> String {
    if operand.is_index() {
        return "Index".to_owned();
    }
    let kind = match stride {
        // Single elements are all handled alike, so that one source serves all strides.
        _ if pack == 1 => "Uniform",
        1 => "Dense",
        0 => "Uniform",
        _ => "Strided",
    };
    format!("{kind}<{}>", type_name(operand.view.dtype))
}

/// Adds what both kernels have in common.
fn finish(kernel: Kernel, expr: &Expr, operands: &[Operand], y: &View, walk: &Walk, macros: &str) -> Kernel {
    let mut kernel = kernel
        .with(headers([expr]))
        .set("OPERANDS", operands.len())
        .set("OFFSET", if walk.wide { "i64" } else { "i32" })
        .set("Y", type_name(y.dtype));
    let pointers: String = operands
        .iter()
        .filter(|operand| !operand.is_index())
        .map(|operand| format!(" const {}* {};", type_name(operand.view.dtype), operand.name()))
        .collect();
    let [mut elements, mut loads] = [const { String::new() }; 2];
    for (at, operand) in operands.iter().enumerate() {
        let field = operand.field();
        let _ = match operand.is_index() {
            true => write!(elements, " IndexElement {field};"),
            false => write!(elements, " Element<{}> {field};", type_name(operand.view.dtype)),
        };
        let _ = write!(loads, " l.{field}.load({});", address(operand, at));
    }
    let values: Vec<String> = operands
        .iter()
        .map(|operand| {
            let element = format!("l.{}.at(j)", operand.field());
            if value_type(operand.view.dtype) == value_type(operand.value) {
                element
            } else {
                format!("cast<{}>({element})", value_type(operand.value))
            }
        })
        .collect();
    let text = &mut kernel.generated;
    text.push_str(&function("map_of", expr, y.dtype));
    let _ = writeln!(text, "#define ELEMENTS{elements}\n#define LOAD_ELEMENT(l, a, at){loads}");
    let _ = writeln!(text, "#define POINTERS{pointers}\n#define VALUE(l, j) map_of({})", values.join(", "));
    text.push_str(macros);
    kernel
}
