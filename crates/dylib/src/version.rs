//! Determines a library's version from files alone: nothing is loaded or called.

use std::fs;
use std::path::Path;

/// The version in a library's file name, after resolving symlinks: `7.2.53211` for `libamdhip64.so.7.2.53211`.
pub fn file_version(file: &Path) -> Option<String> {
    let file = fs::canonicalize(file).ok()?;
    let (_, version) = file.file_name()?.to_str()?.split_once(".so.")?;
    version.starts_with(|first: char| first.is_ascii_digit()).then(|| version.to_owned())
}

/// The ROCm release that a library was installed with, if the installation records it: in `.info/version`, or as the
/// version of its Python package.
pub fn release(file: &Path) -> Option<String> {
    let file = fs::canonicalize(file).ok()?;
    // MIGraphX is nested deepest: ROOT/lib/migraphx/lib/FILE.
    let roots = file.ancestors().skip(2).take(3);
    roots.filter_map(|root| info(root).or_else(|| package_version(root))).next()
}

fn info(root: &Path) -> Option<String> {
    let text = fs::read_to_string(root.join(".info/version")).ok()?;
    let version = text.lines().next()?.trim();
    (!version.is_empty()).then(|| version.to_owned())
}

/// The `7.10.0` in `rocm_sdk_core-7.10.0.dist-info`, which is next to the package `_rocm_sdk_core`.
fn package_version(root: &Path) -> Option<String> {
    let package = root.file_name()?.to_str()?.trim_start_matches('_').to_ascii_lowercase();
    let entries = fs::read_dir(root.parent()?).ok()?.flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok()).find_map(|name| {
        let (of, version) = name.strip_suffix(".dist-info")?.split_once('-')?;
        (of.to_ascii_lowercase() == package).then(|| version.to_owned())
    })
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn the_version_is_that_of_the_file_behind_the_links() {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("libamdhip64.so.7.2.53211"), "").unwrap();
        symlink("libamdhip64.so.7.2.53211", root.path().join("libamdhip64.so.7")).unwrap();
        symlink("libamdhip64.so.7", root.path().join("libamdhip64.so")).unwrap();
        fs::write(root.path().join("libhipdnn_backend.so"), "").unwrap();
        let version = |name: &str| file_version(&root.path().join(name));
        assert_eq!(version("libamdhip64.so").as_deref(), Some("7.2.53211"));
        assert_eq!(version("libhipdnn_backend.so"), None, "its file name has no version");
        assert_eq!(version("missing.so.1"), None);
    }

    #[test]
    fn the_release_is_that_of_the_installation() {
        let root = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let file = root.path().join(name);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(&file, text).unwrap();
            file
        };
        write("rocm/.info/version", "7.2.0-43\n");
        write("site-packages/_rocm_sdk_core/lib/libamdhip64.so.7", "");
        write("site-packages/rocm_sdk_core-7.10.0a20251106.dist-info/METADATA", "");
        let hip = write("rocm/lib/libamdhip64.so.7", "");
        let migraphx = write("rocm/lib/migraphx/lib/libmigraphx_c.so.3", "");
        let wheel = write("site-packages/_rocm_sdk_core/lib/libhiprtc.so.7", "");
        let elsewhere = write("usr/lib/libamdhip64.so.7", "");
        assert_eq!(release(&hip).as_deref(), Some("7.2.0-43"));
        assert_eq!(release(&migraphx).as_deref(), Some("7.2.0-43"));
        assert_eq!(release(&wheel).as_deref(), Some("7.10.0a20251106"));
        assert_eq!(release(&elsewhere), None);
    }
}
