//! Loads, stores and atomics: small programs for each mnemonic, on device memory, LDS and scratch memory.

use gfx_emu::{Chip, Dispatch, Memory};

use super::assembler::{PROGRAM, SETTINGS, Setting};
use super::common::{Args, Compiler};
use super::soft::{from_bf16, from_f16, from_f32, larger, smaller, to_bf16, to_f16, to_f32};

/// How many bytes are in memory, and what becomes of them in a register.
#[derive(Clone, Copy)]
enum Loaded {
    Unsigned(usize),
    Signed(usize),
    /// One half of the register: bytes, sign, and whether it is the high half.
    Half(usize, bool, bool),
    Words(usize),
}

const LOADS: [(&str, Loaded); 17] = [
    ("u8 ubyte", Loaded::Unsigned(1)),
    ("i8 sbyte", Loaded::Signed(1)),
    ("u16 ushort", Loaded::Unsigned(2)),
    ("i16 sshort", Loaded::Signed(2)),
    ("d16_u8 ubyte_d16 u8_d16", Loaded::Half(1, false, false)),
    ("d16_i8 sbyte_d16 i8_d16", Loaded::Half(1, true, false)),
    ("d16_b16 short_d16 u16_d16", Loaded::Half(2, false, false)),
    ("d16_hi_u8 ubyte_d16_hi u8_d16_hi", Loaded::Half(1, false, true)),
    ("d16_hi_i8 sbyte_d16_hi i8_d16_hi", Loaded::Half(1, true, true)),
    ("d16_hi_b16 short_d16_hi u16_d16_hi", Loaded::Half(2, false, true)),
    ("b32 dword", Loaded::Words(1)),
    ("b64 dwordx2", Loaded::Words(2)),
    ("b96 dwordx3", Loaded::Words(3)),
    ("b128 dwordx4", Loaded::Words(4)),
    ("b256 dwordx8", Loaded::Words(8)),
    ("b512 dwordx16", Loaded::Words(16)),
    ("none", Loaded::Words(0)),
];

/// Bytes that are stored, and the first of them in the register.
const STORES: [(&str, usize, usize); 8] = [
    ("b8 byte", 1, 0),
    ("b16 short", 2, 0),
    ("d16_hi_b8 byte_d16_hi b8_d16_hi", 1, 2),
    ("d16_hi_b16 short_d16_hi b16_d16_hi", 2, 2),
    ("b32 dword", 4, 0),
    ("b64 dwordx2", 8, 0),
    ("b96 dwordx3", 12, 0),
    ("b128 dwordx4", 16, 0),
];

/// The new value from the old one and the operand; compared with the second operand if there is one. `n` is the width.
type Change = fn(old: u64, data: u64, compare: u64, n: u32) -> u64;

const ATOMICS: [(&str, Change); 20] = [
    ("swap storexchg wrxchg", |_, data, _, _| data),
    ("cmpswap cmpstore cmpst", |old, data, compare, _| if old == compare { data } else { old }),
    ("add_u add", |old, data, _, _| old.wrapping_add(data)),
    ("sub_u sub", |old, data, _, _| old.wrapping_sub(data)),
    ("rsub_u", |old, data, _, _| data.wrapping_sub(old)),
    ("min_i smin", |old, data, _, n| if signed(data, n) < signed(old, n) { data } else { old }),
    ("max_i smax", |old, data, _, n| if signed(data, n) > signed(old, n) { data } else { old }),
    ("min_u umin", |old, data, _, _| old.min(data)),
    ("max_u umax", |old, data, _, _| old.max(data)),
    ("and", |old, data, _, _| old & data),
    ("or", |old, data, _, _| old | data),
    ("xor", |old, data, _, _| old ^ data),
    ("inc_u inc", |old, data, _, _| if old >= data { 0 } else { old + 1 }),
    ("dec_u dec", |old, data, _, _| if old == 0 || old > data { data } else { old - 1 }),
    ("csub_u sub_clamp_u", |old, data, _, _| if old < data { 0 } else { old - data }),
    ("add_f", |old, data, _, n| floats(old, data, n, |a, b| a + b)),
    ("min_f fmin min_num_f", |old, data, _, n| floats(old, data, n, smaller)),
    ("max_f fmax max_num_f", |old, data, _, n| floats(old, data, n, larger)),
    ("pk_add_f16", |old, data, _, _| pairs(old, data, from_f16, to_f16)),
    ("pk_add_bf16", |old, data, _, _| pairs(old, data, from_bf16, to_bf16)),
];

