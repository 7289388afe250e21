use std::fmt::Write as _;

use proptest::prelude::*;
use serde_json::{Value as Json, json};

use super::*;
use crate::msgpack::check_json;

fn messagepack(json: &Json) -> Vec<u8> {
    rmp_serde::to_vec_named(json).unwrap()
}

fn read(text: &str) -> Result<Vec<u8>, String> {
    from_json(text.as_bytes()).map_err(|error| error.to_string())
}

fn written(bytes: &[u8]) -> Result<String, JsonError> {
    to_json(bytes).map(|json| String::from_utf8(json).unwrap())
}

#[test]
fn an_object_is_the_same_in_both_encodings() {
    let text = r#"{"metadata":{"name":"grün","labels":{}},"list":[1,-1,true,null,"a\"\u0001"],"empty":[]}"#;
    let bytes = read(text).unwrap();
    let json: Json = serde_json::from_str(text).unwrap();
    assert_eq!(rmp_serde::from_slice::<Json>(&bytes).unwrap(), json);
    assert_eq!(written(&bytes).unwrap(), text);
}

#[test]
fn integers_of_64_bits_keep_every_digit() {
    for text in [
        "0",
        "-1",
        "127",
        "9007199254740993",
        "9223372036854775807",
        "-9223372036854775808",
        "18446744073709551615",
    ] {
        assert_eq!(written(&read(text).unwrap()).unwrap(), text);
    }
}

#[test]
fn a_number_with_a_fraction_keeps_its_value_and_its_kind() {
    for (text, again) in [
        ("1.0", "1.0"),
        ("0.1", "0.1"),
        ("-0.0", "-0.0"),
        ("1e3", "1000.0"),
        ("1e300", "1e+300"),
        ("5e-324", "5e-324"),
        ("18446744073709551616.0", "1.8446744073709552e+19"),
    ] {
        let bytes = read(text).unwrap();
        assert_eq!(bytes.first(), Some(&0xcb), "{text}");
        let number: f64 = text.parse().unwrap();
        let found: f64 = written(&bytes).unwrap().parse().unwrap();
        assert_eq!(found.to_bits(), number.to_bits(), "{text}");
        assert_eq!(read(again).unwrap(), bytes, "{text}");
    }
}

#[test]
fn an_integer_beyond_64_bits_is_refused_with_its_position() {
    for text in [
        "18446744073709551616",
        "-9223372036854775809",
        "1000000000000000000000000000000",
    ] {
        let error = "an integer needs more than 64 bits at line 2 column 9".to_owned();
        let text = format!("[\"1\\\"8446744073709551616\", 2e30,\n   5.5, {text}]");
        assert_eq!(read(&text), Err(error));
    }
    // A string, and a number with an exponent, are none.
    assert!(read(r#"["18446744073709551616", 18446744073709551616e0]"#).is_ok());
}

#[test]
fn a_text_that_is_not_json_is_refused_with_its_position() {
    for (text, error) in [
        ("", "EOF while parsing a value at line 1 column 0"),
        ("{\"a\":\n  nul}", "expected ident at line 2 column 6"),
        ("{\"a\": 1,}", "trailing comma at line 1 column 9"),
        ("{} {}", "trailing characters at line 1 column 4"),
        ("{a: 1}", "key must be a string at line 1 column 2"),
        ("[01]", "invalid number at line 1 column 3"),
        ("[NaN]", "expected value at line 1 column 2"),
        ("1e999", "number out of range at line 1 column 5"),
        (
            "\"\u{1}\"",
            "control character (\\u0000-\\u001F) found while parsing a string at line 1 column 2",
        ),
        (
            "\"\\ud800\"",
            "unexpected end of hex escape at line 1 column 8",
        ),
        ("\u{feff}{}", "expected value at line 1 column 1"),
    ] {
        assert_eq!(read(text), Err(error.to_owned()), "{text}");
    }
    let error = from_json(b"[\"a\", \"\xff\"]").unwrap_err();
    assert_eq!(
        error.to_string(),
        "invalid unicode code point at line 1 column 8"
    );
}

#[test]
fn lists_that_are_nested_too_deeply_are_refused() {
    let error = read(&"[".repeat(100_000)).unwrap_err();
    assert!(
        error.starts_with("recursion limit exceeded at line 1"),
        "{error}"
    );
    assert_eq!(to_json(&vec![0x91; 100_000]), Err(JsonError::Deep));
    // What can be read is left to the check of all payloads.
    let deep = read(&format!("{}{}", "[".repeat(100), "]".repeat(100))).unwrap();
    assert_eq!(check_json(&deep), Err(JsonError::Deep));
    assert!(to_json(&deep).is_ok());
}

#[test]
fn a_key_twice_is_refused_as_in_messagepack() {
    let bytes = read(r#"{"a": 1, "a": 2}"#).unwrap();
    assert_eq!(check_json(&bytes), Err(JsonError::Twice));
}

#[test]
fn a_value_that_json_cannot_express_has_no_text() {
    for (bytes, error) in [
        (
            &[0xc4, 1, 0][..],
            JsonError::Foreign("binary data or an extension type"),
        ),
        (
            &[0xca, 0x7f, 0xc0, 0, 0],
            JsonError::Foreign("a number that is not finite"),
        ),
        (&[0xa1, 0xff], JsonError::NotText),
        (&[0x81, 1, 2], JsonError::Key),
        (&[0x91], JsonError::CutOff),
        (&[0xc0, 0xc0], JsonError::Trailing),
        (&[0xc1], JsonError::Foreign("the reserved byte 0xc1")),
    ] {
        assert_eq!(to_json(bytes), Err(error), "{bytes:x?}");
    }
}

#[test]
fn long_lists_and_maps_have_their_length() {
    let mut map = serde_json::Map::new();
    for number in 0..70_000_u32 {
        let mut key = String::new();
        write!(key, "{number:05}").unwrap();
        map.insert(key, json!([number]));
    }
    let list: Vec<Json> = (0..300).map(Json::from).collect();
    let json = json!({"map": map, "list": list});
    let bytes = from_json(json.to_string().as_bytes()).unwrap();
    assert_eq!(rmp_serde::from_slice::<Json>(&bytes).unwrap(), json);
    assert_eq!(bytes, messagepack(&json));
}

fn any_json() -> impl Strategy<Value = Json> {
    let scalar = prop_oneof![
        Just(Json::Null),
        any::<bool>().prop_map(Json::from),
        any::<i64>().prop_map(Json::from),
        any::<u64>().prop_map(Json::from),
        any::<f64>().prop_map(Json::from),
        ".*".prop_map(Json::from),
    ];
    scalar.prop_recursive(4, 64, 8, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..20).prop_map(Json::from),
            prop::collection::btree_map(".*", inner, 0..20)
                .prop_map(|map| Json::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn a_value_is_the_same_there_and_back(json in any_json()) {
        let bytes = messagepack(&json);
        let text = to_json(&bytes).unwrap();
        prop_assert_eq!(&serde_json::from_slice::<Json>(&text).unwrap(), &json);
        prop_assert_eq!(from_json(&text).unwrap(), bytes);
    }

    #[test]
    fn any_bytes_are_json_or_have_an_error(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        let read = from_json(&bytes);
        let reference = serde_json::from_slice::<Json>(&bytes);
        if read.is_ok() {
            prop_assert!(reference.is_ok());
        }
        let _ = to_json(&bytes);
    }
}
