//! What an operator grants, and what runs with it.

use serde_json::{Value, json};

use super::bench::Bench;
use super::revisions::{identity, name_of, spec};
use crate::api::{ControllerSpec, ModuleSource};
use crate::grant::Permissions;
use crate::record::ControllerRecord;

const SHADOW: &[&str] = &["shadow 10s", "weight 10 for 10s"];

/// A revision that watches the data of these resources, and what it is granted.
fn guest(watches: &[&str], granted: &[&str]) -> ControllerSpec {
    let mut spec = spec(1, SHADOW);
    spec.config["watches"] = json!(watches);
    spec.permissions = Some(reads(granted));
    spec
}

fn reads(resources: &[&str]) -> Permissions {
    let rules = resources
        .iter()
        .map(|one| json!({"resource": one, "fields": ["data"]}));
    let rules: Vec<Value> = rules.collect();
    serde_json::from_value(json!({"reads": rules})).unwrap()
}

fn granted(bench: &Bench) -> (String, String) {
    let (status, reason, _) = bench.condition("Granted");
    (status, reason)
}

fn is(status: &str, reason: &str) -> (String, String) {
    (status.to_owned(), reason.to_owned())
}

#[test]
fn a_revision_beyond_its_grant_does_not_start() {
    let first = guest(&["pods"], &[]);
    let mut bench = Bench::start(first.clone(), ControllerRecord::default());
    bench.pass(30);
    assert_eq!(bench.runs(), None);
    assert_eq!(bench.status().stable, None);
    assert_eq!(granted(&bench), is("False", "NotGranted"));
    assert_eq!(bench.condition("Configured").0, "True");
    let (.., message) = bench.condition("Granted");
    let expected = format!(
        "{} declares more than spec.permissions grants (davit grant podgc --apply adds the rules): read \
         pods (data)",
        name_of(&first)
    );
    assert_eq!(message, expected);
    let (status, reason, message) = bench.condition("Ready");
    assert_eq!((&*status, &*reason), ("False", "NotGranted"));
    assert_eq!(message, format!("nothing runs: {expected}"));
    assert_eq!(bench.status().summary, "NotGranted: run davit grant");
    assert_eq!(bench.status().missing_permissions, reads(&["pods"]));
    assert_eq!(bench.reasons, ["NotGranted"], "reported once");

    bench.change(guest(&["pods"], &["pods"]));
    bench.settle();
    assert_eq!(bench.runs(), Some((name_of(&first), None)));
    assert_eq!(granted(&bench), is("True", "Granted"));
    assert!(bench.status().missing_permissions.is_empty());
    assert_eq!(bench.reasons, ["NotGranted", "Granted"]);
}

/// A shadow reads too: what it watches, its guest can log.
#[test]
fn a_candidate_beyond_the_grant_is_not_even_a_shadow() {
    let first = guest(&["pods"], &["pods"]);
    let mut bench = Bench::running(first.clone());
    let second = guest(&["pods", "secrets"], &["pods"]);
    bench.change(second.clone());
    bench.pass(60);
    assert_eq!(
        bench.runs(),
        Some((name_of(&first), None)),
        "what ran continues"
    );
    assert_eq!(bench.status().candidate, None);
    let (.., message) = bench.condition("Ready");
    let continues = format!("the revision {} continues: ", name_of(&first));
    assert!(message.starts_with(&continues), "{message}");
    assert_eq!(bench.status().missing_permissions, reads(&["secrets"]));

    let granted = guest(&["pods", "secrets"], &["pods", "secrets"]);
    bench.change(granted);
    bench.settle();
    let shadow = (name_of(&second), 0);
    assert_eq!(bench.runs(), Some((name_of(&first), Some(shadow))));
}

#[test]
fn a_swap_waits_for_the_grant() {
    let first = guest(&["pods"], &["pods"]);
    let mut bench = Bench::running(first.clone());
    let mut second = guest(&["secrets"], &["pods"]);
    second.rollout.steps.clear();
    bench.change(second.clone());
    bench.pass(60);
    assert_eq!(bench.stable(), name_of(&first));
    second.permissions = Some(reads(&["pods", "secrets"]));
    bench.change(second.clone());
    bench.settle();
    assert_eq!(bench.runs(), Some((name_of(&second), None)));
}

