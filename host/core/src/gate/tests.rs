use super::*;
use crate::budget::Guardrail;
use crate::mapping::ServedResource;
use crate::object::ApiResource;
use crate::plan::{Apply, Create, DeleteOptions, Event, Patch, PatchKind};
use crate::rollout::Role;
use crate::time::Instant;
use serde_json::json;

fn manifest(permissions: &[(&str, &str, &str)]) -> Manifest {
    Manifest {
        name: "test".into(),
        version: "1".into(),
        permissions: permissions
            .iter()
            .map(|&(verb, group, resource)| Permission::new(verb, group, resource))
            .collect(),
        ..Manifest::default()
    }
}

fn mapping() -> Mapping {
    let served = |group, plural, kind: &str| ServedResource {
        resource: ApiResource::new(group, "v1", plural),
        kind: kind.into(),
        namespaced: true,
        verbs: vec![],
        preferred: true,
    };
    Mapping::new([
        served("", "pods", "Pod"),
        served("", "namespaces", "Namespace"),
        served("", "events", "Event"),
        served("events.k8s.io", "events", "Event"),
        served("batch", "jobs", "Job"),
    ])
}

fn target(api_version: &str, kind: &str, uid: &str) -> ObjectRef {
    ObjectRef {
        api_version: api_version.into(),
        kind: kind.into(),
        namespace: "ns".into(),
        name: "a".into(),
        uid: uid.into(),
    }
}

fn plan(target: ObjectRef, steps: Vec<Step>) -> Plan {
    Plan {
        target,
        reason: "test".into(),
        message: String::new(),
        steps,
        measures: vec![],
        when_cancelled: None,
    }
}

fn delete_pod() -> Plan {
    plan(
        target("v1", "Pod", "u-1"),
        vec![Step::Delete(DeleteOptions::default())],
    )
}

fn patch(subresource: &str) -> Step {
    Step::Patch(Patch {
        kind: PatchKind::Merge,
        subresource: subresource.into(),
        body: vec![0x80],
    })
}

/// Rules on a plan of a guest with these permissions; everything else admits it.
fn ruling(plan: &Plan, permissions: &[(&str, &str, &str)]) -> Ruling {
    with(permissions, |circumstances| judge(plan, circumstances))
}

