//! Renders the report as text.

mod libraries;

use std::fmt::{self, Write};

use super::drivers::{Driver, grouped};
use super::kernel::{Access, Kernel, Node};
use super::onnxruntime::Support;
use super::routing::Step;
use super::{Findings, Report};
use crate::child::Outcome;
use crate::table;

/// The complete report: the verdict, followed by the findings.
pub fn text(report: &Report) -> String {
    let mut text = String::new();
    // Writing to a `String` cannot fail.
    let _ = write(&mut text, report);
    text
}

fn write(out: &mut String, report: &Report) -> fmt::Result {
    let findings = &report.findings;
    let verdict = &report.verdict;
    writeln!(out, "amdgpu-ep {}\n", report.version)?;
    writeln!(out, "Verdict: {}", verdict.summary)?;
    writeln!(out, "Next:    {}", verdict.next_step)?;
    verdict.notes.iter().try_for_each(|note| writeln!(out, "Note:    {note}"))?;
    drivers(out, findings)?;
    environment(out, findings)?;
    if let Some(found) = &findings.kernel {
        kernel(out, found)?;
    }
    onnxruntime(out, findings)?;
    libraries::rocm(out, findings)?;
    libraries::hipdnn(out, findings)?;
    plugin(out, findings)?;
    routing(out, findings)?;
    cache(out, findings)
}

/// Whether a driver is relevant to the user. CUDA is not, unless the user asked for it or it is installed.
fn is_shown(findings: &Findings, kind: &str) -> bool {
    let environment = &findings.environment;
    let is_asked_for =
        || environment.session_driver == kind || environment.set("AMDGPU_EP_CUDA_LIBRARY_PATH").is_some();
    let is_found = || {
        let driver = findings.drivers.iter().find(|driver| driver.kind == kind);
        driver.is_some_and(|driver| driver.is_loaded() || driver.probe != Outcome::Answered)
    };
    kind != "nvidia" || is_asked_for() || is_found()
}

fn table<const N: usize>(out: &mut String, header: [&str; N], rows: Vec<[String; N]>) -> fmt::Result {
    out.write_str(&table::text(header, rows))
}

fn or_dash(text: Option<&str>) -> String {
    text.unwrap_or("-").to_owned()
}

/// Formats a size, such as `24.0 GiB`.
fn bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if count < 1024 {
        return format!("{count} B");
    }
    let mut size = count as f64 / 1024.0;
    let mut unit = 0;
    while size >= 1023.95 && unit + 1 < UNITS.len() {
        size /= 1024.0;
        unit += 1;
    }
    format!("{size:.1} {}", UNITS[unit])
}

fn drivers(out: &mut String, findings: &Findings) -> fmt::Result {
    writeln!(out, "\nDrivers (sessions use {})", findings.environment.session_driver)?;
    let shown = findings.drivers.iter().filter(|driver| is_shown(findings, &driver.kind));
    shown.clone().try_for_each(|found| driver(out, found))?;
    let rows: Vec<_> = shown
        .flat_map(|driver| {
            driver.found.devices.iter().enumerate().map(move |(number, device)| (driver, number, device))
        })
        .map(|(driver, number, device)| {
            [
                format!("{} {number}", driver.kind),
                device.name.clone(),
                device.arch.clone(),
                or_dash(device.pci_bus_id.as_deref()),
                if device.memory_bytes == 0 { "-".to_owned() } else { bytes(device.memory_bytes) },
                device.wave_size.to_string(),
                device.compute_units.to_string(),
                or_dash(device.kernels.as_deref()),
            ]
        })
        .collect();
    if rows.is_empty() {
        return Ok(());
    }
    writeln!(out, "\nDevices")?;
    table(out, ["device", "name", "arch", "PCI", "memory", "wave", "CUs", "kernels"], rows)
}

