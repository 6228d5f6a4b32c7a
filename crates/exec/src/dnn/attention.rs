//! Attention, including that of a prompt over its cache: converts its views to four axes and its scores to hipDNN's
//! terms.
use graph::expr::{Binary, Expr, Node, Ref};
use graph::prim::{Attention, CachedAttention, Sinks};
use graph::{Declined, View};
use hipdnn::TensorId;

use super::sketch::{Repeats, Sketch};

/// The graph of an attention step.
pub(super) fn attention(sketch: &mut Sketch, prim: &Attention, inputs: &[View]) -> Result<TensorId, Declined> {
    let [queries, keys, values, operands @ ..] = inputs else {
        return Err(Declined::new("its queries, keys or values are missing"));
    };
    let scores = Scores::of(prim)?;
    if prim.zero_if_hidden && scores.mask.is_some() {
        return Err(Declined::new("its fully masked rows are zero"));
    }
    if ![queries, keys, values].iter().all(|view| matches!(view.shape.len(), 3 | 4)) {
        return Err(Declined::new("its queries, keys or values have unsupported axes"));
    }
    let [queries, keys, values] = prim.batches([queries, keys, values]);
    let heads = Heads::of(prim, &queries)?;
    let q = sketch.read(0, &heads.queries(&queries)?, 4, Repeats::Never)?;
    let k = sketch.read(1, &heads.shared(&keys, [3, 2]), 4, Repeats::Never)?;
    let v = sketch.read(2, &heads.shared(&values, [2, 3]), 4, Repeats::Never)?;
    let mask = match scores.mask {
        None => None,
        Some(number) => {
            let mask = operands.get(number - 1).ok_or_else(|| Declined::new("its mask is missing"))?;
            Some(sketch.read(3 + number - 1, &four_axes(mask), 4, Repeats::Anywhere)?)
        }
    };
    let (rows, columns) = (heads.rows as i64, keys.shape[3] as i64);
    let what = hipdnn::Attention {
        scale: Some((f64::from(prim.alpha) * scores.scale) as f32),
        is_causal: scores.causal.is_some(),
        aligns_ends: match scores.causal {
            None => false,
            Some(past) if past == columns - rows => past != 0,
            Some(0) => false,
            Some(past) => return Err(Declined::new(format!("its causal mask has an unsupported offset of {past}"))),
        },
        mask,
        ..hipdnn::Attention::default()
    };
    Ok(sketch.graph.attention(what, [q, k, v]))
}

/// The graph of attention over a cache that was empty before the current rows and now holds only them.
pub(super) fn prompt(sketch: &mut Sketch, prim: &CachedAttention, inputs: &[View]) -> Result<TensorId, Declined> {
    let [queries, keys, values, ..] = inputs else {
        return Err(Declined::new("its queries, keys or values are missing"));
    };
    if prim.bias || prim.softcap.is_some() || prim.sinks != Sinks::None {
        return Err(Declined::new("its scores use more than a scale and a causal window"));
    }
    let rows = queries.shape[2];
    // Entries after the keys of these rows are never read.
    let seen = |view: &View| {
        let mut seen = view.clone();
        seen.shape[2] = rows;
        seen
    };
    if !prim.causal && prim.window.is_some() || keys.shape[2] < rows || values.shape[2] < rows {
        return Err(Declined::new("it attends to other keys than those up to its own row"));
    }
    let q = sketch.read(0, queries, 4, Repeats::Never)?;
    let k = sketch.read(1, &seen(keys), 4, Repeats::Never)?;
    let v = sketch.read(2, &seen(values), 4, Repeats::Never)?;
    let what = hipdnn::Attention {
        scale: Some(prim.alpha),
        is_causal: prim.causal,
        left_bound: prim.window.filter(|&window| window < rows).map(|window| window as i64),
        ..hipdnn::Attention::default()
    };
    Ok(sketch.graph.attention(what, [q, k, v]))
}

/// Expands a view to four axes: batch and heads first, then rows.
pub(super) fn four_axes(view: &View) -> View {
    let mut wide = view.clone();
    while wide.shape.len() < 4 {
        // Scores of three axes have one head for each batch.
        let at = usize::from(wide.shape.len() == 3);
        wide.shape.insert(at, 1);
        wide.strides.insert(at, 0);
    }
    wide
}

/// How the batch of products splits into batches and heads.
pub(super) struct Heads {
    pub batch: usize,
    /// The number of key and value heads.
    pub shared: usize,
    /// The number of query heads per key head.
    pub group: usize,
    pub rows: usize,
}

