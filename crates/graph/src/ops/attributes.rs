//! A node's attributes.
use std::collections::BTreeMap;

use crate::{Declined, Tensor};

/// The value of an attribute.
#[derive(Clone, Debug, PartialEq)]
pub enum Attribute {
    /// An integer.
    Int(i64),
    /// Integers.
    Ints(Vec<i64>),
    /// A float.
    Float(f32),
    /// Floats.
    Floats(Vec<f32>),
    /// A string.
    Text(String),
    /// Strings.
    Texts(Vec<String>),
    /// A tensor.
    Tensor(Tensor),
    /// Anything else.
    Other,
}

/// A node's attributes by name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Attributes(pub BTreeMap<String, Attribute>);

impl From<&[(&str, Attribute)]> for Attributes {
    fn from(pairs: &[(&str, Attribute)]) -> Self {
        Self(pairs.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect())
    }
}

impl Attributes {
    /// An attribute; an absent one is `None`.
    pub fn get(&self, name: &str) -> Option<&Attribute> {
        self.0.get(name)
    }

    /// An integer, or the default.
    ///
    /// # Errors
    /// It has another type.
    pub fn int(&self, name: &str, default: i64) -> Result<i64, Declined> {
        match self.get(name) {
            None => Ok(default),
            Some(Attribute::Int(value)) => Ok(*value),
            Some(other) => Err(wrong(name, "an integer", other)),
        }
    }

    /// A flag that defaults to false.
    ///
    /// # Errors
    /// See [`Attributes::flag_or`].
    pub fn flag(&self, name: &str) -> Result<bool, Declined> {
        self.flag_or(name, false)
    }

    /// A flag, or the default. Runtimes disagree on values other than 0 and 1.
    ///
    /// # Errors
    /// It is neither 0 nor 1.
    pub fn flag_or(&self, name: &str, default: bool) -> Result<bool, Declined> {
        match self.int(name, i64::from(default))? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(Declined::new(format!("attribute {name} is {other}, expected 0 or 1"))),
        }
    }

    /// A float, or the default.
    ///
    /// # Errors
    /// It has another type.
    pub fn float(&self, name: &str, default: f32) -> Result<f32, Declined> {
        match self.get(name) {
            None => Ok(default),
            Some(Attribute::Float(value)) => Ok(*value),
            Some(other) => Err(wrong(name, "a float", other)),
        }
    }

    /// A string, or the default.
    ///
    /// # Errors
    /// It has another type.
    pub fn text<'a>(&'a self, name: &str, default: &'a str) -> Result<&'a str, Declined> {
        match self.get(name) {
            None => Ok(default),
            Some(Attribute::Text(value)) => Ok(value),
            Some(other) => Err(wrong(name, "a string", other)),
        }
    }

    /// Integers, if present.
    ///
    /// # Errors
    /// They have another type.
    pub fn ints(&self, name: &str) -> Result<Option<&[i64]>, Declined> {
        match self.get(name) {
            None => Ok(None),
            Some(Attribute::Ints(values)) => Ok(Some(values)),
            Some(other) => Err(wrong(name, "integers", other)),
        }
    }

    /// Floats, if present.
    ///
    /// # Errors
    /// They have another type.
    pub fn floats(&self, name: &str) -> Result<Option<&[f32]>, Declined> {
        match self.get(name) {
            None => Ok(None),
            Some(Attribute::Floats(values)) => Ok(Some(values)),
            Some(other) => Err(wrong(name, "numbers", other)),
        }
    }

    /// Strings, if present.
    ///
    /// # Errors
    /// They have another type.
    pub fn texts(&self, name: &str) -> Result<Option<&[String]>, Declined> {
        match self.get(name) {
            None => Ok(None),
            Some(Attribute::Texts(values)) => Ok(Some(values)),
            Some(other) => Err(wrong(name, "texts", other)),
        }
    }

    /// A tensor, if present.
    ///
    /// # Errors
    /// It has another type.
    pub fn tensor(&self, name: &str) -> Result<Option<&Tensor>, Declined> {
        match self.get(name) {
            None => Ok(None),
            Some(Attribute::Tensor(value)) => Ok(Some(value)),
            Some(other) => Err(wrong(name, "a tensor", other)),
        }
    }
}

fn wrong(name: &str, wanted: &str, found: &Attribute) -> Declined {
    Declined::new(format!("attribute {name} is {found:?}, expected {wanted}"))
}
