//! Keeps ROCr from filling gigabytes when it starts.
//!
//! With a model, `hsaKmtOpenKFD` makes a table with a byte for each node, but has not read their number: it takes what
//! lies on the stack. On average it clears two gigabytes, which takes seconds. Between the calls of
//! `get_hsakmt_model_functions` and `create`, ROCr's calls of `memset` therefore come here: memory of that size was mapped
//! for this call and is clear.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use libc::{Elf64_Sym, dl_phdr_info};

use super::code_objects::ROCR;

/// More than the C library ever allocates without mapping new memory.
const LARGE: usize = 64 << 20;

const FUNCTION: &CStr = c"memset";

/// Tags of the entries of a dynamic section.
mod tag {
    pub const PLT_BYTES: u64 = 2;
    pub const STRINGS: u64 = 5;
    pub const SYMBOLS: u64 = 6;
    pub const PLT_RELOCATIONS: u64 = 23;
}

#[repr(C)]
struct Dynamic {
    tag: u64,
    value: u64,
}

#[repr(C)]
struct Relocation {
    offset: u64,
    info: u64,
    addend: i64,
}

/// Where ROCr keeps the address of the function while it is replaced.
static SLOT: AtomicPtr<*mut c_void> = AtomicPtr::new(ptr::null_mut());

/// Replaces the function. Where it is not found, ROCr starts slowly.
pub fn begin() {
    let mut slot: *mut *mut c_void = ptr::null_mut();
    // SAFETY: the callback has the type that the C library asks for, and `slot` lives during the call.
    unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut slot).cast()) };
    if !slot.is_null() && set(slot, clear as *mut c_void) {
        SLOT.store(slot, Ordering::Release);
    }
}

/// Undoes that.
pub fn end() {
    let slot = SLOT.swap(ptr::null_mut(), Ordering::AcqRel);
    if !slot.is_null() {
        set(slot, libc::memset as *mut c_void);
    }
}

/// Writes an address where relocations have put one; the page may be read-only since then.
fn set(slot: *mut *mut c_void, function: *mut c_void) -> bool {
    // SAFETY: the slot is aligned and part of a page of a loaded library. All values that it gets are functions of the
    // same type, and a pointer is written at once.
    unsafe {
        let page = usize::try_from(libc::sysconf(libc::_SC_PAGESIZE)).unwrap_or(4096);
        let start = slot.map_addr(|address| address & !(page - 1));
        if libc::mprotect(start.cast(), page, libc::PROT_READ | libc::PROT_WRITE) != 0 {
            return false;
        }
        AtomicPtr::from_ptr(slot).store(function, Ordering::Release);
        true
    }
}

/// What ROCr calls instead of `memset`.
unsafe extern "C" fn clear(place: *mut c_void, byte: c_int, bytes: usize) -> *mut c_void {
    if byte == 0 && bytes >= LARGE {
        return place;
    }
    // SAFETY: the caller's own arguments.
    unsafe { libc::memset(place, byte, bytes) }
}

/// Finds the slot in ROCr, and then stops the search.
unsafe extern "C" fn visit(library: *mut dl_phdr_info, _: usize, slot: *mut c_void) -> c_int {
    // SAFETY: the C library describes a loaded library, whose name and headers live as long as it does.
    let (library, name) = unsafe { (&*library, (*library).dlpi_name) };
    // SAFETY: as above.
    let is_rocr = !name.is_null() && unsafe { CStr::from_ptr(name) }.to_string_lossy().contains(ROCR[1]);
    if !is_rocr {
        return 0;
    }
    // SAFETY: as above; the library is relocated, since its code runs.
    let found = unsafe { slot_in(library) };
    if let Some(found) = found {
        // SAFETY: `begin` passes the address of a pointer.
        unsafe { slot.cast::<*mut *mut c_void>().write(found) };
    }
    1
}

/// # Safety
/// The library is loaded and relocated.
unsafe fn slot_in(library: &dl_phdr_info) -> Option<*mut *mut c_void> {
    let base = library.dlpi_addr;
    // SAFETY: the loader has checked the headers, and everything that they point to is part of the loaded library.
    unsafe {
        let headers = std::slice::from_raw_parts(library.dlpi_phdr, usize::from(library.dlpi_phnum));
        let dynamic = headers.iter().find(|header| header.p_type == libc::PT_DYNAMIC)?;
        let mut entry = at::<Dynamic>(base + dynamic.p_vaddr);
        let (mut bytes, mut strings, mut symbols, mut relocations) = (0, 0, 0, 0);
        while (*entry).tag != 0 {
            let value = (*entry).value;
            // The loader has made addresses of offsets.
            match (*entry).tag {
                tag::PLT_BYTES => bytes = value,
                tag::STRINGS => strings = value,
                tag::SYMBOLS => symbols = value,
                tag::PLT_RELOCATIONS => relocations = value,
                _ => {}
            }
            entry = entry.add(1);
        }
        if strings < base || symbols < base || relocations < base {
            return None;
        }
        let count = usize::try_from(bytes).ok()? / size_of::<Relocation>();
        let relocations = std::slice::from_raw_parts(at::<Relocation>(relocations), count);
        let found = relocations.iter().find(|relocation| {
            let symbol = &*at::<Elf64_Sym>(symbols).add((relocation.info >> 32) as usize);
            CStr::from_ptr(at::<c_char>(strings + u64::from(symbol.st_name))) == FUNCTION
        })?;
        Some(at::<*mut c_void>(base + found.offset).cast_mut())
    }
}

fn at<T>(address: u64) -> *const T {
    ptr::with_exposed_provenance(address as usize)
}
