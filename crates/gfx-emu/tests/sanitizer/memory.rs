//! Accesses outside allocations, and reads of memory that was never written.

use super::planted::{COUNT, Planted};
use gfx_emu::Space;
use gfx_emu::sanitize::Bug;

#[test]
fn a_store_past_the_end_of_a_buffer_is_found() {
    let text = "
        int i = bid() * 256 + tid();
        if (PLANTED || i < n)
            y[i] = 7; // HERE";
    Planted { stops: true, ..Planted::new(Bug::OutOfBounds, text) }.check(|found, [_, y], lanes| {
        let accessed = found.accessed.unwrap();
        assert_eq!((accessed.address, accessed.bytes, accessed.writes), (y + 4 * COUNT, 4, true));
        assert_eq!(accessed.allocation, Some((y, 4 * COUNT)));
        // Workitem 1000 is number 232 of workgroup 3.
        assert_eq!((found.group, found.wave, found.lane), ([3, 0, 0], 232 / lanes, Some(232 % lanes)));
    });
}

#[test]
fn a_load_from_freed_memory_is_found() {
    let text = "
        int i = bid() * 256 + tid();
        if (i < n)
            y[i] = x[i]; // HERE";
    let planted = Planted { frees: true, stops: true, ..Planted::new(Bug::UseAfterFree, text) };
    planted.check(|found, [x, _], _| {
        let accessed = found.accessed.unwrap();
        assert_eq!((accessed.allocation, accessed.writes), (Some((x, 4 * COUNT)), false));
    });
}

#[test]
fn a_load_of_unwritten_device_memory_is_found() {
    let text = "
        int i = bid() * 256 + tid();
        if (!PLANTED && i < n) y[i] = 1;
        if (i < n) {
            u32 old = *(volatile u32*)(y + i); // HERE
            y[i] = old + x[i];
        }";
    Planted::new(Bug::Uninitialised, text).check(|found, [_, y], _| {
        assert!((y..y + 4 * COUNT).contains(&found.accessed.unwrap().address));
    });
}

#[test]
fn a_load_of_unwritten_lds_is_found() {
    let text = "
        __shared__ u32 part[256];
        if (!PLANTED || tid() < 192) part[tid()] = x[tid()];
        barrier();
        u32 got = part[255 - tid()]; // HERE
        if (bid() == 0) y[tid()] = got;";
    Planted::new(Bug::Uninitialised, text).check(|found, _, _| {
        let accessed = found.accessed.unwrap();
        assert!(accessed.space == Space::Lds && (4 * 192..4 * 256).contains(&accessed.address));
    });
}

#[test]
fn an_access_past_the_end_of_lds_is_found() {
    let text = "
        __shared__ u32 part[256];
        part[tid()] = x[tid()];
        barrier();
        u32 at = tid() + (PLANTED ? x[1] : 0);
        u32 got = part[at]; // HERE
        if (bid() == 0) y[tid()] = got;";
    Planted::new(Bug::OutOfBounds, text).check(|found, _, lanes| {
        let accessed = found.accessed.unwrap();
        assert_eq!((accessed.space, accessed.address, accessed.allocation), (Space::Lds, 1024, Some((0, 1024))));
        assert_eq!(found.lane, Some(lanes - 1));
    });
}

#[test]
fn a_read_of_arguments_that_do_not_exist_is_found() {
    let text = "
        const __attribute__((address_space(4))) u32* arguments =
            (const __attribute__((address_space(4))) u32*)__builtin_amdgcn_kernarg_segment_ptr();
        u32 got = arguments[PLANTED ? 100 : 4]; // HERE
        if (bid() == 0) y[tid()] = got;";
    Planted { stops: true, ..Planted::new(Bug::OutsideArguments, text) }.check(|found, _, _| {
        assert_eq!(found.accessed.unwrap().space, Space::Scalar);
    });
}
