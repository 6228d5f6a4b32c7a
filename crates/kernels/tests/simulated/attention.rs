//! Tests attention in the simulator.

use graph::expr::{Binary, Expr, Ref, Unary};
use graph::prim::Attention;
use graph::{DType, Prim, Scalar, Tensor, View};

use crate::common::{check_on, dense, kernel_of, random, random_ints, step, strided};

const TARGETS: [&str; 6] = ["gfx1030", "gfx906", "gfx1100", "gfx942", "gfx1201", "sm_90"];
/// The targets with matrix instructions.
const MATRIX: [&str; 4] = ["gfx1100", "gfx942", "gfx1201", "sm_90"];

/// Extents: batches of keys, heads that share them, rows of a head, keys, sizes.
#[derive(Clone, Copy, Debug)]
struct Case {
    batch: usize,
    heads: usize,
    rows: usize,
    total: usize,
    size: usize,
    width: usize,
}

impl Case {
    fn shape(&self) -> [usize; 4] {
        [self.batch, self.heads, self.rows, self.total]
    }

    /// Keys are stored row by row, as a projection produces them, and heads are concatenated in the output.
    fn views(&self, dtype: DType) -> (Vec<View>, View) {
        let Self { batch, heads, rows, total, size, width } = *self;
        let k = strided(1, dtype, &[batch, size, total], &[(total * size) as isize, 1, size as isize], 0);
        let strides = [(rows * heads * width) as isize, width as isize, (heads * width) as isize, 1];
        let inputs = vec![dense(0, dtype, &[batch, heads * rows, size]), k, dense(2, dtype, &[batch, total, width])];
        (inputs, strided(9, dtype, &[batch, heads, rows, width], &strides, 0))
    }

    fn check(&self, dtype: DType, scores: Expr, operands: Vec<(View, Tensor)>, zero_if_hidden: bool, relative: f64) {
        let (mut inputs, out) = self.views(dtype);
        let mut data: Vec<Tensor> =
            inputs.iter().zip(3..).map(|(view, seed)| random(dtype, view.elems(), seed)).collect();
        for (view, tensor) in operands {
            inputs.push(view);
            data.push(tensor);
        }
        let shape = self.shape().into_iter().collect();
        let prim = Prim::Attention(Attention { alpha: 0.25, shape, scores, zero_if_hidden });
        let elems = out.elems();
        check_on(&TARGETS, &step(prim, inputs, vec![out]), &data, &[elems], relative);
    }
}

const TYPES: [(DType, f64); 3] = [(DType::F32, 2e-5), (DType::F16, 4e-3), (DType::Bf16, 3e-2)];

/// Plain products as scores.
fn plain(dtype: DType) -> Expr {
    Expr::copy(dtype, dtype.compute())
}

#[test]
fn many_rows_and_keys() {
    for (dtype, relative) in TYPES {
        let plain = plain(dtype);
        let case = Case { batch: 2, heads: 2, rows: 35, total: 70, size: 32, width: 32 };
        case.check(dtype, plain.clone(), Vec::new(), false, relative);
        // Sizes that are not a multiple of anything.
        let case = Case { batch: 1, heads: 1, rows: 20, total: 5, size: 19, width: 37 };
        case.check(dtype, plain.clone(), Vec::new(), false, relative);
    }
    let case = Case { batch: 1, heads: 1, rows: 17, total: 65, size: 128, width: 128 };
    case.check(DType::F16, plain(DType::F16), Vec::new(), false, 4e-3);
}

/// On AMD, two waves share such rows.
#[test]
fn heads_that_a_wave_has_no_room_for() {
    for (dtype, relative) in TYPES {
        let case = Case { batch: 1, heads: 2, rows: 35, total: 70, size: 160, width: 192 };
        case.check(dtype, plain(dtype), Vec::new(), false, relative);
        let case = Case { batch: 2, heads: 1, rows: 20, total: 45, size: 251, width: 97 };
        let mask = strided(3, DType::F32, &case.shape(), &[45, 0, 0, 1], 0);
        case.check(dtype, masked(dtype), vec![(mask, random(DType::F32, 90, 8))], false, relative);
    }
}

#[test]
fn waves_have_two_fragments_of_rows_where_there_is_enough_to_do() {
    for (dtype, relative) in &TYPES[1..] {
        let case = Case { batch: 4, heads: 1, rows: 104, total: 70, size: 32, width: 48 };
        case.check(*dtype, plain(*dtype), Vec::new(), false, *relative);
    }
}

