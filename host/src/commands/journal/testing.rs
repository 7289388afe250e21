//! Journals for tests.

use davit_core::journal::{Entry, Record, encode};
use davit_core::time::{Instant, Now, Wall};
use davit_journal::{Settings, Writer};
use tempfile::TempDir;

/// A journal of these entries, each with its time in seconds since the Unix epoch. A keyframe
/// starts a segment.
pub(in crate::commands) fn journal(entries: impl IntoIterator<Item = (u32, Entry)>) -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    let (mut writer, _) = Writer::open(directory.path(), Settings::default(), 0).unwrap();
    for (seconds, entry) in entries {
        let micros = i64::from(seconds) * 1_000_000;
        if matches!(entry, Entry::Keyframe { .. }) {
            writer.start_segment(micros, b"").unwrap();
        }
        let is_end = matches!(entry, Entry::KeyframeEnd);
        let now = Now {
            instant: Instant::from_nanos(u64::from(seconds) * 1_000_000_000),
            wall: Wall(i64::from(seconds) * 1_000),
        };
        let encoded = encode(&Record { now, entry });
        let uids: Vec<String> = encoded.uids.iter().map(ToString::to_string).collect();
        let uids: Vec<&str> = uids.iter().map(String::as_str).collect();
        writer.append(micros, &uids, &encoded.payload).unwrap();
        if is_end {
            writer.end_keyframe().unwrap();
        }
    }
    writer.close().unwrap();
    directory
}
