//! Pooling and its gradient.

use hipdnn::sys::{AttributeName as H, PaddingMode, ResampleMode};
use hipdnn_abi::Descriptor;

use super::{Answer, Lowering};
use crate::graph::{Operation, Parameters};
use crate::safe::Setting;
use crate::sys::{self, AttributeName as A, AttributeType as T, DescriptorType as D};
use crate::translate;

impl Lowering {
    fn window(&self, operation: &Descriptor, held_by: A) -> Answer<Parameters> {
        let mode = ResampleMode(operation.number(H::RESAMPLE_MODE).unwrap_or(0));
        let mode = translate::resample(mode).ok_or_else(|| format!("cuDNN has no {mode}"))?;
        let pads = [H::RESAMPLE_PRE_PADDINGS, H::RESAMPLE_POST_PADDINGS].map(|name| operation.i64s(name));
        if mode == sys::ResampleMode::AVGPOOL_INCLUDE_PADDING && pads.iter().flatten().any(|&pad| pad != 0) {
            return Err("cuDNN omits some of the padding that the mean should include".into());
        }
        let spatial = self.rank - 2;
        let list = |name, filler: i64| -> Answer<Setting> {
            let mut values = operation.i64s(name);
            if self.inserts_axis {
                values.insert(0, filler);
            }
            if values.len() == spatial {
                Ok(Setting::I64s(values))
            } else {
                Err(format!("{name} must have {spatial} numbers"))
            }
        };
        let padding = match PaddingMode(operation.number(H::RESAMPLE_PADDING_MODE).unwrap_or(0)) {
            PaddingMode::NEG_INF_PAD => sys::PaddingMode::NEG_INF_PAD,
            PaddingMode::ZERO_PAD => sys::PaddingMode::ZERO_PAD,
            _ if mode == sys::ResampleMode::MAXPOOL => sys::PaddingMode::NEG_INF_PAD,
            _ => sys::PaddingMode::ZERO_PAD,
        };
        Ok(Parameters {
            kind: D::RESAMPLE_DESCRIPTOR,
            held_by,
            settings: vec![
                (A::RESAMPLE_MODE, Setting::Code(T::RESAMPLE_MODE, mode.0)),
                (A::RESAMPLE_COMP_TYPE, Setting::Code(T::DATA_TYPE, self.compute.0)),
                (A::RESAMPLE_NAN_PROPAGATION, Setting::Code(T::NAN_PROPOGATION, sys::PROPAGATE_NAN)),
                (A::RESAMPLE_PADDING_MODE, Setting::Code(T::PADDING_MODE, padding.0)),
                (A::RESAMPLE_SPATIAL_DIMS, Setting::I64s(vec![spatial as i64])),
                (A::RESAMPLE_WINDOW_DIMS, list(H::RESAMPLE_WINDOW_DIMS, 1)?),
                (A::RESAMPLE_STRIDES, list(H::RESAMPLE_STRIDES, 1)?),
                (A::RESAMPLE_PRE_PADDINGS, list(H::RESAMPLE_PRE_PADDINGS, 0)?),
                (A::RESAMPLE_POST_PADDINGS, list(H::RESAMPLE_POST_PADDINGS, 0)?),
            ],
        })
    }

    pub(super) fn resample(&mut self, operation: &Descriptor) -> Answer {
        let parameters = self.window(operation, A::OPERATION_RESAMPLE_FWD_DESC)?;
        let reads = vec![(A::OPERATION_RESAMPLE_FWD_XDESC, self.view(operation, H::OPERATION_RESAMPLE_FWD_XDESC)?)];
        let writes = vec![(A::OPERATION_RESAMPLE_FWD_YDESC, self.view(operation, H::OPERATION_RESAMPLE_FWD_YDESC)?)];
        if operation.descriptor(H::OPERATION_RESAMPLE_FWD_IDXDESC).is_some() {
            return Err("cuDNN numbers the positions of maxima differently".into());
        }
        let kind = D::OPERATION_RESAMPLE_FWD_DESCRIPTOR;
        self.push(Operation { kind, parameters: Some(parameters), settings: Vec::new(), reads, writes });
        Ok(())
    }

    pub(super) fn resample_backward(&mut self, operation: &Descriptor) -> Answer {
        if operation.number(H::RESAMPLE_MODE) == Some(ResampleMode::MAXPOOL.0) {
            return Err("the gradient of maxima needs their positions, which cuDNN numbers differently".into());
        }
        let parameters = self.window(operation, A::OPERATION_RESAMPLE_BWD_DESC)?;
        let reads = vec![(A::OPERATION_RESAMPLE_BWD_DYDESC, self.view(operation, H::OPERATION_RESAMPLE_BWD_DYDESC)?)];
        let writes = vec![(A::OPERATION_RESAMPLE_BWD_DXDESC, self.view(operation, H::OPERATION_RESAMPLE_BWD_DXDESC)?)];
        let kind = D::OPERATION_RESAMPLE_BWD_DESCRIPTOR;
        self.push(Operation { kind, parameters: Some(parameters), settings: Vec::new(), reads, writes });
        Ok(())
    }
}