fn signed(value: u64, bits: u32) -> i64 {
    if bits == 64 { value as i64 } else { i64::from(value as i32) }
}

fn floats(old: u64, data: u64, bits: u32, of: fn(f64, f64) -> f64) -> u64 {
    if bits == 64 {
        of(f64::from_bits(old), f64::from_bits(data)).to_bits()
    } else {
        to_f32(of(from_f32(old), from_f32(data)))
    }
}

fn pairs(old: u64, data: u64, read: fn(u64) -> f64, write: fn(f64) -> u64) -> u64 {
    let sum = |at: u32| write(read(old >> at & 0xffff) + read(data >> at & 0xffff));
    sum(0) | sum(16) << 16
}

/// What a mnemonic does, from its parts.
enum What {
    Load(Loaded, usize),
    Store(usize, usize, usize),
    Atomic(Change, bool, u32, bool),
}

/// A mnemonic taken apart: where, what, and the distance of the two places of a double access.
fn parse(name: &str) -> Option<(&str, What)> {
    let (space, rest) = name.split_once('_')?;
    let (space, rest) = match rest.strip_prefix("buffer_") {
        Some(rest) if space == "s" => ("s_buffer", rest),
        _ => (space, rest),
    };
    let load =
        |data: &str| LOADS.iter().find(|(names, _)| names.split(' ').any(|name| name == data)).map(|(_, of)| *of);
    let store = |data: &str| STORES.iter().find(|(names, ..)| names.split(' ').any(|name| name == data));
    for (prefix, stride) in [
        ("read2st64_", 64),
        ("load_2addr_stride64_", 64),
        ("read2_", 1),
        ("load_2addr_", 1),
        ("read_", 0),
        ("load_", 0),
    ] {
        if let Some(data) = rest.strip_prefix(prefix) {
            return load(data).map(|data| (space, What::Load(data, stride)));
        }
    }
    for (prefix, stride) in [
        ("write2st64_", 64),
        ("store_2addr_stride64_", 64),
        ("write2_", 1),
        ("store_2addr_", 1),
        ("write_", 0),
        ("store_", 0),
    ] {
        if let Some(data) = rest.strip_prefix(prefix) {
            return store(data).map(|(_, bytes, first)| (space, What::Store(*bytes, *first, stride)));
        }
    }
    let returns = rest.contains("_rtn");
    let bare = rest.replace("_rtn", "");
    let bare = bare.strip_prefix("atomic_").unwrap_or(&bare);
    let all = ATOMICS.iter().flat_map(|(names, change)| names.split(' ').map(move |name| (name, *change)));
    let endings = [("", 32), ("_x2", 64), ("32", 32), ("64", 64), ("_b32", 32), ("_b64", 64)];
    let found = all.into_iter().find_map(|(name, change)| {
        let (_, bits) = endings.into_iter().find(|(ending, _)| format!("{name}{ending}") == bare)?;
        Some((change, bits))
    });
    let (change, bits) = found?;
    Some((space, What::Atomic(change, bare.contains("cmp"), bits, returns)))
}

/// The registers from `first` on.
fn range(first: u32, words: usize) -> String {
    if words == 1 { format!("v{first}") } else { format!("v[{first}:{}]", first as usize + words - 1) }
}

