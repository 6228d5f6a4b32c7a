//! Branches, calls and hints: small programs whose path shows in a number.

use gfx_emu::{Chip, Dispatch, Memory};

use super::assembler::{PROGRAM, SETTINGS, Setting};
use super::common::{Args, Compiler, u32s};

/// A branch that must be taken after the first line and not after the second.
fn branch(name: &str, taken: &str, passed: &str) -> String {
    format!(
        "s_mov_b32 s16, 0\n{taken}\n{name} .La\ns_or_b32 s16, s16, 1\n.La:\n\
         {passed}\n{name} .Lb\ns_or_b32 s16, s16, 2\n.Lb:\n"
    )
}

/// The distance from `.La` to `.Lb` is added to an address.
const JUMP: &str = "s_getpc_b64 s[20:21]\n.La:\ns_add_u32 s20, s20, .Lb-.La\ns_addc_u32 s21, s21, 0\n";

/// Mnemonics, the program, and the number in s16 after it.
fn rows() -> Vec<(&'static str, String, u32)> {
    vec![
        ("s_branch", "s_mov_b32 s16, 1\ns_branch .La\ns_mov_b32 s16, 2\n.La:\n".to_owned(), 1),
        ("s_cbranch_scc0", branch("s_cbranch_scc0", "s_cmp_lg_u32 s0, s0", "s_cmp_eq_u32 s0, s0"), 2),
        ("s_cbranch_scc1", branch("s_cbranch_scc1", "s_cmp_eq_u32 s0, s0", "s_cmp_lg_u32 s0, s0"), 2),
        ("s_cbranch_vccz", branch("s_cbranch_vccz", "s_mov_b64 vcc, 0", "s_mov_b64 vcc, 5"), 2),
        ("s_cbranch_vccnz", branch("s_cbranch_vccnz", "s_mov_b64 vcc, 5", "s_mov_b64 vcc, 0"), 2),
        ("s_cbranch_execz", branch("s_cbranch_execz", "s_mov_b64 exec, 0", "s_mov_b64 exec, 1"), 2),
        ("s_cbranch_execnz", branch("s_cbranch_execnz", "s_mov_b64 exec, 1", "s_mov_b64 exec, 0"), 2),
        (
            "s_getpc_b64 s_setpc_b64",
            format!("s_mov_b32 s16, 3\n{JUMP}s_setpc_b64 s[20:21]\ns_mov_b32 s16, 4\n.Lb:\n"),
            3,
        ),
        (
            "s_swappc_b64",
            format!(
                "{JUMP}s_swappc_b64 s[22:23], s[20:21]\ns_add_u32 s16, s16, 1\ns_branch .Lc\n\
                 .Lb:\ns_mov_b32 s16, 10\ns_setpc_b64 s[22:23]\n.Lc:\n"
            ),
            11,
        ),
        (
            "s_call_b64",
            "s_call_b64 s[22:23], .Lb\ns_add_u32 s16, s16, 1\ns_branch .Lc\n\
             .Lb:\ns_mov_b32 s16, 20\ns_setpc_b64 s[22:23]\n.Lc:\n"
                .to_owned(),
            21,
        ),
        ("s_sleep", "s_mov_b32 s16, 30\ns_sleep 1\ns_add_u32 s16, s16, 1\n".to_owned(), 31),
        ("s_nop", "s_mov_b32 s16, 40\ns_nop 3\ns_add_u32 s16, s16, 1\n".to_owned(), 41),
        ("v_nop", "s_mov_b32 s16, 50\nv_nop\ns_add_u32 s16, s16, 1\n".to_owned(), 51),
    ]
}

fn program(body: &str, index: usize, setting: Setting) -> String {
    let new = setting.target.starts_with("gfx11") || setting.target.starts_with("gfx12");
    let (two, one) = if new { ("b64", "b32") } else { ("dwordx2", "dword") };
    // Labels of different programs must differ.
    let body = body.replace(".L", &format!(".L{index}"));
    format!(
        "s_load_{two} s[4:5], s[0:1], 0x0\n{body}s_mov_b64 exec, 1\nv_mov_b32 v1, 0\nv_mov_b32 v8, s16\n\
         global_store_{one} v1, v8, s[4:5]\ns_endpgm\n"
    )
}

#[test]
fn branches_and_calls_go_where_they_should() {
    let Some(compiler) = Compiler::find() else { return };
    let rows = rows();
    for setting in SETTINGS {
        let Ok(chip) = Chip::new(setting.target.parse().unwrap()) else { return };
        let texts: Vec<String> = (0..).zip(&rows).map(|(at, (_, body, _))| program(body, at, setting)).collect();
        let (code, known) = setting.programs(&compiler, &texts);
        let mut memory = Memory::owned();
        let base = memory.allocate_with(&[code, vec![0; 64]].concat());
        let result = memory.allocate(4);
        let kernarg = Args::default().ptr(result).place(&mut memory);
        for (at, (names, _, want)) in rows.iter().enumerate() {
            assert!(known[at], "{}: {names}", setting.target);
            let mut descriptor = [0; 64];
            descriptor[48..52].copy_from_slice(&(0xf0_u32 << 12).to_le_bytes());
            descriptor[52..56].copy_from_slice(&(2_u32 << 1).to_le_bytes());
            descriptor[56..60].copy_from_slice(&(1_u32 << 3 | u32::from(setting.lanes == 32) << 10).to_le_bytes());
            let kernel_object = memory.allocate_with(&descriptor);
            let entry = (base + (at * PROGRAM) as u64).wrapping_sub(kernel_object);
            memory.write(kernel_object + 16, &entry.to_le_bytes());
            let dispatch =
                Dispatch { kernel_object, kernarg, grid: [1, 1, 1], group: [1, 1, 1], ..Dispatch::default() };
            if let Err(fault) = chip.run(&dispatch, &memory) {
                panic!("{}: {names}: {fault}", setting.target);
            }
            assert_eq!(u32s(&memory.read(result, 4).unwrap()), [*want], "{}: {names}", setting.target);
        }
    }
}

/// Mnemonics with a row here.
pub fn names() -> Vec<&'static str> {
    rows().iter().flat_map(|(names, ..)| names.split(' ')).chain(["s_endpgm"]).collect()
}
