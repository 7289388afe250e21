//! How long a backtest takes: the difference of the two tests.

use super::bench::{FAILED, Recorder, SECOND, Trial};
use crate::journal::Record;

/// 20,000 pods, and 200,000 changes of which one in a hundred is a failed pod.
fn recorded() -> Vec<Record> {
    let mut recorder = Recorder::start(FAILED);
    for number in 0..20_000 {
        let name = format!("p{number}");
        recorder.pod(&name, &name, "Pending");
    }
    for change in 0..200_000 {
        let name = format!("p{}", change * 7_919 % 20_000);
        let phase = match change % 100 {
            0 => "Failed",
            odd if odd % 2 == 1 => "Running",
            _ => "Pending",
        };
        recorder.pod(&name, &name, phase);
        if change % 20 == 0 {
            recorder.pass(SECOND);
        }
    }
    recorder.records
}

#[test]
#[ignore = "it measures"]
fn a_large_journal_is_recorded() {
    assert!(recorded().len() > 100_000);
}

#[test]
#[ignore = "it measures"]
fn a_large_journal_is_recorded_and_tested() {
    let records = recorded();
    let report = Trial::of(FAILED).run(&records).unwrap();
    let count = records.len();
    assert_eq!(report.agreement.only_candidate, 0, "{count} entries");
    assert_eq!(report.agreement.only_recorded, 0, "{count} entries");
    // The changes are of 200 pods, each with one uid.
    assert_eq!(report.agreement.agree, 200);
}