/// The program: v[8:11] is the lane's data, memory of 16 bytes is prepared, and both are stored at the end.
fn program(name: &str, what: &What, space: &str, setting: Setting) -> String {
    let new = setting.target.starts_with("gfx11") || setting.target.starts_with("gfx12");
    let x4 = if new { "b128" } else { "dwordx4" };
    let (ds_store, ds_load) = if new { ("ds_store_b128", "ds_load_b128") } else { ("ds_write_b128", "ds_read_b128") };
    let soffset = if setting.target.starts_with("gfx12") { "null" } else { "0" };
    // s[4:5] is the lanes' data, s[6:7] the memory, s[14:15] the results.
    let mut text = format!(
        "s_load_{x4} s[4:7], s[0:1], 0x0\ns_load_{x4} s[12:15], s[0:1], 0x10\nv_lshlrev_b32 v1, 4, v0\n\
         global_load_{x4} v[8:11], v1, s[4:5]\nglobal_load_{x4} v[16:19], v1, s[6:7]\n\
         s_mov_b32 s8, s6\ns_mov_b32 s9, s7\ns_mov_b32 s10, 0x10000\ns_mov_b32 s11, 0\n\
         v_lshl_add_u32 v2, v0, 4, s6\nv_mov_b32 v3, s7\nv_mov_b32 v4, 16\n"
    );
    match space {
        "ds" => text += &format!("{ds_store} v1, v[16:19]\n"),
        "scratch" => text += &format!("scratch_store_{x4} v4, v[16:19], off\n"),
        _ => {}
    }
    let returns = match (what, setting.target) {
        (What::Atomic(..), target) if target.starts_with("gfx12") => " th:TH_ATOMIC_RETURN",
        (What::Atomic(..), "gfx942" | "gfx950") => " sc0",
        (What::Atomic(..), _) => " glc",
        _ => "",
    };
    let line = match (space, what) {
        ("global", What::Load(data, 0)) => format!("{} , v1, s[6:7] offset:4", range(8, words(*data))),
        ("global", What::Store(bytes, ..)) => format!("v1, {}, s[6:7]", range(8, bytes.div_ceil(4))),
        ("global", What::Atomic(_, compares, bits, _)) => {
            let words = (bits / 32) as usize;
            format!("{}, v1, {}, s[6:7]{returns}", range(12, words), range(8, words << u32::from(*compares)))
        }
        ("flat", What::Load(data, 0)) => format!("{}, v[2:3] offset:4", range(8, words(*data))),
        ("flat", What::Store(bytes, ..)) => format!("v[2:3], {}", range(8, bytes.div_ceil(4))),
        ("flat", What::Atomic(_, compares, bits, _)) => {
            let words = (bits / 32) as usize;
            format!("{}, v[2:3], {}{returns}", range(12, words), range(8, words << u32::from(*compares)))
        }
        ("scratch", What::Load(data, 0)) => format!("{}, v4, off offset:4", range(8, words(*data))),
        ("scratch", What::Store(bytes, ..)) => format!("v4, {}, off", range(8, bytes.div_ceil(4))),
        ("buffer", What::Load(data, 0)) => {
            format!("{}, v1, s[8:11], {soffset} offen offset:4", range(8, words(*data)))
        }
        ("buffer", What::Store(bytes, ..)) => format!("{}, v1, s[8:11], {soffset} offen", range(8, bytes.div_ceil(4))),
        ("buffer", What::Atomic(_, compares, bits, _)) => {
            let words = (bits / 32) as usize;
            text += "v_mov_b32 v12, v8\nv_mov_b32 v13, v9\nv_mov_b32 v14, v10\nv_mov_b32 v15, v11\n";
            format!("{}, v1, s[8:11], {soffset} offen{returns}", range(12, words << u32::from(*compares)))
        }
        ("ds", What::Load(data, 0)) => format!("{}, v1 offset:4", range(8, words(*data))),
        ("ds", What::Load(data, _)) => format!("{}, v1 offset0:0 offset1:1", range(8, 2 * words(*data))),
        ("ds", What::Store(bytes, _, 0)) => format!("v1, {}", range(8, bytes.div_ceil(4))),
        ("ds", What::Store(bytes, ..)) => {
            format!("v1, {}, {} offset0:0 offset1:1", range(8, bytes / 4), range(10, bytes / 4))
        }
        ("ds", What::Atomic(_, compares, bits, returns)) => {
            let words = (bits / 32) as usize;
            let result = if *returns { format!("{}, ", range(12, words)) } else { String::new() };
            let second = if *compares { format!(", {}", range(8 + bits / 32, words)) } else { String::new() };
            format!("{result}v1, {}{second}", range(8, words))
        }
        ("s" | "s_buffer", What::Load(data, 0)) => {
            let base = if space == "s" { "s[6:7]" } else { "s[8:11]" };
            let count = words(*data);
            let to = if count == 1 { "s16".to_owned() } else { format!("s[16:{}]", 15 + count) };
            format!("{to}, {base}, 0x4")
        }
        // Not a form that exists.
        _ => "v0".to_owned(),
    };
    text += &format!("{name} {line}\n");
    match space {
        "ds" => text += &format!("{ds_load} v[16:19], v1\n"),
        "scratch" => text += &format!("scratch_load_{x4} v[16:19], v4, off\n"),
        "s" | "s_buffer" => (0..4).for_each(|word| text += &format!("v_mov_b32 v{}, s{}\n", 8 + word, 16 + word)),
        _ => text += &format!("global_load_{x4} v[16:19], v1, s[6:7]\n"),
    }
    // 16 bytes of memory, of the register's data and of the atomic's result, for each lane.
    text += &format!(
        "global_store_{x4} v1, v[8:11], s[14:15]\nglobal_store_{x4} v1, v[12:15], s[14:15] offset:1024\n\
         global_store_{x4} v1, v[16:19], s[14:15] offset:-1024\ns_endpgm\n"
    );
    text
}

