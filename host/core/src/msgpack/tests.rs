use proptest::prelude::*;

use super::sample::{Sample, list, map, sample};
use super::*;

fn path(text: &str) -> FieldPath {
    text.parse().unwrap()
}

fn tree(paths: &[&str]) -> FieldTree {
    let paths: Vec<FieldPath> = paths.iter().map(|text| path(text)).collect();
    paths.iter().collect()
}

/// Reads bytes back into a tree.
fn decode(bytes: &[u8]) -> Result<Sample, DecodeError> {
    Ok(match Value::read(bytes)? {
        Value::Nil => Sample::Null,
        Value::Bool(value) => Sample::Bool(value),
        Value::Unsigned(value) => Sample::Integer(value.try_into().unwrap()),
        Value::Signed(value) => Sample::Integer(value),
        Value::Float(value) => Sample::Float(value),
        Value::Text(text) => text.into(),
        Value::Binary(_) => panic!("JSON has no binary"),
        Value::List(elements) => Sample::List(
            elements
                .map(|element| decode(element?))
                .collect::<Result<_, _>>()?,
        ),
        Value::Map(entries) => Sample::Map(
            entries
                .map(|entry| entry.and_then(|(key, value)| Ok((key.to_owned(), decode(value)?))))
                .collect::<Result<_, _>>()?,
        ),
    })
}

fn found(bytes: &[u8], at: &str) -> Vec<String> {
    let mut values = Vec::new();
    visit(bytes, &path(at), &mut |value| {
        values.push(format!("{value:?}"));
    })
    .unwrap();
    values
}

#[test]
fn every_form_of_a_value_is_skipped_completely() {
    let forms: [&[u8]; 27] = [
        &[0x00],
        &[0x7f],
        &[0xe0],
        &[0xc0],
        &[0xc2],
        &[0xc3],
        &[0xa1, b'x'],
        &[0xd9, 1, b'x'],
        &[0xda, 0, 1, b'x'],
        &[0xdb, 0, 0, 0, 1, b'x'],
        &[0xc4, 1, 0xff],
        &[0xc5, 0, 1, 0xff],
        &[0xc6, 0, 0, 0, 1, 0xff],
        &[0xcc, 1],
        &[0xcd, 0, 1],
        &[0xce, 0, 0, 0, 1],
        &[0xcf, 0, 0, 0, 0, 0, 0, 0, 1],
        &[0xd0, 1],
        &[0xd3, 0, 0, 0, 0, 0, 0, 0, 1],
        &[0xca, 0, 0, 0, 0],
        &[0xcb, 0, 0, 0, 0, 0, 0, 0, 0],
        &[0xd4, 9, 1],
        &[0xd6, 9, 1, 2, 3, 4],
        &[0xc7, 2, 9, 1, 2],
        &[0x92, 0x01, 0x91, 0x02],
        &[0xdc, 0, 1, 0xc0],
        &[0x82, 0xa1, b'a', 0x01, 0xa1, b'b', 0x90],
    ];
    for form in forms {
        let followed = [form, &[0xc3]].concat();
        assert_eq!(split(&followed), Ok((form, &[0xc3][..])), "{form:x?}");
        for end in 0..form.len() {
            assert_eq!(split(&form[..end]), Err(DecodeError), "{form:x?} to {end}");
        }
    }
    assert_eq!(split(&[0xc1]), Err(DecodeError));
}

#[test]
fn paths_go_through_lists_and_end_at_absent_values() {
    let pod = map([(
        "status",
        map([(
            "conditions",
            list([
                map([("type", "Ready".into()), ("status", Sample::Bool(true))]),
                map([("status", Sample::Null)]),
                "odd".into(),
                map([("type", "".into())]),
            ]),
        )]),
    )])
    .encode();
    let types = found(&pod, "status.conditions[*].type");
    assert_eq!(types, ["Text(\"Ready\")", "Text(\"\")"]);
    let status = found(&pod, "status.conditions[*].status");
    assert_eq!(status, ["Bool(true)", "Nil"]);
    for nothing in [
        "spec",
        "status.phase",
        "status[*]",
        "status.conditions.type",
    ] {
        assert!(found(&pod, nothing).is_empty(), "{nothing}");
    }
}

