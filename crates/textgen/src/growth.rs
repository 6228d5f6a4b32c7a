//! Limits how much a tokenizer can expand a text. Each of its steps may write more than it reads, and there may be many
//! steps.

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::Value as Json;
use tokenizers::Tokenizer;

/// Output bytes allowed for any text, however short.
const FLOOR: u64 = 8 << 20;

/// Output bytes allowed for each byte of input, on top of `FLOOR`.
const TIMES: u64 = 8;

/// Output bytes allowed when one token is decoded. No vocabulary has longer tokens.
const DECODED: u64 = 1 << 20;

/// The longest allowed token, or pair of tokens, in bytes.
const LONGEST_TOKEN: usize = 4096;

/// The largest allowed token id: it determines the size of tables.
const MAX_TOKEN_ID: u64 = 1 << 24;

/// The longest allowed word in characters. Splitting it into pieces takes quadratic time.
const MAX_WORD_CHARS: u64 = 1024;

/// The longest allowed list in a post processor.
const ADDED: usize = 256;

/// An upper bound of one step's output: `times` the input bytes, `plus` a constant.
#[derive(Clone, Copy, Debug)]
struct Step {
    times: u64,
    plus: u64,
}

/// An upper bound of a tokenizer's output.
#[derive(Clone, Debug)]
pub(crate) struct Growth {
    steps: Vec<Step>,
}

impl Growth {
    /// Reads the steps of a tokenizer.
    ///
    /// # Errors
    /// A message, when even the shortest text would exceed a limit, or a step exceeds one or is not supported.
    pub fn new(tokenizer: &Tokenizer) -> Result<Growth, String> {
        let mut steps = Vec::new();
        add(&mut steps, &json(&tokenizer.get_normalizer())?)?;
        add(&mut steps, &json(&tokenizer.get_pre_tokenizer())?)?;
        add(&mut steps, &json(&tokenizer.get_post_processor())?)?;
        let mut decoding = Vec::new();
        let decoder = json(&tokenizer.get_decoder())?;
        if has_expression(&decoder) {
            return Err("its decoder uses a regular expression, which is not supported".to_owned());
        }
        add(&mut decoding, &decoder)?;
        let decoded = bound(&decoding, LONGEST_TOKEN as u64);
        if decoded > DECODED {
            return Err(format!("its decoder can turn one token into {decoded} bytes, but the limit is {DECODED}"));
        }
        let growth = Growth { steps };
        growth.check(1)?;
        Ok(growth)
    }

    /// Whether a text of this length can be encoded.
    ///
    /// # Errors
    /// A message, when the output could become too long.
    pub fn check(&self, length: usize) -> Result<(), String> {
        let limit = FLOOR.saturating_add(TIMES.saturating_mul(length as u64));
        match bound(&self.steps, length as u64) {
            bytes if bytes <= limit => Ok(()),
            bytes => Err(format!("it can turn a text of {length} bytes into {bytes} bytes, but the limit is {limit}")),
        }
    }
}

fn bound(steps: &[Step], length: u64) -> u64 {
    steps.iter().fold(length, |length, step| length.saturating_mul(step.times).saturating_add(step.plus))
}

/// A part as the library serialises it, which does not depend on how the file wrote it.
fn json(part: &impl serde::Serialize) -> Result<Json, String> {
    serde_json::to_value(part).map_err(|error| error.to_string())
}

fn add(steps: &mut Vec<Step>, part: &Json) -> Result<(), String> {
    for list in ["normalizers", "pretokenizers", "processors", "decoders"] {
        if let Some(parts) = part[list].as_array() {
            return parts.iter().try_for_each(|part| add(steps, part));
        }
    }
    let length = |text: &Json| text.as_str().map_or(0, str::len) as u64;
    let step = |times: u64, plus: u64| Ok(Step { times, plus });
    let step: Result<Step, String> = match part["type"].as_str().unwrap_or_default() {
        "Replace" => {
            let content = length(&part["content"]);
            match length(&part["pattern"]["String"]) {
                // A regular expression may match every byte, and the empty string between two bytes.
                0 => step(1 + content, content),
                found => step(content.div_ceil(found).max(1), 0),
            }
        }
        "Prepend" => step(1, length(&part["prepend"])),
        "NFC" | "NFD" => step(4, 0),
        "NFKC" | "NFKD" => step(12, 0),
        "BertNormalizer" | "Lowercase" => step(3, 0),
        "ByteLevel" => step(2, 2),
        "Metaspace" => step(4, 4),
        "Precompiled" => step(longest_replacement(part["precompiled_charsmap"].as_str().unwrap_or_default())?, 0),
        "TemplateProcessing" => template(part),
        _ => step(1, 0),
    };
    steps.push(step?);
    Ok(())
}

/// Bytes of the longest replacement for a character. A table consists of the size of an index, the index, and texts
/// that end in a zero byte each.
fn longest_replacement(table: &str) -> Result<u64, String> {
    let table = base64::decode(table).map_err(|error| format!("its character table: {error}"))?;
    let (size, rest) = table.split_first_chunk::<4>().ok_or("its character table is empty")?;
    let size = u32::from_le_bytes(*size) as usize;
    match rest.get(size..) {
        // The library allocates as many bytes as the size says, and reads the first index entry without checking.
        Some(texts) if size >= 4 => {
            Ok(texts.split(|&byte| byte == 0).map(<[u8]>::len).max().unwrap_or(1).max(4) as u64)
        }
        _ => Err(format!("its character table has an index of {size} bytes in {}", rest.len())),
    }
}

