use std::time::Duration;

use super::*;
use crate::{DeleteOptions, Instant, ObjectRef, QueueName, Reason};

const QUEUE: QueueName = QueueName::new("queue");

fn item(cursor: &str) -> WorkItem {
    WorkItem {
        queue: QUEUE,
        key: "key".to_owned(),
        attempt: 0,
        created_at: Instant::from_millis(0),
        due_at: Instant::from_millis(0),
        failures: Vec::new(),
        cursor: cursor.to_owned(),
    }
}

fn plan(uid: usize) -> Plan {
    let mut target = ObjectRef::named("v1", "Pod", "default", "pod");
    target.uid = uid.to_string();
    Plan::new(target, Reason::new("test"), "").delete(DeleteOptions::new())
}

fn enqueue(key: usize) -> Command {
    Command::enqueue(QUEUE, &key.to_string(), Duration::ZERO)
}

fn page(cursor: &str, decision: Decision) -> Decision {
    let mut pages = fitting(&[item(cursor)], vec![decision]);
    pages.pop().unwrap()
}

/// Every page of a decision that stays the same, as in a dry run.
fn pages(decide: impl Fn() -> Decision) -> Vec<Decision> {
    let mut pages = vec![page("", decide())];
    while let Verdict::ContinueFrom(cursor) = &pages[pages.len() - 1].verdict {
        pages.push(page(&cursor.clone(), decide()));
        assert!(pages.len() < 100, "it comes to no end");
    }
    pages
}

fn uids(decision: &Decision) -> Vec<usize> {
    let uids = decision.plans.iter().map(|plan| plan.target.uid.parse());
    uids.collect::<Result<_, _>>().unwrap()
}

fn bytes(decision: &Decision) -> usize {
    let plans = decision.plans.iter().map(plan_bytes);
    plans
        .chain(decision.commands.iter().map(command_bytes))
        .sum()
}

#[test]
fn a_decision_that_fits_is_not_divided() {
    let decide = || {
        Decision::requeue_when_observed()
            .plans((0..MAX_PLANS).map(plan))
            .commands((0..MAX_COMMANDS).map(enqueue))
    };
    assert_eq!(page("", decide()), decide());
}

#[test]
fn each_plan_has_its_turn_once_and_in_order() {
    let decide = || {
        Decision::requeue_after(Duration::from_secs(7))
            .plans((0..25_000).map(plan))
            .commands((0..12_345).map(enqueue))
            .parallel(3)
    };
    let pages = pages(decide);
    for page in &pages {
        assert!(page.plans.len() <= MAX_PLANS && page.commands.len() <= MAX_COMMANDS);
        assert!(bytes(page) <= MAX_BYTES);
        assert_eq!(page.parallel, 3);
    }
    let plans: Vec<Plan> = pages.iter().flat_map(|it| it.plans.clone()).collect();
    assert_eq!(plans, decide().plans);
    let commands = pages.iter().flat_map(|it| it.commands.clone());
    assert_eq!(commands.collect::<Vec<_>>(), decide().commands);
    // The first has no room for plans beside its commands.
    assert_eq!(pages[0].plans.len(), 0);
    assert_eq!(pages.last().unwrap().verdict, decide().verdict);
}

#[test]
fn executed_plans_disappear_and_the_rest_continues() {
    let first = page("", Decision::done().plans((0..12_000).map(plan)));
    let Verdict::ContinueFrom(cursor) = &first.verdict else {
        panic!("{:?}", first.verdict);
    };
    // Some of the first are still pending: their deletion failed, or is not
    // observed yet. And some of the others disappeared by themselves.
    let wanted = (0..12_000).filter(|uid| uid % 7 == 0 || *uid >= MAX_PLANS);
    let wanted = wanted.filter(|uid| uid % 9 != 0 || *uid == MAX_PLANS);
    let second = page(cursor, Decision::done().plans(wanted.clone().map(plan)));
    let rest: Vec<usize> = wanted.filter(|uid| *uid >= MAX_PLANS).collect();
    assert_eq!(uids(&second), rest);
    assert_eq!(second.verdict, Verdict::Done);
}

