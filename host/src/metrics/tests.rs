use davit_core::manifest::{MetricKind, MetricSpec};
use davit_core::plan::{Amount, Measure};
use davit_core::time::Instant;

use super::*;
use davit_core::api::{CandidateStatus, ComparisonStatus, ControllerStatus, LostStatus};

fn spec(kind: MetricKind) -> MetricSpec {
    MetricSpec {
        name: "guest_things_total".into(),
        kind,
        help: "Things.".into(),
        labels: vec!["namespace".into()],
        buckets: vec![1.0, 2.0],
    }
}

fn measure(amount: Amount) -> Measure {
    Measure {
        metric: "guest_things_total".into(),
        labels: vec!["default".into()],
        amount,
    }
}

#[test]
fn a_guests_counter_is_published_under_its_own_name_until_the_guest_is_dropped() {
    let metrics = HostMetrics::new().unwrap();
    let guest = metrics
        .register_guest("podgc", &[spec(MetricKind::Counter)])
        .unwrap();
    guest.record(&measure(Amount::Add(2.0)), Instant::ZERO);
    guest.record(&measure(Amount::Add(-1.0)), Instant::ZERO);
    let line = "guest_things_total{controller=\"podgc\",namespace=\"default\"} 2";
    assert!(metrics.render().contains(line), "{}", metrics.render());
    drop(guest);
    assert!(!metrics.render().contains("guest_things_total"));
}

#[test]
fn the_host_counts_sync_errors_in_the_metric_that_a_guest_declares() {
    let metrics = HostMetrics::new().unwrap();
    let errors = MetricSpec {
        name: "guest_sync_errors_total".into(),
        labels: vec![],
        ..spec(MetricKind::SyncErrors)
    };
    let guest = metrics.register_guest("gc", &[errors, spec(MetricKind::Counter)]);
    let shows = |count: u32| {
        let line = format!("guest_sync_errors_total{{controller=\"gc\"}} {count}");
        assert!(metrics.render().contains(&line), "{}", metrics.render());
    };
    let guest = guest.unwrap();
    shows(0);
    guest.sync_error();
    shows(1);
}

#[test]
fn two_controllers_of_one_guest_publish_the_same_metric() {
    let metrics = HostMetrics::new().unwrap();
    let one = metrics.register_guest("a", &[spec(MetricKind::Histogram)]);
    let two = metrics.register_guest("b", &[spec(MetricKind::Histogram)]);
    let now = Instant::from_nanos(1_500_000_000);
    one.unwrap()
        .record(&measure(Amount::SecondsSince(Instant::ZERO)), now);
    two.unwrap().record(&measure(Amount::Observe(0.5)), now);
}

/// The table in docs/metrics.md has every metric, with its labels, and no
/// other.
#[test]
fn the_documented_metrics_are_the_published_ones() {
    let page = include_str!("../../../docs/metrics.md");
    let rows = page.lines().filter(|line| line.starts_with("| `"));
    let documented = rows.flat_map(|row| {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let labels: Vec<&str> = cells[2]
            .split(", ")
            .filter(|label| !label.is_empty())
            .collect();
        let names = cells[1]
            .split(", ")
            .map(|name| name.trim_matches('`').to_owned());
        let labels = labels.join(",");
        names
            .map(move |name| format!("{name}{{{labels}}}"))
            .collect::<Vec<_>>()
    });
    let mut documented: Vec<String> = documented.collect();
    let metrics = HostMetrics::new().unwrap();
    let published = metrics.described();
    let published = published.map(|(name, labels)| format!("{name}{{{}}}", labels.join(",")));
    let mut published: Vec<String> = published.collect();
    documented.sort();
    published.sort();
    assert_eq!(documented, published);
}

#[test]
fn the_gauges_of_a_rollout_are_set_and_removed() {
    let metrics = HostMetrics::new().unwrap();
    let candidate = CandidateStatus {
        step: 2,
        weight: 10,
        comparison: ComparisonStatus {
            agree: 97,
            only_stable: 2,
            unknown: 1,
            ..ComparisonStatus::default()
        },
        ..CandidateStatus::default()
    };
    let rolling_out = ControllerStatus {
        candidate: Some(candidate),
        ..ControllerStatus::default()
    };
    metrics.rollouts.set("podgc", &rolling_out);
    let shows = |line: &str| {
        let page = metrics.render();
        assert!(page.lines().any(|one| one == line), "{line}: {page}");
    };
    shows("davit_rollout_step{controller=\"podgc\"} 2");
    shows("davit_rollout_weight{controller=\"podgc\"} 10");
    for (result, count) in [
        ("agree", 97),
        ("only-stable", 2),
        ("only-candidate", 0),
        ("different", 0),
        ("unknown", 1),
    ] {
        let labels = format!("controller=\"podgc\",result=\"{result}\"");
        shows(&format!("davit_rollout_comparison{{{labels}}} {count}"));
    }
    shows("davit_stable_revision_lost{controller=\"podgc\"} 0");
    let lost = ControllerStatus {
        lost: Some(LostStatus::default()),
        ..ControllerStatus::default()
    };
    metrics.rollouts.set("podgc", &lost);
    shows("davit_rollout_step{controller=\"podgc\"} 0");
    shows("davit_stable_revision_lost{controller=\"podgc\"} 1");
    metrics.rollouts.remove("podgc");
    for name in ["davit_rollout", "davit_stable_revision_lost"] {
        assert!(!metrics.render().contains(name), "{name}");
    }
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(
        build::version_in(&metrics.render()).as_deref(),
        Some(version)
    );
}

#[test]
fn a_guest_cannot_declare_a_metric_of_the_host() {
    let metrics = HostMetrics::new().unwrap();
    let mut clash = spec(MetricKind::Gauge);
    clash.name = "davit_cache_bytes".into();
    assert!(metrics.register_guest("a", &[clash]).is_err());
}
