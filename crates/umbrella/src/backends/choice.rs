//! The backend of a session: the first candidate that creates an execution provider.
use std::sync::Arc;

use options::Options;
use ort_ep::view::{OwnedKeyValues, OwnedSessionOptions};
use ort_ep::{BackendMemory, EpRequest, Error, ForeignEp, ForeignFactory, Result, SelectedDevice};

use super::relay::relayed;
use super::turn::Turn;
use super::{Backends, compatibility, last, memory};
use crate::context::DeviceContext;
use crate::routing::{BackendName, Candidate};
use crate::session_route::{SessionRoute, session_route};

/// A session that needs a backend.
pub(crate) struct Session<'s> {
    pub request: &'s EpRequest<'s>,
    pub options: &'s Options,
    pub context: &'s Arc<DeviceContext>,
    /// The position of `context` among the selected devices.
    pub device: Option<usize>,
}

/// A backend's execution provider.
pub(crate) struct Chosen {
    pub ep: ForeignEp,
    pub memory: BackendMemory,
    pub compatibility_prefix: String,
}

impl Backends {
    /// Creates the execution provider of a session; `None` leaves its nodes to other providers, which only `auto` may
    /// do.
    ///
    /// # Errors
    /// The options contradict each other, the backend the user named cannot be used, or it leads back to this library.
    pub fn choose(&self, session: &Session<'_>) -> Result<Option<Chosen>> {
        let _turn = Turn::begin()?;
        last::remember(None);
        let Session { options, context, .. } = session;
        let (profile, arch) = (options.profile, &context.device.info().arch);
        let SessionRoute { candidates, is_explicit } = session_route(options, arch, context.driver(), &[])?;
        let mut skipped = String::new();
        for Candidate { backend, reason } in candidates {
            let options = self.options_for(session, &backend)?;
            match self.create(session, &backend, &options) {
                Ok(ep) => {
                    last::remember(Some(&backend));
                    let line = format!("profile {profile} on {arch}: backend {backend} ({reason}){skipped}");
                    if skipped.is_empty() {
                        tracing::info!(target: "amdgpu_ep::load", "{line}");
                    } else {
                        tracing::warn!(target: "amdgpu_ep::load", "{line}");
                    }
                    let (memory, compatibility_prefix) = (memory(&backend), compatibility::prefix(&backend));
                    return Ok(Some(Chosen { ep, memory, compatibility_prefix }));
                }
                Err(error) if is_explicit => return Err(error),
                Err(error) => skipped = format!("{skipped}; skipped {backend}: {}", one_line(error.message())),
            }
        }
        tracing::warn!(
            target: "amdgpu_ep::load",
            "profile {profile} on {arch}: no usable backend; other providers run all nodes{skipped}"
        );
        Ok(None)
    }

    /// The session's options as a backend sees them.
    fn options_for(&self, session: &Session<'_>, backend: &BackendName) -> Result<OwnedSessionOptions> {
        let withheld = &session.options.withheld;
        let mut options = if withheld.is_empty() {
            session.request.options.clone_options()?
        } else {
            session.request.options.entries_where(|key| !withheld.iter().any(|withheld| withheld == key))?
        };
        if let Some(namespace) = backend.namespace() {
            // MIGraphX's options have no meaning for our own engine.
            let table = (*backend == BackendName::Hip).then_some(&options::hip::TABLE);
            let given = session.request.options.config_entries()?;
            for (key, value) in relayed(session.options, session.context.id(), namespace, table, &given)? {
                options.insert(&key, &value).map_err(|error| {
                    Error::new(error.code(), format!("could not pass the entry {key} on to {backend}: {error}"))
                })?;
            }
        }
        Ok(options)
    }

    fn create(&self, session: &Session<'_>, backend: &BackendName, options: &OwnedSessionOptions) -> Result<ForeignEp> {
        let factory = self.get(backend)?;
        let mut selected = session.device.and_then(|at| session.request.devices.get(at)).copied();
        let described = selected.map(|device| described(session, backend, &factory, device)).transpose()?;
        if let (Some(device), Some(metadata)) = (&mut selected, &described) {
            device.metadata = metadata.as_view();
        }
        let request = session.request.with(selected.into_iter().collect(), options.as_view());
        factory.create_ep(&request).map_err(|error| {
            Error::new(error.code(), format!("the backend {backend} refused the session: {}", error.message()))
        })
    }
}

/// A device's metadata as a backend sees it. A backend that is not ours gets its own metadata of the device, and a
/// plugin of the user's choice also gets what the user adds.
fn described(
    session: &Session<'_>,
    backend: &BackendName,
    factory: &ForeignFactory,
    device: SelectedDevice<'_>,
) -> Result<OwnedKeyValues> {
    let mut metadata = OwnedKeyValues::from_pairs(session.request.runtime, device.metadata.iter())?;
    if matches!(backend, BackendName::Hip | BackendName::MiGraphX) {
        return Ok(metadata);
    }
    let own = factory.device_metadata(device.hardware).unwrap_or_else(|error| {
        tracing::warn!(target: "amdgpu_ep::load", %backend, %error, "could not list its devices");
        Vec::new()
    });
    let added: &[_] = if let BackendName::Library(_) = backend { &session.options.backend_device } else { &[] };
    own.iter().chain(added).for_each(|(key, value)| metadata.insert(key, value));
    Ok(metadata)
}

/// A message as one line for the log.
fn one_line(message: &str) -> String {
    message.lines().map(str::trim).collect::<Vec<_>>().join("; ")
}
