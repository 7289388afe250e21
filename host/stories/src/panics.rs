//! Panics, with their messages and places.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::panic::{self, AssertUnwindSafe, PanicHookInfo};
use std::sync::Once;

/// A panic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Panic {
    /// The place in the source: `host/core/src/host.rs:120:9`.
    pub(crate) location: String,
    pub(crate) message: String,
}

thread_local! {
    /// Whether this thread catches panics.
    static CATCHES: Cell<bool> = const { Cell::new(false) };
    /// The last panic of this thread.
    static LAST: RefCell<Option<Panic>> = const { RefCell::new(None) };
}

static HOOK: Once = Once::new();

/// Does work. If it panics, returns the panic, and prints nothing. Nor does a panic print
/// anything that the work itself catches: a panic of a guest is a trap of its call.
pub(crate) fn catch<T>(work: impl FnOnce() -> T) -> Result<T, Panic> {
    HOOK.call_once(|| {
        let print = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if CATCHES.get() {
                LAST.set(Some(Panic::from(info)));
            } else {
                print(info);
            }
        }));
    });
    let outer = CATCHES.replace(true);
    let result = panic::catch_unwind(AssertUnwindSafe(work));
    CATCHES.set(outer);
    let last = LAST.take();
    result.map_err(|_| last.unwrap_or_else(Panic::unknown))
}

impl Panic {
    /// `std::panic::resume_unwind` calls no hook.
    fn unknown() -> Self {
        Self {
            location: "an unknown place".to_owned(),
            message: "without a message".to_owned(),
        }
    }
}

impl From<&PanicHookInfo<'_>> for Panic {
    fn from(info: &PanicHookInfo<'_>) -> Self {
        let location = info.location().map(ToString::to_string);
        let message = info.payload_as_str().unwrap_or("without a message");
        Self {
            location: location.unwrap_or_default(),
            message: message.to_owned(),
        }
    }
}

impl fmt::Display for Panic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "panic at {}: {}", self.location, self.message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_has_its_message_and_its_place() {
        let line = line!() + 1;
        let panic = catch::<()>(|| panic!("{} of {}", 3, 2)).unwrap_err();
        assert_eq!(panic.message, "3 of 2");
        let place = format!("host/stories/src/panics.rs:{line}:");
        assert!(panic.location.starts_with(&place), "{panic}");
    }

    #[test]
    fn a_panic_that_the_work_catches_is_none() {
        let result = catch(|| panic::catch_unwind::<_, ()>(|| panic!("a trap")).is_err());
        assert_eq!(result, Ok(true));
        let panic = catch::<()>(|| panic!("another")).unwrap_err();
        assert_eq!(panic.message, "another");
    }
}
