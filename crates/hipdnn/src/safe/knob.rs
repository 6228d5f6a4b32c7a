//! Knobs: settings of one engine, with names that the engine defines.

use std::sync::Arc;

use super::Descriptor;
use crate::Result;
use crate::sys::{AttributeName as A, Backend, DescriptorType};

/// The value of a knob.
#[derive(Clone, Debug, PartialEq)]
pub enum KnobValue {
    /// An integer.
    Int(i64),
    /// A floating-point number.
    Float(f64),
    /// A string.
    Text(String),
}

/// A knob that an engine offers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnobInfo {
    /// The name, such as `global.workspace_size_limit`.
    pub id: String,
    /// What it does.
    pub description: String,
}

impl KnobInfo {
    pub(crate) fn read(info: &Descriptor) -> Result<Self> {
        Ok(Self { id: info.text(A::KNOB_INFO_TYPE)?, description: info.text(A::KNOB_INFO_DESCRIPTION)? })
    }
}

impl KnobValue {
    /// Sets the knob to this value, as a finalized descriptor.
    pub(crate) fn choose(&self, backend: &Arc<dyn Backend>, id: &str) -> Result<Descriptor> {
        let choice = Descriptor::new(backend, DescriptorType::KNOB_CHOICE_DESCRIPTOR)?;
        choice.set_bytes(A::KNOB_CHOICE_KNOB_TYPE, id.as_bytes())?;
        match self {
            Self::Int(value) => choice.set_i64s(A::KNOB_CHOICE_KNOB_VALUE, &[*value])?,
            Self::Float(value) => choice.set_f64(A::KNOB_CHOICE_KNOB_VALUE, *value)?,
            Self::Text(value) => choice.set_bytes(A::KNOB_CHOICE_KNOB_VALUE, value.as_bytes())?,
        }
        choice.finalize()?;
        Ok(choice)
    }
}
