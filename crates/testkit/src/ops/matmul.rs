//! Matrix products by three loops.

use graph::Prim;

/// A batch of products of `[rows, depth]` and `[depth, columns]`.
#[derive(Clone, Copy, Debug)]
pub struct Product {
    /// The number of products.
    pub batch: usize,
    /// The rows of the left operands.
    pub rows: usize,
    /// The columns of the left operands, and the rows of the right ones.
    pub depth: usize,
    /// The columns of the right operands.
    pub columns: usize,
    /// The factor of the result.
    pub alpha: f32,
}

impl Product {
    /// A batch of products without a factor.
    pub fn new([batch, rows, depth, columns]: [usize; 4]) -> Self {
        Self { batch, rows, depth, columns, alpha: 1.0 }
    }

    /// The primitive.
    pub fn prim(&self) -> Prim {
        Prim::matmul(self.alpha)
    }

    /// The shapes of the operands.
    pub fn inputs(&self) -> [[usize; 3]; 2] {
        [[self.batch, self.rows, self.depth], [self.batch, self.depth, self.columns]]
    }

    /// The shape of the result.
    pub fn output(&self) -> [usize; 3] {
        [self.batch, self.rows, self.columns]
    }

    /// The result for dense operands.
    ///
    /// # Panics
    /// When an operand is too short.
    pub fn expected(&self, values: &[Vec<f64>]) -> Vec<f64> {
        let &Self { batch, rows, depth, columns, alpha } = self;
        let mut out = Vec::with_capacity(batch * rows * columns);
        for at in 0..batch {
            let (a, b) = (&values[0][at * rows * depth..], &values[1][at * depth * columns..]);
            for row in 0..rows {
                for column in 0..columns {
                    let sum: f64 = (0..depth).map(|p| a[row * depth + p] * b[p * columns + column]).sum();
                    out.push(f64::from(alpha) * sum);
                }
            }
        }
        out
    }
}
