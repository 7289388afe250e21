//! The metrics that Prometheus' clients publish of their process, by the same names. They
//! are read when they are scraped. Without `/proc`, those that come from it are absent.

use std::fs;
use std::time::SystemTime;

use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{Counter, Gauge, Opts};
use rustix::process::{Resource, getrlimit};
use rustix::time::{ClockId, clock_gettime};

use super::registration::{MetricError, Registrar, number, total};

/// `process_*`
#[derive(Clone, Debug)]
pub(super) struct ProcessMetrics {
    cpu: Counter,
    open_files: Gauge,
    max_files: Gauge,
    resident: Gauge,
    virtual_size: Gauge,
    start: Gauge,
}

impl ProcessMetrics {
    fn new() -> prometheus::Result<Self> {
        let start = gauge(
            "process_start_time_seconds",
            "Start time of the process, in seconds since 1970.",
        )?;
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        start.set(now.unwrap_or_default().as_secs_f64());
        Ok(Self {
            cpu: Counter::with_opts(Opts::new(
                "process_cpu_seconds_total",
                "Processor time of the process, in seconds.",
            ))?,
            open_files: gauge("process_open_fds", "Open file descriptors.")?,
            max_files: gauge(
                "process_max_fds",
                "The most file descriptors that may be open.",
            )?,
            resident: gauge("process_resident_memory_bytes", "Resident memory.")?,
            virtual_size: gauge("process_virtual_memory_bytes", "Virtual memory.")?,
            start,
        })
    }

    fn gauges(&self) -> [&Gauge; 5] {
        [
            &self.open_files,
            &self.max_files,
            &self.resident,
            &self.virtual_size,
            &self.start,
        ]
    }
}

fn gauge(name: &str, help: &str) -> prometheus::Result<Gauge> {
    Gauge::with_opts(Opts::new(name, help))
}

impl Collector for ProcessMetrics {
    fn desc(&self) -> Vec<&Desc> {
        let gauges = self.gauges().into_iter().flat_map(Collector::desc);
        self.cpu.desc().into_iter().chain(gauges).collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let used = clock_gettime(ClockId::ProcessCPUTime);
        #[allow(clippy::cast_precision_loss, reason = "exact for 285 years")]
        let used = used.tv_sec as f64 + used.tv_nsec as f64 / 1e9;
        let ahead = used - self.cpu.get();
        if ahead > 0.0 {
            self.cpu.inc_by(ahead);
        }
        let mut families = self.cpu.collect();
        let files = fs::read_dir("/proc/self/fd").ok();
        // One of them reads the directory.
        let open = files.map(|files| number(files.count().saturating_sub(1)));
        let max = getrlimit(Resource::Nofile).current.map(total);
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        for (gauge, value) in [
            (&self.open_files, open),
            (&self.max_files, max),
            (&self.resident, bytes(&status, "VmRSS:")),
            (&self.virtual_size, bytes(&status, "VmSize:")),
            (&self.start, Some(self.start.get())),
        ] {
            if let Some(value) = value {
                gauge.set(value);
                families.extend(gauge.collect());
            }
        }
        families
    }
}

/// A field of `/proc/self/status` in kB, as bytes.
fn bytes(status: &str, field: &str) -> Option<f64> {
    let line = status.lines().find_map(|line| line.strip_prefix(field))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(total(kilobytes.saturating_mul(1024)))
}

/// Registers them.
pub(super) fn register(registrar: &Registrar<'_>) -> Result<(), MetricError> {
    registrar.add("process_start_time_seconds", ProcessMetrics::new())?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_in_bytes() {
        let status = "Name:\tdavit\nVmSize:\t  2048 kB\nVmRSS:\t     3 kB\nThreads:\t5\n";
        assert_eq!(bytes(status, "VmSize:"), Some(2_097_152.0));
        assert_eq!(bytes(status, "VmRSS:"), Some(3072.0));
        assert_eq!(bytes(status, "Threads:"), None);
        assert_eq!(bytes(status, "VmSwap:"), None);
    }
}
