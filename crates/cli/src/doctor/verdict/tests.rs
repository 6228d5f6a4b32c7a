use super::*;
use crate::doctor::cache::Cache;
use crate::doctor::drivers::{self, Device, DriverProbe};
use crate::doctor::environment::Settings;
use crate::doctor::kernel::PciGpu;
use crate::doctor::onnxruntime::Search;
use crate::doctor::plugin::Plugin;

/// What a machine without a HIP runtime needs.
const INSTALL_A_DRIVER: &str = if cfg!(windows) { "install AMD's display driver" } else { "install ROCm" };

fn library(role: &str, path: &str) -> drivers::Library {
    let (path, version) = (Some(path.into()), Some("7.2".into()));
    drivers::Library { role: role.into(), path, version, attempts: vec![], error: None }
}

fn driver(kind: &str, name: &str, arch: &str) -> Driver {
    let device = Device {
        name: name.into(),
        arch: arch.into(),
        pci_bus_id: Some("0000:03:00.0".into()),
        memory_bytes: 24 << 30,
        wave_size: 32,
        compute_units: 96,
        lds_bytes: 65536,
        integrated: false,
        kernels: Some("compiled".into()),
    };
    let libraries = vec![library("runtime", "/opt/rocm/lib/libamdhip64.so.7")];
    let found = DriverProbe { libraries, driver_version: Some(7), devices: vec![device], no_device_reason: None };
    Driver { kind: kind.into(), probe: Outcome::Answered, probe_detail: None, found }
}

fn node(path: &str) -> Node {
    Node { path: path.into(), access: Access::Usable, reason: None, group: Some("render".into()) }
}

fn onnxruntime_library(version: &str, api_version: Option<u32>, support: Support) -> Library {
    Library {
        place: "python3 on PATH".into(),
        path: "/python/libonnxruntime.so".into(),
        version: Some(version.into()),
        api_version,
        support,
        reason: None,
    }
}

fn set(findings: &mut Findings, variables: &[(&str, &str)]) {
    findings.environment = Settings::read(&variables.iter().copied().collect());
}

/// Every kind of conclusion.
pub(in crate::doctor) const CODES: [Code; 15] = [
    Code::Ready,
    Code::OtherDriver,
    Code::DriverFailed,
    Code::NoRuntime,
    Code::NoGpu,
    Code::NoKernelDriver,
    Code::NoDeviceNode,
    Code::NoPermission,
    Code::DevicesHidden,
    Code::NoDevice,
    Code::NoOnnxruntime,
    Code::OnnxruntimeTooOld,
    Code::OnnxruntimeBroken,
    Code::NoPlugin,
    Code::PluginBroken,
];

/// A machine where everything works.
pub(in crate::doctor) fn healthy() -> Findings {
    let mut nvidia = driver("nvidia", "", "");
    nvidia.found.devices.clear();
    nvidia.found.libraries[0].path = None;
    nvidia.found.libraries[0].error = Some("no CUDA runtime could be loaded (tried x: y)\n  help: install CUDA".into());
    Findings {
        drivers: vec![driver("amd", "Radeon", "gfx1100"), nvidia, driver("host", "CPU", "host")],
        environment: Settings::read(&Default::default()),
        kernel: Some(Kernel {
            gpus: vec![PciGpu {
                address: "0000:03:00.0".into(),
                device_id: "0x744c".into(),
                driver: Some("amdgpu".into()),
            }],
            pci_error: None,
            amdgpu_loaded: true,
            kfd: node("/dev/kfd"),
            render_nodes: vec![node("/dev/dri/renderD128")],
            wsl: false,
            container: None,
        }),
        onnxruntime: Search {
            places: vec![],
            libraries: vec![onnxruntime_library("1.31.1", Some(31), Support::Supported)],
        },
        hipdnn: Vec::new(),
        rocm: Vec::new(),
        routing: Default::default(),
        plugin: Plugin { path: Some("/lib/libamdgpu-ep.so".into()), ..Plugin::default() },
        cache: Cache { path: Some("/cache".into()), writable: true, ..Cache::default() },
    }
}

/// Like [`healthy`], but the HIP runtime lists no device.
fn no_device(change: impl FnOnce(&mut Findings, &mut Kernel)) -> Findings {
    let mut findings = healthy();
    findings.drivers[0].found.devices.clear();
    findings.drivers[0].found.no_device_reason = Some("hipGetDeviceCount: 100 (no ROCm-capable device)".into());
    let mut kernel = findings.kernel.take().unwrap();
    change(&mut findings, &mut kernel);
    findings.kernel = Some(kernel);
    findings
}

