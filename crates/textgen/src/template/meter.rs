//! What one rendering may use: memory, work and depth. A template comes from a stranger, and a dozen of its characters can
//! ask for a terabyte.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use minijinja::value::{Value, ValueKind};
use minijinja::{Error, ErrorKind};

/// What an element of a list or a map counts as, in bytes of memory and in work.
pub(super) const ELEMENT: u64 = 32;

/// Work of looking at an element, wherever it is: much more than that of a byte.
pub(super) const VISIT: u64 = 128;

/// How deep lists and maps may be nested.
const DEPTH: usize = 64;

/// How often something that is not a text can grow when it is written: quotes, escapes, separators.
pub(super) const WRITTEN: u64 = 8;

const MIB: u64 = 1 << 20;

/// What a rendering may use.
#[derive(Clone, Copy, Debug)]
pub(super) struct Allowance {
    /// Bytes that are allocated for values and output, over the whole rendering.
    pub memory: u64,
    /// Bytes and elements that are read or written.
    pub work: u64,
    /// Bytes of the prompt.
    pub output: u64,
}

impl Allowance {
    /// For messages and tools of this many bytes.
    pub fn new(input: usize) -> Allowance {
        let input = input as u64;
        Allowance {
            memory: (64 * MIB).saturating_add(input.saturating_mul(512)),
            work: (256 * MIB).saturating_add(input.saturating_mul(4096)),
            output: (4 * MIB).saturating_add(input.saturating_mul(8)),
        }
    }
}

/// Counts what a rendering has used. The first limit that is passed is kept, because templates can hide errors.
#[derive(Debug)]
pub(super) struct Meter {
    allowance: Allowance,
    memory: AtomicU64,
    work: AtomicU64,
    passed: OnceLock<String>,
}

impl Meter {
    pub fn new(allowance: Allowance) -> Meter {
        Meter { allowance, memory: AtomicU64::new(0), work: AtomicU64::new(0), passed: OnceLock::new() }
    }

    /// The limit that was passed, in words.
    pub fn passed(&self) -> Option<&str> {
        self.passed.get().map(String::as_str)
    }

    /// What part of the memory and of the work was used.
    #[cfg(test)]
    pub fn used(&self) -> (f64, f64) {
        let part = |used: &AtomicU64, limit: u64| used.load(Ordering::Relaxed) as f64 / limit as f64;
        (part(&self.memory, self.allowance.memory), part(&self.work, self.allowance.work))
    }

    /// Counts memory before it is allocated.
    pub fn memory(&self, bytes: u64) -> Result<(), Error> {
        let limit = self.allowance.memory;
        spend(&self.memory, bytes, limit).or_else(|()| self.fail(format!("it needs more than {limit} bytes of memory")))
    }

    /// Counts work before it is done.
    pub fn work(&self, amount: u64) -> Result<(), Error> {
        let limit = self.allowance.work;
        spend(&self.work, amount, limit)
            .or_else(|()| self.fail(format!("it needs more than {limit} steps over bytes and elements")))
    }

    /// Checks the length of the prompt.
    pub fn output(&self, bytes: usize) -> Result<(), Error> {
        let limit = self.allowance.output;
        if bytes as u64 <= limit { Ok(()) } else { self.fail(format!("its prompt is longer than {limit} bytes")) }
    }

    fn fail<T>(&self, problem: String) -> Result<T, Error> {
        let problem = self.passed.get_or_init(|| problem);
        Err(Error::new(ErrorKind::InvalidOperation, problem.clone()))
    }

    /// Reads the whole of a value: its bytes and elements, counted as often as they are found in it.
    pub fn weigh(&self, value: &Value) -> Result<u64, Error> {
        self.visit(value, 0, true)
    }

    /// Checks how deep a value is, and how many elements it has in all.
    pub fn structure(&self, value: &Value) -> Result<(), Error> {
        self.visit(value, 0, false).map(drop)
    }

    fn visit(&self, value: &Value, depth: usize, read: bool) -> Result<u64, Error> {
        let text = if read { bytes(value) } else { 0 };
        self.work(VISIT + text)?;
        let mut size = ELEMENT + text;
        let is_map = value.kind() == ValueKind::Map;
        // Macros and loops are maps to those who ask, and cannot be walked over.
        if !is_map && !matches!(value.kind(), ValueKind::Seq | ValueKind::Iterable) {
            return Ok(size);
        }
        let Ok(elements) = value.try_iter() else { return Ok(size) };
        if depth == DEPTH {
            return self.fail(format!("its lists and maps are nested more than {DEPTH} deep"));
        }
        for element in elements.checked() {
            let element = element?;
            if is_map {
                size = size.saturating_add(self.visit(&value.get_item(&element)?, depth + 1, read)?);
            }
            size = size.saturating_add(self.visit(&element, depth + 1, read)?);
        }
        Ok(size)
    }

    /// Pays for walking over a text's bytes or a list's elements once.
    pub fn scan(&self, value: &Value) -> Result<u64, Error> {
        let length = match value.kind() {
            ValueKind::String | ValueKind::Bytes => bytes(value),
            _ => value.len().unwrap_or(0) as u64,
        };
        self.work(length)?;
        Ok(length)
    }

    /// A value of its own: what the engine computes on demand, layer upon layer, is computed now.
    pub fn built(&self, value: Value) -> Result<Value, Error> {
        let value = if value.kind() == ValueKind::Iterable {
            let mut elements = Vec::new();
            for element in value.try_iter()?.checked() {
                self.memory(ELEMENT)?;
                elements.push(element?);
            }
            Value::from(elements)
        } else {
            value
        };
        self.structure(&value)?;
        Ok(value)
    }
}

/// The bytes of a text.
pub(super) fn bytes(value: &Value) -> u64 {
    let length = value.as_str().map(str::len).or_else(|| value.as_bytes().map(<[u8]>::len));
    length.unwrap_or(0) as u64
}

fn spend(used: &AtomicU64, amount: u64, limit: u64) -> Result<(), ()> {
    // One thread renders: what is added once too often is added to a meter that says no already.
    let before = used.load(Ordering::Relaxed);
    let after = before.saturating_add(amount);
    used.store(after, Ordering::Relaxed);
    if after <= limit { Ok(()) } else { Err(()) }
}
