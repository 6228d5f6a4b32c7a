//! Compares `Einsum` with the sum over all indices.
use graph::DType;
use graph::ops::Attribute;

use crate::array::{Array, indices};
use crate::common::{Case, assert_close, numbers};

/// The definition: every letter runs over its extent, and the product is added at the output's letters.
fn meaning(inputs: &[(&str, &Array)], output: &str) -> Array {
    let mut letters: Vec<(char, usize)> = Vec::new();
    for (names, array) in inputs {
        for (name, &extent) in names.chars().zip(&array.shape) {
            match letters.iter_mut().find(|(known, _)| *known == name) {
                None => letters.push((name, extent)),
                Some((_, known)) => *known = (*known).max(extent),
            }
        }
    }
    let extent = |name: char| letters.iter().find(|(known, _)| *known == name).unwrap().1;
    let shape: Vec<usize> = output.chars().map(extent).collect();
    let mut values = vec![0.0; shape.iter().product()];
    for index in indices(&letters.iter().map(|(_, extent)| *extent).collect::<Vec<_>>()) {
        let at = |name: char| index[letters.iter().position(|(known, _)| *known == name).unwrap()];
        let term: f64 =
            inputs.iter().map(|(names, array)| array.at(&names.chars().map(at).collect::<Vec<_>>())).product();
        let place = output.chars().zip(&shape).fold(0, |place, (name, &extent)| place * extent + at(name));
        values[place] += term;
    }
    Array { shape, values }
}

fn check(equation: &str, explicit: &str, shapes: &[&[usize]], dtype: DType) {
    let arrays: Vec<Array> =
        shapes.iter().enumerate().map(|(seed, shape)| Array::random(dtype, shape, seed as u64 + 1)).collect();
    let inputs = arrays.iter().map(|array| array.tensor(dtype)).collect();
    let case = Case::new("Einsum", 12, inputs, &[dtype]).attribute("equation", Attribute::Text(equation.to_owned()));
    let found = case.run().unwrap();
    let (left, right) = explicit.split_once("->").unwrap();
    let named: Vec<_> = left.split(',').zip(&arrays).collect();
    let wanted = meaning(&named, right);
    assert_eq!(found[0].shape(), wanted.shape, "{equation}");
    assert_close(&numbers(&found[0]), &wanted.values, if dtype == DType::F64 { 1e-12 } else { 2e-5 });
}

#[test]
fn equations_follow_their_definition() {
    for dtype in [DType::F32, DType::F64, DType::I64] {
        for (equation, shapes) in [
            ("ij->ji", &[&[2, 3][..]][..]),
            ("ij->", &[&[2, 3]]),
            ("ij->j", &[&[2, 3]]),
            ("ii->i", &[&[3, 3]]),
            ("iij->j", &[&[3, 3, 2]]),
            ("iji->ij", &[&[3, 2, 3]]),
            ("i,i->", &[&[5], &[5]]),
            ("i,j->ij", &[&[2], &[3]]),
            ("ij,jk->ik", &[&[2, 3], &[3, 4]]),
            ("ij,jk->ki", &[&[2, 3], &[3, 4]]),
            ("ij,kj->ijk", &[&[2, 3], &[4, 3]]),
            ("bij,bjk->bik", &[&[5, 2, 3], &[5, 3, 4]]),
            ("bhqd,bkhd->bhqk", &[&[2, 3, 4, 5], &[2, 6, 3, 5]]),
            ("abc,cd,db->a", &[&[2, 3, 4], &[4, 5], &[5, 3]]),
            ("ab,bc,cd->ad", &[&[2, 3], &[3, 4], &[4, 5]]),
            ("abcd,efbd->aecf", &[&[2, 3, 4, 5], &[2, 3, 3, 5]]),
            ("ij,j->i", &[&[2, 3], &[1]]),
            ("ik,jk->ij", &[&[2, 1], &[3, 4]]),
            ("ijk,k->j", &[&[2, 3, 4], &[4]]),
        ] {
            check(equation, equation, shapes, dtype);
        }
    }
}

#[test]
fn without_an_arrow_the_output_has_the_letters_that_occur_once() {
    check("ba", "ba->ab", &[&[2, 3]], DType::F32);
    check("ij,jk", "ij,jk->ik", &[&[2, 3], &[3, 4]], DType::F32);
    check("ii", "ii->", &[&[3, 3]], DType::F32);
}

#[test]
fn an_ellipsis_stands_for_axes_that_are_broadcast() {
    check("...ij,...jk->...ik", "xij,xjk->xik", &[&[5, 2, 3], &[5, 3, 4]], DType::F32);
    check("...ij,...jk", "xyij,yjk->xyik", &[&[2, 5, 2, 3], &[5, 3, 4]], DType::F32);
    check("...ii->...i", "xii->xi", &[&[4, 3, 3]], DType::F32);
    check("i...,i->...", "ixy,i->xy", &[&[2, 3, 4], &[2]], DType::F32);
    check("...,...->...", "xy,xy->xy", &[&[2, 3], &[1, 3]], DType::F32);
}
