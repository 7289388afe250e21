//! What a host needs at rest, for the examples that measure it.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use tokio::time::sleep;

use crate::process::Host;

/// What counts as rest: a twentieth of a core for half a second.
const IDLE: Duration = Duration::from_millis(25);
pub(crate) const SAMPLE: Duration = Duration::from_millis(500);
/// How long the use of a core is measured.
pub(crate) const MEASURED: Duration = Duration::from_secs(60);

/// Waits until the host rests, after it has used at least this much of a processor; returns what
/// it has used.
pub(crate) async fn until_idle(host: &Host, least: Duration) -> Result<Duration> {
    let deadline = Instant::now() + Duration::from_secs(600);
    let mut before = host.used()?;
    loop {
        ensure!(Instant::now() < deadline, "the host is never idle");
        sleep(SAMPLE).await;
        let used = host.used()?;
        if used.saturating_sub(before) < IDLE && used > least {
            return Ok(used);
        }
        before = used;
    }
}

/// Prints the share of a core that was used while it was measured.
pub(crate) fn share(what: &str, used: Duration) {
    let percent = 100.0 * used.as_secs_f64() / MEASURED.as_secs_f64();
    println!("{what:<38} {percent:>8.2} % of a core");
}
