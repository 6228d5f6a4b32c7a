//! What a target can do.

/// Instructions for products of small matrices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Matrix {
    /// None: products are multiplied and added one by one.
    None,
    /// MFMA of gfx908 and later gfx9: no bf16 on gfx908.
    Mfma,
    /// WMMA of gfx11.
    Wmma11,
    /// WMMA of gfx12.
    Wmma12,
    /// `mma.sync` of the twin.
    Mma,
}

/// A target, as kernels are chosen for it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Arch {
    /// The target with its features, as the compiler is given it.
    pub target: String,
    /// Lanes of a wave.
    pub wave: u32,
    /// Matrix instructions.
    pub matrix: Matrix,
    /// Compute units, to size grids.
    pub compute_units: u32,
}

impl Arch {
    /// The target with this name, such as `gfx90a:sramecc+:xnack-` or `sm_90`. Unknown ones get what their family has for
    /// sure.
    pub fn new(target: &str, compute_units: u32) -> Self {
        let name = target.split(':').next().unwrap_or_default();
        let matrix = match name {
            "gfx908" | "gfx90a" | "gfx942" | "gfx950" => Matrix::Mfma,
            _ if name.starts_with("gfx11") => Matrix::Wmma11,
            _ if name.starts_with("gfx120") => Matrix::Wmma12,
            _ if name.starts_with("sm_") => Matrix::Mma,
            _ => Matrix::None,
        };
        let is_gfx9 = name.starts_with("gfx9");
        Self { target: target.to_owned(), wave: if is_gfx9 { 64 } else { 32 }, matrix, compute_units }
    }
}
