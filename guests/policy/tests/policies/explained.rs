//! What the rules are explained to do is what the guest decides.

use std::collections::BTreeSet;

use davit_guest::testing::Harness;
use davit_guest::{Command, Decision, Plan, QueueName};
use policy::{Explanation, Policy};

/// The plans of an explanation, in the order of their texts.
pub(crate) fn plans_of(explanation: &Explanation) -> Vec<Plan> {
    let findings = explanation.objects.iter().flat_map(|it| &it.findings);
    let plans = findings.filter_map(|finding| finding.verdict.plan().cloned());
    sorted(plans.collect())
}

pub(crate) fn explain(harness: &Harness<Policy>) -> Explanation {
    harness.observe(Policy::explain)
}

/// Asks the guest about every object, and about the groups and evictions that it names, and
/// compares its plans with those of the explanation.
pub(crate) fn agree(harness: &Harness<Policy>) {
    let explanation = explain(harness);
    let decided = sorted(decided(harness, &explanation));
    assert_eq!(plans_of(&explanation), decided);
}

fn decided(harness: &Harness<Policy>, explanation: &Explanation) -> Vec<Plan> {
    let mut plans = Vec::new();
    let mut items = BTreeSet::new();
    for it in &explanation.objects {
        let decision = harness.decide(QueueName::named(&it.watch), &it.object.key());
        items.extend(items_of(&decision));
        plans.extend(decision.plans);
    }
    for (queue, key) in items {
        plans.extend(harness.decide(QueueName::named(&queue), &key).plans);
    }
    plans
}

/// The groups and evictions that a decision enqueues.
fn items_of(decision: &Decision) -> impl Iterator<Item = (String, String)> {
    decision
        .commands
        .iter()
        .filter_map(|command| match command {
            Command::Enqueue(it) => Some((it.queue.clone(), it.key.clone())),
            _ => None,
        })
}

fn sorted(mut plans: Vec<Plan>) -> Vec<Plan> {
    plans.sort_by_key(|plan| format!("{plan:?}"));
    plans
}