#[test]
fn undeclared_fields_make_no_difference() {
    let kept = tree(&["status.conditions[*].type", "metadata.labels"]);
    let condition = |beat: i64| map([("type", "Ready".into()), ("beat", Sample::Integer(beat))]);
    let object = |conditions: Sample, labels: Sample| {
        map([
            ("status", map([("conditions", conditions)])),
            ("metadata", map([("labels", labels)])),
        ])
        .encode()
    };
    let one = object(list([condition(1)]), map([("a", "b".into())]));
    let beat = object(list([condition(2)]), map([("a", "b".into())]));
    assert!(subset_equal(&kept, &one, &beat));
    let more = object(list([condition(1), condition(1)]), map([("a", "b".into())]));
    assert!(!subset_equal(&kept, &one, &more));
    let other = object(list([condition(1)]), map([("a", "c".into())]));
    assert!(!subset_equal(&kept, &one, &other));
}

#[test]
fn a_value_without_declared_fields_equals_an_absent_one() {
    let kept = tree(&["spec.taints[*].key", "spec.nodeName"]);
    let forms = [
        map([]),
        map([("spec", Sample::Null)]),
        map([("spec", map([]))]),
        map([("spec", map([("taints", list([]))]))]),
        map([("spec", map([("other", "x".into())]))]),
    ];
    for a in &forms {
        for b in &forms {
            assert!(subset_equal(&kept, &a.encode(), &b.encode()), "{a:?} {b:?}");
        }
    }
    let element = map([("spec", map([("taints", list([map([])]))]))]);
    assert!(!subset_equal(&kept, &forms[0].encode(), &element.encode()));
    let scalar = map([("spec", "x".into())]);
    assert!(!subset_equal(&kept, &forms[0].encode(), &scalar.encode()));
}

#[test]
fn deep_nesting_costs_no_stack() {
    const DEPTH: usize = 50_000;
    let mut lists = vec![0x91; DEPTH];
    assert_eq!(split(&lists), Err(DecodeError));
    lists.push(0xc0);
    assert_eq!(split(&lists).unwrap().1, [] as [u8; 0]);

    let levels = MAX_DEPTH + 1;
    let deep = [&[0x81, 0xa1, b'a'][..], &lists].concat();
    let steps = path(&format!("a{}", "[*]".repeat(levels)));
    assert_eq!(visit(&deep, &steps, &mut |_| {}), Err(DecodeError));
    let mut other = deep.clone();
    *other.last_mut().unwrap() = 0xc3;
    let kept: FieldTree = [&steps].into_iter().collect();
    assert!(!subset_equal(&kept, &deep, &other));
}

#[test]
fn long_maps_and_lists_are_selected() {
    let name = |number: usize| format!("{}{number:03}", "n".repeat(number % 40));
    let element = |number: usize| match number % 2 {
        0 => map([("kept", "yes".into()), ("other", list([map([])]))]),
        _ => map([("other", "no".into())]),
    };
    for (fields, elements) in [(1, 70_000), (9, 17), (40, 3)] {
        let names: Vec<String> = (0..2 * fields).map(name).collect();
        let long = || Sample::List((0..elements).map(element).collect());
        let value = Sample::Map(names.iter().map(|name| (name.clone(), long())).collect());
        let half = names.iter().step_by(2);
        let paths: Vec<String> = half.map(|name| format!("{name}[*].kept")).collect();
        let kept = tree(&paths.iter().map(String::as_str).collect::<Vec<_>>());
        let selected = select(&kept, &value.encode()).unwrap();
        let expected = value.project(&kept).encode();
        assert!(selected == expected, "{fields} fields, {elements} elements");
    }
}

#[test]
fn a_selection_ends_at_the_depth_limit() {
    let nested = |levels: usize| [vec![0x91; levels], vec![0xc0]].concat();
    let each = |levels: usize| format!("a{}", "[*]".repeat(levels));
    let value = |levels: usize| [&[0x81, 0xa1, b'a'][..], &nested(levels)].concat();
    let deepest = MAX_DEPTH - 2;
    let kept = tree(&[&each(deepest)]);
    assert_eq!(select(&kept, &value(deepest)), Ok(value(deepest)));
    let kept = tree(&[&each(deepest + 1)]);
    assert_eq!(select(&kept, &value(deepest + 1)), Err(DecodeError));
}

