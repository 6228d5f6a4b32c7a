//! Server-sent events.

use std::collections::VecDeque;
use std::convert::Infallible;

use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use serde_json::Value;

use crate::failure::Failure;
use crate::generation::{Generation, Piece};

/// Turns the pieces of a generation into server-sent events.
pub trait Events: Send + 'static {
    /// The generation, `None` after its end, and the events to send next.
    fn state(&mut self) -> (&mut Option<Generation>, &mut VecDeque<Event>);

    /// Adds the events of a piece of the choice `index`.
    fn piece(&mut self, index: usize, piece: Piece);

    /// Adds the last events.
    fn end(&mut self, generation: &Generation);

    /// Adds the events that report a failure.
    fn failed(&mut self, failure: &Failure);
}

/// The next event; `None` at the end.
async fn next(source: &mut impl Events) -> Option<Event> {
    loop {
        let (generation, ready) = source.state();
        if let Some(event) = ready.pop_front() {
            return Some(event);
        }
        let mut generation = generation.take()?;
        match generation.next().await {
            Ok(Some((index, piece))) => {
                *source.state().0 = Some(generation);
                source.piece(index, piece);
            }
            Ok(None) => source.end(&generation),
            Err(failure) => source.failed(&failure),
        }
    }
}

/// A response that streams events. Dropping it drops the source, which cancels its generation.
pub fn streamed(source: impl Events) -> Response {
    let events = stream::unfold(source, |mut source| async move {
        let event = next(&mut source).await?;
        Some((Ok::<_, Infallible>(event), source))
    });
    Sse::new(events).keep_alive(KeepAlive::default()).into_response()
}

/// An event with a JSON document.
pub fn event(document: &Value) -> Event {
    Event::default().data(document.to_string())
}

/// An event with a name and a JSON document.
pub fn named(name: &str, document: &Value) -> Event {
    event(document).event(name)
}