fn words(data: Loaded) -> usize {
    match data {
        Loaded::Words(count) => count,
        _ => 1,
    }
}

/// 16 bytes of each lane's data and of memory before. Floats in both widths are ordinary numbers, integers have signs.
fn bytes_before(lane: usize, of_memory: bool) -> [u8; 16] {
    let numbers: [f32; 4] = if of_memory { [1.5, -2.25, 300.0, 0.75] } else { [-0.5, 8.0, 1.5, -2.25] };
    let mut bytes = [0; 16];
    for (at, number) in numbers.into_iter().enumerate() {
        // A third of the lanes has equal data in both, for compare-and-swap.
        let value = if lane % 3 == 0 { [1.5, -2.25, 1.5, -2.25][at] } else { number * (lane as f32 + 1.0) };
        bytes[at * 4..][..4].copy_from_slice(&value.to_le_bytes());
    }
    bytes
}

fn number(bytes: &[u8], at: usize, count: usize) -> u64 {
    (0..count).rev().fold(0, |value, byte| value << 8 | u64::from(bytes[at + byte]))
}

/// What the data registers, the atomic's result and memory hold afterwards, for a lane; `None` where they do not matter.
fn wanted(what: &What, space: &str, name: &str, lane: usize) -> [Option<Vec<u8>>; 3] {
    let (data, memory) = (bytes_before(lane, false), bytes_before(lane, true));
    let scalar = space.starts_with('s') && space != "scratch";
    match what {
        What::Load(data_format, stride) => {
            let memory = if scalar { bytes_before(0, true) } else { memory };
            let at = if *stride == 0 { 4 } else { 0 };
            let old = u32::from_le_bytes([data[0], data[1], data[2], data[3]]);
            let loaded = match *data_format {
                Loaded::Unsigned(count) => (number(&memory, at, count) as u32).to_le_bytes().to_vec(),
                Loaded::Signed(1) => (i32::from(memory[at] as i8)).to_le_bytes().to_vec(),
                Loaded::Signed(count) => (i32::from(number(&memory, at, count) as i16)).to_le_bytes().to_vec(),
                Loaded::Half(count, signed, high) => {
                    let value = number(&memory, at, count) as u16;
                    let value = if signed { i16::from(value as i8) as u16 } else { value };
                    let merged =
                        if high { old & 0xffff | u32::from(value) << 16 } else { old & !0xffff | u32::from(value) };
                    merged.to_le_bytes().to_vec()
                }
                Loaded::Words(count) => {
                    // A read past the lane's 16 bytes is its neighbour's; scratch memory has 0 there.
                    let next = if scalar { 1 } else { lane + 1 };
                    let next = if space == "scratch" { [0; 16] } else { bytes_before(next, true) };
                    let long = [memory, next].concat();
                    long[at..(at + 4 * count).min(at + 16)].to_vec()
                }
            };
            // The second place of a double access is one element, or 64 elements, after the first.
            let second = (*stride > 0).then(|| {
                let size = loaded.len();
                let from = stride * size;
                let other = [bytes_before(lane + from / 16, true), bytes_before(lane + from / 16 + 1, true)].concat();
                other[from % 16..][..size].to_vec()
            });
            [Some([loaded, second.unwrap_or_default()].concat()), None, None]
        }
        What::Store(count, first, stride) => {
            let mut after = memory.to_vec();
            after[..*count].copy_from_slice(&data[*first..first + count]);
            if *stride == 1 && 2 * count <= 16 {
                after[*count..2 * count].copy_from_slice(&data[8..8 + count]);
            } else if *stride > 0 {
                // All first places are written before the second ones of other lanes.
                if let Some(other) = lane.checked_sub(stride * count / 16) {
                    after[..*count].copy_from_slice(&bytes_before(other, false)[8..8 + count]);
                }
                return [None, None, Some(after[..*count].to_vec())];
            }
            [None, None, Some(after)]
        }
        What::Atomic(change, compares, bits, returns) => {
            let count = *bits as usize / 8;
            let (old, mut new) = (number(&memory, 0, count), number(&data, 0, count));
            let mut compare = if *compares { number(&data, count, count) } else { 0 };
            if name.starts_with("ds_cmpst_") {
                (new, compare) = (compare, new);
            }
            let result = change(old, new, compare, *bits);
            let mut after = memory.to_vec();
            after[..count].copy_from_slice(&result.to_le_bytes()[..count]);
            let is_returned = space != "ds" || *returns;
            [None, is_returned.then(|| memory[..count].to_vec()), Some(after)]
        }
    }
}

