//! What the Linux kernel reports about AMD GPUs: device nodes, the amdgpu module, the PCI bus.
//!
//! All paths are relative to a root, and the function that opens nodes is a parameter, so that tests can examine fake
//! machines.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::environment::Environment;

/// The machine, as reported by the kernel.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Kernel {
    /// AMD GPUs on the PCI bus.
    pub gpus: Vec<PciGpu>,
    /// Why the PCI bus could not be read.
    pub pci_error: Option<String>,
    /// Whether the amdgpu module is present, loaded or built in.
    pub amdgpu_loaded: bool,
    /// `/dev/kfd`, which every compute process opens.
    pub kfd: Node,
    /// The `/dev/dri/renderD*` nodes of AMD, or of an unknown vendor.
    pub render_nodes: Vec<Node>,
    /// Whether GPUs are accessed through a Windows host (WSL), which shows neither PCI devices nor `/dev/kfd`.
    pub wsl: bool,
    /// The type of container, if any.
    pub container: Option<String>,
}

/// A GPU on the PCI bus.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PciGpu {
    /// The address, such as `0000:03:00.0`.
    pub address: String,
    /// The device id, such as `0x744c`.
    pub device_id: String,
    /// The kernel driver that is bound to it.
    pub driver: Option<String>,
}

/// A device node.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Node {
    /// The path, even if it is missing.
    pub path: String,
    /// Whether this user can use it.
    pub access: Access,
    /// The kernel's error on opening it.
    pub reason: Option<String>,
    /// The group: a name, or a number if the group has no name here.
    pub group: Option<String>,
}

/// Whether a node can be opened for reading and writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Access {
    /// It opened.
    Usable,
    /// It does not exist.
    Missing,
    /// This user may not open it.
    Denied,
    /// Opening it failed in another way.
    Failed,
}

const AMD_VENDOR_ID: &str = "0x1002";

/// Opens a node as a compute process does.
///
/// # Errors
/// The kernel's error.
pub fn open(path: &Path) -> io::Result<()> {
    fs::OpenOptions::new().read(true).write(true).open(path).map(drop)
}

/// Examines the machine below `root`.
pub fn collect(root: &Path, environment: &Environment, open: fn(&Path) -> io::Result<()>) -> Kernel {
    let (gpus, pci_error) = match pci_gpus(&root.join("sys/bus/pci/devices")) {
        Ok(gpus) => (gpus, None),
        Err(error) => (Vec::new(), Some(error)),
    };
    let node = |path: &Path| Node::examine(root, path, open);
    Kernel {
        gpus,
        pci_error,
        amdgpu_loaded: root.join("sys/module/amdgpu").is_dir(),
        kfd: node(Path::new("dev/kfd")),
        render_nodes: render_nodes(root).iter().map(|path| node(path)).collect(),
        wsl: root.join("dev/dxg").exists(),
        container: container(root, environment),
    }
}

impl Node {
    /// `path` is relative to `root`, and is reported as if `root` were `/`.
    fn examine(root: &Path, path: &Path, open: fn(&Path) -> io::Result<()>) -> Node {
        let file = root.join(path);
        let (access, reason) = match open(&file) {
            Ok(()) => (Access::Usable, None),
            Err(error) => {
                let access = match error.kind() {
                    ErrorKind::NotFound => Access::Missing,
                    ErrorKind::PermissionDenied => Access::Denied,
                    _ => Access::Failed,
                };
                (access, Some(error.to_string()))
            }
        };
        Node { path: format!("/{}", path.display()), access, reason, group: group_of(root, &file) }
    }
}

fn line(file: &Path) -> Option<String> {
    fs::read_to_string(file).ok().map(|text| text.trim().to_owned())
}

