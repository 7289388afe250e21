//! The settings of a journal: of the flags, of the configuration file, and the defaults.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use davit_core::api::HumanDuration;
use davit_core::journal::Profile;
use serde_json::Value;

use crate::cli::JournalArguments;
use crate::config::JournalConfig;
use crate::journal::JournalSettings;
use crate::yaml;

/// After this time, an entry may be removed.
const MAX_AGE: Duration = Duration::from_hours(168);
/// The largest size of a journal, in MiB.
const MAX_MIB: u64 = 1024;
/// How often a segment starts.
const SEGMENT_AGE: Duration = Duration::from_hours(6);
/// How long entries may wait until the disk has them.
const SYNC: Duration = Duration::from_secs(1);

/// The settings of the journal, from the flags and from the configuration file, whose values
/// the flags replace; none without a directory.
///
/// Fails if something else is set and no directory is, or if the profile cannot be used.
pub fn settings(flags: &JournalArguments, file: &JournalConfig) -> Result<Option<JournalSettings>> {
    let Some(directory) = flags.journal.as_ref().or(file.directory.as_ref()) else {
        return match first_set(flags, file) {
            None => Ok(None),
            Some(name) => bail!(
                "{name}: there is no journal without --journal, or journal.directory in the \
                 configuration file"
            ),
        };
    };
    let profile = flags.profile.as_ref().or(file.profile.as_ref());
    let profile = profile.map(|path| read_profile(path)).transpose()?;
    let max_mib = flags.journal_max_mib.or(file.max_mib).unwrap_or(MAX_MIB);
    Ok(Some(JournalSettings {
        directory: directory.clone(),
        max_age: first(flags.journal_max_age, file.max_age, MAX_AGE),
        max_bytes: max_mib << 20,
        segment_age: first(flags.journal_segment_age, file.segment_age, SEGMENT_AGE),
        sync: first(flags.journal_sync, file.sync, SYNC),
        profile: profile.unwrap_or_default(),
        is_profile_only: false,
    }))
}

fn first(flag: Option<Duration>, field: Option<HumanDuration>, default: Duration) -> Duration {
    let field = field.map(|HumanDuration(duration)| duration);
    flag.or(field).unwrap_or(default)
}

/// The first flag or field that is set beside the directory.
fn first_set(flags: &JournalArguments, file: &JournalConfig) -> Option<&'static str> {
    let all = [
        ("--journal-max-age", flags.journal_max_age.is_some()),
        ("--journal-max-mib", flags.journal_max_mib.is_some()),
        ("--journal-segment-age", flags.journal_segment_age.is_some()),
        ("--journal-sync", flags.journal_sync.is_some()),
        ("--profile", flags.profile.is_some()),
        ("journal.maxAge", file.max_age.is_some()),
        ("journal.maxMib", file.max_mib.is_some()),
        ("journal.segmentAge", file.segment_age.is_some()),
        ("journal.sync", file.sync.is_some()),
        ("journal.profile", file.profile.is_some()),
    ];
    let mut set = all.into_iter().filter(|(_, is_set)| *is_set);
    set.next().map(|(name, _)| name)
}

fn read_profile(path: &Path) -> Result<Profile> {
    let attempt = || format!("the profile {}", path.display());
    let text = std::fs::read_to_string(path).with_context(attempt)?;
    let value: Value = yaml::one(&text).with_context(attempt)?;
    Profile::read(&value).with_context(attempt)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::config;

    fn file(journal: &str) -> JournalConfig {
        let text = format!("journal: {journal}");
        config::parse(Path::new("c.yaml"), &text).unwrap().journal
    }

    #[test]
    fn a_flag_wins_over_the_file_and_the_file_over_the_default() {
        let none = JournalArguments::default();
        let nothing = JournalConfig::default();
        assert_eq!(
            settings(&none, &nothing).unwrap().map(|it| it.directory),
            None
        );
        let file = file("{directory: /file, maxAge: 2h, maxMib: 16, segmentAge: 30m, sync: 5s}");
        let of_file = settings(&none, &file).unwrap().unwrap();
        assert_eq!(of_file.directory, PathBuf::from("/file"));
        assert_eq!(of_file.max_age, Duration::from_hours(2));
        assert_eq!(of_file.max_bytes, 16 << 20);
        assert_eq!(of_file.segment_age, Duration::from_mins(30));
        assert_eq!(of_file.sync, Duration::from_secs(5));
        let flags = JournalArguments {
            journal: Some("/flag".into()),
            journal_max_age: Some(Duration::from_hours(3)),
            journal_max_mib: Some(32),
            journal_segment_age: Some(Duration::from_mins(10)),
            journal_sync: Some(Duration::from_secs(7)),
            profile: None,
        };
        let of_flags = settings(&flags, &file).unwrap().unwrap();
        assert_eq!(of_flags.directory, PathBuf::from("/flag"));
        assert_eq!(of_flags.max_age, Duration::from_hours(3));
        assert_eq!(of_flags.max_bytes, 32 << 20);
        assert_eq!(of_flags.segment_age, Duration::from_mins(10));
        assert_eq!(of_flags.sync, Duration::from_secs(7));
        let directory = JournalArguments {
            journal: Some("/flag".into()),
            ..JournalArguments::default()
        };
        let default = settings(&directory, &nothing).unwrap().unwrap();
        assert_eq!(default.max_age, Duration::from_hours(168));
        assert_eq!((default.max_bytes, default.sync), (1 << 30, SYNC));
        assert_eq!(default.segment_age, Duration::from_hours(6));
    }

    #[test]
    fn what_is_set_without_a_directory_is_refused_by_name() {
        let none = JournalArguments::default();
        let error = settings(&none, &file("{maxMib: 16}")).unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with("journal.maxMib: there is no journal")
        );
        let flags = JournalArguments {
            journal_sync: Some(SYNC),
            ..none
        };
        let error = settings(&flags, &JournalConfig::default()).unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with("--journal-sync: there is no journal")
        );
    }

    #[test]
    fn a_profile_that_cannot_be_used_is_refused_with_its_file_and_field() {
        let directory = tempfile::tempdir().unwrap();
        let profile = directory.path().join("profile.yaml");
        let text = "resources: [{apiVersion: v1, resource: secrets, fields: [data]}]";
        std::fs::write(&profile, text).unwrap();
        let flags = JournalArguments {
            journal: Some("/flag".into()),
            profile: Some(profile.clone()),
            ..JournalArguments::default()
        };
        let error = settings(&flags, &JournalConfig::default()).unwrap_err();
        let error = format!("{error:#}");
        assert!(
            error.starts_with(&format!("the profile {}", profile.display())),
            "{error}"
        );
        assert!(
            error.contains("resources[0].fields[0]: data has data of Secrets"),
            "{error}"
        );
    }
}
