//! Functions for templates that the engine does not have.

use std::io::{self, Write};

use minijinja::ErrorKind;
use minijinja::value::{Kwargs, Value};
use serde::Serialize;

use super::meter::Meter;

/// JSON in Python's format, which models were trained on: a space after `,` and `:`.
pub(super) fn to_json(meter: &Meter, value: &Value, options: &Kwargs) -> Result<Value, minijinja::Error> {
    let indent: Option<usize> = options.get("indent")?;
    // Accepted but ignored: strings are never escaped to ASCII.
    let _: Option<bool> = options.get("ensure_ascii")?;
    options.assert_all_used()?;
    let failed = |error: serde_json::Error| minijinja::Error::new(ErrorKind::BadSerialization, error.to_string());
    meter.structure(value)?;
    let mut written = MeteredBuffer { meter, bytes: Vec::new() };
    match indent {
        Some(width) => {
            meter.memory(width as u64)?;
            let spaces = vec![b' '; width];
            let pretty = serde_json::ser::PrettyFormatter::with_indent(&spaces);
            value.serialize(&mut serde_json::Serializer::with_formatter(&mut written, pretty)).map_err(failed)?;
        }
        None => {
            value.serialize(&mut serde_json::Serializer::with_formatter(&mut written, Spaced)).map_err(failed)?;
        }
    }
    Ok(Value::from_safe_string(String::from_utf8_lossy(&written.bytes).into_owned()))
}

/// A buffer that counts memory as it is written.
struct MeteredBuffer<'a> {
    meter: &'a Meter,
    bytes: Vec<u8>,
}

impl Write for MeteredBuffer<'_> {
    fn write(&mut self, part: &[u8]) -> io::Result<usize> {
        // Counted twice, because the text is copied when it is complete.
        self.meter.memory(2 * part.len() as u64).map_err(io::Error::other)?;
        self.bytes.extend_from_slice(part);
        Ok(part.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

struct Spaced;

impl serde_json::ser::Formatter for Spaced {
    fn begin_array_value<W: ?Sized + Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        if first { Ok(()) } else { writer.write_all(b", ") }
    }

    fn begin_object_key<W: ?Sized + Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        if first { Ok(()) } else { writer.write_all(b", ") }
    }

    fn begin_object_value<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        writer.write_all(b": ")
    }
}

/// The current date in UTC, in the formats that templates use.
pub(super) fn strftime_now(format: &str) -> String {
    let elapsed = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    strftime(format, elapsed.as_secs())
}

fn strftime(format: &str, seconds: u64) -> String {
    const MONTHS: [&str; 12] = [
        "January",
        "February",
        "March",
        "April",
        "May",
        "June",
        "July",
        "August",
        "September",
        "October",
        "November",
        "December",
    ];
    let (year, month, day) = date(seconds / 86_400);
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    let name = MONTHS[month as usize - 1];
    let mut written = String::new();
    let mut letters = format.chars();
    while let Some(letter) = letters.next() {
        if letter != '%' {
            written.push(letter);
            continue;
        }
        match letters.next() {
            Some('Y') => written += &year.to_string(),
            Some('m') => written += &format!("{month:02}"),
            Some('d') => written += &format!("{day:02}"),
            Some('B') => written += name,
            Some('b') => written += &name[..3],
            Some('H') => written += &format!("{hour:02}"),
            Some('M') => written += &format!("{minute:02}"),
            Some('S') => written += &format!("{second:02}"),
            Some(other) => written.extend(['%', other]),
            None => written.push('%'),
        }
    }
    written
}

/// Converts days since 1970 to year, month and day, using the Gregorian calendar's 400-year cycle that begins in March.
fn date(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (cycle, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let (month, day) = ((month + 2) % 12 + 1, day - (153 * month + 2) / 5 + 1);
    (cycle * 400 + year + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_right() {
        assert_eq!(strftime("%d %b %Y", 0), "01 Jan 1970");
        assert_eq!(strftime("%Y-%m-%d %H:%M:%S", 951_827_696), "2000-02-29 12:34:56");
        assert_eq!(strftime("%B %d, 100%%%", 1_794_700_800), "November 15, 100%%%");
    }
}
