//! Descriptors: attributes by name, and a lifecycle from creation through setting attributes to finalizing.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hipdnn::sys::{AttributeName as A, AttributeType as T, DescriptorType as D, Status};

use crate::engine;
use crate::fault::{Fault, Outcome};
use crate::implementation::{Arguments, CompiledGraph, Implementation, Plan};
use crate::table::{Count, Kind, Row, kind_of};
use crate::value::Value;

/// A descriptor of any kind.
pub struct Descriptor {
    /// The kind.
    pub kind: &'static Kind,
    state: Mutex<State>,
}

/// The mutable part of a descriptor.
#[derive(Default)]
pub struct State {
    values: BTreeMap<A, Value>,
    is_finalized: bool,
    finalized: Finalized,
}

/// The result of finalizing a descriptor, for kinds that do more than hold attributes.
#[derive(Clone, Default)]
pub enum Finalized {
    /// Nothing.
    #[default]
    Nothing,
    /// A compiled graph; or why there is none, if no engine runs it.
    Graph(Result<Arc<dyn CompiledGraph>, String>),
    /// An execution plan.
    Plan(Arc<dyn Plan>),
}

impl std::fmt::Debug for Descriptor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.kind.class)
    }
}

impl Descriptor {
    /// Creates a descriptor.
    pub(crate) fn new(kind: D) -> Outcome<Self> {
        let known = kind_of(kind).ok_or_else(|| Fault::unsupported(format!("{kind} cannot be created")))?;
        Ok(Self { kind: known, state: Mutex::default() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn refuse<X>(&self, method: &str, status: Status, reason: &str) -> Outcome<X> {
        Err(Fault::new(status, format!("{}::{method}() failed: {reason}", self.kind.class)))
    }

    /// True once attributes can no longer be set.
    pub(crate) fn is_finalized(&self) -> bool {
        self.state().is_finalized
    }

    /// Requires a finalized descriptor of a kind.
    pub(crate) fn require(&self, kind: D) -> Outcome {
        if self.kind.descriptor != kind {
            return Err(Fault::bad(format!("expected a {kind}, found a {}", self.kind.class)));
        }
        if !self.is_finalized() {
            return self.refuse("getAttribute", Status::BAD_PARAM_NOT_FINALIZED, "it is not finalized");
        }
        Ok(())
    }

    /// Sets an attribute.
    ///
    /// # Safety
    /// `elements` is null or points at `count` elements of the type.
    pub(crate) unsafe fn set(&self, name: A, kind: T, count: i64, elements: *const c_void) -> Outcome {
        let refuse = |status, reason: &str| self.refuse("setAttribute", status, reason);
        if self.is_finalized() {
            return refuse(Status::NOT_INITIALIZED, "it is finalized");
        }
        let Some(row) = self.kind.row(name) else {
            return refuse(Status::NOT_SUPPORTED, &format!("it has no attribute {name}"));
        };
        // A knob's value has the knob's own type.
        let is_knob = name == A::KNOB_CHOICE_KNOB_VALUE && [T::INT64, T::DOUBLE, T::CHAR].contains(&kind);
        if kind != row.kind && !is_knob {
            return refuse(Status::BAD_PARAM, &format!("{name} has type {}, not {kind}", row.kind));
        }
        if elements.is_null() {
            return refuse(Status::BAD_PARAM_NULL_POINTER, &format!("the elements of {name} are null"));
        }
        let least = usize::try_from(count).ok().filter(|&count| count > 0 && count <= MAX_ELEMENTS);
        let takes_one = row.count == Count::One && kind != T::CHAR;
        let Some(count) = least.filter(|&count| !takes_one || count == 1) else {
            return refuse(Status::BAD_PARAM, &format!("{name} cannot have {count} elements"));
        };
        // SAFETY: guaranteed by the caller; the type is the attribute's.
        let value = unsafe { Value::read(kind, count, elements)? };
        self.check_value(row, &value)?;
        let mut state = self.state();
        match state.values.get_mut(&name) {
            Some(known) if row.count == Count::Appended => known.append(value),
            _ => {
                state.values.insert(name, value);
            }
        }
        Ok(())
    }

    /// Checks a value beyond its type.
    fn check_value(&self, row: &Row, value: &Value) -> Outcome {
        let refuse = |status, reason: &str| self.refuse("setAttribute", status, reason);
        match value {
            Value::Descriptors(descriptors) => {
                for descriptor in descriptors {
                    if !descriptor.is_finalized() {
                        return refuse(Status::BAD_PARAM_NOT_FINALIZED, "a descriptor is not finalized");
                    }
                    if !is_wanted(row.name, descriptor.kind) {
                        let reason = format!("a {} cannot be {}", descriptor.kind.class, row.name);
                        return refuse(Status::BAD_PARAM, &reason);
                    }
                }
            }
            Value::Addresses(addresses) if row.kind == T::HANDLE && addresses.contains(&0) => {
                return refuse(Status::BAD_PARAM_NULL_POINTER, "the handle is null");
            }
            Value::Bytes(bytes) if row.name == A::TENSOR_VALUE_EXT => {
                let bits = self.number(A::TENSOR_DATA_TYPE).and_then(|code| hipdnn::sys::DataType(code).bits());
                if bits.map(|bits| bits / 8) != Some(bytes.len()) {
                    return refuse(Status::BAD_PARAM, "a value must be one element of the type set before");
                }
            }
            Value::I32s(modes) if row.name == A::ENGINEHEUR_MODE && modes != &[0] => {
                return refuse(Status::NOT_SUPPORTED, "only one mode is supported");
            }
            _ => {}
        }
        Ok(())
    }

    /// Reads an attribute, or only its count if `elements` is null or nothing is requested.
    ///
    /// # Safety
    /// `count` is null or writable, `elements` is null or an array with room for `requested` elements of the type.
    pub(crate) unsafe fn get(
        &self,
        name: A,
        kind: T,
        requested: i64,
        count: *mut i64,
        elements: *mut c_void,
    ) -> Outcome {
        let refuse = |status, reason: &str| self.refuse("getAttribute", status, reason);
        if !self.is_finalized() && self.kind.descriptor != D::OPERATIONGRAPH_DESCRIPTOR {
            let is_heuristic = self.kind.descriptor == D::ENGINEHEUR_DESCRIPTOR;
            let status = if is_heuristic { Status::BAD_PARAM_NOT_FINALIZED } else { Status::NOT_INITIALIZED };
            return refuse(status, "it is not finalized");
        }
        if name == A::ENGINEHEUR_RESULTS && self.kind.descriptor == D::ENGINEHEUR_DESCRIPTOR {
            // SAFETY: guaranteed by the caller.
            return unsafe { engine::results(self, kind, requested, count, elements) };
        }
        let (wanted, value) = match engine::derived(self, name)? {
            Some(derived) => derived,
            None => match self.kind.row(name) {
                Some(row) => {
                    let value = self.state().values.get(&name).cloned();
                    let kind = match (name, &value) {
                        (A::KNOB_CHOICE_KNOB_VALUE, Some(Value::F64s(_))) => T::DOUBLE,
                        (A::KNOB_CHOICE_KNOB_VALUE, Some(Value::Bytes(_))) => T::CHAR,
                        _ => row.kind,
                    };
                    (kind, value)
                }
                None => return refuse(Status::NOT_SUPPORTED, &format!("it has no attribute {name}")),
            },
        };
        if kind != wanted {
            return refuse(Status::BAD_PARAM, &format!("{name} has type {wanted}, not {kind}"));
        }
        let is_text = kind == T::CHAR && name != A::TENSOR_VALUE_EXT && name != A::OPERATION_CUSTOM_OP_DATA_EXT;
        let value = match value {
            Some(Value::Bytes(mut text)) if is_text => {
                text.push(0);
                Some(Value::Bytes(text))
            }
            other => other,
        };
        let len = value.as_ref().map_or(0, Value::len);
        if elements.is_null() && self.kind.descriptor == D::VARIANT_PACK_DESCRIPTOR {
            return refuse(Status::BAD_PARAM_NULL_POINTER, "a variant pack has no count");
        }
        if elements.is_null() || requested == 0 {
            if count.is_null() {
                return refuse(Status::BAD_PARAM_NULL_POINTER, "elements and count are both null");
            }
            // SAFETY: guaranteed by the caller.
            unsafe { count.write(len as i64) };
            return Ok(());
        }
        let Ok(room) = usize::try_from(requested) else {
            return refuse(Status::BAD_PARAM, &format!("invalid element count {requested}"));
        };
        if (matches!(value, Some(Value::Descriptors(_))) || kind == T::BEHAVIOR_NOTE) && room < len {
            return refuse(Status::BAD_PARAM, &format!("{name} has {len} elements"));
        }
        let is_single = matches!(kind, T::INT64 | T::BOOLEAN | T::BACKEND_DESCRIPTOR)
            && name != A::EXECUTION_PLAN_TENSOR_UIDS_EXT
            && name != A::ENGINE_KNOB_INFO;
        if ENGINES_AND_PLANS.contains(&self.kind.descriptor) && is_single && room != 1 {
            return refuse(Status::BAD_PARAM, &format!("{name} has one element, not {requested}"));
        }
        // SAFETY: guaranteed by the caller.
        let written = value.map_or(0, |value| unsafe { value.write(room, elements) });
        if is_text && written > 0 && written < len {
            // SAFETY: as above; a truncated string is still terminated.
            unsafe { elements.cast::<u8>().add(written - 1).write(0) };
        }
        if !count.is_null() {
            // SAFETY: guaranteed by the caller.
            unsafe { count.write(written as i64) };
        }
        Ok(())
    }

    /// Finalizes the descriptor.
    pub(crate) fn finalize(self: &Arc<Self>, library: &dyn Implementation) -> Outcome {
        let once =
            [D::ENGINE_DESCRIPTOR, D::ENGINECFG_DESCRIPTOR, D::ENGINEHEUR_DESCRIPTOR, D::EXECUTION_PLAN_DESCRIPTOR];
        if self.is_finalized() && once.contains(&self.kind.descriptor) {
            return self.refuse("finalize", Status::BAD_PARAM, "it is already finalized");
        }
        let missing = {
            let state = self.state();
            self.kind.rows.iter().find(|row| row.is_required && !state.values.contains_key(&row.name))
        };
        if let Some(row) = missing {
            return self.refuse("finalize", Status::BAD_PARAM, &format!("{} is not set", row.name));
        }
        let finalized = engine::finalize(self, library)?;
        self.seal(finalized);
        Ok(())
    }

    /// Finalizes a descriptor whose attributes are known to be valid.
    pub(crate) fn seal(&self, finalized: Finalized) {
        let mut state = self.state();
        state.is_finalized = true;
        state.finalized = finalized;
    }

    /// Calls with the contents of a variant pack.
    pub(crate) fn with_arguments<R>(&self, call: impl FnOnce(&Arguments<'_>) -> R) -> R {
        let state = self.state();
        let addresses = |name| match state.values.get(&name) {
            Some(Value::Addresses(addresses)) => &addresses[..],
            _ => &[],
        };
        let uids = match state.values.get(&A::VARIANT_PACK_UNIQUE_IDS) {
            Some(Value::I64s(uids)) => &uids[..],
            _ => &[],
        };
        call(&Arguments {
            uids,
            addresses: addresses(A::VARIANT_PACK_DATA_POINTERS),
            workspace: addresses(A::VARIANT_PACK_WORKSPACE).first().copied().unwrap_or(0),
        })
    }

    /// Sets an attribute internally.
    pub(crate) fn put(&self, name: A, value: Value) {
        self.state().values.insert(name, value);
    }

    /// A value that was set.
    pub fn value(&self, name: A) -> Option<Value> {
        self.state().values.get(&name).cloned()
    }

    /// Integers that were set; empty if not.
    pub fn i64s(&self, name: A) -> Vec<i64> {
        match self.state().values.get(&name) {
            Some(Value::I64s(values)) => values.clone(),
            _ => Vec::new(),
        }
    }

    /// 32-bit integers that were set; empty if not.
    pub fn i32s(&self, name: A) -> Vec<i32> {
        match self.state().values.get(&name) {
            Some(Value::I32s(values)) => values.clone(),
            _ => Vec::new(),
        }
    }

    /// The value of an enumeration.
    pub fn number(&self, name: A) -> Option<i32> {
        self.i32s(name).first().copied()
    }

    /// A float.
    pub fn f32(&self, name: A) -> Option<f32> {
        match self.state().values.get(&name) {
            Some(Value::F32s(values)) => values.first().copied(),
            _ => None,
        }
    }

    /// A flag; off if it was not set.
    pub fn flag(&self, name: A) -> bool {
        matches!(self.state().values.get(&name), Some(Value::Bytes(bytes)) if bytes.first().is_some_and(|&byte| byte != 0))
    }

    /// Descriptors that were set; empty if not.
    pub fn descriptors(&self, name: A) -> Vec<Arc<Self>> {
        match self.state().values.get(&name) {
            Some(Value::Descriptors(values)) => values.clone(),
            _ => Vec::new(),
        }
    }

    /// The single descriptor that was set.
    pub fn descriptor(&self, name: A) -> Option<Arc<Self>> {
        self.descriptors(name).into_iter().next()
    }

    /// The result of finalizing.
    pub(crate) fn finalized(&self) -> Finalized {
        self.state().finalized.clone()
    }
}

/// Kinds whose attributes are single values, and are read one at a time.
const ENGINES_AND_PLANS: [D; 3] = [D::ENGINE_DESCRIPTOR, D::ENGINECFG_DESCRIPTOR, D::EXECUTION_PLAN_DESCRIPTOR];

/// Longer lists are a mistake, and copying them would only crash.
const MAX_ELEMENTS: usize = 1 << 24;

/// Which kinds an attribute refers to.
fn is_wanted(name: A, kind: &Kind) -> bool {
    match name {
        A::OPERATIONGRAPH_OPS => kind.is_operation(),
        A::ENGINE_OPERATION_GRAPH | A::ENGINEHEUR_OPERATION_GRAPH => kind.descriptor == D::OPERATIONGRAPH_DESCRIPTOR,
        A::ENGINECFG_ENGINE => kind.descriptor == D::ENGINE_DESCRIPTOR,
        A::ENGINECFG_KNOB_CHOICES => kind.descriptor == D::KNOB_CHOICE_DESCRIPTOR,
        A::EXECUTION_PLAN_ENGINE_CONFIG => kind.descriptor == D::ENGINECFG_DESCRIPTOR,
        _ => kind.descriptor == D::TENSOR_DESCRIPTOR,
    }
}
