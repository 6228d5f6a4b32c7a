//! What an instruction does besides its result, for observers: the registers that it touches, the counters that it
//! increments, and its class.

use crate::access::{Access, Action, AtomicOp, Data, Space};
use crate::decode::text::{Text, operand};
use crate::inst::{Control, Dst, Inst, Src, Step, When, reg};

/// A set of registers: vector registers first, then scalar ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Registers([u64; WORDS]);

const WORDS: usize = (FIRST_SCALAR + reg::COUNT).div_ceil(64);
const FIRST_SCALAR: usize = reg::TEMPORARY as usize;

impl Registers {
    /// Adds registers from a vector register on.
    pub fn add_vector(&mut self, first: u16, count: u16) {
        self.add(first as usize, count as usize, FIRST_SCALAR);
    }

    /// Adds registers from a scalar register on.
    pub fn add_scalar(&mut self, first: u16, count: u16) {
        self.add(FIRST_SCALAR + first as usize, count as usize, FIRST_SCALAR + reg::COUNT);
    }

    fn add(&mut self, first: usize, count: usize, end: usize) {
        (first..(first + count).min(end)).for_each(|at| self.0[at / 64] |= 1 << (at % 64));
    }

    fn add_source(&mut self, src: Src, count: u16) {
        match src {
            Src::V(first) => self.add_vector(first, count),
            Src::S(first) => self.add_scalar(first, count),
            _ => {}
        }
    }

    /// Adds all of another set.
    pub fn merge(&mut self, other: &Registers) {
        self.0.iter_mut().zip(other.0).for_each(|(word, more)| *word |= more);
    }

    /// Whether the sets have a register in common.
    pub fn meets(&self, other: &Registers) -> bool {
        self.0.iter().zip(other.0).any(|(word, other)| word & other != 0)
    }

    /// The name of the first register that is in both sets.
    pub fn first_common(&self, other: &Registers) -> Option<String> {
        let (at, word) =
            self.0.iter().zip(other.0).map(|(word, other)| word & other).enumerate().find(|(_, w)| *w != 0)?;
        let index = at * 64 + word.trailing_zeros() as usize;
        Some(match index.checked_sub(FIRST_SCALAR) {
            Some(scalar) if scalar == reg::VCC as usize => "vcc_lo".to_owned(),
            Some(scalar) if scalar == reg::VCC as usize + 1 => "vcc_hi".to_owned(),
            Some(scalar) => format!("s{scalar}"),
            None => match index.checked_sub(reg::ACCUMULATOR as usize) {
                Some(accumulator) => format!("a{accumulator}"),
                None => format!("v{index}"),
            },
        })
    }
}

/// An operation that completes later.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Issued {
    /// A vector load, or an atomic that returns a value.
    Load,
    /// A vector store, or an atomic that returns nothing.
    Store,
    /// An operation of the LDS unit.
    Lds,
    /// A scalar load.
    Scalar,
}

/// What kind of work an instruction is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// Vector arithmetic.
    Vector,
    /// Scalar arithmetic.
    Scalar,
    /// WMMA and MFMA.
    Matrix,
    /// Loads, stores and atomics of global, flat and buffer memory.
    Memory,
    /// Scratch memory, mostly spilled registers.
    Scratch,
    /// LDS, with exchanges between lanes.
    Lds,
    /// Scalar loads.
    ScalarMemory,
    /// Branches, barriers, waits and hints.
    Control,
}

impl Class {
    /// All classes.
    pub const ALL: [Class; 8] = [
        Class::Vector,
        Class::Scalar,
        Class::Matrix,
        Class::Memory,
        Class::Scratch,
        Class::Lds,
        Class::ScalarMemory,
        Class::Control,
    ];
}

/// What an instruction does besides its result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Effects {
    /// Registers that the instruction reads, and those that it writes immediately.
    pub touched: Registers,
    /// Registers that the instruction writes when it completes.
    pub written_later: Registers,
    /// Whether and how the instruction completes later.
    pub issued: Option<Issued>,
    /// Its class.
    pub class: Class,
    /// Floating-point operations of one wave: a product and a sum are two.
    pub flops: u32,
}

