use super::*;
use crate::time::Wall;

const SECOND: Duration = Duration::from_secs(1);

fn at(seconds: u64) -> Now {
    Now {
        instant: Instant::ZERO.after(Duration::from_secs(seconds)),
        wall: Wall(1_795_176_000_000 + i64::try_from(seconds).unwrap() * 1_000),
    }
}

fn target(name: &str) -> ObjectRef {
    ObjectRef {
        api_version: "v1".into(),
        kind: "Pod".into(),
        namespace: "ns".into(),
        name: name.into(),
        uid: name.into(),
    }
}

fn note(comparison: &mut Comparison, author: Author, name: &str, seconds: u64) {
    let target = target(name);
    let deletion = Deletion {
        target: &target,
        reason: "orphaned",
        message: "",
        facts: Facts {
            owner: "ReplicaSet".into(),
            node: Ok(None),
            successor: Ok(()),
        },
        is_there: true,
        saw: None,
        is_certain: true,
        has_author: true,
        earliest: at(seconds).instant,
    };
    comparison.note(author, deletion, at(seconds));
}

#[test]
fn deletions_of_both_sides_agree_whoever_was_first() {
    let mut comparison = Comparison::default();
    for (name, candidate, recorded) in [("a", 10, 10), ("b", 10, 40), ("c", 50, 20)] {
        note(&mut comparison, Author::Candidate, name, candidate);
        note(&mut comparison, Author::Recorded, name, recorded);
    }
    note(&mut comparison, Author::Candidate, "d", 60);
    note(&mut comparison, Author::Recorded, "e", 60);
    note(&mut comparison, Author::Recorded, "e", 61);
    let found = comparison.finish(at(100).instant, Against::Recorded, |_| true);
    let agreement = found.agreement;
    assert_eq!((agreement.agree, agreement.same_time), (3, 1));
    assert_eq!((agreement.only_candidate, agreement.only_recorded), (1, 1));
    assert_eq!((agreement.earlier.count, agreement.later.count), (1, 1));
    assert!((agreement.earlier.max_seconds - 30.0).abs() < 1e-9);
    assert_eq!(
        (found.candidate.deletions, found.recorded.deletions),
        (4, 4)
    );
    let surprising: Vec<(Difference, String)> = found
        .surprising
        .into_iter()
        .map(|one| (one.difference, one.uid))
        .collect();
    assert_eq!(surprising[0], (Difference::OnlyCandidate, "d".to_owned()));
    assert_eq!(surprising[1], (Difference::OnlyRecorded, "e".to_owned()));
}

#[test]
fn an_object_is_settled_a_while_after_it_is_gone() {
    let mut comparison = Comparison::default();
    note(&mut comparison, Author::Candidate, "a", 10);
    let uid = Uid::new("a");
    comparison.gone(&uid, at(20).instant);
    comparison.settle(at(79).instant, |_| false);
    // The recorded execution is entered after the watch has delivered the deletion.
    note(&mut comparison, Author::Recorded, "a", 79);
    comparison.settle(at(80).instant, |_| false);
    assert!(comparison.pairs.is_empty());
    let found = comparison.finish(at(100).instant, Against::Recorded, |_| true);
    assert_eq!(found.agreement.agree, 1);
}

#[test]
fn an_object_that_another_host_still_lists_is_not_settled() {
    let mut comparison = Comparison::default();
    note(&mut comparison, Author::Candidate, "a", 10);
    comparison.interrupt(at(20).instant, |_| true);
    comparison.settle(at(1_000).instant, |_| true);
    assert_eq!(comparison.pairs.len(), 1);
}

#[test]
fn the_worst_minute_counts_any_sixty_seconds() {
    let mut comparison = Comparison::default();
    for (name, seconds) in [("a", 0), ("b", 59), ("c", 60), ("d", 118), ("e", 300)] {
        note(&mut comparison, Author::Candidate, name, seconds);
    }
    let side = comparison
        .finish(at(400).instant, Against::Recorded, |_| true)
        .candidate;
    assert_eq!(side.deletes_per_minute, 3);
    assert_eq!(
        side.worst_minute_ends.as_deref(),
        Some("2026-11-20T12:01:58.000Z")
    );
    assert_eq!(side.by_hour.get("2026-11-20T12:00:00Z"), Some(&5));
}

#[test]
fn a_distribution_has_its_quantiles_and_a_bounded_size() {
    let mut distances = Distances::default();
    for seconds in 1..=100_000_u32 {
        distances.add(SECOND * seconds);
    }
    let spread = distances.report();
    assert_eq!(spread.count, 100_000);
    assert!((spread.median_seconds - 50_000.0).abs() < 100.0);
    assert!((spread.p90_seconds - 90_000.0).abs() < 100.0);
    assert!((spread.max_seconds - 100_000.0).abs() < 1e-9);
    assert!(distances.millis.len() < 5_000);
    let buckets = spread.buckets.iter();
    let ends: Vec<Option<u64>> = buckets.clone().map(|one| one.up_to_seconds).collect();
    let (hours, day) = ([3_600, 21_600], 86_400);
    let expected = [10, 60, 600].into_iter().chain(hours).chain([day]);
    let expected = expected.map(Some).chain([None]);
    assert_eq!(ends, expected.collect::<Vec<_>>());
    let counts: Vec<u64> = buckets.map(|one| one.count).collect();
    assert_eq!(counts[..3], [10, 50, 540]);
    // Long times are rounded to three digits.
    assert!(counts[6].abs_diff(100_000 - day) <= 100, "{counts:?}");
    assert_eq!(counts.iter().sum::<u64>(), 100_000);
    assert_eq!(Distances::default().report().buckets, []);
}

#[test]
fn the_ten_most_surprising_objects_are_those_that_lived_on_longest() {
    let mut comparison = Comparison::default();
    for number in 0..30 {
        note(
            &mut comparison,
            Author::Candidate,
            &format!("p{number:02}"),
            number,
        );
    }
    let found = comparison.finish(at(1_000).instant, Against::Recorded, |_| true);
    let names: Vec<String> = found.surprising.into_iter().map(|one| one.uid).collect();
    assert_eq!(names.len(), 10);
    assert_eq!((&*names[0], &*names[9]), ("p00", "p09"));
}
