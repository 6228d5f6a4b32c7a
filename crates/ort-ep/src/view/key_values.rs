//! Key-value pairs: metadata, options, configuration.
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ffi::c_char;
use std::marker::PhantomData;
use std::ptr;

use ort_ep_sys as sys;

use crate::ffi::runtime::{c_string, text};
use crate::{Error, Result, Runtime};

/// Borrowed pairs; empty if the runtime passed null.
#[derive(Clone, Copy, Debug)]
pub struct KeyValues<'a> {
    runtime: Runtime,
    raw: *const sys::OrtKeyValuePairs,
    life: PhantomData<&'a ()>,
}

impl<'a> KeyValues<'a> {
    /// Views pairs of the runtime.
    ///
    /// # Safety
    /// `raw` is null or live pairs of `runtime`, unchanged for `'a`.
    pub(crate) unsafe fn from_raw(runtime: Runtime, raw: *const sys::OrtKeyValuePairs) -> Self {
        Self { runtime, raw, life: PhantomData }
    }

    /// The runtime's own pointer; may be null.
    pub fn as_ptr(self) -> *const sys::OrtKeyValuePairs {
        self.raw
    }

    /// The value of `key`.
    pub fn get(self, key: &str) -> Option<Cow<'a, str>> {
        if self.raw.is_null() {
            return None;
        }
        let key = c_string(key);
        // SAFETY: `from_raw`'s caller vouches for the pairs; the value lives as long as they do.
        unsafe {
            let value = self.runtime.api.GetKeyValue(self.raw, key.as_ptr());
            (!value.is_null()).then(|| text(value))
        }
    }

    /// Every pair, in the runtime's order.
    pub fn iter(self) -> impl ExactSizeIterator<Item = (Cow<'a, str>, Cow<'a, str>)> {
        let (keys, values) = self.raw_lists();
        // SAFETY: keys and values are NUL-terminated strings that live as long as the pairs.
        keys.iter().zip(values).map(|(&key, &value)| unsafe { (text(key), text(value)) })
    }

    /// How many pairs there are.
    pub fn len(self) -> usize {
        self.raw_lists().0.len()
    }

    /// True if there are none.
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// A sorted copy.
    pub fn to_map(self) -> BTreeMap<String, String> {
        self.iter().map(|(key, value)| (key.into_owned(), value.into_owned())).collect()
    }

    fn raw_lists(self) -> (&'a [*const c_char], &'a [*const c_char]) {
        let (mut keys, mut values, mut len) = (ptr::null(), ptr::null(), 0);
        if !self.raw.is_null() {
            // SAFETY: `from_raw`'s caller vouches for the pairs; the out-pointers are ours.
            unsafe { self.runtime.api.GetKeyValuePairs(self.raw, &mut keys, &mut values, &mut len) };
        }
        if len == 0 || keys.is_null() || values.is_null() {
            return (&[], &[]);
        }
        // SAFETY: the runtime gave `len` entries in each list, which live as long as the pairs.
        unsafe { (std::slice::from_raw_parts(keys, len), std::slice::from_raw_parts(values, len)) }
    }
}

/// Pairs of our own, released on drop.
#[derive(Debug)]
pub struct OwnedKeyValues {
    runtime: Runtime,
    raw: *mut sys::OrtKeyValuePairs,
}

impl OwnedKeyValues {
    /// No pairs yet.
    ///
    /// # Errors
    /// If the runtime is out of memory.
    pub fn new(runtime: Runtime) -> Result<Self> {
        let mut raw = ptr::null_mut();
        // SAFETY: the out-pointer is ours.
        unsafe { runtime.api.CreateKeyValuePairs(&mut raw) };
        if raw.is_null() {
            return Err(Error::fail("CreateKeyValuePairs returned null"));
        }
        Ok(Self { runtime, raw })
    }

    /// The given pairs.
    ///
    /// # Errors
    /// Same as for [`new`](Self::new).
    pub fn from_pairs<K: AsRef<str>, V: AsRef<str>>(
        runtime: Runtime,
        pairs: impl IntoIterator<Item = (K, V)>,
    ) -> Result<Self> {
        let mut all = Self::new(runtime)?;
        for (key, value) in pairs {
            all.insert(key.as_ref(), value.as_ref());
        }
        Ok(all)
    }

    /// Takes ownership of pairs from the runtime.
    ///
    /// # Safety
    /// `raw` are live pairs of `runtime`, and nothing else releases them.
    pub(crate) unsafe fn from_raw(runtime: Runtime, raw: *mut sys::OrtKeyValuePairs) -> Self {
        Self { runtime, raw }
    }

    /// Passes ownership of the pairs to the runtime, which releases them.
    pub(crate) fn into_raw(self) -> *mut sys::OrtKeyValuePairs {
        std::mem::ManuallyDrop::new(self).raw
    }

    /// Sets `key`, replacing its value.
    pub fn insert(&mut self, key: &str, value: &str) {
        let (key, value) = (c_string(key), c_string(value));
        // SAFETY: the pairs are ours; both strings are copied by the call.
        unsafe { self.runtime.api.AddKeyValuePair(self.raw, key.as_ptr(), value.as_ptr()) };
    }

    /// A view of the pairs.
    pub fn as_view(&self) -> KeyValues<'_> {
        // SAFETY: the pairs are live while `self` is, and `insert` needs `&mut self`.
        unsafe { KeyValues::from_raw(self.runtime, self.raw) }
    }
}

impl Drop for OwnedKeyValues {
    fn drop(&mut self) {
        // SAFETY: the pairs are ours alone (see the constructors); null is allowed.
        unsafe { self.runtime.api.ReleaseKeyValuePairs(self.raw) }
    }
}
