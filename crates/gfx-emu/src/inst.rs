//! A decoded instruction: what runs, on which operands.

use crate::access::Access;
use crate::ops::forms::Form;
use crate::wave::Wave;

/// Indices of special registers in the scalar register file.
pub mod reg {
    /// VCC, low half; the high half follows.
    pub const VCC: u16 = 106;
    /// The first trap register.
    pub const TTMP: u16 = 108;
    /// M0.
    pub const M0: u16 = 124;
    /// EXEC, low half; the high half follows.
    pub const EXEC: u16 = 126;
    /// FLAT_SCRATCH, low half.
    pub const FLAT_SCRATCH: u16 = 128;
    /// XNACK_MASK, low half.
    pub const XNACK_MASK: u16 = 130;
    /// Where writes to `null` go; never read.
    pub const NULL: u16 = 132;
    /// Size of the scalar register file, with room for a write of 16 registers to `null`.
    pub const COUNT: usize = 148;
    /// The first accumulator of CDNA, which shares the vector register file.
    pub const ACCUMULATOR: u16 = 256;
    /// Registers that only the emulator uses, for operands that a form changes before the operation reads them.
    pub const TEMPORARY: u16 = 512;
    /// Size of the vector register file.
    pub const VECTOR_COUNT: usize = 516;
}

/// A source operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Src {
    /// No operand.
    #[default]
    None,
    /// A vector register, or the first of several.
    V(u16),
    /// A scalar register, or the first of several.
    S(u16),
    /// An inline integer: sign-extended to the operand's size.
    Int(i32),
    /// A literal: 32 bits, the high half of a 64-bit float.
    Lit(u32),
    /// An inline float, as an index into `INLINE_FLOATS`.
    Float(u8),
    /// The high half of an aperture's address (`src_shared_base`); the low half is 0.
    Aperture(u32),
    /// SCC as 0 or 1.
    Scc,
    /// 1 if VCC is 0.
    VccZ,
    /// 1 if EXEC is 0.
    ExecZ,
}

/// The inline float constants with the bits of each width: 16, 32 and 64.
pub const INLINE_FLOATS: [(&str, u16, u32, u64); 9] = [
    ("0.5", 0x3800, 0x3f00_0000, 0x3fe0_0000_0000_0000),
    ("-0.5", 0xb800, 0xbf00_0000, 0xbfe0_0000_0000_0000),
    ("1.0", 0x3c00, 0x3f80_0000, 0x3ff0_0000_0000_0000),
    ("-1.0", 0xbc00, 0xbf80_0000, 0xbff0_0000_0000_0000),
    ("2.0", 0x4000, 0x4000_0000, 0x4000_0000_0000_0000),
    ("-2.0", 0xc000, 0xc000_0000, 0xc000_0000_0000_0000),
    ("4.0", 0x4400, 0x4080_0000, 0x4010_0000_0000_0000),
    ("-4.0", 0xc400, 0xc080_0000, 0xc010_0000_0000_0000),
    // 1 / (2 pi)
    ("0.15915494", 0x3118, 0x3e22_f983, 0x3fc4_5f30_6dc9_c882),
];

/// Where a result goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Dst {
    /// Nowhere.
    #[default]
    None,
    /// A vector register, or the first of several.
    V(u16),
    /// A scalar register, or the first of several.
    S(u16),
}

/// Modifiers of operands and of the result. Bit `k` of a mask belongs to source `k`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Mods {
    /// Negated sources; the low halves for packed operations.
    pub neg: u8,
    /// Negated high halves of packed operations.
    pub neg_hi: u8,
    /// Sources whose absolute value is read.
    pub abs: u8,
    /// Sources read from their high 16 bits; bit 3 is the result.
    pub sel: u8,
    /// Packed operations: sources whose high result reads the high half. Mixed ones: sources that are 16-bit floats.
    pub sel_hi: u8,
    /// 1: times 2, 2: times 4, 3: divided by 2.
    pub omod: u8,
    /// Clamps the result to 0..1, or saturates integers.
    pub clamp: bool,
}

impl Mods {
    /// Whether sources are read as they are.
    #[inline(always)]
    pub fn plain_sources(&self) -> bool {
        self.neg | self.abs == 0
    }

    /// Whether the result is written as it is.
    #[inline(always)]
    pub fn plain_result(&self) -> bool {
        self.omod == 0 && !self.clamp
    }
}

/// What decides a branch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// Taken.
    Always,
    /// SCC is 0.
    Scc0,
    /// SCC is 1.
    Scc1,
    /// VCC is 0.
    VccZ,
    /// VCC is not 0.
    VccNz,
    /// EXEC is 0.
    ExecZ,
    /// EXEC is not 0.
    ExecNz,
}

/// How many operations of each counter may still be outstanding after a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Waits {
    /// `vmcnt`, `loadcnt`.
    pub vector: u8,
    /// `vscnt`, `storecnt`.
    pub store: u8,
    /// `lgkmcnt`, `dscnt`.
    pub lds: u8,
    /// `kmcnt`.
    pub scalar: u8,
}

impl Waits {
    /// Waits for nothing that an observer checks.
    pub const NONE: Waits = Waits { vector: u8::MAX, store: u8::MAX, lds: u8::MAX, scalar: u8::MAX };
    /// Waits for everything.
    pub const ALL: Waits = Waits { vector: 0, store: 0, lds: 0, scalar: 0 };
}

/// What an instruction of control does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Control {
    /// Jumps to the instruction with this index in the program.
    Branch(When, u32),
    /// The wave ends.
    End,
    /// Signals the workgroup's barrier and waits for it.
    Barrier,
    /// Signals the workgroup's barrier (gfx12).
    Signal,
    /// Like `Signal`, and sets SCC if it is the first signal of this round.
    SignalFirst,
    /// Waits for the workgroup's barrier (gfx12).
    AwaitBarrier,
    /// Loads the address of the next instruction.
    GetPc,
    /// Jumps to an address in a register.
    SetPc,
    /// Both of them.
    SwapPc,
    /// Saves the address of the next instruction and jumps to an index.
    Call(u32),
    /// Lets other waves run.
    Sleep,
    /// Waits until at most this many operations of each kind are outstanding. The emulator completes every operation at
    /// once, so only observers need this.
    Wait(Waits),
    /// No effect that the emulator models.
    Nop,
    /// Stops the kernel.
    Trap(u32),
}

/// What runs.
#[derive(Clone)]
pub enum Step {
    /// Reads and writes registers of the wave.
    Alu(fn(&mut Wave, &Inst)),
    /// Reads or writes memory.
    Access(Access),
    /// Changes what runs next.
    Control(Control),
    /// One or two operations whose operands or results are changed on the way: DPP, SDWA, VOPD.
    Form(Box<Form>),
    /// An instruction that is not supported; an error if a wave reaches it.
    Unsupported,
}

/// One decoded instruction.
#[derive(Clone)]
pub struct Inst {
    /// What runs.
    pub step: Step,
    /// The result.
    pub dst: Dst,
    /// The second result: a carry or a condition.
    pub sdst: Dst,
    /// The sources, in the order of the assembler's text.
    pub src: [Src; 4],
    /// Modifiers.
    pub mods: Mods,
    /// An operand that is neither a register nor a constant: a hardware register's number, a swizzle pattern, a blend
    /// control.
    pub imm: u32,
}

impl Inst {
    /// An instruction without operands.
    pub fn new(step: Step) -> Inst {
        Inst { step, dst: Dst::None, sdst: Dst::None, src: [Src::None; 4], mods: Mods::default(), imm: 0 }
    }
}
