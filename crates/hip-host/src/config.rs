//! The library's settings and their environment variables.

use std::fmt::Display;
use std::path::PathBuf;

/// The maximum number of devices.
const MAX_DEVICES: usize = 8;
/// Memory of a device if the size of the RAM is unknown.
const FALLBACK_MEMORY: u64 = 4 << 30;

/// When and where stream work runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StreamMode {
    /// Work on an idle stream runs on the calling thread; work behind other work is queued.
    Immediate,
    /// All work is queued and delayed at random.
    Threads,
}

/// The settings from the environment variables in the crate documentation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Config {
    /// Bytes of memory of each device.
    pub memory: u64,
    /// Number of devices.
    pub devices: usize,
    /// When and where stream work runs.
    pub streams: StreamMode,
    /// Seed of the random delays of [`StreamMode::Threads`].
    pub seed: u64,
    /// Whether fresh memory is filled and overruns are detected.
    pub poison: bool,
    /// Features that the driver pretends to lack.
    pub lacks: Vec<Feature>,
    /// Where calls are recorded.
    pub calls: Option<PathBuf>,
    /// While this file exists, the devices are lost.
    pub lost: Option<PathBuf>,
}

/// Features that drivers may lack, especially old ones and those of emulated devices.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Feature {
    /// All device attributes are refused.
    Attributes,
    /// Stream capture and its queries are refused.
    Capture,
    /// Elapsed times of events are refused.
    EventTimes,
    /// Graphs can be created, but not launched.
    GraphLaunch,
    /// Memory sizes are reported as 0.
    MemoryInfo,
    /// Devices cannot access each other's memory.
    Peers,
    /// Host memory cannot be pinned or registered.
    Pinned,
    /// Stream-ordered allocation and its pools are refused.
    Pools,
}

impl Feature {
    const NAMES: [(&str, Feature); 8] = [
        ("attributes", Feature::Attributes),
        ("capture", Feature::Capture),
        ("event-times", Feature::EventTimes),
        ("graph-launch", Feature::GraphLaunch),
        ("memory-info", Feature::MemoryInfo),
        ("peers", Feature::Peers),
        ("pinned", Feature::Pinned),
        ("pools", Feature::Pools),
    ];

    fn parse(text: &str) -> Option<Self> {
        Self::NAMES.iter().find(|(name, _)| *name == text.trim()).map(|(_, feature)| *feature)
    }
}

impl Default for Config {
    fn default() -> Self {
        Config {
            memory: default_memory(),
            devices: 1,
            streams: StreamMode::Immediate,
            seed: 0,
            poison: false,
            lacks: Vec::new(),
            calls: None,
            lost: None,
        }
    }
}

impl Config {
    /// Reads the environment. Invalid values are reported on stderr and ignored: a driver library has no other way to
    /// report them before the first call.
    #[must_use]
    pub fn from_env() -> Self {
        Self::from_lookup(|name| std::env::var(name).ok())
    }

    fn from_lookup(lookup: impl Fn(&str) -> Option<String>) -> Self {
        let mut config = Config::default();
        let read = |name: &str, wanted: &str, apply: &mut dyn FnMut(&str) -> Option<()>| {
            let Some(text) = lookup(name) else { return };
            if !text.is_empty() && apply(text.trim()).is_none() {
                complain(name, &text, wanted);
            }
        };
        read("AMDGPU_EP_HOST_MEMORY", "a number of bytes with an optional suffix K, M or G", &mut |text| {
            config.memory = parse_bytes(text)?;
            Some(())
        });
        read("AMDGPU_EP_HOST_DEVICES", "a number from 1 to 8", &mut |text| {
            config.devices = text.parse().ok().filter(|count| (1..=MAX_DEVICES).contains(count))?;
            Some(())
        });
        read("AMDGPU_EP_HOST_STREAMS", "immediate or threads", &mut |text| {
            config.streams = match text {
                "immediate" => StreamMode::Immediate,
                "threads" => StreamMode::Threads,
                _ => return None,
            };
            Some(())
        });
        read("AMDGPU_EP_HOST_SEED", "a number", &mut |text| {
            config.seed = text.parse().ok()?;
            Some(())
        });
        read("AMDGPU_EP_HOST_POISON", "0 or 1", &mut |text| {
            config.poison = match text {
                "0" => false,
                "1" => true,
                _ => return None,
            };
            Some(())
        });
        let features = Feature::NAMES.map(|(name, _)| name).join(", ");
        read("AMDGPU_EP_HOST_LACKS", &format!("a comma-separated list of {features}"), &mut |text| {
            config.lacks = text.split(',').map(Feature::parse).collect::<Option<_>>()?;
            Some(())
        });
        read("AMDGPU_EP_HOST_CALLS", "the path of a file", &mut |text| {
            config.calls = Some(text.into());
            Some(())
        });
        read("AMDGPU_EP_HOST_LOST", "the path of a file", &mut |text| {
            config.lost = Some(text.into());
            Some(())
        });
        config
    }
}

