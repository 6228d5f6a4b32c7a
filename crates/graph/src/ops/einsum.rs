//! `Einsum`: any equation becomes diagonals, sums, and one product per additional operand.
use std::collections::BTreeMap;

use crate::expr::Binary;
use crate::lower::Lower;
use crate::ops::{Entry, NodeInfo, Op};
use crate::prim::ReduceKind;
use crate::shape::Strides;
use crate::{DType, Declined, LowerError, Shape, Val};

/// A label of an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Label {
    /// A letter of the equation.
    Letter(u8),
    /// An axis covered by an ellipsis, counted from its end.
    Hidden(usize),
}

/// The letters of one operand or of the output; an ellipsis, if present, comes before letter `ellipsis`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Term {
    letters: Vec<u8>,
    ellipsis: Option<usize>,
}

impl Term {
    fn parse(text: &str) -> Result<Self, Declined> {
        let wrong = || Declined::new(format!("invalid equation term {text:?}"));
        let (front, back) = match text.split_once("...") {
            Some((front, back)) => (front, Some(back)),
            None => (text, None),
        };
        let letters: Vec<u8> = front.bytes().chain(back.unwrap_or_default().bytes()).collect();
        if letters.iter().all(u8::is_ascii_alphabetic) {
            Ok(Self { letters, ellipsis: back.map(|_| front.len()) })
        } else {
            Err(wrong())
        }
    }

    /// Its labels, with the ellipsis covering `hidden` axes.
    fn labels(&self, hidden: usize) -> Vec<Label> {
        let at = self.ellipsis.unwrap_or(0);
        let hidden = if self.ellipsis.is_some() { hidden } else { 0 };
        let (front, back) = self.letters.split_at(at);
        let letter = |&letter: &u8| Label::Letter(letter);
        front.iter().map(letter).chain((0..hidden).rev().map(Label::Hidden)).chain(back.iter().map(letter)).collect()
    }
}

/// `Einsum`.
#[derive(Debug)]
struct Einsum {
    inputs: Vec<Term>,
    output: Term,
}

fn parse_einsum(node: &NodeInfo<'_>) -> Result<Box<dyn Op>, Declined> {
    for index in 0..node.inputs.len() {
        let accepted: fn(DType) -> bool =
            |dtype| dtype.is_float() || matches!(dtype, DType::I32 | DType::U32 | DType::I64 | DType::U64);
        node.accept(index, accepted)?;
    }
    let equation: String = node.attributes.text("equation", "")?.chars().filter(|c| *c != ' ').collect();
    let (left, right) = match equation.split_once("->") {
        Some((left, right)) => (left, Some(right)),
        None => (&equation[..], None),
    };
    let inputs = left.split(',').map(Term::parse).collect::<Result<Vec<_>, _>>()?;
    if inputs.len() != node.inputs.len() {
        return Err(Declined::new(format!("equation {equation:?} does not match {} inputs", node.inputs.len())));
    }
    let mut counts: BTreeMap<u8, usize> = BTreeMap::new();
    for &letter in inputs.iter().flat_map(|term| &term.letters) {
        *counts.entry(letter).or_default() += 1;
    }
    let output = match right {
        Some(right) => Term::parse(right)?,
        // Without an arrow: the ellipsis axes, then the letters that occur once, in alphabetical order.
        None => Term {
            letters: counts.iter().filter(|&(_, &count)| count == 1).map(|(&letter, _)| letter).collect(),
            ellipsis: inputs.iter().any(|term| term.ellipsis.is_some()).then_some(0),
        },
    };
    let known = output.letters.iter().all(|letter| counts.contains_key(letter));
    let twice = (1..output.letters.len()).any(|at| output.letters[..at].contains(&output.letters[at]));
    if !known || twice {
        return Err(Declined::new(format!("invalid equation {equation:?}")));
    }
    Ok(Box::new(Einsum { inputs, output }))
}

/// A value whose axes have unique labels.
#[derive(Clone)]
struct Named {
    value: Val,
    labels: Vec<Label>,
}

