//! What a guest reports, in the status of its Controller.

use super::bench::Bench;
use super::revisions::spec;
use crate::notes::GuestReport;

fn report(count: u64) -> Vec<GuestReport> {
    vec![GuestReport {
        name: "odd".to_owned(),
        count,
        message: "ConfigMap ci/a: when fails".to_owned(),
    }]
}

#[test]
fn a_report_is_in_the_status_and_counts_are_written_every_ten_seconds() {
    let mut bench = Bench::running(spec(1, &[]));
    bench.pass(120);
    bench.reports = report(1);
    bench.pass(11);
    assert_eq!(bench.status().reports, report(1));
    assert_eq!(bench.record.status.reports, report(1));
    let mut written = Vec::new();
    for count in 2..60 {
        bench.reports = report(count);
        bench.pass(1);
        written.push(bench.record.status.reports[0].count);
    }
    written.dedup();
    assert!((5..=8).contains(&written.len()), "{written:?}");
    let (status, ..) = bench.condition("Ready");
    assert_eq!(status, "True");
    bench.reports.clear();
    bench.pass(11);
    assert_eq!(bench.record.status.reports, []);
}