#[test]
fn every_load_store_and_atomic_moves_the_right_bytes() {
    let Some(compiler) = Compiler::find() else { return };
    let names = names();
    for setting in SETTINGS {
        let Ok(chip) = Chip::new(setting.target.parse().unwrap()) else { return };
        let parsed: Vec<(&str, &str, What)> = names
            .iter()
            .map(|name| (name.as_str(), parse(name).unwrap_or_else(|| panic!("no row for {name}"))))
            .map(|(name, (space, what))| (name, space, what))
            .collect();
        let texts: Vec<String> = parsed.iter().map(|(name, space, what)| program(name, what, space, setting)).collect();
        let (code, known) = setting.programs(&compiler, &texts);
        let mut memory = Memory::owned();
        let base = memory.allocate((code.len() + 64) as u64);
        memory.write(base, &code);
        let lanes = setting.lanes as usize;
        let fill = |of_memory| (0..64).flat_map(|lane| bytes_before(lane, of_memory)).collect::<Vec<u8>>();
        let data = memory.allocate_with(&fill(false));
        let places = memory.allocate_with(&[fill(true), vec![0; 4096]].concat());
        let results = memory.allocate(4096);
        let kernarg = Args::default().ptr(data).ptr(places).ptr(0).ptr(results + 1024).place(&mut memory);
        let mut ran = 0;
        for (at, (name, space, what)) in parsed.iter().enumerate().filter(|(at, _)| known[*at]) {
            ran += 1;
            memory.write(places, &fill(true));
            let kernel_object = memory.allocate_with(&descriptor(setting));
            // The entry is relative to the descriptor.
            let entry = (base + (at * PROGRAM) as u64).wrapping_sub(kernel_object);
            memory.write(kernel_object + 16, &entry.to_le_bytes());
            let dispatch = Dispatch {
                kernel_object,
                kernarg,
                grid: [setting.lanes, 1, 1],
                group: [setting.lanes, 1, 1],
                ..Dispatch::default()
            };
            if let Err(fault) = chip.run(&dispatch, &memory) {
                panic!("{}: {name}: {fault}", setting.target);
            }
            let have = memory.read(results, 4096).unwrap();
            for lane in 0..lanes {
                for (part, want) in wanted(what, space, name, lane).into_iter().enumerate() {
                    let Some(want) = want else { continue };
                    // The second places of the last lanes belong to other lanes, or to none.
                    if matches!(what, What::Load(data, stride) if *stride > 0 && lane + 1 + stride * words(*data) / 4 >= lanes)
                    {
                        continue;
                    }
                    let have = &have[(part + 1) % 3 * 1024 + lane * 16..][..want.len().min(16)];
                    let label = format!("{} of {lanes} lanes: {name}, lane {lane}, part {part}", setting.target);
                    if lane + 1 < lanes || want.len() <= 12 {
                        assert_eq!(have, &want[..want.len().min(16)], "{label}");
                    }
                }
            }
        }
        assert!(ran > 90, "{}: only {ran} mnemonics are known", setting.target);
    }
}

/// A descriptor for a kernel with arguments, LDS and scratch memory.
fn descriptor(setting: Setting) -> [u8; 64] {
    let mut bytes = [0; 64];
    let mut word = |at: usize, value: u32| bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
    word(0, 8192);
    word(4, 256);
    word(8, 32);
    // All denormals on; two user registers; the arguments' address; the wave size.
    word(48, 0xf0 << 12);
    word(52, 2 << 1);
    word(56, 1 << 3 | u32::from(setting.lanes == 32) << 10);
    bytes
}

/// Every mnemonic that the decoder composes.
pub fn names() -> Vec<String> {
    let all = gfx_emu::decode::names().into_iter();
    all.filter(|name| {
        let is_load = name.starts_with("s_load_") || name.starts_with("s_buffer_load_");
        let exchanges = ["ds_bpermute_b32", "ds_bpermute_fi_b32", "ds_permute_b32", "ds_swizzle_b32"];
        let control = ["buffer_gl", "buffer_wb", "buffer_inv", "global_inv", "global_wb"];
        is_load
            || ["global_", "flat_", "scratch_", "buffer_", "ds_"].iter().any(|prefix| name.starts_with(prefix))
                && !exchanges.contains(&name.as_str())
                && !control.iter().any(|prefix| name.starts_with(prefix))
    })
    .collect()
}