#[test]
fn a_cursor_without_its_plan_starts_from_the_beginning() {
    let first = page("", Decision::done().plans((0..12_000).map(plan)));
    let Verdict::ContinueFrom(cursor) = &first.verdict else {
        panic!("{:?}", first.verdict);
    };
    let wanted = || (0..12_000).filter(|uid| *uid != MAX_PLANS);
    let second = page(cursor, Decision::done().plans(wanted().map(plan)));
    assert_eq!(uids(&second), wanted().take(MAX_PLANS).collect::<Vec<_>>());
}

/// A plan that depends on a cancellation needs it on the same page, and a key
/// that is cancelled and enqueued again must keep its item in between.
#[test]
fn dependent_commands_and_plans_share_a_page() {
    let cancelled = |key: usize| plan(key).when_cancelled(QUEUE, &key.to_string());
    for offset in 0..3 {
        let decide = || {
            let pairs = (0..6_000).flat_map(|key| {
                let cancel = Command::cancel(QUEUE, &key.to_string());
                [cancel, enqueue(key)]
            });
            let before = (0..offset).map(|key| enqueue(100_000 + key));
            Decision::done()
                .commands(before)
                .commands(pairs)
                .plans((0..6_000).map(cancelled))
        };
        let pages = pages(decide);
        assert_eq!(pages.len(), 2);
        for page in &pages {
            let keys = page.commands.iter().filter_map(subject);
            let mut keys: Vec<&str> = keys.map(|(_, key)| key).collect();
            let plans = uids(page);
            for uid in &plans {
                let uid = uid.to_string();
                let both = keys.iter().filter(|key| ***key == uid);
                assert_eq!(both.count(), 2, "{uid}");
            }
            keys.dedup();
            let others = if page == &pages[0] { offset } else { 0 };
            assert_eq!(keys.len(), plans.len() + others);
        }
    }
}

/// The limit applies to the whole answer.
#[test]
fn the_decisions_of_one_answer_share_its_bytes() {
    let big = |uid| {
        let mut plan = plan(uid);
        plan.message = "x".repeat(2_000);
        plan
    };
    let decide = || Decision::done().plans((0..5_000).map(big));
    let items = ["", "", ""].map(item);
    let answer = fitting(&items, vec![decide(), decide(), decide()]);
    assert!(answer.iter().map(bytes).sum::<usize>() <= MAX_BYTES);
    assert_eq!(answer[0], decide());
    assert!(answer[1].plans.len() < 5_000);
    assert_eq!(answer[2].plans.len(), 0);
    for decision in &answer[1..] {
        let Verdict::ContinueFrom(cursor) = &decision.verdict else {
            panic!("{:?}", decision.verdict);
        };
        let rest = page(cursor, decide());
        assert_eq!(decision.plans.len() + rest.plans.len(), 5_000);
        assert_eq!(rest.verdict, Verdict::Done);
    }
}

/// The host reports the problem: no plan is dropped silently.
#[test]
fn a_plan_that_is_too_large_is_answered_for_the_host_to_refuse() {
    let huge = || {
        let mut plan = plan(1);
        plan.message = "x".repeat(MAX_BYTES);
        plan
    };
    let decide = || Decision::done().plans([huge(), plan(2)]);
    let pages = pages(decide);
    assert_eq!(pages.iter().map(uids).collect::<Vec<_>>(), [[1], [2]]);
}

/// A guest that returns one plan twice gets it executed twice, and the decision
/// ends.
#[test]
fn equal_plans_have_different_cursors() {
    let decide = || Decision::done().plans((0..25_000).map(|number| plan(number % 10_000)));
    let pages = pages(decide);
    let all: Vec<usize> = pages.iter().flat_map(uids).collect();
    assert_eq!(all, uids(&decide()));
}
