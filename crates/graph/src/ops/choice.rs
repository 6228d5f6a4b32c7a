//! `If` whose branches are constants: a choice between two lists of constants.
use crate::lower::Lower;
use crate::ops::{Entry, Meaning, NodeInfo, Op};
use crate::{DType, Declined, LowerError, Val};

/// `If`. The inputs are the condition, the results of the first branch, and those of the second.
#[derive(Debug)]
struct If {
    results: usize,
}

impl Op for If {
    fn name(&self) -> &'static str {
        "If"
    }

    /// The branches may have different shapes.
    fn host_inputs(&self) -> &[usize] {
        &[0]
    }

    fn meaning(&self) -> Meaning<'_> {
        Meaning::Choice { results: self.results }
    }

    fn lower(&self, cx: &mut Lower<'_>, inputs: &[Option<Val>]) -> Result<Vec<Val>, LowerError> {
        let condition = cx.known(inputs, 0)?;
        if condition.elems() != 1 {
            return Err(cx.invalid(format!("the condition has {} elements, expected one", condition.elems())));
        }
        let first = if condition.get(0).as_bool() { 1 } else { 1 + self.results };
        (first..first + self.results).map(|at| cx.required(inputs, at).cloned()).collect()
    }
}

fn parse_if(node: &NodeInfo<'_>) -> Result<Box<dyn Op>, Declined> {
    node.accept(0, |dtype| dtype == DType::Bool)?;
    let results = node.outputs.len();
    if node.inputs.len() != 1 + 2 * results {
        return Err(Declined::new("its branches are not constants"));
    }
    for at in 0..results {
        let (one, other) = (node.input(1 + at)?.dtype, node.input(1 + results + at)?.dtype);
        if one != other {
            return Err(Declined::new(format!("result {at} is {one} in one branch and {other} in the other")));
        }
    }
    Ok(Box::new(If { results }))
}

pub(super) const OPS: &[Entry] = &[Entry { domain: "", op_type: "If", parse: parse_if }];

#[cfg(test)]
mod tests {
    use crate::DType;
    use crate::ops::case::{Case, tensor, vector};

    fn choice(condition: f64) -> Case {
        Case::new("If", 16)
            .input(tensor(DType::Bool, &[], &[condition]))
            .input(vector(DType::I64, &[1.0, 2.0, 3.0]))
            .input(vector(DType::I64, &[4.0]))
    }

    #[test]
    fn the_condition_chooses_a_branch() {
        assert_eq!(choice(1.0).output(DType::I64).floats(), [1.0, 2.0, 3.0]);
        assert_eq!(choice(0.0).output(DType::I64).floats(), [4.0]);
    }

    #[test]
    fn branches_that_are_not_constants_are_declined() {
        let two = choice(1.0).output(DType::I64).output(DType::I64);
        assert_eq!(two.parse().unwrap_err(), "its branches are not constants");
        let mixed = Case::new("If", 16).input(tensor(DType::Bool, &[], &[1.0])).input(vector(DType::I64, &[1.0]));
        let mixed = mixed.input(vector(DType::F32, &[1.0])).output(DType::I64);
        assert_eq!(mixed.parse().unwrap_err(), "result 0 is i64 in one branch and f32 in the other");
    }
}
