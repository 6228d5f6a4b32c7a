//! Amounts of memory in settings and messages.

use std::fmt;
use std::str::FromStr;

use serde::de::{Error as _, Unexpected, Visitor};
use serde::{Deserialize, Deserializer};

/// A number of bytes. In settings it is a number, or a text with a suffix: `"512M"`, `"24G"`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bytes(pub u64);

const WRITTEN: &str = "a number of bytes, with an optional suffix K, M, G or T";

/// Suffixes and their powers of two.
const UNITS: [(char, u32); 4] = [('K', 10), ('M', 20), ('G', 30), ('T', 40)];

impl FromStr for Bytes {
    type Err = String;

    fn from_str(text: &str) -> Result<Bytes, String> {
        let unit = text.chars().next_back().map(|letter| letter.to_ascii_uppercase());
        let found = UNITS.iter().find(|(letter, _)| Some(*letter) == unit);
        let (digits, shift) = found.map_or((text, 0), |(_, shift)| (&text[..text.len() - 1], *shift));
        // `parse` alone would accept a plus sign.
        let is_plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        let bytes = digits.parse::<u64>().ok().filter(|_| is_plain).and_then(|number| number.checked_mul(1 << shift));
        bytes.map(Bytes).ok_or_else(|| format!("expected {WRITTEN}"))
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match UNITS.iter().rev().find(|(_, shift)| self.0 >> shift > 0) {
            Some((letter, shift)) => write!(f, "{:.1} {letter}iB", self.0 as f64 / (1_u64 << shift) as f64),
            None => write!(f, "{} bytes", self.0),
        }
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Bytes, D::Error> {
        struct Written;

        impl Visitor<'_> for Written {
            type Value = Bytes;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(WRITTEN)
            }

            fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<Bytes, E> {
                let wrong = || E::invalid_value(Unexpected::Signed(number), &self);
                u64::try_from(number).map(Bytes).map_err(|_| wrong())
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Bytes, E> {
                text.parse().map_err(|_| E::invalid_value(Unexpected::Str(text), &self))
            }
        }

        deserializer.deserialize_any(Written).map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suffixes_are_powers_of_two() {
        for (text, wanted) in [
            ("0", Some(0)),
            ("4096", Some(4096)),
            ("3k", Some(3072)),
            ("2M", Some(2 << 20)),
            ("24G", Some(24 << 30)),
            ("1t", Some(1 << 40)),
            ("", None),
            ("G", None),
            ("+1", None),
            ("-1", None),
            ("1.5G", None),
            ("1 G", None),
            ("1é", None),
            ("99999999T", None),
        ] {
            assert_eq!(text.parse().ok(), wanted.map(Bytes), "{text:?}");
        }
    }

    #[test]
    fn settings_are_numbers_or_texts() {
        #[derive(Debug, Deserialize)]
        struct Document {
            memory: Bytes,
        }

        let read = |text: &str| toml::from_str::<Document>(text).map(|document| document.memory);
        assert_eq!(read("memory = 1024").unwrap(), Bytes(1024));
        assert_eq!(read("memory = '1K'").unwrap(), Bytes(1024));
        for text in ["memory = -1", "memory = '1.5G'", "memory = true", "memory = 1.5"] {
            let error = read(text).unwrap_err().to_string();
            assert!(error.contains("suffix K, M, G or T"), "{text}: {error}");
        }
    }

    #[test]
    fn messages_are_for_people() {
        for (bytes, wanted) in [(0, "0 bytes"), (1023, "1023 bytes"), (1536, "1.5 KiB"), (24 << 30, "24.0 GiB")] {
            assert_eq!(Bytes(bytes).to_string(), wanted);
        }
    }
}
