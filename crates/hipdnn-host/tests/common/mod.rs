//! The library that was built with these tests, loaded like a user would load it.
#![allow(dead_code, clippy::unwrap_used, clippy::panic)]

use std::env::consts::{DLL_PREFIX, DLL_SUFFIX};
use std::path::PathBuf;
use std::sync::Arc;

use hipdnn::sys::Backend;
use hipdnn::{Loaded, Search};

/// The library that was built with these tests.
pub fn library() -> PathBuf {
    let program = std::env::current_exe().unwrap();
    let folder = program.parent().unwrap();
    let found =
        [folder, folder.parent().unwrap()].map(|folder| folder.join(format!("{DLL_PREFIX}hipdnn_host{DLL_SUFFIX}")));
    found.iter().find(|file| file.exists()).unwrap_or_else(|| panic!("none of {found:?} exists")).clone()
}

/// The backend.
pub fn backend() -> Arc<dyn Backend> {
    Arc::new(Loaded::open(&Search { place: Some(library()), ..Search::default() }).unwrap())
}
