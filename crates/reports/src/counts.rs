//! A JSON object of numbers by name, in the order in which they were written.

use std::fmt;

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Numbers by name. Unlike a map, it keeps the order of its entries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts(pub Vec<(String, usize)>);

impl Serialize for Counts {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, count)| (name, count)))
    }
}

impl<'de> Deserialize<'de> for Counts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Entries)
    }
}

struct Entries;

impl<'de> Visitor<'de> for Entries {
    type Value = Counts;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("an object of numbers")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Counts, M::Error> {
        let mut counts = Vec::new();
        while let Some(entry) = map.next_entry()? {
            counts.push(entry);
        }
        Ok(Counts(counts))
    }
}
