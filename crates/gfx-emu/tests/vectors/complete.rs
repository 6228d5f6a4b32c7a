//! Every mnemonic has a row, or a reason why it has none.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    approximate, compare, convert, cross, divide, dot, float16, float32, float64, integer, integer16, matrix, programs,
    scalar, scalar_float, transfers,
};

const HINT: &str = "a hint or cache control: nothing that the emulator models changes";
const WAIT: &str = "accesses complete at once; units/effects.rs tests what a sanitizer sees of a wait";
const BARRIER: &str = "needs several waves: tests/kernels.rs and tests/sanitizer";
const CLOCK: &str = "reads a clock";
const STOPS: &str = "stops the kernel";
const TURN: &str = "only lets other waves run, as s_sleep does";
const ENDS: &str = "ends the wave, as s_endpgm does";

/// Mnemonics without a row.
const EXEMPT: &[(&str, &[&str])] = &[
    (
        HINT,
        &[
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
            "s_setvskip",
            "s_sethalt",
        ],
    ),
    (
        WAIT,
        &[
            "s_waitcnt",
            "s_waitcnt_vscnt",
            "s_waitcnt_vmcnt",
            "s_waitcnt_lgkmcnt",
            "s_waitcnt_expcnt",
            "s_waitcnt_depctr",
            "s_wait_loadcnt",
            "s_wait_storecnt",
            "s_wait_dscnt",
            "s_wait_kmcnt",
            "s_wait_samplecnt",
            "s_wait_bvhcnt",
            "s_wait_loadcnt_dscnt",
            "s_wait_storecnt_dscnt",
            "s_wait_idle",
            "s_wait_event",
            "s_wait_alu",
        ],
    ),
    (BARRIER, &["s_barrier", "s_barrier_signal", "s_barrier_signal_isfirst", "s_barrier_wait"]),
    (CLOCK, &["s_memtime", "s_memrealtime"]),
    (STOPS, &["s_sendmsg_rtn_b32", "s_sendmsg_rtn_b64", "s_trap"]),
    (TURN, &["s_sleep_var", "s_monitor_sleep"]),
    (ENDS, &["s_endpgm_saved"]),
];

fn with_rows() -> BTreeSet<String> {
    let all: [Vec<&'static str>; 15] = [
        approximate::names(),
        compare::names(),
        convert::names(),
        cross::names(),
        divide::names(),
        dot::names(),
        float16::names(),
        float32::names(),
        float64::names(),
        integer::names(),
        integer16::names(),
        matrix::names(),
        programs::names(),
        scalar::names(),
        scalar_float::names(),
    ];
    all.into_iter().flatten().map(str::to_owned).chain(transfers::names()).chain(integer::text_names()).collect()
}

#[test]
fn every_mnemonic_has_a_vector_or_a_reason() {
    let rows = with_rows();
    let exempt: BTreeMap<&str, &str> =
        EXEMPT.iter().flat_map(|(reason, names)| names.iter().map(move |name| (*name, *reason))).collect();
    let known: BTreeSet<String> = gfx_emu::decode::names().into_iter().collect();
    let missing: Vec<&String> =
        known.iter().filter(|name| !rows.contains(*name) && !exempt.contains_key(name.as_str())).collect();
    assert!(missing.is_empty(), "no vector tests {missing:?}");
    let both: Vec<&&str> = exempt.keys().filter(|name| rows.contains(**name)).collect();
    assert!(both.is_empty(), "these have a vector and need no reason: {both:?}");
    let unknown: Vec<&&str> = exempt.keys().filter(|name| !known.contains(**name)).collect();
    assert!(unknown.is_empty(), "the emulator does not know {unknown:?}");
}
