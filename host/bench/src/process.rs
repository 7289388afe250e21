//! `davit` as a process beside an API server in this one.

use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};
use tokio::time::sleep;

use crate::usage;

/// What counts as rest: a twentieth of a core for half a second.
const IDLE: Duration = Duration::from_millis(25);
const SAMPLE: Duration = Duration::from_millis(500);
/// How often the host is asked whether it is ready.
const ASK: Duration = Duration::from_millis(20);
/// How long after its rest a host's memory stops changing: freed pages are returned after a second,
/// and threads without work end after ten.
const SETTLED: Duration = Duration::from_secs(12);
/// How long a host may take to be ready, and to rest.
const PATIENCE: Duration = Duration::from_secs(600);
/// The variable with the path of the program that is measured; without it, that beside this one.
const PROGRAM: &str = "DAVIT_BENCH_PROGRAM";
/// How long a process may take to end.
const TERMINATION: Duration = Duration::from_secs(30);
/// How long the use of a core is measured.
pub(crate) const MEASURED: Duration = Duration::from_secs(60);

/// The process. It ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Host {
    child: Child,
    started: Instant,
    /// Where it says whether it is ready.
    address: SocketAddr,
}

/// What a host needed to come to a state.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reached {
    /// From its start.
    pub(crate) after: Duration,
    /// Processor time so far.
    pub(crate) used: Duration,
}

impl Host {
    /// Starts `davit run` with the text of a kubeconfig, this configuration, and a journal in
    /// this directory, if there is one. What the host compiles stays in the directory.
    pub(crate) fn start(
        kubeconfig: &str,
        directory: &Path,
        config: &str,
        journal: Option<&Path>,
    ) -> Result<Self> {
        let path = directory.join("kubeconfig");
        std::fs::write(&path, kubeconfig)?;
        Self::start_at(&path, directory, config, journal)
    }

    /// The same at the server that a kubeconfig names.
    pub(crate) fn start_at(
        kubeconfig: &Path,
        directory: &Path,
        config: &str,
        journal: Option<&Path>,
    ) -> Result<Self> {
        let file = configure(directory, config)?;
        let program = davit()?;
        let mut command = Command::new(&program);
        command.args(["run", "--log", "warn", "--config"]);
        command.arg(&file).arg("--kubeconfig").arg(kubeconfig);
        command.arg("--cache").arg(directory.join("modules"));
        command.arg("--guests").arg(guests()?);
        if let Some(journal) = journal {
            command.arg("--journal").arg(journal);
        }
        let address = free_port()?;
        command.args(["--http", &address.to_string(), "--insecure-http"]);
        let started = Instant::now();
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .with_context(|| format!("starting {}", program.display()))?;
        Ok(Self {
            child,
            started,
            address,
        })
    }

    fn id(&self) -> String {
        self.child.id().to_string()
    }

    /// Megabytes that it has resident.
    pub(crate) fn resident(&self) -> Result<f64> {
        Ok(usage::resident(&self.id())? / 1e6)
    }

    /// Megabytes that it keeps resident after its rest.
    pub(crate) async fn settled(&self) -> Result<f64> {
        sleep(SETTLED).await;
        self.resident()
    }

    /// The most megabytes that it has had resident.
    pub(crate) fn most_resident(&self) -> Result<f64> {
        Ok(usage::most_resident(&self.id())? / 1e6)
    }

    /// Processor time so far.
    pub(crate) fn used(&self) -> Result<Duration> {
        usage::processor_time(&self.id())
    }

    /// The sockets that it has open.
    pub(crate) fn connections(&self) -> Result<usize> {
        usage::sockets(&self.id())
    }

    /// Waits until every controller has the first lists of its watches.
    pub(crate) async fn ready(&self) -> Result<Reached> {
        while !self.is_ready() {
            // A process that has ended has no memory.
            self.resident().context("the host has ended")?;
            ensure!(self.started.elapsed() < PATIENCE, "the host is never ready");
            sleep(ASK).await;
        }
        Ok(Reached {
            after: self.started.elapsed(),
            used: self.used()?,
        })
    }

    /// Waits until it is ready and rests.
    pub(crate) async fn at_rest(&self) -> Result<Reached> {
        self.ready().await?;
        let deadline = Instant::now() + PATIENCE;
        let mut before = self.used()?;
        loop {
            ensure!(Instant::now() < deadline, "the host is never at rest");
            sleep(SAMPLE).await;
            let used = self.used()?;
            if used.saturating_sub(before) < IDLE {
                let after = self.started.elapsed().saturating_sub(SAMPLE);
                return Ok(Reached { after, used });
            }
            before = used;
        }
    }

