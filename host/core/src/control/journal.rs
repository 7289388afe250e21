//! The journal of the host, as far as Controllers report it.

/// Whether the journal of a host records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JournalState {
    /// It has every entry.
    Recording,
    /// It drops entries: the disk fails, or does not keep up.
    Stopped,
}
