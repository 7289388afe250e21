//! The thread that interrupts guests: while a guest runs, an epoch of wasmtime passes every
//! [`TICK`]. While none runs, the thread sleeps: a host whose cluster is at rest costs nothing.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, Thread};

use wasmtime::EngineWeak;

use crate::limits::TICK;

/// Lets time pass for the guests that run. Clones are the same thread, which ends with the last
/// of them.
#[derive(Clone)]
pub(crate) struct Ticker(Arc<Handle>);

struct Handle {
    running: Arc<AtomicUsize>,
    thread: Thread,
}

/// Time passes for a guest until this is dropped.
pub(crate) struct RunningGuest(Ticker);

/// In the place of a number of guests: the thread is to end.
const CLOSED: usize = usize::MAX;

impl Ticker {
    pub(crate) fn start(engine: EngineWeak) -> io::Result<Self> {
        let running = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&running);
        let thread = thread::Builder::new()
            .name("davit-ticks".to_owned())
            .spawn(move || tick(&engine, &count))?;
        let thread = thread.thread().clone();
        Ok(Self(Arc::new(Handle { running, thread })))
    }

    /// A guest is about to run.
    pub(crate) fn run(&self) -> RunningGuest {
        let before = self.0.running.fetch_add(1, Ordering::SeqCst);
        if before == 0 {
            self.0.thread.unpark();
        }
        RunningGuest(self.clone())
    }
}

fn tick(engine: &EngineWeak, running: &AtomicUsize) {
    loop {
        match running.load(Ordering::SeqCst) {
            CLOSED => return,
            0 => thread::park(),
            _ => {
                thread::sleep(TICK);
                if let Some(engine) = engine.upgrade() {
                    engine.increment_epoch();
                }
            }
        }
    }
}

impl Drop for RunningGuest {
    fn drop(&mut self) {
        self.0.0.running.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.running.store(CLOSED, Ordering::SeqCst);
        self.thread.unpark();
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    /// Whether the thread has ended within a time.
    fn ends(running: &Arc<AtomicUsize>) -> bool {
        let deadline = Instant::now() + Duration::from_secs(10);
        while Arc::strong_count(running) > 1 {
            if Instant::now() > deadline {
                return false;
            }
            thread::sleep(TICK);
        }
        true
    }

    #[test]
    fn the_thread_ends_with_the_last_ticker_and_not_with_a_guest() {
        let engine = wasmtime::Engine::default();
        let ticker = Ticker::start(engine.weak()).unwrap();
        let running = Arc::clone(&ticker.0.running);
        drop(ticker.run());
        let guest = ticker.run();
        drop(ticker);
        thread::sleep(3 * TICK);
        assert_eq!(Arc::strong_count(&running), 3);
        drop(guest);
        assert!(ends(&running));
    }
}
