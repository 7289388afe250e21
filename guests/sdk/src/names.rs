//! Names that a manifest declares and a decision uses: constants, so that a typo does not
//! compile.

use std::collections::BTreeSet;
use std::fmt;
use std::marker::PhantomData;
use std::sync::{Mutex, PoisonError};

/// The name of a queue: the same constant declares the queue, enqueues items and matches
/// them.
///
/// ```
/// use davit_guest::{QueueName, WorkItem};
///
/// const PASSES: QueueName = QueueName::new("passes");
/// const NODES: QueueName = QueueName::new("nodes");
///
/// fn subject(item: &WorkItem) -> String {
///     match item.queue {
///         NODES => format!("the node {}", item.key),
///         _ => "the cluster".to_owned(),
///     }
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct QueueName(&'static str);

impl QueueName {
    /// Names a queue.
    #[must_use]
    pub const fn new(name: &'static str) -> Self {
        Self(name)
    }

    /// The name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        self.0
    }

    /// The name of a queue of which only the text is known: of an item, or from the
    /// configuration. The text is kept for as long as the instance lives.
    #[must_use]
    pub fn named(name: &str) -> Self {
        Self(kept(name))
    }
}

impl fmt::Display for QueueName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

/// Why a plan is made, in a short word for metrics and logs: `orphaned`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Reason(&'static str);

impl Reason {
    /// Names a reason.
    #[must_use]
    pub const fn new(word: &'static str) -> Self {
        Self(word)
    }

    /// The word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        self.0
    }

    /// A word from the configuration. It is kept for as long as the instance lives.
    #[must_use]
    pub fn named(word: &str) -> Self {
        Self(kept(word))
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

/// The name of a watch, with the view of its objects: the same constant
/// declares the watch and reads it.
#[derive(Debug)]
pub struct WatchName<T> {
    name: &'static str,
    view: PhantomData<fn() -> T>,
}

/// The name of an index over objects of a view. It fits only a watch with this view.
#[derive(Debug)]
pub struct IndexName<T> {
    name: &'static str,
    view: PhantomData<fn() -> T>,
}

macro_rules! name_of_objects {
    ($name:ident, $what:literal) => {
        impl<T> Clone for $name<T> {
            fn clone(&self) -> Self {
                *self
            }
        }

        impl<T> Copy for $name<T> {}

        impl<T> $name<T> {
            #[doc = concat!("Names ", $what, ".")]
            #[must_use]
            pub const fn new(name: &'static str) -> Self {
                let view = PhantomData;
                Self { name, view }
            }

            /// A name from the configuration. It is kept for as long as the instance lives.
            #[must_use]
            pub fn named(name: &str) -> Self {
                Self::new(kept(name))
            }

            /// The name.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                self.name
            }
        }
    };
}

name_of_objects!(WatchName, "a watch");
name_of_objects!(IndexName, "an index");

/// A text that is kept for as long as the instance lives, once.
fn kept(name: &str) -> &'static str {
    static KNOWN: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(name) = known.get(name) {
        return name;
    }
    let name: &'static str = name.to_owned().leak();
    known.insert(name);
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_queue_of_an_item_matches_its_constant() {
        const PODS: QueueName = QueueName::new("pods");
        let name = String::from("pods");
        assert!(matches!(QueueName::named(&name), PODS));
        assert!(!matches!(QueueName::named("nodes"), PODS));
    }
}
