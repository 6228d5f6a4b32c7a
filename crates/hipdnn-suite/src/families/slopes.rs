//! Checks gradients against finite differences of their loss.

use crate::bench::{Answer, Failure};
use crate::element::Element;

/// Values, one of which is changed.
pub fn nudged(values: &[f64], at: usize, by: f64) -> Vec<f64> {
    let mut values = values.to_vec();
    values[at] += by;
    values
}

/// Requires that numbers are the slopes of a function.
pub fn near(what: &str, found: &[f64], element: Element, of: impl Fn(usize, f64) -> f64) -> Answer {
    for (at, &found) in found.iter().enumerate() {
        let wanted = (of(at, 1e-5) - of(at, -1e-5)) / 2e-5;
        // A difference is not exact to the last digits of a double.
        let allowed = element.tolerance().max(1e-5) * (1.0 + wanted.abs());
        if (found - wanted).abs() > allowed || found.is_nan() {
            return Err(Failure::Wrong(format!("{what} {at} is {found}, expected {wanted} ({element:?})")));
        }
    }
    Ok(())
}
