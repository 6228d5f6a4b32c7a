//! Where ONNX Runtime placed each node.

use std::ptr::{self, NonNull};

use anyhow::Result;
use ort_ep_sys::OrtSession;

use super::{Runtime, pointers, text};
use crate::ort::{Assigned, AssignedNode};

/// Copies the assignment that a session recorded.
///
/// # Safety
/// The session is alive for the call.
pub(super) unsafe fn read(runtime: &Runtime, session: NonNull<OrtSession>) -> Result<Vec<Assigned>> {
    let api = &runtime.api;
    let (mut raw, mut count) = (ptr::null(), 0);
    // SAFETY: the caller guarantees the session, which owns the array and its contents; everything is copied here.
    unsafe {
        runtime.check(api.Session_GetEpGraphAssignmentInfo(session.as_ptr(), &mut raw, &mut count))?;
        let mut parts = Vec::with_capacity(count);
        for &part in pointers(raw, count) {
            let mut provider = ptr::null();
            runtime.check(api.EpAssignedSubgraph_GetEpName(part, &mut provider))?;
            let (mut raw, mut count) = (ptr::null(), 0);
            runtime.check(api.EpAssignedSubgraph_GetNodes(part, &mut raw, &mut count))?;
            let mut nodes = Vec::with_capacity(count);
            for &node in pointers(raw, count) {
                let (mut name, mut domain, mut op) = (ptr::null(), ptr::null(), ptr::null());
                runtime.check(api.EpAssignedNode_GetName(node, &mut name))?;
                runtime.check(api.EpAssignedNode_GetDomain(node, &mut domain))?;
                runtime.check(api.EpAssignedNode_GetOperatorType(node, &mut op))?;
                nodes.push(AssignedNode { name: text(name), domain: text(domain), op: text(op) });
            }
            parts.push(Assigned { provider: text(provider), nodes });
        }
        Ok(parts)
    }
}
