//! The controllers that a replica can run, as its lease says.
//!
//! Every replica reads all leases each second, and all annotations of an object have 256 KiB
//! together. So a long list becomes one of hashes, which has a fixed size for each
//! controller, and ends at [`MOST_HASHES`]. What is not listed counts as not ready: then
//! readiness decides nothing about its lease.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use crate::digest::ModuleDigest;

/// The longest list of names, in bytes.
const MOST_NAME_BYTES: usize = 4 << 10;
/// The longest list of hashes.
const MOST_HASHES: usize = 10_000;
/// The hexadecimal digits of a hash: among 10,000 names, two have the same with a probability
/// of 1 in 20,000. Then a replica may get a lease that it gives back.
const HASH_DIGITS: usize = 10;
/// It starts a list of hashes. No name has it.
const HASHED: char = '#';

/// The controllers that a replica can run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadyControllers(List);

#[derive(Clone, Debug, PartialEq, Eq)]
enum List {
    Names(BTreeSet<String>),
    Hashes(BTreeSet<String>),
}

impl Default for ReadyControllers {
    fn default() -> Self {
        Self(List::Names(BTreeSet::new()))
    }
}

impl ReadyControllers {
    /// These controllers.
    #[must_use]
    pub fn new(names: &BTreeSet<String>) -> Self {
        let bytes: usize = names.iter().map(|name| name.len() + 1).sum();
        if bytes <= MOST_NAME_BYTES {
            return Self(List::Names(names.clone()));
        }
        let hashes: BTreeSet<String> = names.iter().map(|name| hash(name)).collect();
        Self(List::Hashes(hashes.into_iter().take(MOST_HASHES).collect()))
    }

    /// Whether the list has a controller.
    #[must_use]
    pub fn contains(&self, name: &str) -> bool {
        match &self.0 {
            List::Names(names) => names.contains(name),
            List::Hashes(hashes) => hashes.contains(&hash(name)),
        }
    }

    /// The text of the annotation: comma-separated names, or hashes.
    #[must_use]
    pub fn text(&self) -> String {
        let joined = |all: &BTreeSet<String>| {
            let all: Vec<&str> = all.iter().map(String::as_str).collect();
            all.join(",")
        };
        match &self.0 {
            List::Names(names) => joined(names),
            List::Hashes(hashes) => format!("{HASHED}{}", joined(hashes)),
        }
    }

    /// Reads the text of an annotation.
    #[must_use]
    pub fn read(text: &str) -> Self {
        let set = |text: &str| -> BTreeSet<String> {
            let all = text.split(',').filter(|one| !one.is_empty());
            all.map(ToOwned::to_owned).collect()
        };
        Self(match text.strip_prefix(HASHED) {
            Some(hashes) => List::Hashes(set(hashes)),
            None => List::Names(set(text)),
        })
    }
}

/// The first digits of the SHA-256 of a name.
fn hash(name: &str) -> String {
    let mut digits = String::with_capacity(HASH_DIGITS);
    for byte in ModuleDigest::of(name.as_bytes())
        .0
        .iter()
        .take(HASH_DIGITS / 2)
    {
        // A text can always be written to.
        let _ = write!(digits, "{byte:02x}");
    }
    digits
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(count: usize) -> BTreeSet<String> {
        (0..count)
            .map(|number| format!("a-controller-with-a-long-name-{number}"))
            .collect()
    }

    #[test]
    fn a_list_of_ready_controllers_is_read_as_it_is_written_and_has_a_bound() {
        for (count, most_bytes) in [(0, 0), (100, 4 << 10), (4_000, 44_000), (30_000, 110_000)] {
            let all = names(count);
            let ready = ReadyControllers::new(&all);
            let text = ready.text();
            assert!(text.len() <= most_bytes, "{count}: {}", text.len());
            let read = ReadyControllers::read(&text);
            assert_eq!(read, ready);
            assert!(!read.contains("another"));
            let listed = all.iter().filter(|name| read.contains(name)).count();
            assert_eq!(listed, count.min(MOST_HASHES), "of {count}");
        }
    }

    #[test]
    fn a_short_list_has_names_for_people() {
        let two = BTreeSet::from(["gc".to_owned(), "podgc".to_owned()]);
        assert_eq!(ReadyControllers::new(&two).text(), "gc,podgc");
        assert!(ReadyControllers::read("gc,podgc").contains("gc"));
    }
}
