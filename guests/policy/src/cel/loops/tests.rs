use kube_cel::cel::Value;
use serde_json::json;

use super::super::Failure;
use super::super::tests::{compile, evaluate};

/// What the condition of a loop has for an element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Holds {
    Yes,
    No,
    /// It fails.
    Fails,
}

const ALL: [Holds; 3] = [Holds::Yes, Holds::No, Holds::Fails];

/// All lists of at most four elements.
fn lists() -> Vec<Vec<Holds>> {
    let mut lists = vec![Vec::new()];
    let mut longest = lists.clone();
    for _ in 0..4 {
        longest = longest
            .iter()
            .flat_map(|list| ALL.map(|it| [list.clone(), vec![it]].concat()))
            .collect();
        lists.extend(longest.clone());
    }
    lists
}

/// The list as an expression; `x > 0` is what holds of its elements.
fn written(list: &[Holds]) -> String {
    let elements = list.iter().map(|it| match it {
        Holds::Yes => "1",
        Holds::No => "0",
        Holds::Fails => "'a'",
    });
    let elements: Vec<&str> = elements.collect();
    // Its elements have no type in common, so that nothing is refused before it runs.
    let all = [vec!["1", "'a'"], elements].concat().join(", ");
    format!("[{all}].slice(2, {})", list.len() + 2)
}

#[test]
fn a_loop_is_decided_as_its_conditions_joined() {
    for list in lists() {
        let has = |holds| list.contains(&holds);
        let ones = list.iter().filter(|it| **it == Holds::Yes).count();
        let exists = match (has(Holds::Yes), has(Holds::Fails)) {
            (true, _) => Some(true),
            (false, true) => None,
            (false, false) => Some(false),
        };
        let all = match (has(Holds::No), has(Holds::Fails)) {
            (true, _) => Some(false),
            (false, true) => None,
            (false, false) => Some(true),
        };
        let is_sound = !has(Holds::Fails);
        for (then, expected) in [
            ("exists(x, x > 0)", exists),
            ("all(x, x > 0)", all),
            ("exists_one(x, x > 0)", is_sound.then_some(ones == 1)),
            (
                &format!("filter(x, x > 0).size() == {ones}"),
                is_sound.then_some(true),
            ),
            (
                &format!("map(x, x > 0, x).size() == {ones}"),
                is_sound.then_some(true),
            ),
            (
                &format!("map(x, x > 0).size() == {}", list.len()),
                is_sound.then_some(true),
            ),
        ] {
            let source = format!("{}.{then}", written(&list));
            let (result, _) = evaluate(&source, json!({}));
            assert_eq!(result.ok(), expected.map(Value::Bool), "{source}");
        }
    }
}

/// As with `&&` and `||`: if several elements fail, anything else counts before what the object
/// lacks.
#[test]
fn what_fails_in_one_element_counts_before_what_is_not_set_in_others() {
    let object = json!({"metadata": {"annotations": {"one": "1", "word": "many"}}});
    let source = |keys: &str, then: &str| {
        format!("[{keys}].{then}(k, int(object.metadata.annotations[k]) > 3)")
    };
    for then in ["exists", "all", "exists_one", "filter"] {
        for keys in ["'none', 'word'", "'word', 'none'"] {
            let (result, _) = evaluate(&source(keys, then), object.clone());
            let Err(Failure::Error(message)) = result else {
                panic!("{keys} {then}: {result:?}");
            };
            assert!(message.contains("\"many\" is no whole number"), "{message}");
        }
        let (result, _) = evaluate(&source("'none'", then), object.clone());
        assert!(
            matches!(result, Err(Failure::Absent(_))),
            "{then}: {result:?}"
        );
    }
    // What a loop within a loop lacks.
    let nested =
        "[['none'], ['one']].exists(l, l.exists(k, int(object.metadata.annotations[k]) > 3))";
    let (result, _) = evaluate(nested, object);
    assert!(matches!(result, Err(Failure::Absent(_))), "{result:?}");
}

#[test]
fn a_condition_that_is_no_boolean_is_refused() {
    for (source, column) in [
        ("object.spec.containers.exists(c, c.image)", 34),
        ("object.spec.containers.all(c, c.image)", 31),
        ("object.spec.containers.filter(c, c.image).size() > 0", 34),
        (
            "object.spec.containers.map(c, c.image, c.name).size() > 0",
            31,
        ),
        ("object.spec.containers.exists_one(c, c.image)", 38),
    ] {
        let mistake = compile(source).map(|_| ()).unwrap_err();
        assert_eq!(mistake.column, column, "{source}: {mistake}");
        assert!(
            mistake.message.contains("it takes a text for a boolean"),
            "{mistake}"
        );
    }
    // One that is not set.
    let object = json!({"spec": {"containers": [{"name": "a"}]}, "status": {}});
    let source = "object.spec.containers.exists(c, c['ready'])";
    let (result, _) = evaluate(source, object);
    assert_eq!(result, Err(Failure::Absent("c.ready".to_owned())));
}

/// The elements that a comparison with `now` sees are those before the one that decides.
#[test]
fn a_loop_knows_when_it_changes() {
    let object = |times: &[Option<&str>]| {
        let taints = times
            .iter()
            .map(|time| json!({"key": "a", "timeAdded": time}));
        json!({"spec": {"taints": taints.collect::<Vec<_>>()}})
    };
    let source = "node.spec.taints.exists(t, now - t.timeAdded > duration('5m'))";
    let expression = compile(source).unwrap();
    for (times, expected, next) in [
        (
            vec![None, Some("2025-12-31T23:58:00Z")],
            None,
            Some(180_001),
        ),
        (
            vec![Some("2025-12-31T23:58:00Z"), None],
            None,
            Some(180_001),
        ),
        (
            vec![Some("2025-12-31T23:59:00Z"), Some("2025-12-31T23:58:00Z")],
            Some(false),
            Some(180_001),
        ),
        (vec![None, Some("2025-12-31T23:50:00Z")], Some(true), None),
    ] {
        let node = serde_json::from_value(object(&times)).unwrap();
        let nothing = davit_guest::dynamic::Value::Null;
        let mut objects = super::super::Objects::of(&nothing);
        objects.insert("node", Some(&node));
        let start = 1_767_225_600_000;
        let (result, change) = expression.evaluate(&objects, start);
        assert_eq!(result.ok(), expected.map(Value::Bool), "{times:?}");
        assert_eq!(change.map(|it| it - start), next, "{times:?}");
    }
}