impl Op for Einsum {
    fn name(&self) -> &'static str {
        "Einsum"
    }

    fn lower(&self, cx: &mut Lower<'_>, inputs: &[Option<Val>]) -> Result<Vec<Val>, LowerError> {
        let mut operands = Vec::new();
        let mut extents: BTreeMap<Label, usize> = BTreeMap::new();
        let mut hidden = 0;
        for (at, term) in self.inputs.iter().enumerate() {
            let value = cx.required(inputs, at)?;
            let axes = value.rank().checked_sub(term.letters.len());
            let axes = axes.filter(|&axes| axes == 0 || term.ellipsis.is_some());
            let axes =
                axes.ok_or_else(|| cx.invalid(format!("input {at} {:?} does not match {term:?}", value.shape())))?;
            hidden = hidden.max(axes);
            let named = diagonal(cx, value, term.labels(axes))?;
            for (&label, &extent) in named.labels.iter().zip(named.value.shape()) {
                let known = extents.entry(label).or_insert(extent);
                if *known == 1 {
                    *known = extent;
                } else if extent != 1 && extent != *known {
                    return Err(cx.invalid(format!("label {label:?} has extents {known} and {extent}")));
                }
            }
            operands.push(named);
        }
        let output = self.output.labels(hidden);
        if self.output.ellipsis.is_none() && hidden > 0 {
            return Err(cx.invalid("the inputs have an ellipsis, but the output does not"));
        }
        for operand in &mut operands {
            operand.drop_repeated(&extents);
        }
        let mut operands = operands.into_iter();
        let mut result = operands.next().ok_or_else(|| cx.invalid("there are no inputs"))?;
        while let Some(next) = operands.next() {
            let rest = operands.clone();
            let wanted = |label: &Label| {
                output.contains(label) || rest.as_slice().iter().any(|operand| operand.labels.contains(label))
            };
            result = product(cx, result, next, wanted)?;
        }
        let result = result.summed(cx, |label| output.contains(label))?;
        let result = result.ordered(&output);
        Ok(vec![result.value])
    }
}

/// The value with repeated labels reduced to their diagonal.
fn diagonal(cx: &Lower<'_>, value: &Val, mut labels: Vec<Label>) -> Result<Named, LowerError> {
    let (mut extents, mut strides): (Shape, Strides) = (value.shape().into(), value.strides().into());
    let mut at = 0;
    while at < labels.len() {
        let Some(first) = labels[..at].iter().position(|label| *label == labels[at]) else {
            at += 1;
            continue;
        };
        (extents[first], strides[first]) = match (extents[first], extents[at]) {
            (1, extent) => (extent, strides[at]),
            (extent, 1) => (extent, strides[first]),
            (a, b) if a == b => (a, strides[first] + strides[at]),
            (a, b) => return Err(cx.invalid(format!("axes of {a} and {b} elements have no diagonal"))),
        };
        labels.remove(at);
        extents.remove(at);
        strides.remove(at);
    }
    Ok(Named { value: value.with(extents, strides, value.offset()), labels })
}

impl Named {
    /// Removes axes of extent 1 whose label is longer elsewhere: a missing axis is broadcast.
    fn drop_repeated(&mut self, extents: &BTreeMap<Label, usize>) {
        for axis in (0..self.labels.len()).rev() {
            if self.value.shape()[axis] == 1 && extents.get(&self.labels[axis]).is_some_and(|&extent| extent != 1) {
                self.labels.remove(axis);
                self.value = self.value.squeezed(axis);
            }
        }
    }

    /// Sums over all labels except those wanted.
    fn summed(self, cx: &mut Lower<'_>, wanted: impl Fn(&Label) -> bool) -> Result<Self, LowerError> {
        let gone: Vec<usize> = (0..self.labels.len()).filter(|&axis| !wanted(&self.labels[axis])).collect();
        if gone.is_empty() {
            return Ok(self);
        }
        let value = cx.reduce(&self.value, &gone, false, ReduceKind::Sum)?;
        Ok(Self { value, labels: self.labels.into_iter().filter(wanted).collect() })
    }

    /// With its axes in the order of `labels`; missing axes get extent 1.
    fn ordered(&self, labels: &[Label]) -> Self {
        let (mut extents, mut strides) = (Shape::new(), Strides::new());
        for label in labels {
            let axis = self.labels.iter().position(|known| known == label);
            extents.push(axis.map_or(1, |axis| self.value.shape()[axis]));
            strides.push(axis.map_or(0, |axis| self.value.strides()[axis]));
        }
        Self { value: self.value.with(extents, strides, self.value.offset()), labels: labels.to_vec() }
    }

    /// How many elements some of its labels cover.
    fn span(&self, labels: &[Label]) -> usize {
        let extent = |label| self.labels.iter().position(|known| known == label).map_or(1, |at| self.value.shape()[at]);
        labels.iter().map(extent).product()
    }
}

