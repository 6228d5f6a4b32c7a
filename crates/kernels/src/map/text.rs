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

/// How many packs a thread has in large work: enough to hide the way to memory.
pub(super) fn packs_per_thread(expr: &Expr, operands: &[Operand], pack: u32) -> u32 {
    match (operands.len() > 4 || expr.nodes().len() > LONG, pack) {
        (true, _) => 1,
        (false, 1) => 4,
        (false, _) => 2,
    }
}

/// The kernel that goes along rows.
pub(super) fn rows(expr: &Expr, operands: &[Operand], y: &View, walk: &Walk, pack: u32) -> Kernel {
    let kernel = Kernel::new("map_rows", FAMILY).set("V", pack).set("K", packs_per_thread(expr, operands, pack));
    let [mut packs, mut loads] = [const { String::new() }; 2];
    let mut packed = vec!["is_pack<V>(a.y)".to_owned()];
    for (at, operand) in operands.iter().enumerate() {
        let (field, kind) = (operand.field(), kind(operand, walk.strides[at][0], pack));
        let _ = write!(packs, " {kind} {field};");
        let _ = write!(loads, " l.{field}.load({}, a.strides[{at}][0]);", address(operand, at));
        if kind.starts_with("Dense") {
            packed.push(format!("is_pack<V>(a.{})", operand.name()));
        }
    }
    let macros = format!(
        "#define PACKS{packs}\n#define LOAD_PACK(l, a, at){loads}\n#define IS_PACKED(a) {}\n",
        packed.join(" && ")
    );
    finish(kernel, expr, operands, y, walk, &macros)
}

/// The kernel that goes through tiles. An operand that does has an array `held` of what a thread reads (FETCH), which it
/// then leaves in the tile (FILL) for others.
pub(super) fn tile(expr: &Expr, operands: &[Operand], y: &View, walk: &Walk, tiled: &Tiled) -> Kernel {
    let kernel = Kernel::new("map_tile", FAMILY).set("TILE", tiled.tile);
    let [mut tiles, mut fetch, mut fill, mut loads] = [const { String::new() }; 4];
    for (at, (operand, through)) in operands.iter().zip(&tiled.operands).enumerate() {
        let (field, element) = (operand.field(), type_name(operand.view.dtype));
        let place =
            format!("{} + (OFFSET)(c) * a.strides[{at}][0] + (OFFSET)(r) * a.strides[{at}][1]", address(operand, at));
        if *through {
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
