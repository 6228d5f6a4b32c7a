//! Registers that are used before their loads are complete.

use super::planted::Planted;
use gfx_emu::sanitize::Bug;

#[test]
fn a_use_of_a_vector_load_without_a_wait_is_found() {
    // The compiler does not know that the assembly loads, and adds no wait of its own.
    let text = r#"
        u32 got;
        asm volatile(LOAD " %0, %1, off" : "=&v"(got) : "v"(x + tid()));
        if (!PLANTED) asm volatile(WAIT_LOAD(0) : "+v"(got));
        asm volatile("v_add_f32 %0, %0, %0" : "+v"(got)); // HERE
        if (bid() == 0) y[tid()] = got;"#;
    Planted::new(Bug::MissingWait, text).check(|found, _, _| {
        assert!(found.detail.contains("global_load") && found.detail.contains("is used before"), "{found}");
    });
}

#[test]
fn a_wait_that_leaves_the_newest_load_outstanding_covers_only_the_older_one() {
    let text = r#"
        u32 first, second;
        asm volatile(LOAD " %0, %2, off\n" LOAD " %1, %2, off offset:4\n" WAIT_LOAD(1)
            : "=&v"(first), "=&v"(second) : "v"(x + tid()));
        asm volatile("v_add_f32 %0, %0, %0" : "+v"(PLANTED ? second : first)); // HERE
        asm volatile(WAIT_LOAD(0) : "+v"(first), "+v"(second));
        if (bid() == 0) y[tid()] = first + second;"#;
    Planted::new(Bug::MissingWait, text).check(|found, _, _| {
        assert!(found.detail.contains("offset:4"), "{found}");
    });
}

#[test]
fn scalar_loads_complete_in_any_order() {
    let text = r#"
        u32 first, second;
#if PLANTED
        asm volatile(LOAD_SCALAR " %0, %2, 0x0\n" LOAD_SCALAR " %1, %2, 0x4\n" WAIT_SCALAR(1)
#else
        asm volatile(LOAD_SCALAR " %0, %2, 0x0\n" LOAD_SCALAR " %1, %2, 0x4\n" WAIT_SCALAR(0)
#endif
            : "=&s"(first), "=&s"(second) : "s"(x));
        asm volatile("s_add_u32 %0, %0, 1" : "+s"(first) : : "scc"); // HERE
        asm volatile(WAIT_SCALAR(0) : "+s"(first), "+s"(second));
        if (bid() == 0) y[tid()] = first + second;"#;
    Planted::new(Bug::MissingWait, text).check(|found, _, _| {
        assert!(found.detail.contains("s_load"), "{found}");
    });
}

#[test]
fn a_store_to_lds_that_is_not_complete_at_the_barrier_is_found() {
    let text = r#"
        __shared__ u32 part[256];
        u32 at = (u32)(unsigned long long)(__attribute__((address_space(3))) u32*)(part + tid());
        u32 other = (u32)(unsigned long long)(__attribute__((address_space(3))) u32*)(part + 255 - tid());
        u32 got;
        asm volatile(STORE_LDS " %0, %1" : : "v"(at), "v"(tid()) : "memory");
        if (!PLANTED) asm volatile(WAIT_LDS(0) ::: "memory");
        asm volatile(BARRIER ::: "memory");
        asm volatile(LOAD_LDS " %0, %1\n" WAIT_LDS(0) : "=&v"(got) : "v"(other) : "memory"); // HERE
        if (bid() == 0) y[tid()] = got + part[0];"#;
    Planted::new(Bug::MissingWait, text).check(|found, _, _| {
        assert!(found.detail.contains("no wait before the barrier"), "{found}");
    });
}
