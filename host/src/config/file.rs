//! The configuration file, which is read again each second while the host runs.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use davit_cluster::api::chain;
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval};

use super::{ConfigError, read};

/// How often the file is read. A mounted `ConfigMap` changes by a link, which a watch of the file
/// would miss.
const PERIOD: Duration = Duration::from_secs(1);

/// A configuration file and its last content.
#[derive(Debug)]
pub struct ConfigFile {
    /// The file.
    pub path: PathBuf,
    /// Its content.
    pub text: String,
}

impl ConfigFile {
    /// Reads the file.
    pub fn open(path: PathBuf) -> Result<Self, ConfigError> {
        let text = read(&path)?;
        Ok(Self { path, text })
    }

    /// Sends each further content. The file may lie on a disk that does not answer: neither a signal
    /// nor another source of controllers waits for it.
    #[must_use]
    pub fn follow(self) -> mpsc::Receiver<String> {
        let (sender, changes) = mpsc::channel(1);
        tokio::spawn(async move {
            let mut looks = Looks::new(self.text);
            let mut period = interval(PERIOD);
            period.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                period.tick().await;
                let path = self.path.clone();
                let found = tokio::task::spawn_blocking(move || {
                    // To open a pipe would wait for a writer.
                    if fs::metadata(&path).is_ok_and(|found| !found.is_file()) {
                        return Err("it is not a regular file".to_owned());
                    }
                    read(&path).map_err(|error| chain(&error))
                });
                let found = found.await.unwrap_or_else(|error| Err(error.to_string()));
                match looks.take(found) {
                    Look::Nothing => {}
                    Look::Changed(text) => {
                        if sender.send(text).await.is_err() {
                            return;
                        }
                    }
                    Look::Unfinished => tracing::warn!(
                        path = %self.path.display(),
                        "the configuration ends within a line, as one does that is written in \
                         part: it is not applied"
                    ),
                    Look::Unreadable(error) => tracing::warn!(
                        path = %self.path.display(),
                        error,
                        "the configuration cannot be read again: a change of it has no effect"
                    ),
                }
            }
        });
        changes
    }
}

/// What the looks at a file have shown.
#[derive(Debug)]
struct Looks {
    /// The content that is in force.
    applied: String,
    /// What the last look found.
    last: Result<String, String>,
    /// What was said last, until the file is as it should be.
    said: Option<Look>,
}

/// What a look at a file means.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Look {
    Nothing,
    /// The file has this content.
    Changed(String),
    /// The last line has no end, which it had before.
    Unfinished,
    /// It cannot be read, for this reason.
    Unreadable(String),
}

impl Looks {
    fn new(applied: String) -> Self {
        Self {
            last: Ok(applied.clone()),
            applied,
            said: None,
        }
    }

    /// Takes what a look has found. Only what two looks in a row have found counts: a file that is
    /// written in place is half of itself for a moment, which may be a valid configuration with another
    /// threshold, and one that is replaced may be missing.
    fn take(&mut self, found: Result<String, String>) -> Look {
        let look = match &found {
            _ if found != self.last => Look::Nothing,
            Ok(text) if *text == self.applied => {
                self.said = None;
                Look::Nothing
            }
            // A disk that is full leaves such a file.
            Ok(text) if self.applied.ends_with('\n') && !text.ends_with('\n') => {
                self.once(Look::Unfinished)
            }
            Ok(text) => {
                self.said = None;
                text.clone_into(&mut self.applied);
                Look::Changed(text.clone())
            }
            Err(error) => self.once(Look::Unreadable(error.clone())),
        };
        self.last = found;
        look
    }

    fn once(&mut self, look: Look) -> Look {
        if self.said.as_ref() == Some(&look) {
            return Look::Nothing;
        }
        self.said = Some(look.clone());
        look
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Result<String, String> {
        Ok(text.to_owned())
    }

    fn unreadable() -> Result<String, String> {
        Err("no".to_owned())
    }

    #[test]
    fn a_file_that_is_written_in_place_counts_when_it_is_whole() {
        let mut looks = Looks::new("threshold: 12\n".to_owned());
        assert_eq!(looks.take(found("threshold: 1")), Look::Nothing);
        assert_eq!(looks.take(found("threshold: 13\n")), Look::Nothing);
        let changed = Look::Changed("threshold: 13\n".to_owned());
        assert_eq!(looks.take(found("threshold: 13\n")), changed);
        assert_eq!(looks.take(found("threshold: 13\n")), Look::Nothing);
        // It is missing while it is replaced.
        assert_eq!(looks.take(unreadable()), Look::Nothing);
        assert_eq!(looks.take(found("threshold: 13\n")), Look::Nothing);
    }

    #[test]
    fn a_file_that_stays_half_written_is_reported_once_and_not_applied() {
        let mut looks = Looks::new("threshold: 12\n".to_owned());
        let all: Vec<Look> = (0..4).map(|_| looks.take(found("threshold: 1"))).collect();
        assert_eq!(
            all,
            [
                Look::Nothing,
                Look::Unfinished,
                Look::Nothing,
                Look::Nothing
            ]
        );
        // One that never had an end of its last line is whole without it.
        let mut looks = Looks::new("threshold: 12".to_owned());
        looks.take(found("threshold: 1"));
        let changed = Look::Changed("threshold: 1".to_owned());
        assert_eq!(looks.take(found("threshold: 1")), changed);
    }

    #[test]
    fn a_file_that_cannot_be_read_is_reported_once() {
        let mut looks = Looks::new("a\n".to_owned());
        let all: Vec<Look> = (0..3).map(|_| looks.take(unreadable())).collect();
        let said = Look::Unreadable("no".to_owned());
        assert_eq!(all, [Look::Nothing, said.clone(), Look::Nothing]);
        looks.take(found("a\n"));
        looks.take(found("a\n"));
        looks.take(unreadable());
        assert_eq!(looks.take(unreadable()), said);
    }
}