fn unload(findings: &mut Findings) {
    let runtime = &mut findings.drivers[0].found.libraries[0];
    runtime.path = None;
    runtime.error =
        Some("no HIP runtime could be loaded (tried libamdhip64.so: not found)\n  help: install ROCm".into());
    findings.drivers[0].found.no_device_reason = None;
}

#[track_caller]
fn expect(findings: &Findings, code: Code, summary: &str, next: &str) -> Verdict {
    let verdict = judge(findings);
    assert_eq!(verdict.code, code, "{verdict:?}");
    assert!(verdict.summary.contains(summary), "{verdict:?}");
    assert!(verdict.next_step.contains(next), "{verdict:?}");
    assert_eq!(verdict.exit_code, u8::from(code != Code::Ready));
    assert!(!verdict.summary.contains('\n') && !verdict.next_step.contains('\n'), "{verdict:?}");
    verdict
}

#[test]
fn healthy_machine_is_ready() {
    let verdict = expect(&healthy(), Code::Ready, "Radeon (gfx1100) with ONNX Runtime 1.31.1", "/lib/libamdgpu-ep.so");
    assert_eq!(verdict.notes, ["no backend is installed: ONNX Runtime runs every node on the CPU"]);
}

#[test]
fn missing_runtime_with_a_gpu_means_install_rocm() {
    let findings = no_device(|findings, _| unload(findings));
    let verdict = expect(&findings, Code::NoRuntime, "no HIP runtime could be loaded", INSTALL_A_DRIVER);
    assert!(verdict.notes.iter().any(|note| note.contains("AMDGPU_EP_DRIVER=host")), "{verdict:?}");
}

#[test]
fn named_runtime_that_does_not_load_is_the_thing_to_correct() {
    let findings = no_device(|findings, _| {
        unload(findings);
        set(findings, &[("AMDGPU_EP_HIP_LIBRARY", "/x/text.so")]);
    });
    expect(&findings, Code::NoRuntime, "/x/text.so", "correct AMDGPU_EP_HIP_LIBRARY");
}

#[test]
fn a_machine_without_an_amd_gpu_is_reported_whatever_is_installed() {
    let bare = |kernel: &mut Kernel| {
        kernel.gpus.clear();
        kernel.kfd.access = Access::Missing;
    };
    expect(&no_device(|_, kernel| bare(kernel)), Code::NoGpu, "no AMD GPU", "AMDGPU_EP_DRIVER=host");
    let without_runtime = no_device(|findings, kernel| {
        bare(kernel);
        unload(findings);
    });
    expect(&without_runtime, Code::NoGpu, "no AMD GPU", "AMDGPU_EP_DRIVER=host");
}

#[test]
fn kernel_driver_that_is_missing_or_another_is_named() {
    let held_by = |driver: Option<&str>, loaded: bool| {
        let driver = driver.map(str::to_owned);
        no_device(move |_, kernel| {
            kernel.gpus[0].driver = driver;
            kernel.amdgpu_loaded = loaded;
            kernel.kfd.access = Access::Missing;
        })
    };
    expect(&held_by(None, false), Code::NoKernelDriver, "not loaded", "modprobe amdgpu");
    expect(&held_by(None, true), Code::NoKernelDriver, "is not bound to the GPU", "dmesg");
    expect(&held_by(Some("vfio-pci"), true), Code::NoKernelDriver, "vfio-pci", "inside that machine");
    expect(&held_by(Some("radeon"), false), Code::NoKernelDriver, "radeon", "amdgpu supports");
}

#[test]
fn missing_kfd_in_a_container_means_pass_it_in() {
    let findings = no_device(|_, kernel| {
        kernel.kfd.access = Access::Missing;
        kernel.container = Some("docker".into());
    });
    expect(&findings, Code::NoDeviceNode, "/dev/kfd is missing", "--device=/dev/kfd --device=/dev/dri");
}

#[test]
fn missing_kfd_outside_a_container_points_to_the_kernel() {
    let findings = no_device(|_, kernel| kernel.kfd.access = Access::Missing);
    expect(&findings, Code::NoDeviceNode, "/dev/kfd is missing", "CONFIG_HSA_AMD");
}

#[test]
fn denied_nodes_name_the_group() {
    let denied = |node: &mut Node| {
        node.access = Access::Denied;
        node.reason = Some("Permission denied (os error 13)".into());
    };
    let kfd = no_device(|_, kernel| denied(&mut kernel.kfd));
    expect(&kfd, Code::NoPermission, "/dev/kfd (group render)", "usermod -aG render $USER");
    let render = no_device(|_, kernel| denied(&mut kernel.render_nodes[0]));
    expect(&render, Code::NoPermission, "/dev/dri/renderD128", "usermod -aG render");
    let contained = no_device(|_, kernel| {
        denied(&mut kernel.kfd);
        kernel.kfd.group = Some("109".into());
        kernel.container = Some("podman".into());
    });
    expect(&contained, Code::NoPermission, "/dev/kfd", "--group-add 109");
}

