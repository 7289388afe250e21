//! Each step of a plan needs the permission of the manifest's method that is named like it, and
//! no other one.

use std::panic::{AssertUnwindSafe, catch_unwind};

use serde::Deserialize;
use serde_json::json;

use super::*;
use crate::{Event, ObjectRef, value};

const PASSES: QueueName = QueueName::new("passes");

/// A step of a plan, its permission, and the method that declares it.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
enum Case {
    Delete,
    Evict,
    Patch,
    PatchStatus,
    Apply,
    ApplyTarget,
    Create,
    Event,
}

/// The steps, with the permissions as the host names them.
const CASES: [(Case, &[&str]); 8] = [
    (Case::Delete, &["delete pods"]),
    (Case::Evict, &["create pods/eviction"]),
    (Case::Patch, &["patch pods"]),
    (Case::PatchStatus, &["patch pods/status"]),
    (Case::Apply, &["patch configmaps", "create configmaps"]),
    (Case::ApplyTarget, &["patch pods"]),
    (Case::Create, &["create configmaps"]),
    (Case::Event, &["create events"]),
];

impl Case {
    fn step(self, plan: Plan) -> Plan {
        let labels = json!({"metadata": {"labels": {"a": "b"}}});
        let object = value!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"namespace": "default", "name": "made"},
        });
        match self {
            Self::Delete => plan.delete(DeleteOptions::new()),
            Self::Evict => plan.evict(DeleteOptions::new()),
            Self::Patch => plan.patch(Patch::merge(&labels)),
            Self::PatchStatus => {
                let status = json!({"status": {"reason": "Old"}});
                plan.patch(Patch::strategic_merge(&status).status())
            }
            Self::Apply => plan.apply(&object),
            Self::ApplyTarget => plan.apply(&value!({
                "apiVersion": "v1", "kind": "Pod",
                "metadata": {"namespace": "default", "name": "pod", "labels": {"a": "b"}},
            })),
            Self::Create => plan.create(&object),
            Self::Event => plan.event(Event::normal("Old", "it is old", "test")),
        }
    }

    /// The method that the documentation of the step names.
    fn declare(self, manifest: Manifest) -> Manifest {
        match self {
            Self::Delete => manifest.deletes(resources::PODS),
            Self::Evict => manifest.evicts(resources::PODS),
            Self::Patch | Self::ApplyTarget => manifest.patches(resources::PODS),
            Self::PatchStatus => manifest.patches_status(resources::PODS),
            Self::Apply => manifest.applies(resources::CONFIG_MAPS),
            Self::Create => manifest.creates(resources::CONFIG_MAPS),
            Self::Event => manifest.records_events(),
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Config {
    step: Case,
    declared: Vec<Case>,
}

/// Decides a plan of one step about the pod `default/pod`.
struct OneStep(Config);

impl Controller for OneStep {
    type Config = Config;

    fn new(config: Config) -> Result<Self, ConfigError> {
        Ok(Self(config))
    }

    fn manifest(&self) -> Manifest {
        let manifest = Manifest::new("one-step", "1", "Decides one step.")
            .watch(Watch::of(PODS, resources::PODS))
            .queue(QueueSpec::new(PASSES));
        let declared = self.0.declared.iter();
        declared.fold(manifest, |manifest, case| case.declare(manifest))
    }

    fn reconcile(&self, cx: &Context<'_>, _: &WorkItem) -> Result<Decision, Retry> {
        let pod = cx.watch(PODS).get("default/pod").map(|pod| pod.reference);
        let plan = |pod: ObjectRef| self.0.step.step(Plan::new(pod, Reason::new("test"), ""));
        Ok(Decision::done().plans(pod.map(plan)))
    }
}

/// How many plans are executed; the host's refusal if it refuses the plan.
fn executed(step: Case, declared: &[Case]) -> Result<usize, String> {
    let declared: Vec<String> = declared.iter().map(|it| format!("{it:?}")).collect();
    let config = json!({"step": format!("{step:?}"), "declared": declared});
    let mut harness = Harness::<OneStep>::new(&config).unwrap();
    harness.put(Pod::new("pod").into());
    let run = catch_unwind(AssertUnwindSafe(|| {
        harness.enqueue(PASSES, "pass");
        harness.run();
        let executions = harness.executions();
        let succeeded = executions.iter().filter(|it| it.result.is_ok());
        succeeded.count()
    }));
    run.map_err(|refusal| {
        let text = refusal.downcast::<String>();
        text.map(|text| *text).unwrap_or_default()
    })
}

#[test]
fn a_step_needs_the_permission_that_its_method_declares() {
    for (step, permissions) in CASES {
        assert_eq!(executed(step, &[step]), Ok(1), "{step:?}");
        let refusal = executed(step, &[]).unwrap_err();
        let [first, ..] = permissions else {
            panic!("{step:?} needs none");
        };
        let expected = format!("the guest's manifest does not declare the permission {first}");
        assert!(refusal.ends_with(&expected), "{step:?}: {refusal}");
    }
}

#[test]
fn a_step_needs_no_other_permission() {
    for (step, permissions) in CASES {
        // Whatever declares none of the permissions is not enough.
        let others = CASES.iter().filter(|(_, other)| other != &permissions);
        for (other, declared) in others {
            let is_enough = permissions.iter().all(|it| declared.contains(it));
            let result = executed(step, &[*other]);
            assert_eq!(result.is_ok(), is_enough, "{step:?} {other:?}: {result:?}");
        }
    }
}
