//! Matrix products, and products of tokens with the matrices of their experts.

use graph::DType;
use hipdnn::sys::{AttributeName as A, MoeGroupedMatmulMode};

use hipdnn_abi::Descriptor;

use super::{Answer, LoweredValue, Lowering};

impl Lowering {
    pub(super) fn matmul(&mut self, operation: &Descriptor) -> Answer {
        let a = self.read(operation, A::OPERATION_MATMUL_ADESC)?;
        let b = self.read(operation, A::OPERATION_MATMUL_BDESC)?;
        let c = self.product(&a, &b)?;
        self.write(operation, A::OPERATION_MATMUL_CDESC, &c)
    }

    /// Tokens `[1, m, k]`, sorted by expert, times `[experts, k, n]`: each row is multiplied by the matrix of its
    /// expert.
    ///
    /// Every expert multiplies all tokens, with those of other experts set to zero: more work than necessary, but no
    /// shape depends on data.
    pub(super) fn moe_matmul(&mut self, operation: &Descriptor) -> Answer {
        let mode = MoeGroupedMatmulMode(operation.number(A::OPERATION_MOE_GROUPED_MATMUL_MODE).unwrap_or(0));
        if mode != MoeGroupedMatmulMode::NONE {
            return Err(format!("a product of experts with mode {mode:?} is not supported"));
        }
        let token = self.read(operation, A::OPERATION_MOE_GROUPED_MATMUL_TOKEN_DESC)?;
        let weight = self.read(operation, A::OPERATION_MOE_GROUPED_MATMUL_WEIGHT_DESC)?;
        let owned = self.tokens_of_experts(
            &token,
            weight.dims.first().copied().unwrap_or(0),
            operation,
            A::OPERATION_MOE_GROUPED_MATMUL_FIRST_TOKEN_OFFSET_DESC,
        )?;
        let products = self.product(&owned, &weight)?;
        let output = self.reduce("ReduceSum", &products, &[0])?;
        self.write(operation, A::OPERATION_MOE_GROUPED_MATMUL_OUTPUT_DESC, &output)
    }

    /// The gradient of the experts' matrices: the transposed tokens times the upstream gradient.
    pub(super) fn moe_matmul_backward(&mut self, operation: &Descriptor) -> Answer {
        let dy = self.read(operation, A::OPERATION_MOE_GROUPED_MATMUL_BWD_DOUTPUT_DESC)?;
        let token = self.read(operation, A::OPERATION_MOE_GROUPED_MATMUL_BWD_TOKEN_DESC)?;
        let dw = operation.descriptor(A::OPERATION_MOE_GROUPED_MATMUL_BWD_DWEIGHT_DESC).ok_or("no result")?;
        let experts = dw.i64s(A::TENSOR_DIMENSIONS).first().copied().unwrap_or(0);
        let owned = self.tokens_of_experts(
            &token,
            experts,
            operation,
            A::OPERATION_MOE_GROUPED_MATMUL_BWD_FIRST_TOKEN_OFFSET_DESC,
        )?;
        let owned = self.turned(&owned)?;
        let dw = self.product(&owned, &dy)?;
        self.write(operation, A::OPERATION_MOE_GROUPED_MATMUL_BWD_DWEIGHT_DESC, &dw)
    }

    /// `[experts, m, k]`: the tokens of each expert, with zeros in place of the others'. An expert's tokens range from
    /// its offset to the next one's.
    fn tokens_of_experts(
        &mut self,
        token: &LoweredValue,
        experts: i64,
        operation: &Descriptor,
        name: A,
    ) -> Answer<LoweredValue> {
        let [1, rows, _] = token.dims[..] else {
            return Err(format!("tokens {:?} are not supported: expected [1, rows, columns]", token.dims));
        };
        let offsets = operation.descriptor(name).ok_or_else(|| format!("{name} is not set"))?;
        let first = self.read_as_is(&offsets)?;
        let first = self.cast(&first, DType::I64)?;
        if first.dims.iter().product::<i64>() != experts {
            return Err(format!("offsets {:?} do not match {experts} experts", first.dims));
        }
        let first = self.reshape(&first, &[experts, 1, 1])?;
        let row = self.along(DType::I64, 3, 1, rows, |row| row)?;
        let is_behind = self.elementwise_to("GreaterOrEqual", &[&row, &first], DType::Bool)?;
        // The number of experts that begin at or before a token, minus one, is the index of its expert.
        let counted = self.cast(&is_behind, DType::I64)?;
        let owner = self.reduce("ReduceSum", &counted, &[0])?;
        let number = self.along(DType::I64, 3, 0, experts, |expert| expert + 1)?;
        let is_owner = self.elementwise_to("Equal", &[&owner, &number], DType::Bool)?;
        let zero = self.scalar(0.0);
        self.elementwise("Where", &[&is_owner, token, &zero])
    }
}
