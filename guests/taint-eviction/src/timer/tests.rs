use super::*;

const NOW: Instant = Instant::from_millis(1_000_000);

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// What happens to a timer of 100 s when the pod gets another time.
#[test]
fn the_policies_differ_in_what_a_new_time_does() {
    for (policy, lasts, expected) in [
        (Reschedule::Keep, 10, Change::Leave),
        (Reschedule::Keep, 1000, Change::Leave),
        (Reschedule::Keep, 0, Change::Leave),
        (Reschedule::ShortenOnly, 10, Change::Shorten),
        (Reschedule::ShortenOnly, 1000, Change::Leave),
        (Reschedule::ShortenOnly, 0, Change::Shorten),
        (Reschedule::Recompute, 10, Change::Shorten),
        (Reschedule::Recompute, 1000, Change::Postpone),
        (Reschedule::Recompute, 0, Change::Shorten),
        (Reschedule::Recompute, 100, Change::Leave),
    ] {
        let (due_at, wanted) = (later(NOW, seconds(100)), later(NOW, seconds(lasts)));
        let change = change(policy, false, due_at, wanted);
        assert_eq!(change, expected, "{policy:?}, {lasts} s");
    }
}

/// Another taint with the same key is not a change of the time.
#[test]
fn a_taint_that_was_added_again_has_its_time_under_every_policy() {
    for policy in [
        Reschedule::Keep,
        Reschedule::ShortenOnly,
        Reschedule::Recompute,
    ] {
        let due_at = later(NOW, seconds(100));
        let later = later(NOW, seconds(130));
        assert_eq!(change(policy, true, due_at, later), Change::Postpone);
    }
    assert!(is_renewed(later(NOW, seconds(30)), NOW));
    assert!(!is_renewed(NOW - seconds(30), NOW));
}

/// The host rounds the two times of a timer to milliseconds, each by itself.
#[test]
fn a_rounding_error_is_not_a_change() {
    let due_at = later(NOW, seconds(100));
    let error = Duration::from_millis(1);
    for (due_at, wanted) in [(due_at - error, due_at), (due_at + error, due_at)] {
        let change = change(Reschedule::Recompute, true, due_at, wanted);
        assert_eq!(change, Change::Leave);
    }
    assert!(!is_renewed(NOW - error, NOW));
    assert!(!is_renewed(NOW + error, NOW));
}

#[test]
fn any_time_is_within_range() {
    let last = Instant::from_millis(i64::MAX);
    let century = later(NOW, LONGEST);
    assert_eq!(later(NOW, Duration::MAX), century);
    assert_eq!(later(NOW, Duration::from_secs(u64::MAX)), century);
    assert_eq!(later(last, seconds(1)), last);
}
