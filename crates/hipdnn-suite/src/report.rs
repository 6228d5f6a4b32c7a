//! Measures what a library supports.

use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::bench::{Bench, Failure};
use crate::draw::Draw;
use crate::families::Family;

/// The cases of one family.
#[derive(Clone, Debug, Default)]
pub struct Row {
    /// The family.
    pub name: &'static str,
    /// How many gave the right result.
    pub passed: usize,
    /// Why the others were not run, and how many for each reason.
    pub unsupported: BTreeMap<String, usize>,
    /// Case numbers with what was wrong.
    pub wrong: Vec<(u64, String)>,
}

/// The cases of some families.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// One for each family.
    pub rows: Vec<Row>,
}

impl Row {
    /// Runs some cases of a family.
    pub fn of(family: &Family, bench: &Bench, cases: std::ops::Range<u64>) -> Self {
        let mut row = Self { name: family.name, ..Self::default() };
        for case in cases {
            let ran = catch_unwind(AssertUnwindSafe(|| (family.case)(bench, &mut Draw::new(case))));
            match ran {
                Ok(Ok(())) => row.passed += 1,
                Ok(Err(Failure::NotSupported(reason))) => *row.unsupported.entry(reason).or_default() += 1,
                Ok(Err(Failure::Wrong(what))) => row.wrong.push((case, what)),
                Err(_) => row.wrong.push((case, "the case panicked".into())),
            }
        }
        row
    }

    /// Adds further cases of the same family.
    pub fn absorb(&mut self, more: Self) {
        self.name = more.name;
        self.passed += more.passed;
        for (reason, count) in more.unsupported {
            *self.unsupported.entry(reason).or_default() += count;
        }
        self.wrong.extend(more.wrong);
    }

    /// How many cases were run.
    pub fn cases(&self) -> usize {
        self.passed + self.unsupported.values().sum::<usize>() + self.wrong.len()
    }
}

impl fmt::Display for Row {
    /// Why cases did not pass.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (reason, count) in &self.unsupported {
            writeln!(f, "{}: {count} not supported: {reason}", self.name)?;
        }
        for (case, what) in &self.wrong {
            writeln!(f, "{}: case {case} is wrong: {what}", self.name)?;
        }
        Ok(())
    }
}

impl fmt::Display for Report {
    /// How many cases passed.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:<28} {:>6} {:>7} {:>14} {:>6}", "family", "cases", "passed", "not supported", "wrong")?;
        let line = |f: &mut fmt::Formatter<'_>, name: &str, rows: &[Row]| {
            let sum = |of: fn(&Row) -> usize| rows.iter().map(of).sum::<usize>();
            let unsupported = sum(|row| row.unsupported.values().sum());
            let (cases, passed, wrong) = (sum(Row::cases), sum(|row| row.passed), sum(|row| row.wrong.len()));
            writeln!(f, "{name:<28} {cases:>6} {passed:>7} {unsupported:>14} {wrong:>6}")
        };
        for row in &self.rows {
            line(f, row.name, std::slice::from_ref(row))?;
        }
        line(f, "all", &self.rows)
    }
}
