//! Deletions of objects that an operator wants to keep.

use super::*;
use crate::undo::{IdleKinds, UndoKind, UndoRules};

fn keeping(resource: &str) -> Settings {
    let kind = UndoKind {
        group: String::new(),
        resource: resource.to_owned(),
    };
    let rules = UndoRules {
        kinds: vec![kind],
        keep_for: SECOND,
    };
    Settings {
        undo: rules.into(),
        ..enforce()
    }
}

/// A machine with a journal whose controller deletes pods.
fn deleting(settings: Settings) -> Bench {
    let mut bench = Bench::new();
    bench.machine.start_journal(bench.now);
    bench.discover(&["pods", "nodes"]);
    bench.apply(vec![desired("one", settings)]);
    bench.list("pods", &["a", "b"]);
    bench.answer_all(true);
    bench
}

fn deferred_deletions(bench: &Bench) -> Option<String> {
    let observed = bench.machine.observe(bench.now, |_| true);
    observed["test"].deferred_deletions.clone()
}

fn end(bench: &mut Bench, class: FailureClass) {
    let execute = bench.executes.pop_front().unwrap();
    bench.input(Input::Executed {
        plan: execute.id,
        outcome: Outcome {
            written: None,
            failed: Some((0, Failure::new(class, "the disk is full"))),
        },
        took: SECOND,
    });
}

#[test]
fn a_plan_is_executed_with_the_rules_of_its_controller() {
    let bench = deleting(enforce());
    assert!(bench.executes[0].undo.is_none());
    let bench = deleting(keeping("pods"));
    let undo = bench.executes[0].undo.as_ref().unwrap();
    assert!(undo.has_journal);
    assert!(undo.rules.keeps(&ApiResource::new("", "v1", "pods")));
}

#[test]
fn a_deletion_that_is_deferred_is_observed_until_one_succeeds() {
    let mut bench = deleting(keeping("pods"));
    assert_eq!(deferred_deletions(&bench), None);
    end(&mut bench, FailureClass::NotKept);
    assert_eq!(
        deferred_deletions(&bench).as_deref(),
        Some("the disk is full")
    );
    bench.pass(Duration::from_secs(30));
    bench.answer_all(true);
    // Whichever is retried first.
    while let Some(execute) = bench.executes.pop_front() {
        bench.executed(&execute);
    }
    assert_eq!(deferred_deletions(&bench), None);

    let mut bench = deleting(keeping("pods"));
    end(&mut bench, FailureClass::NotKept);
    bench.now.instant = bench.now.instant.after(Duration::from_mins(20));
    assert_eq!(
        deferred_deletions(&bench),
        None,
        "nothing is deleted any more"
    );
    end(&mut bench, FailureClass::Server);
    assert_eq!(deferred_deletions(&bench), None, "a failure of the server");
}

/// A host without a journal says so before it deletes anything, and only of what it defers.
#[test]
fn without_a_journal_the_deletions_of_kept_kinds_are_deferred_and_no_others() {
    let dry = Settings {
        mode: Mode::DryRun,
        ..keeping("pods")
    };
    for (settings, defers) in [
        (keeping("pods"), true),
        (keeping("pod"), false),
        (keeping("nodes"), false),
        (dry, false),
        (enforce(), false),
    ] {
        let mut bench = Bench::new();
        bench.discover(&["pods", "nodes"]);
        let undo = settings.undo.clone();
        bench.apply(vec![desired("one", settings)]);
        bench.list("pods", &["a"]);
        assert_eq!(deferred_deletions(&bench).is_some(), defers, "{undo:?}");
    }
}

/// An object that is too large stays so, and every other deletion succeeds.
#[test]
fn a_deferred_deletion_is_observed_while_others_succeed() {
    let mut bench = deleting(keeping("pods"));
    end(&mut bench, FailureClass::NotKept);
    let said = deferred_deletions(&bench);
    assert!(said.is_some());
    let other = bench.executes.pop_front().unwrap();
    bench.executed(&other);
    assert_eq!(deferred_deletions(&bench), said);
}

