use super::*;

const NOW: Instant = 1_000_000;
const POLICIES: [Reschedule; 3] = [
    Reschedule::Keep,
    Reschedule::ShortenOnly,
    Reschedule::Recompute,
];

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// A timer that began now and lasts so long.
fn timer(lasts: u64) -> Current {
    Current::Timer {
        created_at: NOW,
        due_at: later(NOW, seconds(lasts)),
    }
}

#[test]
fn a_pod_for_which_nothing_waits() {
    for policy in POLICIES {
        let change = |fate| change(policy, fate, Current::Nothing);
        assert_eq!(change(Fate::Stays), Change::Leave);
        assert_eq!(change(Fate::LeavesNow), Change::Evict);
        assert_eq!(change(Fate::LeavesAfter(Duration::ZERO)), Change::Evict);
        let fate = Fate::LeavesAfter(seconds(7));
        assert_eq!(change(fate), Change::Start(seconds(7)));
    }
}

#[test]
fn every_policy_cancels_and_ends_timers_alike() {
    for policy in POLICIES {
        let change = |fate| change(policy, fate, timer(100));
        assert_eq!(change(Fate::Stays), Change::Cancel);
        assert_eq!(change(Fate::LeavesNow), Change::Evict);
    }
}

/// It has its own pace after a failure.
#[test]
fn an_eviction_that_waits_is_left_alone_or_cancelled() {
    for policy in POLICIES {
        let change = |fate| change(policy, fate, Current::Eviction);
        assert_eq!(change(Fate::Stays), Change::Cancel);
        assert_eq!(change(Fate::LeavesNow), Change::Leave);
        assert_eq!(change(Fate::LeavesAfter(seconds(7))), Change::Leave);
    }
}

/// What becomes of a timer of 100 s when the pod has another time.
#[test]
fn the_policies_differ_in_what_a_new_time_does() {
    let shorten = |lasts| Change::Shorten {
        due_at: later(NOW, seconds(lasts)),
        created_at: NOW,
    };
    let postpone = |lasts| Change::Postpone {
        due_at: later(NOW, seconds(lasts)),
        created_at: NOW,
    };
    for (policy, lasts, expected) in [
        (Reschedule::Keep, 10, Change::Leave),
        (Reschedule::Keep, 1000, Change::Leave),
        (Reschedule::Keep, 0, Change::Leave),
        (Reschedule::ShortenOnly, 10, shorten(10)),
        (Reschedule::ShortenOnly, 1000, Change::Leave),
        (Reschedule::ShortenOnly, 0, shorten(0)),
        (Reschedule::Recompute, 10, shorten(10)),
        (Reschedule::Recompute, 1000, postpone(1000)),
        (Reschedule::Recompute, 0, shorten(0)),
        (Reschedule::Recompute, 100, Change::Leave),
    ] {
        let fate = Fate::LeavesAfter(seconds(lasts));
        let change = change(policy, fate, timer(100));
        assert_eq!(change, expected, "{policy:?}, {lasts} s");
    }
}

/// The host rounds the two times of a timer to milliseconds, each by itself.
#[test]
fn rounding_is_no_change() {
    for error in [-1, 1] {
        let timer = Current::Timer {
            created_at: NOW,
            due_at: later(NOW, seconds(100)) + error,
        };
        let fate = Fate::LeavesAfter(seconds(100));
        assert_eq!(change(Reschedule::Recompute, fate, timer), Change::Leave);
    }
}

#[test]
fn no_time_is_too_long() {
    let century = later(NOW, LONGEST);
    assert_eq!(later(NOW, Duration::MAX), century);
    assert_eq!(later(NOW, Duration::from_secs(u64::MAX)), century);
    assert_eq!(later(Instant::MAX, seconds(1)), Instant::MAX);
}
