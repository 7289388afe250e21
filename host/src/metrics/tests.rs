use davit_core::manifest::{MetricKind, MetricSpec};
use davit_core::plan::{Amount, Measure};
use davit_core::time::Instant;

use std::io::Write as _;
use std::process::{Command, Stdio};
use std::time::Duration;

use super::*;
use davit_cluster::observe::{ClockOffset, RequestObservation, RequestObserver as _};
use davit_core::api::{
    CandidateStatus, ComparisonStatus, ConditionStatus, ControllerStatus, LostStatus, TrippedStatus,
};
use davit_core::bounds::Bound;
use davit_core::budget::{Guardrail, GuardrailUse};
use davit_core::circuit::CallFailureKind;
use davit_core::machine::{BoundUse, ControllerState, State};
use davit_core::queue::QueueStats;
use davit_core::rollout::Role;
use davit_engine::InstanceUsage;

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
    let guest = metrics.register_guest("podgc", &[spec(MetricKind::Counter)]);
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
    one.record(&measure(Amount::SecondsSince(Instant::ZERO)), now);
    two.record(&measure(Amount::Observe(0.5)), now);
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
    assert!(!metrics.render().contains("davit_controller_ready"));
    for (status, value) in [("False", 0), ("True", 1), ("Unknown", 0)] {
        let ready = ConditionStatus {
            type_: "Ready".to_owned(),
            status: status.to_owned(),
            reason: "NotAuthorized".to_owned(),
            ..ConditionStatus::default()
        };
        let status = ControllerStatus {
            conditions: vec![ready],
            ..ControllerStatus::default()
        };
        metrics.rollouts.set("podgc", &status);
        shows(&format!(
            "davit_controller_ready{{controller=\"podgc\",reason=\"NotAuthorized\"}} {value}"
        ));
    }
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

fn shows(metrics: &HostMetrics, line: &str) {
    let page = metrics.render();
    assert!(page.lines().any(|one| one == line), "{line}: {page}");
}

#[test]
fn a_tripped_guardrail_and_the_events_of_a_controller_are_published() {
    let metrics = HostMetrics::new().unwrap();
    let tripped = TrippedStatus {
        guardrail: "deletesPerMinute".into(),
        limit: 1,
        since: String::new(),
        until: None,
    };
    let status = ControllerStatus {
        tripped: vec![tripped],
        ..ControllerStatus::default()
    };
    let gauge = |guardrail: &str| {
        format!("davit_guardrail_tripped{{controller=\"podgc\",guardrail=\"{guardrail}\"}}")
    };
    let events = "davit_controller_events_total{controller=\"podgc\",reason=\"RolledBack\"}";
    metrics.rollouts.set("podgc", &status);
    shows(&metrics, &format!("{} 1", gauge("deletesPerMinute")));
    shows(&metrics, &format!("{} 0", gauge("writesPerMinute")));
    // An increase needs a value before the first event.
    shows(&metrics, &format!("{events} 0"));
    metrics.rollouts.event("podgc", "RolledBack");
    metrics.rollouts.set("podgc", &ControllerStatus::default());
    shows(&metrics, &format!("{} 0", gauge("deletesPerMinute")));
    shows(&metrics, &format!("{events} 1"));
    metrics.rollouts.remove("podgc");
    assert!(!metrics.render().contains("davit_guardrail_tripped"));
}

#[test]
fn the_lease_of_a_controller_is_published_while_there_is_one() {
    let metrics = HostMetrics::new().unwrap();
    let line = "leader_election_master_status{name=\"controller-podgc\"}";
    metrics.leases.set("podgc", true);
    shows(&metrics, &format!("{line} 1"));
    metrics.leases.set("podgc", false);
    shows(&metrics, &format!("{line} 0"));
    metrics.leases.remove("podgc");
    assert!(!metrics.render().contains(line));
}

