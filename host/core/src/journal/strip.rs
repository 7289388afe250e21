//! Keeps the data of Secrets out of answers: those of live reads, and those of guests.

use crate::live::ReadAnswer;
use crate::object::{ObjectRecord, ObjectRef};
use crate::plan::{Decision, PatchKind, Step};
use crate::secrets;

/// Nothing, as MessagePack: what stays of a JSON patch of a Secret.
const NIL: [u8; 1] = [0xc0];

/// The answer to a live read, without the data of Secrets.
pub(super) fn answer(mut answer: ReadAnswer) -> ReadAnswer {
    match &mut answer {
        ReadAnswer::Get(results) => results.iter_mut().flatten().for_each(object),
        ReadAnswer::List(result) => result.iter_mut().flatten().for_each(object),
    }
    answer
}

fn object(object: &mut ObjectRecord) {
    let is_secret = object.kind.group().is_empty() && *object.kind.kind == *"Secret";
    if is_secret && let Some(data) = secrets::without_data(&object.data) {
        object.data = data.into();
    }
}

/// A guest's decisions, without what their plans write into Secrets.
pub(super) fn decisions(mut decisions: Vec<Decision>) -> Vec<Decision> {
    let plans = decisions
        .iter_mut()
        .flat_map(|decision| &mut decision.plans);
    for plan in plans {
        for step in &mut plan.steps {
            let (target, body) = match step {
                Step::Patch(patch) if patch.kind == PatchKind::Json => {
                    if secrets::is_secret(&plan.target) {
                        patch.body = NIL.to_vec();
                    }
                    continue;
                }
                Step::Patch(patch) => (&plan.target, &mut patch.body),
                Step::Create(create) => (&create.object, &mut create.body),
                Step::Apply(apply) => (&apply.object, &mut apply.body),
                Step::Delete(_) | Step::Evict(_) | Step::Event(_) => continue,
            };
            strip_body(target, body);
        }
    }
    decisions
}

fn strip_body(target: &ObjectRef, body: &mut Vec<u8>) {
    if secrets::is_secret(target)
        && let Some(stripped) = secrets::without_data(body)
    {
        *body = stripped;
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::plan::{Apply, Create, Patch, Plan, Verdict};

    fn secret() -> ObjectRef {
        ObjectRef {
            api_version: "v1".into(),
            kind: "Secret".into(),
            ..ObjectRef::default()
        }
    }

    fn decision(target: ObjectRef, step: Step) -> Vec<Decision> {
        let plan = Plan {
            target,
            reason: String::new(),
            message: String::new(),
            steps: vec![step],
            measures: Vec::new(),
            when_cancelled: None,
        };
        vec![Decision {
            plans: vec![plan],
            commands: Vec::new(),
            verdict: Verdict::Done,
            parallel: 0,
        }]
    }

    fn body() -> Vec<u8> {
        rmp_serde::to_vec_named(&json!({"data": {"a": "hunter2"}})).unwrap()
    }

    fn has_data(decisions: &[Decision]) -> bool {
        let bytes: Vec<u8> = match &decisions[0].plans[0].steps[0] {
            Step::Patch(patch) => patch.body.clone(),
            Step::Create(create) => create.body.clone(),
            Step::Apply(apply) => apply.body.clone(),
            _ => Vec::new(),
        };
        bytes.windows(7).any(|part| part == b"hunter2")
    }

    #[test]
    fn nothing_stays_of_the_data_that_a_plan_writes_into_a_secret() {
        for kind in [PatchKind::Json, PatchKind::Merge, PatchKind::StrategicMerge] {
            let patch = |target| {
                let patch = Patch {
                    kind,
                    subresource: String::new(),
                    body: body(),
                };
                decisions(decision(target, Step::Patch(patch)))
            };
            assert!(!has_data(&patch(secret())), "{kind:?}");
            assert!(has_data(&patch(ObjectRef::default())), "{kind:?}");
        }
        let create = Create {
            object: secret(),
            body: body(),
        };
        let created = decisions(decision(ObjectRef::default(), Step::Create(create)));
        assert!(!has_data(&created));
        let apply = Apply {
            object: secret(),
            subresource: String::new(),
            force: false,
            body: body(),
        };
        let applied = decisions(decision(ObjectRef::default(), Step::Apply(apply)));
        assert!(!has_data(&applied));
    }
}
