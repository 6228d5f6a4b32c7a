//! Where ONNX Runtime placed each node.

use std::ptr;

use ort_ep_sys::{Api, OrtSession};

use crate::Result;
use crate::error::check;
use crate::text::{pointers, text};

/// The nodes that a provider took as one partition.
#[derive(Clone, Debug, PartialEq)]
pub struct Assigned {
    /// The provider.
    pub provider: String,
    /// The nodes.
    pub nodes: Vec<AssignedNode>,
}

/// A node in an assignment.
#[derive(Clone, Debug, PartialEq)]
pub struct AssignedNode {
    /// The name, often empty.
    pub name: String,
    /// The operator's domain, empty for ONNX's own.
    pub domain: String,
    /// The operator.
    pub op: String,
}

/// Copies the assignment that a session recorded.
///
/// # Safety
/// The session is alive for the call.
pub(crate) unsafe fn read(api: &Api, session: *mut OrtSession) -> Result<Vec<Assigned>> {
    let (mut raw, mut count) = (ptr::null(), 0);
    // SAFETY: the caller guarantees the session, which owns the array and its contents; everything is copied here.
    unsafe {
        check(api, api.Session_GetEpGraphAssignmentInfo(session, &mut raw, &mut count))?;
        let mut parts = Vec::with_capacity(count);
        for &part in pointers(raw, count) {
            let mut provider = ptr::null();
            check(api, api.EpAssignedSubgraph_GetEpName(part, &mut provider))?;
            let (mut raw, mut count) = (ptr::null(), 0);
            check(api, api.EpAssignedSubgraph_GetNodes(part, &mut raw, &mut count))?;
            let mut nodes = Vec::with_capacity(count);
            for &node in pointers(raw, count) {
                let (mut name, mut domain, mut op) = (ptr::null(), ptr::null(), ptr::null());
                check(api, api.EpAssignedNode_GetName(node, &mut name))?;
                check(api, api.EpAssignedNode_GetDomain(node, &mut domain))?;
                check(api, api.EpAssignedNode_GetOperatorType(node, &mut op))?;
                nodes.push(AssignedNode { name: text(name), domain: text(domain), op: text(op) });
            }
            parts.push(Assigned { provider: text(provider), nodes });
        }
        Ok(parts)
    }
}
