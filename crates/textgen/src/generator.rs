//! Sequences that grow token by token.
//!
//! One rule keeps the cache correct: the tokens of a sequence and the number of tokens already run are tracked
//! separately. A step runs everything that has not run yet. So a token that was just generated runs together with the
//! tokens appended after it, and a run that fails or is cancelled changes nothing.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use ort_client::{Call, RunOptions, Tensor};

use crate::cache::Cache;
use crate::cancel::Canceller;
use crate::cross::Cross;
use crate::error::Doing;
use crate::feed::{self, Columns, Span};
use crate::provider::Attached;
use crate::sampler::{History, Sampler, TokenFilter};
use crate::sequence_feed::SequenceFeed;
use crate::states::States;
use crate::{Error, Model, Result, Sampling};

/// The maximum number of rows in a generator.
const MAX_ROWS: usize = 32;

/// The maximum size of the scores of a padded prompt.
const MAX_PADDED_BYTES: usize = 4 << 30;

/// Providers may record a step once, under an id that belongs to the generator.
const GRAPH_ID: &str = "gpu_graph_id";

static NEXT_GRAPH_ID: AtomicU32 = AtomicU32::new(1);

/// Options of a [`Generator`].
#[derive(Clone, Debug, Default)]
pub struct GeneratorOptions {
    /// Rows that are generated together; 0 means 1.
    pub batch: usize,
    /// The maximum length of a sequence, prompt included; `None` uses the model folder's value.
    pub max_length: Option<usize>,
    /// How tokens are chosen; `None` uses the model folder's settings.
    pub sampling: Option<Sampling>,
    /// Tokens that end a row, in addition to those of the model folder.
    pub end_tokens: Vec<u32>,
    /// The shape that prompts are run in.
    pub prompt_shape: PromptShape,
}

/// The shape that prompts are run in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PromptShape {
    /// `MaxLength` if the provider compiles every new shape ([`Model::has_static_shapes`]), otherwise `Exact`.
    #[default]
    Auto,
    /// No padding.
    Exact,
    /// Padded to the longest sequence, with masks of the same width: all prompts have one shape and all steps another.
    MaxLength,
}

/// Why a row ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finish {
    /// It produced an end token, which is its last token.
    EndToken,
    /// It reached the maximum length.
    MaxLength,
}

/// One or more sequences that grow together.
#[derive(Debug)]
pub struct Generator {
    model: Model,
    max_length: usize,
    static_shapes: bool,
    end_tokens: Vec<u32>,
    rows: Vec<Row>,
    columns: Columns,
    /// Columns in the sequences.
    total: usize,
    /// Columns in the cache.
    cached: usize,
    /// Columns in the sequences when the last of the cached ones ran.
    cached_at: usize,
    cache: Cache,
    states: States,
    cross: Cross,
    feed: SequenceFeed,
    call: Call,
    prompt_options: RunOptions,
    step_options: RunOptions,
    canceller: Canceller,
    sampler: Sampler,
    /// Only with one row.
    filter: Option<Box<dyn TokenFilter>>,
    /// Buffer for scores that are not 32-bit floats in the output.
    scores: Vec<f32>,
    newest: Vec<Option<u32>>,
    time_in_runs: Duration,
}

#[derive(Debug)]
struct Row {
    history: History,
    finish: Option<Finish>,
}

impl Generator {
    /// A generator with empty sequences.
    ///
    /// # Errors
    /// When an option does not fit the model, the cache cannot be allocated, or the model transcribes audio.
    pub fn new(model: &Model, options: GeneratorOptions) -> Result<Generator> {
        check_text(model)?;
        Generator::of_encoded(model, options)
    }

