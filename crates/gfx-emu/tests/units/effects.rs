//! What observers learn about an instruction.

use gfx_emu::decode::{Context, decode};
use gfx_emu::{Class, Control, Effects, Issued, Registers, Step, Waits};

fn effects(target: &str, text: &str) -> Effects {
    let context = Context { target: target.parse().unwrap(), wave_size: 32 };
    Effects::of(&decode(text, context).unwrap_or_else(|reason| panic!("{text}: {reason}")), text)
}

#[test]
fn waits_name_the_counters_of_each_family() {
    let none = Waits::NONE;
    for (target, text, wanted) in [
        ("gfx1100", "s_waitcnt vmcnt(3) lgkmcnt(0)", Waits { vector: 3, lds: 0, ..none }),
        ("gfx942", "s_waitcnt lgkmcnt(2)", Waits { lds: 2, ..none }),
        ("gfx1100", "s_waitcnt_vscnt null, 0x0", Waits { store: 0, ..none }),
        ("gfx1201", "s_wait_loadcnt 0x1", Waits { vector: 1, ..none }),
        ("gfx1201", "s_wait_kmcnt 0x0", Waits { scalar: 0, ..none }),
        ("gfx1201", "s_wait_loadcnt_dscnt 0x205", Waits { vector: 2, lds: 5, ..none }),
        ("gfx1201", "s_wait_storecnt_dscnt 0x0", Waits { store: 0, lds: 0, ..none }),
        ("gfx1100", "s_waitcnt_depctr 0xfff", none),
        ("gfx1201", "s_wait_idle", Waits::ALL),
    ] {
        let context = Context { target: target.parse().unwrap(), wave_size: 32 };
        match decode(text, context).unwrap().step {
            Step::Control(Control::Wait(waits)) => assert_eq!(waits, wanted, "{text}"),
            _ => panic!("{text} is not a wait"),
        }
    }
}

#[test]
fn loads_write_their_registers_later() {
    for (text, issued, vectors, scalars) in [
        ("global_load_b128 v[4:7], v[0:1], off", Issued::Load, (4, 4), (0, 0)),
        ("global_store_b64 v[0:1], v[2:3], off", Issued::Store, (0, 0), (0, 0)),
        ("global_atomic_add_u32 v5, v[0:1], v2, off glc", Issued::Load, (5, 1), (0, 0)),
        ("global_atomic_add_u32 v[0:1], v2, off", Issued::Store, (0, 0), (0, 0)),
        ("ds_load_2addr_b32 v[8:9], v0 offset1:1", Issued::Lds, (8, 2), (0, 0)),
        ("ds_bpermute_b32 v3, v1, v2", Issued::Lds, (3, 1), (0, 0)),
        ("s_load_b256 s[8:15], s[0:1], 0x20", Issued::Scalar, (0, 0), (8, 8)),
    ] {
        let effects = effects("gfx1100", text);
        let mut wanted = Registers::default();
        wanted.add_vector(vectors.0, vectors.1);
        wanted.add_scalar(scalars.0, scalars.1);
        assert_eq!((effects.issued, effects.written_later), (Some(issued), wanted), "{text}");
        assert!(!effects.touched.meets(&wanted), "{text}");
    }
}

#[test]
fn all_registers_of_an_operand_are_touched() {
    for (text, first, last) in [
        ("v_wmma_f32_16x16x16_f16 v[16:23], v[0:7], v[8:15], v[16:23]", 0, 23),
        ("v_dual_mov_b32 v0, v1 :: v_dual_add_f32 v3, v2, v2", 0, 3),
        ("v_fma_f64 v[0:1], v[2:3], v[4:5], v[6:7]", 0, 7),
    ] {
        let touched = effects("gfx1100", text).touched;
        let mut wanted = Registers::default();
        wanted.add_vector(first, last - first + 1);
        assert_eq!(touched, wanted, "{text}");
    }
}

#[test]
fn classes_and_operations_follow_from_the_mnemonic() {
    for (text, class, flops) in [
        ("v_wmma_f32_16x16x16_f16 v[16:23], v[0:7], v[8:15], v[16:23]", Class::Matrix, 2 * 16 * 16 * 16),
        ("v_fma_f32 v0, v1, v2, v3", Class::Vector, 2),
        ("v_pk_fma_f16 v0, v1, v2, v3", Class::Vector, 4),
        ("v_dual_fmac_f32 v0, v1, v2 :: v_dual_mul_f32 v3, v4, v5", Class::Vector, 3),
        ("v_add_nc_u32_e32 v0, v1, v2", Class::Vector, 0),
        ("s_add_i32 s0, s1, s2", Class::Scalar, 0),
        ("ds_store_b32 v0, v1", Class::Lds, 0),
        ("s_load_b32 s0, s[2:3], 0x0", Class::ScalarMemory, 0),
        ("scratch_load_b32 v0, off, off", Class::Scratch, 0),
        ("s_waitcnt vmcnt(0)", Class::Control, 0),
    ] {
        let effects = effects("gfx1100", text);
        assert_eq!((effects.class, effects.flops), (class, flops), "{text}");
    }
}
