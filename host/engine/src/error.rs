//! How calls into guests fail.

use std::fmt;
use std::time::Duration;

use davit_core::manifest::ManifestError;
use wasmtime::{Trap, WasmBacktrace};

use crate::convert::Malformed;
use crate::limits::{Exceeded, Limits};

/// Why a guest did not answer, or not usefully. Except for
/// [`CallError::Restart`], which has no instance, the instance is gone.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// The guest trapped: a panic, an invalid access, an exhausted call stack,
    /// or a mistake in what it asked of the host.
    #[error("the guest trapped: {0}")]
    Trap(TrapReport),
    /// It used more CPU time than [`Limits::cpu`].
    #[error("the guest used more than {limit:?} of CPU time")]
    Deadline {
        /// The limit.
        limit: Duration,
    },
    /// It wanted more memory than [`Limits::memory`].
    #[error("the guest needs more than {limit} bytes of memory")]
    Memory {
        /// The limit in bytes.
        limit: usize,
    },
    /// It handed over, or asked for, more than the limits allow.
    #[error("the guest exceeded its limit of {limit} {what}")]
    TooLarge {
        /// `bytes in one answer or request`, …
        what: &'static str,
        /// The limit.
        limit: usize,
    },
    /// Its answer does not follow the interface.
    #[error("the guest's answer is malformed: {0}")]
    Malformed(#[from] Malformed),
    /// A new instance did not come up, though the first one of this
    /// configuration did.
    #[error("the guest does not start again: {0}")]
    Restart(Box<DescribeError>),
}

/// Why a guest is not ready to decide.
#[derive(Debug, thiserror::Error)]
pub enum DescribeError {
    /// It refuses the operator's configuration.
    #[error("the configuration is not valid: {}{message}", at(field))]
    Config {
        /// The path of the value that is wrong; empty for the whole.
        field: String,
        /// What is wrong with it.
        message: String,
    },
    /// Its manifest makes no sense.
    #[error("the guest's manifest is not valid: {0}")]
    Manifest(#[from] ManifestError),
    /// It failed before it could say.
    #[error(transparent)]
    Call(#[from] CallError),
    /// All instances that the engine may have are taken.
    #[error(
        "{wanted} more instances are wanted, and {left} are left of those that all revisions of \
         all controllers share: lower limits.instances, here or where more than needed are kept"
    )]
    NoInstances {
        /// How many this guest needs.
        wanted: u32,
        /// How many the engine has left.
        left: usize,
    },
}

/// What is known of a trap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrapReport {
    /// What happened.
    pub message: String,
    /// The functions that were running, innermost first, as far as the module
    /// names them.
    pub functions: Vec<String>,
    /// What the call wrote to standard error, the last lines: a panic's
    /// message.
    pub last_words: Vec<String>,
}

impl fmt::Display for TrapReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        if !self.last_words.is_empty() {
            write!(f, "; it said: {}", self.last_words.join(" | "))?;
        }
        if !self.functions.is_empty() {
            write!(f, "; in {}", self.functions.join(" < "))?;
        }
        Ok(())
    }
}

/// Something that a guest asked of the host and must not: raised as the cause
/// of a trap.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Mistake(pub(crate) String);

impl Mistake {
    pub(crate) fn trap<T>(message: impl Into<String>) -> wasmtime::Result<T> {
        Err(wasmtime::Error::new(Self(message.into())))
    }
}

/// Sorts what wasmtime says of a call that ended early.
pub(crate) fn classify(
    error: &wasmtime::Error,
    limits: &Limits,
    last_words: Vec<String>,
) -> CallError {
    match error.downcast_ref::<Exceeded>() {
        Some(Exceeded::Cpu) => return CallError::Deadline { limit: limits.cpu },
        Some(Exceeded::Memory) => {
            return CallError::Memory {
                limit: limits.memory,
            };
        }
        Some(Exceeded::TableElements) => {
            let (what, limit) = ("table elements", limits.table_elements);
            return CallError::TooLarge { what, limit };
        }
        Some(Exceeded::LiveReads) => {
            let (what, limit) = ("live reads in one call", limits.live_reads);
            return CallError::TooLarge { what, limit };
        }
        None => {}
    }
    let message = message(error);
    if message.contains(TRANSFER_EXHAUSTED) {
        let (what, limit) = ("bytes in one answer or request", limits.answer);
        return CallError::TooLarge { what, limit };
    }
    CallError::Trap(TrapReport {
        message,
        functions: functions(error),
        last_words,
    })
}

/// Wasmtime's error for this has no public type. The tests notice if its text
/// changes.
const TRANSFER_EXHAUSTED: &str = "fuel allocated for hostcalls";

fn message(error: &wasmtime::Error) -> String {
    match error.downcast_ref::<Trap>() {
        Some(trap) => trap.to_string(),
        None => error.root_cause().to_string(),
    }
}

fn functions(error: &wasmtime::Error) -> Vec<String> {
    let Some(backtrace) = error.downcast_ref::<WasmBacktrace>() else {
        return Vec::new();
    };
    let names = backtrace
        .frames()
        .iter()
        .filter_map(|frame| frame.func_name());
    names.map(str::to_owned).collect()
}

fn at(field: &str) -> String {
    if field.is_empty() {
        String::new()
    } else {
        format!("{field}: ")
    }
}