/// Before anything is recorded: the API server may be away.
#[test]
fn a_grant_is_withdrawn_at_once() {
    let first = guest(&["pods"], &["pods", "secrets"]);
    let mut bench = Bench::running(first.clone());
    let second = guest(&["pods", "secrets"], &["pods", "secrets"]);
    bench.change(second.clone());
    bench.pass(12);
    let candidate = (name_of(&second), 10);
    assert_eq!(
        bench.runs(),
        Some((name_of(&first), Some(candidate.clone())))
    );

    bench.is_recording = false;
    bench.change(guest(&["pods", "secrets"], &["pods"]));
    bench.look();
    assert_eq!(bench.runs(), Some((name_of(&first), None)));
    bench.change(guest(&["pods", "secrets"], &[]));
    bench.look();
    assert_eq!(bench.runs(), None);
    bench.is_recording = true;
    bench.pass(60);
    assert_eq!(bench.runs(), None);
    assert_eq!(bench.candidate().step, 2, "its step waits");
    assert_eq!(
        bench.candidate().waits_for,
        "spec.permissions does not grant what it declares"
    );
    assert_eq!(
        bench.status().missing_permissions,
        reads(&["pods", "secrets"])
    );

    bench.change(guest(&["pods", "secrets"], &["pods", "secrets"]));
    bench.settle();
    assert_eq!(bench.runs(), Some((name_of(&first), Some(candidate))));
}

/// A revision is replaced, the host cannot record that, and the grant of the one that still
/// runs is withdrawn.
#[test]
fn a_grant_is_withdrawn_from_a_replaced_revision() {
    let mut bench = Bench::running(guest(&["secrets"], &["secrets", "pods"]));
    bench.is_recording = false;
    let mut second = guest(&["pods"], &["secrets", "pods"]);
    second.rollout.steps.clear();
    bench.change(second.clone());
    bench.settle();
    let mut third = guest(&[], &["secrets", "pods"]);
    third.rollout.steps.clear();
    bench.change(third.clone());
    bench.settle();
    assert!(bench.runs().is_some());
    third.permissions = Some(reads(&["pods"]));
    bench.change(third.clone());
    bench.look();
    assert_eq!(bench.runs(), None);
    bench.is_recording = true;
    bench.pass(30);
    assert_eq!(bench.runs(), Some((name_of(&third), None)));
}

/// A spec of the same without steps.
fn at_once(spec: ControllerSpec) -> ControllerSpec {
    let mut spec = spec;
    spec.rollout.steps.clear();
    spec
}

/// The next revisions wait for their watches: the first one runs until then, and longer
/// than the decision about it lasts.
#[test]
fn a_grant_is_withdrawn_from_a_replaced_revision_that_still_runs() {
    let all = ["secrets", "pods", "nodes"];
    let first = guest(&["secrets"], &all);
    let mut bench = Bench::running(first.clone());
    bench.former_stable = Some(identity(&first));
    for watched in ["nodes", "pods"] {
        bench.change(at_once(guest(&[watched], &all)));
        bench.pass(30);
    }
    let mut last = at_once(guest(&["pods"], &["secrets", "pods"]));
    bench.change(last.clone());
    bench.pass(30);
    assert_eq!(bench.stops, 0, "the second one has never run");
    last.permissions = Some(reads(&["pods"]));
    bench.is_recording = false;
    bench.change(last.clone());
    bench.look();
    assert_eq!((bench.stops, &bench.former_stable), (1, &None));
    bench.is_recording = true;
    bench.pass(30);
    assert_eq!(bench.runs(), Some((name_of(&last), None)));
    assert_eq!(bench.stops, 1);
}

/// What ships with Davit may do what it declares. What it replaces may not.
#[test]
fn a_replaced_revision_does_not_inherit_the_trust_in_what_ships_with_davit() {
    let first = guest(&["pods"], &["pods"]);
    let mut bench = Bench::running(first.clone());
    bench.former_stable = Some(identity(&first));
    let mut shipped = at_once(first);
    shipped.module = ModuleSource::Builtin("podgc".into()).into();
    bench.change(shipped.clone());
    bench.pass(30);
    assert_eq!(bench.stops, 0);
    shipped.permissions = None;
    bench.change(shipped.clone());
    bench.look();
    assert_eq!((bench.stops, &bench.former_stable), (1, &None));
    bench.settle();
    assert_eq!(bench.runs(), Some((name_of(&shipped), None)));
}

