//! The report `memory`: how much memory the engine held.

use crate::{Kind, Report};

report! {
    /// Memory at the end of a session. The counters are global to the library and include other sessions.
    pub struct Memory {
        /// device of the session
        pub device: String,
        /// memory by purpose
        pub memory: Purposes,
    }

    /// Memory by purpose.
    pub struct Purposes {
        /// weights in host memory
        pub constants: Usage,
        /// weights mapped from the files of the model
        // Older backends do not report it.
        #[serde(default)]
        pub mapped: Usage,
        /// weights in GPU memory
        pub weights: Usage,
        /// values that steps pass to each other, and workspaces of libraries
        pub arena: Usage,
        /// scratch memory of single steps on the host
        pub working: Usage,
        /// pinned memory for uploads
        pub staging: Usage,
    }

    /// Memory for one purpose.
    #[derive(Default)]
    pub struct Usage {
        /// bytes held when the session ended
        pub now: u64,
        /// most bytes held at one time
        pub peak: u64,
    }
}

impl Report for Memory {
    const KIND: Kind = Kind::Memory;
}