#[test]
fn a_selection_skips_what_it_does_not_declare_unchecked() {
    for (bytes, kept, expected) in [
        // A name that is no text, and one that is written longer than it could be.
        (&[0x81, 0xa1, 0xff, 0xc0][..], "c", Ok(&[0x80][..])),
        (
            &[0x81, 0xda, 0, 1, b'a', 1],
            "a",
            Ok(&[0x81, 0xda, 0, 1, b'a', 1]),
        ),
        // What follows the value; a value that is cut short.
        (
            &[0x81, 0xa1, b'a', 1, 7, 7],
            "a",
            Ok(&[0x81, 0xa1, b'a', 1]),
        ),
        (&[0x81, 0xa1, b'a', 0x92, 1], "a", Err(DecodeError)),
        (&[0x81, 0xa1, b'a', 0x92, 1], "a[*].b", Err(DecodeError)),
        (&[0x81, 1, 1], "a", Err(DecodeError)),
    ] {
        let selected = select(&tree(&[kept]), bytes);
        assert_eq!(selected, expected.map(<[u8]>::to_vec), "{bytes:?}");
    }
}

proptest! {
    #[test]
    fn any_bytes_are_a_value_or_malformed(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        if let Ok((value, rest)) = split(&bytes) {
            prop_assert_eq!([value, rest].concat(), bytes.clone());
        }
        let _ = visit(&bytes, &path("a[*].b"), &mut |_| {});
        let _ = subset_equal(&tree(&["a[*].b", "c"]), &bytes, &[0x80]);
        let _ = select(&tree(&["a[*].b", "c"]), &bytes);
    }

    #[test]
    fn a_written_value_is_read_back(value in sample()) {
        let bytes = value.encode();
        prop_assert_eq!(split(&bytes), Ok((&bytes[..], &[][..])));
        prop_assert_eq!(decode(&bytes), Ok(value));
    }

    #[test]
    fn a_truncated_value_is_malformed(value in sample(), cut in 1_usize..8) {
        let bytes = value.encode();
        let end = bytes.len().saturating_sub(cut);
        prop_assert_eq!(split(&bytes[..end]), Err(DecodeError));
    }

    #[test]
    fn values_agree_if_their_declared_fields_do(
        a in sample(),
        b in sample(),
        paths in prop::collection::vec("[abc](\\.[abc]|\\[\\*\\]){0,3}", 0..3),
    ) {
        let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
        let kept = tree(&paths);
        let same = a.selection(&kept) == b.selection(&kept);
        prop_assert_eq!(subset_equal(&kept, &a.encode(), &b.encode()), same);
        // The projector keeps what the tree does, and no more.
        let projected = a.project(&kept);
        prop_assert!(subset_equal(&kept, &a.encode(), &projected.encode()));
        let selected = select(&kept, &a.encode());
        prop_assert_eq!(selected, Ok(projected.encode()));
        prop_assert_eq!(projected.project(&kept), projected);
    }

    #[test]
    fn visit_finds_every_value(
        value in sample(),
        at in "[abc](\\.[abc]|\\[\\*\\]){0,3}",
    ) {
        let mut values = Vec::new();
        let bytes = value.encode();
        visit(&bytes, &path(&at), &mut |value| values.push(format!("{value:?}"))).unwrap();
        let expected: Vec<String> = value
            .at(path(&at).segments())
            .iter()
            .map(|value| format!("{:?}", Value::read(&value.encode()).unwrap()))
            .collect();
        // A list's or map's debug text ends with whatever follows its bytes.
        prop_assert_eq!(values.len(), expected.len());
        for (value, expected) in values.iter().zip(&expected) {
            if !value.starts_with("List") && !value.starts_with("Map") {
                prop_assert_eq!(value, expected);
            }
        }
    }
}
