//! How much a tokenizer can make of a text. Each of its steps may write more than it read, and there may be many of them.

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::Value as Json;
use tokenizers::Tokenizer;

/// Bytes that any text may become.
const FLOOR: u64 = 8 << 20;

/// How often longer texts may grow.
const TIMES: u64 = 8;

/// Bytes that the text of one token may become. Longer ones than this are in no vocabulary.
const DECODED: u64 = 1 << 20;

/// Bytes of the longest token, or of a pair of them.
const LONGEST_TOKEN: usize = 4096;

/// The largest id of a token: tables are as long as it says.
const LARGEST_ID: u64 = 1 << 24;

/// Characters of the longest word that is cut into pieces, at the cost of its square.
const LONGEST_WORD: u64 = 1024;

/// Entries of the largest list in a post processor.
const ADDED: usize = 256;

/// One step: what it can make of a number of bytes.
#[derive(Clone, Copy, Debug)]
struct Step {
    times: u64,
    plus: u64,
}

/// What a text can become at most.
#[derive(Clone, Debug)]
pub(crate) struct Growth {
    steps: Vec<Step>,
}

impl Growth {
    /// Reads the steps of a tokenizer.
    ///
    /// # Errors
    /// In words, when no text would be short enough, or a step is one that no tokenizer needs.
    pub fn new(tokenizer: &Tokenizer) -> Result<Growth, String> {
        let mut steps = Vec::new();
        add(&mut steps, &json(&tokenizer.get_normalizer())?)?;
        add(&mut steps, &json(&tokenizer.get_pre_tokenizer())?)?;
        add(&mut steps, &json(&tokenizer.get_post_processor())?)?;
        let mut decoding = Vec::new();
        let decoder = json(&tokenizer.get_decoder())?;
        if has_expression(&decoder) {
            return Err("its decoder has a regular expression, which is not supported".to_owned());
        }
        add(&mut decoding, &decoder)?;
        let decoded = bound(&decoding, LONGEST_TOKEN as u64);
        if decoded > DECODED {
            return Err(format!("its decoder can make {decoded} bytes of one token, and the limit is {DECODED}"));
        }
        let growth = Growth { steps };
        growth.check(1)?;
        Ok(growth)
    }

    /// Whether a text of this length can be encoded.
    ///
    /// # Errors
    /// In words, when it could become too long.
    pub fn check(&self, length: usize) -> Result<(), String> {
        let limit = FLOOR.saturating_add(TIMES.saturating_mul(length as u64));
        match bound(&self.steps, length as u64) {
            bytes if bytes <= limit => Ok(()),
            bytes => Err(format!("it can make {bytes} bytes of a text of {length}, and the limit is {limit}")),
        }
    }
}

fn bound(steps: &[Step], length: u64) -> u64 {
    steps.iter().fold(length, |length, step| length.saturating_mul(step.times).saturating_add(step.plus))
}

/// A part as its own library writes it, whatever the file looked like.
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
                // An expression may match a byte, and nothing between two of them.
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

/// Bytes of the longest text that a character can become. A table is the size of an index, the index, and texts that end in a
/// zero byte each.
fn longest_replacement(table: &str) -> Result<u64, String> {
    let table = base64::decode(table).map_err(|error| format!("its table of characters: {error}"))?;
    let (size, rest) = table.split_first_chunk::<4>().ok_or("its table of characters is empty")?;
    let size = u32::from_le_bytes(*size) as usize;
    match rest.get(size..) {
        // The library allocates what the size says, and reads the first entry of the index without a look.
        Some(texts) if size >= 4 => {
            Ok(texts.split(|&byte| byte == 0).map(<[u8]>::len).max().unwrap_or(1).max(4) as u64)
        }
        _ => Err(format!("its table of characters has an index of {size} bytes in {}", rest.len())),
    }
}

/// What is put around a sentence, and how often the sentence itself comes.
fn template(part: &Json) -> Result<Step, String> {
    let tokens = part["special_tokens"].as_object().into_iter().flat_map(|tokens| tokens.values());
    let lists = tokens.map(|token| &token["ids"]).chain([&part["single"], &part["pair"]]);
    let largest = lists.filter_map(|list| list.as_array().map(Vec::len)).max().unwrap_or(0);
    if largest > ADDED {
        return Err(format!("its post processor has a list of {largest} entries, and the limit is {ADDED}"));
    }
    let entries = part["single"].as_array().map(Vec::as_slice).unwrap_or_default();
    let sentences = entries.iter().filter(|entry| !entry["Sequence"].is_null()).count();
    Ok(Step { times: (sentences as u64).max(1), plus: (ADDED * ADDED) as u64 })
}

fn has_expression(decoder: &Json) -> bool {
    let mut parts = decoder["decoders"].as_array().into_iter().flatten();
    !decoder["pattern"]["Regex"].is_null() || parts.any(has_expression)
}

/// Checks the words of a tokenizer's file before anything is made of them.
///
/// # Errors
/// In words, when one is too long or the file is no JSON.
pub(crate) fn check_words(file: &[u8]) -> Result<(), String> {
    let words: Words = serde_json::from_slice(file).map_err(|error| error.to_string())?;
    let longest = words.model.longest.max(words.added_tokens.longest);
    if longest > LONGEST_TOKEN {
        return Err(format!("it has a token of {longest} bytes, and the limit is {LONGEST_TOKEN}"));
    }
    let largest = words.model.largest.max(words.added_tokens.largest);
    if largest > LARGEST_ID {
        return Err(format!("it has a token with the id {largest}, and the limit is {LARGEST_ID}"));
    }
    words.normalizer.iter().try_for_each(Normalizer::check)?;
    match words.model.longest_word {
        length if length > LONGEST_WORD => {
            Err(format!("max_input_chars_per_word is {length}, and the limit is {LONGEST_WORD}"))
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

/// A normalizer, or a sequence of them: only their tables of characters.
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

/// Any JSON: the length of the longest text in it, none of which is kept.
#[derive(Default)]
struct Strings {
    longest: usize,
    /// The largest whole number.
    largest: u64,
    /// A map's `max_input_chars_per_word`.
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