    /// Like [`Generator::new`], for decoders that read the output of an encoder, too.
    pub(crate) fn of_encoded(model: &Model, options: GeneratorOptions) -> Result<Generator> {
        let config = model.config();
        let batch = options.batch.max(1);
        if batch > MAX_ROWS {
            return Err(Error::request(
                format!("a batch of {batch} rows is too large"),
                format!("use at most {MAX_ROWS} rows"),
            ));
        }
        let max_length = check_max_length(model, options.max_length)?;
        let sampling = options.sampling.unwrap_or_else(|| Sampling::from(&config.search));
        sampling.check(config.vocab_size)?;
        let mut end_tokens = config.eos_tokens.clone();
        end_tokens.extend(options.end_tokens);
        check_tokens(&end_tokens, config.vocab_size)?;
        let static_shapes = model.has_static_shapes(options.prompt_shape);
        if static_shapes {
            check_padded_scores(model, batch, max_length)?;
        }
        let sampler = Sampler::new(sampling);
        let (prompt_options, step_options) = (prompt_options(model)?, step_options(model)?);
        Ok(Generator {
            call: decoder_call(model)?,
            cache: match &model.layout().paged {
                Some(paged) => Cache::in_blocks(model, max_length.div_ceil(paged.block), paged.block)?,
                None => Cache::new(model, batch, max_length, config.search.share_buffer)?,
            },
            states: States::new(model, batch)?,
            cross: Cross::new(model)?,
            feed: SequenceFeed::new(model, batch, max_length)?,
            canceller: Canceller::new(&[&prompt_options, &step_options]),
            prompt_options,
            step_options,
            model: model.clone(),
            max_length,
            static_shapes,
            end_tokens,
            rows: (0..batch).map(|_| Row { history: sampler.history(), finish: None }).collect(),
            columns: Columns { prompt: 0, lengths: vec![0; batch] },
            total: 0,
            cached: 0,
            cached_at: 0,
            sampler,
            filter: None,
            scores: Vec::new(),
            newest: Vec::with_capacity(batch),
            time_in_runs: Duration::ZERO,
        })
    }

    /// Appends tokens to the only row. Nothing runs until the next step.
    ///
    /// # Errors
    /// When there are several rows, the sequence becomes too long, or a token is not in the vocabulary.
    pub fn append(&mut self, tokens: &[u32]) -> Result<()> {
        self.append_rows(&[tokens])
    }

    /// Appends tokens to every row. With several rows this works once, while all are empty.
    ///
    /// # Errors
    /// See [`Generator::append`].
    pub fn append_rows(&mut self, rows: &[&[u32]]) -> Result<()> {
        let batch = self.rows.len();
        if rows.len() != batch {
            let help = "pass one list of tokens per row";
            return Err(Error::request(
                format!("{} rows were passed to a generator with a batch of {batch}", rows.len()),
                help,
            ));
        }
        for tokens in rows {
            check_prompt(&self.model, tokens)?;
        }
        let longest = rows.iter().map(|tokens| tokens.len()).max().unwrap_or(0);
        if self.total + longest > self.max_length {
            return Err(Error::request(
                format!("{} tokens exceed max_length, which is {}", self.total + longest, self.max_length),
                "use a larger max_length, or fewer tokens",
            ));
        }
        if batch > 1 {
            self.check_batch(rows, longest)?;
            self.columns = Columns { prompt: longest, lengths: rows.iter().map(|tokens| tokens.len()).collect() };
        }
        self.filter = None;
        for (row, tokens) in self.rows.iter_mut().zip(rows) {
            tokens.iter().for_each(|&token| row.history.push(token, false));
            row.finish = None;
        }
        self.total += longest;
        Ok(())
    }

    fn check_batch(&self, rows: &[&[u32]], longest: usize) -> Result<()> {
        if self.total > 0 {
            let help = "rewind to 0 and append whole prompts, or use one generator per row";
            return Err(Error::request("a batch accepts only one append", help));
        }
        if rows.iter().any(|tokens| tokens.is_empty()) {
            return Err(Error::request("a row of the batch is empty", "every row needs at least one token"));
        }
        if rows.iter().any(|tokens| tokens.len() != longest) {
            let layout = self.model.layout();
            let help = "use rows of equal length, or one generator per row";
            if layout.pruned {
                return Err(Error::request("this model returns scores for the last column only", help));
            }
            if let Some(state) = layout.states.first() {
                let problem = format!("padding would change the state {:?} of this model", state.past);
                return Err(Error::request(problem, help));
            }
        }
        Ok(())
    }

    /// Generates one token for every row that has not ended; ended rows get `None`. Returns `Ok(None)` when all rows
    /// have ended.
    ///
    /// # Errors
    /// When there is no prompt, ONNX Runtime fails, or the generation was cancelled. The sequences are then unchanged
    /// and can be continued.
    pub fn step(&mut self) -> Result<Option<&[Option<u32>]>> {
        if self.total == 0 {
            return Err(Error::request("there is no prompt", "append at least one token"));
        }
        if self.total >= self.max_length {
            for row in &mut self.rows {
                row.finish.get_or_insert(Finish::MaxLength);
            }
        }
        if self.rows.iter().all(|row| row.finish.is_some()) {
            return Ok(None);
        }
        let span = self.run()?;
        self.choose(span)?;
        Ok(Some(&self.newest))
    }

