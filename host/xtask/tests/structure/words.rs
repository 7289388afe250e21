//! The terms of `docs/glossary.md` hold: no text uses a word that the glossary
//! replaced, and no type is named by a participle or a pronoun.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{read, workspace};

/// This file names the words.
const LINT: &str = "host/xtask/tests/structure/words.rs";

/// A phrase that the project does not use, and what to write instead. A phrase is
/// found across the end of a line, whatever its case.
const PHRASES: &[(&str, &str)] = &[
    ("again-after", "requeue-after"),
    ("again-when-written", "requeue-when-observed"),
    ("again_after", "requeue_after"),
    ("again_when_written", "requeue_when_observed"),
    ("anew", "again"),
    ("are to run", "should run, or run"),
    ("beget", "create"),
    ("begets", "creates"),
    ("begin again", "start again"),
    ("begins again", "starts again"),
    ("can be had", "can be loaded"),
    ("cannot be had", "cannot be loaded"),
    ("carried out", "executed"),
    ("carries out", "executes"),
    ("carry out", "execute"),
    ("carry_out", "execute"),
    ("come again", "return, or are requeued"),
    ("comes again", "returns, or is requeued"),
    ("for ever", "forever"),
    ("for good", "forever"),
    ("give-up", "abandon"),
    ("given up", "abandoned, or dropped"),
    ("goes on", "continues"),
    ("had from", "loaded from"),
    ("handed over", "passed"),
    ("hands over", "passes"),
    ("has begun", "has started"),
    ("have begun", "have started"),
    ("in whose name", "the user to impersonate"),
    ("is had", "is loaded"),
    ("is to run", "should run, or runs"),
    ("is told", "gets, or is notified"),
    ("let through", "admitted"),
    ("lets through", "admits"),
    ("look at everything", "resync"),
    ("looked at", "reconciled, or checked"),
    ("looks at", "reconciles, reads, or checks"),
    ("looks at everything", "a resync enqueues every key"),
    ("mend", "fix"),
    ("mends", "fixes"),
    ("not begun", "not started"),
    ("now and then", "periodically"),
    ("put off", "deferred"),
    ("says nothing", "is silent, or proves nothing"),
    ("sign of life", "heartbeat"),
    ("take back", "roll back, or undo"),
    ("taken back", "rolled back, or undone"),
    ("taken on", "applied"),
    ("takes back", "rolls back, or undoes"),
    ("takes on", "applies"),
    ("tell a story", "run a story"),
    ("tells a story", "runs a story"),
    ("tells apart", "distinguishes"),
    ("to its end", "ends"),
    ("told apart", "distinguished"),
    ("tried again", "retried"),
    ("troubles_total", "errors_total"),
    ("try again", "retry"),
    ("turned away", "refused"),
    ("turns away", "refuses"),
    ("used up its", "spent, or tripped"),
    ("wakes nobody", "triggers no reconcile"),
    ("wants done", "outputs"),
    ("was told", "got, or was notified"),
    ("what became of", "the outcome of"),
    ("what becomes of", "the outcome of"),
    ("worked on", "reconciled"),
];

/// Words that no sentence uses: those of documents, comments and messages. Names in code
/// may have them.
const WORDS: &[(&str, &str)] = &[
    ("began", "started"),
    ("begin", "start"),
    ("begins", "starts"),
    ("begun", "started"),
    ("given back", "granted again, or returned"),
    ("held back", "deferred, or waits"),
    ("hold back", "defer"),
    ("hold plans back", "defer plans"),
    ("holds back", "defers"),
    ("holds plans back", "defers plans"),
    ("of before", "former"),
    ("shown", "visible, proven, or who shows it"),
    ("side door", "exception"),
    ("tell", "show, report, or distinguish"),
    ("tells", "shows, reports, or distinguishes"),
    ("told", "notified, or reported"),
    ("trouble", "error"),
    ("troubles", "errors"),
];

/// Texts of others: messages of Kubernetes, which the simulator repeats word for word, and
/// the first line of a key or certificate.
const QUOTES: &[&str] = &[
    "-----begin",
    "currently overloaded, please try again later",
    "customresource deletion will begin soon",
    "latest version and try again",
    "must not begin or end with a hyphen",
];

