//! Renders the libraries of ROCm, and the hipDNN libraries with their engines.

use std::fmt::{self, Write};

use super::is_shown;
use crate::doctor::Findings;
use crate::doctor::drivers::grouped;
use crate::doctor::hipdnn::Hipdnn;

/// ROCm's libraries.
pub(super) fn rocm(out: &mut String, findings: &Findings) -> fmt::Result {
    writeln!(out, "\nROCm")?;
    for library in &findings.rocm {
        let version = library.version.as_ref().map(|version| format!("version {version}"));
        let release = library.release.as_ref().map(|release| format!("ROCm {release}"));
        let known: Vec<String> = [version, release].into_iter().flatten().collect();
        let known = if known.is_empty() { String::new() } else { format!(" ({})", known.join(", ")) };
        let foreign = if library.is_foreign { ": from a different installation than the HIP runtime" } else { "" };
        match (&library.path, &library.error) {
            (Some(path), _) => writeln!(out, "  {}: {path}{known}{foreign}", library.name)?,
            (None, Some(error)) => writeln!(out, "  {}: query failed: {error}", library.name)?,
            (None, None) => writeln!(out, "  {}: not loaded", library.name)?,
        }
        let attempts = library.attempts.iter().filter(|_| library.path.is_none()).cloned().collect::<Vec<_>>();
        grouped(&attempts).iter().try_for_each(|line| writeln!(out, "    tried {line}"))?;
    }
    Ok(())
}

/// The hipDNN libraries.
pub(super) fn hipdnn(out: &mut String, findings: &Findings) -> fmt::Result {
    writeln!(out, "\nhipDNN")?;
    let is_shown = |library: &&Hipdnn| library.found.path.is_some() || is_shown(findings, &library.driver);
    for library in findings.hipdnn.iter().filter(is_shown) {
        let found = &library.found;
        let version = found.version.as_ref().map(|version| format!(" (version {version})")).unwrap_or_default();
        let error = found.error.as_deref().and_then(|error| error.lines().next());
        let state = match (&found.path, error) {
            (Some(path), None) => format!("{path}{version}"),
            (Some(path), Some(error)) => format!("{path}{version}: cannot be used: {error}"),
            (None, error) => error.unwrap_or("not loaded").to_owned(),
        };
        writeln!(out, "  {}: {state}", library.driver)?;
        grouped(&found.attempts).iter().try_for_each(|line| writeln!(out, "    tried {line}"))?;
        for engine in &found.engines {
            writeln!(out, "    engine {} ({} {})", engine.name, engine.plugin, engine.version)?;
        }
        found.plugins.iter().try_for_each(|file| writeln!(out, "    plugin {file}"))?;
        if let Some(iree) = &library.iree_compile {
            let path = iree.path.as_deref().unwrap_or("not on PATH");
            writeln!(out, "    iree-compile, for {}: {path}", iree.needed_by)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::doctor::render::tests::rendered;
    use crate::doctor::verdict::tests::healthy;

    #[test]
    fn hipdnn_is_shown_with_its_engines_and_plugins() {
        let mut findings = healthy();
        findings.hipdnn = crate::doctor::hipdnn::tests::hipdnn();
        let text = rendered(findings);
        let wanted = "
hipDNN
  amd: /opt/rocm/lib/libhipdnn_backend.so (version 0.4.0.abc)
    engine MIOPEN_ENGINE (miopen 1.2.3)
    plugin /opt/rocm/lib/hipdnn_plugins/engines/libmiopen_plugin.so
    iree-compile, for libfusilli_plugin.so: not on PATH
  host: libhipdnn_host.so is not installed
    tried /lib/libhipdnn_host.so: no such file
";
        assert!(text.contains(wanted), "{text}");
    }

    #[test]
    fn libraries_of_rocm_are_shown_with_version_and_release() {
        let mut findings = healthy();
        findings.rocm = crate::doctor::rocm::tests::rocm();
        findings.rocm[1].attempts = findings.rocm[2].attempts.clone();
        let text = rendered(findings);
        let wanted = "
ROCm
  HIP runtime: /opt/rocm/lib/libamdhip64.so.7 (version 7.2.53211, ROCm 7.2.0-43)
  hipBLASLt: not loaded
    tried /opt/rocm/lib/libmigraphx_c.so.3: no such file
  MIGraphX: /usr/lib/libmigraphx_c.so.3: from a different installation than the HIP runtime
";
        assert!(text.contains(wanted), "{text}");
    }
}
