use std::fs;

use super::*;
use crate::rocm::{HIP, HIPBLASLT, HIPDNN, HIPRTC, MIGRAPHX};

/// A machine with every kind of installation.
struct Machine(tempfile::TempDir);

impl Machine {
    fn new() -> Machine {
        let machine = Machine(tempfile::tempdir().unwrap());
        for folder in
            ["therock/lib", "mine/lib", "hip/lib", "opt/rocm/lib", "opt/rocm-7.9.0/lib", "opt/rocm-7.10.0/lib"]
        {
            fs::create_dir_all(machine.path(folder)).unwrap();
        }
        for package in ["_rocm_sdk_core/lib", "_rocm_sdk_libraries/lib", "amdgpu_ep/lib"] {
            fs::create_dir_all(machine.path("site-packages").join(package)).unwrap();
        }
        machine
    }

    fn path(&self, relative: &str) -> PathBuf {
        self.0.path().join(relative)
    }

    fn context(&self) -> SearchContext {
        let roots = [("THEROCK_DIST", "therock"), ("ROCM_PATH", "mine"), ("HIP_PATH", "hip")];
        SearchContext {
            variables: roots.into_iter().map(|(name, root)| (name, self.path(root))).collect(),
            opt: Some(self.path("opt")),
            own_folder: Some(self.path("site-packages/amdgpu_ep/lib")),
            hip: None,
            plain_names: true,
        }
    }

    /// The folders to search for a library, relative to the machine's root, without consecutive duplicates.
    fn folders(&self, context: &SearchContext, library: &Library, hip: Option<&Path>) -> Vec<String> {
        let mut folders: Vec<String> = Vec::new();
        for candidate in context.candidates(library, hip) {
            let place = match candidate {
                Candidate::File(file) => file.parent().unwrap().to_owned(),
                Candidate::NoFolder(folder) => folder,
                Candidate::Plain(_) => "plain".into(),
                Candidate::Loaded(_) => "loaded".into(),
            };
            let place = place.strip_prefix(self.0.path()).unwrap_or(&place).display().to_string();
            if folders.last() != Some(&place) {
                folders.push(place);
            }
        }
        folders
    }
}

const INSTALLED: [&str; 8] = [
    "therock/lib",
    "mine/lib",
    "hip/lib",
    "opt/rocm/lib",
    "opt/rocm-7.10.0/lib",
    "opt/rocm-7.9.0/lib",
    "site-packages/_rocm_sdk_core/lib",
    "site-packages/_rocm_sdk_libraries/lib",
];

#[test]
fn every_library_is_looked_for_in_one_order() {
    let machine = Machine::new();
    let context = machine.context();
    for library in rocm::LIBRARIES {
        let first = library.is_shared.then_some("loaded");
        let want: Vec<&str> = first.into_iter().chain(INSTALLED).chain(["plain"]).collect();
        assert_eq!(machine.folders(&context, library, None), want, "{}", library.name);
    }
}

#[test]
fn siblings_of_the_hip_runtime_come_first() {
    let machine = Machine::new();
    let context = machine.context();
    let hip = machine.path("opt/rocm-7.9.0/lib/libamdhip64.so.7");
    for library in [&HIPRTC, &HIPBLASLT, &HIPDNN] {
        assert_eq!(machine.folders(&context, library, Some(&hip))[0], "opt/rocm-7.9.0/lib");
    }
    let hip = machine.path("site-packages/_rocm_sdk_core/lib/libamdhip64.so.7");
    let folders = machine.folders(&context, &HIPBLASLT, Some(&hip));
    assert_eq!(
        folders[..3],
        ["site-packages/_rocm_sdk_core/lib", "site-packages/_rocm_sdk_libraries/lib", "therock/lib"]
    );
}

#[test]
fn the_hip_runtime_of_the_process_counts_and_a_named_one_more() {
    let machine = Machine::new();
    let mut context = machine.context();
    context.hip = Some(machine.path("hip/lib/libamdhip64.so.7"));
    assert_eq!(machine.folders(&context, &MIGRAPHX, None)[1], "hip/lib");
    assert_eq!(machine.folders(&context, &HIP, None)[1], "therock/lib", "it is not its own sibling");
    context.variables.insert("AMDGPU_EP_HIP_LIBRARY", machine.path("opt/rocm/lib/libamdhip64.so.7"));
    assert_eq!(machine.folders(&context, &MIGRAPHX, None)[1], "opt/rocm/lib");
}

#[test]
fn a_named_library_is_the_only_one_tried() {
    let machine = Machine::new();
    let mut context = machine.context();
    let file = PathBuf::from("/nowhere/libamdhip64.so.7");
    context.variables.insert("AMDGPU_EP_HIP_LIBRARY", file.clone());
    context.variables.insert("AMDGPU_EP_MIGRAPHX_LIBRARY", machine.path("mine/lib"));
    assert_eq!(context.candidates(&HIP, None), [Candidate::File(file)]);
    let in_folder = MIGRAPHX.files.iter().map(|name| Candidate::File(machine.path("mine/lib").join(name)));
    assert_eq!(context.candidates(&MIGRAPHX, None), in_folder.collect::<Vec<_>>(), "a folder stands for its names");
}

#[test]
fn two_names_of_one_installation_are_looked_into_once() {
    let machine = Machine::new();
    fs::remove_dir_all(machine.path("opt/rocm")).unwrap();
    std::os::unix::fs::symlink("rocm-7.9.0", machine.path("opt/rocm")).unwrap();
    let folders = machine.folders(&machine.context(), &HIP, None);
    assert_eq!(folders[4..6], ["opt/rocm/lib", "opt/rocm-7.10.0/lib"], "{folders:?}");
    assert!(!folders.contains(&"opt/rocm-7.9.0/lib".to_owned()), "{folders:?}");
}

#[test]
fn migraphx_has_a_folder_of_its_own() {
    let machine = Machine::new();
    fs::create_dir_all(machine.path("mine/lib/migraphx/lib")).unwrap();
    let folders = machine.folders(&machine.context(), &MIGRAPHX, None);
    assert_eq!(folders[..4], ["loaded", "therock/lib", "mine/lib/migraphx/lib", "mine/lib"]);
}

#[test]
fn an_installation_that_is_missing_is_one_line() {
    let variables = [("ROCM_PATH", "/nowhere/rocm".into())].into_iter().collect();
    let context = SearchContext { variables, opt: Some("/nowhere/opt".into()), ..SearchContext::default() };
    let missing = |folder: &str| Candidate::NoFolder(folder.into());
    let want = [missing("/nowhere/rocm/lib"), missing("/nowhere/opt/rocm/lib")];
    assert_eq!(context.candidates(&HIP, None), want);
    assert_eq!(context.candidates(&MIGRAPHX, None), want);
}
