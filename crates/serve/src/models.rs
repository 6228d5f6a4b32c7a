//! The models of the server.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use textgen::embed::Embedder;
use textgen::speech::Transcriber;

use crate::failure::Failure;
use crate::footprint::Footprint;
use crate::inference::TensorModel;
use crate::pool::{Pool, PoolLimits, Resident};
use crate::queue::Queued;
use crate::served::{Loaded, Served, ServedModel};
use crate::settings::Load;
use crate::{Bytes, Error, ModelSettings, Settings};

/// Loads a model folder or an ONNX file.
pub type Loader =
    Box<dyn Fn(&Path) -> Result<Loaded, Box<dyn std::error::Error + Send + Sync>> + Send + Sync + 'static>;

/// All models, in the order of the settings.
pub struct Models {
    settings: Settings,
    entries: Vec<Entry>,
    pool: Arc<Pool<Served>>,
    /// Set when the server starts.
    loader: OnceLock<Loader>,
}

struct Entry {
    name: String,
    folder: PathBuf,
    load: Load,
    footprint: Footprint,
}

impl Models {
    pub fn new(settings: &Settings) -> Models {
        let entry = |model: &ModelSettings| Entry {
            name: model.name(),
            folder: model.folder.clone(),
            load: model.load,
            footprint: Footprint::of(model, settings),
        };
        let entries: Vec<Entry> = settings.models.iter().map(entry).collect();
        let places = entries.iter().map(|entry| (entry.load == Load::OnDemand, entry.footprint.bytes()));
        let limits =
            PoolLimits { places: settings.max_loaded, bytes: settings.memory_budget.map(|Bytes(bytes)| bytes) };
        let pool = Pool::new(places, limits, settings.idle_time());
        Models { settings: settings.clone(), pool: Arc::new(pool), entries, loader: OnceLock::new() }
    }

    /// Loads the models that are not loaded on demand, one after the other.
    pub fn start(&self, loader: Loader) -> Result<(), Error> {
        let loader = self.loader.get_or_init(|| loader);
        for (index, entry) in self.entries.iter().enumerate().filter(|(_, entry)| entry.load == Load::Start) {
            let failed = |source| Error::Load { name: entry.name.clone(), source };
            let loaded = loader(&entry.folder).map_err(failed)?;
            let served = Served::start(&entry.name, loaded, &self.settings, entry.footprint).map_err(failed)?;
            self.pool.put(index, served);
        }
        Ok(())
    }

    /// Loads a model because a request needs it.
    fn load(&self, index: usize) -> Result<Served, Failure> {
        let Entry { name, folder, footprint, .. } = &self.entries[index];
        let loader = self.loader.get().ok_or_else(|| Failure::loading(name))?;
        let served = loader(folder).and_then(|loaded| Served::start(name, loaded, &self.settings, *footprint));
        served.map_err(|error| Failure::internal(&format!("loading the model {name}"), &error))
    }

    fn index(&self, name: Option<&str>) -> Result<usize, Failure> {
        let index = match name {
            Some(name) => self.entries.iter().position(|entry| entry.name == name),
            None => (!self.entries.is_empty()).then_some(0),
        };
        index.ok_or_else(|| Failure::unknown_model(name.unwrap_or_default()))
    }

    /// The model of a request; one that is loaded on demand is loaded first.
    async fn served(self: &Arc<Self>, name: Option<&str>) -> Result<Served, Failure> {
        let index = self.index(name)?;
        let late = || Failure::loading(&self.entries[index].name);
        if self.entries[index].load == Load::Start {
            return self.pool.loaded(index).ok_or_else(late);
        }
        let models = Arc::clone(self);
        let served = self.pool.get(index, move || models.load(index));
        tokio::time::timeout(self.settings.request_time(), served).await.unwrap_or_else(|_| Err(late()))
    }

