//! The child process that compiles one module.

use std::io::{self, Read as _, Write as _};
use std::process::ExitCode;

use crate::compiler::{CompileError, REFUSED, compile};
use crate::engine::compiling_engine;

/// The child process: compiles the module on the standard input, with this much
/// memory in bytes and processor time in seconds, and writes the machine code to the
/// standard output.
#[must_use]
pub fn run_child(memory: u64, processor_time: u64) -> ExitCode {
    match child(memory, processor_time) {
        Ok(()) => ExitCode::SUCCESS,
        Err(CompileError::Module(reason)) => {
            eprintln!("{reason}");
            ExitCode::from(u8::try_from(REFUSED).unwrap_or(u8::MAX))
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn child(memory: u64, processor_time: u64) -> Result<(), CompileError> {
    let failed = |what: &str, error: &dyn std::fmt::Display| {
        CompileError::Process(format!("{what}: {error}"))
    };
    let mut wasm = Vec::new();
    io::stdin()
        .read_to_end(&mut wasm)
        .map_err(|error| failed("the module cannot be read", &error))?;
    limit_process(memory, processor_time)
        .map_err(|error| failed("the process cannot be limited", &error))?;
    let engine = compiling_engine()
        .map_err(|error| failed("wasmtime cannot be set up", &format!("{error:#}")))?;
    let code = compile(&engine, &wasm)?
        .serialize()
        .map_err(|error| failed("the machine code cannot be written", &format!("{error:#}")))?;
    io::stdout()
        .write_all(&code)
        .map_err(|error| failed("the machine code cannot be written", &error))
}

/// Limits this process for as long as it runs. If the container runs out of memory,
/// the kernel ends this process first.
fn limit_process(memory: u64, processor_time: u64) -> io::Result<()> {
    use rustix::process::{Resource, Rlimit, nice, setrlimit};
    let limit = |resource, current, maximum| {
        let both = Rlimit {
            current: Some(current),
            maximum: Some(maximum),
        };
        setrlimit(resource, both)
    };
    limit(Resource::Data, memory, memory)?;
    // At the first the kernel sends SIGXCPU, which says why; at the second SIGKILL.
    limit(Resource::Cpu, processor_time, processor_time + 1)?;
    limit(Resource::Core, 0, 0)?;
    #[cfg(target_os = "linux")]
    {
        nice(NICER)?;
        // A kernel without the file has no such order.
        let _ = std::fs::write("/proc/self/oom_score_adj", "1000");
    }
    Ok(())
}

/// The increment of the nice value. Compiling gets the processor time that running
/// guests leave, or a seventieth of a processor if they leave none.
#[cfg(target_os = "linux")]
const NICER: i32 = 19;
