//! Declares the types of reports.

/// Declares structs whose fields are the fields of the JSON objects. In tests they also know the name, the type and the
/// meaning of each field, from which the page of the documentation is written.
macro_rules! report {
    ($(
        $(#[doc = $about:literal])+
        $(#[derive($derive:ident)])?
        pub struct $name:ident {
            $($(#[doc = $meaning:literal])+ $(#[serde($($serde:tt)*)])? pub $field:ident: $type:ty,)+
        }
    )+) => {$(
        $(#[doc = $about])+
        #[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
        $(#[derive($derive)])?
        pub struct $name {
            $($(#[doc = $meaning])+ $(#[serde($($serde)*)])? pub $field: $type,)+
        }

        #[cfg(test)]
        impl crate::fields::Described for $name {
            const FIELDS: &'static [crate::fields::Field] = &[$(crate::fields::Field {
                name: stringify!($field),
                type_name: stringify!($type),
                meaning: concat!($($meaning),+),
            }),+];
        }
    )+};
}

/// A type that [`report`] declares.
#[cfg(test)]
pub(crate) trait Described {
    /// The fields, in the order of the JSON object.
    const FIELDS: &'static [Field];
}

/// A field of a JSON object.
#[cfg(test)]
pub(crate) struct Field {
    pub name: &'static str,
    /// The Rust type.
    pub type_name: &'static str,
    pub meaning: &'static str,
}
