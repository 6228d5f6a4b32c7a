//! Sets of precompiled kernels, which are shipped with the library: one file per target.
//!
//! | bytes | content |
//! |---|---|
//! | 16 | the name and version of the format |
//! | 4 | the number of entries |
//! | 32 | a digest of the index |
//! | 44 each | the index, sorted: digests of the source and of the code, offset and length of the code |
//! | the rest | code objects |
//!
//! Numbers are little-endian. Only the index stays in memory; a code object is read when a session needs it. The file is
//! not compressed: packages are, and one file of similar code objects compresses better than many small ones.
use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use crate::Kernel;

const MAGIC: [u8; 16] = *b"amdgpu-ep set 1\n";
const DIGEST_BYTES: usize = 16;
const ENTRY_BYTES: usize = 2 * DIGEST_BYTES + 8 + 4;
const INDEX_DIGEST_BYTES: usize = 32;
/// More entries than any set has, so that a damaged count does not allocate much memory.
const MAX_ENTRIES: u32 = 1 << 16;
/// Longer than any code object.
const MAX_CODE_BYTES: u32 = 16 << 20;

type Digest = [u8; DIGEST_BYTES];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    source: Digest,
    code: Digest,
    offset: u64,
    bytes: u32,
}

/// The set of a target.
pub(crate) struct KernelSet {
    path: PathBuf,
    file: Mutex<File>,
    /// Sorted by source.
    index: Vec<Entry>,
}

impl KernelSet {
    /// The path of a target's set in a folder.
    pub fn path(folder: &Path, target: &str) -> PathBuf {
        folder.join(format!("{target}.set"))
    }

    /// Opens the set of a target; `None` if the folder has none.
    ///
    /// # Errors
    /// The file cannot be read, or is damaged.
    pub fn open(folder: &Path, target: &str) -> io::Result<Option<Self>> {
        let path = Self::path(folder, target);
        let mut file = match File::open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened?,
        };
        let index = read_index(&mut file)?;
        Ok(Some(Self { path, file: Mutex::new(file), index }))
    }

    /// The file, for messages.
    pub fn file(&self) -> &Path {
        &self.path
    }

    /// The code of a kernel; `None` if the set lacks it.
    ///
    /// # Errors
    /// The file cannot be read, or is damaged.
    pub fn code(&self, kernel: &Kernel, text: &str) -> io::Result<Option<Vec<u8>>> {
        let wanted = source_digest(kernel.name, text);
        let Ok(at) = self.index.binary_search_by_key(&wanted, |entry| entry.source) else { return Ok(None) };
        let entry = self.index[at];
        let mut code = vec![0; entry.bytes as usize];
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        file.seek(SeekFrom::Start(entry.offset))?;
        file.read_exact(&mut code)?;
        drop(file);
        if digest(&code) == entry.code { Ok(Some(code)) } else { Err(damaged("a code object")) }
    }
}

/// A kernel of a set: its name, its [text](Kernel::text), and its code.
pub struct Compiled {
    /// The kernel's name.
    pub kernel: String,
    /// The complete source.
    pub text: String,
    /// The code object.
    pub code: Vec<u8>,
}

/// Writes the set of a target into a folder for [`CachedCompiler::with_shipped`](crate::CachedCompiler::with_shipped).
///
/// # Errors
/// The file cannot be written.
pub fn write_set(folder: &Path, target: &str, kernels: &[Compiled]) -> io::Result<()> {
    let mut sorted: Vec<(Digest, &Compiled)> =
        kernels.iter().map(|one| (source_digest(&one.kernel, &one.text), one)).collect();
    sorted.sort_by_key(|&(source, _)| source);
    sorted.dedup_by_key(|(source, _)| *source);
    let within = |count: usize, most: u32| {
        let fits = u32::try_from(count).ok().filter(|&count| count <= most);
        fits.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "too many or too large kernels for a set"))
    };
    let count = within(sorted.len(), MAX_ENTRIES)?;
    let (mut index, mut offset) = (Vec::new(), data_offset(count));
    for (source, Compiled { code, .. }) in &sorted {
        let bytes = within(code.len(), MAX_CODE_BYTES)?;
        index.extend_from_slice(source);
        index.extend_from_slice(&digest(code));
        index.extend_from_slice(&offset.to_le_bytes());
        index.extend_from_slice(&bytes.to_le_bytes());
        offset += u64::from(bytes);
    }
    std::fs::create_dir_all(folder)?;
    let mut file = io::BufWriter::new(File::create(KernelSet::path(folder, target))?);
    file.write_all(&MAGIC)?;
    file.write_all(&count.to_le_bytes())?;
    file.write_all(blake3::hash(&index).as_bytes())?;
    file.write_all(&index)?;
    sorted.iter().try_for_each(|(_, one)| file.write_all(&one.code))?;
    file.flush()
}

