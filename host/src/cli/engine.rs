//! The arguments about what a module may take before its first call.

use clap::Args;

/// MiB for compiling one module, and core instances of a guest: enough for guests in Rust
/// or C, and for any that do not carry an interpreter.
const COMPILE_MEMORY_MIB: u64 = 256;
const CORE_INSTANCES: u32 = 8;

/// What a module may take before its first call.
#[derive(Clone, Copy, Debug, Args)]
pub struct EngineArguments {
    /// Memory for compiling one module, in MiB. Guests that carry the interpreter of their
    /// language need more.
    #[arg(long, env = "DAVIT_COMPILE_MEMORY_MIB", value_name = "MIB", default_value_t = COMPILE_MEMORY_MIB, value_parser = clap::value_parser!(u64).range(64..=65_536))]
    pub compile_memory_mib: u64,
    /// Core instances that an instance of a guest may consist of. Guests that carry the
    /// interpreter of their language may need more.
    #[arg(long, env = "DAVIT_CORE_INSTANCES", value_name = "NUMBER", default_value_t = CORE_INSTANCES, value_parser = clap::value_parser!(u32).range(8..=256))]
    pub core_instances: u32,
}

impl Default for EngineArguments {
    fn default() -> Self {
        Self {
            compile_memory_mib: COMPILE_MEMORY_MIB,
            core_instances: CORE_INSTANCES,
        }
    }
}
