//! A plugin for the SDK's own tests, in safe code: it implements every hook of every trait.
//!
//! Each hook writes its name to the file that `HOOKS_REPORT` names, and `HOOKS_FAULT` makes one of them panic
//! (`panic:<hook>`) or fail (`fail:<hook>`). With `HOOKS_SPEAK`, a partition logs at every level. The variables are
//! read at each call, so a test can change them while a session is alive. Provider options enable the optional groups
//! of hooks; see [`settings::Settings`].
#![deny(unsafe_code)]
#![allow(missing_docs)]
mod control;
mod device;
mod ep;
mod factory;
mod profiling;
mod settings;
mod work;

use ort_ep::{Factory, Registration, Result};

ort_ep::plugin!(create, log_variable = "HOOKS_LOG");

fn create(registration: Registration<'_>) -> Result<Box<dyn Factory>> {
    control::note("create", format_args!("{} api={}", registration.name, registration.runtime.api_version()))?;
    Ok(Box::new(factory::HooksFactory::default()))
}