    /// Shortens the sequence to its first `length` tokens. A batch can only go back to 0.
    ///
    /// # Errors
    /// When the sequence is shorter, or there are several rows.
    pub fn rewind(&mut self, length: usize) -> Result<()> {
        if length > self.total {
            let problem = format!("cannot rewind a sequence of {} tokens to {length}", self.total);
            return Err(Error::request(problem, "use a smaller length"));
        }
        if self.rows.len() > 1 && length > 0 {
            return Err(Error::request(
                format!("cannot rewind a batch to {length} tokens"),
                "rewind to 0, or use one generator per row",
            ));
        }
        self.filter = None;
        for row in &mut self.rows {
            row.history.truncate(length);
            row.finish = None;
        }
        self.total = length;
        self.forget_after(length);
        if self.rows.len() > 1 {
            self.columns = Columns { prompt: 0, lengths: vec![0; self.rows.len()] };
        }
        Ok(())
    }

    /// Starts a sequence on the output of an encoder: `encode` runs it and fills the tensors, which come in the order of
    /// the model's layout. A cancellation ends that run, too.
    pub(crate) fn encode(&mut self, encode: impl FnOnce(&RunOptions, &[Tensor]) -> Result<()>) -> Result<()> {
        self.rewind(0)?;
        let encoded = self.cross.fill(&self.prompt_options, encode);
        if self.canceller.is_cancelled() {
            self.canceller.reset();
            return Err(Error::Cancelled);
        }
        encoded
    }

    /// Restricts which tokens may come next in the only row, until tokens are appended or removed.
    ///
    /// # Errors
    /// When there are several rows.
    pub fn constrain(&mut self, filter: Box<dyn TokenFilter>) -> Result<()> {
        if self.rows.len() > 1 {
            return Err(Error::request("a batch cannot be constrained", "use one generator per row"));
        }
        self.filter = Some(filter);
        Ok(())
    }

    /// The tokens of a row, prompt included.
    pub fn tokens(&self, row: usize) -> &[u32] {
        self.rows[row].history.tokens()
    }

    /// Why a row ended, if it has.
    pub fn finish(&self, row: usize) -> Option<Finish> {
        self.rows[row].finish
    }

    /// How many more tokens a sequence can take.
    pub fn room(&self) -> usize {
        self.max_length - self.total
    }

    /// Columns whose keys and values are cached.
    pub fn cached(&self) -> usize {
        self.cached
    }

    /// Time spent in ONNX Runtime so far; the rest of a step's time is spent in this crate.
    pub fn time_in_runs(&self) -> Duration {
        self.time_in_runs
    }

    /// The model.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// A handle that cancels this generator from another thread.
    pub fn canceller(&self) -> Canceller {
        self.canceller.clone()
    }

    /// The scores of all tokens in the vocabulary for the next position of the only row, before penalties. Runs the
    /// tokens that have not run yet.
    ///
    /// # Errors
    /// See [`Generator::step`].
    pub fn scores(&mut self) -> Result<&[f32]> {
        if self.total == 0 {
            return Err(Error::request("there is no prompt", "append at least one token"));
        }
        let span = self.run()?;
        let column = self.last_column(0);
        Ok(self.feed.scores(span, 0, column, &mut self.scores))
    }

    /// Runs the tokens that have not run yet, and returns the last run's span. A cancellation takes effect here,
    /// whenever it was requested.
    fn run(&mut self) -> Result<Span> {
        let ran = self.run_spans();
        if self.canceller.is_cancelled() {
            self.canceller.reset();
            return Err(Error::Cancelled);
        }
        ran
    }

    fn run_spans(&mut self) -> Result<Span> {
        // The scores after the last column are needed, so that column always runs.
        self.forget_after(self.total - 1);
        // The gaps of a batch cannot run again, so there the graph's switch between lengths is kept as it is.
        if self.rows.len() == 1 && self.model.layout().mask_width.differs(self.cached_at, self.total) {
            self.cached = 0;
        }
        loop {
            let span = self.next_span();
            self.run_span(span)?;
            if span.total == self.total {
                return Ok(span);
            }
        }
    }

