//! The conditions of triggers, and the fields of live reads, which a guest exports if it has any.

use davit_core::manifest::{Manifest, TriggerCondition};
use davit_engine::Guest;

use crate::artifacts;
use crate::harness::{engine, limits};

/// `{}`
const CONFIG: &[u8] = b"\x80";

async fn manifest(wasm: Vec<u8>) -> Result<Manifest, String> {
    let module = engine().load(wasm).await.map_err(|error| chain(&error))?;
    let guest = Guest::new(&module, CONFIG, limits()).await;
    let guest = guest.map_err(|error| chain(&error))?;
    Ok((**guest.manifest()).clone())
}

fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    let causes: Vec<String> = causes.map(ToString::to_string).collect();
    causes.join(": ")
}

#[tokio::test]
async fn the_conditions_of_a_guest_are_those_of_its_triggers() {
    let manifest = manifest(artifacts::guest("taint-eviction")).await.unwrap();
    let triggers = manifest.triggers.iter();
    let conditions: Vec<_> = triggers
        .map(|trigger| (trigger.watch.as_str(), trigger.condition.clone()))
        .collect();
    let of_tainted_node = TriggerCondition {
        index: "node".into(),
        related: "nodes".into(),
        related_index: "effect".into(),
        related_value: "NoExecute".into(),
        note_prefix: Some("pod/".into()),
    };
    assert_eq!(
        conditions,
        [("nodes", None), ("pods", Some(of_tainted_node))]
    );
}

#[tokio::test]
async fn a_guest_names_the_fields_of_its_live_reads() {
    for (guest, resource, fields) in [
        ("podgc", "nodes", &["spec.taints", "status.conditions"][..]),
        ("taint-eviction", "nodes", &["spec.taints"]),
    ] {
        let manifest = manifest(artifacts::guest(guest)).await.unwrap();
        let [live] = manifest.live_fields.as_slice() else {
            panic!("{:?}", manifest.live_fields);
        };
        assert_eq!((&*live.group, &*live.resource), ("", resource), "{guest}");
        let named: Vec<String> = live.fields.iter().map(ToString::to_string).collect();
        let lacks = |field: &&&str| !named.iter().any(|it| it.starts_with(**field));
        assert_eq!(fields.iter().find(lacks), None, "{named:?}");
    }
}

#[tokio::test]
async fn another_function_in_the_interface_is_refused_by_name() {
    for (interface, function) in [
        ("conditions", "trigger-conditions"),
        ("reads", "live-reads"),
    ] {
        let error = manifest(renamed(function.as_bytes())).await.unwrap_err();
        let expected = format!("davit:controller/{interface}@0.1.0 has no function {function}");
        assert!(error.contains(&expected), "{error}");
    }
}

/// A guest whose function has another name.
fn renamed(name: &[u8]) -> Vec<u8> {
    let mut wasm = artifacts::guest("taint-eviction");
    let places = wasm.windows(name.len()).enumerate();
    let places: Vec<usize> = places
        .filter(|(_, window)| *window == name)
        .map(|(place, _)| place)
        .collect();
    assert!(!places.is_empty());
    for place in places {
        wasm[place + name.len() - 1] = b'z';
    }
    wasm
}
