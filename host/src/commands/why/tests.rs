//! Stories from journals.

mod reads;
mod related;

use clap::Parser as _;
use davit_core::circuit::{CallFailure, CallFailureKind};
use davit_core::gate::Ruling;
use davit_core::journal::Entry;

use super::*;
use crate::cli::{Arguments, Command};
use crate::commands::journal::testing::{answer, call, deletion, id, journal, pod, ruling};

/// What the journal of these entries says about a name.
fn stories(
    kind: &str,
    name: &str,
    entries: impl IntoIterator<Item = (u32, Entry)>,
) -> Vec<ObjectStory> {
    let directory = journal(entries);
    let path = directory.path().to_str().unwrap();
    let command = Arguments::try_parse_from(["davit", "why", kind, name, "--journal", path]);
    let Command::Why(arguments) = command.unwrap().command else {
        panic!("davit why");
    };
    let reader = open(&arguments.journal).unwrap();
    let mut reading = Reading::new(&reader, arguments.span.micros());
    let objects = reading.objects(&arguments).unwrap();
    reading.stories(objects).unwrap()
}

const START: [(u32, Entry); 2] = [
    (1, Entry::Keyframe { is_start: true }),
    (1, Entry::KeyframeEnd),
];

/// The journal has nothing of the second host's start: its disk was full.
#[test]
fn a_ruling_of_another_host_is_not_that_of_an_earlier_plan() {
    let web = pod("web", "u");
    let before = [
        (2, call(7, "podgc", "pods", "a")),
        (3, answer(7, vec![deletion(&web)])),
    ];
    let after = [
        (9, Entry::Keyframe { is_start: false }),
        (9, Entry::KeyframeEnd),
        (10, ruling(7, &web, Ruling::DryRun)),
    ];
    let entries = START.into_iter().chain(before).chain(after);
    let stories = stories("pod", "default/web", entries);
    let [decision] = &*stories[0].decisions else {
        panic!("{stories:?}");
    };
    assert_eq!(decision.content.plans[0].ruling, None);
}

#[test]
fn the_refused_answers_of_two_calls_at_once_are_both_reported() {
    let web = pod("web", "u");
    let failure = |number| Entry::Failure {
        call: id(number),
        failure: Box::new(CallFailure::new(CallFailureKind::Flood, "too much")),
    };
    let calls = [
        (2, call(7, "podgc", "pods", "u")),
        (2, call(8, "podgc", "pods", "u")),
        (3, answer(7, vec![deletion(&web)])),
        (3, answer(8, vec![deletion(&web)])),
        (3, failure(7)),
        (3, failure(8)),
    ];
    let stories = stories("pod", "default/web", START.into_iter().chain(calls));
    let decisions = stories[0].decisions.iter();
    let failed = decisions.filter(|it| it.content.failure.is_some());
    let count: u64 = failed.map(|it| it.count).sum();
    assert_eq!(count, 2, "{stories:?}");
}

/// The journal has neither the revision nor what it read.
#[test]
fn a_decision_is_reported_also_if_what_the_guest_saw_is_not_known() {
    let web = pod("web", "u");
    let calls = [
        (2, call(7, "podgc", "pods", "default/web")),
        (3, answer(7, vec![])),
        (4, call(8, "podgc", "pods", "default/web")),
        (5, answer(8, vec![deletion(&web)])),
        (6, call(9, "podgc", "pods", "default/web")),
        (7, answer(9, vec![])),
        (8, ruling(8, &web, Ruling::DryRun)),
        (9, call(10, "podgc", "pods", "default/web")),
        (10, answer(10, vec![])),
    ];
    let stories = stories("pod", "default/web", START.into_iter().chain(calls));
    let decisions = stories[0].decisions.iter();
    let times = decisions.map(|it| (&it.time[17..19], it.content.plans.len()));
    // The journal does not say which pod had the name before and after.
    assert_eq!(times.collect::<Vec<_>>(), [("05", 1), ("07", 0)]);
    let unknown = &stories[0].decisions[1].saw.unknown;
    assert!(unknown.is_some(), "{stories:?}");
}

#[test]
fn a_kind_that_the_journal_does_not_know_is_an_error_with_those_that_it_has() {
    let web = pod("web", "u");
    let calls = [
        (2, call(7, "podgc", "pods", "u")),
        (3, answer(7, vec![deletion(&web)])),
    ];
    let directory = journal(START.into_iter().chain(calls));
    let path = directory.path().to_str().unwrap();
    let command = ["davit", "why", "widgets", "default/web", "--journal", path];
    let Command::Why(arguments) = Arguments::try_parse_from(command).unwrap().command else {
        panic!("davit why");
    };
    let error = why(&arguments).unwrap_err().to_string();
    let expected = "the journal knows no kind widgets in this span; it has objects of: Pod";
    assert_eq!(error, expected);
}

/// The host keeps the first bytes of a reason.
#[test]
fn a_plan_with_a_long_reason_has_its_ruling() {
    let web = pod("web", "u");
    let mut plan = deletion(&web);
    plan.reason = "the node does not answer, ".repeat(20);
    let mut kept = plan.reason.clone();
    davit_core::untrusted::shorten(&mut kept, davit_core::bounds::text::REASON);
    let mut ruling = ruling(7, &web, Ruling::DryRun);
    if let Entry::Ruling(ruling) = &mut ruling {
        ruling.reason = kept;
    }
    let calls = [
        (2, call(7, "podgc", "pods", "u")),
        (3, answer(7, vec![plan])),
        (4, ruling),
    ];
    let stories = stories("pod", "default/web", START.into_iter().chain(calls));
    let plan = &stories[0].decisions[0].content.plans[0];
    assert_eq!(plan.ruling.as_ref().unwrap().ruling, "dry-run");
}

#[test]
fn plans_of_a_decision_with_the_same_target_and_reason_have_their_own_rulings() {
    let web = pod("web", "u");
    let calls = [
        (2, call(7, "podgc", "pods", "u")),
        (3, answer(7, vec![deletion(&web), deletion(&web)])),
        (4, ruling(7, &web, Ruling::Admit)),
        (4, ruling(7, &web, Ruling::DryRun)),
    ];
    let stories = stories("pod", "default/web", START.into_iter().chain(calls));
    let plans = stories[0].decisions[0].content.plans.iter();
    let rulings = plans.map(|plan| plan.ruling.as_ref().unwrap().ruling);
    assert_eq!(rulings.collect::<Vec<_>>(), ["admitted", "dry-run"]);
}