#[test]
fn what_is_left_of_the_limits_of_a_controller_is_published() {
    let metrics = HostMetrics::new().unwrap();
    let bound_use = |role, used| BoundUse {
        role,
        bound: Bound::Notes,
        used,
        most: 8,
    };
    let podgc = ControllerState {
        name: "podgc".into(),
        circuit_open: false,
        queues: Vec::new(),
        guardrails: vec![GuardrailUse {
            guardrail: Guardrail::Writes,
            used: 3,
            limit: 4,
        }],
        bound_uses: vec![bound_use(Role::Stable, 2), bound_use(Role::Candidate, 4)],
    };
    let mut state = State {
        controllers: vec![podgc],
        ..State::default()
    };
    metrics.machine.set(state.clone());
    let left = "davit_guardrail_left_ratio{controller=\"podgc\",guardrail=\"writesPerMinute\"}";
    let used = |role| {
        let labels = format!("controller=\"podgc\",limit=\"notes\",role=\"{role}\"");
        format!("davit_limit_used_ratio{{{labels}}}")
    };
    shows(&metrics, &format!("{left} 0.25"));
    shows(&metrics, &format!("{} 0.25", used("stable")));
    shows(&metrics, &format!("{} 0.5", used("candidate")));
    assert!(!metrics.render().contains("deletesPerMinute"));
    // The operator removes the guardrail, and the rollout ends.
    state.controllers[0].guardrails.clear();
    state.controllers[0].bound_uses.pop();
    metrics.machine.set(state);
    let page = metrics.render();
    assert!(!page.contains(left) && !page.contains(&used("candidate")));
    metrics.machine.set(State::default());
    assert!(!metrics.render().contains("podgc"));
}

/// A candidate counts for itself: its totals are not those of the stable revision that it replaces.
#[test]
fn the_totals_of_a_queue_do_not_decrease_when_a_candidate_is_promoted() {
    let metrics = HostMetrics::new().unwrap();
    let state = |adds| {
        let queue = QueueStats {
            queue: "pods".into(),
            depth: 0,
            delayed: 0,
            processing: 0,
            adds,
            retries: 0,
            unfinished_work: Duration::ZERO,
            longest_running: Duration::ZERO,
        };
        let controller = |name: &str| ControllerState {
            name: name.into(),
            circuit_open: false,
            queues: vec![queue.clone()],
            guardrails: Vec::new(),
            bound_uses: Vec::new(),
        };
        State {
            controllers: vec![controller("a"), controller("podgc")],
            ..State::default()
        }
    };
    let adds = "workqueue_adds_total{controller=\"podgc\",name=\"pods\"}";
    for (counted, shown) in [(60, 60), (41, 60), (61, 61)] {
        metrics.machine.set(state(counted));
        shows(&metrics, &format!("{adds} {shown}"));
    }
    // Another controller of the name.
    metrics.machine.set(State::default());
    metrics.machine.set(state(1));
    shows(&metrics, &format!("{adds} 1"));
}

#[test]
fn requests_are_counted_as_client_go_does() {
    let metrics = HostMetrics::new().unwrap();
    let request = |code, took| {
        metrics.requests.ended(&RequestObservation {
            method: &http::Method::GET,
            host: "10.96.0.1:443",
            code,
            took: Duration::from_secs(took),
            clock: code.map(|_| ClockOffset(-2.5)),
        });
    };
    request(Some(200), 1);
    request(Some(200), 3);
    request(None, 20);
    let total = |code: &str| {
        let labels = format!("code=\"{code}\",host=\"10.96.0.1:443\",method=\"GET\"");
        format!("rest_client_requests_total{{{labels}}}")
    };
    shows(&metrics, &format!("{} 2", total("200")));
    shows(&metrics, &format!("{} 1", total("<error>")));
    shows(&metrics, "davit_clock_offset_seconds -2.5");
    let duration = "rest_client_request_duration_seconds";
    for (le, count) in [("0.5", 0), ("1", 1), ("4", 2), ("15", 2), ("30", 3)] {
        let labels = format!("host=\"10.96.0.1:443\",verb=\"GET\",le=\"{le}\"");
        shows(&metrics, &format!("{duration}_bucket{{{labels}}} {count}"));
    }
}

#[test]
fn the_process_is_measured_when_it_is_scraped() {
    let metrics = HostMetrics::new().unwrap();
    let value = |name: &str| -> f64 {
        let page = metrics.render();
        let line = page.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap_or_else(|| panic!("{name}: {page}"))
            .trim()
            .parse()
            .unwrap()
    };
    let now = jiff::Timestamp::now().as_second();
    let start = value("process_start_time_seconds");
    #[allow(clippy::cast_precision_loss, reason = "seconds since 1970")]
    let age = now as f64 - start;
    assert!((-1.0..600.0).contains(&age), "{age}");
    assert!(value("process_max_fds") >= value("process_open_fds"));
    let memory = value("process_resident_memory_bytes");
    assert!(memory > 1e6 && memory < value("process_virtual_memory_bytes"));

    let files = value("process_open_fds");
    let opened = [(); 20].map(|()| std::fs::File::open("/proc/self/stat").unwrap());
    assert!(value("process_open_fds") >= files + 20.0 - 5.0);
    drop(opened);
    let before = value("process_cpu_seconds_total");
    let started = std::time::Instant::now();
    while started.elapsed() < Duration::from_millis(50) {}
    assert!(value("process_cpu_seconds_total") > before);
}

