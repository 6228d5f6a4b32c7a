//! Compiles a kernel at run time and launches it.
//!
//! `cargo run -p amdgpu-ep-hip --example 04-kernel -- [amd|nvidia]`
//!
//! The host driver has no compiler, so this example needs a GPU.

mod course;

use std::error::Error;
use std::ffi::c_void;
use std::process::ExitCode;
use std::ptr;

use hip::Rtc;

const SOURCE: &str = r#"
extern "C" __global__ void scale(float factor, float* x, unsigned count) {
    unsigned index = blockIdx.x * blockDim.x + threadIdx.x;
    if (index < count) x[index] *= factor;
}
"#;
const COUNT: usize = 10_000;
const BLOCK: usize = 256;

fn main() -> ExitCode {
    course::ended(launch())
}

fn launch() -> Result<(), Box<dyn Error>> {
    let device = course::device()?;

    // The compiler is a library of its own. A syntax error comes back with the compiler's log.
    let compiler = Rtc::load(device.kind())?;
    let target = compiler.target_option(&device.info().arch);
    let code = compiler.compile(SOURCE, "scale.hip", &[&target])?;
    let function = device.module(&code)?.function("scale")?;

    let numbers: Vec<f32> = (0..COUNT).map(|index| index as f32).collect();
    let mut buffer = device.alloc(COUNT * size_of::<f32>())?;
    buffer.copy_to_device(0, &numbers.iter().flat_map(|number| number.to_ne_bytes()).collect::<Vec<u8>>())?;

    // A launch takes the address of each argument.
    let (mut factor, mut address, mut count) = (0.5f32, buffer.address().as_ptr(), COUNT as u32);
    let mut arguments: [*mut c_void; 3] =
        [ptr::from_mut(&mut factor).cast(), ptr::from_mut(&mut address).cast(), ptr::from_mut(&mut count).cast()];
    let stream = device.stream()?;
    let blocks = COUNT.div_ceil(BLOCK) as u32;
    // SAFETY: the arguments have the types of the kernel's parameters, and the buffer lives until the stream is done.
    unsafe { function.launch([blocks, 1, 1], [BLOCK as u32, 1, 1], 0, stream.raw(), &mut arguments)? };
    stream.synchronize()?;

    let mut bytes = vec![0; buffer.bytes()];
    buffer.copy_to_host(0, &mut bytes)?;
    let scaled = bytes.chunks_exact(4).map(|four| f32::from_ne_bytes([four[0], four[1], four[2], four[3]]));
    assert!(scaled.zip(&numbers).all(|(scaled, number)| scaled == number * 0.5));
    println!("verified: {COUNT} numbers scaled by a kernel for {}", device.info().arch);
    Ok(())
}
