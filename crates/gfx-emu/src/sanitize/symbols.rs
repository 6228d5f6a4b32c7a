//! Names of kernels and source lines, from the code objects.

use std::collections::BTreeMap;
use std::sync::{PoisonError, RwLock};

use gimli::{Dwarf, EndianSlice, LittleEndian, SectionId};
use object::{Object, ObjectSection, ObjectSymbol};

use super::image;

type Slice<'a> = EndianSlice<'a, LittleEndian>;

/// What the code objects say about addresses.
#[derive(Debug, Default)]
pub struct Symbols {
    known: RwLock<Known>,
}

#[derive(Debug, Default)]
struct Known {
    /// Kernels by the address of their descriptor.
    kernels: BTreeMap<u64, String>,
    /// Where a line starts; `None` where a sequence of lines ends.
    lines: BTreeMap<u64, Option<String>>,
}

impl Symbols {
    /// Reads a code object that is loaded at an address. What cannot be read is left out.
    pub fn add(&self, base: u64, code_object: &[u8]) {
        let Ok(file) = object::File::parse(code_object) else { return };
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        for symbol in file.dynamic_symbols() {
            if let Some(name) = symbol.name().ok().and_then(|name| name.strip_suffix(".kd")) {
                known.kernels.insert(base.wrapping_add(symbol.address()), name.to_owned());
            }
        }
        let section = |id: SectionId| {
            let data = file.section_by_name(id.name()).and_then(|section| section.data().ok());
            Ok::<_, gimli::Error>(EndianSlice::new(data.unwrap_or_default(), LittleEndian))
        };
        if let Ok(dwarf) = Dwarf::load(section) {
            // A damaged table ends the list.
            let _ = add_lines(&dwarf, base, &mut known.lines);
        }
    }

    /// Reads the names of kernels from a code object as it lies in memory, without the parts that are not loaded.
    pub fn add_image(&self, base: u64, image: &[u8]) {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        for (name, address) in image::symbols(image).unwrap_or_default() {
            if let Some(name) = name.strip_suffix(".kd") {
                known.kernels.insert(base.wrapping_add(address), name.to_owned());
            }
        }
    }

    /// The kernel with this descriptor.
    pub fn kernel(&self, descriptor: u64) -> Option<String> {
        self.known.read().unwrap_or_else(PoisonError::into_inner).kernels.get(&descriptor).cloned()
    }

    /// File and line of an instruction.
    pub fn source(&self, address: u64) -> Option<String> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        known.lines.range(..=address).next_back().and_then(|(_, source)| source.clone())
    }
}

fn add_lines(
    dwarf: &Dwarf<Slice<'_>>,
    base: u64,
    lines: &mut BTreeMap<u64, Option<String>>,
) -> Result<(), gimli::Error> {
    let mut units = dwarf.units();
    while let Some(header) = units.next()? {
        let unit = dwarf.unit(header)?;
        let Some(program) = unit.line_program.clone() else { continue };
        let mut rows = program.rows();
        while let Some((header, row)) = rows.next_row()? {
            let file = row.file(header).and_then(|file| dwarf.attr_string(&unit, file.path_name()).ok());
            let source = match (file, row.line()) {
                _ if row.end_sequence() => None,
                (Some(file), Some(line)) => Some(format!("{}:{line}", file.to_string_lossy())),
                // Line 0: code that belongs to no line.
                _ => None,
            };
            lines.insert(base.wrapping_add(row.address()), source);
        }
    }
    Ok(())
}
