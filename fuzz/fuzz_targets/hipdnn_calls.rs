//! Arbitrary calls of hipDNN's C interface on the host library: each returns a documented status.
#![no_main]

use std::ffi::c_void;
use std::ptr;

use arbitrary::Arbitrary;
use hipdnn::sys::{AttributeName, AttributeType, DescriptorType, Status};
use hipdnn_host::exported::{
    hipdnnBackendCreateDescriptor, hipdnnBackendDestroyDescriptor, hipdnnBackendExecute, hipdnnBackendFinalize,
    hipdnnBackendGetAttribute, hipdnnBackendSetAttribute, hipdnnCreate, hipdnnDestroy,
};
use libfuzzer_sys::fuzz_target;

/// One call; numbers select among the descriptors created so far.
#[derive(Arbitrary, Debug)]
enum Call {
    Make(u8),
    Destroy(u8),
    Set { on: u8, name: u16, kind: u8, count: i8, values: [i64; 4] },
    Refer { on: u8, name: u16, to: u8 },
    Attach { on: u8 },
    Get { on: u8, name: u16, kind: u8, room: i8 },
    Finalize(u8),
    Execute(u8, u8),
}

fn name(number: u16) -> AttributeName {
    AttributeName::ALL[usize::from(number) % AttributeName::ALL.len()]
}

fuzz_target!(|calls: Vec<Call>| {
    let mut handle = ptr::null_mut();
    // SAFETY: arrays hold at least as many eight-byte elements as any count passed; data addresses are never set.
    unsafe {
        assert_eq!(hipdnnCreate(&mut handle), Status::SUCCESS);
        let mut made: Vec<*mut c_void> = vec![ptr::null_mut()];
        for call in calls.into_iter().take(200) {
            let of = |at: u8| made[usize::from(at) % made.len()];
            let status = match call {
                Call::Make(kind) => {
                    let mut new = ptr::null_mut();
                    let status = hipdnnBackendCreateDescriptor(DescriptorType(i32::from(kind % 41)), &mut new);
                    made.push(new);
                    status
                }
                Call::Destroy(at) => hipdnnBackendDestroyDescriptor(of(at)),
                Call::Set { name: number, .. } if name(number) == AttributeName::VARIANT_PACK_DATA_POINTERS => continue,
                Call::Set { on, name: number, kind, count, values } => {
                    let (kind, count) = (AttributeType(i32::from(kind % 33)), i64::from(count).min(4));
                    hipdnnBackendSetAttribute(of(on), name(number), kind, count, values.as_ptr().cast())
                }
                Call::Refer { on, name: number, to } => {
                    let (to, kind) = ([of(to)], AttributeType::BACKEND_DESCRIPTOR);
                    hipdnnBackendSetAttribute(of(on), name(number), kind, 1, to.as_ptr().cast())
                }
                Call::Attach { on } => {
                    let (to, name) = ([handle], AttributeName::OPERATIONGRAPH_HANDLE);
                    hipdnnBackendSetAttribute(of(on), name, AttributeType::HANDLE, 1, to.as_ptr().cast())
                }
                Call::Get { on, name: number, kind, room } => {
                    let (mut count, mut elements) = (0, [0u64; 128]);
                    let kind = AttributeType(i32::from(kind % 33));
                    let elements = elements.as_mut_ptr().cast();
                    hipdnnBackendGetAttribute(of(on), name(number), kind, room.into(), &mut count, elements)
                }
                Call::Finalize(at) => hipdnnBackendFinalize(of(at)),
                Call::Execute(plan, pack) => hipdnnBackendExecute(handle, of(plan), of(pack)),
            };
            assert!(status.name().is_some() && status != Status::INTERNAL_ERROR, "{status:?}");
        }
        made.into_iter().for_each(|descriptor| {
            hipdnnBackendDestroyDescriptor(descriptor);
        });
        assert_eq!(hipdnnDestroy(handle), Status::SUCCESS);
    }
});
