//! Limits memory, work and nesting depth of one rendering. Templates are untrusted, and a dozen characters can ask for
//! a terabyte.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use minijinja::value::{Value, ValueKind};
use minijinja::{Error, ErrorKind};

/// What an element of a list or map counts for, in bytes of memory and in work.
pub(super) const ELEMENT: u64 = 32;

/// The work of visiting an element, which is much more than that of a byte.
pub(super) const VISIT: u64 = 128;

/// How deeply lists and maps may be nested.
const DEPTH: usize = 64;

/// How much longer a value other than a string can become when it is printed: quotes, escapes, separators.
pub(super) const WRITTEN: u64 = 8;

const MIB: u64 = 1 << 20;

/// The limits of a rendering.
#[derive(Clone, Copy, Debug)]
pub(super) struct Allowance {
    /// Bytes allocated for values and output, over the whole rendering.
    pub memory: u64,
    /// Bytes and elements read or written.
    pub work: u64,
    /// Size of the prompt in bytes.
    pub output: u64,
}

impl Allowance {
    /// The limits for messages and tools of this many bytes.
    pub fn new(input: usize) -> Allowance {
        let input = input as u64;
        Allowance {
            memory: (64 * MIB).saturating_add(input.saturating_mul(512)),
            work: (256 * MIB).saturating_add(input.saturating_mul(4096)),
            output: (4 * MIB).saturating_add(input.saturating_mul(8)),
        }
    }
}

/// Counts what a rendering has used. Keeps the first exceeded limit, because templates can hide errors.
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

    /// A message about the exceeded limit.
    pub fn passed(&self) -> Option<&str> {
        self.passed.get().map(String::as_str)
    }

    /// The used fractions of memory and work.
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

    /// Counts the work of reading a whole value, and returns its size. Shared parts count each time that they occur.
    pub fn weigh(&self, value: &Value) -> Result<u64, Error> {
        self.visit(value, 0, true)
    }

    /// Checks the depth of a value and its total number of elements.
    pub fn structure(&self, value: &Value) -> Result<(), Error> {
        self.visit(value, 0, false).map(drop)
    }

    fn visit(&self, value: &Value, depth: usize, read: bool) -> Result<u64, Error> {
        let text = if read { bytes(value) } else { 0 };
        self.work(VISIT + text)?;
        let mut size = ELEMENT + text;
        let is_map = value.kind() == ValueKind::Map;
        // Macros and loops claim to be maps, but cannot be iterated over.
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

    /// Counts the work of iterating over a text's bytes or a list's elements once.
    pub fn scan(&self, value: &Value) -> Result<u64, Error> {
        let length = match value.kind() {
            ValueKind::String | ValueKind::Bytes => bytes(value),
            _ => value.len().unwrap_or(0) as u64,
        };
        self.work(length)?;
        Ok(length)
    }

    /// Evaluates a lazy value, because lazy values could be stacked on each other, and checks its structure.
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

/// Length of a text in bytes.
pub(super) fn bytes(value: &Value) -> u64 {
    let length = value.as_str().map(str::len).or_else(|| value.as_bytes().map(<[u8]>::len));
    length.unwrap_or(0) as u64
}

fn spend(used: &AtomicU64, amount: u64, limit: u64) -> Result<(), ()> {
    // Only one thread renders. An increment beyond the limit does no harm, because the meter already fails.
    let before = used.load(Ordering::Relaxed);
    let after = before.saturating_add(amount);
    used.store(after, Ordering::Relaxed);
    if after <= limit { Ok(()) } else { Err(()) }
}
