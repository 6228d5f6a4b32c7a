//! Branches, barriers, waits and hints.

use super::text::{Text, number, operand};
use crate::decode::alu::destination;
use crate::inst::{Control, Inst, Step, Waits, When};

/// Instructions without an effect here: hints, cache control, and waits for other engines.
const NOTHING: [&str; 34] = [
    "s_nop",
    "s_clause",
    "s_delay_alu",
    "s_set_inst_prefetch_distance",
    "s_inst_prefetch",
    "s_sendmsg",
    "s_icache_inv",
    "s_dcache_inv",
    "s_dcache_wb",
    "s_gl1_inv",
    "s_setprio",
    "s_code_end",
    "s_ttracedata",
    "s_ttracedata_imm",
    "s_version",
    "s_wakeup",
    "s_prefetch_inst",
    "s_prefetch_inst_pc_rel",
    "s_prefetch_data",
    "s_prefetch_data_pc_rel",
    "s_incperflevel",
    "s_decperflevel",
    "buffer_gl0_inv",
    "buffer_gl1_inv",
    "buffer_wbl2",
    "buffer_inv",
    "buffer_wbinvl1",
    "buffer_wbinvl1_vol",
    "buffer_invl2",
    "global_inv",
    "global_wb",
    "global_wbinv",
    "v_nop",
    "s_setvskip",
];

const BRANCHES: [(&str, When); 7] = [
    ("s_branch", When::Always),
    ("s_cbranch_scc0", When::Scc0),
    ("s_cbranch_scc1", When::Scc1),
    ("s_cbranch_vccz", When::VccZ),
    ("s_cbranch_vccnz", When::VccNz),
    ("s_cbranch_execz", When::ExecZ),
    ("s_cbranch_execnz", When::ExecNz),
];

const OTHERS: [(&str, Control); 19] = [
    ("s_endpgm", Control::End),
    ("s_endpgm_saved", Control::End),
    ("s_barrier", Control::Barrier),
    ("s_barrier_signal", Control::Signal),
    ("s_barrier_signal_isfirst", Control::SignalFirst),
    ("s_barrier_wait", Control::AwaitBarrier),
    ("s_getpc_b64", Control::GetPc),
    ("s_setpc_b64", Control::SetPc),
    ("s_swappc_b64", Control::SwapPc),
    ("s_call_b64", Control::Call(0)),
    ("s_sleep", Control::Sleep),
    ("s_sleep_var", Control::Sleep),
    ("s_monitor_sleep", Control::Sleep),
    ("s_trap", Control::Trap(0)),
    ("s_sethalt", Control::Nop),
    ("s_waitcnt_depctr", Control::Wait(Waits::NONE)),
    ("s_wait_idle", Control::Wait(Waits::ALL)),
    ("s_wait_event", Control::Wait(Waits::NONE)),
    ("s_wait_alu", Control::Wait(Waits::NONE)),
];

/// All mnemonics here. Those of waits are the ones that a chip has.
pub fn names() -> Vec<String> {
    const WAITS: [&str; 13] = [
        "s_waitcnt",
        "s_waitcnt_vscnt",
        "s_waitcnt_vmcnt",
        "s_waitcnt_lgkmcnt",
        "s_waitcnt_expcnt",
        "s_wait_loadcnt",
        "s_wait_storecnt",
        "s_wait_dscnt",
        "s_wait_kmcnt",
        "s_wait_samplecnt",
        "s_wait_bvhcnt",
        "s_wait_loadcnt_dscnt",
        "s_wait_storecnt_dscnt",
    ];
    let branches = BRANCHES.iter().map(|(name, _)| *name);
    let others = OTHERS.iter().map(|(name, _)| *name);
    NOTHING.into_iter().chain(branches).chain(others).chain(WAITS).map(str::to_owned).collect()
}

/// Whether the mnemonic is one of these.
pub fn knows(name: &str) -> bool {
    NOTHING.contains(&name)
        || BRANCHES.iter().any(|(known, _)| *known == name)
        || OTHERS.iter().any(|(known, _)| *known == name)
        || is_wait(name)
}

/// `s_waitcnt`, `s_waitcnt_vscnt` of gfx10 and 11, and `s_wait_loadcnt` and its like of gfx12.
fn is_wait(name: &str) -> bool {
    name == "s_waitcnt" || (name.starts_with("s_waitcnt_") || name.starts_with("s_wait_")) && name.ends_with("cnt")
}

