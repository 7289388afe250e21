//! What is known of a value before it exists.

use std::fmt;

/// A type, as far as it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Type {
    /// Anything.
    Any,
    Bool,
    /// A number, with or without a fraction.
    Number,
    Text,
    Time,
    Duration,
    List,
    Map,
    Null,
    /// Those of Kubernetes, which only its functions read.
    Quantity,
    Version,
    Address,
    Network,
    Url,
}

impl Type {
    /// Whether a value may be a number, or contain one.
    pub(crate) fn may_hold_numbers(self) -> bool {
        matches!(self, Self::Any | Self::Number | Self::List | Self::Map)
    }

    /// Whether values of this type have an order for `<`.
    pub(crate) fn is_ordered(self) -> bool {
        matches!(
            self,
            Self::Any | Self::Number | Self::Text | Self::Time | Self::Duration | Self::Null
        )
    }

    /// Whether two values of these types can be equal or compared.
    pub(crate) fn meets(self, other: Self) -> bool {
        self == other
            || matches!(self, Self::Any | Self::Null)
            || matches!(other, Self::Any | Self::Null)
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Any => "a value",
            Self::Bool => "a boolean",
            Self::Number => "a number",
            Self::Text => "a text",
            Self::Time => "a time",
            Self::Duration => "a duration",
            Self::List => "a list",
            Self::Map => "a map",
            Self::Null => "null",
            Self::Quantity => "a quantity",
            Self::Version => "a version",
            Self::Address => "an IP address",
            Self::Network => "a range of addresses",
            Self::Url => "a URL",
        })
    }
}
