//! The cases of the language in the component of the guest `policy`: the same table as the unit
//! tests of the guest have. A case is the rule of a pod.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use davit_core::manifest::Source;
use davit_core::mapping::Mapping;
use davit_core::object::{ProjectedObject, Uid};
use davit_core::plan::{Decision, Plan, WorkItem};
use davit_core::store::{Store, ViewSpec};
use davit_core::time::Instant;
use davit_engine::{Call, DescribeError, Guest, Limits, Module};
use serde::Serialize;
use tokio::sync::OnceCell;

use crate::artifacts;
use crate::harness::{all_pods, call, engine, item, limits};

#[allow(dead_code, reason = "the unit tests of the guest use all of them")]
#[path = "../../../../guests/policy/src/cel/conformance/cases.rs"]
mod cases;

/// The most rules that a configuration may have.
const MAX_RULES: usize = 100;

#[derive(Serialize)]
struct Config {
    rules: Vec<Rule>,
}

#[derive(Serialize)]
struct Rule {
    name: String,
    #[serde(rename = "match")]
    matches: Match,
    when: String,
    #[serde(rename = "do")]
    actions: Actions,
}

#[derive(Serialize)]
struct Match {
    resource: &'static str,
}

#[derive(Serialize)]
struct Actions {
    label: BTreeMap<&'static str, &'static str>,
}

#[derive(Serialize)]
struct Pod {
    metadata: Metadata,
}

#[derive(Serialize)]
struct Metadata {
    namespace: &'static str,
    name: String,
    uid: String,
}

/// A rule whose name is that of its pod.
fn rule(name: &str, when: String) -> Rule {
    Rule {
        name: name.to_owned(),
        matches: Match { resource: "pods" },
        when,
        actions: Actions {
            label: BTreeMap::from([("case", "true")]),
        },
    }
}

async fn policy(rules: Vec<Rule>) -> Result<Guest, DescribeError> {
    static MODULE: OnceCell<Module> = OnceCell::const_new();
    let load = || async { engine().load(artifacts::guest("policy")).await.unwrap() };
    let module = MODULE.get_or_init(load).await;
    let config = rmp_serde::to_vec_named(&Config { rules }).unwrap();
    let limits = Limits {
        instances: 1,
        ..limits()
    };
    Guest::new(module, config, limits).await
}

fn pod(name: &str) -> ProjectedObject {
    let uid = format!("uid-{name}");
    let data = Pod {
        metadata: Metadata {
            namespace: "ns",
            name: name.to_owned(),
            uid: uid.clone(),
        },
    };
    ProjectedObject {
        namespace: "ns".into(),
        name: name.into(),
        uid: Uid::new(&uid),
        resource_version: "1".into(),
        data: rmp_serde::to_vec_named(&data).unwrap().into(),
    }
}

/// A call about pods, which are the only objects of the guest's only watch.
fn call_about(guest: &Guest, pods: &[&str]) -> Call {
    let [watch] = guest.manifest().watches.as_slice() else {
        panic!("{:?}", guest.manifest().watches);
    };
    let Source::One(resource) = &watch.source else {
        panic!("{watch:?}");
    };
    let mut store = Store::default();
    let mut changes = Vec::new();
    let view = store.add_view(ViewSpec::from(watch));
    let segment = all_pods();
    assert_eq!(*resource, segment.resource);
    let segment = store.attach(view, &segment, &mut changes).unwrap();
    let fields = store.segment_fields(segment).unwrap().clone();
    let objects = pods.iter().map(|name| pod(name));
    store
        .replace(segment, fields, objects, Instant::ZERO, &mut changes)
        .unwrap();
    let items = pods.iter().map(|name| WorkItem {
        queue: watch.name.clone(),
        ..item(&format!("ns/{name}"))
    });
    Call {
        items: items.collect(),
        snapshot: store.snapshot(),
        views: Arc::new(BTreeMap::from([(watch.name.clone(), view)])),
        mapping: Arc::new(Mapping::default()),
        unlisted: Arc::default(),
        ..call(&[])
    }
}

/// The rules that act, each on its pod, in one call of one instance.
async fn acting(conditions: &[(String, String)]) -> Vec<String> {
    let rules = conditions.iter().map(|(name, condition)| {
        rule(
            name,
            format!("object.metadata.name == '{name}' && ({condition})"),
        )
    });
    let guest = policy(rules.collect()).await.unwrap();
    let pods: Vec<&str> = conditions.iter().map(|(name, _)| name.as_str()).collect();
    let decisions = guest.reconcile(call_about(&guest, &pods)).await.unwrap();
    assert_eq!(decisions.len(), pods.len());
    let plans = decisions.into_iter().flat_map(|it: Decision| it.plans);
    let acted = plans.map(|Plan { reason, target, .. }| {
        assert_eq!(reason, target.name);
        reason
    });
    acted.collect()
}

/// `t0` acts if the first case is true, `f0` if it is false.
fn with_negations(cases: &[&str]) -> Vec<(String, String)> {
    let both = cases.iter().enumerate().flat_map(|(number, case)| {
        [
            (format!("t{number}"), (*case).to_owned()),
            (format!("f{number}"), format!("!({case})")),
        ]
    });
    both.collect()
}

#[tokio::test]
async fn the_component_does_what_the_language_claims() {
    let mut wrong = String::new();
    for chunk in cases::TRUE.chunks(MAX_RULES / 2) {
        let acted = acting(&with_negations(chunk)).await;
        for (number, case) in chunk.iter().enumerate() {
            let acts = |letter: char| acted.contains(&format!("{letter}{number}"));
            if (acts('t'), acts('f')) != (true, false) {
                let _ = writeln!(wrong, "{case}: {} {}", acts('t'), acts('f'));
            }
        }
    }
    assert_eq!(wrong, "");
}

/// A configuration with such a case is refused, or its rule acts neither on the case nor on its
/// negation.
#[tokio::test]
async fn what_fails_has_no_result_in_the_component() {
    let cases: Vec<&str> = [cases::WITHOUT_RESULT, cases::GAPS].concat();
    let mut accepted = Vec::new();
    for (_, condition) in with_negations(&cases) {
        match policy(vec![rule("c", condition.clone())]).await {
            Ok(_) => accepted.push(condition),
            Err(DescribeError::Config { field, .. }) => assert_eq!(field, "rules[0].when"),
            Err(error) => panic!("{condition}: {error}"),
        }
    }
    assert!(accepted.len() > 20, "{accepted:?}");
    for chunk in accepted.chunks(MAX_RULES) {
        let named = chunk.iter().enumerate();
        let named: Vec<_> = named
            .map(|(number, condition)| (format!("c{number}"), condition.clone()))
            .collect();
        let acted = acting(&named).await;
        let acted: Vec<_> = named.iter().filter(|(it, _)| acted.contains(it)).collect();
        assert!(acted.is_empty(), "{acted:?}");
    }
}

/// The stack of a component is smaller than that of a thread.
#[tokio::test]
async fn an_expression_of_many_parts_does_not_trap() {
    let mut accepted = 0;
    for condition in cases::of_many_parts() {
        match policy(vec![rule("p", condition.clone())]).await {
            Ok(guest) => {
                accepted += 1;
                let decisions = guest.reconcile(call_about(&guest, &["p"])).await;
                assert_eq!(decisions.unwrap().len(), 1, "{condition}");
            }
            Err(DescribeError::Config { field, .. }) => assert_eq!(field, "rules[0].when"),
            Err(error) => panic!("{condition}: {error}"),
        }
    }
    assert!(accepted >= 3, "{accepted}");
}
