//! Keeps the data of Secrets out of answers: those of live reads, and those of guests.

use crate::live::ReadAnswer;
use crate::object::ObjectRecord;
use crate::plan::Decision;
use crate::secrets;

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
            secrets::strip_step(&plan.target, step);
        }
    }
    decisions
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::object::ObjectRef;
    use crate::plan::{Apply, Create, Patch, PatchKind, Plan, Step, Verdict};

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
