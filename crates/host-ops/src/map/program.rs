//! Compiles an expression to instructions over registers that each hold a block of elements.
use graph::expr::{Binary, Expr, Node, Ref, Unary};
use graph::{DType, Scalar};
use smallvec::SmallVec;

/// What is known about an input before the run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Source {
    pub dtype: DType,
    /// All its elements are the same one.
    pub is_uniform: bool,
    /// A block of it can be used in place.
    pub is_direct: bool,
}

/// The location of an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operand {
    Register(u16),
    /// The memory of an input.
    Input(u16),
}

/// The location of a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    Register(u16),
    /// Into the output's memory.
    Output,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Action {
    Load(u16),
    Index(u16),
    Unary(Unary, Operand),
    Binary(Binary, Operand, Operand),
    Select(Operand, Operand, Operand),
    Cast(Operand),
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Instruction {
    pub action: Action,
    /// The operands' type; for a selection, that of the last two.
    pub from: DType,
    /// The result's type.
    pub to: DType,
    pub target: Target,
}

/// A register that is filled once.
#[derive(Clone, Copy, Debug)]
pub(super) enum Fill {
    Scalar(Scalar),
    Input(u16),
}

#[derive(Debug)]
pub(super) struct Program {
    /// Registers that keep one value throughout: the value, its type and the register.
    pub fills: SmallVec<[(Fill, DType, u16); 8]>,
    pub instructions: SmallVec<[Instruction; 16]>,
    /// The location of the result, if it is not already in the output.
    pub result: Option<Operand>,
    pub result_dtype: DType,
    pub registers: usize,
    /// Bytes of the widest element in any register.
    pub lane_bytes: usize,
}

impl Program {
    /// Compiles an expression; `into` is the output's type, and `is_direct` says whether the last operation may write
    /// it in place.
    pub(super) fn new(expr: &Expr, sources: &[Source], into: DType, is_direct: bool) -> Self {
        let nodes = expr.nodes();
        let (roots, last_uses) = uses(expr, into);
        let mut compiler = Compiler {
            program: Self {
                fills: SmallVec::new(),
                instructions: SmallVec::new(),
                result: None,
                result_dtype: into.compute(),
                registers: 0,
                lane_bytes: 1,
            },
            free: SmallVec::new(),
            places: SmallVec::from_elem(Operand::Register(0), nodes.len()),
        };
        for (at, &(node, dtype)) in nodes.iter().enumerate() {
            if usize::from(roots[at]) != at || last_uses[at] == 0 {
                compiler.places[at] = compiler.places[usize::from(roots[at])];
                continue;
            }
            compiler.node(expr, node, dtype, at, sources);
            for operand in operands(node) {
                let operand = usize::from(roots[usize::from(operand)]);
                if last_uses[operand] == at + 1 {
                    compiler.release(operand, nodes[operand].0, sources);
                }
            }
        }
        let mut program = compiler.program;
        let Some(last) = nodes.len().checked_sub(1) else { return program };
        let mut result = compiler.places[last];
        program.result_dtype = expr.result();
        if program.result_dtype.compute() != into.compute() {
            program.instructions.push(Instruction {
                action: Action::Cast(result),
                from: program.result_dtype,
                to: into,
                target: Target::Register(program.registers as u16),
            });
            result = Operand::Register(program.registers as u16);
            program.registers += 1;
            program.lane_bytes = program.lane_bytes.max(into.compute().bytes());
            program.result_dtype = into;
        }
        program.result = Some(result);
        if is_direct
            && let Some(instruction) = program.instructions.last_mut()
            && let Operand::Register(register) = result
            && instruction.target == Target::Register(register)
            && !matches!(instruction.action, Action::Load(_))
        {
            instruction.target = Target::Output;
            program.result = None;
            if program.registers == 1 {
                program.registers = 0;
            }
        }
        program
    }
}

struct Compiler {
    program: Program,
    free: SmallVec<[u16; 16]>,
    places: SmallVec<[Operand; 16]>,
}

impl Compiler {
    fn register(&mut self, dtype: DType) -> u16 {
        self.program.lane_bytes = self.program.lane_bytes.max(dtype.compute().bytes());
        self.free.pop().unwrap_or_else(|| {
            self.program.registers += 1;
            self.program.registers as u16 - 1
        })
    }

    /// A register that is never freed.
    fn fill(&mut self, fill: Fill, dtype: DType) -> Operand {
        self.program.lane_bytes = self.program.lane_bytes.max(dtype.compute().bytes());
        let register = self.program.registers as u16;
        self.program.registers += 1;
        self.program.fills.push((fill, dtype, register));
        Operand::Register(register)
    }

    fn push(&mut self, action: Action, from: DType, to: DType) -> Operand {
        let register = self.register(to);
        self.program.instructions.push(Instruction { action, from, to, target: Target::Register(register) });
        Operand::Register(register)
    }

    fn node(&mut self, expr: &Expr, node: Node, dtype: DType, at: usize, sources: &[Source]) {
        let place = |operand: Ref| self.places[usize::from(operand)];
        self.places[at] = match node {
            Node::Input(number) => {
                let source = sources[usize::from(number)];
                let read = if source.is_uniform {
                    self.fill(Fill::Input(number), source.dtype)
                } else if source.is_direct {
                    Operand::Input(number)
                } else {
                    self.push(Action::Load(number), source.dtype, source.dtype)
                };
                if source.dtype.compute() == dtype.compute() {
                    read
                } else {
                    self.push(Action::Cast(read), source.dtype, dtype)
                }
            }
            Node::Const(value) => self.fill(Fill::Scalar(value), dtype),
            Node::Index(axis) => self.push(Action::Index(axis), DType::I64, DType::I64),
            Node::Unary(op, a) => self.push(Action::Unary(op, place(a)), expr.dtype(a), dtype),
            Node::Binary(op, a, b) => self.push(Action::Binary(op, place(a), place(b)), expr.dtype(a), dtype),
            Node::Select(c, a, b) => self.push(Action::Select(place(c), place(a), place(b)), expr.dtype(a), dtype),
            Node::Cast(a) => self.push(Action::Cast(place(a)), expr.dtype(a), dtype),
        };
    }

    /// Frees the register of a node that is no longer used.
    fn release(&mut self, at: usize, node: Node, sources: &[Source]) {
        let is_filled = match node {
            Node::Const(_) => true,
            Node::Input(number) => sources[usize::from(number)].is_uniform,
            _ => false,
        };
        if let (Operand::Register(register), false) = (self.places[at], is_filled)
            && !self.free.contains(&register)
        {
            self.free.push(register);
        }
    }
}

fn operands(node: Node) -> SmallVec<[Ref; 3]> {
    match node {
        Node::Input(_) | Node::Const(_) | Node::Index(_) => SmallVec::new(),
        Node::Unary(_, a) | Node::Cast(a) => SmallVec::from_slice(&[a]),
        Node::Binary(_, a, b) => SmallVec::from_slice(&[a, b]),
        Node::Select(c, a, b) => SmallVec::from_slice(&[c, a, b]),
    }
}

/// For each operation, the one whose value it repeats (usually itself), and one more than the last operation that uses
/// it, or 0 if it is unused. The result counts as used by an operation past the end.
fn uses(expr: &Expr, into: DType) -> (SmallVec<[Ref; 16]>, SmallVec<[usize; 16]>) {
    let nodes = expr.nodes();
    let mut roots: SmallVec<[Ref; 16]> = SmallVec::new();
    for (at, &(node, dtype)) in nodes.iter().enumerate() {
        roots.push(match node {
            Node::Cast(a) => {
                let from = expr.dtype(a);
                let widens = from.compute() == dtype;
                // Storing rounds anyway.
                let stores = at + 1 == nodes.len() && dtype == into && from == dtype.compute();
                if from == dtype || widens || stores { roots[usize::from(a)] } else { at as Ref }
            }
            _ => at as Ref,
        });
    }
    let mut last_uses: SmallVec<[usize; 16]> = SmallVec::from_elem(0, nodes.len());
    if let Some(&root) = roots.last() {
        last_uses[usize::from(root)] = nodes.len() + 1;
    }
    for at in (0..nodes.len()).rev() {
        if usize::from(roots[at]) != at || last_uses[at] == 0 {
            continue;
        }
        for operand in operands(nodes[at].0) {
            let operand = usize::from(roots[usize::from(operand)]);
            last_uses[operand] = last_uses[operand].max(at + 1);
        }
    }
    (roots, last_uses)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DENSE: Source = Source { dtype: DType::F32, is_uniform: false, is_direct: true };

    #[test]
    fn one_operation_on_dense_memory_needs_no_register() {
        let mut expr = Expr::new();
        let (a, b) = (expr.input(0, DType::F32), expr.input(1, DType::F32));
        expr.binary(Binary::Add, a, b);
        let program = Program::new(&expr, &[DENSE, DENSE], DType::F32, true);
        assert_eq!((program.instructions.len(), program.result), (1, None));
        assert_eq!(program.instructions[0].target, Target::Output);
    }

    #[test]
    fn registers_are_reused() {
        let mut expr = Expr::new();
        let mut at = expr.input(0, DType::F32);
        for op in [Unary::Neg, Unary::Exp, Unary::Abs, Unary::Sqrt, Unary::Log, Unary::Sin] {
            at = expr.unary(op, at);
        }
        let program = Program::new(&expr, &[DENSE], DType::F32, true);
        assert_eq!((program.instructions.len(), program.registers), (6, 2));
    }

    #[test]
    fn casts_that_change_nothing_are_dropped() {
        let source = Source { dtype: DType::F16, is_uniform: false, is_direct: false };
        let program = Program::new(&Expr::copy(DType::F16, DType::F16), &[source], DType::F16, false);
        assert_eq!(program.instructions.len(), 1);
        assert!(matches!(program.instructions[0].action, Action::Load(0)));
    }
}
