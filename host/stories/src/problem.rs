//! What is wrong with a story.

use std::fmt;

use crate::panics::Panic;

/// Something that is wrong with a story.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Problem {
    text: String,
    kind: String,
}

impl Problem {
    /// The same rule, broken by another object, has the same kind; so has a panic at the
    /// same place.
    pub(crate) fn kind(&self) -> &str {
        &self.kind
    }
}

impl From<String> for Problem {
    fn from(text: String) -> Self {
        // What an object contains follows the sentence about it.
        let sentence = text.split(['{', '[', '"', ';']).next().unwrap_or_default();
        // Names of objects, uids, times and counts have digits.
        let is_of_kind = |word: &&str| !word.contains(|letter: char| letter.is_ascii_digit());
        let words: Vec<&str> = sentence.split(' ').filter(is_of_kind).collect();
        let kind = words.join(" ");
        Self { text, kind }
    }
}

impl From<Panic> for Problem {
    fn from(panic: Panic) -> Self {
        Self {
            text: panic.to_string(),
            kind: format!("panic at {}", panic.location),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(text: &str) -> String {
        Problem::from(text.to_owned()).kind().to_owned()
    }

    #[test]
    fn problems_of_one_rule_have_one_kind() {
        let one = kind("map-3 is still terminating: {\"name\":\"map-3\"} (25 s after the fault)");
        let other = kind("widget-11 is still terminating: {\"name\":\"widget-11\"}");
        assert_eq!(one, other);
        let one = kind("podgc: 3 writes in a minute, 2 allowed");
        let other = kind("podgc: 7 writes in a minute, 6 allowed");
        assert_eq!(one, other);
        assert_ne!(one, kind("podgc: 7 deletes in a minute, 6 allowed"));
    }

    #[test]
    fn a_panic_at_another_place_has_another_kind() {
        let panic = |line: u32, message: &str| {
            Problem::from(Panic {
                location: format!("host/core/src/queue.rs:{line}:9"),
                message: message.to_owned(),
            })
        };
        let one = panic(7, "index 3 of 2");
        assert_eq!(one.kind(), panic(7, "index 5 of 4").kind());
        assert_ne!(one.kind(), panic(8, "index 3 of 2").kind());
        assert_eq!(
            one.to_string(),
            "panic at host/core/src/queue.rs:7:9: index 3 of 2"
        );
    }
}
