use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::json;

use super::*;

#[derive(Debug, PartialEq, Deserialize)]
#[serde(default)]
#[derive(Default)]
struct View {
    text: String,
    list: Vec<i64>,
    maybe: Option<bool>,
    float: f64,
    map: BTreeMap<String, u8>,
}

fn bytes(value: &serde_json::Value) -> Vec<u8> {
    rmp_serde::to_vec_named(value).unwrap()
}

#[test]
fn numbers_of_every_width_are_read() {
    let numbers = [
        0,
        127,
        128,
        255,
        256,
        65_535,
        65_536,
        i64::from(u32::MAX),
        i64::MAX,
        -1,
        -32,
        -33,
        -128,
        -129,
        -32_768,
        -32_769,
        i64::from(i32::MIN) - 1,
        i64::MIN,
    ];
    for number in numbers {
        let bytes = bytes(&json!(number));
        assert_eq!(decode::<i64>(&bytes).unwrap(), number);
    }
    assert!(decode::<f64>(&bytes(&json!(0.5))).unwrap() > 0.4);
    assert!(decode::<f64>(&bytes(&json!(7))).unwrap() > 6.0);
}

#[test]
fn texts_and_lists_of_every_length_are_read() {
    for len in [0, 1, 15, 16, 31, 32, 255, 256, 65_535, 65_536] {
        let text = "é".repeat(len / 2) + &"x".repeat(len % 2);
        assert_eq!(decode::<String>(&bytes(&json!(text))).unwrap(), text);
        let list = vec![true; len];
        assert_eq!(decode::<Vec<bool>>(&bytes(&json!(list))).unwrap(), list);
        let map: BTreeMap<String, u32> = (0..7).map(|n| (format!("{n}{text}"), n)).collect();
        let encoded = rmp_serde::to_vec_named(&map).unwrap();
        assert_eq!(decode::<BTreeMap<String, u32>>(&encoded).unwrap(), map);
    }
}

#[test]
fn unknown_fields_are_skipped() {
    let value = json!({
        "other": {"deep": [{"deeper": [1, "x", null, {}]}]},
        "text": "t",
        "more": [[], {}],
    });
    let view: View = decode(&bytes(&value)).unwrap();
    assert_eq!(view.text, "t");
}

#[test]
fn null_is_the_same_as_absent() {
    let value = json!({"text": null, "list": null, "maybe": null, "map": {"a": null, "b": 1}});
    let view: View = decode(&bytes(&value)).unwrap();
    let map = BTreeMap::from([("b".to_owned(), 1)]);
    assert_eq!(
        view,
        View {
            map,
            ..View::default()
        }
    );
}

#[test]
fn a_truncated_or_continued_value_is_refused() {
    let whole = bytes(&json!({"text": "abc", "list": [1, 70_000], "map": {"k": 1}}));
    assert!(decode::<View>(&whole).is_ok());
    for len in 0..whole.len() {
        assert!(decode::<View>(&whole[..len]).is_err(), "{len} bytes");
    }
    let longer = [whole.as_slice(), &[0xc0]].concat();
    assert!(decode::<View>(&longer).is_err());
}

#[test]
fn a_wrong_length_costs_nothing() {
    // An array of four billion elements, without any.
    assert!(decode::<Vec<u64>>(&[0xdd, 0xff, 0xff, 0xff, 0xff]).is_err());
    assert!(decode::<View>(&[0xdf, 0xff, 0xff, 0xff, 0xff]).is_err());
}

#[test]
fn an_error_names_the_path() {
    let error = decode::<View>(&bytes(&json!({"list": [1, "x"]}))).unwrap_err();
    assert_eq!(
        error.to_string(),
        "list[1]: expected a whole number, found \"x\""
    );
}

#[test]
fn an_identity_is_read_wherever_it_stands() {
    let pod = json!({
        "a": {"metadata": {"name": "another"}},
        "metadata": {"labels": {"name": "x"}, "name": "n", "namespace": "ns", "uid": "u"},
        "spec": {"nodeName": "node"},
    });
    let (namespace, name, uid) = ("ns", "n", "u");
    let expected = Identity {
        namespace,
        name,
        uid,
    };
    assert_eq!(identity(&bytes(&pod)).unwrap(), expected);
    let node = json!({"metadata": {"name": "n", "namespace": null, "uid": "u"}});
    let expected = Identity {
        namespace: "",
        ..expected
    };
    assert_eq!(identity(&bytes(&node)).unwrap(), expected);
    let metrics = json!({"metadata": {"name": "n", "namespace": "", "labels": {"a": "b"}}});
    assert_eq!(identity(&bytes(&metrics)).unwrap().uid, "");
    let whole = bytes(&node);
    for (bytes, error) in [
        (bytes(&json!(7)), "expected a map, found 7"),
        (bytes(&json!({"spec": {}})), "metadata.name: it must be set"),
        (
            bytes(&json!({"metadata": {"uid": "u"}})),
            "metadata.name: it must be set",
        ),
        (
            bytes(&json!({"metadata": {"name": "n", "uid": 7}})),
            "metadata.uid: expected text, found 7",
        ),
        (
            bytes(&json!({"metadata": []})),
            "metadata: expected a map, found a list",
        ),
        (
            whole[..whole.len() - 1].to_vec(),
            "metadata.uid: the MessagePack value is cut short",
        ),
    ] {
        assert_eq!(identity(&bytes).unwrap_err().to_string(), error);
    }
}

/// A map with an entry whose name and value are these bytes.
fn entry(name: &[u8], value: &[u8]) -> Vec<u8> {
    let mut map = Vec::new();
    rmp::encode::write_map_len(&mut map, 1).unwrap();
    for text in [name, value] {
        rmp::encode::write_str_len(&mut map, u32::try_from(text.len()).unwrap()).unwrap();
        map.extend(text);
    }
    map
}

#[test]
fn a_text_is_checked_where_it_is_kept() {
    const NO_TEXT: &[u8] = &[0xff, 0xfe];
    let refused = |map: &[u8]| decode::<View>(map).unwrap_err().to_string();
    assert_eq!(
        refused(&entry(b"text", NO_TEXT)),
        "text: a text is not UTF-8"
    );
    let kept = decode::<BTreeMap<String, String>>(&entry(NO_TEXT, b"x"));
    assert_eq!(kept.unwrap_err().message, "a text is not UTF-8");
    // Nobody reads it.
    assert_eq!(
        decode::<View>(&entry(b"other", NO_TEXT)).unwrap(),
        View::default()
    );
}
