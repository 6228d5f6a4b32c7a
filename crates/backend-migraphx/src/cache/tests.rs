use std::cell::Cell;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, SystemTime};

use super::*;

/// Programs that are plain text.
struct Texts {
    content: String,
    made: Cell<usize>,
    takes: Duration,
}

impl Texts {
    fn new(content: &str) -> Self {
        Self { content: content.to_owned(), made: Cell::new(0), takes: Duration::ZERO }
    }
}

impl Programs for Texts {
    type Program = String;
    type Error = String;

    fn load(&self, file: &Path) -> Result<String, String> {
        let text = fs::read_to_string(file).map_err(|error| error.to_string())?;
        if text.starts_with("program") { Ok(text) } else { Err("it is not a program".to_owned()) }
    }

    fn make(&self) -> Result<String, String> {
        self.made.set(self.made.get() + 1);
        std::thread::sleep(self.takes);
        Ok(self.content.clone())
    }

    fn save(&self, program: &String, file: &Path) -> Result<(), String> {
        use std::io::Write as _;
        let mut out = File::create(file).map_err(|error| error.to_string())?;
        // Written in many pieces, so that a process killed while writing leaves a partial file.
        for piece in program.as_bytes().chunks(4096) {
            out.write_all(piece).map_err(|error| error.to_string())?;
        }
        Ok(())
    }
}

fn key(text: &str) -> Key {
    KeyBuilder::new().part("test", text).finish()
}

fn cache(folder: &Path) -> Cache {
    Cache::new(folder.to_owned(), 1 << 30, true, true)
}

fn programs(folder: &Path) -> Vec<PathBuf> {
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut found: Vec<_> = files.filter(|file| file.extension().is_some_and(|end| end == EXTENSION)).collect();
    found.sort();
    found
}

/// The names of the entries of a key.
fn kept_as(cache: &Cache, name: &str) -> Vec<String> {
    entries_of(&Folder::open(&cache.folder).unwrap().unwrap(), &key(name))
}

#[test]
fn a_program_is_compiled_once() {
    let folder = tempfile::tempdir().unwrap();
    let (cache, texts) = (cache(&folder.path().join("below/it")), Texts::new("program a"));
    assert_eq!(cache.fetch(&key("a"), &texts).unwrap(), ("program a".to_owned(), Origin::Compiled));
    assert_eq!(cache.fetch(&key("a"), &texts).unwrap(), ("program a".to_owned(), Origin::Cached));
    assert_eq!(cache.fetch(&key("b"), &texts).unwrap().1, Origin::Compiled);
    assert_eq!(texts.made.get(), 2);
}

#[test]
fn damaged_and_foreign_entries_are_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let (cache, texts) = (cache(folder.path()), Texts::new("program a"));
    cache.fetch(&key("a"), &texts).unwrap();
    let entry = programs(folder.path()).remove(0);
    for damage in [&b""[..], b"program", b"program b", &[0xff; 100]] {
        fs::write(&entry, damage).unwrap();
        assert_eq!(cache.fetch(&key("a"), &texts).unwrap(), ("program a".to_owned(), Origin::Compiled));
        assert_eq!(programs(folder.path()), std::slice::from_ref(&entry));
    }
    // Intact, but not readable by the library.
    fs::remove_file(&entry).unwrap();
    let foreign = Texts::new("something else");
    cache.fetch(&key("a"), &foreign).unwrap();
    assert_eq!(cache.fetch(&key("a"), &texts).unwrap().1, Origin::Compiled);
    assert_eq!(programs(folder.path()), [entry]);
}

#[test]
fn switches_stop_loading_and_saving() {
    let folder = tempfile::tempdir().unwrap();
    let with = |save, load| Cache::new(folder.path().to_owned(), 1 << 30, save, load);
    let texts = Texts::new("program a");
    with(false, true).fetch(&key("a"), &texts).unwrap();
    assert!(programs(folder.path()).is_empty());
    with(true, true).fetch(&key("a"), &texts).unwrap();
    assert_eq!(with(false, true).fetch(&key("a"), &texts).unwrap().1, Origin::Cached);
    let new = Texts::new("program new");
    assert_eq!(with(true, false).fetch(&key("a"), &new).unwrap().1, Origin::Compiled);
    assert_eq!(with(true, true).fetch(&key("a"), &new).unwrap(), ("program new".to_owned(), Origin::Cached));
    assert_eq!(programs(folder.path()).len(), 1);
}

