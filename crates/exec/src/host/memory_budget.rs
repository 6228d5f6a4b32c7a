//! How much memory a run on the host may take.
//!
//! Linux overcommits memory and kills the process that uses too much. So a plan is compared with the available memory
//! before anything is allocated.
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use graph::plan::Budget;
use hip::DriverKind;

use crate::memory::Purpose;

/// A tensor that is read but not stored may be this many times as large as the device's memory: broadcasts into
/// reductions are common, and hours of work for a small request are not.
pub(crate) const WALKED: usize = 4;

/// The memory of the host device.
#[derive(Default)]
pub(super) struct HostMemory {
    /// The driver that reports the size (`AMDGPU_EP_HOST_MEMORY`), if there is one.
    device: OnceLock<Option<hip::Device>>,
}

impl HostMemory {
    /// How much a plan may take right now.
    pub fn budget(&self) -> Budget {
        let device = self.device.get_or_init(|| {
            let driver = hip::Driver::load(DriverKind::Host).ok()?;
            driver.devices().ok()?.into_iter().next()
        });
        // A driver that does not know the size returns 0.
        let total = device.as_ref().and_then(|device| device.memory_info().ok()).map(|info| info.total);
        let total = total.filter(|&bytes| bytes > 0).unwrap_or(usize::MAX);
        // The memory of finished runs is reused by the next ones.
        let ours = Purpose::Arena.usage().now;
        let free = available(Path::new("/")).map_or(usize::MAX, |bytes| bytes.saturating_add(ours));
        Budget { held: total, arena: total.min(free), walked: total.saturating_mul(WALKED) }
    }
}

/// Bytes that the machine and every control group of this process can still provide; `None` if unknown.
fn available(root: &Path) -> Option<usize> {
    let text = |path: PathBuf| fs::read_to_string(path).ok();
    let machine = text(root.join("proc/meminfo")).and_then(|text| Some(field(&text, "MemAvailable:")? << 10));
    let groups = text(root.join("proc/self/cgroup")).unwrap_or_default();
    let groups = groups.lines().filter_map(|line| {
        let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
        let (mount, group) = match controllers {
            "" => ("sys/fs/cgroup", Group::V2),
            "memory" => ("sys/fs/cgroup/memory", Group::V1),
            _ => return None,
        };
        let folder = root.join(mount).join(path.trim_start_matches('/'));
        // A limit applies to all groups below it; in a container, the process's own group may be the mount itself.
        folder.ancestors().take_while(|at| at.starts_with(root.join(mount))).filter_map(|at| group.left(at)).min()
    });
    machine.into_iter().chain(groups).min()
}

/// The two versions of control groups (cgroups).
#[derive(Clone, Copy)]
enum Group {
    V1,
    V2,
}

impl Group {
    /// The remaining memory of the group in a folder. Its page cache can be reclaimed, so it counts as free.
    fn left(self, folder: &Path) -> Option<usize> {
        let (limit, used, cached) = match self {
            Self::V1 => ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
            Self::V2 => ("memory.max", "memory.current", "inactive_file"),
        };
        let number = |name: &str| fs::read_to_string(folder.join(name)).ok()?.trim().parse::<usize>().ok();
        let cached = fs::read_to_string(folder.join("memory.stat")).ok().and_then(|text| field(&text, cached));
        let (limit, used) = (number(limit)?, number(used)?);
        Some(limit.saturating_sub(used.saturating_sub(cached.unwrap_or(0))))
    }
}

/// The number after a name at the start of a line.
fn field(text: &str, name: &str) -> Option<usize> {
    text.lines().find_map(|line| {
        let mut words = line.split_ascii_whitespace();
        (words.next()? == name).then(|| words.next()?.parse().ok())?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let file = root.path().join(name);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        }
        root
    }

    const MEMINFO: (&str, &str) = ("proc/meminfo", "MemTotal: 64 kB\nMemAvailable:      40 kB\n");

    #[test]
    fn the_tightest_group_decides() {
        let root = machine(&[
            MEMINFO,
            ("proc/self/cgroup", "4:memory:/pod/box\n0::/job/task\n"),
            ("sys/fs/cgroup/job/memory.max", "30000\n"),
            ("sys/fs/cgroup/job/memory.current", "10000\n"),
            ("sys/fs/cgroup/job/memory.stat", "anon 9\ninactive_file 2000\n"),
            ("sys/fs/cgroup/job/task/memory.max", "max\n"),
            ("sys/fs/cgroup/job/task/memory.current", "9000\n"),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
            ("sys/fs/cgroup/memory/memory.usage_in_bytes", "9000\n"),
        ]);
        assert_eq!(available(root.path()), Some(22000));
    }

    #[test]
    fn without_groups_the_machines_memory_is_the_limit() {
        assert_eq!(available(machine(&[MEMINFO]).path()), Some(40 << 10));
        assert_eq!(available(machine(&[]).path()), None);
    }
}
