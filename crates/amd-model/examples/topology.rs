//! Writes the folder for `HSA_MODEL_TOPOLOGY`: `topology FOLDER gfx1100 [gfx1201 ...]`.

use std::error::Error;
use std::path::PathBuf;

use amd_model::chips::{ALL, Chip};
use amd_model::topology::Machine;

/// More than any test needs, and less than a CI machine has.
const MOST_MEMORY_GIB: u64 = 8;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let folder = PathBuf::from(arguments.next().ok_or("usage: topology FOLDER TARGET...")?);
    let known = || ALL.map(|chip| chip.target).join(", ");
    let chip = |target: String| Chip::of(&target).ok_or_else(|| format!("{target} is not one of {}", known()));
    let chips: Vec<&Chip> = arguments.map(chip).collect::<Result<_, _>>()?;
    if chips.is_empty() {
        return Err(format!("name a target: {}", known()).into());
    }
    Machine { chips: &chips, most_memory_gib: MOST_MEMORY_GIB }.write(&folder)?;
    let names: Vec<String> = chips.iter().map(|chip| format!("{} ({})", chip.target, chip.name)).collect();
    println!("{}", names.join(", "));
    Ok(())
}
