//! Looks up the function pointers of a table.

use dylib::Library;

use crate::DriverKind;

/// The names of one function: HIP's, newest first, and the twin's.
#[derive(Clone, Copy)]
pub(crate) struct Names {
    /// Empty if HIP has no such function.
    pub hip: &'static [&'static str],
    /// Empty if the twin has no such function.
    pub cuda: &'static str,
}

/// The libraries that one table is filled from.
pub(crate) struct Symbols<'a> {
    pub kind: DriverKind,
    pub main: Library,
    /// `libcuda`, which contains the module functions of the twin.
    pub cuda_driver: Option<&'a Library>,
}

impl Symbols<'_> {
    /// The function with the first name that exists.
    ///
    /// # Safety
    /// `F` is a function pointer type with the C signature that the vendor declares for these names.
    pub(crate) unsafe fn find<F: Copy>(&self, names: Names) -> Option<F> {
        if self.kind != DriverKind::Nvidia {
            // SAFETY: the caller vouches for `F`.
            return names.hip.iter().filter(|name| !name.is_empty()).find_map(|name| unsafe { self.main.symbol(name) });
        }
        // Names of CUDA driver functions start with `cu` and a capital; those of the runtime, nvrtc and cublasLt do
        // not.
        let of_driver = names.cuda.strip_prefix("cu").is_some_and(|rest| rest.starts_with(char::is_uppercase));
        let library = if of_driver { self.cuda_driver? } else { &self.main };
        // SAFETY: the caller vouches for `F`.
        (!names.cuda.is_empty()).then(|| unsafe { library.symbol(names.cuda) })?
    }

    /// The name of a missing function in an error message.
    pub(crate) fn shown(&self, names: Names) -> &'static str {
        match self.kind {
            DriverKind::Nvidia => names.cuda,
            _ => names.hip.first().copied().unwrap_or_default(),
        }
    }
}

/// Declares a struct of function pointers and how to look up each one.
macro_rules! function_table {
    (
        $(#[$struct_meta:meta])* pub struct $table:ident;
        required { $( $(#[$rm:meta])* $r:ident: fn($($ra:ty),*) $(-> $rr:ty)? = [$($rh:literal),+] $rc:literal; )* }
        optional { $( $(#[$om:meta])* $o:ident: fn($($oa:ty),*) $(-> $or:ty)? = [$($oh:literal),+] $oc:literal; )* }
    ) => {
        $(#[$struct_meta])*
        pub struct $table {
            $( $(#[$rm])* pub $r: unsafe extern "C" fn($($ra),*) $(-> $rr)?, )*
            $( $(#[$om])* pub $o: Option<unsafe extern "C" fn($($oa),*) $(-> $or)?>, )*
        }

        impl $table {
            /// Fills the table, or returns the names of the required functions that are missing.
            ///
            /// # Safety
            /// The libraries in `symbols` come from the vendor (or from us) that its kind names, so that each function
            /// has the signature written in this table.
            pub(crate) unsafe fn fill(symbols: &$crate::sys::table::Symbols<'_>) -> Result<$table, Vec<&'static str>> {
                let mut missing = Vec::new();
                $(
                    let names = $crate::sys::table::Names { hip: &[$($rh),+], cuda: $rc };
                    // SAFETY: the caller vouches for the libraries; the signatures are those of the vendors' headers.
                    let $r = unsafe { symbols.find(names) };
                    if $r.is_none() {
                        missing.push(symbols.shown(names));
                    }
                )*
                // The struct expression below evaluates to `None` exactly when `missing` is not empty.
                let filled = (|| Some($table {
                    $( $r: $r?, )*
                    $(
                        // SAFETY: as above.
                        $o: unsafe { symbols.find($crate::sys::table::Names { hip: &[$($oh),+], cuda: $oc }) },
                    )*
                }))();
                filled.ok_or(missing)
            }
        }
    };
}
pub(crate) use function_table;