fn complain(name: &str, found: &str, wanted: impl Display) {
    eprintln!("hip-host: {name}={found} is ignored\n  help: set it to {wanted}");
}

fn parse_bytes(text: &str) -> Option<u64> {
    let (digits, unit) = match text.char_indices().last()? {
        (at, 'k' | 'K') => (&text[..at], 1 << 10),
        (at, 'm' | 'M') => (&text[..at], 1 << 20),
        (at, 'g' | 'G') => (&text[..at], 1 << 30),
        _ => (text, 1),
    };
    digits.parse::<u64>().ok()?.checked_mul(unit)
}

fn default_memory() -> u64 {
    let total_kib = std::fs::read_to_string("/proc/meminfo").ok().and_then(|text| {
        let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
        line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()
    });
    total_kib.map_or(FALLBACK_MEMORY, |kib| kib * 1024 / 2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn from(pairs: &[(&str, &str)]) -> Config {
        Config::from_lookup(|name| pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned()))
    }

    #[test]
    fn sizes_take_binary_suffixes() {
        for (text, want) in [
            ("0", Some(0)),
            ("4096", Some(4096)),
            ("3k", Some(3072)),
            ("2M", Some(2 << 20)),
            ("5G", Some(5 << 30)),
            ("", None),
            ("G", None),
            ("-1", None),
            ("1.5G", None),
            ("99999999999999999999", None),
            ("18446744073709551615K", None),
        ] {
            assert_eq!(parse_bytes(text), want, "{text:?}");
        }
    }

    #[test]
    fn all_switches_are_read() {
        let config = from(&[
            ("AMDGPU_EP_HOST_MEMORY", "1M"),
            ("AMDGPU_EP_HOST_DEVICES", "2"),
            ("AMDGPU_EP_HOST_STREAMS", "threads"),
            ("AMDGPU_EP_HOST_SEED", "7"),
            ("AMDGPU_EP_HOST_POISON", "1"),
            ("AMDGPU_EP_HOST_LACKS", "pools, capture"),
            ("AMDGPU_EP_HOST_CALLS", "calls.txt"),
            ("AMDGPU_EP_HOST_LOST", "lost"),
        ]);
        let lacks = vec![Feature::Pools, Feature::Capture];
        let (streams, calls, lost) = (StreamMode::Threads, Some("calls.txt".into()), Some("lost".into()));
        let want = Config { memory: 1 << 20, devices: 2, streams, seed: 7, poison: true, lacks, calls, lost };
        assert_eq!(config, want);
    }

    #[test]
    fn values_out_of_range_leave_the_default() {
        let config = from(&[
            ("AMDGPU_EP_HOST_DEVICES", "9"),
            ("AMDGPU_EP_HOST_STREAMS", "sometimes"),
            ("AMDGPU_EP_HOST_MEMORY", "lots"),
            ("AMDGPU_EP_HOST_POISON", "yes"),
            ("AMDGPU_EP_HOST_SEED", ""),
            ("AMDGPU_EP_HOST_LACKS", "pools,money"),
        ]);
        assert_eq!(config, Config::default());
    }

    proptest! {
        #[test]
        fn any_text_is_handled(text in ".*") {
            for name in ["MEMORY", "DEVICES", "STREAMS", "SEED", "POISON", "LACKS"] {
                let config = from(&[(&format!("AMDGPU_EP_HOST_{name}"), &text)]);
                prop_assert!((1..=MAX_DEVICES).contains(&config.devices));
            }
        }
    }
}