    /// What `/readyz` says.
    fn is_ready(&self) -> bool {
        let ask = || {
            let mut stream = TcpStream::connect(self.address)?;
            stream.set_read_timeout(Some(Duration::from_secs(1)))?;
            // It serves nobody who names another host.
            let host = self.address;
            write!(
                stream,
                "GET /readyz HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n"
            )?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer)?;
            std::io::Result::Ok(answer)
        };
        // The port is not open yet.
        ask().is_ok_and(|answer| answer.starts_with("HTTP/1.1 200"))
    }

    /// The percentage of a core that it uses while this happens.
    pub(crate) async fn share(&self, during: impl Future<Output = Result<()>>) -> Result<f64> {
        let (before, began) = (self.used()?, Instant::now());
        during.await?;
        let used = self.used()?.saturating_sub(before);
        Ok(100.0 * used.as_secs_f64() / began.elapsed().as_secs_f64())
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // It has ended already if it failed, which the figures would show.
        end(&mut self.child);
    }
}

/// `davit sim` as a process. It ends when this is dropped.
#[derive(Debug)]
pub(crate) struct SimProcess {
    child: Child,
    pub(crate) kubeconfig: PathBuf,
}

impl SimProcess {
    /// Starts it with these arguments; returns once it serves.
    pub(crate) fn start(arguments: &[&OsStr]) -> Result<Self> {
        let child = Command::new(davit()?)
            .args(["sim", "--listen", "127.0.0.1:0", "--log", "warn"])
            .args(arguments)
            .stdout(Stdio::piped())
            .spawn()?;
        let mut sim = Self {
            child,
            kubeconfig: PathBuf::new(),
        };
        let output = sim.child.stdout.take().context("no output")?;
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line)?;
        ensure!(!line.is_empty(), "davit sim has ended");
        sim.kubeconfig = line.trim().into();
        Ok(sim)
    }

    /// The most megabytes that it has had resident.
    pub(crate) fn most_resident(&self) -> Result<f64> {
        Ok(usage::most_resident(&self.child.id().to_string())? / 1e6)
    }
}

impl Drop for SimProcess {
    fn drop(&mut self) {
        end(&mut self.child);
    }
}

/// Lets a process end as in a cluster.
fn end(child: &mut Child) {
    let asked = Instant::now();
    // It may have ended already.
    let _ = kill_process(Pid::from_child(child), Signal::TERM);
    while matches!(child.try_wait(), Ok(None)) && asked.elapsed() < TERMINATION {
        std::thread::sleep(ASK);
    }
    let _ = child.kill();
    let _ = child.wait();
}

/// Runs a backtest of a controller as it was recorded; returns its log, as JSON.
pub(crate) fn backtest(journal: &Path, controller: &str) -> Result<String> {
    let mut command = Command::new(davit()?);
    command.args(["backtest", "--log", "info", "--log-format", "json"]);
    command.arg(journal).args(["--controller", controller]);
    let output = command.stdin(Stdio::null()).output()?;
    let log = String::from_utf8(output.stderr)?;
    ensure!(output.status.success(), "{}: {log}", output.status);
    Ok(log)
}

/// Replaces the configuration of the host of this directory, at once: it may be read at any time.
pub(crate) fn configure(directory: &Path, config: &str) -> Result<PathBuf> {
    let (file, new) = (directory.join("davit.yaml"), directory.join("davit.new"));
    std::fs::write(&new, config)?;
    std::fs::rename(&new, &file)?;
    Ok(file)
}

/// The start of a configuration whose client does not limit the host.
pub(crate) const UNLIMITED: &str = "client: {qps: 20000, burst: 20000}\n";

/// A host's configuration with one built-in controller.
pub(crate) fn one_controller(name: &str, config: &str) -> String {
    format!(
        "controllers:\n- name: {name}\n  module: {{builtin: {name}}}\n  mode: Enforce\n  \
         config: {config}\n"
    )
}

/// Nothing, for as long as the use of a core is measured.
pub(crate) async fn nothing() -> Result<()> {
    sleep(MEASURED).await;
    Ok(())
}

/// An address that nobody listens on.
fn free_port() -> Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    Ok(listener.local_addr()?)
}

/// The program that is measured.
fn davit() -> Result<PathBuf> {
    match std::env::var_os(PROGRAM) {
        Some(path) => Ok(path.into()),
        None => Ok(std::env::current_exe()?.with_file_name("davit")),
    }
}

/// A guest that `cargo xtask guests` has built.
pub(crate) fn guest(name: &str) -> Result<PathBuf> {
    let file = guests()?.join(format!("{name}.wasm"));
    ensure!(
        file.is_file(),
        "{} is missing: cargo xtask guests builds it",
        file.display()
    );
    Ok(file)
}

/// The directory of the guests in cargo's target directory, above this program.
fn guests() -> Result<PathBuf> {
    const PATH: &str = "wasm32-wasip2/guest";
    let program = std::env::current_exe()?;
    // A build for a named target is one directory deeper.
    let mut directories = program.ancestors().map(|above| above.join(PATH));
    let found = directories.find(|directory| directory.is_dir());
    found.context("there are no guests: cargo xtask guests builds them")
}
