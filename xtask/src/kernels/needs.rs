//! The resources that every kernel of the catalogue needs on every target, as a list in `docs/kernels.csv`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write as _};
use std::fs;

use anyhow::{Context, Result, bail};

use super::usage::Usage;
use crate::workspace::Workspace;

pub const FILE: &str = "docs/kernels.csv";
const HEADER: &str = "step,kernel,target,registers,lds_bytes,waves";

/// One kernel of one step of the catalogue on one target.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    pub step: String,
    pub kernel: String,
    pub target: String,
}

impl fmt::Display for Key {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} ({}) on {}", self.step, self.kernel, self.target)
    }
}

/// The resources of a compute unit that a kernel needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Resources {
    /// Vector registers per thread.
    pub registers: u32,
    /// LDS bytes per block.
    pub lds_bytes: u32,
    /// Waves that fit on a SIMD at the same time.
    pub waves: u32,
}

/// The list, and the compiler that it comes from.
#[derive(Debug, PartialEq, Eq)]
pub struct ResourceTable {
    pub compiler: String,
    pub of: BTreeMap<Key, Resources>,
}

impl ResourceTable {
    pub fn new(compiler: &str) -> Self {
        Self { compiler: compiler.to_owned(), of: BTreeMap::new() }
    }

    /// Adds a launch. If a kernel has several launches, the largest counts.
    pub fn add(&mut self, key: Key, usage: &Usage, dynamic_lds: u32) {
        let lds_bytes = usage.lds_bytes + dynamic_lds;
        let need = Resources { registers: usage.vgprs, lds_bytes, waves: usage.occupancy };
        let kept = self.of.entry(key).or_insert(need);
        *kept = need.max(*kept);
    }

    /// Adds the lines of an earlier list for kernels that were not compiled again; `keys` are all existing launches.
    ///
    /// # Errors
    /// Another compiler made the earlier list, or it lacks a kernel.
    pub fn keep(&mut self, earlier: Self, keys: &BTreeSet<Key>) -> Result<()> {
        if self.compiler != earlier.compiler {
            bail!("{FILE} was made by {}, not {}\n  help: compile all kernels", earlier.compiler, self.compiler);
        }
        for (key, need) in earlier.of.into_iter().filter(|(key, _)| keys.contains(key)) {
            self.of.entry(key).or_insert(need);
        }
        match keys.iter().find(|key| !self.of.contains_key(key)) {
            Some(key) => bail!("{FILE} lacks {key}\n  help: compile that kernel too"),
            None => Ok(()),
        }
    }

    /// Reads the list from the repository.
    ///
    /// # Errors
    /// When the file is missing or a line is malformed.
    pub fn read(workspace: &Workspace) -> Result<Self> {
        let text = fs::read_to_string(workspace.path(FILE)).with_context(|| format!("cannot read {FILE}"))?;
        Self::parse(&text).with_context(|| format!("{FILE} is malformed\n  help: cargo xtask kernels"))
    }

    /// Writes the list to the repository.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write(&self, workspace: &Workspace) -> Result<()> {
        fs::write(workspace.path(FILE), self.text()).with_context(|| format!("cannot write {FILE}"))
    }

    /// Differences between this list and a new compilation: `keys` are all existing launches, `found` the needs of some
    /// of them. Resources are compared only for the same compiler, since register allocation differs between compilers.
    pub fn faults(&self, keys: &BTreeSet<Key>, found: &Self) -> Vec<String> {
        let listed: BTreeSet<Key> = self.of.keys().cloned().collect();
        let mut faults: Vec<String> = keys.difference(&listed).map(|key| format!("{key} is missing")).collect();
        faults.extend(listed.difference(keys).map(|key| format!("{key} no longer exists")));
        if self.compiler == found.compiler {
            let changed = found.of.iter().filter(|&(key, need)| self.of.get(key).is_some_and(|kept| kept != need));
            faults.extend(changed.map(|(key, need)| format!("{key} now needs {need:?}")));
        }
        faults
    }

    fn text(&self) -> String {
        let mut text = format!("# {}\n{HEADER}\n", self.compiler);
        for (Key { step, kernel, target }, Resources { registers, lds_bytes, waves }) in &self.of {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{step},{kernel},{target},{registers},{lds_bytes},{waves}");
        }
        text
    }

    fn parse(text: &str) -> Result<Self> {
        let mut lines = text.lines();
        let compiler =
            lines.next().and_then(|line| line.strip_prefix("# ")).context("the first line does not name a compiler")?;
        let mut needs = Self::new(compiler);
        for line in lines.skip(1) {
            let [step, kernel, target, registers, lds_bytes, waves] = line.split(',').collect::<Vec<_>>()[..] else {
                bail!("expected {HEADER}, found {line:?}");
            };
            let key = Key { step: step.into(), kernel: kernel.into(), target: target.into() };
            let need =
                Resources { registers: registers.parse()?, lds_bytes: lds_bytes.parse()?, waves: waves.parse()? };
            needs.of.insert(key, need);
        }
        Ok(needs)
    }
}

