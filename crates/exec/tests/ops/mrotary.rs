//! Compares MRotaryEmbedding with loops in double precision.
use graph::DType;
use graph::ops::Attribute;

use crate::array::Array;
use crate::common::{Case, assert_close, numbers};

#[test]
fn angles_follow_the_positions_of_their_section() {
    let (batch, length, heads, half) = (2, 3, 2, 6);
    let size = 2 * half;
    for dtype in [DType::F32, DType::F16] {
        let x = Array::random(dtype, &[batch, length, heads * size], 1);
        let positions = Array::of(&[3, batch, length], |at| ((5 * at[0] + 3 * at[1] + at[2]) % 16) as f64);
        let tables = [2, 3].map(|seed| Array::random(dtype, &[16, half], seed));
        for (layout, sections, kinds) in
            [(0, vec![1, 2, 3], [0, 1, 1, 2, 2, 2]), (1, vec![3, 2, 1], [0, 1, 2, 0, 1, 0])]
        {
            let wanted = Array::of(&x.shape, |at| {
                let (first, d) = (at[2] / size * size, at[2] % size);
                let angle = d % half;
                let place = positions.at(&[kinds[angle], at[0], at[1]]) as usize;
                let [cosine, sine] = [0, 1].map(|table: usize| tables[table].at(&[place, angle]));
                let other = x.at(&[at[0], at[1], first + (d + half) % size]);
                x.at(at) * cosine + if d < half { -other } else { other } * sine
            });
            let mut case = Case::new("MRotaryEmbedding", 1, Vec::new(), &[dtype]);
            case.domain = "com.microsoft";
            case.inputs = vec![
                Some(x.tensor(dtype)),
                Some(positions.tensor(DType::I64)),
                Some(tables[0].tensor(dtype)),
                Some(tables[1].tensor(dtype)),
            ];
            let case = case
                .attribute("num_heads", Attribute::Int(heads as i64))
                .attribute("mrope_section", Attribute::Ints(sections))
                .attribute("mrope_layout", Attribute::Int(layout));
            let tolerance = if dtype == DType::F32 { 1e-5 } else { 6e-3 };
            assert_close(&numbers(&case.run().unwrap()[0]), &wanted.values, tolerance);
            let wrong = case.attribute("mrope_section", Attribute::Ints(vec![1, 2]));
            assert!(wrong.run().unwrap_err().contains("expected three counts"));
        }
    }
}
