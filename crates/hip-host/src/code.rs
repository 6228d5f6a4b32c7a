//! Host code objects: shared libraries of this machine whose functions replace kernels.
//!
//! A kernel `name` is an exported C function `void name(const HostLaunch*)`, and `unsigned name_args_bytes` is the size
//! of the one structure that it takes. The simulator in crate `kernels` builds such libraries from kernel sources.

use std::collections::HashMap;
use std::ffi::{CStr, CString, c_void};
use std::sync::{Arc, Mutex};

use crate::errors::Status;

/// The argument of a kernel's function; `sim/wavesim.h` of crate `kernels` has the same structure.
#[repr(C)]
pub(crate) struct HostLaunch {
    grid: [u32; 3],
    block: [u32; 3],
    lds_bytes: u32,
    reserved: u32,
    args: *const c_void,
}
const _: () = assert!(size_of::<HostLaunch>() == 40);

type Entry = unsafe extern "C" fn(*const HostLaunch);

/// Maximum threads per block, as on GPUs.
pub(crate) const MAX_THREADS: u32 = 1024;
/// LDS per block.
pub(crate) const MAX_LDS_BYTES: u32 = 64 * 1024;

/// A loaded code object.
pub(crate) struct Module {
    image: Arc<Image>,
    /// The handles given out for its functions, by name.
    pub(crate) functions: Mutex<HashMap<CString, usize>>,
}

/// A kernel of a module.
pub(crate) struct Function {
    entry: Entry,
    args_bytes: usize,
    /// Keeps the code loaded.
    _image: Arc<Image>,
}

/// A launch with its own copy of the arguments.
pub(crate) struct Launch {
    function: Arc<Function>,
    grid: [u32; 3],
    block: [u32; 3],
    lds_bytes: u32,
    /// In words of 16 bytes, the largest alignment a structure may need.
    args: Vec<u128>,
}

impl Module {
    /// Loads a code object.
    ///
    /// # Errors
    /// 801 for code of another machine, 200 if it cannot be loaded.
    ///
    /// # Safety
    /// `image` is readable as far as its headers say, and at least for the six bytes that identify it.
    pub(crate) unsafe fn load(image: *const u8) -> Result<Arc<Self>, Status> {
        // SAFETY: guaranteed by the caller.
        let bytes = unsafe { elf_bytes(image) }?;
        let image = Arc::new(Image::open(bytes)?);
        Ok(Arc::new(Module { image, functions: Mutex::default() }))
    }

    /// A kernel by name.
    pub(crate) fn function(&self, name: &CStr) -> Result<Arc<Function>, Status> {
        let size_name = CString::new([name.to_bytes(), b"_args_bytes"].concat()).map_err(|_| Status::InvalidValue)?;
        let (entry, size) = (self.image.symbol(name)?, self.image.symbol(&size_name)?);
        // SAFETY: code objects define it as an unsigned int.
        let args_bytes = unsafe { size.cast::<u32>().read() } as usize;
        // SAFETY: code objects define their kernels with this signature.
        let entry = unsafe { std::mem::transmute::<*mut c_void, Entry>(entry) };
        Ok(Arc::new(Function { entry, args_bytes, _image: Arc::clone(&self.image) }))
    }
}

impl Function {
    /// A launch of it, with a copy of the arguments.
    ///
    /// # Errors
    /// 9 for a grid or block that no device supports.
    ///
    /// # Safety
    /// `args` is readable for the structure that the kernel takes.
    pub(crate) unsafe fn launch(
        self: &Arc<Self>,
        grid: [u32; 3],
        block: [u32; 3],
        lds_bytes: u32,
        args: *const u8,
    ) -> Result<Launch, Status> {
        let threads = block.iter().try_fold(1u32, |all, &extent| all.checked_mul(extent));
        let fits = threads.is_some_and(|threads| (1..=MAX_THREADS).contains(&threads));
        if !fits || grid.contains(&0) || lds_bytes > MAX_LDS_BYTES {
            return Err(Status::InvalidConfiguration);
        }
        let mut copy = vec![0u128; self.args_bytes.div_ceil(16)];
        // SAFETY: guaranteed by the caller; the copy has at least as much room.
        unsafe { std::ptr::copy_nonoverlapping(args, copy.as_mut_ptr().cast::<u8>(), self.args_bytes) };
        Ok(Launch { function: Arc::clone(self), grid, block, lds_bytes, args: copy })
    }
}

