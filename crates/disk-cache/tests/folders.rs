//! Which folders are used, and what happens to their files.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use disk_cache::{Folder, clear, digest, list, root};

/// A private folder whose parents pass the check, as the system's temporary folder does.
fn scratch() -> tempfile::TempDir {
    tempfile::Builder::new().prefix("disk-cache").tempdir().unwrap()
}

fn age(file: &Path, age: Duration) {
    File::options().append(true).open(file).unwrap().set_modified(SystemTime::now() - age).unwrap();
}

#[test]
fn replaced_files_are_complete_and_leave_no_temporary_files() {
    let scratch = scratch();
    let folder = Folder::create(&scratch.path().join("a/b")).unwrap();
    for text in ["one", "two"] {
        folder.replace("x.txt", &[text.as_bytes(), b"!"]).unwrap();
        assert_eq!(folder.read("x.txt").unwrap(), format!("{text}!").into_bytes());
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    let refused = folder.replace_by("y", |_| Err("full".to_owned()), |_| Ok("y.txt".to_owned()));
    assert_eq!(refused, Err("full".to_owned()));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

/// MIGraphX writes its programs to a path that it is given.
#[test]
fn a_file_that_another_writer_wrote_is_named_by_its_content() {
    let scratch = scratch();
    let folder = Folder::create(scratch.path()).unwrap();
    let write = |path: &Path| fs::write(path, "program").map_err(|error| error.to_string());
    let named = |file: &File| digest(file).map(|digest| format!("{digest}.mxr"));
    let name = folder.replace_by("draft", write, named).unwrap();
    assert_eq!(folder.replace_by("draft", write, named).unwrap(), name);
    assert_eq!(folder.read(&name).unwrap(), b"program");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn sealed_files_that_changed_are_not_read() {
    let scratch = scratch();
    let folder = Folder::create(scratch.path()).unwrap();
    folder.write_sealed("x.co", b"code").unwrap();
    let whole = fs::read(folder.file("x.co")).unwrap();
    assert_eq!(folder.read_sealed("x.co").unwrap(), b"code");
    for changed in [&whole[..0], &whole[..32], &whole[..whole.len() - 1], &[&whole[..], b"x"].concat()[..]] {
        fs::write(folder.file("x.co"), changed).unwrap();
        assert!(folder.read_sealed("x.co").is_err(), "{} bytes", changed.len());
    }
}

#[test]
fn least_recently_used_files_make_room_and_the_newest_stays() {
    let scratch = scratch();
    let folder = Folder::create(scratch.path()).unwrap();
    for (name, minutes) in [("a.co", 3), ("b.co", 2), ("c.co", 1), ("d.txt", 9)] {
        folder.replace(name, &[&[0; 100]]).unwrap();
        age(&folder.file(name), Duration::from_secs(60 * minutes));
    }
    folder.touch("a.co");
    assert_eq!(folder.make_room("co", 250, "c.co").unwrap(), ["b.co"]);
    assert_eq!(folder.make_room("co", 0, "c.co").unwrap(), ["a.co"]);
    assert!(folder.file("c.co").exists() && folder.file("d.txt").exists());
}

#[test]
fn unfinished_files_of_killed_processes_are_removed_after_a_day() {
    let scratch = scratch();
    let folder = Folder::create(scratch.path()).unwrap();
    let hours = [("a.7-0.new", 25), ("a.partial", 25), ("a.8-0.new", 1), ("notes.txt", 99)];
    for (name, hours) in hours {
        fs::write(folder.file(name), "").unwrap();
        age(&folder.file(name), Duration::from_secs(3600 * hours));
    }
    folder.make_room("co", 0, "").unwrap();
    assert_eq!(hours.map(|(name, _)| folder.file(name).exists()), [false, false, true, true]);
}

#[test]
fn clearing_removes_only_cached_files() {
    let scratch = scratch();
    let cleared = |root: &Path| {
        let cleared = clear(root).unwrap();
        assert!(cleared.left.is_empty(), "{cleared:?}");
        (cleared.files, cleared.bytes)
    };
    assert_eq!(cleared(&scratch.path().join("missing")), (0, 0));
    let put = |folder: &str, name: &str| {
        let folder = Folder::create(&scratch.path().join(folder)).unwrap();
        folder.replace(name, &[&[0; 10]]).unwrap();
        folder.file(name)
    };
    let (long, short) = ("0123456789abcdef0123456789abcdef", "0123456789abcdef");
    let kept = [
        put("kernels", &format!("matmul-{long}.co")),
        put("tuning", &format!("{short}.tsv")),
        put("migraphx", &format!("{long}-{long}.mxr")),
        put("cudnn", &format!("{long}.plan")),
    ];
    let lock = put("migraphx/locks", long);
    let unfinished = put("kernels", &format!("matmul-{long}.7-0.new"));
    // A user may name an existing folder with other files in it.
    let foreign = [
        put("kernels", "notes.txt"),
        put("kernels", "cobalt.co"),
        put("tuning", "results.tsv"),
        put("tuning", "draft.new"),
        put("migraphx/locks", "mine"),
        put("other", &format!("{long}.co")),
    ];
    for file in foreign.iter().chain([&unfinished]) {
        age(file, Duration::from_secs(3600));
    }
    let listed: Vec<PathBuf> = list(scratch.path()).unwrap().into_iter().map(|kept| kept.path).collect();
    assert_eq!(listed, kept);
    assert_eq!(cleared(scratch.path()), (4, 40));
    assert!(list(scratch.path()).unwrap().is_empty() && !lock.exists() && !unfinished.exists());
    assert!(foreign.iter().all(|file| file.exists()));
}

#[test]
fn the_first_variable_decides_the_root() {
    let set = |names: &'static [&str]| move |name: &str| names.contains(&name).then(|| "/x".into());
    assert_eq!(root(set(&["AMDGPU_EP_CACHE_DIR", "HOME"])).unwrap(), ("/x".into(), "AMDGPU_EP_CACHE_DIR"));
    assert_eq!(root(|_| None), None);
    if cfg!(unix) {
        assert_eq!(root(set(&["XDG_CACHE_HOME", "HOME"])).unwrap(), ("/x/amdgpu-ep".into(), "XDG_CACHE_HOME"));
        assert_eq!(root(set(&["HOME"])).unwrap(), ("/x/.cache/amdgpu-ep".into(), "HOME"));
        let relative = |name: &str| Some(if name == "XDG_CACHE_HOME" { "x" } else { "" }.into());
        assert_eq!(root(relative), None);
    }
    if cfg!(windows) {
        let local = |name: &str| (name == "LOCALAPPDATA").then(|| r"C:\Users\me\AppData\Local".into());
        let want = r"C:\Users\me\AppData\Local\amdgpu-ep\cache";
        assert_eq!(root(local).unwrap(), (want.into(), "LOCALAPPDATA"));
        // A path without a drive depends on the current one.
        assert_eq!(root(set(&["LOCALAPPDATA"])), None);
    }
}

#[cfg(unix)]
mod permissions {
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, symlink};

    use disk_cache::CacheError;

    use super::*;

    fn chmod(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().mode() & 0o7777
    }

    fn refusal(path: &Path) -> CacheError {
        let error = Folder::open(path).unwrap_err();
        assert!(error.is_refusal(), "{error}");
        assert_eq!(Folder::create(path).unwrap_err().to_string(), error.to_string());
        error
    }

    /// Only root can give a file to another user.
    fn can_chown(folder: &Path) -> bool {
        let file = folder.join("owned");
        fs::write(&file, "").unwrap();
        let done = chown(&file, Some(12345), None).is_ok();
        if !done {
            eprintln!("skipped: only root can change the owner of a folder");
        }
        done
    }

    #[test]
    fn new_folders_and_files_are_for_the_user_only() {
        let scratch = scratch();
        let folder = Folder::create(&scratch.path().join("a/b")).unwrap();
        folder.replace("x", &[b"x"]).unwrap();
        let modes = ["a", "a/b", "a/b/x"].map(|name| mode(&scratch.path().join(name)));
        assert_eq!(modes, [0o700, 0o700, 0o600]);
    }

    #[test]
    fn folders_that_others_can_write_to_are_refused_until_they_cannot() {
        let scratch = scratch();
        let cache = scratch.path().join("cache");
        Folder::create(&cache).unwrap();
        for bad in [0o777, 0o1777, 0o770, 0o702, 0o755 | 0o020] {
            chmod(&cache, bad);
            let told = refusal(&cache).to_string();
            assert!(told.contains(&format!("mode {bad:o}")) && told.contains("help: chmod go-w "), "{told}");
            assert!(told.contains(cache.to_str().unwrap()), "{told}");
        }
        chmod(&cache, 0o755);
        assert!(Folder::open(&cache).unwrap().is_some());
    }

    #[test]
    fn a_folder_above_that_others_can_rename_in_is_refused_unless_it_is_sticky() {
        let scratch = scratch();
        let (above, cache) = (scratch.path().join("above"), scratch.path().join("above/cache"));
        fs::create_dir(&above).unwrap();
        chmod(&above, 0o777);
        assert!(refusal(&cache).to_string().contains("chmod go-w"));
        assert!(!cache.exists(), "nothing is created there");
        chmod(&above, 0o1777);
        assert_eq!(Folder::create(&cache).unwrap().path(), fs::canonicalize(&cache).unwrap());
        chmod(&above, 0o770);
        assert!(matches!(refusal(&cache), CacheError::WritableByOthers { path, .. } if path.ends_with("above")));
    }

    #[test]
    fn the_target_of_a_link_is_checked() {
        let scratch = scratch();
        let (real, link) = (scratch.path().join("real"), scratch.path().join("link"));
        Folder::create(&real).unwrap();
        symlink("../../../../../../../../../..", scratch.path().join("up")).unwrap();
        symlink(&real, &link).unwrap();
        assert_eq!(Folder::open(&link).unwrap().unwrap().path(), fs::canonicalize(&real).unwrap());
        // A relative link up to the root and down again.
        let around = scratch.path().join("up").join(fs::canonicalize(&real).unwrap().strip_prefix("/").unwrap());
        assert_eq!(Folder::open(&around).unwrap().unwrap().path(), fs::canonicalize(&real).unwrap());
        chmod(&real, 0o777);
        for path in [&link, &around] {
            assert!(matches!(refusal(path), CacheError::WritableByOthers { path, .. } if path.ends_with("real")));
        }
        fs::remove_dir(&real).unwrap();
        symlink(&link, &real).unwrap();
        assert!(Folder::open(&link).unwrap_err().to_string().contains("too many symbolic links"));
    }

    #[test]
    fn folders_and_links_of_other_users_are_refused() {
        let scratch = scratch();
        if !can_chown(scratch.path()) {
            return;
        }
        let (cache, below, link) =
            (scratch.path().join("cache"), scratch.path().join("cache/below"), scratch.path().join("link"));
        Folder::create(&below).unwrap();
        symlink(&cache, &link).unwrap();
        std::os::unix::fs::lchown(&link, Some(12345), None).unwrap();
        let told = refusal(&link).to_string();
        assert!(told.contains("link belongs to the user with id 12345"), "{told}");
        assert!(Folder::open(&cache).unwrap().is_some());
        chown(&cache, Some(12345), None).unwrap();
        for path in [&cache, &below] {
            assert!(matches!(refusal(path), CacheError::OtherOwner { owner: 12345, path } if path.ends_with("cache")));
        }
    }

    #[test]
    fn a_folder_that_changes_owner_is_rejected_at_its_next_use() {
        let scratch = scratch();
        let cache = scratch.path().join("cache");
        assert_eq!(Folder::open(&cache).unwrap(), None);
        // Another process creates it first.
        fs::create_dir(&cache).unwrap();
        chmod(&cache, 0o777);
        refusal(&cache);
        chmod(&cache, 0o700);
        Folder::create(&cache).unwrap().replace("x", &[b"x"]).unwrap();
        chmod(&cache, 0o707);
        refusal(&cache);
    }

    #[test]
    fn entries_that_others_could_have_written_are_not_read() {
        let scratch = scratch();
        let folder = Folder::create(scratch.path()).unwrap();
        folder.write_sealed("x", b"code").unwrap();
        chmod(&folder.file("x"), 0o664);
        assert!(folder.read_sealed("x").unwrap_err().to_string().contains("other users can write to it"));
        folder.write_sealed("x", b"code").unwrap();
        assert_eq!((folder.read_sealed("x").unwrap(), mode(&folder.file("x"))), (b"code".to_vec(), 0o600));
        if can_chown(scratch.path()) {
            chown(folder.file("x"), Some(12345), None).unwrap();
            assert!(folder.read_sealed("x").unwrap_err().to_string().contains("belongs to another user"));
        }
        fs::create_dir(folder.file("y")).unwrap();
        assert!(folder.read("y").unwrap_err().to_string().contains("not a regular file"));
    }

    #[test]
    fn files_are_never_written_through_a_link() {
        let scratch = scratch();
        let folder = Folder::create(&scratch.path().join("cache")).unwrap();
        let precious = scratch.path().join("precious");
        fs::write(&precious, "kept").unwrap();
        symlink(&precious, folder.file("x")).unwrap();
        folder.replace("x", &[b"new"]).unwrap();
        assert_eq!((fs::read_to_string(&precious).unwrap(), folder.read("x").unwrap()), ("kept".into(), b"new".into()));
    }

    #[test]
    fn a_rejection_is_reported_once() {
        let scratch = scratch();
        let [one, two] = ["one", "two"].map(|name| {
            let cache = scratch.path().join(name);
            fs::create_dir(&cache).unwrap();
            chmod(&cache, 0o777);
            cache
        });
        let news = |cache: &Path| Folder::open(cache).unwrap_err().is_news();
        assert_eq!([news(&one), news(&one), news(&two), news(&one), news(&two)], [true, false, true, false, false]);
        let missing = || Folder::create(Path::new("/proc/nowhere/cache")).unwrap_err();
        assert!(!missing().is_refusal() && missing().is_news() && missing().is_news());
    }
}

#[cfg(windows)]
mod open_files {
    use std::os::windows::fs::OpenOptionsExt as _;

    use super::*;

    /// A program that does not share a file, such as a virus scanner, keeps others from removing it.
    #[test]
    fn a_locked_file_is_named_and_the_others_are_removed() {
        let scratch = scratch();
        let folder = Folder::create(&scratch.path().join("kernels")).unwrap();
        let names = ["a", "b", "c"].map(|kernel| format!("{kernel}-0123456789abcdef.co"));
        for name in &names {
            folder.replace(name, &[&[0; 10]]).unwrap();
        }
        let locked = folder.file(&names[1]);
        let lock = File::options().read(true).share_mode(0).open(&locked).unwrap();
        let cleared = clear(scratch.path()).unwrap();
        assert_eq!((cleared.files, cleared.bytes), (2, 20));
        let [left] = &cleared.left[..] else { panic!("{cleared:?}") };
        assert_eq!(left.path, locked);
        assert!(!left.reason.to_string().is_empty());
        drop(lock);
        assert_eq!(clear(scratch.path()).unwrap().files, 1);
    }

    /// Whether an open file can be replaced depends on the release of Windows. Either way, it stays whole.
    #[test]
    fn a_file_that_another_process_reads_is_replaced_or_left_as_it_was() {
        let scratch = scratch();
        let folder = Folder::create(&scratch.path().join("kernels")).unwrap();
        let name = "a-0123456789abcdef.co";
        folder.write_sealed(name, b"old").unwrap();
        let reader = folder.open_file(name).unwrap();
        let is_replaced = folder.write_sealed(name, b"new").is_ok();
        assert_eq!(folder.read_sealed(name).unwrap(), if is_replaced { b"new" } else { b"old" });
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "no unfinished file is left");
        drop(reader);
        folder.write_sealed(name, b"newer").unwrap();
        assert_eq!(folder.read_sealed(name).unwrap(), b"newer");
    }
}
