//! What is written for each expression, around `hip/map.hip`.
use std::fmt::Write;

use graph::{View, expr::Expr};

use super::operand::{Operand, Tiled, Walk};
use crate::{
    Kernel,
    expr::{function, headers, value_type},
    kernel::type_name,
};

const FAMILY: &str = include_str!("../../hip/map.hip");
/// Operations beyond which a thread has one pack: its code is long enough.
const LONG: usize = 48;

/// How many packs a thread has in large work.
pub(super) fn packs_per_thread(expr: &Expr, operands: &[Operand]) -> u32 {
    if operands.len() > 4 || expr.nodes().len() > LONG { 1 } else { 2 }
}

/// The kernel that goes along rows.
pub(super) fn rows(expr: &Expr, operands: &[Operand], y: &View, walk: &Walk, pack: u32) -> Kernel {
    let kernel = Kernel::new("map_rows", FAMILY).set("V", pack).set("K", packs_per_thread(expr, operands));
    let mut loads = String::new();
    let fields = operands.iter().enumerate().map(|(at, operand)| {
        let (field, kind) = (operand.field(), kind(operand, walk.strides[at][0], pack));
        let address = address(operand, at);
        let _ = write!(loads, " l.{field}.load({address}, a.strides[{at}][0], count);");
        format!(" {kind} {field};")
    });
    let loaded: String = fields.collect();
    let macros = format!("#define LOADED{loaded}\n#define LOAD(l, a, at, count){loads}\n");
    finish(kernel, expr, operands, y, walk, &macros)
}

/// The kernel that goes through tiles.
pub(super) fn tile(expr: &Expr, operands: &[Operand], y: &View, walk: &Walk, tiled: &Tiled) -> Kernel {
    let kernel = Kernel::new("map_tile", FAMILY).set("TILE", tiled.tile);
    let [mut loaded, mut tiles, mut fill, mut loads] = [const { String::new() }; 4];
    for (at, (operand, through)) in operands.iter().zip(&tiled.operands).enumerate() {
        let (field, element) = (operand.field(), type_name(operand.view.dtype));
        let address = address(operand, at);
        let place = |column: &str, row: &str| {
            format!("{address} + (OFFSET){column} * a.strides[{at}][0] + (OFFSET){row} * a.strides[{at}][1]")
        };
        let kind = if operand.is_index() { "Index".to_owned() } else { format!("Element<{element}>") };
        let _ = write!(loaded, " {kind} {field};");
        if *through {
            let _ = write!(tiles, " SHARED({element}, tile{at}, TILE * PITCH({element}));");
            let _ = write!(fill, " tile{at}[c * PITCH({element}) + low] = *({});", place("c", "low"));
            let _ = write!(loads, " l.{field}.load(tile{at} + low * PITCH({element}) + r);");
        } else {
            let _ = write!(loads, " l.{field}.load({});", place("low", "r"));
        }
    }
    let macros = format!(
        "#define LOADED{loaded}\n#define TILES{tiles}\n#define FILL(a, at, c, low){fill}\n#define LOAD(l, a, at, low, r){loads}\n"
    );
    finish(kernel, expr, operands, y, walk, &macros)
}

/// Where an operand's element is: a pointer, or an index as it is.
fn address(operand: &Operand, at: usize) -> String {
    if operand.is_index() { format!("at[{at}]") } else { format!("a.{} + at[{at}]", operand.name()) }
}

/// The type that holds an operand's elements of one pack.
fn kind(operand: &Operand, stride: i64, pack: u32) -> String {
    if operand.is_index() {
        return "Index".to_owned();
    }
    let kind = match stride {
        // Single elements are all alike, so that one text serves all strides.
        _ if pack == 1 => "Uniform",
        1 => "Dense",
        0 => "Uniform",
        _ => "Strided",
    };
    format!("{kind}<{}>", type_name(operand.view.dtype))
}

/// Adds what both kernels have.
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
    let _ = writeln!(text, "#define POINTERS{pointers}\n#define VALUE(l, j) map_of({})", values.join(", "));
    text.push_str(macros);
    kernel
}
