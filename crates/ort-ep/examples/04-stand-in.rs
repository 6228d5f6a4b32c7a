//! A library that stands in for another plugin, here for `device_ep`.
#![deny(unsafe_code)]
#![allow(missing_docs)]
ort_ep::passthrough!("device_ep", "STAND_IN_LIBRARY");