fn with<T>(permissions: &[(&str, &str, &str)], f: impl FnOnce(&Circumstances<'_>) -> T) -> T {
    let (manifest, mapping) = (manifest(permissions), mapping());
    f(&Circumstances {
        leading: true,
        mode: Mode::Enforce,
        manifest: &manifest,
        grant: &Grant::Declared,
        mapping: &mapping,
        ownership: Ownership::Own,
        knows_target: true,
        other_with_uid: None,
        expectation: None,
        tripped: None,
    })
}

const DELETE_PODS: &[(&str, &str, &str)] = &[("delete", "", "pods")];

#[test]
fn a_declared_write_is_admitted() {
    assert_eq!(ruling(&delete_pod(), DELETE_PODS), Ruling::Admit);
    assert_eq!(
        ruling(&delete_pod(), &[("delete", "*", "*")]),
        Ruling::Admit
    );
}

#[test]
fn a_target_without_uid_is_refused() {
    let mut plan = delete_pod();
    plan.target.uid.clear();
    assert_eq!(ruling(&plan, DELETE_PODS), Ruling::Refuse(Refusal::NoUid));
}

#[test]
fn a_plan_without_steps_is_refused() {
    let plan = plan(target("v1", "Pod", "u-1"), vec![]);
    assert_eq!(ruling(&plan, DELETE_PODS), Ruling::Refuse(Refusal::NoSteps));
}

#[test]
fn each_step_needs_its_own_permission() {
    let mut both = delete_pod();
    both.steps.insert(0, patch("status"));
    assert_eq!(
        ruling(&both, DELETE_PODS),
        Ruling::Refuse(Refusal::NotDeclared {
            permission: Permission::new("patch", "", "pods/status")
        })
    );
    // A permission on a resource does not include its subresources, nor the reverse.
    let all = [("delete", "", "pods"), ("patch", "", "pods")];
    assert!(matches!(ruling(&both, &all), Ruling::Refuse(_)));
    let all = [("delete", "", "pods"), ("patch", "", "pods/status")];
    assert_eq!(ruling(&both, &all), Ruling::Admit);
}

#[test]
fn an_eviction_is_a_create_of_a_subresource_of_pods() {
    let evict = Step::Evict(DeleteOptions::default());
    let pod = plan(target("v1", "Pod", "u-1"), vec![evict.clone()]);
    assert!(matches!(ruling(&pod, DELETE_PODS), Ruling::Refuse(_)));
    assert_eq!(
        ruling(&pod, &[("create", "", "pods/eviction")]),
        Ruling::Admit
    );
    let job = plan(target("batch/v1", "Job", "u-1"), vec![evict]);
    assert_eq!(
        ruling(&job, &[("create", "*", "*")]),
        Ruling::Refuse(Refusal::NotAPod)
    );
}

#[test]
fn a_create_is_ruled_on_by_the_created_kind() {
    let plan = plan(
        target("v1", "Pod", "u-1"),
        vec![Step::Create(Create {
            object: target("batch/v1", "Job", ""),
            body: vec![],
        })],
    );
    assert_eq!(
        ruling(&plan, &[("create", "", "pods")]),
        Ruling::Refuse(Refusal::NotDeclared {
            permission: Permission::new("create", "batch", "jobs")
        })
    );
    assert_eq!(ruling(&plan, &[("create", "batch", "jobs")]), Ruling::Admit);
}

#[test]
fn a_kind_that_is_not_served_is_waited_for() {
    let unknown = plan(target("example.com/v1", "Thing", "u-1"), vec![patch("")]);
    let waits = Ruling::Wait(WaitReason::NotServed);
    assert_eq!(ruling(&unknown, &[("patch", "*", "*")]), waits);
    // A plan that can never be executed is refused in any case.
    let mut evicts = unknown.clone();
    evicts.steps.push(Step::Evict(DeleteOptions::default()));
    let refused = Ruling::Refuse(Refusal::NotAPod);
    assert_eq!(ruling(&evicts, &[("patch", "*", "*")]), refused);
}

/// Rules on a plan of a guest that may write only this.
fn ruling_of_rule(plan: &Plan, rule: &serde_json::Value) -> Ruling {
    let rules = serde_json::json!({"writes": [rule]});
    let grant = Grant::Rules {
        rules: std::sync::Arc::new(serde_json::from_value(rules).unwrap()),
        home: "davit-system".into(),
    };
    with(&[("delete", "*", "*"), ("create", "*", "*")], |it| {
        judge(
            plan,
            &Circumstances {
                grant: &grant,
                ..*it
            },
        )
    })
}

#[test]
fn the_operator_can_grant_less_than_the_guest_declares() {
    let other = json!({"verb": "patch", "resource": "pods/status"});
    assert_eq!(
        ruling_of_rule(&delete_pod(), &other),
        Ruling::Refuse(Refusal::NotGranted {
            permission: Permission::new("delete", "", "pods"),
            namespace: "ns".into(),
        })
    );
    let same = json!({"verb": "delete", "resource": "pods"});
    assert_eq!(ruling_of_rule(&delete_pod(), &same), Ruling::Admit);
    let here = json!({"verb": "delete", "resource": "pods", "namespaces": ["ns"]});
    assert_eq!(ruling_of_rule(&delete_pod(), &here), Ruling::Admit);
    let there = json!({"verb": "delete", "resource": "pods", "namespaces": ["tools"]});
    let refused = ruling_of_rule(&delete_pod(), &there);
    assert!(matches!(
        refused,
        Ruling::Refuse(Refusal::NotGranted { .. })
    ));
}

/// The API server asks for both permissions too.
#[test]
fn an_apply_that_may_create_needs_two_permissions() {
    let apply = |uid: &str| {
        let apply = Step::Apply(Apply {
            object: target("batch/v1", "Job", uid),
            subresource: String::new(),
            force: false,
            body: vec![0x80],
        });
        plan(target("v1", "Pod", "u-1"), vec![apply])
    };
    let patch = ("patch", "batch", "jobs");
    let create = ("create", "batch", "jobs");
    let missing = |verb| {
        Ruling::Refuse(Refusal::NotDeclared {
            permission: Permission::new(verb, "batch", "jobs"),
        })
    };
    assert_eq!(ruling(&apply(""), &[patch, create]), Ruling::Admit);
    assert_eq!(ruling(&apply(""), &[patch]), missing("create"));
    assert_eq!(ruling(&apply(""), &[create]), missing("patch"));
    assert_eq!(ruling(&apply("u-2"), &[patch]), Ruling::Admit);
    let unknown = |uid: &str| {
        with(&[patch, create], |base| {
            let unknown = Circumstances {
                knows_target: false,
                ..*base
            };
            judge(&apply(uid), &unknown)
        })
    };
    assert_eq!(unknown("u-2"), Ruling::Refuse(Refusal::UnknownTarget));
    assert_eq!(unknown(""), Ruling::Refuse(Refusal::UnknownTarget));
}

/// Not that of the plan's target.
#[test]
fn a_created_object_needs_a_grant_for_its_own_namespace() {
    let create = |namespace: &str| {
        let object = ObjectRef {
            namespace: namespace.into(),
            ..target("batch/v1", "Job", "")
        };
        let create = Create {
            object,
            body: vec![0x80],
        };
        plan(target("v1", "Pod", "u-1"), vec![Step::Create(create)])
    };
    let rule =
        json!({"verb": "create", "group": "batch", "resource": "jobs", "namespaces": ["ns"]});
    assert_eq!(ruling_of_rule(&create("ns"), &rule), Ruling::Admit);
    let refused = ruling_of_rule(&create("kube-system"), &rule);
    assert!(
        matches!(refused, Ruling::Refuse(Refusal::NotGranted { namespace, .. }) if namespace == "kube-system")
    );
}

fn event() -> Step {
    Step::Event(Event {
        event_type: "Normal".into(),
        reason: "Deleted".into(),
        message: String::new(),
        component: "test".into(),
    })
}

#[test]
fn events_need_a_declared_and_granted_permission() {
    let about = |namespace: &str| {
        let object = ObjectRef {
            namespace: namespace.into(),
            ..target("v1", "Pod", "u-1")
        };
        plan(object, vec![event()])
    };
    let events = Permission::new("create", "", "events");
    assert_eq!(
        ruling(&about("ns"), DELETE_PODS),
        Ruling::Refuse(Refusal::NotDeclared {
            permission: events.clone()
        })
    );
    assert_eq!(
        ruling(&about("ns"), &[("create", "", "events")]),
        Ruling::Admit
    );
    // An event about an object without a namespace is in `default`.
    let rule = json!({"verb": "create", "resource": "events", "namespaces": ["default"]});
    assert_eq!(ruling_of_rule(&about(""), &rule), Ruling::Admit);
    assert_eq!(
        ruling_of_rule(&about("ns"), &rule),
        Ruling::Refuse(Refusal::NotGranted {
            permission: events,
            namespace: "ns".into(),
        })
    );
}

/// With the Namespace, everything in it is deleted.
#[test]
fn davits_namespace_is_deleted_only_by_a_rule_that_names_it() {
    let of = |name: &str, step: Step| {
        let namespace = ObjectRef {
            namespace: String::new(),
            name: name.into(),
            ..target("v1", "Namespace", "u-1")
        };
        plan(namespace, vec![step])
    };
    let delete = |name: &str| of(name, Step::Delete(DeleteOptions::default()));
    let all = json!({"verb": "*", "group": "*", "resource": "*"});
    assert_eq!(ruling_of_rule(&delete("default"), &all), Ruling::Admit);
    let refused = Ruling::Refuse(Refusal::NotGranted {
        permission: Permission::new("delete", "", "namespaces"),
        namespace: "davit-system".into(),
    });
    assert_eq!(ruling_of_rule(&delete("davit-system"), &all), refused);
    let named = json!({"verb": "delete", "resource": "namespaces"});
    assert_eq!(ruling_of_rule(&delete("davit-system"), &named), refused);
    let named = json!({
        "verb": "delete", "resource": "namespaces", "namespaces": ["davit-system"],
    });
    let deleted = ruling_of_rule(&delete("davit-system"), &named);
    assert_eq!(deleted, Ruling::Admit);
    // What ships with Davit may delete it, as Kubernetes' own controllers may.
    let shipped = ruling(&delete("davit-system"), &[("delete", "*", "*")]);
    assert_eq!(shipped, Ruling::Admit);
}

/// An event of an event step is merged, cut and counted, and says who recorded it.
#[test]
fn an_event_is_not_created_by_a_creation() {
    for api_version in ["v1", "events.k8s.io/v1"] {
        let create = Step::Create(Create {
            object: target(api_version, "Event", ""),
            body: vec![0x80],
        });
        let create = plan(target("v1", "Pod", "u-1"), vec![create]);
        let refused = Ruling::Refuse(Refusal::CreatesEvent);
        assert_eq!(ruling(&create, &[("create", "*", "*")]), refused);
    }
}

/// The API server does not compare the uid of the target.
#[test]
fn a_creation_needs_a_target_of_the_snapshot() {
    let create = Step::Create(Create {
        object: target("batch/v1", "Job", ""),
        body: vec![0x80],
    });
    let create = plan(target("v1", "Pod", "u-1"), vec![create]);
    with(&[("create", "*", "*"), ("delete", "*", "*")], |base| {
        let unknown = Circumstances {
            knows_target: false,
            ..*base
        };
        assert_eq!(judge(&create, base), Ruling::Admit);
        assert_eq!(
            judge(&create, &unknown),
            Ruling::Refuse(Refusal::UnknownTarget)
        );
        assert_eq!(judge(&delete_pod(), &unknown), Ruling::Admit);
    });
}

#[test]
fn temporary_reasons_are_checked_in_order() {
    let trip = Trip {
        guardrail: Guardrail::Deletes,
        limit: 1,
        role: Role::Stable,
        since: Some(Instant::ZERO),
        until: None,
    };
    with(DELETE_PODS, |base| {
        let plan = delete_pod();
        let mut now = Circumstances {
            leading: false,
            mode: Mode::Disabled,
            ownership: Ownership::OfOther,
            expectation: Some(ExpectationState::InFlight),
            tripped: Some(trip),
            ..*base
        };
        assert_eq!(judge(&plan, &now), Ruling::Wait(WaitReason::NotLeading));
        now.leading = true;
        assert_eq!(judge(&plan, &now), Ruling::Wait(WaitReason::Disabled));
        now.mode = Mode::DryRun;
        assert_eq!(judge(&plan, &now), Ruling::Wait(WaitReason::NotOwned));
        now.ownership = Ownership::WritesOutside;
        let refused = Ruling::Refuse(Refusal::WritesOutside);
        assert_eq!(judge(&plan, &now), refused);
        now.ownership = Ownership::Own;
        assert_eq!(judge(&plan, &now), Ruling::DryRun);
        now.mode = Mode::Enforce;
        assert_eq!(
            judge(&plan, &now),
            Ruling::Wait(WaitReason::Expectation(ExpectationState::InFlight))
        );
        now.expectation = None;
        assert_eq!(judge(&plan, &now), Ruling::Wait(WaitReason::Tripped(trip)));
        now.tripped = None;
        assert_eq!(judge(&plan, &now), Ruling::Admit);
    });
}

#[test]
fn a_dry_run_reports_refusals() {
    let mut plan = delete_pod();
    plan.target.uid.clear();
    with(DELETE_PODS, |base| {
        let dry = Circumstances {
            mode: Mode::DryRun,
            ..*base
        };
        assert_eq!(judge(&plan, &dry), Ruling::Refuse(Refusal::NoUid));
    });
}
