//! `davit run` as a process beside an API server in memory, for the examples that measure it.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result};
use davit_sim::{Server, kubeconfig};

/// The process. It ends when this is dropped.
pub(crate) struct Host(Child);

impl Host {
    /// Starts the program that lies beside the examples' directory, with this configuration.
    pub(crate) fn start(server: &Server, directory: &Path, config: &str) -> Result<Self> {
        let example = std::env::current_exe()?;
        let program = example
            .ancestors()
            .nth(2)
            .context("cargo's target directory")?
            .join("davit");
        let file = directory.join("davit.yaml");
        std::fs::write(&file, config)?;
        let path = directory.join("kubeconfig");
        std::fs::write(&path, kubeconfig(&server.url()))?;
        let child = Command::new(&program)
            .args(["run", "--log", "warn", "--config"])
            .arg(&file)
            .arg("--kubeconfig")
            .arg(&path)
            .arg("--cache")
            .arg(directory.join("modules"))
            .stdin(Stdio::null())
            .spawn()
            .with_context(|| format!("starting {}", program.display()))?;
        Ok(Self(child))
    }

    /// Megabytes of memory that the process has resident.
    pub(crate) fn resident(&self) -> Result<f64> {
        let status = self.read("status")?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kilobytes = line.and_then(|line| line.split_whitespace().next());
        Ok(kilobytes.context("VmRSS")?.parse::<f64>()? / 1024.0)
    }

    /// Processor time so far, in user and kernel mode: fields 14 and 15 of `stat`, in ticks of a
    /// hundredth of a second.
    pub(crate) fn used(&self) -> Result<Duration> {
        let stat = self.read("stat")?;
        let (_, fields) = stat.rsplit_once(')').context("the name of the process")?;
        let fields = fields.split_whitespace().skip(11).take(2);
        let ticks: Vec<u64> = fields.map(str::parse).collect::<Result<_, _>>()?;
        Ok(Duration::from_millis(ticks.iter().sum::<u64>() * 10))
    }

    /// What the kernel says of the process in a file of `/proc`.
    fn read(&self, file: &str) -> Result<String> {
        Ok(std::fs::read_to_string(format!(
            "/proc/{}/{file}",
            self.0.id()
        ))?)
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // It has ended already if it failed, which the figures would show.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
