//! The common structure of all views.

/// A borrowed object of the runtime, compared by identity.
macro_rules! view {
    ($(#[$doc:meta])* $name:ident($raw:ident)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        pub struct $name<'a> {
            runtime: crate::Runtime,
            raw: *const ort_ep_sys::$raw,
            life: std::marker::PhantomData<&'a ()>,
        }

        impl $name<'_> {
            /// Views an object of the runtime.
            ///
            /// # Safety
            /// `raw` is a live object of `runtime` and stays so for the view's lifetime.
            pub(crate) unsafe fn from_raw(runtime: crate::Runtime, raw: *const ort_ep_sys::$raw) -> Self {
                Self { runtime, raw, life: std::marker::PhantomData }
            }

            /// The runtime's own pointer.
            pub fn as_ptr(self) -> *const ort_ep_sys::$raw {
                self.raw
            }
        }

        impl PartialEq for $name<'_> {
            fn eq(&self, other: &Self) -> bool {
                std::ptr::eq(self.raw, other.raw)
            }
        }

        impl Eq for $name<'_> {}

        impl std::hash::Hash for $name<'_> {
            fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
                self.raw.hash(state);
            }
        }
    };
}

/// `call!(runtime.api, Graph_GetName(raw, &mut out))`: calls the runtime and turns its status into a `Result`.
macro_rules! call {
    ($runtime:expr, $function:ident($($argument:expr),* $(,)?)) => {
        $runtime.check(stringify!($function), $runtime.api.$function($($argument),*))
    };
}

/// Reads the parts of a view with a pair of functions: one for their number, one for the parts themselves.
macro_rules! parts {
    ($view:ident, $count:ident, $fill:ident) => {
        $crate::view::read::list(
            $view.runtime,
            [stringify!($count), stringify!($fill)],
            ::std::ptr::null(),
            // SAFETY: `from_raw`'s caller vouches for the view; the out-pointer is `list`'s.
            |count| unsafe { $view.runtime.api.$count($view.raw, count) },
            // SAFETY: as above; the list has the given length.
            |parts, len| unsafe { $view.runtime.api.$fill($view.raw, parts, len) },
        )
    };
}
