//! Texts for one line of a status.

use std::borrow::Cow;

use crate::untrusted;

/// The longest text of a status, in bytes: the API server takes messages of 32 KiB.
const MOST: usize = 4096;

/// A text on one line. A parser's error shows the place on separate lines: only the
/// line and column are kept. Guests and servers determine parts of the text, and
/// terminals display it, so control characters are escaped.
pub(super) fn one_line(text: &str) -> String {
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let first = lines.next().unwrap_or_default();
    let rest: Vec<&str> = lines.collect();
    let place = rest.iter().find_map(|line| place(line));
    let line = match place {
        None if rest.is_empty() => Cow::Borrowed(first),
        None => Cow::Owned([&[first], rest.as_slice()].concat().join(" ")),
        Some((line, column)) => Cow::Owned(format!("{first} (line {line}, column {column})")),
    };
    untrusted::line(&line, MOST)
}

/// Line and column in `--> <anon>:1:1`.
fn place(line: &str) -> Option<(u32, u32)> {
    let (rest, column) = line.strip_prefix("-->")?.rsplit_once(':')?;
    let (_, number) = rest.rsplit_once(':')?;
    Some((number.parse().ok()?, column.parse().ok()?))
}

/// A text of at most this many characters.
pub(super) fn shortened(text: &str, most: usize) -> String {
    let text = one_line(text);
    if text.chars().count() <= most {
        return text;
    }
    let mut short: String = text.chars().take(most.saturating_sub(1)).collect();
    short.truncate(short.trim_end().len());
    short + "…"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parsers_error_is_one_line_with_its_place() {
        let error = "module: the module does not compile: expected `(`\n     --> <anon>:3:7\n      \
                     |\n    3 | #!/bin/sh\n      | ^";
        assert_eq!(
            one_line(error),
            "module: the module does not compile: expected `(` (line 3, column 7)"
        );
        assert_eq!(one_line("a\n  b\n\nc"), "a b c");
        assert_eq!(one_line("plain"), "plain");
        assert_eq!(one_line("\u{1b}[31mred\rb"), "\\u{1b}[31mred\\rb");
    }

    #[test]
    fn a_short_text_counts_characters() {
        assert_eq!(shortened("müsli", 5), "müsli");
        assert_eq!(shortened("müsli bar", 6), "müsli…");
        assert_eq!(shortened("müsli\nbar", 40), "müsli bar");
    }
}
