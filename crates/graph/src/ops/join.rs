//! Joins tensors: Concat.
use crate::lower::Lower;
use crate::ops::{Attribute, Entry, NodeInfo, Op};
use crate::{Declined, LowerError, Val};

#[derive(Debug)]
struct Concat {
    axis: i64,
}

impl Concat {
    fn parse(node: &NodeInfo<'_>) -> Result<Box<dyn Op>, Declined> {
        match node.attributes.get("axis") {
            Some(&Attribute::Int(axis)) => Ok(Box::new(Self { axis })),
            _ => Err(Declined::new("attribute axis is missing")),
        }
    }
}

impl Op for Concat {
    fn name(&self) -> &'static str {
        "Concat"
    }

    fn lower(&self, cx: &mut Lower<'_>, inputs: &[Option<Val>]) -> Result<Vec<Val>, LowerError> {
        let values: Vec<&Val> = (0..inputs.len()).map(|index| cx.required(inputs, index)).collect::<Result<_, _>>()?;
        let rank = cx.required(inputs, 0)?.rank();
        let axis = cx.axis(self.axis, rank)?;
        Ok(vec![cx.concat(&values, axis)?])
    }
}

pub(super) const OPS: &[Entry] = &[Entry { domain: "", op_type: "Concat", parse: Concat::parse }];

#[cfg(test)]
mod tests {
    use crate::DType;
    use crate::ops::trial::{Given, Trial, ints};

    #[test]
    fn concat_works_along_any_axis() {
        let (a, b) = (Given::I64(&[1, 2], &[1, 2]), Given::I64(&[3, 4], &[1, 2]));
        let concat = |axis| ints(Trial::new("Concat", 13).int("axis", axis).input(a).input(b));
        assert_eq!(concat(0), (vec![1, 2, 3, 4], vec![2, 2]));
        assert_eq!(concat(-1), (vec![1, 2, 3, 4], vec![1, 4]));
    }

    #[test]
    fn concat_copies_each_input_once_and_rejects_mismatched_extents() {
        let concat = Trial::new("Concat", 13).int("axis", 0).input(Given::Device(DType::F16, &[2, 3]));
        let fits = concat.clone().input(Given::Device(DType::F16, &[0, 3])).input(Given::Device(DType::F16, &[1, 3]));
        assert_eq!((fits.shapes().unwrap(), fits.steps().unwrap()), (vec![vec![3, 3]], vec!["map", "map"]));
        assert!(concat.input(Given::Device(DType::F16, &[1, 4])).shapes().is_err());
        assert!(Trial::new("Concat", 13).input(Given::Device(DType::F16, &[2])).shapes().is_err());
    }
}