impl Effects {
    /// From the decoded instruction and its text, which has the number of registers of each operand.
    pub fn of(inst: &Inst, text: &str) -> Effects {
        let (mut touched, mut written_later, mut issued) = (Registers::default(), Registers::default(), None);
        let name = Text::new(text).name;
        // The first operand of these is a result that comes later.
        let mut result_operands = 0;
        match &inst.step {
            Step::Access(access) => {
                issued = Some(kind(access));
                let count = result_registers(access.action);
                match access.dst {
                    Dst::V(first) => written_later.add_vector(first, count),
                    Dst::S(first) => written_later.add_scalar(first, count),
                    Dst::None => {}
                }
                let is_operand = name.starts_with("buffer_") && matches!(access.action, Action::Atomic(..));
                result_operands = usize::from(access.dst != Dst::None && !is_operand);
            }
            Step::Alu(_) if name.starts_with("ds_") => {
                issued = Some(Issued::Lds);
                if let Dst::V(first) = inst.dst {
                    written_later.add_vector(first, 1);
                }
                result_operands = 1;
            }
            Step::Control(Control::Branch(When::VccZ | When::VccNz, _)) => touched.add_scalar(reg::VCC, 2),
            Step::Control(Control::Wait(_)) => {}
            _ => {}
        }
        for part in text.split("::") {
            for word in Text::new(part.trim()).operands.iter().skip(result_operands) {
                if let Some(operand) = operand(word) {
                    touched.add_source(operand.src, operand.count);
                }
            }
        }
        if name.starts_with("v_div_fmas") {
            touched.add_scalar(reg::VCC, 2);
        }
        Effects { touched, written_later, issued, class: class(inst, name), flops: flops(text) }
    }
}

fn kind(access: &Access) -> Issued {
    match (access.space, access.action, access.dst) {
        (Space::Lds, ..) => Issued::Lds,
        (Space::Scalar, ..) => Issued::Scalar,
        (_, Action::Store(_) | Action::Store2(_), _) | (_, Action::Atomic(..), Dst::None) => Issued::Store,
        _ => Issued::Load,
    }
}

fn result_registers(action: Action) -> u16 {
    let words = |data: Data| if let Data::Words(count) = data { u16::from(count) } else { 1 };
    match action {
        Action::Load(data) => words(data),
        Action::Load2(data) => 2 * words(data),
        Action::Atomic(_, wide) => 1 + u16::from(wide),
        Action::Store(_) | Action::Store2(_) => 0,
    }
}

fn class(inst: &Inst, name: &str) -> Class {
    match &inst.step {
        Step::Access(access) => match access.space {
            Space::Lds => Class::Lds,
            Space::Scalar => Class::ScalarMemory,
            Space::Scratch => Class::Scratch,
            Space::Global | Space::Flat => Class::Memory,
        },
        Step::Control(_) | Step::Unsupported => Class::Control,
        Step::Alu(_) | Step::Form(_) => {
            if name.starts_with("v_wmma") || name.starts_with("v_swmmac") || name.starts_with("v_mfma") {
                Class::Matrix
            } else if name.starts_with("ds_") {
                Class::Lds
            } else if name.starts_with("s_") {
                Class::Scalar
            } else {
                Class::Vector
            }
        }
    }
}

/// Operations of one lane, or of the wave for matrix products, from the mnemonics.
fn flops(text: &str) -> u32 {
    text.split("::").map(|part| flops_of(Text::new(part.trim()).name)).sum()
}

fn flops_of(name: &str) -> u32 {
    let name = name.trim_start_matches("v_dual_").trim_start_matches("v_");
    if name.starts_with("wmma") || name.starts_with("mfma") {
        // f32_16x16x16_f16: the three sizes.
        let sizes = name.split('_').find(|part| part.contains('x')).unwrap_or_default();
        let numbers = sizes.split('x').map(|number| number.trim_end_matches(|c: char| c.is_ascii_alphabetic()));
        return 2 * numbers
            .map(|number| number.split(|c: char| !c.is_ascii_digit()).next().unwrap_or_default())
            .map(|number| number.parse::<u32>().unwrap_or(1))
            .product::<u32>();
    }
    let packed = name.starts_with("pk_");
    let name = name.trim_start_matches("pk_");
    let operation = name.split('_').next().unwrap_or_default();
    let is_float = ["_f16", "_f32", "_f64", "_bf16"].iter().any(|ending| name.ends_with(ending));
    let each = match operation {
        "fma" | "fmac" | "fmamk" | "fmaak" | "mad" | "mac" if is_float => 2,
        "dot4" => 8,
        "dot8" => 16,
        "dot2" | "dot2c" | "dot2acc" => 4,
        "add" | "sub" | "subrev" | "mul" | "max" | "min" | "maximum" | "minimum" | "rcp" | "rsq" | "sqrt" | "exp"
        | "log" | "sin" | "cos"
            if is_float =>
        {
            1
        }
        _ => 0,
    };
    each * if packed { 2 } else { 1 }
}

/// Whether an atomic reads what was in memory.
pub(crate) fn reads_old(op: AtomicOp) -> bool {
    op != AtomicOp::Swap
}