/// The tokens added around a sentence, and how often the sentence itself is repeated.
fn template(part: &Json) -> Result<Step, String> {
    let tokens = part["special_tokens"].as_object().into_iter().flat_map(|tokens| tokens.values());
    let lists = tokens.map(|token| &token["ids"]).chain([&part["single"], &part["pair"]]);
    let largest = lists.filter_map(|list| list.as_array().map(Vec::len)).max().unwrap_or(0);
    if largest > ADDED {
        return Err(format!("its post-processor has a list of {largest} entries, but the limit is {ADDED}"));
    }
    let entries = part["single"].as_array().map(Vec::as_slice).unwrap_or_default();
    let sentences = entries.iter().filter(|entry| !entry["Sequence"].is_null()).count();
    Ok(Step { times: (sentences as u64).max(1), plus: (ADDED * ADDED) as u64 })
}

fn has_expression(decoder: &Json) -> bool {
    let mut parts = decoder["decoders"].as_array().into_iter().flatten();
    !decoder["pattern"]["Regex"].is_null() || parts.any(has_expression)
}

/// Checks the strings and numbers in a tokenizer's file before the library parses it.
///
/// # Errors
/// A message, when one exceeds a limit or the file is not JSON.
pub(crate) fn check_words(file: &[u8]) -> Result<(), String> {
    let words: Words = serde_json::from_slice(file).map_err(|error| error.to_string())?;
    let longest = words.model.longest.max(words.added_tokens.longest);
    if longest > LONGEST_TOKEN {
        return Err(format!("it has a token of {longest} bytes, but the limit is {LONGEST_TOKEN}"));
    }
    let largest = words.model.largest.max(words.added_tokens.largest);
    if largest > MAX_TOKEN_ID {
        return Err(format!("it has a token with the id {largest}, but the limit is {MAX_TOKEN_ID}"));
    }
    words.normalizer.iter().try_for_each(Normalizer::check)?;
    match words.model.longest_word {
        length if length > MAX_WORD_CHARS => {
            Err(format!("max_input_chars_per_word is {length}, but the limit is {MAX_WORD_CHARS}"))
        }
        _ => Ok(()),
    }
}

#[derive(Deserialize)]
struct Words {
    #[serde(default)]
    model: Strings,
    #[serde(default)]
    added_tokens: Strings,
    #[serde(default)]
    normalizer: Option<Normalizer>,
}

/// A normalizer or a sequence of them; only their character tables are read.
#[derive(Deserialize)]
struct Normalizer {
    precompiled_charsmap: Option<String>,
    #[serde(default)]
    normalizers: Vec<Normalizer>,
}

impl Normalizer {
    fn check(&self) -> Result<(), String> {
        self.precompiled_charsmap.iter().try_for_each(|table| longest_replacement(table).map(drop))?;
        self.normalizers.iter().try_for_each(Normalizer::check)
    }
}

/// Any JSON value. Keeps only the length of its longest string, not the strings.
#[derive(Default)]
struct Strings {
    longest: usize,
    /// The largest integer.
    largest: u64,
    /// The value of `max_input_chars_per_word`, for a map.
    longest_word: u64,
}

impl<'de> Deserialize<'de> for Strings {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Strings, D::Error> {
        deserializer.deserialize_any(StringsVisitor)
    }
}

struct StringsVisitor;

impl StringsVisitor {
    fn of(longest: usize) -> Strings {
        Strings { longest, ..Strings::default() }
    }
}

impl<'de> Visitor<'de> for StringsVisitor {
    type Value = Strings;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("JSON")
    }

    fn visit_str<E>(self, text: &str) -> Result<Strings, E> {
        Ok(Self::of(text.len()))
    }

    fn visit_bool<E>(self, _: bool) -> Result<Strings, E> {
        Ok(Self::of(0))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Strings, E> {
        Ok(Strings { largest: number, ..Strings::default() })
    }

    fn visit_i64<E>(self, _: i64) -> Result<Strings, E> {
        Ok(Self::of(0))
    }

    fn visit_f64<E>(self, _: f64) -> Result<Strings, E> {
        Ok(Self::of(0))
    }

    fn visit_unit<E>(self) -> Result<Strings, E> {
        Ok(Self::of(0))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Strings, A::Error> {
        let mut all = Self::of(0);
        while let Some(one) = list.next_element::<Strings>()? {
            all.longest = all.longest.max(one.longest);
            all.largest = all.largest.max(one.largest);
        }
        Ok(all)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Strings, A::Error> {
        let mut all = Self::of(0);
        while let Some(key) = map.next_key::<String>()? {
            let value = map.next_value::<Strings>()?;
            all.longest = all.longest.max(key.len()).max(value.longest);
            if key == "max_input_chars_per_word" {
                all.longest_word = value.largest;
            } else {
                all.largest = all.largest.max(value.largest);
            }
        }
        Ok(all)
    }
}