fn driver(out: &mut String, driver: &Driver) -> fmt::Result {
    let count = driver.found.devices.len();
    let state = match driver.probe {
        Outcome::Crashed => "crashed".to_owned(),
        Outcome::TimedOut => "timed out".to_owned(),
        Outcome::Failed => "query failed".to_owned(),
        Outcome::Answered if !driver.is_loaded() => "not loaded".to_owned(),
        Outcome::Answered if count == 0 => "no device".to_owned(),
        Outcome::Answered if count == 1 => "1 device".to_owned(),
        Outcome::Answered => format!("{count} devices"),
    };
    writeln!(out, "  {}: {state}", driver.kind)?;
    for reason in [&driver.probe_detail, &driver.found.no_device_reason].into_iter().flatten() {
        reason.lines().try_for_each(|line| writeln!(out, "    {}", line.trim()))?;
    }
    if let Some(version) = driver.found.driver_version {
        writeln!(out, "    driver version: {version}")?;
    }
    for library in &driver.found.libraries {
        let name = match library.role.as_str() {
            "rtc" => "run-time compiler",
            "blaslt" => "BLASLt",
            role => role,
        };
        match &library.path {
            Some(path) => {
                let version =
                    library.version.as_ref().map(|version| format!(" (version {version})")).unwrap_or_default();
                writeln!(out, "    {name}: {path}{version}")?;
            }
            None => writeln!(out, "    {name}: not loaded")?,
        }
        grouped(&library.attempts).iter().try_for_each(|line| writeln!(out, "      tried {line}"))?;
        let help = library.error.iter().flat_map(|error| error.lines()).find(|line| line.trim().starts_with("help: "));
        if let Some(help) = help {
            writeln!(out, "      {}", help.trim())?;
        }
    }
    Ok(())
}

fn environment(out: &mut String, findings: &Findings) -> fmt::Result {
    let variables = &findings.environment.variables;
    writeln!(out, "\nEnvironment")?;
    let rows: Vec<_> = variables
        .iter()
        .filter_map(|variable| {
            let value = variable.value.as_deref()?;
            let shown = if value.is_empty() { "(empty)" } else { value };
            let about = variable.about.unwrap_or("this version does not read it");
            Some([variable.name.clone(), shown.to_owned(), about.to_owned()])
        })
        .collect();
    if rows.is_empty() {
        return writeln!(out, "  none of the {} known variables is set", variables.len());
    }
    table(out, ["variable", "value", "meaning"], rows)
}

fn kernel(out: &mut String, kernel: &Kernel) -> fmt::Result {
    writeln!(out, "\nKernel")?;
    match &kernel.pci_error {
        Some(error) => writeln!(out, "  PCI bus: could not be read: {error}")?,
        None if kernel.gpus.is_empty() => writeln!(out, "  PCI bus: no AMD GPU")?,
        None => {}
    }
    for gpu in &kernel.gpus {
        let driver = gpu.driver.as_deref().unwrap_or("none");
        writeln!(out, "  AMD GPU {} at {}: kernel driver {driver}", gpu.device_id, gpu.address)?;
    }
    writeln!(out, "  amdgpu module: {}", if kernel.amdgpu_loaded { "loaded" } else { "not loaded" })?;
    node(out, &kernel.kfd)?;
    if kernel.render_nodes.is_empty() {
        writeln!(out, "  /dev/dri/renderD*: none for AMD")?;
    }
    kernel.render_nodes.iter().try_for_each(|found| node(out, found))?;
    if kernel.wsl {
        writeln!(out, "  this is WSL: the GPU comes through /dev/dxg")?;
    }
    match &kernel.container {
        Some(container) => writeln!(out, "  container: {container}"),
        None => Ok(()),
    }
}

fn node(out: &mut String, node: &Node) -> fmt::Result {
    let state = match node.access {
        Access::Usable => "can be opened",
        Access::Missing => "missing",
        Access::Denied => "permission denied",
        Access::Failed => "cannot be opened",
    };
    let group = node.group.as_ref().map(|group| format!(" (group {group})")).unwrap_or_default();
    match node.reason.as_ref().filter(|_| node.access != Access::Missing) {
        Some(reason) => writeln!(out, "  {}: {state}{group}: {reason}", node.path),
        None => writeln!(out, "  {}: {state}{group}", node.path),
    }
}

