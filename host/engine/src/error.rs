//! How calls into guests fail.

use std::fmt;
use std::time::Duration;

use davit_core::answer::AnswerError;
use davit_core::manifest::ManifestError;
use davit_core::msgpack::JsonError;
use davit_core::untrusted;
use wasmtime::{Trap, WasmBacktrace};

use crate::convert::Encoding;
use crate::limits::{LimitExceeded, Limits};

/// Why a guest gave no answer, or an unusable one. The instance is gone, except
/// with [`CallError::Restart`], which has none.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// The guest trapped: a panic, an invalid access, an exhausted call stack,
    /// or an invalid request to the host.
    #[error("the guest trapped: {0}")]
    Trap(TrapReport),
    /// It used more CPU time than [`Limits::cpu`].
    #[error("the guest used more than {limit:?} of CPU time")]
    Deadline {
        /// The limit.
        limit: Duration,
    },
    /// It needed more memory than [`Limits::memory`].
    #[error("the guest needs more than {limit} bytes of memory")]
    Memory {
        /// The limit in bytes.
        limit: usize,
    },
    /// It returned, or asked for, more than the limits allow.
    #[error("the guest exceeded its limit of {limit} {unit}")]
    TooLarge {
        /// `bytes in one answer or request`, …
        unit: &'static str,
        /// The limit.
        limit: usize,
    },
    /// Its answer does not conform to the interface.
    #[error("the guest's answer is malformed: {0}")]
    Malformed(#[from] AnswerError),
    /// A new instance failed to start, although the first one of this
    /// configuration started.
    #[error("cannot start a new instance of the guest: {0}")]
    Restart(Box<DescribeError>),
}

/// Why a guest is not ready to decide.
#[derive(Debug, thiserror::Error)]
pub enum DescribeError {
    /// It refuses the operator's configuration.
    #[error("the configuration is not valid: {}{message}", at(field))]
    Config {
        /// The path of the wrong value; empty for the whole configuration.
        field: String,
        /// What is wrong with it.
        message: String,
    },
    /// The configuration has no text in the guest's encoding.
    #[error("the configuration cannot be written as JSON: {0}")]
    ConfigText(#[source] JsonError),
    /// It asks for an encoding that this host does not know.
    #[error("the guest asks for the encoding \"{found}\"; this host knows {known}")]
    Encoding {
        /// What it asks for.
        found: String,
        /// The known encodings.
        known: &'static str,
    },
    /// Its manifest is not valid.
    #[error("the guest's manifest is not valid: {0}")]
    Manifest(#[from] ManifestError),
    /// The call itself failed.
    #[error(transparent)]
    Call(#[from] CallError),
    /// There are as many guests as instances, and each is sure of one.
    #[error(
        "the host runs {limit} revisions of all controllers, and no more: run fewer controllers in \
         one host, or wait until a rollout has ended"
    )]
    NoInstances {
        /// [`EngineConfig::max_instances`](crate::EngineConfig::max_instances).
        limit: u32,
    },
}

impl DescribeError {
    /// The guest named an unknown encoding.
    pub(crate) fn encoding(found: &str) -> Self {
        Self::Encoding {
            found: untrusted::line(found, LONGEST_ENCODING),
            known: Encoding::KNOWN,
        }
    }
}

/// How much of an unknown encoding an error has, in bytes.
const LONGEST_ENCODING: usize = 64;

/// The known facts about a trap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrapReport {
    /// The cause.
    pub message: String,
    /// The running functions, innermost first, as far as the module names them.
    pub functions: Vec<String>,
    /// The last lines that the call wrote to standard error: a panic's message.
    pub last_words: Vec<String>,
}

impl fmt::Display for TrapReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        let guest_message = self.guest_message();
        if !guest_message.is_empty() {
            write!(f, "; {guest_message}")?;
        }
        Ok(())
    }
}

impl TrapReport {
    /// What the guest wrote, and the names of its functions.
    #[must_use]
    pub fn guest_message(&self) -> String {
        let last_words = (!self.last_words.is_empty())
            .then(|| format!("standard error: {}", self.last_words.join(" | ")));
        let functions =
            (!self.functions.is_empty()).then(|| format!("in {}", self.functions.join(" < ")));
        let parts = last_words.into_iter().chain(functions);
        parts.collect::<Vec<_>>().join("; ")
    }
}

/// An invalid request of a guest to the host: raised as the cause of a trap.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Mistake(pub(crate) String);

impl Mistake {
    pub(crate) fn trap<T>(message: impl Into<String>) -> wasmtime::Result<T> {
        Err(wasmtime::Error::new(Self(message.into())))
    }
}

/// Classifies wasmtime's error for a call that ended early.
pub(crate) fn classify(
    error: &wasmtime::Error,
    limits: &Limits,
    last_words: Vec<String>,
) -> CallError {
    match error.downcast_ref::<LimitExceeded>() {
        Some(LimitExceeded::Cpu) => return CallError::Deadline { limit: limits.cpu },
        Some(LimitExceeded::Memory) => {
            return CallError::Memory {
                limit: limits.memory,
            };
        }
        Some(LimitExceeded::TableElements) => {
            let (unit, limit) = ("table elements", limits.table_elements);
            return CallError::TooLarge { unit, limit };
        }
        Some(LimitExceeded::LiveReads) => {
            let (unit, limit) = ("live reads in one call", limits.live_reads);
            return CallError::TooLarge { unit, limit };
        }
        None => {}
    }
    let message = message(error);
    if message.contains(TRANSFER_EXHAUSTED) {
        let (unit, limit) = ("bytes in one answer or request", limits.answer);
        return CallError::TooLarge { unit, limit };
    }
    CallError::Trap(TrapReport {
        message,
        functions: functions(error),
        last_words,
    })
}

/// Wasmtime's error for this has no public type. Tests notice if its text
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

#[cfg(test)]
mod tests {
    use wasmtime::{Instance, Module, Store};

    use super::*;
    use crate::engine::compiling_engine;

    /// `(module (func $breaks (export "f") unreachable))` with its names.
    const BREAKS: &[u8] = b"\0asm\x01\0\0\0\
        \x01\x04\x01\x60\0\0\
        \x03\x02\x01\0\
        \x07\x05\x01\x01f\0\0\
        \x0a\x05\x01\x03\0\0\x0b\
        \0\x10\x04name\x01\x09\x01\0\x06breaks";

    /// Although compiled code has no tables for debuggers.
    #[test]
    fn a_trap_names_its_functions() {
        let engine = compiling_engine().unwrap();
        let module = Module::new(&engine, BREAKS).unwrap();
        let mut store = Store::new(&engine, ());
        store.set_epoch_deadline(1);
        let instance = Instance::new(&mut store, &module, &[]).unwrap();
        let function = instance.get_typed_func::<(), ()>(&mut store, "f").unwrap();
        let error = function.call(&mut store, ()).unwrap_err();
        assert_eq!(functions(&error), ["breaks"]);
    }
}