#[cfg(test)]
pub(super) mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    pub fn key(step: &str, target: &str) -> Key {
        Key { step: step.into(), kernel: "map".into(), target: target.into() }
    }

    /// A list from rows of step, target and need.
    pub fn needs(rows: &[(&str, &str, [u32; 3])]) -> ResourceTable {
        let mut needs = ResourceTable::new("clang 19");
        for &(step, target, [registers, lds_bytes, waves]) in rows {
            needs.of.insert(key(step, target), Resources { registers, lds_bytes, waves });
        }
        needs
    }

    #[test]
    fn a_list_survives_being_written_and_read() {
        let list = needs(&[("add f16", "gfx942", [8, 0, 8]), ("add f32", "gfx1100", [16, 1024, 16])]);
        assert_eq!(ResourceTable::parse(&list.text()).unwrap(), list);
        assert!(ResourceTable::parse("# clang\nheader\nadd,map,gfx942\n").is_err());
    }

    #[test]
    fn a_part_replaces_its_own_lines_and_drops_those_of_removed_steps() {
        let earlier = || needs(&[("a", "gfx942", [8, 0, 8]), ("b", "gfx942", [8, 0, 8]), ("c", "gfx942", [8, 0, 8])]);
        let keys = |steps: &[&str]| steps.iter().map(|step| key(step, "gfx942")).collect::<BTreeSet<_>>();
        let mut part = needs(&[("a", "gfx942", [9, 0, 8])]);
        part.keep(earlier(), &keys(&["a", "b"])).unwrap();
        assert_eq!(part, needs(&[("a", "gfx942", [9, 0, 8]), ("b", "gfx942", [8, 0, 8])]));
        let error = part.keep(earlier(), &keys(&["a", "b", "d"])).unwrap_err().to_string();
        assert!(error.contains("lacks d (map) on gfx942"), "{error}");
        part.compiler = "clang 20".into();
        assert!(part.keep(earlier(), &keys(&["a"])).is_err());
    }

    #[test]
    fn a_part_is_compared_and_every_launch_must_be_listed() {
        let list = needs(&[("a", "gfx942", [8, 0, 8]), ("b", "gfx942", [8, 0, 8])]);
        let keys = |steps: &[&str]| steps.iter().map(|step| key(step, "gfx942")).collect::<BTreeSet<_>>();
        let part = needs(&[("a", "gfx942", [8, 0, 8])]);
        assert_eq!(list.faults(&keys(&["a", "b"]), &part), [""; 0]);
        assert_eq!(list.faults(&keys(&["a", "b", "c"]), &part), ["c (map) on gfx942 is missing"]);
        assert_eq!(list.faults(&keys(&["a"]), &part), ["b (map) on gfx942 no longer exists"]);
        let mut changed = needs(&[("a", "gfx942", [9, 0, 8])]);
        assert_eq!(list.faults(&keys(&["a", "b"]), &changed).len(), 1);
        changed.compiler = "clang 20".into();
        assert_eq!(list.faults(&keys(&["a", "b"]), &changed), [""; 0], "another compiler");
    }
}