/// On CUDA, scores are then computed ahead of values. Covers keys that end within a tile, at its end and in the next
/// one, read in packs and one by one.
#[test]
fn many_keys_for_many_rows() {
    let case = Case { batch: 4, heads: 1, rows: 104, total: 300, size: 64, width: 64 };
    for (total, width) in [(300, 64), (320, 40), (257, 37)] {
        let case = Case { total, width, ..case };
        for scores in [plain(DType::F16), causal_products(DType::F16, total as i64 - 150)] {
            let (inputs, out) = case.views(DType::F16);
            let shape = case.shape().into_iter().collect();
            let prim = Attention { alpha: 0.25, shape, scores: scores.clone(), zero_if_hidden: false };
            let kernel = kernel_of(&step(Prim::Attention(prim), inputs, vec![out]), "sm_90");
            assert!(kernel.settings.contains(&("AHEAD", "1".to_owned())), "{:?}", kernel.settings);
            case.check(DType::F16, scores, Vec::new(), false, 4e-3);
        }
    }
}

/// The running sums are scaled down with every tile.
#[test]
fn scores_that_grow_from_key_to_key() {
    let (rows, total, size) = (20, 200, 16);
    let case = Case { batch: 1, heads: 1, rows, total, size, width: 16 };
    for step in [0.5, 0.06] {
        let (inputs, out) = case.views(DType::F16);
        let of = |count: usize, value: &dyn Fn(usize) -> f64| {
            Tensor::from_scalars(DType::F16, &[count], (0..count).map(|at| Scalar::Float(value(at)))).unwrap()
        };
        let q = of(rows * size, &|at| 1.0 + (at / size % 3) as f64 * 0.25);
        let k = of(total * size, &|at| (at / size) as f64 * step * 0.25);
        let data = [q, k, random(DType::F16, total * 16, 9)];
        let (shape, scores) = (case.shape().into_iter().collect(), plain(DType::F16));
        let prim = Prim::Attention(Attention { alpha: 0.25, shape, scores, zero_if_hidden: false });
        check_on(&MATRIX, &crate::common::step(prim, inputs, vec![out]), &data, &[rows * 16], 4e-3);
    }
}

#[test]
fn few_rows_split_the_keys() {
    for (dtype, relative) in TYPES {
        let plain = plain(dtype);
        for (heads, size, width) in [(1, 64, 64), (3, 20, 70)] {
            let case = Case { batch: 1, heads, rows: 1, total: 1100, size, width };
            case.check(dtype, plain.clone(), Vec::new(), false, relative);
        }
    }
}

/// A mask for each key.
#[test]
fn masks_of_keys_are_the_same_for_all_rows() {
    let mut expr = Expr::new();
    let (product, mask) = (expr.input(0, DType::F16), expr.input(1, DType::F16));
    let sum = expr.binary(Binary::Add, product, mask);
    expr.finish(sum);
    let heads_apart = Case { batch: 6, heads: 1, rows: 40, total: 70, size: 16, width: 16 };
    let shape = [3, 2, 40, 70];
    let (inputs, _) = heads_apart.views(DType::F16);
    let mask = strided(3, DType::F16, &shape, &[70, 0, 0, 1], 0);
    let out = dense(9, DType::F16, &[3, 2, 40, 16]);
    let mut data: Vec<Tensor> =
        inputs.iter().zip(3..).map(|(view, seed)| random(DType::F16, view.elems(), seed)).collect();
    data.push(random(DType::F16, 210, 8));
    let attention = Attention { alpha: 0.25, shape: shape.into_iter().collect(), scores: expr, zero_if_hidden: false };
    let inputs = inputs.into_iter().chain([mask]).collect();
    check_on(&MATRIX, &step(Prim::Attention(attention), inputs, vec![out]), &data, &[6 * 40 * 16], 4e-3);
}

/// A mask for each key, and causal.
fn masked(dtype: DType) -> Expr {
    let mut expr = Expr::new();
    let (product, mask) = (expr.input(0, dtype), expr.input(1, DType::F32));
    let mask = expr.cast(mask, expr.dtype(product));
    let sum = expr.binary(Binary::Add, product, mask);
    causal(expr, sum, 3)
}

/// Hides keys after the row's own position plus `past`.
fn causal(mut expr: Expr, score: Ref, past: i64) -> Expr {
    let (query, key) = (expr.index(2), expr.index(3));
    let past = expr.constant(Scalar::Int(past), DType::I64);
    let own = expr.binary(Binary::Add, query, past);
    let ahead = expr.binary(Binary::Gt, key, own);
    let never = expr.constant(Scalar::Float(f64::NEG_INFINITY), expr.dtype(score));
    let value = expr.select(ahead, never, score);
    expr.finish(value);
    expr
}

fn causal_products(dtype: DType, past: i64) -> Expr {
    let mut expr = Expr::new();
    let product = expr.input(0, dtype);
    causal(expr, product, past)
}

