//! Output formats.

use clap::ValueEnum;

/// An output format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// Plain text.
    Text,
    /// JSON.
    Json,
    /// YAML.
    Yaml,
}

/// An output format for programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// JSON, indented.
    Json,
    /// YAML.
    Yaml,
}

impl Output {
    /// The format, if it is for programs.
    #[must_use]
    pub fn format(self) -> Option<Format> {
        match self {
            Self::Text => None,
            Self::Json => Some(Format::Json),
            Self::Yaml => Some(Format::Yaml),
        }
    }
}
