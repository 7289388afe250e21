//! Text of a guest or a server, made safe for a line of a log.

use std::fmt::Write as _;

/// The longest text in a field of a log line, in bytes.
pub const MOST_LOGGED: usize = 1024;

/// The size of the ellipsis at the end of a cut text, in bytes.
pub const ELLIPSIS: usize = '…'.len_utf8();

/// A text on one line, with at most `most` bytes (and three for the ellipsis if it was
/// cut). Control characters are escaped: otherwise the text could look like lines,
/// fields or colours of the host.
#[must_use]
pub fn line(text: &str, most: usize) -> String {
    // Nearly every text is fine as it is.
    if text.len() <= most && text.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
        return text.to_owned();
    }
    let mut line = String::with_capacity(text.len().min(most));
    for character in text.chars() {
        let before = line.len();
        if is_control(character) {
            line.extend(character.escape_default());
        } else {
            line.push(character);
        }
        if line.len() > most {
            line.truncate(before);
            line.push('…');
            break;
        }
    }
    line
}

/// A JSON text without raw control characters behind U+007E: as escapes, they mean the same, and
/// neither control a terminal nor change the order in which others appear. Those below U+0020 are
/// escapes in any JSON already, or the white space between its parts.
#[must_use]
pub fn json(text: String) -> String {
    let is_raw = |character: char| character > '~' && is_control(character);
    if !text.contains(is_raw) {
        return text;
    }
    let mut escaped = String::with_capacity(text.len() + 16);
    for character in text.chars() {
        if is_raw(character) {
            // None of them needs two code units.
            let _ = write!(escaped, "\\u{:04x}", u32::from(character));
        } else {
            escaped.push(character);
        }
    }
    escaped
}

/// Makes a text one line of at most `most` bytes, in place.
pub fn shorten(text: &mut String, most: usize) {
    if text.len() > most || !text.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
        *text = line(text, most.saturating_sub(ELLIPSIS));
    }
}

/// Cuts a text to at most `most` bytes, in place. Control characters stay: the text is a
/// name, which no log shows.
pub fn cut(text: &mut String, most: usize) {
    if text.len() > most {
        text.truncate(text.floor_char_boundary(most.saturating_sub(ELLIPSIS)));
        text.push('…');
    }
}

/// Characters that end a line, move a cursor, or change the order in which others
/// appear.
const fn is_control(character: char) -> bool {
    matches!(
        character,
        '\u{0}'..='\u{1f}'
            | '\u{7f}'..='\u{9f}'
            | '\u{61c}'
            | '\u{200e}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2066}'..='\u{2069}'
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_cannot_look_like_another_line() {
        for (text, expected) in [
            ("its node is gone", "its node is gone"),
            ("\u{e4}\u{20ac} \"quoted\"", "\u{e4}\u{20ac} \"quoted\""),
            ("a\nERROR b", "a\\nERROR b"),
            ("\r\t\u{1b}[31m", "\\r\\t\\u{1b}[31m"),
            (
                "\u{9b}31m\u{202e}cba\u{2028}",
                "\\u{9b}31m\\u{202e}cba\\u{2028}",
            ),
        ] {
            assert_eq!(line(text, MOST_LOGGED), expected);
        }
    }

    #[test]
    fn json_controls_no_terminal_and_means_the_same() {
        let value = "a\u{1b}[31m\u{7f}\u{9b}31m\u{61c}\u{202e}cba\u{2066}\u{e4}\n";
        let raw = serde_json::to_string_pretty(&[value]).unwrap();
        let text = json(raw);
        let end = text.replace('\n', "");
        assert!(!end.chars().any(is_control), "{text}");
        assert!(text.contains("\\u009b31m\\u061c\\u202ecba"), "{text}");
        assert!(text.contains('\u{e4}'), "{text}");
        let read: Vec<String> = serde_json::from_str(&text).unwrap();
        assert_eq!(read, [value]);
        assert_eq!(json("[1]".to_owned()), "[1]");
    }

    #[test]
    fn a_text_has_a_bound() {
        assert_eq!(line("abcd", 4), "abcd");
        assert_eq!(line("abcde", 4), "abcd…");
        // Whole characters, and whole escapes.
        assert_eq!(line("abc\u{20ac}", 4), "abc…");
        assert_eq!(line("abc\nd", 4), "abc…");
        assert_eq!(line("", 0), "");
        let long = line(&"x".repeat(1 << 20), MOST_LOGGED);
        assert_eq!(long.len(), MOST_LOGGED + "…".len());
    }

    #[test]
    fn a_text_that_is_shortened_has_the_bound_with_its_ellipsis() {
        let shortened = |text: &str, most| {
            let mut text = text.to_owned();
            shorten(&mut text, most);
            text
        };
        assert_eq!(shortened("abcdefgh", 8), "abcdefgh");
        assert_eq!(shortened("abcdefghi", 8), "abcde…");
        assert_eq!(shortened("a\nb", 8), "a\\nb");
        for text in ["\u{20ac}".repeat(100), "\u{7}".repeat(100)] {
            assert!(shortened(&text, 64).len() <= 64);
        }
    }
}
