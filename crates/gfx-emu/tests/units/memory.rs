//! Device memory of tests and of a process.

use gfx_emu::Memory;

#[test]
fn owned_buffers_end_where_they_end() {
    let mut memory = Memory::owned();
    let address = memory.allocate_with(&[1, 2, 3, 4, 5]);
    assert_eq!(memory.read(address, 5), Some(vec![1, 2, 3, 4, 5]));
    assert_eq!(memory.read(address, 6), None);
    assert_eq!(memory.read(address - 1, 1), None);
    let second = memory.allocate(8);
    assert!(second > address + 4096);
    assert!(!memory.try_write(second + 7, &[1, 2]));
}

#[test]
fn addresses_of_a_process_use_the_aperture_below_its_size() {
    let mut block = vec![0u32; 4];
    let far = Box::leak(Box::new(7u32)) as *mut u32;
    // SAFETY: both allocations outlive `memory` and are used only through it meanwhile.
    let memory = unsafe { Memory::process(block.as_mut_ptr().cast(), 16) };
    memory.write(4, &5u32.to_le_bytes());
    assert_eq!(memory.read(far as u64, 4), Some(vec![7, 0, 0, 0]));
    drop(memory);
    assert_eq!(block, [0, 5, 0, 0]);
}
