//! The stand-in library: each row uses its own copy, so that state is not shared.

use std::ffi::{CStr, CString, c_char, c_int};
use std::fs;
use std::path::{Path, PathBuf};

use migraphx_backend::mgx::Library;
use tempfile::TempDir;

/// A private copy of the stand-in.
pub struct StandIn {
    raw: dylib::Library,
    folder: TempDir,
}

/// The stand-in that cargo built next to this test. The program's path is the first argument even under a custom
/// loader.
pub fn built() -> PathBuf {
    let program = std::env::args().next().unwrap_or_default();
    Path::new(&program).with_file_name(dylib::file_name("migraphx_standin"))
}

impl StandIn {
    /// A fresh copy.
    pub fn new() -> StandIn {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join(dylib::rocm::MIGRAPHX.files[0]);
        fs::copy(built(), &file).unwrap();
        StandIn { raw: dylib::Library::open(&file).unwrap(), folder }
    }

    /// Opens it as MIGraphX. The path of its folder is enough.
    pub fn open(&self) -> Library {
        Library::open(Some(self.folder.path())).unwrap()
    }

    /// The folder that contains its file.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub fn set(&self, setting: &str, value: &str) {
        let (setting, value) = (CString::new(setting).unwrap(), CString::new(value).unwrap());
        type Set = unsafe extern "C" fn(*const c_char, *const c_char) -> c_int;
        // SAFETY: this is the stand-in's signature for that name.
        let set = unsafe { self.raw.symbol::<Set>("migraphx_standin_set") }.unwrap();
        // SAFETY: both are C strings.
        assert_eq!(unsafe { set(setting.as_ptr(), value.as_ptr()) }, 0);
    }

    pub fn calls(&self) -> usize {
        self.number("migraphx_standin_calls")
    }

    pub fn live(&self) -> usize {
        self.number("migraphx_standin_live")
    }

    /// Asserts that every handle was freed exactly once, with the right function.
    pub fn assert_clean(&self) {
        assert_eq!((self.live(), self.number("migraphx_standin_misuses")), (0, 0), "(alive, freed wrongly)");
    }

    /// The last call that was made to fail.
    pub fn failed(&self) -> String {
        // SAFETY: this is the stand-in's signature for that name.
        let failed = unsafe { self.raw.symbol::<extern "C" fn() -> *const c_char>("migraphx_standin_failed") }.unwrap();
        // SAFETY: the stand-in returns a C string that lives until another call is made to fail.
        unsafe { CStr::from_ptr(failed()) }.to_str().unwrap().to_owned()
    }

    fn number(&self, name: &str) -> usize {
        // SAFETY: every name used here has this signature.
        let number = unsafe { self.raw.symbol::<extern "C" fn() -> usize>(name) }.unwrap();
        number()
    }
}
