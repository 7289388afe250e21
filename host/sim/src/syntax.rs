//! Syntax errors in JSON, with the messages of Go's parser.

/// Translates an error of `serde_json` about `text`.
pub(crate) fn error(text: &[u8], error: &serde_json::Error) -> String {
    if error.is_eof() {
        return "unexpected end of JSON input".to_owned();
    }
    let said = error.to_string();
    let context = [
        ("expected value", "looking for beginning of value"),
        ("key must be", "looking for beginning of object key string"),
        ("expected `:`", "after object key"),
        ("expected `,` or `}`", "after object key:value pair"),
        ("expected `,` or `]`", "after array element"),
        ("trailing characters", "after top-level value"),
        ("control character", "in string literal"),
        ("invalid escape", "in string escape code"),
    ];
    let context = context.iter().find(|(ours, _)| said.starts_with(ours));
    match (context, character(text, error.line(), error.column())) {
        (Some((_, context)), Some(byte)) => {
            format!("invalid character {} {context}", quoted(byte))
        }
        _ => said,
    }
}

/// The byte at a place, counted from 1.
fn character(text: &[u8], line: usize, column: usize) -> Option<u8> {
    let line = text
        .split(|byte| *byte == b'\n')
        .nth(line.checked_sub(1)?)?;
    line.get(column.checked_sub(1)?).copied()
}

fn quoted(byte: u8) -> String {
    match byte {
        b'\'' => "'\\''".to_owned(),
        b'"' => "'\"'".to_owned(),
        b'\\' => "'\\\\'".to_owned(),
        b'\t' => "'\\t'".to_owned(),
        b'\r' => "'\\r'".to_owned(),
        0x20..=0x7e => format!("'{}'", char::from(byte)),
        byte if byte < 0x80 => format!("'\\x{byte:02x}'"),
        byte => format!("'{}'", char::from(byte)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    #[test]
    fn gos_words() {
        for (text, said) in [
            ("", "unexpected end of JSON input"),
            ("{\"a\":", "unexpected end of JSON input"),
            (
                "{bad",
                "invalid character 'b' looking for beginning of object key string",
            ),
            ("{\"a\" 1}", "invalid character '1' after object key"),
            (
                "{\"a\":\n x}",
                "invalid character 'x' looking for beginning of value",
            ),
            (
                "{\"a\":1 \"b\"}",
                "invalid character '\"' after object key:value pair",
            ),
            ("[1 2]", "invalid character '2' after array element"),
            ("{} x", "invalid character 'x' after top-level value"),
        ] {
            let error = serde_json::from_str::<Value>(text).expect_err(text);
            assert_eq!(super::error(text.as_bytes(), &error), said, "{text}");
        }
    }
}
