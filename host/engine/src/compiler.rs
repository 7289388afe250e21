//! Compiles modules in a process of their own.
//!
//! Cranelift takes memory and time as the module asks for them, and a module is
//! not trusted. So the host starts its own program again, with a module on its
//! standard input and limits on what it may use. The machine code comes back on its
//! standard output. A module that needs more ends that process alone.

use std::io;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use davit_core::untrusted;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, Command};
use tokio::time::timeout;
use wasmtime::component::Component;

/// The first bytes of every WebAssembly file.
const WASM_MAGIC: &[u8] = b"\0asm";

/// How much of an error text the host reads, in bytes.
const MOST_TEXT: u64 = 4096;

/// What the allocator of Rust writes before it aborts.
const OUT_OF_MEMORY: &str = "memory allocation of";

/// What compiling one module may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompileLimits {
    /// Memory, in bytes.
    pub memory: u64,
    /// Processor time. Less than a second counts as one.
    pub processor_time: Duration,
    /// Time. It is longer than the processor time because compiling gives way to
    /// running guests.
    pub time: Duration,
    /// The machine code, in bytes.
    pub code: u64,
}

impl Default for CompileLimits {
    fn default() -> Self {
        Self {
            memory: 256 << 20,
            processor_time: Duration::from_secs(60),
            time: Duration::from_secs(600),
            code: 256 << 20,
        }
    }
}

/// Where modules are compiled.
#[derive(Clone, Debug, Default)]
pub enum Compiler {
    /// In this process, without limits: for modules that the user of the process
    /// has written.
    #[default]
    InProcess,
    /// In a child process.
    Child(ChildCompiler),
}

/// A program that compiles one module.
#[derive(Clone, Debug)]
pub struct ChildCompiler {
    /// The program. It calls [`run_child`](crate::run_child) with its last two arguments.
    pub program: PathBuf,
    /// The arguments before those.
    pub arguments: Vec<String>,
    /// What it may use.
    pub limits: CompileLimits,
}

/// Why a module has not been compiled.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CompileError {
    /// It is no component, or needs a feature of wasmtime that is off.
    #[error("the module does not compile: {0}")]
    Module(String),
    /// It needs too much.
    #[error("compiling the module takes more than {0}, which is the limit")]
    Limit(String),
    /// It is made of more parts than a guest may have.
    #[error(
        "the module consists of more than {limit} core instances, which is the limit: raise \
         --core-instances"
    )]
    CoreInstances {
        /// [`EngineConfig::core_instances`](crate::EngineConfig::core_instances).
        limit: u32,
    },
    /// The compiler crashed.
    #[error("the module is not compiled: {0}")]
    Crash(String),
    /// The compiler cannot be run.
    #[error("the module is not compiled: {0}")]
    Process(String),
}

impl CompileError {
    /// Whether the same module fails again.
    pub(crate) fn is_final(&self) -> bool {
        !matches!(self, Self::Process(_))
    }
}

/// Machine code for a component, which [`crate::precompiled`] loads.
pub(crate) fn compile(engine: &wasmtime::Engine, wasm: &[u8]) -> Result<Component, CompileError> {
    if !wasm.starts_with(WASM_MAGIC) {
        let message = "it is not WebAssembly: a module starts with the bytes 00 61 73 6d";
        return Err(CompileError::Module(message.to_owned()));
    }
    Component::from_binary(engine, wasm).map_err(|error| CompileError::Module(format!("{error:#}")))
}

