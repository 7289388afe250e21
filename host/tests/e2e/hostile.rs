//! A bad guest beside a good one: the good one works, the bad one has no effect.

use std::time::Duration;

use davit::host::Report;
use tokio::time::sleep;

use crate::bench::journals::{FAILED_CALL, explain_skips};
use crate::bench::{deploy, in_real_time, odd_guest, on_the_sim};

/// Runs PodGC beside a guest that misbehaves in this way for every item.
/// The bad guest's metric `series` is 1 at least.
fn beside_podgc(behaviour: &str, series: &str) {
    explain_skips(FAILED_CALL);
    beside_podgc_within(behaviour, "callMillis: 300", series);
}

fn config(behaviour: &str, limits: &str) -> String {
    format!(
        "controllers:\n\
         - name: good\n  module: {{builtin: podgc}}\n  mode: Enforce\n  \
           config: {{quarantine: 1s, period: 1s}}\n\
         - name: bad\n  module: {{file: {}}}\n  mode: Enforce\n  \
           config: {{reconcile: {behaviour}}}\n  limits: {{{limits}}}\n",
        odd_guest().display()
    )
}

/// The same, with these limits of the bad guest.
fn beside_podgc_within(behaviour: &str, limits: &str, series: &str) {
    let config = config(behaviour, limits);
    on_the_sim(|bench| async move {
        bench.pod("innocent", "", "Running").await;
        bench.pod("orphan", "missing", "Running").await;
        let mut host = bench.host(&config).await;
        host.started().await;
        bench.until_left(&["innocent"]).await;
        // The good guest continues while the bad one fails.
        sleep(Duration::from_secs(120)).await;
        bench.pod("second", "missing", "Running").await;
        bench.until_left(&["innocent"]).await;
        let writes = deploy::requests(bench.sim()).into_iter();
        let writes = writes.filter(|served| served.method != "GET");
        for write in writes {
            let name = &write.work.name;
            assert!(["orphan", "second"].contains(&&**name), "{write:?}");
        }
        let page = host.metrics.render();
        assert!(host.metric(series) >= 1.0, "{series}:\n{page}");
        assert!(host.metric(FINE) >= 1.0, "{page}");
    });
}

const FINE: &str = "davit_guest_calls_total{controller=\"good\",result=\"ok\",role=\"stable\"}";
const CIRCUIT_OPEN: &str = "davit_guest_circuit_open{controller=\"bad\"}";

fn failed(result: &str) -> String {
    format!("davit_guest_calls_total{{controller=\"bad\",result=\"{result}\",role=\"stable\"}}")
}

fn ruled(ruling: &str) -> String {
    format!("davit_plans_total{{controller=\"bad\",role=\"stable\",ruling=\"{ruling}\"}}")
}

#[test]
fn the_circuit_of_a_guest_that_traps_opens() {
    beside_podgc("trap", CIRCUIT_OPEN);
}

#[test]
fn a_guest_that_panics_traps() {
    beside_podgc("panic", &failed("trap"));
}

#[test]
fn a_call_that_does_not_end_is_a_timeout() {
    beside_podgc("endless-loop", &failed("timeout"));
}

#[test]
fn a_call_that_allocates_too_much_is_a_memory_failure() {
    beside_podgc("memory-bomb", &failed("memory"));
}

#[test]
fn an_answer_that_is_too_large_is_a_flood() {
    beside_podgc("enormous-answer", &failed("flood"));
}

#[test]
fn too_many_notes_are_a_flood() {
    let limits = "notes: 15000, instances: 1";
    beside_podgc_within("note-flood", limits, &failed("flood"));
}

#[test]
fn too_many_queue_items_are_a_flood() {
    let limits = "queueItems: 15000, instances: 1";
    beside_podgc_within("item-flood", limits, &failed("flood"));
}

#[test]
fn too_many_groups_are_a_flood() {
    let limits = "rateGroups: 5000, instances: 1";
    beside_podgc_within("group-flood", limits, &failed("flood"));
}

#[test]
fn too_many_series_are_a_flood() {
    let limits = "metricSeries: 5000, instances: 1";
    beside_podgc_within("series-flood", limits, &failed("flood"));
}

/// Whatever a guest does, another controller's items are reconciled when they are due.
#[test]
fn a_hostile_guest_delays_no_other_controller() {
    for behaviour in [
        "endless-loop",
        "memory-bomb",
        "enormous-answer",
        "log-flood",
        "note-flood",
        "item-flood",
        "many-commands",
    ] {
        in_real_time(|bench| async move {
            bench.pod("innocent", "", "Running").await;
            let limits = "callMillis: 100";
            let mut host = bench.host(&config(behaviour, limits)).await;
            host.started().await;
            sleep(Duration::from_secs(3)).await;
            let reports = std::iter::from_fn(|| host.reports.try_recv().ok());
            let waited = reports.filter_map(|report| match report {
                Report::Dequeued {
                    controller, waited, ..
                } if controller == "good" => Some(waited),
                _ => None,
            });
            let waited: Vec<Duration> = waited.collect();
            assert!(
                !waited.is_empty(),
                "{behaviour}: PodGC has a pass each second"
            );
            let longest = waited.iter().max();
            assert!(
                longest < Some(&LONGEST_WAIT),
                "{behaviour}: PodGC waited {longest:?}"
            );
        });
    }
}

/// Of a machine that runs other tests at the same time.
const LONGEST_WAIT: Duration = Duration::from_millis(500);

#[test]
fn a_plan_without_a_uid_is_refused() {
    beside_podgc("no-uid", &ruled("no-uid"));
}

#[test]
fn a_plan_outside_the_declared_permissions_is_refused() {
    beside_podgc("undeclared-write", &ruled("not-declared"));
}
