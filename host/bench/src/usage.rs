//! What processes use, as Linux counts it.

use std::fs;
use std::time::Duration;

use anyhow::{Context as _, Result};
use rustix::time::{ClockId, clock_gettime};

/// Bytes that a process has resident; `self` is this one.
pub(crate) fn resident(process: &str) -> Result<f64> {
    memory(process, "VmRSS:")
}

/// The most that it has had resident.
pub(crate) fn most_resident(process: &str) -> Result<f64> {
    memory(process, "VmHWM:")
}

fn memory(process: &str, field: &str) -> Result<f64> {
    let status = fs::read_to_string(format!("/proc/{process}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix(field));
    let kilobytes = line.and_then(|line| line.split_whitespace().next());
    Ok(kilobytes.context("no memory")?.parse::<f64>()? * 1024.0)
}

/// Processor time of another process so far, in user and kernel mode: fields 14 and 15 of
/// `stat`, in ticks of a hundredth of a second.
pub(crate) fn processor_time(process: &str) -> Result<Duration> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat"))?;
    let (_, fields) = stat.rsplit_once(')').context("the name of the process")?;
    let fields = fields.split_whitespace().skip(11).take(2);
    let ticks: Vec<u64> = fields.map(str::parse).collect::<Result<_, _>>()?;
    Ok(Duration::from_millis(ticks.iter().sum::<u64>() * 10))
}

/// Processor time of this thread so far.
pub(crate) fn thread_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}

/// The sockets that a process has open.
pub(crate) fn sockets(process: &str) -> Result<usize> {
    let mut sockets = 0;
    for file in fs::read_dir(format!("/proc/{process}/fd"))? {
        // A file may have been closed meanwhile.
        let target = fs::read_link(file?.path());
        sockets += usize::from(target.is_ok_and(|it| it.to_string_lossy().starts_with("socket:")));
    }
    Ok(sockets)
}