impl ChildCompiler {
    /// Has a child process compile a component. The process ends with this future.
    pub(crate) async fn compile(&self, wasm: &[u8]) -> Result<Vec<u8>, CompileError> {
        let failed = |error: io::Error| {
            let program = self.program.display();
            CompileError::Process(format!("{program} cannot be run: {error}"))
        };
        let limits = &self.limits;
        let child = Command::new(&self.program)
            .args(&self.arguments)
            .arg(limits.memory.to_string())
            .arg(limits.processor_time.as_secs().max(1).to_string())
            .env_clear()
            // For a program with jemalloc: no thread of its own, and no memory that is free counts
            // against the limit.
            .env("_RJEM_MALLOC_CONF", "background_thread:false,retain:false")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(failed)?;
        let Ok(ended) = timeout(limits.time, exchange(child, limits.code, wasm)).await else {
            return Err(CompileError::Limit(format!("{:?}", limits.time)));
        };
        let Exchange { status, code, text } = ended.map_err(failed)?;
        if code.len() as u64 > limits.code {
            let mebibytes = limits.code >> 20;
            return Err(CompileError::Limit(format!(
                "{mebibytes} MiB of machine code"
            )));
        }
        if status.success() {
            return Ok(code);
        }
        Err(why(status, &text, limits))
    }
}

/// What a child process has said.
struct Exchange {
    status: ExitStatus,
    code: Vec<u8>,
    text: String,
}

async fn exchange(mut child: Child, most_code: u64, wasm: &[u8]) -> io::Result<Exchange> {
    let (input, output, errors) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let send = async {
        if let Some(mut input) = input {
            // A child that has ended says why itself.
            let _ = input.write_all(wasm).await;
        }
    };
    // One byte more than the limit shows that the limit is exceeded. The pipe is
    // closed then, which ends the child.
    let ((), code, text) = tokio::join!(
        send,
        read(output, most_code.saturating_add(1)),
        read(errors, MOST_TEXT)
    );
    Ok(Exchange {
        status: child.wait().await?,
        code: code?,
        text: String::from_utf8_lossy(&text?).into_owned(),
    })
}

async fn read(from: Option<impl AsyncRead + Unpin>, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if let Some(from) = from {
        from.take(most).read_to_end(&mut bytes).await?;
    }
    Ok(bytes)
}

fn why(status: ExitStatus, text: &str, limits: &CompileLimits) -> CompileError {
    use std::os::unix::process::ExitStatusExt as _;
    let line = untrusted::line(text, untrusted::MOST_LOGGED);
    match status.signal() {
        None if status.code() == Some(REFUSED) => CompileError::Module(line),
        Some(signal) if signal == XCPU => {
            CompileError::Limit(format!("{:?} of processor time", limits.processor_time))
        }
        _ if text.contains(OUT_OF_MEMORY) => {
            CompileError::Limit(format!("{} MiB of memory", limits.memory >> 20))
        }
        // Not the module's doing: the machine is short of memory, or somebody ends processes.
        Some(signal) if ENDED_BY_OTHERS.contains(&signal) => {
            CompileError::Process(format!("the compiler's process was ended by {status}"))
        }
        Some(_) => CompileError::Crash(format!("the compiler's process ended by {status}: {line}")),
        None => CompileError::Process(line),
    }
}

/// The exit code for a module that does not compile.
pub(crate) const REFUSED: i32 = 65;

/// Signals that no program raises for itself.
const ENDED_BY_OTHERS: [i32; 4] = [
    rustix::process::Signal::KILL.as_raw(),
    rustix::process::Signal::TERM.as_raw(),
    rustix::process::Signal::INT.as_raw(),
    rustix::process::Signal::HUP.as_raw(),
];

/// The signal after the limit of processor time.
const XCPU: i32 = rustix::process::Signal::XCPU.as_raw();

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;

    use rustix::process::Signal;

    use super::*;

    /// A module that is taken for one that does not compile is not compiled again, and after an
    /// update the new guest would take its place.
    #[test]
    fn a_compiler_that_somebody_else_ended_is_started_again() {
        let ended = |signal: Signal| {
            let status = ExitStatus::from_raw(signal.as_raw());
            why(status, "", &CompileLimits::default())
        };
        for signal in [Signal::KILL, Signal::TERM, Signal::INT, Signal::HUP] {
            assert!(!ended(signal).is_final(), "{signal:?}");
        }
        for signal in [Signal::SEGV, Signal::ABORT, Signal::ILL, Signal::XCPU] {
            assert!(ended(signal).is_final(), "{signal:?}");
        }
    }
}
