//! Features that the library pretends to lack: other backends have fewer engines, and callers must fall back for them.

use std::sync::Arc;

use hipdnn::sys::DescriptorType as D;
use hipdnn_abi::{Descriptor, Fault, Outcome};

/// The variable that lists the features to reject.
const VARIABLE: &str = "AMDGPU_EP_HIPDNN_HOST_LACKS";

/// The features that the library rejects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lacks {
    /// Attention as a single operation.
    attention: bool,
    /// Graphs with several operations.
    chains: bool,
}

impl Lacks {
    /// Reads the environment.
    pub fn read() -> Outcome<Self> {
        std::env::var(VARIABLE).map_or_else(|_| Ok(Self::default()), |text| Self::parse(&text))
    }

    fn parse(text: &str) -> Outcome<Self> {
        let mut lacks = Self::default();
        for word in text.split(',').map(str::trim).filter(|word| !word.is_empty()) {
            match word {
                "attention" => lacks.attention = true,
                "chains" => lacks.chains = true,
                _ => {
                    let wanted = "expected a comma-separated list of attention and chains";
                    return Err(Fault::bad(format!("{VARIABLE}: {word:?} is unknown, {wanted}")));
                }
            }
        }
        Ok(lacks)
    }

    /// Rejects a graph that the library pretends to have no engine for.
    pub fn check(self, operations: &[Arc<Descriptor>]) -> Result<(), String> {
        let attends = |operation: &Arc<Descriptor>| operation.kind.descriptor == D::OPERATION_SDPA_FWD_DESCRIPTOR;
        if self.chains && operations.len() > 1 {
            return Err(format!("no engine runs {} operations as one graph ({VARIABLE})", operations.len()));
        }
        if self.attention && operations.iter().any(attends) {
            return Err(format!("no engine runs attention ({VARIABLE})"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_a_list_and_names_unknown_words() {
        let both = Lacks { attention: true, chains: true };
        assert_eq!(Lacks::parse("chains, attention").unwrap(), both);
        assert_eq!(Lacks::parse("").unwrap(), Lacks::default());
        assert!(Lacks::parse("chains,money").unwrap_err().text.contains("\"money\" is unknown"));
    }
}
