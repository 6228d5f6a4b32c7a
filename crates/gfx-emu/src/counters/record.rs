//! The counts of a kernel as a line of text, and a table of many.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::{CHIPS, Counters, Limit, Occupancy};
use crate::chip::{Chip, Dispatch, Stats};
use crate::descriptor::Descriptor;
use crate::effects::Class;
use crate::{Fault, Memory};

/// What the dispatches of one kernel did.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Record {
    /// The kernel's name.
    pub kernel: String,
    /// Dispatches.
    pub runs: u64,
    /// Counts, in the order of `COLUMNS`.
    counts: [u64; COUNTS],
    /// Waves of a SIMD, the most there can be, and what limits it.
    occupancy: (u64, u64, String),
    /// Estimated microseconds on each chip, with what limits the first dispatch.
    estimates: Vec<(String, f64, String)>,
}

/// Instructions by class, then waves, both kinds of operations, bytes asked for, line accesses, bytes touched, cycles of
/// LDS and conflicts.
const COUNTS: usize = Class::ALL.len() + 8;
const WAVES: usize = Class::ALL.len();

impl Record {
    /// Runs a grid and counts what it does.
    ///
    /// # Errors
    /// As for [`Chip::run`].
    pub fn run(kernel: String, chip: &Chip, dispatch: &Dispatch, memory: &Memory) -> Result<(Record, Stats), Fault> {
        let descriptor = Descriptor::read(memory, dispatch.kernel_object)?;
        let mut counters = Counters::default();
        let stats = chip.run_observed(dispatch, memory, &mut counters)?;
        let target = chip.target();
        let wave_size = if target.has_wave32() { descriptor.wave_size() } else { 64 };
        let occupancy = Occupancy::of(target, &descriptor, dispatch);
        let limit = match occupancy.limit {
            Limit::Slots => "slots",
            Limit::Registers => "registers",
            Limit::Lds => "LDS",
        };
        let mut counts = [0; COUNTS];
        counts[..WAVES].copy_from_slice(&counters.instructions);
        counts[WAVES..].copy_from_slice(&[
            counters.waves,
            counters.vector_flops,
            counters.matrix_flops,
            counters.bytes_requested,
            counters.line_accesses,
            counters.bytes_touched(),
            counters.lds_cycles,
            counters.lds_conflicts,
        ]);
        let estimates = CHIPS.iter().filter(|peaks| peaks.is_like(target)).map(|peaks| {
            let estimate = peaks.estimate(&counters, wave_size);
            (peaks.name.to_owned(), estimate.microseconds, format!("{:?}", estimate.bound).to_lowercase())
        });
        let occupancy = (u64::from(occupancy.waves), u64::from(occupancy.most), limit.to_owned());
        Ok((Record { kernel, runs: 1, counts, occupancy, estimates: estimates.collect() }, stats))
    }

    /// One line of text with tabs between the fields.
    pub fn to_line(&self) -> String {
        let mut line = format!("{}\t{}", self.kernel.replace(['\t', '\n'], " "), self.runs);
        let (waves, most, limit) = &self.occupancy;
        for count in self.counts {
            let _ = write!(line, "\t{count}");
        }
        let _ = write!(line, "\t{waves}\t{most}\t{limit}");
        for (chip, microseconds, bound) in &self.estimates {
            let _ = write!(line, "\t{chip}\t{microseconds}\t{bound}");
        }
        line
    }

    /// Reads a line back; `None` if it is not one.
    pub fn parse(line: &str) -> Option<Record> {
        let mut fields = line.split('\t');
        let mut record = Record { kernel: fields.next()?.to_owned(), ..Record::default() };
        record.runs = fields.next()?.parse().ok()?;
        for count in &mut record.counts {
            *count = fields.next()?.parse().ok()?;
        }
        record.occupancy = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?, fields.next()?.to_owned());
        while let Some(chip) = fields.next() {
            record.estimates.push((chip.to_owned(), fields.next()?.parse().ok()?, fields.next()?.to_owned()));
        }
        Some(record)
    }

    /// Adds another record of the same kernel.
    pub fn add(&mut self, other: &Record) {
        self.runs += other.runs;
        self.counts.iter_mut().zip(other.counts).for_each(|(sum, more)| *sum += more);
        self.estimates.iter_mut().zip(&other.estimates).for_each(|(sum, more)| sum.1 += more.1);
    }

    fn share(&self, classes: &[Class]) -> f64 {
        let total: u64 = self.counts[..WAVES].iter().sum();
        let part = Class::ALL.iter().zip(self.counts).filter(|(class, _)| classes.contains(class));
        part.map(|(_, count)| count).sum::<u64>() as f64 * 100.0 / total.max(1) as f64
    }

    fn row(&self) -> Vec<String> {
        let [_, _, _, requested, line_accesses, touched, lds_cycles, conflicts] =
            std::array::from_fn(|at| self.counts[WAVES + at]);
        let ratio = |part: u64, whole: u64| {
            if whole == 0 { "-".to_owned() } else { format!("{:.0} %", part as f64 * 100.0 / whole as f64) }
        };
        let (waves, most, limit) = &self.occupancy;
        let mut row =
            vec![self.kernel.clone(), self.runs.to_string(), self.counts[..WAVES].iter().sum::<u64>().to_string()];
        let groups: [&[Class]; 5] = [
            &[Class::Vector],
            &[Class::Matrix],
            &[Class::Scalar, Class::Control],
            &[Class::Lds],
            &[Class::Memory, Class::ScalarMemory, Class::Scratch],
        ];
        row.extend(groups.map(|classes| format!("{:.0}", self.share(classes))));
        row.extend([
            touched.to_string(),
            ratio(requested, line_accesses * super::LINE),
            ratio(conflicts, lds_cycles),
            format!("{waves}/{most} ({limit})"),
        ]);
        row.extend(self.estimates.iter().map(|(_, microseconds, bound)| format!("{microseconds:.2} ({bound})")));
        row
    }
}

/// A table of all kernels, those with the longest estimate first. Times are estimates.
pub fn table(records: &[Record]) -> String {
    let mut merged: BTreeMap<&str, Record> = BTreeMap::new();
    for record in records {
        match merged.get_mut(record.kernel.as_str()) {
            Some(sum) => sum.add(record),
            None => drop(merged.insert(&record.kernel, record.clone())),
        }
    }
    let mut records: Vec<Record> = merged.into_values().collect();
    let time = |record: &Record| record.estimates.first().map_or(0.0, |estimate| estimate.1);
    records.sort_by(|one, other| time(other).total_cmp(&time(one)));
    let mut rows = vec![
        ["kernel", "runs", "instructions", "VALU %", "matrix %", "SALU %", "LDS %", "memory %", "bytes", "coalesced"]
            .into_iter()
            .chain(["conflicts", "waves per SIMD"])
            .map(str::to_owned)
            .collect::<Vec<_>>(),
    ];
    if let Some(first) = records.first() {
        rows[0].extend(first.estimates.iter().map(|(chip, ..)| format!("estimate on {chip}, µs")));
    }
    rows.extend(records.iter().map(Record::row));
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns)
        .map(|at| rows.iter().filter_map(|row| row.get(at)).map(|cell| cell.chars().count()).max().unwrap_or(0))
        .collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect::<Vec<_>>().join("\n")
}
