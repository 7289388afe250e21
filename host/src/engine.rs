//! The engine of this program: it compiles modules in a child process.

use std::path::PathBuf;

use crate::cli::EngineArguments;
use anyhow::{Context as _, Result};
use davit_engine::{ChildCompiler, CompileLimits, Compiler, Engine, EngineConfig};

/// The engine that guests run in. It keeps compiled guests in the cache directory, if
/// there is one.
pub(crate) fn compiling_apart(
    cache: Option<PathBuf>,
    arguments: EngineArguments,
) -> Result<Engine> {
    let config = EngineConfig {
        cache_dir: cache,
        compiler: Compiler::Child(own_compiler(arguments)?),
        core_instances: arguments.core_instances,
        ..EngineConfig::default()
    };
    Ok(Engine::new(config)?)
}

/// This program, as the compiler of modules.
fn own_compiler(arguments: EngineArguments) -> Result<ChildCompiler> {
    // The link leads to the program that runs, also after the file was replaced.
    let program = if cfg!(target_os = "linux") {
        "/proc/self/exe".into()
    } else {
        std::env::current_exe().context("the path of this program")?
    };
    Ok(ChildCompiler {
        program,
        arguments: vec!["compile".to_owned()],
        limits: CompileLimits {
            memory: arguments.compile_memory_mib << 20,
            ..CompileLimits::default()
        },
    })
}
