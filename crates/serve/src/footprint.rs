//! How much memory a model needs, estimated from its files.

use std::fs;
use std::path::{Path, PathBuf};

use textgen::Config;

use crate::{ModelSettings, Settings};

/// The size of a cache's element before the model is loaded: no folder has larger ones.
const ELEMENT_BYTES: u64 = 4;

/// The memory of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Footprint {
    /// The settings say how many bytes it needs.
    Known(u64),
    /// What its files show.
    Estimated {
        /// The size of the ONNX file and of its external data.
        weights: u64,
        /// The size of the key-value cache, if it has elements of 32 bits.
        cache: u64,
    },
}

impl Footprint {
    /// Files that cannot be read count nothing; loading them fails.
    pub fn of(model: &ModelSettings, settings: &Settings) -> Footprint {
        if let Some(memory) = model.memory {
            return Footprint::Known(memory.0);
        }
        match Config::from_folder(&model.folder) {
            Ok(config) => Footprint::Estimated { weights: weights(&config.decoder), cache: cache(&config, settings) },
            Err(_) => {
                Footprint::Estimated { weights: onnx_file(&model.folder).map_or(0, |file| weights(&file)), cache: 0 }
            }
        }
    }

    pub fn bytes(self) -> u64 {
        match self {
            Footprint::Known(bytes) => bytes,
            Footprint::Estimated { weights, cache } => weights.saturating_add(cache),
        }
    }

    /// The bytes of a model that has been loaded, whose cache has this size.
    pub fn with_cache(self, cache: u64) -> u64 {
        match self {
            Footprint::Known(bytes) => bytes,
            Footprint::Estimated { weights, .. } => weights.saturating_add(cache),
        }
    }
}

/// The size of the cache: keys and values of all slots, or of all blocks.
fn cache(config: &Config, settings: &Settings) -> u64 {
    let length = settings.max_length.unwrap_or(config.search.max_length);
    let all = settings.slots.saturating_mul(length);
    let tokens = match (config.blocks.size, settings.cache_blocks.or(config.blocks.count)) {
        (Some(size), Some(count)) => count.saturating_mul(size).clamp(length.min(all), all),
        _ => all,
    };
    let sizes = [tokens, config.layers, config.kv_heads, config.head_size];
    sizes.iter().fold(2 * ELEMENT_BYTES, |product, &size| product.saturating_mul(size as u64))
}

/// The model of an encoder's folder, of a folder with a plain model, or the file itself.
fn onnx_file(path: &Path) -> Option<PathBuf> {
    let inside = ["model.onnx", "onnx/model.onnx"].map(|name| path.join(name));
    inside.into_iter().chain([path.to_owned()]).find(|file| file.is_file())
}

/// The size of an ONNX file and of the files beside it whose names begin with its own: `model.onnx.data`,
/// `model.onnx_data_1`.
fn weights(file: &Path) -> u64 {
    let (Some(folder), Some(name)) = (file.parent(), file.file_name()) else { return 0 };
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let Ok(entries) = fs::read_dir(folder) else { return 0 };
    let belongs = |entry: &fs::DirEntry| entry.file_name().as_encoded_bytes().starts_with(name.as_encoded_bytes());
    // Folders of downloaded models contain links.
    let size =
        |entry: fs::DirEntry| fs::metadata(entry.path()).ok().filter(|found| found.is_file()).map(|found| found.len());
    entries.flatten().filter(belongs).filter_map(size).fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bytes::Bytes;

    fn folder(files: &[(&str, usize)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (name, size) in files {
            let file = folder.path().join(name);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, vec![0; *size]).unwrap();
        }
        folder
    }

    fn estimate(path: &Path) -> u64 {
        Footprint::of(&ModelSettings::parse(path.to_str().unwrap()), &Settings::default()).bytes()
    }

    #[test]
    fn external_data_counts_and_other_models_do_not() {
        let files = [("model.onnx", 5), ("model.onnx.data", 70), ("model.onnx_data_1", 800), ("model_fp16.onnx", 9000)];
        let folder = folder(&files);
        assert_eq!(estimate(folder.path()), 875);
        assert_eq!(estimate(&folder.path().join("model_fp16.onnx")), 9000);
        assert_eq!(estimate(&folder.path().join("missing.onnx")), 0);
    }

    #[test]
    fn encoders_may_keep_their_model_in_a_folder() {
        let folder = folder(&[("onnx/model.onnx", 30), ("tokenizer.json", 400)]);
        assert_eq!(estimate(folder.path()), 30);
    }

    #[test]
    fn the_cache_of_all_slots_counts() {
        let demo = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../demo/model");
        let (config, model) = (Config::from_folder(&demo).unwrap(), ModelSettings::parse(demo.to_str().unwrap()));
        let weights = fs::metadata(&config.decoder).unwrap().len();
        let row = 2 * 4 * (config.layers * config.kv_heads * config.head_size) as u64;
        for (slots, max_length, tokens) in [(1, None, config.search.max_length), (8, Some(100), 800)] {
            let settings = Settings { slots, max_length, ..Settings::default() };
            assert_eq!(Footprint::of(&model, &settings).bytes(), weights + row * tokens as u64);
        }
    }

    #[test]
    fn a_loaded_model_replaces_the_estimate_of_its_cache() {
        assert_eq!(Footprint::Estimated { weights: 10, cache: 90 }.with_cache(45), 55);
        let model = ModelSettings { memory: Some(Bytes(7)), ..ModelSettings::parse("nowhere") };
        let known = Footprint::of(&model, &Settings::default());
        assert_eq!((known.bytes(), known.with_cache(45)), (7, 7));
    }
}
