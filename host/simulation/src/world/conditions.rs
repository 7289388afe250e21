//! How well the network, the records and discovery work.

use std::ops::Range;
use std::time::Duration;

/// How well the network, the records and discovery work.
#[derive(Clone, Debug, PartialEq)]
pub struct Conditions {
    /// How long a request takes to the server, and an answer to the host.
    pub latency: Range<Duration>,
    /// How long an event of a watch takes.
    pub lag: Range<Duration>,
    /// How likely an event of a watch takes [`Self::starvation`] instead of [`Self::lag`].
    pub starve: f64,
    /// How long a starved event of a watch takes.
    pub starvation: Range<Duration>,
    /// How likely a request gets no connection to the server.
    pub unreachable: f64,
    /// Whether requests for leases get no connection to the server.
    pub no_leases: bool,
    /// How likely a request takes [`Self::holdup`] longer to the server.
    pub hold_up: f64,
    /// The additional time of such a request: mostly longer than the host waits.
    pub holdup: Range<Duration>,
    /// How likely discovery fails.
    pub no_discovery: f64,
    /// How likely a write of a record fails.
    pub no_records: f64,
    /// How likely a write of a record succeeds and its answer is lost.
    pub lost_records: f64,
    /// How likely a request for a record, or its answer, takes [`Self::lateness`].
    pub late_records: f64,
    /// How long a late request or answer takes: less than the host waits.
    pub lateness: Range<Duration>,
    /// How likely a read of a record fails.
    pub unreadable_records: f64,
    /// How likely a load of a revision fails for another reason than its source.
    pub no_loads: f64,
    /// How likely the journal of a host takes no copy of an object.
    pub no_copies: f64,
    /// How likely a copy of an object takes [`Self::copying`] until the disk has it.
    pub slow_copies: f64,
    /// How long a slow copy takes.
    pub copying: Range<Duration>,
    /// Group versions (`apps/v1`) that discovery cannot reach.
    pub unreached: Vec<String>,
    /// Resources (`pods`) that discovery lacks.
    pub unlisted: Vec<String>,
}

impl Default for Conditions {
    /// No faults.
    fn default() -> Self {
        Self {
            latency: Duration::from_micros(300)..Duration::from_millis(8),
            lag: Duration::from_micros(200)..Duration::from_millis(30),
            starve: 0.0,
            starvation: Duration::from_secs(1)..Duration::from_secs(40),
            unreachable: 0.0,
            no_leases: false,
            hold_up: 0.0,
            holdup: Duration::from_secs(5)..Duration::from_secs(60),
            no_discovery: 0.0,
            no_records: 0.0,
            lost_records: 0.0,
            late_records: 0.0,
            lateness: Duration::from_millis(100)..Duration::from_secs(4),
            unreadable_records: 0.0,
            no_loads: 0.0,
            no_copies: 0.0,
            slow_copies: 0.0,
            copying: Duration::from_millis(10)..Duration::from_secs(4),
            unreached: Vec::new(),
            unlisted: Vec::new(),
        }
    }
}
