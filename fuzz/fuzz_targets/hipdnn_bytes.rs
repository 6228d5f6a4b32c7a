//! Arbitrary bytes as hipDNN graphs and plans: they are rejected, finalized, or not supported by any engine.
#![no_main]

use std::ptr;

use hipdnn::sys::{AttributeName, AttributeType, Status};
use hipdnn_host::exported::{
    hipdnnBackendCreateAndDeserializeExecutionPlan_ext, hipdnnBackendCreateAndDeserializeGraph_ext,
    hipdnnBackendCreateAndDeserializeJsonGraph_ext, hipdnnBackendDestroyDescriptor, hipdnnBackendFinalize,
    hipdnnBackendGetSerializedBinaryContents_ext, hipdnnBackendSetAttribute, hipdnnCreate, hipdnnDestroy,
};
use libfuzzer_sys::fuzz_target;

const DOCUMENTED: [Status; 3] = [Status::SUCCESS, Status::BAD_PARAM, Status::NOT_SUPPORTED];

fuzz_target!(|bytes: &[u8]| {
    let (mut handle, mut flags) = (ptr::null_mut(), 0);
    let (from, size) = (bytes.as_ptr(), bytes.len());
    let [mut graph, mut json, mut plan] = [ptr::null_mut(); 3];
    // SAFETY: `size` is the number of bytes at `from`, and the out-pointers are valid.
    unsafe {
        assert_eq!(hipdnnCreate(&mut handle), Status::SUCCESS);
        let statuses = [
            hipdnnBackendCreateAndDeserializeGraph_ext(&mut graph, from, size),
            hipdnnBackendCreateAndDeserializeJsonGraph_ext(&mut json, from.cast(), size),
            hipdnnBackendCreateAndDeserializeExecutionPlan_ext(handle, &mut plan, from, size),
            hipdnnBackendGetSerializedBinaryContents_ext(from, size, &mut flags),
        ];
        assert!(statuses.iter().all(|status| DOCUMENTED.contains(status)), "{statuses:?}");
        for made in [graph, json].into_iter().filter(|made| !made.is_null()) {
            let (name, kind, handles) = (AttributeName::OPERATIONGRAPH_HANDLE, AttributeType::HANDLE, [handle]);
            assert_eq!(hipdnnBackendSetAttribute(made, name, kind, 1, handles.as_ptr().cast()), Status::SUCCESS);
            let status = hipdnnBackendFinalize(made);
            assert!(DOCUMENTED.contains(&status), "{status:?}");
        }
        for made in [graph, json, plan].into_iter().filter(|made| !made.is_null()) {
            assert_eq!(hipdnnBackendDestroyDescriptor(made), Status::SUCCESS);
        }
        assert_eq!(hipdnnDestroy(handle), Status::SUCCESS);
    }
});