#[test]
fn a_grant_is_withdrawn_from_a_replaced_candidate_that_still_runs() {
    let all = ["secrets", "pods"];
    let first = guest(&["pods"], &all);
    let mut bench = Bench::running(first.clone());
    let second = guest(&["secrets"], &all);
    bench.change(second.clone());
    bench.pass(1);
    bench.former_candidate = Some(identity(&second));
    let third = guest(&[], &all);
    bench.change(third.clone());
    bench.pass(30);
    let shadow = Some((name_of(&first), Some((name_of(&third), 0))));
    assert_eq!(bench.runs(), shadow);
    assert!(bench.former_candidate.is_some());
    bench.change(guest(&[], &["pods"]));
    bench.look();
    assert_eq!((bench.stops, &bench.former_candidate), (0, &None));
    bench.settle();
    assert_eq!(bench.runs(), shadow);
}

/// The spec describes another revision that may not run: the candidate that it replaces
/// ends anyway.
#[test]
fn a_candidate_ends_when_the_spec_describes_a_revision_beyond_the_grant() {
    let first = guest(&["pods"], &["pods"]);
    let mut bench = Bench::running(first.clone());
    bench.change(guest(&[], &["pods"]));
    bench.pass(1);
    assert!(bench.status().candidate.is_some());
    bench.change(guest(&["secrets"], &["pods"]));
    bench.settle();
    assert_eq!(bench.runs(), Some((name_of(&first), None)));
    assert_eq!(bench.status().candidate, None);
    assert_eq!(
        bench.reasons,
        ["RolloutStarted", "RolloutEnded", "NotGranted"]
    );
}

#[test]
fn without_permissions_only_what_ships_with_davit_runs() {
    let mut spec = guest(&["pods"], &[]);
    spec.permissions = None;
    let mut bench = Bench::start(spec.clone(), ControllerRecord::default());
    bench.settle();
    assert_eq!(bench.runs(), None, "it is from a file of the host");

    spec.module = ModuleSource::Builtin("podgc".into()).into();
    let mut bench = Bench::start(spec.clone(), ControllerRecord::default());
    bench.settle();
    assert_eq!(bench.runs(), Some((name_of(&spec), None)));
    assert_eq!(granted(&bench), is("True", "ShipsWithDavit"));

    // Whatever ships: the data of Secrets is granted by name.
    spec.config["watches"] = json!(["secrets"]);
    let mut bench = Bench::start(spec, ControllerRecord::default());
    bench.settle();
    assert_eq!(bench.runs(), None);
}

/// Whoever writes the configuration file also starts the host.
#[test]
fn a_configuration_file_grants_what_its_guests_declare() {
    let mut spec = guest(&["pods"], &[]);
    spec.permissions = None;
    let mut bench = Bench::start(spec.clone(), ControllerRecord::default());
    bench.declaration.object = None;
    bench.declare();
    bench.settle();
    assert_eq!(bench.runs(), Some((name_of(&spec), None)));
    assert_eq!(granted(&bench), is("True", "ConfigurationFile"));
    bench.change(guest(&["pods"], &[]));
    bench.settle();
    assert_eq!(bench.runs(), None);
}

/// The next host does not run what the former one did not.
#[test]
fn a_grant_is_checked_again_after_a_start() {
    let first = guest(&["pods"], &["pods"]);
    let mut bench = Bench::running(first.clone());
    bench.declaration.spec = Ok(guest(&["pods"], &[]));
    let mut next = bench.crash();
    next.settle();
    next.pass(30);
    assert_eq!(next.runs(), None);
    assert_eq!(next.status().lost, None);
    assert_eq!(next.stable(), name_of(&first));
    assert_eq!(granted(&next), is("False", "NotGranted"));
}

/// The first rules replace the trust in what ships with Davit: what runs without rules
/// needs them too.
#[test]
fn the_rules_to_add_cover_what_ran_without_rules() {
    let mut first = guest(&["pods"], &[]);
    first.module = ModuleSource::Builtin("podgc".into()).into();
    first.permissions = None;
    let mut bench = Bench::running(first.clone());
    let mut second = guest(&["nodes"], &[]);
    second.permissions = None;
    bench.change(second.clone());
    bench.pass(5);
    assert_eq!(bench.runs(), Some((name_of(&first), None)));
    let to_add = bench.status().missing_permissions;
    assert_eq!(to_add, reads(&["nodes", "pods"]));
    second.permissions = Some(to_add);
    bench.change(second.clone());
    bench.settle();
    let shadow = (name_of(&second), 0);
    assert_eq!(bench.runs(), Some((name_of(&first), Some(shadow))));
}