fn onnxruntime(out: &mut String, findings: &Findings) -> fmt::Result {
    writeln!(out, "\nONNX Runtime")?;
    let found = &findings.onnxruntime;
    let rows: Vec<_> = found
        .libraries
        .iter()
        .map(|library| {
            let support = match library.support {
                Support::Supported => "supported".to_owned(),
                Support::Newer => "newer than this build".to_owned(),
                Support::TooOld => "too old".to_owned(),
                Support::Broken => library.reason.clone().unwrap_or_else(|| "cannot be used".to_owned()),
            };
            let api = library.api_version.map(|version| version.to_string());
            [
                or_dash(library.version.as_deref()),
                or_dash(api.as_deref()),
                support,
                library.path.clone(),
                library.place.clone(),
            ]
        })
        .collect();
    if !rows.is_empty() {
        table(out, ["version", "API", "state", "file", "found by"], rows)?;
    }
    found.places.iter().try_for_each(|place| writeln!(out, "  {}: {}", place.place, place.result))
}

fn plugin(out: &mut String, findings: &Findings) -> fmt::Result {
    let plugin = &findings.plugin;
    writeln!(out, "\nPlugin")?;
    match (&plugin.path, &plugin.error) {
        (Some(path), None) => writeln!(out, "  library: {path}")?,
        (Some(path), Some(error)) => writeln!(out, "  library: {path}: cannot be used: {error}")?,
        (None, _) => writeln!(out, "  library: not found (tried {})", plugin.looked_for.join(", "))?,
    }
    if plugin.path.is_some() {
        writeln!(out, "  host driver beside it: {}", plugin.host_driver.as_deref().unwrap_or("none"))?;
    }
    if plugin.backends.is_empty() {
        return writeln!(out, "  backends: none installed");
    }
    for backend in &plugin.backends {
        let state = match (&backend.error, backend.devices) {
            (Some(error), _) => format!("cannot be used: {}", error.lines().next().unwrap_or_default()),
            (None, Some(0)) => "loads, but finds no device".to_owned(),
            (None, Some(_)) => "can create sessions".to_owned(),
            (None, None) => "loads; not tested further (no ONNX Runtime found)".to_owned(),
        };
        let version = backend.version.as_ref().map(|version| format!(" (version {version})")).unwrap_or_default();
        writeln!(out, "  backend {}: {}{version}: {state}", backend.name, backend.path)?;
    }
    Ok(())
}

fn routing(out: &mut String, findings: &Findings) -> fmt::Result {
    let routing = &findings.routing;
    let why = if routing.forced { ", by AMDGPU_EP_FORCE_ARCH" } else { "" };
    match &routing.arch {
        Some(arch) => writeln!(out, "\nBackends in the order that a session tries them ({arch}{why})")?,
        None => writeln!(out, "\nBackends in the order that a session tries them")?,
    }
    for (number, step) in (1..).zip(&routing.candidates) {
        writeln!(out, "  {number}. {}: {}", step.backend, step.reason)?;
    }
    let names = |steps: &[Step]| steps.iter().map(|step| step.backend.as_str()).collect::<Vec<_>>().join(", ");
    if names(&routing.language_models) != names(&routing.candidates) {
        writeln!(out, "  language models: {}", names(&routing.language_models))?;
    }
    if let Some(error) = &routing.error {
        writeln!(out, "  none: {error}")?;
    }
    routing.ruled_out.iter().try_for_each(|step| writeln!(out, "  not {}: {}", step.backend, step.reason))
}

