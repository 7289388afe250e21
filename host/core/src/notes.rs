//! The notes of a controller, and the reports among them: what a guest has to say to operators
//! in the status of its controller.
//!
//! A report is a note whose key is [`PREFIX`] and a name. The value is a map with the
//! fields `count` and `message`, both optional. The status has the reports of the stable
//! revision. The built-in guest `policy` reports the rules that could not be evaluated.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::untrusted;

/// The notes of a controller, by key.
pub type Notes = imbl::OrdMap<String, Arc<[u8]>>;

/// What the key of a note starts with that is a report.
pub const PREFIX: &str = "status/";
/// How many reports a status has at most, the first by their names.
pub const MOST: usize = 16;
/// The longest name, in bytes. A longer one is cut.
pub const LONGEST_NAME: usize = 128;
/// The longest message, in bytes. A longer one is cut.
pub const LONGEST_MESSAGE: usize = 512;

/// A report of a guest.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct GuestReport {
    /// What the report is about. Of the built-in guest `policy`: a rule that could not be
    /// evaluated.
    pub name: String,
    /// How often it happened, since the host started or the controller was reset.
    pub count: u64,
    /// What happened last, as an example.
    pub message: String,
}

/// The value of a note that is a report.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Value {
    count: u64,
    message: String,
}

/// The reports among the notes of a controller.
pub(crate) fn reports(notes: &Notes) -> Vec<GuestReport> {
    let reports = values(notes).take(MOST);
    reports.map(|(name, value)| report(name, value)).collect()
}

/// The keys of all notes that are reports.
pub(crate) fn report_keys(notes: &Notes) -> Vec<String> {
    values(notes)
        .map(|(name, _)| format!("{PREFIX}{name}"))
        .collect()
}

fn values(notes: &Notes) -> impl Iterator<Item = (&str, &[u8])> {
    let from = notes.range(PREFIX.to_owned()..);
    from.map_while(|(key, value)| Some((key.strip_prefix(PREFIX)?, &**value)))
}

fn report(name: &str, value: &[u8]) -> GuestReport {
    let Value { count, message } = rmp_serde::from_slice(value).unwrap_or_else(|error| Value {
        count: 0,
        message: format!("the note is not a report (count, message): {error}"),
    });
    let shortened = |mut text: String, most| {
        untrusted::shorten(&mut text, most);
        text
    };
    GuestReport {
        name: shortened(name.to_owned(), LONGEST_NAME),
        count,
        message: shortened(message, LONGEST_MESSAGE),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn notes(notes: &[(&str, serde_json::Value)]) -> Notes {
        let encoded = notes.iter().map(|(key, value)| {
            let value: Arc<[u8]> = rmp_serde::to_vec_named(value).unwrap().into();
            ((*key).to_owned(), value)
        });
        encoded.collect()
    }

    fn is(name: &str, count: u64, message: &str) -> GuestReport {
        GuestReport {
            name: name.to_owned(),
            count,
            message: message.to_owned(),
        }
    }

    #[test]
    fn notes_with_the_prefix_are_reports() {
        let notes = notes(&[
            ("other", json!({"count": 9, "message": "no report"})),
            (
                "status/b",
                json!({"count": 2, "message": "a\nb", "more": 1}),
            ),
            ("status/a", json!({"message": "only text"})),
            ("status0", json!({"count": 9})),
        ]);
        assert_eq!(
            reports(&notes),
            [is("a", 0, "only text"), is("b", 2, "a\\nb")]
        );
    }

    #[test]
    fn a_note_that_is_no_report_says_so() {
        let notes = notes(&[("status/a", json!({"count": "many"}))]);
        let [report] = &*reports(&notes) else {
            panic!("one report");
        };
        assert!(
            report.message.starts_with("the note is not a report"),
            "{report:?}"
        );
    }

    #[test]
    fn a_status_has_few_and_short_reports() {
        let many: Vec<(String, serde_json::Value)> = (0..100)
            .map(|number| {
                let message = json!({"message": "m".repeat(10_000)});
                (format!("status/{number:02}{}", "n".repeat(1000)), message)
            })
            .collect();
        let many: Vec<(&str, serde_json::Value)> = many
            .iter()
            .map(|(key, value)| (&**key, value.clone()))
            .collect();
        let reports = reports(&notes(&many));
        assert_eq!(reports.len(), MOST);
        assert!(reports[0].name.starts_with("00n"));
        assert!(reports.iter().all(|one| one.name.len() <= LONGEST_NAME));
        assert!(
            reports
                .iter()
                .all(|one| one.message.len() <= LONGEST_MESSAGE)
        );
    }
}
