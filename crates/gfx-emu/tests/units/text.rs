//! The disassembler's text taken apart.

use gfx_emu::Src;
use gfx_emu::decode::text::*;

#[test]
fn names_operands_and_modifiers_are_separated() {
    let text = Text::new("v_fma_mix_f32 v0, v1, v2, -v3 op_sel:[1,0,0] op_sel_hi:[1,0,1]");
    assert_eq!((text.name, text.encoding), ("v_fma_mix_f32", Encoding::Plain));
    assert_eq!(text.operands, ["v0", "v1", "v2", "-v3"]);
    assert_eq!((text.mask("op_sel"), text.mask("op_sel_hi"), text.mask("neg_lo")), (Some(1), Some(5), None));
    let text = Text::new("global_load_b32 v1, v[0:1], off offset:-4 glc");
    assert_eq!(text.operands, ["v1", "v[0:1]", "off"]);
    assert_eq!((text.number("offset"), text.has("glc"), text.has("slc")), (Some(-4), true, false));
    let text = Text::new("v_mov_b32_dpp v0, v1 quad_perm:[0,1,2,3] row_mask:0xf bank_mask:0xf");
    assert_eq!((text.name, text.encoding, text.operands.len()), ("v_mov_b32", Encoding::Dpp, 2));
    let text = Text::new("s_waitcnt vmcnt(0) lgkmcnt(0)");
    assert_eq!((text.operands, text.modifiers), (vec!["vmcnt(0)"], vec!["lgkmcnt(0)"]));
}

#[test]
fn operands_have_registers_constants_and_signs() {
    let plain = |text: &str| operand(text).map(|operand| (operand.src, operand.count));
    for (text, want) in [
        ("v7", (Src::V(7), 1)),
        ("v[8:15]", (Src::V(8), 8)),
        ("s[2:3]", (Src::S(2), 2)),
        ("a3", (Src::V(259), 1)),
        ("ttmp9", (Src::S(117), 1)),
        ("vcc", (Src::S(106), 2)),
        ("exec_lo", (Src::S(126), 1)),
        ("null", (Src::Int(0), 1)),
        ("-16", (Src::Int(-16), 1)),
        ("0x3f800000", (Src::Lit(0x3f80_0000), 1)),
        ("0xffffffff", (Src::Lit(u32::MAX), 1)),
        ("-0.5", (Src::Float(1), 1)),
        ("0.15915494309189532", (Src::Float(8), 1)),
    ] {
        assert_eq!(plain(text), Some(want), "{text}");
    }
    for text in ["", "v", "v256", "s[4:3]", "hello", "0.3", "v[0:1"] {
        assert_eq!(plain(text), None, "{text:?}");
    }
    let both = operand("-|v1|").unwrap();
    assert!(both.neg && both.abs && both.src == Src::V(1));
    assert!(operand("v3.h").unwrap().high && !operand("v3.l").unwrap().high);
    assert!(operand("sext(v2)").unwrap().sext);
    assert!(operand("neg(abs(v2))").unwrap().neg);
}
