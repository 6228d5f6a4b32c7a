//! hipDNN's enumerations as integers: a value that this code does not know yet is still valid.

/// Declares a C enumeration as a transparent integer with named constants.
macro_rules! numbers {
    ($(#[$meta:meta])* pub struct $type:ident($prefix:literal) { $($name:ident = $value:literal,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(transparent)]
        pub struct $type(pub i32);

        impl $type {
            $(
                #[doc = concat!("`", $prefix, stringify!($name), "`")]
                pub const $name: Self = Self($value);
            )*

            /// Every value with a name, in the order of the header.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            /// The header's name, without its prefix; `None` for a value that this code does not know yet.
            pub fn name(self) -> Option<&'static str> {
                match self.0 {
                    $($value => Some(stringify!($name)),)*
                    _ => None,
                }
            }
        }

        impl std::fmt::Debug for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                match self.name() {
                    Some(name) => f.write_str(name),
                    None => write!(f, concat!(stringify!($type), "({})"), self.0),
                }
            }
        }

        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                match self.name() {
                    Some(name) => write!(f, concat!($prefix, "{}"), name),
                    None => write!(f, concat!("unknown ", stringify!($type), " {}"), self.0),
                }
            }
        }
    };
}
pub(crate) use numbers;