fn read_index(file: &mut File) -> io::Result<Vec<Entry>> {
    let file_bytes = file.metadata()?.len();
    let (mut magic, mut count, mut expected) = ([0; MAGIC.len()], [0; 4], [0; INDEX_DIGEST_BYTES]);
    file.read_exact(&mut magic)?;
    if magic != MAGIC {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "it is not a kernel set of this release"));
    }
    file.read_exact(&mut count)?;
    file.read_exact(&mut expected)?;
    let count = u32::from_le_bytes(count);
    if count > MAX_ENTRIES {
        return Err(damaged("the number of entries"));
    }
    let mut index = vec![0; count as usize * ENTRY_BYTES];
    file.read_exact(&mut index)?;
    if *blake3::hash(&index).as_bytes() != expected {
        return Err(damaged("the index"));
    }
    let entries: Vec<Entry> = index.chunks_exact(ENTRY_BYTES).map(entry).collect();
    let fits = |entry: &Entry| {
        let end = entry.offset.checked_add(u64::from(entry.bytes));
        entry.bytes <= MAX_CODE_BYTES && entry.offset >= data_offset(count) && end.is_some_and(|end| end <= file_bytes)
    };
    if entries.iter().all(fits) { Ok(entries) } else { Err(damaged("the index")) }
}

fn entry(bytes: &[u8]) -> Entry {
    let mut parts = ([0; DIGEST_BYTES], [0; DIGEST_BYTES], [0; 8], [0; 4]);
    let mut rest = bytes;
    for part in [&mut parts.0[..], &mut parts.1, &mut parts.2, &mut parts.3] {
        let (first, others) = rest.split_at(part.len());
        part.copy_from_slice(first);
        rest = others;
    }
    let (source, code, offset, bytes) = parts;
    Entry { source, code, offset: u64::from_le_bytes(offset), bytes: u32::from_le_bytes(bytes) }
}

fn data_offset(count: u32) -> u64 {
    (MAGIC.len() + 4 + INDEX_DIGEST_BYTES) as u64 + u64::from(count) * ENTRY_BYTES as u64
}

fn source_digest(kernel: &str, text: &str) -> Digest {
    digest(&[kernel.as_bytes(), b"\0", text.as_bytes()].concat())
}

/// 128 bits are enough against damage and accidental collisions.
fn digest(bytes: &[u8]) -> Digest {
    let mut short = [0; DIGEST_BYTES];
    short.copy_from_slice(&blake3::hash(bytes).as_bytes()[..DIGEST_BYTES]);
    short
}

fn damaged(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("{what} is damaged"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::fs;

    use super::*;

    fn kernel(number: usize) -> Kernel {
        Kernel::new("k", "text").set("N", number)
    }

    fn compiled(number: usize) -> Compiled {
        Compiled { kernel: "k".to_owned(), text: kernel(number).text(), code: format!("code of {number}").into_bytes() }
    }

    fn found(set: &KernelSet, number: usize) -> io::Result<Option<Vec<u8>>> {
        set.code(&kernel(number), &kernel(number).text())
    }

    #[test]
    fn a_set_returns_the_code_of_each_kernel_and_nothing_for_others() {
        let folder = tempfile::tempdir().unwrap();
        let kernels: Vec<Compiled> = (0..50).map(compiled).chain([compiled(7)]).collect();
        write_set(folder.path(), "gfx1100", &kernels).unwrap();
        let set = KernelSet::open(folder.path(), "gfx1100").unwrap().unwrap();
        for number in 0..50 {
            assert_eq!(found(&set, number).unwrap().unwrap(), compiled(number).code);
        }
        assert_eq!(found(&set, 50).unwrap(), None);
        assert_eq!(set.code(&Kernel::new("other", "text"), &kernel(1).text()).unwrap(), None);
        assert!(KernelSet::open(folder.path(), "gfx1101").unwrap().is_none());
    }

    #[test]
    fn an_empty_set_is_valid() {
        let folder = tempfile::tempdir().unwrap();
        write_set(folder.path(), "gfx1100", &[]).unwrap();
        let set = KernelSet::open(folder.path(), "gfx1100").unwrap().unwrap();
        assert_eq!(found(&set, 0).unwrap(), None);
    }

    #[test]
    fn a_damaged_file_is_an_error_at_every_byte_and_length() {
        let folder = tempfile::tempdir().unwrap();
        write_set(folder.path(), "gfx1100", &[compiled(0), compiled(1)]).unwrap();
        let path = KernelSet::path(folder.path(), "gfx1100");
        let whole = fs::read(&path).unwrap();
        let is_intact = || -> io::Result<()> {
            let set = KernelSet::open(folder.path(), "gfx1100")?.unwrap();
            (0..2).try_for_each(|number| match found(&set, number)? {
                Some(code) if code == compiled(number).code => Ok(()),
                other => panic!("{number}: {other:?}"),
            })
        };
        assert!(is_intact().is_ok());
        for at in 0..whole.len() {
            let mut spoiled = whole.clone();
            spoiled[at] ^= 0x40;
            fs::write(&path, &spoiled).unwrap();
            assert!(is_intact().is_err(), "byte {at}");
            fs::write(&path, &whole[..at]).unwrap();
            assert!(is_intact().is_err(), "{at} bytes");
        }
    }
}
