//! Races and barriers.

use super::planted::Planted;
use gfx_emu::Space;
use gfx_emu::sanitize::Bug;

#[test]
fn a_missing_barrier_between_waves_is_found_in_lds() {
    let text = "
        __shared__ u32 part[256];
        part[255 - tid()] = 0;
        barrier();
        part[tid()] = x[tid()];
        if (!PLANTED) barrier();
        u32 got = part[255 - tid()]; // HERE
        if (bid() == 0) y[tid()] = got;";
    let planted = Planted::new(Bug::Race, text);
    planted.check(|found, _, _| {
        assert_eq!(found.accessed.unwrap().space, Space::Lds);
        assert!(found.detail.contains("ds_") && found.detail.contains("k.hip:"), "{found}");
    });
}

#[test]
fn a_missing_barrier_between_waves_is_found_in_device_memory() {
    let text = "
        if (bid() == 0) {
            y[255 - tid()] = 0;
            barrier();
            y[tid()] = x[tid()];
            if (!PLANTED) barrier();
            y[256 + tid()] = y[255 - tid()]; // HERE
        }";
    Planted::new(Bug::Race, text).check(|found, [_, y], _| {
        assert!((y..y + 1024).contains(&found.accessed.unwrap().address), "{found}");
        assert!(found.detail.contains("in workgroup [0, 0, 0]"), "{found}");
    });
}

#[test]
fn stores_of_several_workgroups_to_one_word_are_found() {
    let text = "
        if (tid() == 0) {
            if (PLANTED)
                y[0] = bid(); // HERE
            else
                __hip_atomic_exchange(y, (u32)bid(), __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
        }";
    Planted::new(Bug::Race, text).check(|found, [_, y], _| {
        let accessed = found.accessed.unwrap();
        assert_eq!((accessed.address, accessed.writes, found.lane), (y, true, Some(0)));
    });
}

#[test]
fn a_read_of_another_workgroups_result_is_found() {
    let text = "
        if (tid() == 0) y[bid()] = x[bid()];
        if (PLANTED && tid() == 0 && bid() > 0)
            y[100 + bid()] = y[bid() - 1]; // HERE";
    Planted::new(Bug::Race, text).check(|found, [_, y], _| {
        assert!((y..y + 16).contains(&found.accessed.unwrap().address), "{found}");
    });
}

#[test]
fn a_wave_that_ends_before_a_barrier_is_found() {
    let text = "
        __shared__ u32 part[256];
        part[tid()] = x[tid()];
        if (PLANTED && tid() >= 128) return;
        barrier(); // HERE
        if (bid() == 0 && tid() < 128) y[tid()] = part[127 - tid()];";
    Planted::new(Bug::DivergentBarrier, text).check(|found, _, _| {
        assert!(found.detail.contains("ends while wave") || found.detail.contains("has ended"), "{found}");
    });
}

#[test]
fn a_barrier_that_only_some_lanes_of_a_wave_reach_is_found() {
    let text = "
        __shared__ u32 part[256];
        part[tid()] = x[tid()];
        if (!PLANTED || tid() % 32 < 16)
            barrier(); // HERE
        if (bid() == 0) y[tid()] = part[tid()];";
    Planted::new(Bug::DivergentBarrier, text).check(|found, _, _| {
        assert!(found.detail.contains("lanes of the wave are not active"), "{found}");
        assert_eq!(found.lane, Some(16));
    });
}