fn sorted_entries(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut entries: Vec<PathBuf> = fs::read_dir(folder)?.flatten().map(|entry| entry.path()).collect();
    entries.sort();
    Ok(entries)
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn pci_gpus(folder: &Path) -> Result<Vec<PciGpu>, String> {
    let devices = sorted_entries(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let is_amd_gpu = |device: &PathBuf| {
        line(&device.join("vendor")).is_some_and(|vendor| vendor.eq_ignore_ascii_case(AMD_VENDOR_ID))
            && line(&device.join("class")).is_some_and(|class| is_gpu_class(&class))
    };
    let gpus = devices.into_iter().filter(is_amd_gpu).map(|device| PciGpu {
        address: file_name(&device),
        device_id: line(&device.join("device")).unwrap_or_default(),
        driver: fs::read_link(device.join("driver")).ok().map(|target| file_name(&target)),
    });
    Ok(gpus.collect())
}

/// Display controllers (`0x03....`), and processing accelerators (`0x1200..`), such as Instinct cards.
fn is_gpu_class(class: &str) -> bool {
    let digits = class.strip_prefix("0x").unwrap_or(class);
    u32::from_str_radix(digits, 16).is_ok_and(|class| class >> 16 == 0x03 || class >> 8 == 0x1200)
}

/// Render nodes, without those of other vendors' GPUs.
fn render_nodes(root: &Path) -> Vec<PathBuf> {
    let entries = sorted_entries(&root.join("dev/dri")).unwrap_or_default();
    let names = entries.iter().map(|path| file_name(path)).filter(|name| name.starts_with("renderD"));
    let may_be_amd = |name: &String| {
        let vendor = line(&root.join("sys/class/drm").join(name).join("device/vendor"));
        vendor.is_none_or(|vendor| vendor.eq_ignore_ascii_case(AMD_VENDOR_ID))
    };
    names.filter(may_be_amd).map(|name| Path::new("dev/dri").join(name)).collect()
}

#[cfg(unix)]
fn group_of(root: &Path, file: &Path) -> Option<String> {
    use std::os::unix::fs::MetadataExt;

    let id = fs::metadata(file).ok()?.gid();
    let groups = fs::read_to_string(root.join("etc/group")).unwrap_or_default();
    Some(group_name(&groups, id).unwrap_or_else(|| id.to_string()))
}

#[cfg(windows)]
fn group_of(_root: &Path, _file: &Path) -> Option<String> {
    None
}

/// The name of the group with this id in the text of `/etc/group`.
#[cfg(unix)]
fn group_name(groups: &str, id: u32) -> Option<String> {
    groups.lines().find_map(|line| {
        let mut fields = line.split(':');
        let (name, _password, number) = (fields.next()?, fields.next()?, fields.next()?);
        (number.parse() == Ok(id) && !name.is_empty()).then(|| name.to_owned())
    })
}

fn container(root: &Path, environment: &Environment) -> Option<String> {
    let named = environment.value("container").map(|name| name.to_string_lossy().into_owned());
    named
        .or_else(|| root.join(".dockerenv").exists().then(|| "docker".to_owned()))
        .or_else(|| root.join("run/.containerenv").exists().then(|| "podman".to_owned()))
        .or_else(|| environment.value("KUBERNETES_SERVICE_HOST").map(|_| "kubernetes".to_owned()))
        .or_else(|| line(&root.join("run/systemd/container")).filter(|name| !name.is_empty()))
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use proptest::prelude::*;
    use tempfile::TempDir;

    use super::*;

    /// A fake machine: files with their contents, and links with their targets.
    struct Machine(TempDir);

    impl Machine {
        fn new(files: &[(&str, &str)]) -> Machine {
            let machine = Machine(tempfile::tempdir().unwrap());
            for (path, text) in files {
                let file = machine.0.path().join(path);
                fs::create_dir_all(file.parent().unwrap()).unwrap();
                fs::write(file, text).unwrap();
            }
            machine
        }

        fn bind(self, address: &str, driver: &str) -> Machine {
            let link = self.0.path().join("sys/bus/pci/devices").join(address).join("driver");
            std::os::unix::fs::symlink(format!("../../../../bus/pci/drivers/{driver}"), link).unwrap();
            self
        }

        fn examine(&self) -> Kernel {
            collect(self.0.path(), &Environment::default(), open)
        }
    }

    const RADEON: [(&str, &str); 3] = [
        ("sys/bus/pci/devices/0000:03:00.0/vendor", "0x1002\n"),
        ("sys/bus/pci/devices/0000:03:00.0/class", "0x030000\n"),
        ("sys/bus/pci/devices/0000:03:00.0/device", "0x744c\n"),
    ];

    fn with(more: &[(&'static str, &'static str)]) -> Vec<(&'static str, &'static str)> {
        RADEON.iter().chain(more).copied().collect()
    }

    #[test]
    fn a_healthy_machine_lacks_nothing() {
        let files = with(&[
            ("sys/module/amdgpu/version", "6.8\n"),
            ("sys/class/drm/renderD128/device/vendor", "0x1002\n"),
            ("dev/kfd", ""),
            ("dev/dri/renderD128", ""),
            ("dev/dri/card0", ""),
        ]);
        let kernel = Machine::new(&files).bind("0000:03:00.0", "amdgpu").examine();
        let gpu = PciGpu { address: "0000:03:00.0".into(), device_id: "0x744c".into(), driver: Some("amdgpu".into()) };
        assert_eq!(kernel.gpus, [gpu]);
        assert!(kernel.amdgpu_loaded && !kernel.wsl && kernel.container.is_none());
        assert_eq!((kernel.kfd.path.as_str(), kernel.kfd.access), ("/dev/kfd", Access::Usable));
        let nodes: Vec<_> = kernel.render_nodes.iter().map(|node| (node.path.as_str(), node.access)).collect();
        assert_eq!(nodes, [("/dev/dri/renderD128", Access::Usable)]);
    }

    #[test]
    fn audio_functions_and_other_vendors_are_not_amd_gpus() {
        let kernel = Machine::new(&[
            ("sys/bus/pci/devices/0000:03:00.1/vendor", "0x1002\n"),
            ("sys/bus/pci/devices/0000:03:00.1/class", "0x040300\n"),
            ("sys/bus/pci/devices/0000:04:00.0/vendor", "0x10de\n"),
            ("sys/bus/pci/devices/0000:04:00.0/class", "0x030000\n"),
            ("sys/class/drm/renderD128/device/vendor", "0x10de\n"),
            ("dev/dri/renderD128", ""),
        ])
        .examine();
        assert_eq!((kernel.gpus, kernel.render_nodes, kernel.pci_error), (vec![], vec![], None));
    }

    #[test]
    fn classes_of_gpus_are_display_and_accelerator() {
        for (class, want) in [
            ("0x030000", true),
            ("0x038000", true),
            ("0x120000", true),
            ("0x040300", false),
            ("0x060400", false),
            ("", false),
        ] {
            assert_eq!(is_gpu_class(class), want, "{class}");
        }
    }

    #[test]
    fn an_empty_machine_lacks_everything_and_reports_it() {
        let kernel = Machine::new(&[]).examine();
        assert_eq!(kernel.kfd.access, Access::Missing);
        assert_eq!(kernel.kfd.group, None);
        assert!(!kernel.amdgpu_loaded);
        assert!(kernel.pci_error.unwrap().ends_with("No such file or directory (os error 2)"));
    }

    #[test]
    fn refused_node_is_denied_and_names_its_group() {
        use std::os::unix::fs::MetadataExt;
        let machine = Machine::new(&[("dev/kfd", "")]);
        let id = fs::metadata(machine.0.path().join("dev/kfd")).unwrap().gid();
        fs::create_dir(machine.0.path().join("etc")).unwrap();
        fs::write(machine.0.path().join("etc/group"), format!("wheel:x:99999:\nrender:x:{id}:someone\n")).unwrap();
        let refuse = |_: &Path| Err(io::Error::from(ErrorKind::PermissionDenied));
        let kernel = collect(machine.0.path(), &Environment::default(), refuse);
        assert_eq!((kernel.kfd.access, kernel.kfd.group.as_deref()), (Access::Denied, Some("render")));
        assert_eq!(kernel.kfd.reason.as_deref(), Some("permission denied"));
    }

    #[test]
    fn a_device_node_that_fails_for_another_reason_shows_it() {
        let machine = Machine::new(&[("dev/kfd/inside", "")]);
        let kfd = machine.examine().kfd;
        assert_eq!(kfd.access, Access::Failed);
        assert!(kfd.reason.unwrap().contains("directory"));
    }

    #[test]
    fn container_is_recognised_by_file_or_variable() {
        assert_eq!(Machine::new(&[(".dockerenv", "")]).examine().container.as_deref(), Some("docker"));
        assert_eq!(Machine::new(&[("run/.containerenv", "")]).examine().container.as_deref(), Some("podman"));
        let environment = [("container", "lxc")].into_iter().collect();
        let kernel = collect(Machine::new(&[]).0.path(), &environment, open);
        assert_eq!(kernel.container.as_deref(), Some("lxc"));
    }

    #[test]
    fn wsl_is_recognised() {
        assert!(Machine::new(&[("dev/dxg", "")]).examine().wsl);
    }

    proptest! {
        #[test]
        fn any_text_is_handled(class in ".*", groups in ".*", id: u32) {
            is_gpu_class(&class);
            group_name(&groups, id);
        }
    }
}