#[test]
fn a_deletion_that_is_deferred_is_not_observed_once_its_target_is_gone() {
    for class in [FailureClass::NotFound, FailureClass::UidMismatch] {
        let mut bench = deleting(keeping("pods"));
        let first = bench.executes[0].plan.target.clone();
        end(&mut bench, FailureClass::NotKept);
        bench.executes.clear();
        bench.pass(Duration::from_secs(30));
        bench.answer_all(true);
        let is_first = |one: &Execute| one.plan.target == first;
        let position = bench.executes.iter().position(is_first).unwrap();
        bench.executes.swap(0, position);
        end(&mut bench, class);
        assert_eq!(deferred_deletions(&bench), None, "{class}");
    }
}

/// Somebody else deletes it, and no plan finds that out.
#[test]
fn a_deletion_that_is_deferred_is_not_observed_once_the_cache_lacks_its_target() {
    let mut bench = deleting(keeping("pods"));
    let first = bench.executes[0].plan.target.name.clone();
    end(&mut bench, FailureClass::NotKept);
    let other = if first == "a" { "b" } else { "a" };
    bench.list("pods", &[&first]);
    assert!(deferred_deletions(&bench).is_some(), "{other} is gone");
    bench.list("pods", &[other]);
    assert_eq!(deferred_deletions(&bench), None);
}

/// `pod` instead of `pods` keeps nothing, and no plan fails.
#[test]
fn kinds_that_keep_nothing_are_observed() {
    let idle = |resource: &str| {
        let bench = deleting(keeping(resource));
        bench.machine.observe(bench.now, |_| true)["test"]
            .idle_undo_kinds
            .clone()
    };
    assert_eq!(idle("pods"), Some(IdleKinds::default()));
    assert_eq!(idle("pod").unwrap().not_served, ["pod"]);
    assert_eq!(idle("nodes").unwrap().not_deleted, ["nodes"]);
    let bench = deleting(enforce());
    let observed = bench.machine.observe(bench.now, |_| true);
    assert_eq!(observed["test"].idle_undo_kinds, None, "without undo");
}

#[test]
fn a_deletion_that_is_deferred_is_retried() {
    let mut bench = deleting(keeping("pods"));
    end(&mut bench, FailureClass::NotKept);
    end(&mut bench, FailureClass::NotKept);
    assert!(bench.calls.is_empty());
    bench.pass(Duration::from_secs(30));
    assert!(!bench.calls.is_empty(), "after the back-off of the queue");
}

#[test]
fn a_host_without_a_journal_says_so_at_once() {
    let mut bench = Bench::new();
    bench.discover(&["pods", "nodes"]);
    bench.apply(vec![desired("one", keeping("pods"))]);
    bench.list("pods", &["a"]);
    let said = deferred_deletions(&bench).unwrap();
    assert!(said.contains("davit run with --journal DIR"), "{said}");
    bench.answer_all(true);
    assert!(!bench.executes[0].undo.as_ref().unwrap().has_journal);
    bench.apply(vec![desired("one", enforce())]);
    assert_eq!(deferred_deletions(&bench), None);
}

/// A plan that has started and waits for its copy is withdrawn too.
#[test]
fn plans_are_withdrawn_as_soon_as_their_controller_may_not_delete() {
    let changed = |mode: Mode| Settings {
        mode,
        ..keeping("pods")
    };
    for mode in [Mode::Disabled, Mode::DryRun] {
        let mut bench = deleting(keeping("pods"));
        assert!(bench.withdrawn.is_empty());
        bench.apply(vec![desired("one", changed(mode))]);
        assert_eq!(bench.withdrawn.len(), 1, "{mode:?}");
    }
    let mut bench = deleting(keeping("pods"));
    bench.machine.set_terms(bench.now, BTreeMap::new());
    bench.run();
    assert_eq!(bench.withdrawn.len(), 1, "leadership is lost");
    let mut bench = deleting(keeping("pods"));
    bench.apply(vec![]);
    assert_eq!(bench.withdrawn.len(), 1, "the controller is removed");
}