    /// The language model of a request. A request that names none gets the first model.
    pub async fn find(self: &Arc<Self>, name: Option<&str>) -> Result<Arc<ServedModel>, Failure> {
        match self.served(name).await? {
            Served::Text(model) => Ok(model),
            other => Err(other.wrong_kind("text")),
        }
    }

    /// The encoder of a request.
    pub async fn find_embedder(self: &Arc<Self>, name: Option<&str>) -> Result<Arc<Queued<Embedder>>, Failure> {
        match self.served(name).await? {
            Served::Embedder(embedder) => Ok(embedder),
            other => Err(other.wrong_kind("embeddings")),
        }
    }

    /// The speech model of a request.
    pub async fn find_transcriber(self: &Arc<Self>, name: Option<&str>) -> Result<Arc<Queued<Transcriber>>, Failure> {
        match self.served(name).await? {
            Served::Transcriber(transcriber) => Ok(transcriber),
            other => Err(other.wrong_kind("transcripts")),
        }
    }

    /// The plain model of a request.
    pub async fn find_tensors(self: &Arc<Self>, name: &str) -> Result<Arc<TensorModel>, Failure> {
        match self.served(Some(name)).await? {
            Served::Tensors(model) => Ok(model),
            other => Err(other.wrong_kind("tensors")),
        }
    }

    /// Whether a model can be used. One that is loaded on demand always can.
    pub fn is_ready(&self, name: &str) -> Result<bool, Failure> {
        let index = self.index(Some(name))?;
        let is_running = self.pool.loaded(index).is_some_and(|served| !served.has_stopped());
        Ok(is_running || self.entries[index].load == Load::OnDemand)
    }

    /// Whether all models are loaded that are not loaded on demand.
    pub fn are_loaded(&self) -> bool {
        self.at_start().all(|served| served.is_some())
    }

    /// Whether a model has stopped that is not loaded again on demand.
    pub fn has_stopped(&self) -> bool {
        self.at_start().flatten().any(|served| served.has_stopped())
    }

    fn at_start(&self) -> impl Iterator<Item = Option<Served>> {
        let entries = self.entries.iter().enumerate().filter(|(_, entry)| entry.load == Load::Start);
        entries.map(|(index, _)| self.pool.loaded(index))
    }

    /// Whether a model is being loaded on demand.
    pub fn is_loading(&self) -> bool {
        self.states().iter().any(|model| model.state == "loading")
    }

    /// Takes out what no request has used for `idle_seconds`.
    pub fn idle(&self) -> Vec<Served> {
        self.pool.idle(Instant::now())
    }

    /// The language models that are loaded.
    pub fn ready(&self) -> Vec<Arc<ServedModel>> {
        let text = |served| match served {
            Some(Served::Text(model)) => Some(model),
            _ => None,
        };
        (0..self.entries.len()).filter_map(|index| text(self.pool.loaded(index))).collect()
    }

    /// All models.
    pub fn states(&self) -> Vec<ModelState<'_>> {
        let entries = self.entries.iter().enumerate();
        let described = entries.map(|(index, entry)| {
            let (served, is_loading) = (self.pool.loaded(index), self.pool.is_loading(index));
            let state = match &served {
                Some(_) => "ready",
                None if entry.load == Load::Start || is_loading => "loading",
                None => "unloaded",
            };
            ModelState { name: &entry.name, state, bytes: self.pool.bytes(index), served }
        });
        described.collect()
    }

    /// The bytes of all models that are loaded or being loaded.
    pub fn bytes_in_use(&self) -> u64 {
        self.pool.bytes_in_use()
    }

    /// The bytes that all models may take.
    pub fn memory_budget(&self) -> Option<u64> {
        self.settings.memory_budget.map(|Bytes(bytes)| bytes)
    }
}

/// What is known about a model.
pub struct ModelState<'a> {
    pub name: &'a str,
    pub state: &'static str,
    /// An estimate until it was loaded once.
    pub bytes: u64,
    /// The model, if it is loaded.
    pub served: Option<Served>,
}
