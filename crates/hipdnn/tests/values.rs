//! Compares constants and layouts with an independent list from the header.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeMap;
use std::mem::{align_of, size_of};

use hipdnn::sys::*;

const HEADER: &str = include_str!("header_values.txt");

/// The names and values of the list, by enumeration.
fn header() -> BTreeMap<&'static str, BTreeMap<String, i32>> {
    let mut all: BTreeMap<&str, BTreeMap<String, i32>> = BTreeMap::new();
    let mut current = ("", "");
    for line in HEADER.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let items = if line.starts_with(' ') {
            line
        } else {
            let (group, items) = line.split_once(':').unwrap();
            current = group.split_once(' ').unwrap();
            items
        };
        for item in items.split(',').map(str::trim).filter(|item| !item.is_empty()) {
            let (value, name) = item.split_once(' ').unwrap();
            let (name, value) = (current.1.replace('*', name), value.parse().unwrap());
            assert_eq!(all.entry(current.0).or_default().insert(name, value), None, "{item} is listed twice");
        }
    }
    all
}

#[test]
fn every_number_matches_the_header() {
    let mut header = header();
    macro_rules! check {
        ($($type:ident),*) => {$(
            assert_eq!((size_of::<$type>(), align_of::<$type>()), (4, 4), "a C enumeration");
            let ours: BTreeMap<String, i32> =
                $type::ALL.iter().map(|&value| (value.name().unwrap().to_owned(), value.0)).collect();
            assert_eq!(Some(ours), header.remove(stringify!($type)), stringify!($type));
            let unknown = $type(-7);
            assert!(unknown.name().is_none() && unknown.to_string().ends_with("-7"), "an unknown value is still a value");
        )*};
    }
    check!(
        AttentionImplementation,
        AttributeName,
        AttributeType,
        BehaviorNote,
        ConvolutionMode,
        DataType,
        DescriptorType,
        DiagonalAlignment,
        HeurMode,
        LogCallbackMode,
        MoeGroupedMatmulMode,
        NormFwdPhase,
        OperationType,
        PaddingMode,
        PluginLoadingMode,
        PluginUnloadingMode,
        PointwiseMode,
        RankingOutcome,
        ReduceOp,
        ResampleMode,
        Severity,
        Status
    );
    assert!(header.is_empty(), "{:?}", header.keys());
    assert_eq!(AttributeName::ALL.len(), 328);
}

#[test]
fn handles_and_callbacks_are_as_wide_as_addresses() {
    assert_eq!(size_of::<Handle>(), size_of::<usize>());
    assert_eq!(size_of::<Descriptor>(), size_of::<usize>());
    assert_eq!(size_of::<Option<UserLogCallback>>(), size_of::<usize>());
    assert_eq!((CONTENT_GRAPH, CONTENT_EXECUTION_PLAN), (1, 2));
    assert_eq!(SYMBOLS.len(), 38);
}