fn cache(out: &mut String, findings: &Findings) -> fmt::Result {
    let cache = &findings.cache;
    writeln!(out, "\nCache")?;
    let (Some(path), Some(from)) = (&cache.path, cache.from) else {
        return writeln!(out, "  none: set AMDGPU_EP_CACHE_DIR");
    };
    let state = match (cache.exists, cache.writable) {
        (true, true) => format!("{} in {} files", bytes(cache.size_bytes), cache.files),
        (true, false) => format!("{} in {} files; read-only", bytes(cache.size_bytes), cache.files),
        (false, true) => "does not exist yet; will be created".to_owned(),
        (false, false) => "does not exist and cannot be created".to_owned(),
    };
    writeln!(out, "  {path} (from {from}): {state}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::environment::Settings;
    use crate::doctor::verdict::judge;
    use crate::doctor::verdict::tests::healthy;

    pub fn rendered(findings: Findings) -> String {
        text(&Report { schema: 1, version: "0.1.0", verdict: judge(&findings), findings })
    }

    #[test]
    fn sizes_have_units() {
        for (count, want) in
            [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (24 << 30, "24.0 GiB"), ((1 << 30) - 1, "1.0 GiB")]
        {
            assert_eq!(bytes(count), want);
        }
    }

    #[test]
    fn verdict_is_first_and_every_section_is_there() {
        let text = rendered(healthy());
        for section in
            ["Drivers (sessions use amd)", "Devices", "Environment", "Kernel", "ONNX Runtime", "Plugin", "Cache"]
        {
            assert!(text.contains(&format!("\n{section}\n")), "{section} in\n{text}");
        }
        assert!(text.starts_with("amdgpu-ep 0.1.0\n\nVerdict: ready: Radeon (gfx1100)"), "{text}");
        assert!(text.contains("gfx1100  0000:03:00.0  24.0 GiB  32    96   compiled"), "{text}");
        assert!(!text.lines().any(|line| line.ends_with(' ')), "{text}");
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn backends_are_listed_with_their_state_and_in_the_order_of_routing() {
        use crate::doctor::{plugin, routing};

        let mut findings = healthy();
        let broken = plugin::tests::backend("migraphx", Some("libmigraphx_c.so: not found\n  help: install it"));
        findings.plugin.backends = vec![plugin::tests::backend("hip", None), broken];
        findings.routing = routing::tests::routing("gfx1151");
        let text = rendered(findings);
        for line in [
            "  backend hip: /lib/libhip-backend.so (version 0.1.0): can create sessions\n",
            "  backend migraphx: /lib/libmigraphx-backend.so (version 0.1.0): cannot be used: libmigraphx_c.so: not found\n",
            "\nBackends in the order that a session tries them (gfx1151, by AMDGPU_EP_FORCE_ARCH)\n  1. migraphx: an RDNA3 GPU\n  2. hip: ",
            "\n  language models: hip, migraphx\n",
            "\n  not hipgpu: libhipgpu-backend.so is not installed\n",
        ] {
            assert!(text.contains(line), "{line} in\n{text}");
        }
    }

    #[test]
    fn cuda_is_shown_if_it_is_requested_or_found() {
        let is_shown = |change: &dyn Fn(&mut Findings)| {
            let mut findings = healthy();
            let mut of_nvidia = crate::doctor::hipdnn::tests::hipdnn().remove(1);
            of_nvidia.driver = "nvidia".into();
            findings.hipdnn.push(of_nvidia);
            change(&mut findings);
            let text = rendered(findings);
            (text.contains("\n  nvidia: not loaded\n"), text.contains("\n  nvidia: libhipdnn"))
        };
        assert_eq!(is_shown(&|_| {}), (false, false));
        assert_eq!(is_shown(&|findings| findings.environment.session_driver = "nvidia"), (true, true));
        let folder = [("AMDGPU_EP_CUDA_LIBRARY_PATH", "/cuda")];
        let named = is_shown(&|findings| findings.environment = Settings::read(&folder.into_iter().collect()));
        assert_eq!(named, (true, true));
        let found =
            is_shown(&|findings| findings.drivers[1].found.libraries[0].path = Some("/lib/libcudart.so".into()));
        assert_eq!(found, (false, true), "it is loaded, and has no device");
        assert!(is_shown(&|findings| findings.drivers[1].probe = Outcome::Crashed).1);
    }

    #[test]
    fn a_crash_and_a_broken_library_are_shown() {
        let mut findings = healthy();
        findings.drivers[0].probe = Outcome::Crashed;
        findings.drivers[0].probe_detail = Some("ended by SIGABRT (signal 6)".into());
        findings.onnxruntime.libraries[0].support = Support::Broken;
        findings.onnxruntime.libraries[0].reason = Some("file too short".into());
        let text = rendered(findings);
        assert!(text.contains("  amd: crashed\n    ended by SIGABRT (signal 6)\n"), "{text}");
        assert!(text.contains("file too short"), "{text}");
    }
}