/// Names that no type has: a type is a noun of the field.
const TYPES: &[&str] = &[
    "Answered",
    "Applied",
    "Asked",
    "Asker",
    "Called",
    "Changed",
    "Checked",
    "Counted",
    "Declared",
    "Deed",
    "Deleted",
    "Denied",
    "Driven",
    "Due",
    "Ended",
    "Executed",
    "Expected",
    "Failed",
    "Followed",
    "Found",
    "Given",
    "Held",
    "Hosted",
    "Kept",
    "Known",
    "LeftOut",
    "Listed",
    "Loaded",
    "Look",
    "Looks",
    "Malformed",
    "Mapped",
    "Marked",
    "Needed",
    "Noticed",
    "Observed",
    "Prepared",
    "PutOff",
    "Recorded",
    "Remembered",
    "Remembering",
    "Said",
    "Seen",
    "Sent",
    "Served",
    "Shown",
    "Spending",
    "Spent",
    "Stopped",
    "Stored",
    "Suspended",
    "Taken",
    "Told",
    "Tolerates",
    "Used",
    "Waiting",
    "Wanted",
    "Watched",
    "WatchedController",
    "What",
    "Wish",
    "Written",
];

const KEYWORDS: [&str; 4] = ["struct", "enum", "type", "trait"];