    fn next_span(&self) -> Span {
        let past = self.cached;
        let new = self.total - past;
        let widths = &self.model.layout().mask_width;
        if self.static_shapes && pads_prompts(&self.model) && new > 1 {
            // Padding after cached tokens would be wrong, so appended tokens run together with all earlier ones.
            let width = widths.widest(self.total, self.max_length);
            return Span { past: 0, total: self.total, padded: width, mask: width };
        }
        // A chunk must not end at a length that means something else to the graph than the whole length does.
        let is_whole = self.rows.len() > 1 || widths.differs(past + 1, self.total);
        let chunk = self.model.config().search.chunk_size.filter(|_| !is_whole).unwrap_or(new);
        let total = past + new.min(chunk);
        // With a mask of constant shape, the provider can reuse its work from the previous step. Attention on the CPU
        // takes the mask's width as the length, so there the width is exact, unless static shapes are required.
        let reused = self.static_shapes || self.model.layout().cache_place.is_some();
        let one_shape = self.cache.is_shared() && total - past == 1 && reused;
        let mask = if one_shape { widths.widest(total, self.max_length) } else { total };
        Span { past, total, padded: total - past, mask }
    }

    fn run_span(&mut self, span: Span) -> Result<()> {
        let Generator { rows, columns, feed, cache, model, .. } = self;
        let pad = model.config().pad_token;
        feed.write(model.layout(), span, columns, |row, column| {
            // A row that has ended has no token in this column.
            let token = columns.position(row, column).and_then(|position| rows[row].history.tokens().get(position));
            token.copied().unwrap_or(pad)
        })?;
        cache.prepare(span.past, span.total)?;
        let options = if span.padded == 1 { &self.step_options } else { &self.prompt_options };
        let (inputs, logits) = self.feed.tensors();
        let inputs = inputs.chain(self.cache.past()).chain(self.states.past(span.past == 0));
        let inputs = inputs.chain(self.cross.tensors()?);
        let outputs = self.cache.present().chain(self.states.present());
        let start = Instant::now();
        let ran = self.call.run(self.model.session(), options, inputs, logits, outputs);
        self.time_in_runs += start.elapsed();
        match ran {
            Err(_) if self.canceller.is_cancelled() => return Err(Error::Cancelled),
            other => other.doing("running the model")?,
        }
        self.feed.check()?;
        self.cache.advance();
        self.states.advance();
        (self.cached, self.cached_at) = (span.total, span.total);
        Ok(())
    }

    fn choose(&mut self, span: Span) -> Result<()> {
        self.newest.clear();
        for index in 0..self.rows.len() {
            let column = self.last_column(index);
            let row = &mut self.rows[index];
            if row.finish.is_some() {
                self.newest.push(None);
                continue;
            }
            let scores = self.feed.scores(span, index, column, &mut self.scores);
            if let Some(filter) = &mut self.filter {
                filter.filter(scores)?;
            }
            let token = self.sampler.choose(scores, &row.history, &self.end_tokens);
            if let Some(filter) = &mut self.filter {
                filter.accept(token)?;
            }
            row.history.push(token, true);
            if self.end_tokens.contains(&token) {
                row.finish = Some(Finish::EndToken);
            } else if self.total + 1 >= self.max_length {
                row.finish = Some(Finish::MaxLength);
            }
            self.newest.push(Some(token));
        }
        self.total += 1;
        Ok(())
    }

    /// The last column of a row that is not padding.
    fn last_column(&self, row: usize) -> usize {
        let prompt = self.columns.prompt;
        if self.total <= prompt { self.columns.lengths[row] - 1 } else { self.total - 1 }
    }

    /// Drops columns after `length` from the cache. Separate tensors and states cannot be shortened, so they are dropped
    /// entirely.
    fn forget_after(&mut self, length: usize) {
        if self.cached > length {
            // The gaps of a batch are in the prompt, so the prompt always runs as a whole.
            let can_shorten = self.cache.is_shared() && self.model.layout().states.is_empty();
            let keeps = can_shorten && (self.rows.len() == 1 || length >= self.columns.prompt);
            self.cached = if keeps { length } else { 0 };
        }
    }
}

/// Whether prompts of the model can be padded: the cache has space for the padding, the model returns scores for every
/// token, and no state would change.
pub(crate) fn pads_prompts(model: &Model) -> bool {
    let layout = model.layout();
    model.config().search.share_buffer && !layout.pruned && layout.states.is_empty() && layout.paged.is_none()
}