/// Several blocks of rows and tiles of keys, none of them complete; heads that share keys start within a block.
#[test]
fn rows_see_keys_up_to_their_own() {
    for (dtype, relative) in &TYPES[1..] {
        for (heads, rows, total, past) in [(1, 150, 150, 0), (3, 50, 137, 87), (2, 70, 90, -9)] {
            let case = Case { batch: 2, heads, rows, total, size: 32, width: 32 };
            case.check(*dtype, causal_products(*dtype, past), Vec::new(), past < 0, *relative);
        }
        let case = Case { batch: 3, heads: 1, rows: 150, total: 150, size: 16, width: 16 };
        let mask = strided(3, DType::F32, &case.shape(), &[150, 0, 0, 1], 0);
        case.check(*dtype, masked(*dtype), vec![(mask, random(DType::F32, 450, 8))], false, *relative);
    }
    // On AMD, two waves share such rows.
    let case = Case { batch: 1, heads: 1, rows: 70, total: 100, size: 160, width: 160 };
    case.check(DType::F16, causal_products(DType::F16, 30), Vec::new(), false, 4e-3);
}

/// Rows before the first key see none.
#[test]
fn blocks_that_see_no_key_at_all() {
    for dtype in [DType::F32, DType::F16] {
        for (rows, total, past) in [(5, 40, -9), (150, 70, -140)] {
            for zero_if_hidden in [false, true] {
                let case = Case { batch: 1, heads: 2, rows, total, size: 24, width: 24 };
                case.check(dtype, causal_products(dtype, past), Vec::new(), zero_if_hidden, 4e-3);
            }
        }
    }
}

/// Complete parts of the keys lie ahead of the rows.
#[test]
fn few_rows_see_few_of_the_parts() {
    for (dtype, relative) in TYPES {
        for past in [0, 700] {
            let case = Case { batch: 1, heads: 2, rows: 3, total: 1100, size: 16, width: 16 };
            case.check(dtype, causal_products(dtype, past), Vec::new(), false, relative);
        }
    }
}

#[test]
fn masks_are_read_with_their_strides() {
    for (dtype, relative) in TYPES {
        for rows in [2, 18] {
            let case = Case { batch: 2, heads: 3, rows, total: 70, size: 16, width: 16 };
            let mask = strided(3, DType::F32, &case.shape(), &[70, 0, 0, 1], 0);
            case.check(dtype, masked(dtype), vec![(mask, random(DType::F32, 140, 8))], false, relative);
        }
    }
}

#[test]
fn rows_that_look_nowhere_give_zeros_if_asked() {
    for dtype in [DType::F32, DType::F16] {
        let mut expr = Expr::new();
        let (product, mask) = (expr.input(0, dtype), expr.input(1, DType::Bool));
        let bounded = expr.unary(Unary::Tanh, product);
        let never = expr.constant(Scalar::Float(f64::NEG_INFINITY), dtype);
        let value = expr.select(mask, bounded, never);
        expr.finish(value);
        for rows in [2, 40] {
            let case = Case { batch: 1, heads: 2, rows, total: 30, size: 24, width: 24 };
            let mask = strided(3, DType::Bool, &case.shape(), &[0, 0, 1, 0], 0);
            for zero_if_hidden in [false, true] {
                let operands = vec![(mask.clone(), random_ints(DType::Bool, rows, 2, 5))];
                case.check(dtype, expr.clone(), operands, zero_if_hidden, 4e-3);
            }
        }
    }
}

/// Queries, keys and values of several sequences as one product stores them: one token per row, heads side by side.
#[test]
fn heads_side_by_side_are_read_where_they_lie() {
    let (batch, heads, total, size) = (2, 3, 21, 16);
    let hidden = heads * size;
    for (dtype, relative) in TYPES {
        for rows in [2, total] {
            let (of_batch, row) = ((total * 3 * hidden) as isize, 3 * hidden as isize);
            let (tokens, turned) = ([of_batch, size as isize, row, 1], [of_batch, size as isize, 1, row]);
            let part = |shape: [usize; 2], strides: &[isize; 4], at: usize| {
                let shape = [batch, heads, shape[0], shape[1]];
                strided(0, dtype, &shape, strides, (at * hidden) as isize)
            };
            let inputs =
                vec![part([rows, size], &tokens, 0), part([size, total], &turned, 1), part([total, size], &tokens, 2)];
            let strides = [(rows * hidden) as isize, size as isize, hidden as isize, 1];
            let out = strided(9, dtype, &[batch, heads, rows, size], &strides, 0);
            let (shape, scores) = ([batch, heads, rows, total].into_iter().collect(), plain(dtype));
            let prim = Prim::Attention(Attention { alpha: 0.25, shape, scores, zero_if_hidden: false });
            let data: Vec<Tensor> = (0..3).map(|_| random(dtype, batch * total * 3 * hidden, 3)).collect();
            check_on(&TARGETS, &step(prim, inputs, vec![out]), &data, &[batch * rows * hidden], relative);
        }
    }
}
