//! What an operator grants.

use davit_core::manifest::{Permission, WatchSpec};
use davit_core::object::ApiResource;
use serde_json::{Value, json};

use super::*;

/// A guest that watches pods and deletes them.
pub(super) fn manifest() -> Manifest {
    let pods = WatchSpec {
        fields: vec!["spec.nodeName".parse().unwrap()],
        ..WatchSpec::new(
            "pods",
            davit_core::manifest::Source::One(ApiResource::new("", "v1", "pods")),
        )
    };
    Manifest {
        name: CONTROLLER.to_owned(),
        watches: vec![pods],
        permissions: vec![Permission::new("delete", "", "pods")],
        ..Manifest::default()
    }
}

fn grant(trace: &mut Trace, rules: &Value) {
    let rules = serde_json::from_value(rules.clone()).unwrap();
    trace.change(|spec| spec.permissions = Some(rules));
}

#[test]
fn a_revision_declares_no_more_than_is_granted() {
    let mut trace = Trace::new();
    passes(&trace.call(STABLE));
    let read = json!({"resource": "pods", "fields": ["spec"]});
    let write = json!({"verb": "delete", "resource": "pods"});
    grant(&mut trace, &json!({"reads": [read], "writes": [write]}));
    passes(&trace.call(STABLE));
    let others = [
        json!({"reads": [{"resource": "pods", "fields": ["status"]}], "writes": [write]}),
        json!({"reads": [{"resource": "nodes"}], "writes": [write]}),
        json!({"reads": [{"resource": "pods", "namespaces": ["tools"]}], "writes": [write]}),
    ];
    for rules in others {
        grant(&mut trace, &rules);
        reports(&trace.call(STABLE), "declares the watch pods");
    }
    grant(&mut trace, &json!({"reads": [read]}));
    reports(&trace.call(STABLE), "declares delete pods");
}

#[test]
fn a_write_stays_within_the_grant() {
    let mut trace = Trace::new();
    passes(&trace.execute(STABLE, delete("a")));
    let rule =
        |namespaces: Value| json!({"verb": "delete", "resource": "pods", "namespaces": namespaces});
    grant(&mut trace, &json!({"writes": [rule(json!(["default"]))]}));
    passes(&trace.execute(STABLE, delete("b")));
    reports(&trace.execute(STABLE, patch("c")), "executes patch");
    grant(&mut trace, &json!({"writes": [rule(json!(["tools"]))]}));
    reports(&trace.execute(STABLE, delete("d")), "executes delete");
}

/// A guest that does not ship with Davit may do nothing unless an operator says so.
#[test]
fn without_rules_only_what_ships_with_davit_runs() {
    let mut trace = Trace::new();
    trace.watchdog.controllers.clear();
    trace.spec.module = ModuleSource::File("/guests/podgc.wasm".into()).into();
    trace.declare();
    trace.record(stable());
    // In a configuration file.
    passes(&trace.call(STABLE));
    let grants = &mut trace
        .watchdog
        .controllers
        .get_mut(CONTROLLER)
        .unwrap()
        .grants;
    grants.specify(&trace.spec, false);
    passes(&trace.call(STABLE));
    // As a declaration does.
    trace.watchdog.is_unsettled = true;
    trace.watchdog.settle();
    reports(&trace.call(STABLE), "which is not granted");
}