#[test]
fn an_unwritable_folder_disables_the_cache_without_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    let (cache, texts) = (cache(&file), Texts::new("program a"));
    assert_eq!(cache.fetch(&key("a"), &texts).unwrap().1, Origin::Compiled);
    assert_eq!(cache.fetch(&key("a"), &texts).unwrap().1, Origin::Compiled);
}

#[test]
#[cfg(unix)]
fn a_folder_that_others_can_write_to_is_neither_read_nor_written() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile::tempdir().unwrap();
    let (cache, texts) = (cache(folder.path()), Texts::new("program a"));
    cache.fetch(&key("a"), &texts).unwrap();
    let chmod = |mode| fs::set_permissions(folder.path(), fs::Permissions::from_mode(mode)).unwrap();
    for mode in [0o777, 0o770, 0o1777] {
        chmod(mode);
        for name in ["a", "b"] {
            assert_eq!(cache.fetch(&key(name), &texts).unwrap().1, Origin::Compiled, "mode {mode:o}");
        }
        assert_eq!(programs(folder.path()).len(), 1, "mode {mode:o}");
    }
    chmod(0o755);
    assert_eq!(cache.fetch(&key("a"), &texts).unwrap().1, Origin::Cached);
}

#[test]
fn the_least_recently_used_programs_are_evicted() {
    let folder = tempfile::tempdir().unwrap();
    let cache = Cache::new(folder.path().to_owned(), 250, true, true);
    let texts = Texts::new(&format!("program{}", " ".repeat(93)));
    for name in ["a", "b"] {
        cache.fetch(&key(name), &texts).unwrap();
    }
    let old = SystemTime::now() - Duration::from_secs(60);
    for (name, age) in [("a", 10), ("b", 0)] {
        let entry = folder.path().join(kept_as(&cache, name).remove(0));
        File::options().append(true).open(entry).unwrap().set_modified(old - Duration::from_secs(age)).unwrap();
    }
    // Using the older entry makes it the most recently used.
    assert_eq!(cache.fetch(&key("a"), &texts).unwrap().1, Origin::Cached);
    cache.fetch(&key("c"), &texts).unwrap();
    let kept = |name| !kept_as(&cache, name).is_empty();
    assert!(kept("a") && !kept("b") && kept("c"));
    assert!(!folder.path().join(LOCKS).join(key("b").as_str()).exists());
    let huge = Texts::new(&format!("program{}", " ".repeat(1000)));
    cache.fetch(&key("huge"), &huge).unwrap();
    assert_eq!(programs(folder.path()).len(), 1, "the newest entry stays even if it is too large");
}

/// Set in the processes started by the tests below: the folder, and how long compiling takes.
const FOLDER: &str = "BACKEND_MIGRAPHX_TEST_CACHE";

/// Large enough that writing takes a while.
fn large() -> Texts {
    Texts { takes: Duration::from_millis(30), ..Texts::new(&format!("program{}", "x".repeat(8 << 20))) }
}

/// Runs in the started processes; does nothing in the test process itself.
#[test]
fn helper_process() {
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    let texts = large();
    let (program, _) = cache(Path::new(&folder)).fetch(&key("shared"), &texts).unwrap();
    assert_eq!(program, texts.content);
    println!("made {}", texts.made.get());
}

fn start(folder: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "cache::tests::helper_process", "--nocapture"])
        .env(FOLDER, folder)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

#[test]
fn four_processes_make_one_entry() {
    let folder = tempfile::tempdir().unwrap();
    let children: Vec<_> = (0..4).map(|_| start(folder.path())).collect();
    let mut made = 0;
    for child in children {
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success());
        made += usize::from(String::from_utf8_lossy(&output.stdout).contains("made 1"));
    }
    assert_eq!((made, programs(folder.path()).len()), (1, 1));
}

#[test]
fn a_process_killed_at_any_moment_leaves_no_broken_entry() {
    let folder = tempfile::tempdir().unwrap();
    for round in 0..24 {
        let mut child = start(folder.path());
        // Kills at moments from before the lock is taken until after the entry is in place.
        std::thread::sleep(Duration::from_millis(round * 4));
        child.kill().unwrap();
        child.wait().unwrap();
        for entry in programs(folder.path()) {
            let name = entry.file_name().unwrap().to_str().unwrap();
            check(&Folder::open(folder.path()).unwrap().unwrap(), name).unwrap();
            fs::remove_file(entry).unwrap();
        }
    }
    // Leftover files must not get in the way.
    let output = start(folder.path()).wait_with_output().unwrap();
    assert!(output.status.success() && String::from_utf8_lossy(&output.stdout).contains("made 1"));
    assert_eq!(programs(folder.path()).len(), 1);
}
