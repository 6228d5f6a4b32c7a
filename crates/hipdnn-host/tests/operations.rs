//! Every operation of the frontend on the CPU: no case may be refused.
mod common;

use hipdnn_suite::{Bench, FAMILIES, Row};
use libtest_mimic::{Arguments, Failed, Trial};

fn main() {
    let trials = FAMILIES.iter().map(|family| {
        Trial::test(family.name, move || {
            let bench = Bench::on_host(common::library()).map_err(Failed::from)?;
            let row = Row::of(family, &bench, 0..family.cases);
            match (row.unsupported.iter().next(), row.wrong.first()) {
                (None, None) => Ok(()),
                (Some((reason, count)), _) => Err(Failed::from(format!("{count} cases are refused: {reason}"))),
                (_, Some((case, what))) => Err(Failed::from(format!("case {case}: {what}"))),
            }
        })
    });
    libtest_mimic::run(&Arguments::from_args(), trials.collect()).exit();
}
