use std::marker::PhantomData;

use proptest::prelude::*;
use serde::de::IgnoredAny;
use serde_json::Value;

use super::*;

fn read(json: &str) -> Result<Value, String> {
    read_all(json.as_bytes(), PhantomData).map_err(|error| error.to_string())
}

fn skipped(json: &[u8]) -> Result<IgnoredAny, ReadError> {
    read_all(json, PhantomData)
}

/// Where a container ends, byte by byte.
fn container_end(json: &[u8], start: usize) -> Option<usize> {
    let (mut depth, mut is_text, mut is_escaped) = (1, false, false);
    for (at, byte) in json.iter().enumerate().skip(start) {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if is_text => is_escaped = true,
            b'"' => is_text = !is_text,
            b'{' | b'[' if !is_text => depth += 1,
            b'}' | b']' if !is_text => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some(at + 1);
        }
    }
    None
}

/// JSON has none.
fn has_backslash_outside(json: &[u8]) -> bool {
    let (mut is_text, mut is_escaped) = (false, false);
    json.iter().any(|byte| {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if !is_text => return true,
            b'\\' => is_escaped = true,
            b'"' => is_text = !is_text,
            _ => {}
        }
        false
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn a_container_ends_where_it_does_byte_by_byte(
        parts in prop::collection::vec(
            prop_oneof![
                4 => r"[\]{}\[,:x ]{0,70}",
                4 => r#""([a-z{}\[\]é]|\\["\\]){0,70}""#,
                1 => r"[\]}]{1,3}",
                1 => r#""\\\\""#,
            ],
            0..12,
        ),
        start in 0_usize..70,
        cut in 0_usize..400,
    ) {
        let json = parts.concat().into_bytes();
        // Where a string does not start within.
        let json = [vec![b'{'; start], json].concat();
        let json = json.get(..cut).unwrap_or(&json);
        prop_assert_eq!(skip::container(json, start), container_end(json, start));
    }

    #[test]
    fn a_string_ends_at_its_first_quote_without_a_backslash(
        text in ".{0,80}",
        after in ".{0,30}",
    ) {
        let json = serde_json::to_string(&text).unwrap() + &after;
        let end = skip::text(json.as_bytes(), 1).unwrap();
        prop_assert_eq!(serde_json::from_slice::<String>(&json.as_bytes()[..end]).unwrap(), text);
    }

    #[test]
    fn what_is_read_of_any_text_is_what_serde_json_reads(
        json in r#"([{}\[\],:]|"(a|\\n|\\u00e9|\\ud83d)?"|-?[0-9.e]{1,3}|true|null| ){0,12}"#,
    ) {
        let expected = serde_json::from_str::<Value>(&json).ok();
        prop_assert_eq!(read(&json).ok(), expected.clone());
        prop_assert!(expected.is_none() || skipped(json.as_bytes()).is_ok());
    }
}

#[test]
fn every_string_of_quotes_and_backslashes_at_every_place_of_a_block() {
    for len in 0..9 {
        for bits in 0..1_u32 << len {
            let text: Vec<u8> = (0..len)
                .map(|place| if bits >> place & 1 == 0 { b'"' } else { b'\\' })
                .collect();
            for place in [0, 7, 55, 56, 57, 58, 59, 60, 61, 62, 63] {
                let mut json = vec![b'x'; place];
                json.push(b'"');
                json.extend(&text);
                json.extend(b"]\"]x\"]");
                if has_backslash_outside(&json) {
                    continue;
                }
                assert_eq!(
                    skip::container(&json, 0),
                    container_end(&json, 0),
                    "{}",
                    String::from_utf8_lossy(&json)
                );
            }
        }
    }
}

#[test]
fn an_error_says_what_is_wrong_and_where() {
    let deep = "[".repeat(129);
    for (json, error) in [
        ("", "the text breaks off: there should be a value at byte 0"),
        (
            "{\"a\": nul}",
            "EOF while parsing a value at line 1 column 3 at byte 6",
        ),
        ("{\"a\" 1}", "there should be a colon at byte 5"),
        ("{\"a\": 1,}", "there should be a string at byte 8"),
        (
            "{\"a\": 1",
            "the text breaks off: there should be a comma or the end at byte 7",
        ),
        ("[1 2]", "there should be a comma or the end at byte 3"),
        ("[1,]", "there should be a value at byte 3"),
        ("{} {}", "the text should end at byte 3"),
        ("\"a", "a string has no end at byte 0"),
        ("\"a\\", "a string has no end at byte 0"),
        (&deep, "a value has no end at byte 128"),
    ] {
        assert_eq!(read(json), Err(error.into()), "{json}");
    }
    let control = "control character (\\u0000-\\u001F) found while parsing a string at line 2 \
                   column 0 at byte 1";
    assert_eq!(read("[\"\n\"]"), Err(control.into()));
}

/// One user's object must not keep the host from reading those of all others.
#[test]
fn what_is_nested_too_deeply_is_null() {
    let nested = |depth, inner: &str| {
        let (open, close) = ("[".repeat(depth), "]".repeat(depth));
        format!("[{open}{inner}{close},2]")
    };
    assert_eq!(read(&nested(200, "1")), read(&nested(127, "null")));
    assert_ne!(read(&nested(127, "1")), read(&nested(127, "null")));
}

#[test]
fn what_is_skipped_has_to_end() {
    for json in ["{\"a\": [{}}", "[\"]", "\"a", "{\"a\": \"\\", "[[]", ","] {
        assert!(skipped(json.as_bytes()).is_err(), "{json}");
    }
    assert!(skipped(&[b'['; 1_000]).is_err());
    let deep = [[b'['; 1_000], [b']'; 1_000]].concat();
    assert!(skipped(&deep).is_ok());
}
