//! Every operation of the frontend on the CPU: no case may be rejected. Some of them are serialised and read back
//! first.
mod common;

use hipdnn_suite::{Bench, FAMILIES, Family, Row};
use libtest_mimic::{Arguments, Failed, Trial};

fn main() {
    let trials = FAMILIES.iter().flat_map(|family| {
        let saved = format!("{}_through_bytes", family.name);
        [
            Trial::test(family.name, move || run(family, false, family.cases)),
            Trial::test(saved, move || run(family, true, family.cases.div_ceil(10))),
        ]
    });
    libtest_mimic::run(&Arguments::from_args(), trials.collect()).exit();
}

fn run(family: &Family, saves: bool, cases: u64) -> Result<(), Failed> {
    let bench = Bench::on_host(common::library()).map_err(Failed::from)?;
    let bench = if saves { bench.through_bytes() } else { bench };
    let row = Row::of(family, &bench, 0..cases);
    match (row.unsupported.iter().next(), row.wrong.first()) {
        (None, None) => Ok(()),
        (Some((reason, count)), _) => Err(Failed::from(format!("{count} cases were rejected: {reason}"))),
        (_, Some((case, what))) => Err(Failed::from(format!("case {case}: {what}"))),
    }
}
