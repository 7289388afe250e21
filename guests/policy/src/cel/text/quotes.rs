//! Texts and names in quotes that the library reads otherwise than CEL does.

use super::super::Mistake;
use super::super::token::Tokens;

/// Refuses what the library gives another value without saying so.
pub(super) fn check(source: &str) -> Result<(), Mistake> {
    for token in Tokens::new(source) {
        if let Some(message) = mistake_in(token.text) {
            return Err(Mistake::at_column(token.column, message));
        }
    }
    Ok(())
}

fn mistake_in(token: &str) -> Option<String> {
    if token.starts_with('`') {
        // The backticks would be a part of the name, so that no object has it.
        return Some(
            "a name has no backticks here: write [\"NAME\"] instead of .`NAME`".to_owned(),
        );
    }
    let start = token.find(['\'', '"'])?;
    let (prefix, text) = token.split_at(start);
    let has = |letters: [char; 2]| prefix.contains(letters);
    let quote = text.chars().next()?;
    let triple: String = [quote; 3].iter().collect();
    if has(['b', 'B']) && (has(['r', 'R']) || text.starts_with(&triple)) {
        // The prefix or two of the quotes would be a part of it.
        return Some("bytes have one quote and no other prefix: write b'…'".to_owned());
    }
    let escaped = escaped_quotes(text);
    let is_raw = has(['r', 'R']);
    let wrong = escaped.into_iter().find(|it| (*it == quote) == is_raw)?;
    // The backslash would remain in the text, or the other way round.
    Some(if is_raw {
        format!("a text without escapes has no {wrong} after a \\: write it with escapes")
    } else {
        format!("a text in {quote} has {wrong} without a \\ before it")
    })
}

/// The quotes after a backslash that no other one escapes.
fn escaped_quotes(text: &str) -> Vec<char> {
    let mut letters = text.chars();
    let mut found = Vec::new();
    while let Some(letter) = letters.next() {
        if letter == '\\'
            && let Some(quote @ ('\'' | '"')) = letters.next()
        {
            found.push(quote);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_that_the_library_misreads_is_refused_with_its_column() {
        for (source, column, part) in [
            (r#"'a' == "\'""#, 8, "has ' without a \\"),
            (r#"'\"'"#, 1, "a text in ' has \""),
            (r#""""a\'b""""#, 1, "has ' without"),
            (r"r'''\'x'''", 1, "no ' after a \\"),
            ("b'''a'''", 1, "write b'…'"),
            ("1 == br'a'", 6, "write b'…'"),
            ("{'a-b': 1}.`a-b`", 12, "write [\"NAME\"]"),
        ] {
            let mistake = check(source).unwrap_err();
            assert_eq!(mistake.column, column, "{source}: {mistake}");
            assert!(mistake.message.contains(part), "{source}: {mistake}");
        }
    }

    #[test]
    fn a_text_that_the_library_reads_as_cel_does_passes() {
        for source in [
            r#"'\'' + "\"" + "'" + '"' + "\\'" + '\\"'"#,
            r#"'''a\'b''' + """a\"b""""#,
            r#"r'\"' + r"\'" + r'\d' + r'''\"x''' + r'\\'"#,
            r"b'\x41' + B'a'",
            "rb.b",
        ] {
            assert_eq!(check(source), Ok(()), "{source}");
        }
    }
}
