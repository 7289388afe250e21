//! A replica at an API server that takes long for each write, such as one that waits for a webhook
//! that does not answer. Reads are fast.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::{
    ControllerActivity, ControllerHistory, Elections, LeaseAnswer, LeaseName, LeaseRequest,
    LeaseRequestId, LeaseTiming, LeaseWrite, LeaseWriteError, StoredLease,
};
use crate::time::{Instant, Now, Wall};

const TICK: Duration = Duration::from_millis(50);
const CONTROLLER: &str = "podgc";

struct SlowWrite {
    id: LeaseRequestId,
    name: LeaseName,
    write: LeaseWrite,
    sent: Duration,
    is_awaited: bool,
}

/// How long the replica leads in two minutes, if each write takes so long.
fn led(latency: Duration) -> Duration {
    let timing = LeaseTiming::default();
    let at = |time: Duration| Now {
        instant: Instant::ZERO.after(time),
        wall: Wall(i64::try_from(time.as_millis()).unwrap()),
    };
    let activity = ControllerActivity {
        history: ControllerHistory::New,
        is_ready: true,
        ..ControllerActivity::default()
    };
    let mut elections = Elections::new("a", timing, Instant::ZERO);
    elections.set_controllers(&BTreeSet::from([CONTROLLER.to_owned()]), Instant::ZERO);
    let mut stored: BTreeMap<LeaseName, StoredLease> = BTreeMap::new();
    let (mut writes, mut versions): (Vec<SlowWrite>, u64) = (Vec::new(), 0);
    let (mut time, mut led) = (Duration::ZERO, Duration::ZERO);
    while time < Duration::from_mins(2) {
        let now = at(time);
        for slow in &mut writes {
            if slow.is_awaited
                && time >= slow.sent + timing.patience()
                && latency > timing.patience()
            {
                slow.is_awaited = false;
                let failed = Err(LeaseWriteError::Failed("no answer".to_owned()));
                elections.handle(now, slow.id, LeaseAnswer::Written(failed));
            }
        }
        // The server stops what nobody waits for.
        writes.retain(|slow| latency <= timing.second_attempt() || slow.is_awaited);
        for slow in writes.extract_if(.., |slow| time >= slow.sent + latency) {
            let present = stored.get(&slow.name).map(|stored| stored.version.clone());
            let expected = match &slow.write {
                LeaseWrite::Create(_) => None,
                LeaseWrite::Replace { version, .. } => Some(version.clone()),
            };
            let answer = if present == expected {
                versions += 1;
                let written = StoredLease {
                    lease: slow.write.lease().clone(),
                    version: versions.to_string(),
                };
                stored.insert(slow.name, written.clone());
                Ok(written)
            } else {
                Err(LeaseWriteError::Conflict)
            };
            if slow.is_awaited {
                elections.handle(now, slow.id, LeaseAnswer::Written(answer));
            }
        }
        elections.advance(now.instant, |_| activity);
        while let Some(request) = elections.poll(now) {
            let id = request.id();
            match request {
                LeaseRequest::Read(_) => {
                    elections.handle(now, id, LeaseAnswer::Read(Ok(stored.clone())));
                }
                LeaseRequest::Write(_, name, write) => writes.push(SlowWrite {
                    id,
                    name,
                    write,
                    sent: time,
                    is_awaited: true,
                }),
                LeaseRequest::Delete(..) => elections.handle(now, id, LeaseAnswer::Deleted),
            }
            elections.advance(now.instant, |_| activity);
        }
        if elections.leads_until(CONTROLLER, now.instant).is_some() {
            led += TICK;
        }
        time += TICK;
    }
    led
}

#[test]
fn a_replica_leads_although_the_writes_of_its_lease_are_slow() {
    let seconds = Duration::from_secs;
    // Without a pause, after the first write.
    for millis in [0, 1000, 3000, 3100, 3450] {
        let latency = Duration::from_millis(millis);
        let led = led(latency);
        assert!(led + latency >= seconds(119), "{latency:?}: {led:?}");
    }
    // The answers come too late, but the lease is read.
    let led_at = [3550, 3800, 4000].map(|millis| led(Duration::from_millis(millis)));
    assert!(led_at.iter().all(|led| *led >= seconds(110)), "{led_at:?}");
    // Nobody renews the lease: another replica acquires it.
    assert_eq!(led(seconds(5)), Duration::ZERO);
}
