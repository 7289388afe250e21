//! The part of WASI that Rust's standard library needs, without function: no
//! environment, no arguments, no input, a clock that stands still, always the
//! same seed. A guest's output goes into the host's log.

use bytes::Bytes;
use wasmtime::Result;
use wasmtime::component::{HasSelf, Linker, Resource, ResourceTable};
use wasmtime_wasi::p2::bindings::{cli, clocks, random};
use wasmtime_wasi::p2::pipe::ClosedInputStream;
use wasmtime_wasi::p2::{
    DynInputStream, DynOutputStream, DynPollable, OutputStream, Pollable, StreamResult,
};
use wasmtime_wasi_io::IoView;

use crate::error::Mistake;
use crate::log::{GuestLog, Stream};
use crate::state::State;

/// How many streams and pollables an instance may have at once. The standard
/// library needs three.
const MAX_RESOURCES: usize = 64;

/// How much a program may print before it requests another permit.
const WRITE_PERMIT: usize = 4096;

pub(crate) fn add_to_linker(linker: &mut Linker<State>) -> Result<()> {
    type Own = HasSelf<State>;
    wasmtime_wasi_io::add_to_linker_async(linker)?;
    cli::environment::add_to_linker::<State, Own>(linker, |state| state)?;
    cli::exit::add_to_linker::<State, Own>(linker, |state| state)?;
    cli::stdin::add_to_linker::<State, Own>(linker, |state| state)?;
    cli::stdout::add_to_linker::<State, Own>(linker, |state| state)?;
    cli::stderr::add_to_linker::<State, Own>(linker, |state| state)?;
    cli::terminal_input::add_to_linker::<State, Own>(linker, |state| state)?;
    cli::terminal_output::add_to_linker::<State, Own>(linker, |state| state)?;
    cli::terminal_stdin::add_to_linker::<State, Own>(linker, |state| state)?;
    cli::terminal_stdout::add_to_linker::<State, Own>(linker, |state| state)?;
    cli::terminal_stderr::add_to_linker::<State, Own>(linker, |state| state)?;
    clocks::monotonic_clock::add_to_linker::<State, Own>(linker, |state| state)?;
    clocks::wall_clock::add_to_linker::<State, Own>(linker, |state| state)?;
    random::insecure_seed::add_to_linker::<State, Own>(linker, |state| state)
}

pub(crate) fn resources() -> ResourceTable {
    let mut table = ResourceTable::new();
    table.set_max_capacity(MAX_RESOURCES);
    table
}

impl IoView for State {
    fn table(&mut self) -> &mut ResourceTable {
        &mut self.resources
    }
}

// Empty, and no text: wasi-libc would free what it got with another allocator than the guest's
// (docs/adr/0033-guests-allocate-by-size.md).
impl cli::environment::Host for State {
    fn get_environment(&mut self) -> Result<Vec<(String, String)>> {
        Ok(Vec::new())
    }

    fn get_arguments(&mut self) -> Result<Vec<String>> {
        Ok(Vec::new())
    }

    fn initial_cwd(&mut self) -> Result<Option<String>> {
        Ok(None)
    }
}

impl cli::exit::Host for State {
    fn exit(&mut self, _status: std::result::Result<(), ()>) -> Result<()> {
        Mistake::trap("it called exit")
    }

    fn exit_with_code(&mut self, code: u8) -> Result<()> {
        Mistake::trap(format!("it called exit({code})"))
    }
}

impl cli::stdin::Host for State {
    fn get_stdin(&mut self) -> Result<Resource<DynInputStream>> {
        let closed: DynInputStream = Box::new(ClosedInputStream);
        Ok(self.resources.push(closed)?)
    }
}

impl cli::stdout::Host for State {
    fn get_stdout(&mut self) -> Result<Resource<DynOutputStream>> {
        self.printer(Stream::Out)
    }
}

impl cli::stderr::Host for State {
    fn get_stderr(&mut self) -> Result<Resource<DynOutputStream>> {
        self.printer(Stream::Err)
    }
}

impl State {
    fn printer(&mut self, stream: Stream) -> Result<Resource<DynOutputStream>> {
        let printer: DynOutputStream = Box::new(Printer {
            log: self.log.clone(),
            stream,
        });
        Ok(self.resources.push(printer)?)
    }
}

/// A standard stream that goes into the log.
struct Printer {
    log: GuestLog,
    stream: Stream,
}