/// The product of two operands, summed over the labels that nothing else needs.
fn product(cx: &mut Lower<'_>, a: Named, b: Named, wanted: impl Fn(&Label) -> bool) -> Result<Named, LowerError> {
    let (a_labels, b_labels) = (a.labels.clone(), b.labels.clone());
    let a = a.summed(cx, |label| wanted(label) || b_labels.contains(label))?;
    let b = b.summed(cx, |label| wanted(label) || a_labels.contains(label))?;
    let both = |label: &&Label| b.labels.contains(label);
    let batch: Vec<Label> = a.labels.iter().filter(both).filter(|label| wanted(label)).copied().collect();
    let inner: Vec<Label> = a.labels.iter().filter(both).filter(|label| !wanted(label)).copied().collect();
    let rows: Vec<Label> = a.labels.iter().filter(|label| !b.labels.contains(label)).copied().collect();
    let columns: Vec<Label> = b.labels.iter().filter(|label| !a.labels.contains(label)).copied().collect();
    let labels = [&batch[..], &rows, &columns].concat();
    if inner.is_empty() {
        let (a, b) = (a.ordered(&labels), b.ordered(&labels));
        return Ok(Named { value: cx.binary(Binary::Mul, &a.value, &b.value)?, labels });
    }
    let left = a.ordered(&[&batch[..], &rows, &inner].concat());
    let right = b.ordered(&[&batch[..], &inner, &columns].concat());
    let shared: Shape = left.value.shape()[..batch.len()].into();
    let matrix = |rows: usize, columns: usize| {
        let mut to = shared.clone();
        to.extend([rows, columns]);
        to
    };
    let to = matrix(a.span(&rows), a.span(&inner));
    let left = cx.reshape(&left.value, &to)?;
    let to = matrix(b.span(&inner), b.span(&columns));
    let right = cx.reshape(&right.value, &to)?;
    let flat = cx.matmul(&left, &right)?;
    let owner = |label| if a.labels.contains(label) { &a } else { &b };
    let to: Shape = labels.iter().map(|label| owner(label).span(&[*label])).collect();
    Ok(Named { value: cx.reshape(&flat, &to)?, labels })
}

pub(super) const OPS: &[Entry] = &[Entry { domain: "", op_type: "Einsum", parse: parse_einsum }];

#[cfg(test)]
mod tests {
    use crate::DType;
    use crate::ops::trial::{Given, Trial};

    fn einsum<'a>(equation: &str, inputs: &[&'a [usize]]) -> Trial<'a> {
        let trial = Trial::new("Einsum", 12).text("equation", equation);
        inputs.iter().fold(trial, |trial, shape| trial.input(Given::Device(DType::F32, shape)))
    }

    #[test]
    fn equations_give_shapes_and_few_steps() {
        for (equation, inputs, shape, steps) in [
            ("ij->ji", &[&[2, 3][..]][..], &[3, 2][..], &[][..]),
            ("ij->i", &[&[2, 3]], &[2], &["reduce"]),
            ("ii->i", &[&[3, 3]], &[3], &[]),
            ("...ii ->...i", &[&[3, 5, 5]], &[3, 5], &[]),
            ("i,i", &[&[5], &[5]], &[], &["matmul"]),
            ("bij, bjk -> bik", &[&[5, 2, 3], &[5, 3, 4]], &[5, 2, 4], &["matmul"]),
            ("bhqd,bhkd->bhqk", &[&[2, 3, 4, 5], &[2, 3, 6, 5]], &[2, 3, 4, 6], &["matmul"]),
            ("ab,cd->abcd", &[&[2, 3], &[4, 5]], &[2, 3, 4, 5], &["map"]),
            ("...ij,...jk", &[&[7, 2, 3], &[1, 3, 4]], &[7, 2, 4], &["matmul"]),
            ("ab,bc,cd->ad", &[&[2, 3], &[3, 4], &[4, 5]], &[2, 5], &["matmul", "matmul"]),
            ("ba", &[&[2, 3]], &[3, 2], &[]),
        ] {
            let trial = einsum(equation, inputs);
            assert_eq!(trial.shapes(), Ok(vec![shape.to_vec()]), "{equation}");
            assert_eq!(trial.steps(), Ok(steps.to_vec()), "{equation}");
        }
    }

    #[test]
    fn invalid_equations_are_rejected() {
        assert_eq!(einsum("ij->ik", &[&[2, 3]]).shapes(), Err("invalid equation \"ij->ik\"".to_owned()));
        assert_eq!(einsum("ij->ii", &[&[2, 3]]).shapes(), Err("invalid equation \"ij->ii\"".to_owned()));
        assert_eq!(einsum("i-j", &[&[2]]).shapes(), Err("invalid equation term \"i-j\"".to_owned()));
        assert_eq!(einsum("ij,jk", &[&[2, 3]]).shapes(), Err("equation \"ij,jk\" does not match 1 inputs".to_owned()));
        assert!(einsum("ij,jk", &[&[2, 3], &[4, 5]]).shapes().is_err());
        assert!(einsum("ij", &[&[2, 3, 4]]).shapes().is_err());
        assert!(einsum("ii", &[&[2, 3]]).shapes().is_err());
        assert!(einsum("...i->i", &[&[2, 3]]).shapes().is_err());
    }
}