/// With promtool installed, which checks the format, the names and the help of each metric.
#[test]
fn prometheus_reads_the_metrics() {
    let metrics = HostMetrics::new().unwrap();
    let guest = metrics.register_guest("podgc", &[spec(MetricKind::Counter)]);
    guest.record(&measure(Amount::Add(1.0)), Instant::ZERO);
    metrics.rollouts.set("podgc", &ControllerStatus::default());
    metrics.leases.set("podgc", true);
    let second = Duration::from_secs(1);
    let trap = Err(CallFailureKind::Trap);
    metrics.calls.ended("podgc", Role::Stable, trap, second);
    metrics.queues.reconciled("podgc", "orphans", second);
    metrics.queues.dequeued("podgc", "orphans", second);
    let queue = QueueStats {
        queue: "orphans".into(),
        depth: 1,
        delayed: 0,
        processing: 0,
        adds: 2,
        retries: 1,
        unfinished_work: second,
        longest_running: second,
    };
    let controller = ControllerState {
        name: "podgc".into(),
        circuit_open: false,
        queues: vec![queue],
        guardrails: Vec::new(),
        bound_uses: Vec::new(),
    };
    metrics.machine.set(State {
        controllers: vec![controller],
        objects: [("pods".to_owned(), 1)].into(),
        synced: [("pods".to_owned(), true)].into(),
        bytes: 2,
    });
    metrics.watches.interrupted("pods");
    metrics.instances.set(InstanceUsage::default());
    metrics.requests.ended(&RequestObservation {
        method: &http::Method::GET,
        host: "a \"quoted\" host",
        code: None,
        took: second,
        clock: Some(ClockOffset::default()),
    });
    let mut promtool = Command::new("promtool");
    promtool.args(["check", "metrics"]);
    let pipes = promtool.stdin(Stdio::piped()).stderr(Stdio::piped());
    let Ok(mut promtool) = pipes.stdout(Stdio::piped()).spawn() else {
        println!("promtool is not installed: the exposition is not checked");
        return;
    };
    let page = metrics.render();
    let mut input = promtool.stdin.take().unwrap();
    input.write_all(page.as_bytes()).unwrap();
    drop(input);
    let output = promtool.wait_with_output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8(said).unwrap();
    assert!(output.status.success(), "{said}{page}");
}

#[test]
fn a_guest_cannot_declare_a_metric_of_the_host() {
    let metrics = HostMetrics::new().unwrap();
    let mut clash = spec(MetricKind::Gauge);
    clash.name = "davit_cache_bytes".into();
    let guest = metrics.register_guest("a", &[clash, spec(MetricKind::Counter)]);
    guest.record(&measure(Amount::Add(1.0)), Instant::ZERO);
    let clash = Measure {
        metric: "davit_cache_bytes".into(),
        ..measure(Amount::Set(1.0))
    };
    guest.record(&clash, Instant::ZERO);
    let page = metrics.render();
    let has = |start: &str| page.lines().any(|line| line.starts_with(start));
    assert!(has("guest_things_total{controller=\"a\""), "{page}");
    assert!(!has("davit_cache_bytes{controller=\"a\""), "{page}");
}

/// A registry refuses a name that it has had with another help or other labels, forever.
#[test]
fn a_guest_may_change_a_metric_and_another_may_have_its_name_before() {
    let metrics = HostMetrics::new().unwrap();
    let changed = MetricSpec {
        help: "Other things.".into(),
        labels: vec!["namespace".into(), "reason".into()],
        ..spec(MetricKind::Counter)
    };
    let add = |guest: &GuestMetrics, labels: &[&str]| {
        let labels = labels.iter().map(ToString::to_string).collect();
        let measure = Measure {
            labels,
            ..measure(Amount::Add(1.0))
        };
        guest.record(&measure, Instant::ZERO);
    };
    let shows = |labels: &str| {
        let line = format!("guest_things_total{{{labels}}} 1");
        metrics.render().contains(&line)
    };
    let former = metrics.register_guest("a", &[spec(MetricKind::Counter)]);
    let present = metrics.replace_guest("a", std::slice::from_ref(&changed), Some(former));
    add(&present, &["default", "late"]);
    assert!(shows(
        "controller=\"a\",namespace=\"default\",reason=\"late\""
    ));
    // While another guest has the name, its metrics alone are published.
    let other = metrics.register_guest("b", &[spec(MetricKind::Counter)]);
    add(&other, &["default"]);
    assert!(!shows("controller=\"b\",namespace=\"default\""));
    drop(present);
    assert!(shows("controller=\"b\",namespace=\"default\""));
}
