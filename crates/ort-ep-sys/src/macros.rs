//! The two kinds of tables of the API.

/// A table the runtime owns. Slots of the `always` block exist in every supported runtime; those of a `since` block are
/// available only if the negotiated version has them.
macro_rules! functions {
    (
        $(#[$doc:meta])*
        $table:ident
        always { $($index:literal $name:ident($($arg:ident: $ty:ty),* $(,)?) $(-> $ret:ty)?;)* }
        $(since $since:literal {
            $($new_index:literal $new_name:ident($($new_arg:ident: $new_ty:ty),* $(,)?) $(-> $new_ret:ty)?;)*
        })*
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        pub struct $table {
            table: core::ptr::NonNull<*const core::ffi::c_void>,
            version: u32,
        }

        // SAFETY: the tables are static data of the runtime, never written after it is loaded.
        unsafe impl Send for $table {}
        // SAFETY: as above; every function in them may be called from any thread unless its own contract says
        // otherwise.
        unsafe impl Sync for $table {}

        impl $table {
            /// Name, position and first API version of every function bound here.
            pub const SLOTS: &'static [(&'static str, usize, u32)] = &[
                $((stringify!($name), $index, $crate::MIN_API_VERSION),)*
                $($((stringify!($new_name), $new_index, $since),)*)*
            ];

            /// Wraps a table of the runtime.
            ///
            /// # Safety
            /// `table` is the runtime's own table of this kind, valid for as long as the result is used, and holds at
            /// least the slots of API `version`, which is not below [`MIN_API_VERSION`](crate::MIN_API_VERSION).
            pub unsafe fn from_raw(table: *const core::ffi::c_void, version: u32) -> Option<Self> {
                core::ptr::NonNull::new(table.cast_mut().cast()).map(|table| Self { table, version })
            }

            /// The negotiated API version.
            pub fn version(&self) -> u32 {
                self.version
            }

            /// The runtime's table itself.
            pub fn as_ptr(&self) -> *const core::ffi::c_void {
                self.table.as_ptr().cast()
            }

            $(
                #[inline]
                pub unsafe fn $name(&self $(, $arg: $ty)*) $(-> $ret)? {
                    // SAFETY: `from_raw`'s caller vouches for the table, and this slot is in every supported version;
                    // the caller guarantees the arguments.
                    unsafe {
                        let slot = self.table.as_ptr().add($index).read();
                        let function: unsafe extern "system" fn($($ty),*) $(-> $ret)? = core::mem::transmute(slot);
                        function($($arg),*)
                    }
                }
            )*

            $($(
                #[inline]
                pub fn $new_name(&self) -> Option<unsafe extern "system" fn($($new_arg: $new_ty),*) $(-> $new_ret)?> {
                    if self.version < $since {
                        return None;
                    }
                    // SAFETY: the version check above proves that the table reaches this slot.
                    Some(unsafe {
                        let slot = self.table.as_ptr().add($new_index).read();
                        core::mem::transmute::<
                            *const core::ffi::c_void,
                            unsafe extern "system" fn($($new_arg: $new_ty),*) $(-> $new_ret)?,
                        >(slot)
                    })
                }
            )*)*
        }
    };
}

/// A table a plugin fills: a version stamp, then one optional function per word, each pinned to its position.
macro_rules! vtable {
    (
        $(#[$doc:meta])*
        $table:ident ($stamp:ident $(, $extra:ident)?) = $words:literal words {
            $($index:literal $since:literal $name:ident($($arg:ident: $ty:ty),* $(,)?) $(-> $ret:ty)?;)*
        }
    ) => {
        $(#[$doc])*
        #[repr(C)]
        pub struct $table {
            /// The API version this struct was filled for: slots that appeared later are not read.
            pub $stamp: u32,
            $(pub $extra: u32,)?
            $(pub $name: Option<unsafe extern "system" fn($($arg: $ty),*) $(-> $ret)?>,)*
        }

        impl $table {
            /// A table with every slot empty.
            pub const fn empty(version: u32) -> Self {
                Self { $stamp: version, $($extra: 0,)? $($name: None,)* }
            }

            $(
                /// The slot, if the table's writer knew it.
                ///
                /// # Safety
                /// `this` points to a table of this kind whose memory extends as far as its version stamp says.
                #[inline]
                pub unsafe fn $name(this: *const Self) -> Option<unsafe extern "system" fn($($arg: $ty),*) $(-> $ret)?> {
                    // SAFETY: the stamp is in every version of the table; the slot is read only if the stamp covers it.
                    unsafe {
                        if (*this).$stamp < $since { None } else { (&raw const (*this).$name).read() }
                    }
                }
            )*
        }

        const _: () = {
            assert!(size_of::<$table>() == $words * 8, stringify!($table));
            $(assert!(core::mem::offset_of!($table, $name) == $index * 8, stringify!($name));)*
        };
    };
}
