//! The state of the host's journal in the status of every Controller.

use super::bench::Bench;
use super::revisions::spec;
use crate::control::{ControlInput, JournalState};

fn recording(bench: &Bench) -> Option<String> {
    let conditions = bench.status().conditions.into_iter();
    let mut found = conditions.filter(|one| one.type_ == "Recording");
    found
        .next()
        .map(|one| format!("{} {}", one.status, one.reason))
}

#[test]
fn a_journal_that_stops_is_in_the_status_until_it_records_again() {
    let mut bench = Bench::running(spec(1, &[]));
    assert_eq!(recording(&bench), None, "there is no journal");
    for (state, expected) in [
        (JournalState::Recording, "True JournalRecords"),
        (JournalState::Stopped, "False JournalStopped"),
        (JournalState::Recording, "True JournalRecords"),
    ] {
        // Also a controller at rest.
        bench.pass(120);
        bench.handle(ControlInput::Journal(state));
        bench.settle();
        assert_eq!(recording(&bench).as_deref(), Some(expected));
        let (status, ..) = bench.condition("Ready");
        assert_eq!(status, "True");
    }
}