#[test]
fn texts_use_the_words_of_the_glossary() {
    let mut found = Vec::new();
    for file in texts() {
        let text = read(&workspace().join(&file));
        let name = file.display();
        let mut problems = phrases(&text, PHRASES);
        problems.extend(phrases(&sentences(&file, &text), WORDS));
        if file.extension().is_some_and(|extension| extension == "rs") {
            problems.extend(types(&text));
        }
        let problems = problems.into_iter();
        found.extend(problems.map(|(line, problem)| format!("{name}:{line}: {problem}")));
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn a_phrase_is_found_across_lines_and_in_any_case() {
    let text = "/// The plan is Carried\n    /// out, and the item\n    // is worked\n// on.\n";
    assert_eq!(
        phrases(text, PHRASES),
        [
            (
                1,
                "write \"executed\" instead of \"carried out\"".to_owned()
            ),
            (
                3,
                "write \"reconciled\" instead of \"worked on\"".to_owned()
            ),
        ]
    );
    assert_eq!(
        phrases(
            "janewx, carried over, wanted, Harness::carry_output",
            PHRASES
        ),
        []
    );
    let names = phrases(
        "fn a_pod_is_tried_again() {\n    again_after(pause)\n",
        PHRASES,
    );
    let lines: Vec<usize> = names.iter().map(|(line, _)| *line).collect();
    assert_eq!(lines, [1, 2]);
}

#[test]
fn a_message_of_kubernetes_is_quoted_as_it_is() {
    assert_eq!(
        phrases(
            "apply your changes to the latest version and try again",
            PHRASES
        ),
        []
    );
    assert_eq!(phrases("the host will try again", PHRASES).len(), 1);
}

#[test]
fn sentences_are_comments_and_messages_and_no_names() {
    let text =
        "let told = 1; // what {told} has:\n    // a tale is told\nbail!(\"{told} begins\");\n";
    let source = phrases(&sentences(Path::new("a.rs"), text), WORDS);
    let lines: Vec<usize> = source.iter().map(|(line, _)| *line).collect();
    assert_eq!(lines, [2, 3]);
    let two = sentences(Path::new("a.rs"), "a(\"both of\"); b(\"before it\");\n");
    assert_eq!(phrases(&two, WORDS), []);
    let page = sentences(Path::new("a.md"), "The `begin` of it\n");
    assert_eq!(phrases(&page, WORDS), []);
}

#[test]
fn a_type_named_by_a_participle_is_found() {
    let text = "pub(crate) enum Told {\n}\nstruct Toldest;\n    type Kept<T> = T;\n";
    let lines: Vec<usize> = types(text).iter().map(|(line, _)| *line).collect();
    assert_eq!(lines, [1, 4]);
}

/// The text files that have to be clean.
fn texts() -> Vec<PathBuf> {
    let is_text = |file: &Path| {
        let extension = file.extension().and_then(|extension| extension.to_str());
        matches!(
            extension,
            Some("rs" | "wit" | "md" | "json" | "yaml" | "toml")
        )
    };
    let mut files = tracked();
    files.retain(|file| is_text(file) && file != Path::new(LINT));
    files
}

/// The files that git tracks.
pub(crate) fn tracked() -> Vec<PathBuf> {
    let mut git = Command::new("git");
    let output = git.arg("ls-files").current_dir(workspace()).output();
    let output = output.unwrap();
    assert!(output.status.success(), "{output:?}");
    let names = String::from_utf8(output.stdout).unwrap();
    // A file that was just deleted is listed until the deletion is committed.
    let files = names.lines().map(PathBuf::from);
    files
        .filter(|file| workspace().join(file).exists())
        .collect()
}

/// The lines on which a phrase starts, with what to write instead. Names count as
/// text: `a_pod_is_tried_again`.
fn phrases(text: &str, refused: &[(&str, &str)]) -> Vec<(usize, String)> {
    let (mut joined, starts) = join(text);
    for quote in QUOTES {
        joined = joined.replace(quote, &".".repeat(quote.len()));
    }
    let mut found = Vec::new();
    for text in [joined.replace('_', " "), joined] {
        for (phrase, instead) in refused {
            for (position, _) in text.match_indices(phrase) {
                let before = text[..position].chars().next_back();
                let after = text[position + phrase.len()..].chars().next();
                if !before.is_some_and(is_word) && !after.is_some_and(is_word) {
                    let line = starts.partition_point(|start| *start <= position);
                    found.push((line, format!("write \"{instead}\" instead of \"{phrase}\"")));
                }
            }
        }
    }
    found.sort();
    found.dedup();
    found
}

/// The sentences of a file, each on its line: of a source its comments and messages,
/// without the names of code in them (`name`, `{name}`).
fn sentences(file: &Path, text: &str) -> String {
    let is_source = file.extension().is_some_and(|extension| extension == "rs");
    let mut is_message = false;
    let mut sentences = String::new();
    for line in text.lines() {
        let plain = line.replace("\\\"", " ").replace("'\"'", " ");
        let is_comment = plain.trim_start().starts_with("//");
        if !is_source || is_comment {
            is_message = false;
            sentences.push_str(&without(&plain, '`', '`'));
        } else {
            if let Some((_, name)) = plain.split_once("fn ") {
                let name: String = name.chars().take_while(|one| is_word(*one)).collect();
                sentences.push_str(&name.replace('_', " "));
                sentences.push_str("; ");
            }
            for (place, part) in plain.split('"').enumerate() {
                if place > 0 {
                    // Two messages are no sentence together.
                    sentences.push_str(if is_message { "; " } else { " " });
                    is_message = !is_message;
                }
                let comment = part.split_once(" // ").map_or("", |(_, comment)| comment);
                let sentence = if is_message { part } else { comment };
                sentences.push_str(&without(sentence, '{', '}'));
            }
        }
        sentences.push('\n');
    }
    sentences
}

/// A text without what stands between two marks.
fn without(text: &str, open: char, close: char) -> String {
    let mut kept = String::new();
    let mut is_inside = false;
    for character in text.chars() {
        match character {
            _ if is_inside => is_inside = character != close,
            _ if character == open => is_inside = true,
            _ => kept.push(character),
        }
    }
    kept
}

/// The text in lower case as one line, without the marks of comments, and the
/// position at which each line starts.
fn join(text: &str) -> (String, Vec<usize>) {
    let mut joined = String::new();
    let mut starts = Vec::new();
    for line in text.lines() {
        starts.push(joined.len());
        let marks = |character: char| character.is_whitespace() || "/!#>".contains(character);
        for word in line.trim_start_matches(marks).split_whitespace() {
            joined.push_str(&word.to_lowercase());
            joined.push(' ');
        }
    }
    (joined, starts)
}

fn is_word(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}

/// The lines that define a type by one of the refused names.
fn types(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (line, content) in text.lines().enumerate() {
        let words = content.split(|character: char| !is_word(character));
        let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
        let named = words.windows(2).find_map(|pair| match pair {
            [keyword, name] if KEYWORDS.contains(keyword) && TYPES.contains(name) => Some(name),
            _ => None,
        });
        if let Some(name) = named
            && !content.trim_start().starts_with("//")
        {
            found.push((line + 1, format!("{name} is not a noun of the field")));
        }
    }
    found
}
