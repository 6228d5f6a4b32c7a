//! Handles: boxes with recorded addresses, so that leaks and invalid frees can be counted.

use std::any::type_name;
use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::{Mutex, PoisonError};

use crate::control::Outcome;

/// Any handle.
pub type Handle = *mut c_void;

#[derive(Default)]
struct Record {
    alive: Option<HashMap<usize, &'static str>>,
    misuses: usize,
}

static RECORD: Mutex<Record> = Mutex::new(Record { alive: None, misuses: 0 });

fn record<R>(body: impl FnOnce(&mut HashMap<usize, &'static str>, &mut usize) -> R) -> R {
    let mut guard = RECORD.lock().unwrap_or_else(PoisonError::into_inner);
    let Record { alive, misuses } = &mut *guard;
    body(alive.get_or_insert_default(), misuses)
}

/// How many handles are alive.
pub fn live() -> usize {
    record(|alive, _| alive.len())
}

/// How many frees were invalid.
pub fn misuses() -> usize {
    record(|_, misuses| *misuses)
}

/// Returns a value to the caller as a handle.
///
/// # Safety
/// `out` is null or a valid out-pointer.
pub unsafe fn give<T>(out: *mut Handle, value: T) -> Outcome {
    if out.is_null() {
        return Err("bad parameter: a null pointer".into());
    }
    let raw = Box::into_raw(Box::new(value));
    record(|alive, _| alive.insert(raw as usize, type_name::<T>()));
    // SAFETY: the caller guarantees the out-pointer.
    unsafe { *out = raw.cast() };
    Ok(())
}

/// Frees a handle; null is a no-op.
///
/// # Safety
/// `handle` is not in use elsewhere.
pub unsafe fn free<T>(handle: Handle) -> Outcome {
    if handle.is_null() {
        return Ok(());
    }
    let known = record(|alive, misuses| {
        let known = alive.get(&(handle as usize)) == Some(&type_name::<T>());
        if known {
            alive.remove(&(handle as usize));
        } else {
            *misuses += 1;
        }
        known
    });
    if !known {
        return Err(format!("bad parameter: {handle:?} is not a {}", type_name::<T>()));
    }
    // SAFETY: according to the record, this address came from `give` with this type and was not freed.
    drop(unsafe { Box::from_raw(handle.cast::<T>()) });
    Ok(())
}

/// The value of a handle, our own or one borrowed from inside another.
///
/// # Safety
/// `handle` is null or points to a `T` that stays alive and unchanged while the result is used.
pub unsafe fn of<'a, T>(handle: *const c_void) -> Result<&'a T, String> {
    // SAFETY: the caller guarantees the handle.
    unsafe { handle.cast::<T>().as_ref() }.ok_or_else(|| "bad parameter: a null handle".into())
}

/// Like [`of`], but mutable.
///
/// # Safety
/// `handle` is null or points to a `T` that is not used elsewhere while the result is used.
pub unsafe fn of_mut<'a, T>(handle: Handle) -> Result<&'a mut T, String> {
    // SAFETY: the caller guarantees the handle.
    unsafe { handle.cast::<T>().as_mut() }.ok_or_else(|| "bad parameter: a null handle".into())
}

/// Writes to an out-pointer.
///
/// # Safety
/// `out` is null or a valid out-pointer.
pub unsafe fn put<T>(out: *mut T, value: T) -> Outcome {
    if out.is_null() {
        return Err("bad parameter: a null pointer".into());
    }
    // SAFETY: the caller guarantees the out-pointer.
    unsafe { out.write(value) };
    Ok(())
}
