//! What a device can do beyond the primitives that every device runs.

/// Something that only some devices can do, or do faster than the steps it replaces. A planning stage names the one
/// that it needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Capability {
    /// Attention as a single step, for every attention that planning produces.
    Attention,
    /// A norm as the prologue of a product of few rows.
    NormedProducts,
    /// A gate over both halves of a product's columns, for few rows.
    GatedProducts,
    /// Appending a token's key and value to the cache while attending to the earlier ones.
    AppendAttention,
    /// Convolutions that run best with channels innermost.
    ChannelsLast,
}

/// The capabilities of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capabilities(u32);

impl Capabilities {
    /// None at all.
    pub const NONE: Self = Self(0);

    /// These capabilities, and another one.
    #[must_use]
    pub const fn with(self, capability: Capability) -> Self {
        Self(self.0 | 1 << capability as u32)
    }

    /// These capabilities, and another one if a condition holds.
    #[must_use]
    pub const fn with_if(self, condition: bool, capability: Capability) -> Self {
        if condition { self.with(capability) } else { self }
    }

    /// True if this one is among them.
    pub const fn has(self, capability: Capability) -> bool {
        self.0 & 1 << capability as u32 != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_has_the_capabilities_it_was_given() {
        let some = Capabilities::NONE.with(Capability::ChannelsLast).with_if(false, Capability::Attention);
        assert!(some.has(Capability::ChannelsLast) && !some.has(Capability::Attention));
        assert_eq!(some.with_if(true, Capability::Attention), some.with(Capability::Attention));
        assert_eq!(Capabilities::default(), Capabilities::NONE);
    }
}