#[test]
fn one_usable_render_node_is_enough() {
    let findings = no_device(|_, kernel| {
        let mut denied = node("/dev/dri/renderD129");
        denied.access = Access::Denied;
        kernel.render_nodes.push(denied);
    });
    expect(&findings, Code::NoDevice, "100 (no ROCm-capable device)", "rocminfo");
}

#[test]
fn render_nodes_may_be_missing_or_fail() {
    let none = no_device(|_, kernel| kernel.render_nodes.clear());
    expect(&none, Code::NoDeviceNode, "renderD*", "dmesg");
    let failing = no_device(|_, kernel| {
        kernel.kfd.access = Access::Failed;
        kernel.kfd.reason = Some("No such device (os error 19)".into());
    });
    expect(&failing, Code::NoDeviceNode, "/dev/kfd cannot be opened: No such device", "dmesg");
}

#[test]
fn variable_that_hides_devices_is_blamed_only_when_the_kernel_side_is_fine() {
    for name in HIDING {
        for value in ["", "-1", "7"] {
            let findings = no_device(|findings, _| set(findings, &[(name, value)]));
            expect(&findings, Code::DevicesHidden, name, &format!("unset {name}"));
        }
    }
    let findings = no_device(|findings, kernel| {
        set(findings, &[("HIP_VISIBLE_DEVICES", "3")]);
        kernel.kfd.access = Access::Denied;
    });
    expect(&findings, Code::NoPermission, "/dev/kfd", "usermod");
}

#[test]
fn wsl_is_not_judged_by_its_kernel_nodes() {
    let findings = no_device(|_, kernel| {
        kernel.wsl = true;
        kernel.gpus.clear();
        kernel.kfd.access = Access::Missing;
    });
    expect(&findings, Code::NoDevice, "finds no device", "rocminfo");
}

#[test]
fn unreadable_pci_bus_does_not_mean_no_gpu() {
    let findings = no_device(|findings, kernel| {
        kernel.gpus.clear();
        kernel.pci_error = Some("permission denied".into());
        unload(findings);
    });
    expect(&findings, Code::NoRuntime, "no HIP runtime", INSTALL_A_DRIVER);
}

#[test]
fn systems_without_kernel_facts_are_judged_by_the_driver() {
    let mut findings = no_device(|_, _| {});
    findings.kernel = None;
    expect(&findings, Code::NoDevice, "finds no device", "rocminfo");
}

#[test]
fn driver_that_crashes_or_hangs_is_the_verdict() {
    for outcome in [Outcome::Crashed, Outcome::TimedOut, Outcome::Failed] {
        let mut findings = healthy();
        findings.drivers[0] = Driver {
            kind: "amd".into(),
            probe: outcome,
            probe_detail: Some("ended by SIGABRT (signal 6)".into()),
            found: DriverProbe::default(),
        };
        expect(&findings, Code::DriverFailed, "SIGABRT", "rocminfo");
        set(&mut findings, &[("HSA_OVERRIDE_GFX_VERSION", "9.9.9")]);
        expect(&findings, Code::DriverFailed, "SIGABRT", "unset HSA_OVERRIDE_GFX_VERSION (it is 9.9.9)");
    }
}

#[test]
fn crash_of_a_driver_that_is_not_used_is_a_note() {
    let mut findings = healthy();
    findings.drivers[1].probe = Outcome::Crashed;
    findings.drivers[1].probe_detail = Some("ended by SIGSEGV (signal 11)".into());
    let verdict = expect(&findings, Code::Ready, "ready", "");
    assert!(verdict.notes.contains(&"nvidia driver: ended by SIGSEGV (signal 11)".to_owned()), "{verdict:?}");
}

#[test]
fn device_without_onnxruntime_means_install_it() {
    let mut findings = healthy();
    findings.onnxruntime.libraries.clear();
    expect(&findings, Code::NoOnnxruntime, "no ONNX Runtime", "pip install -U 'onnxruntime>=1.24'");
}

#[test]
fn old_onnxruntime_is_refused_with_its_version() {
    let mut findings = healthy();
    findings.onnxruntime.libraries = vec![onnxruntime_library("1.23.2", None, Support::TooOld)];
    expect(&findings, Code::OnnxruntimeTooOld, "ONNX Runtime 1.23.2 is too old: 1.24", "pip install");
}

