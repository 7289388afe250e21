//! Colours of a terminal.

use crate::telemetry::has_colour;

pub(crate) const BOLD: &str = "1";
pub(crate) const DIM: &str = "2";
pub(crate) const RED: &str = "31";
pub(crate) const GREEN: &str = "32";
pub(crate) const YELLOW: &str = "33";
pub(crate) const CYAN: &str = "36";

/// Standard output: whether it shows colours.
#[derive(Clone, Copy)]
pub(crate) struct Terminal {
    colour: bool,
}

impl Terminal {
    pub(crate) fn new() -> Self {
        Self {
            colour: has_colour(&std::io::stdout()),
        }
    }

    /// A text in a colour, where there are colours.
    pub(crate) fn paint(self, code: &str, text: &str) -> String {
        if self.colour {
            format!("\u{1b}[{code}m{text}\u{1b}[0m")
        } else {
            text.to_owned()
        }
    }
}