/// Decodes the instruction, if it is one of these. The target of a branch is its distance in words, until the program
/// knows the index.
pub fn decode(text: &Text<'_>) -> Result<Option<Inst>, String> {
    let name = text.name;
    if NOTHING.contains(&name) {
        return Ok(Some(Inst::new(Step::Control(Control::Nop))));
    }
    if let Some((_, when)) = BRANCHES.iter().find(|(known, _)| *known == name) {
        let mut inst = Inst::new(Step::Control(Control::Branch(*when, 0)));
        inst.imm = distance(text.operands.first())?;
        return Ok(Some(inst));
    }
    if is_wait(name) {
        return Ok(Some(Inst::new(Step::Control(Control::Wait(waits(text)?)))));
    }
    let Some((_, control)) = OTHERS.iter().find(|(known, _)| *known == name) else { return Ok(None) };
    let mut inst = Inst::new(Step::Control(*control));
    let unknown = |word: &&str| format!("operand {word}");
    match control {
        Control::GetPc => set_result(&mut inst, text, 0)?,
        Control::SetPc => inst.src[0] = text.operands.first().and_then(|word| operand(word)).ok_or("no target")?.src,
        Control::SwapPc => {
            set_result(&mut inst, text, 0)?;
            inst.src[0] = text.operands.get(1).and_then(|word| operand(word)).ok_or("no target")?.src;
        }
        Control::Call(_) => {
            set_result(&mut inst, text, 0)?;
            inst.imm = distance(text.operands.get(1))?;
        }
        Control::Trap(_) => {
            let id = text.operands.first().and_then(|word| number(word)).unwrap_or(0);
            inst.step = Step::Control(Control::Trap(id as u32));
        }
        // Named barriers of gfx12.5 have other numbers.
        Control::Signal | Control::SignalFirst | Control::AwaitBarrier => {
            if let Some(word) =
                text.operands.iter().find(|word| number(word) != Some(-1) && number(word) != Some(0xffff))
            {
                return Err(unknown(word));
            }
        }
        _ => {}
    }
    Ok(Some(inst))
}

/// The limits of a wait: `s_waitcnt vmcnt(1) lgkmcnt(0)`, `s_waitcnt_vscnt null, 0x0` or `s_wait_loadcnt_dscnt 0x100`.
fn waits(text: &Text<'_>) -> Result<Waits, String> {
    let mut waits = Waits::NONE;
    let mut set = |counter: &str, limit: i64| {
        let limit = u8::try_from(limit).unwrap_or(u8::MAX);
        match counter {
            "vmcnt" | "loadcnt" => waits.vector = limit,
            "vscnt" | "storecnt" => waits.store = limit,
            "lgkmcnt" | "dscnt" => waits.lds = limit,
            "kmcnt" => waits.scalar = limit,
            // Exports, images and ray tracing have counters of their own.
            _ => {}
        }
    };
    if text.name == "s_waitcnt" {
        for word in text.operands.iter().chain(&text.modifiers).filter(|word| **word != "&") {
            let limit = word.strip_suffix(')').and_then(|word| word.split_once('('));
            let (counter, limit) = limit.ok_or_else(|| format!("operand {word}"))?;
            set(counter, number(limit).ok_or_else(|| format!("operand {word}"))?);
        }
        return Ok(waits);
    }
    let limit = text.operands.last().and_then(|word| number(word)).ok_or("no limit")?;
    let counters = text.name.trim_start_matches("s_waitcnt_").trim_start_matches("s_wait_");
    match counters.split_once('_') {
        // One instruction waits for two counters: the first one is in the upper byte.
        Some((upper, lower)) => {
            set(upper, limit >> 8 & 0x3f);
            set(lower, limit & 0x3f);
        }
        None => set(counters, limit),
    }
    Ok(waits)
}

fn set_result(inst: &mut Inst, text: &Text<'_>, at: usize) -> Result<(), String> {
    let word = text.operands.get(at).ok_or("no result operand")?;
    inst.dst = destination(word, operand(word).ok_or_else(|| format!("operand {word}"))?.src)?;
    Ok(())
}

/// The distance of a branch in words after the instruction, sign-extended from 16 bits.
fn distance(word: Option<&&str>) -> Result<u32, String> {
    let value = word.and_then(|word| number(word)).ok_or("the branch's target is not a number")?;
    Ok(value as u16 as i16 as u32)
}