/// A padded prompt has scores for every token up to the maximum length. For models with a long context, these do not
/// fit in memory.
pub(crate) fn check_padded_scores(model: &Model, batch: usize, max_length: usize) -> Result<()> {
    let (layout, words) = (model.layout(), model.config().vocab_size);
    let bytes = [max_length, words, layout.logits.bytes()].iter().try_fold(batch, |bytes, &by| bytes.checked_mul(by));
    if !pads_prompts(model) || layout.last_alone || bytes.is_some_and(|bytes| bytes <= MAX_PADDED_BYTES) {
        return Ok(());
    }
    Err(Error::request(
        format!("prompts padded to max_length, {max_length}, need more than {} GiB for scores", MAX_PADDED_BYTES >> 30),
        "use a smaller max_length (--max-length), or exact prompts (--prompt-shape exact), which are compiled for \
         every length",
    ))
}

/// Checks tokens that a caller wants to run.
pub(crate) fn check_prompt(model: &Model, tokens: &[u32]) -> Result<()> {
    check_tokens(tokens, model.config().vocab_size)?;
    let embedded = model.layout().embedded;
    match tokens.iter().find(|&&token| token as usize >= embedded) {
        None => Ok(()),
        Some(token) => {
            let help = format!("the model reads token ids below {embedded}; others stand for what is not text");
            Err(Error::request(format!("token {token} has no embedding"), help))
        }
    }
}

pub(crate) fn check_tokens(tokens: &[u32], vocab_size: usize) -> Result<()> {
    match tokens.iter().find(|&&token| token as usize >= vocab_size) {
        None => Ok(()),
        Some(token) => {
            let help = format!("the vocabulary has {vocab_size} tokens (model.vocab_size)");
            Err(Error::request(format!("token {token} is not in the vocabulary"), help))
        }
    }
}

/// Options of runs that a provider does not record.
pub(crate) fn prompt_options(model: &Model) -> Result<RunOptions> {
    options_with_graph(model, "-1")
}

/// Options of runs that a provider may record once: they all have the same shapes and addresses.
pub(crate) fn step_options(model: &Model) -> Result<RunOptions> {
    options_with_graph(model, &NEXT_GRAPH_ID.fetch_add(1, Ordering::Relaxed).to_string())
}

fn options_with_graph(model: &Model, id: &str) -> Result<RunOptions> {
    let mut entries = model.config().run_entries.clone();
    if matches!(model.attached(), Attached::Plugin { .. }) {
        entries.push((GRAPH_ID.to_owned(), id.to_owned()));
    }
    RunOptions::new(model.runtime(), &entries).doing("creating run options")
}

/// Checks that a text is all that the model reads.
pub(crate) fn check_text(model: &Model) -> Result<()> {
    if model.layout().cross.is_empty() {
        return Ok(());
    }
    Err(Error::request(
        "this model transcribes audio: its decoder reads the output of an encoder",
        "use `amdgpu-ep transcribe`, or textgen::speech::Transcriber",
    ))
}

/// The call that runs the decoder. Inputs: those of a [`SequenceFeed`], the cache, the states and the encoder's output.
/// Outputs: the logits, the cache and the states.
pub(crate) fn decoder_call(model: &Model) -> Result<Call> {
    let (caches, states) = (&model.layout().caches, &model.layout().states);
    let inputs = feed::input_names(model).chain(caches.iter().map(|cache| cache.past.as_str()));
    let inputs = inputs.chain(states.iter().map(|state| state.past.as_str()));
    let inputs = inputs.chain(model.layout().cross.iter().map(|cross| cross.past.as_str()));
    let outputs = caches.iter().map(|cache| cache.present.as_str());
    let outputs = outputs.chain(states.iter().map(|state| state.present.as_str()));
    let outputs = std::iter::once(model.config().names.logits.as_str()).chain(outputs);
    Call::new(inputs, outputs).doing("preparing the inputs and outputs")
}

/// Checks the maximum length that a caller asks for.
pub(crate) fn check_max_length(model: &Model, asked: Option<usize>) -> Result<usize> {
    let config = model.config();
    let max_length = asked.unwrap_or(config.search.max_length);
    if max_length == 0 || max_length > config.context_length {
        let help = format!("model.context_length is {}", config.context_length);
        return Err(Error::request(format!("max_length is {max_length}"), help));
    }
    Ok(max_length)
}