impl Heads {
    pub fn of(prim: &Attention, queries: &View) -> Result<Self, Declined> {
        let unknown = || Declined::new(format!("its scores have the unsupported shape {:?}", prim.shape.as_slice()));
        let (batch, heads, rows) = match prim.shape[..] {
            [rows, _] => (1, 1, rows),
            [batch, rows, _] => (batch, 1, rows),
            [batch, heads, rows, _] => (batch, heads, rows),
            _ => return Err(unknown()),
        };
        let (products, rows_of_one) = (queries.shape[0] * queries.shape[1], queries.shape[2]);
        // Heads that share keys are stacked as rows of one product.
        let group = rows_of_one.checked_div(rows).filter(|&group| group > 0 && group * rows == rows_of_one);
        let group = group.filter(|group| heads % group == 0).ok_or_else(unknown)?;
        let shared = heads / group;
        if batch * shared != products { Err(unknown()) } else { Ok(Self { batch, shared, group, rows }) }
    }

    pub fn queries(&self, view: &View) -> Result<View, Declined> {
        let &[_, products, row, column] = &view.strides[..] else { return Err(Declined::new("its queries")) };
        let below = self.rows.cast_signed() * row;
        if self.group > 1 && self.batch * self.shared > 1 && products != self.group.cast_signed() * below {
            return Err(Declined::new("heads that share keys are not contiguous"));
        }
        let head = if self.group > 1 { below } else { products };
        let batch = self.batch_stride(view);
        let (heads, size) = (self.shared * self.group, view.shape[3]);
        Ok(View {
            shape: [self.batch, heads, self.rows, size].as_slice().into(),
            strides: [batch, head, row, column].as_slice().into(),
            ..view.clone()
        })
    }

    /// The stride from one batch to the next, whether the products form one axis or two.
    fn batch_stride(&self, view: &View) -> isize {
        if view.shape[0] == 1 { self.shared.cast_signed() * view.strides[1] } else { view.strides[0] }
    }

    /// Keys or values, with the product's axes in this order.
    pub fn shared(&self, view: &View, order: [usize; 2]) -> View {
        let [row, column] = order;
        let batch = self.batch_stride(view);
        View {
            shape: [self.batch, self.shared, view.shape[row], view.shape[column]].as_slice().into(),
            strides: [batch, view.strides[1], view.strides[row], view.strides[column]].as_slice().into(),
            ..view.clone()
        }
    }
}

/// The scores in the form that hipDNN supports: a product times a scale, plus a mask, limited to keys up to the query's
/// position.
struct Scores {
    scale: f64,
    /// The number of the operand that is added as a mask.
    mask: Option<usize>,
    /// How many keys precede the first query's position.
    causal: Option<i64>,
}

impl Scores {
    fn of(prim: &Attention) -> Result<Self, Declined> {
        let expr = &prim.scores;
        let node = |at: Ref| expr.nodes()[usize::from(at)].0;
        let number = |at: Ref| match node(at) {
            Node::Const(value) => Some(value.as_f64()),
            _ => None,
        };
        let other = || Declined::new("its scores use more than a scale, a mask and causality");
        let mut found = Self { scale: 1.0, mask: None, causal: None };
        let mut at = (expr.nodes().len() as Ref).checked_sub(1).ok_or_else(other)?;
        loop {
            at = match node(at) {
                Node::Input(0) => return Ok(found),
                Node::Cast(a) if expr.dtype(at).is_float() => a,
                Node::Binary(Binary::Mul, a, b) => match (number(a), number(b)) {
                    (None, Some(factor)) => found.scaled(factor, a),
                    (Some(factor), None) => found.scaled(factor, b),
                    _ => return Err(other()),
                },
                Node::Binary(Binary::Div, a, b) => {
                    let divisor = number(b).ok_or_else(other)?;
                    found.scaled(divisor.recip(), a)
                }
                // A scale that is applied later would also scale the mask.
                Node::Binary(Binary::Add, a, b) if found.mask.is_none() && found.scale == 1.0 => {
                    let (mask, rest) = match (operand(expr, a), operand(expr, b)) {
                        (None, Some(mask)) => (mask, a),
                        (Some(mask), None) => (mask, b),
                        _ => return Err(other()),
                    };
                    found.mask = Some(mask);
                    rest
                }
                Node::Select(..) if found.causal.is_none() => {
                    let (past, rest) = prim.hides_ahead(at).ok_or_else(other)?;
                    found.causal = Some(past);
                    rest
                }
                _ => return Err(other()),
            };
        }
    }

    fn scaled(&mut self, factor: f64, of: Ref) -> Ref {
        self.scale *= factor;
        of
    }
}

/// The number of the operand, if this node is an operand, possibly cast.
fn operand(expr: &Expr, at: Ref) -> Option<usize> {
    match expr.nodes()[usize::from(at)].0 {
        Node::Input(number) if number > 0 && expr.dtype(at).is_float() => Some(usize::from(number)),
        Node::Cast(a) if expr.dtype(at).is_float() => operand(expr, a),
        _ => None,
    }
}
