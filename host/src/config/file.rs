//! The configuration file, which is read again each second while the host runs.

use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, mem};

use davit_cluster::api::chain;
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval};

use super::{ConfigError, read};
use crate::repeat::RepeatedLine;

/// How often the file is read. A mounted `ConfigMap` changes by a link, which a watch of the file
/// would miss.
const PERIOD: Duration = Duration::from_secs(1);

const UNFINISHED: &str =
    "the configuration ends within a line, as a file does that is written in part";

/// A configuration file and its last content.
#[derive(Debug)]
pub struct ConfigFile {
    /// The file.
    pub path: PathBuf,
    content: Content,
}

/// What a reading has found.
#[derive(Clone, Debug)]
struct Content {
    text: String,
    /// The file itself, behind all links: another one after a mounted `ConfigMap` has changed.
    place: PathBuf,
}

impl ConfigFile {
    /// Reads the file.
    pub fn open(path: PathBuf) -> Result<Self, ConfigError> {
        let place = fs::canonicalize(&path).unwrap_or_default();
        let text = read(&path)?;
        if !text.is_empty() && !text.ends_with('\n') {
            tracing::warn!(path = %path.display(), "{UNFINISHED}");
        }
        let content = Content { text, place };
        Ok(Self { path, content })
    }

    /// Its content.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.content.text
    }

    /// Sends each further content. The file may lie on a disk that does not answer: neither a signal
    /// nor another source of controllers waits for it.
    #[must_use]
    pub fn follow(self) -> mpsc::Receiver<String> {
        let Self { path, content } = self;
        let (sender, changes) = mpsc::channel(1);
        tokio::spawn(async move {
            let mut readings = Readings::new(content);
            let lines = RepeatedLine::new();
            let mut period = interval(PERIOD);
            period.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                period.tick().await;
                let read_path = path.clone();
                let found = tokio::task::spawn_blocking(move || content_of(&read_path)).await;
                let found = found.unwrap_or_else(|error| Err(error.to_string()));
                let problem = match readings.take(found) {
                    Finding::Nothing => continue,
                    Finding::Changed(text) => match sender.send(text).await {
                        Ok(()) => continue,
                        Err(_) => return,
                    },
                    Finding::Unfinished => {
                        format!(
                            "{UNFINISHED}: it is applied once its last line ends, or at a restart"
                        )
                    }
                    Finding::Unreadable(error) => {
                        format!("the configuration cannot be read: {error}: a change has no effect")
                    }
                };
                if let Some(suppressed) = lines.admit(&problem) {
                    tracing::warn!(path = %path.display(), "{problem}{suppressed}");
                }
            }
        });
        changes
    }
}

fn content_of(path: &Path) -> Result<Content, String> {
    let place = fs::canonicalize(path).map_err(|error| error.to_string())?;
    let found = fs::metadata(path).map_err(|error| error.to_string())?;
    // To open a pipe would wait for a writer.
    if !found.is_file() {
        return Err("it is not a regular file".to_owned());
    }
    let text = read(path).map_err(|error| chain(&error))?;
    Ok(Content { text, place })
}

/// What the readings of a file have found.
#[derive(Debug)]
struct Readings {
    /// What was sent last.
    sent: Content,
    /// What the last reading found.
    last: Result<Content, String>,
}

/// What a reading of a file means.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Finding {
    Nothing,
    /// The file has this content.
    Changed(String),
    /// The last line has no end, which it had before.
    Unfinished,
    /// It cannot be read, for this reason.
    Unreadable(String),
}

impl Readings {
    fn new(sent: Content) -> Self {
        Self {
            last: Ok(sent.clone()),
            sent,
        }
    }

    /// Takes what a reading has found. Only what two in a row have found counts: a file that is
    /// written in place is half of itself for a moment, which may be a valid configuration with another
    /// threshold, and one that is replaced may be missing.
    fn take(&mut self, found: Result<Content, String>) -> Finding {
        let former = mem::replace(&mut self.last, found);
        match (&self.last, former) {
            (Ok(content), Ok(former)) if content.text == former.text => {
                if content.text == self.sent.text {
                    self.sent.place.clone_from(&content.place);
                    Finding::Nothing
                } else if content.is_part_of(&self.sent) {
                    Finding::Unfinished
                } else {
                    self.sent = content.clone();
                    Finding::Changed(content.text.clone())
                }
            }
            (Err(error), Err(former)) if *error == former => Finding::Unreadable(former),
            _ => Finding::Nothing,
        }
    }
}

impl Content {
    /// Whether somebody writes, or has written, a part of a file in place of this former content: a disk
    /// that is full leaves it so. What a link leads to since then is whole.
    fn is_part_of(&self, former: &Self) -> bool {
        self.place == former.place && former.text.ends_with('\n') && !self.text.ends_with('\n')
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(text: &str) -> Content {
        Content {
            text: text.to_owned(),
            place: "/etc/davit/..2026/davit.yaml".into(),
        }
    }

    fn unreadable() -> Result<Content, String> {
        Err("no".to_owned())
    }

    #[test]
    fn a_file_that_is_written_in_place_counts_when_it_is_whole() {
        let mut readings = Readings::new(content("threshold: 12\n"));
        let mut take = |found| readings.take(found);
        assert_eq!(take(Ok(content("threshold: 1"))), Finding::Nothing);
        assert_eq!(take(Ok(content("threshold: 13\n"))), Finding::Nothing);
        let changed = Finding::Changed("threshold: 13\n".to_owned());
        assert_eq!(take(Ok(content("threshold: 13\n"))), changed);
        assert_eq!(take(Ok(content("threshold: 13\n"))), Finding::Nothing);
        // It is missing while it is replaced.
        assert_eq!(take(unreadable()), Finding::Nothing);
        assert_eq!(take(Ok(content("threshold: 13\n"))), Finding::Nothing);
    }

    #[test]
    fn a_file_that_stays_half_written_is_not_applied() {
        let mut readings = Readings::new(content("threshold: 12\n"));
        readings.take(Ok(content("threshold: 1")));
        for _ in 0..3 {
            let found = readings.take(Ok(content("threshold: 1")));
            assert_eq!(found, Finding::Unfinished);
        }
        // What another link leads to is whole.
        let replaced = Content {
            place: "/etc/davit/..2027/davit.yaml".into(),
            ..content("threshold: 1")
        };
        let changed = Finding::Changed("threshold: 1".to_owned());
        assert_eq!(readings.take(Ok(replaced)), changed);
        // So is one that never had an end of its last line.
        let mut readings = Readings::new(content("threshold: 12"));
        readings.take(Ok(content("threshold: 1")));
        assert_eq!(readings.take(Ok(content("threshold: 1"))), changed);
    }

    #[test]
    fn a_file_that_cannot_be_read_is_reported_unless_it_is_for_a_moment() {
        let mut readings = Readings::new(content("a\n"));
        let mut take = |found| readings.take(found);
        assert_eq!(take(unreadable()), Finding::Nothing);
        assert_eq!(take(Ok(content("a\n"))), Finding::Nothing);
        assert_eq!(take(unreadable()), Finding::Nothing);
        assert_eq!(take(unreadable()), Finding::Unreadable("no".to_owned()));
    }
}