impl Launch {
    /// Runs the kernel.
    ///
    /// # Safety
    /// What the arguments point to is valid, as HIP requires from the caller of the launch.
    pub(crate) unsafe fn run(&self) {
        let Launch { grid, block, lds_bytes, .. } = *self;
        let launch = HostLaunch { grid, block, lds_bytes, reserved: 0, args: self.args.as_ptr().cast() };
        // SAFETY: the function is the kernel's, its library is loaded, and the arguments are as long as it says.
        unsafe { (self.function.entry)(&launch) };
    }
}

/// The bytes of a shared library of this machine; its headers give the size.
///
/// # Safety
/// Same as for [`Module::load`].
unsafe fn elf_bytes<'a>(image: *const u8) -> Result<&'a [u8], Status> {
    const HEADER: usize = 64;
    const SHARED_OBJECT: u64 = 3;
    const X86_64: u64 = 62;
    const WITHOUT_BYTES: u64 = 8;
    // SAFETY: guaranteed by the caller.
    let start = unsafe { std::slice::from_raw_parts(image, 6) };
    match start {
        [0x7f, b'E', b'L', b'F', 2, 1] => {}
        [0x7f, b'E', b'L', b'F', ..] | [b'_', b'_', b'C', b'L', ..] => return Err(Status::NotSupported),
        _ => return Err(Status::InvalidImage),
    }
    // SAFETY: a 64-bit ELF file has a header of this size.
    let header = unsafe { std::slice::from_raw_parts(image, HEADER) };
    let number = |bytes: &[u8], at: usize, width: usize| {
        bytes[at..at + width].iter().rev().fold(0u64, |value, &byte| value << 8 | u64::from(byte))
    };
    if (number(header, 16, 2), number(header, 18, 2)) != (SHARED_OBJECT, X86_64) {
        return Err(Status::NotSupported);
    }
    let sections = number(header, 40, 8) as usize;
    let (size, count) = (number(header, 58, 2) as usize, number(header, 60, 2) as usize);
    if sections == 0 || size != 64 {
        return Err(Status::InvalidImage);
    }
    // SAFETY: the header says that the table is there.
    let table = unsafe { std::slice::from_raw_parts(image.add(sections), size * count) };
    let ends = table.chunks(size).filter(|entry| number(entry, 4, 4) != WITHOUT_BYTES);
    let end = ends.map(|entry| (number(entry, 24, 8) + number(entry, 32, 8)) as usize).max().unwrap_or(0);
    // SAFETY: the headers say that this much is there.
    Ok(unsafe { std::slice::from_raw_parts(image, end.max(sections + size * count)) })
}

/// The library behind a module.
#[cfg(target_os = "linux")]
struct Image {
    library: libloading::os::unix::Library,
    /// Open while the library is loaded: the loader identifies libraries by name, and this one is named by its
    /// descriptor.
    _file: std::fs::File,
}

#[cfg(target_os = "linux")]
impl Image {
    fn open(bytes: &[u8]) -> Result<Self, Status> {
        use std::io::Write;
        use std::os::fd::{AsRawFd, FromRawFd};
        // SAFETY: the name is a C string.
        let descriptor = unsafe { libc::memfd_create(c"host-code-object".as_ptr(), libc::MFD_CLOEXEC) };
        if descriptor < 0 {
            return Err(Status::OutOfMemory);
        }
        // SAFETY: just opened, and owned by nothing else.
        let mut file = unsafe { std::fs::File::from_raw_fd(descriptor) };
        file.write_all(bytes).map_err(|_| Status::OutOfMemory)?;
        let name = format!("/proc/self/fd/{}", file.as_raw_fd());
        // SAFETY: loading a code object means asking for its code to be run.
        let library = unsafe { libloading::os::unix::Library::new(name) }.map_err(|_| Status::InvalidImage)?;
        Ok(Image { library, _file: file })
    }

    fn symbol(&self, name: &CStr) -> Result<*mut c_void, Status> {
        // SAFETY: only the address is taken; its users know what is there.
        let found = unsafe { self.library.get::<*mut c_void>(name.to_bytes_with_nul()) };
        found.map(|symbol| symbol.into_raw()).map_err(|_| Status::NotFound)
    }
}

#[cfg(not(target_os = "linux"))]
struct Image;

#[cfg(not(target_os = "linux"))]
impl Image {
    fn open(_: &[u8]) -> Result<Self, Status> {
        Err(Status::NotSupported)
    }

    fn symbol(&self, _: &CStr) -> Result<*mut c_void, Status> {
        Err(Status::NotFound)
    }
}