impl OutputStream for Printer {
    fn write(&mut self, bytes: Bytes) -> StreamResult<()> {
        self.log.print(self.stream, &bytes);
        Ok(())
    }

    fn flush(&mut self) -> StreamResult<()> {
        Ok(())
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        Ok(WRITE_PERMIT)
    }
}

#[wasmtime_wasi::async_trait]
impl Pollable for Printer {
    async fn ready(&mut self) {}
}

// No stream is a terminal, so the handles of terminals never exist.

impl cli::terminal_input::Host for State {}
impl cli::terminal_output::Host for State {}

impl cli::terminal_input::HostTerminalInput for State {
    fn drop(&mut self, handle: Resource<cli::terminal_input::TerminalInput>) -> Result<()> {
        self.resources.delete(handle)?;
        Ok(())
    }
}

impl cli::terminal_output::HostTerminalOutput for State {
    fn drop(&mut self, handle: Resource<cli::terminal_output::TerminalOutput>) -> Result<()> {
        self.resources.delete(handle)?;
        Ok(())
    }
}

impl cli::terminal_stdin::Host for State {
    fn get_terminal_stdin(
        &mut self,
    ) -> Result<Option<Resource<cli::terminal_stdin::TerminalInput>>> {
        Ok(None)
    }
}

impl cli::terminal_stdout::Host for State {
    fn get_terminal_stdout(
        &mut self,
    ) -> Result<Option<Resource<cli::terminal_stdout::TerminalOutput>>> {
        Ok(None)
    }
}

impl cli::terminal_stderr::Host for State {
    fn get_terminal_stderr(
        &mut self,
    ) -> Result<Option<Resource<cli::terminal_stderr::TerminalOutput>>> {
        Ok(None)
    }
}

const NO_WAITING: &str = "it tried to sleep: return the verdict requeue-after instead";

impl clocks::monotonic_clock::Host for State {
    fn now(&mut self) -> Result<clocks::monotonic_clock::Instant> {
        Ok(self.now.instant.as_nanos())
    }

    fn resolution(&mut self) -> Result<clocks::monotonic_clock::Duration> {
        Ok(1)
    }

    fn subscribe_instant(
        &mut self,
        _when: clocks::monotonic_clock::Instant,
    ) -> Result<Resource<DynPollable>> {
        Mistake::trap(NO_WAITING)
    }

    fn subscribe_duration(
        &mut self,
        _duration: clocks::monotonic_clock::Duration,
    ) -> Result<Resource<DynPollable>> {
        Mistake::trap(NO_WAITING)
    }
}

impl clocks::wall_clock::Host for State {
    fn now(&mut self) -> Result<clocks::wall_clock::Datetime> {
        let millis = u64::try_from(self.now.wall.0).unwrap_or(0);
        let since_epoch = std::time::Duration::from_millis(millis);
        Ok(clocks::wall_clock::Datetime {
            seconds: since_epoch.as_secs(),
            nanoseconds: since_epoch.subsec_nanos(),
        })
    }

    fn resolution(&mut self) -> Result<clocks::wall_clock::Datetime> {
        Ok(clocks::wall_clock::Datetime {
            seconds: 0,
            nanoseconds: 1_000_000,
        })
    }
}

impl random::insecure_seed::Host for State {
    fn insecure_seed(&mut self) -> Result<(u64, u64)> {
        Ok((0x6461_7669_7420_6f6e, 0x6520_6372_616e_6521))
    }
}

#[cfg(test)]
mod tests {
    use wasmtime_wasi::p2::{InputStream as _, StreamError};

    use super::*;
    use crate::limits::Limits;
    use crate::usage::UsageCounter;

    /// What it got, it would free as its own: `docs/adr/0033-guests-allocate-by-size.md`.
    #[test]
    fn libc_gets_only_empty_lists() {
        use cli::environment::Host as _;

        let count = UsageCounter::default().instance();
        let mut state = State::new("guest".into(), Limits::default(), count, resources());
        assert_eq!(state.get_environment().unwrap(), []);
        assert_eq!(state.get_arguments().unwrap(), [] as [String; 0]);
        assert_eq!(state.initial_cwd().unwrap(), None);
        let read = ClosedInputStream.read(100);
        assert!(matches!(read, Err(StreamError::Closed)), "{read:?}");
    }
}