#[test]
fn broken_onnxruntime_says_why() {
    let mut findings = healthy();
    findings.onnxruntime.libraries = vec![onnxruntime_library("", None, Support::Broken)];
    findings.onnxruntime.libraries[0].reason = Some("file too short".into());
    expect(
        &findings,
        Code::OnnxruntimeBroken,
        "/python/libonnxruntime.so cannot be used: file too short",
        "pip install",
    );
}

#[test]
fn libraries_that_do_not_belong_together_and_a_missing_compiler_are_notes() {
    let mut findings = healthy();
    findings.rocm = crate::doctor::rocm::tests::rocm();
    findings.hipdnn = crate::doctor::hipdnn::tests::hipdnn();
    let notes = judge(&findings).notes;
    let wanted = "MIGraphX comes from a different ROCm installation than the HIP runtime: /usr/lib/libmigraphx_c.so.3";
    assert_eq!(notes[..2], [wanted, "libfusilli_plugin.so needs iree-compile, which is not on PATH"]);
}

#[test]
fn one_usable_onnxruntime_is_enough_and_the_others_are_notes() {
    let mut findings = healthy();
    findings.onnxruntime.libraries.insert(0, onnxruntime_library("1.20.0", None, Support::TooOld));
    findings.onnxruntime.libraries.push(onnxruntime_library("1.40.0", Some(31), Support::Newer));
    let verdict = expect(&findings, Code::Ready, "ONNX Runtime 1.31.1, 1.40.0", "");
    assert!(verdict.notes[0].ends_with("is ONNX Runtime 1.20.0: too old"), "{verdict:?}");
    assert!(verdict.notes[1].contains("used at API version 31"), "{verdict:?}");
}

#[test]
fn missing_or_broken_plugin_is_the_verdict() {
    let mut findings = healthy();
    findings.plugin.error = Some("it opens, but lacks CreateEpFactories".into());
    expect(&findings, Code::PluginBroken, "lacks CreateEpFactories", "install amdgpu-ep again");
    findings.plugin.path = None;
    expect(&findings, Code::NoPlugin, &format!("{} was not found", dylib::file_name("amdgpu-ep")), "AMDGPU_EP_PATH");
}

#[test]
fn the_host_driver_works_but_is_not_an_amd_gpu() {
    let mut findings = healthy();
    set(&mut findings, &[("AMDGPU_EP_DRIVER", "host")]);
    let summary = "sessions use CPU (host) with ONNX Runtime 1.31.1";
    expect(&findings, Code::OtherDriver, summary, "unset AMDGPU_EP_DRIVER to use the AMD GPU");
    findings.drivers[0].found.devices.clear();
    expect(&findings, Code::OtherDriver, summary, "AMDGPU_EP_DRIVER=amd amdgpu-ep doctor");
    assert!(!judge(&findings).next_step.contains("unset"), "there is no AMD GPU to use");
    findings.onnxruntime.libraries.clear();
    expect(&findings, Code::NoOnnxruntime, "no ONNX Runtime", "pip install");
}

#[test]
fn named_driver_that_is_missing_gives_its_own_help() {
    let mut findings = healthy();
    set(&mut findings, &[("AMDGPU_EP_DRIVER", "nvidia")]);
    expect(&findings, Code::NoRuntime, "the nvidia driver could not be loaded", "install CUDA");
    findings.drivers[1].found.libraries[0].error = None;
    findings.drivers[1].found.libraries[0].path = Some("/cuda/libcudart.so".into());
    findings.drivers[1].found.no_device_reason = Some("35 (driver too old)".into());
    expect(&findings, Code::NoDevice, "35 (driver too old)", "unset AMDGPU_EP_DRIVER");
}

#[test]
fn ignored_settings_and_other_problems_are_notes() {
    let mut findings = no_device(|findings, kernel| {
        let variables = [("AMDGPU_EP_DRIVER", "vulkan"), ("AMDGPU_EP_DRVIER", "host"), ("AMDGPU_EP_LOG", "loud")];
        set(findings, &variables);
        kernel.kfd.access = Access::Denied;
        findings.onnxruntime.libraries.clear();
        findings.cache.writable = false;
    });
    findings.drivers[2].found.devices.clear();
    let verdict = expect(&findings, Code::NoPermission, "/dev/kfd", "usermod");
    assert_eq!(
        verdict.notes,
        [
            "AMDGPU_EP_DRIVER is ignored: unknown driver \"vulkan\"; use one of amd, nvidia, host, or auto",
            "AMDGPU_EP_DRVIER is set, but this version does not read it",
            "AMDGPU_EP_LOG is ignored: it is \"loud\", expected one of error, warn, info, debug, trace, off",
            "the cache folder /cache cannot be written",
            "no ONNX Runtime was found",
        ]
    );
}
