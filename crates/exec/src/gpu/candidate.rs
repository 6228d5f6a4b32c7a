//! The candidates for running a step.
use std::fmt;
use std::str::FromStr;

/// A backend and variant that can run a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Candidate {
    /// Our kernels: the index of the variant in `kernels::variants`.
    Own(usize),
    /// BLASLt: the rank in the library's order.
    BlasLt(usize),
    /// hipDNN: the rank of the engine in the library's order.
    HipDnn(usize),
}

impl fmt::Display for Candidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Own(number) => write!(f, "own-{number}"),
            Self::BlasLt(rank) => write!(f, "blaslt-{rank}"),
            Self::HipDnn(rank) => write!(f, "hipdnn-{rank}"),
        }
    }
}

impl FromStr for Candidate {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (who, number) = text.rsplit_once('-').ok_or(())?;
        let number = number.parse().map_err(|_| ())?;
        match who {
            "own" => Ok(Self::Own(number)),
            "blaslt" => Ok(Self::BlasLt(number)),
            "hipdnn" => Ok(Self::HipDnn(number)),
            _ => Err(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn candidates_survive_a_round_trip() {
        for candidate in [Candidate::Own(2), Candidate::BlasLt(0), Candidate::HipDnn(11)] {
            assert_eq!(candidate.to_string().parse(), Ok(candidate));
        }
        for wrong in ["", "own", "own-x", "other-1", "own-99999999999999999999999"] {
            assert_eq!(wrong.parse::<Candidate>(), Err(()), "{wrong}");
        }
    }
}
