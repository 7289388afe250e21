//! The time that a backtest is asked for, and how far the journal reaches.

use davit_core::backtest::AskedSpan;
use davit_core::time::Wall;
use davit_journal::Reader;
use jiff::Timestamp;

use crate::cli::SpanArguments;
use crate::journal::SegmentOrigin;

/// The time that the command names.
pub(super) fn asked(reader: &Reader, span: &SpanArguments) -> AskedSpan {
    let wall = |at: Timestamp| Wall(at.as_millisecond());
    let reaches = |to: Timestamp| is_recorded(reader, to.as_microsecond());
    AskedSpan {
        from: span.from.map(wall),
        to: span.to.map(wall),
        is_reached: span.to.is_some_and(reaches),
    }
}

/// Whether a host recorded at a time, in microseconds since the Unix epoch: within a segment, or
/// between two of which the second one continues the first one.
fn is_recorded(reader: &Reader, at: i64) -> bool {
    let mut former: Option<(u64, i64)> = None;
    for segment in reader.segments() {
        let last = segment.times.map_or(segment.start, |(_, last)| last);
        let continued = former.filter(|(sequence, _)| {
            sequence + 1 == segment.sequence && SegmentOrigin::read(&segment.metadata).continues
        });
        let from = continued.map_or(segment.start, |(_, end)| end.min(segment.start));
        if (from..=last).contains(&at) {
            return true;
        }
        former = Some((segment.sequence, last));
    }
    false
}

#[cfg(test)]
mod tests {
    use davit_core::journal::Entry;
    use davit_journal::{Settings, Writer};

    use super::*;
    use crate::commands::journal::testing::append;

    /// Writes a segment with an entry at its end.
    fn segment(writer: &mut Writer, start: u32, end: u32, continues: bool) {
        let origin = SegmentOrigin {
            continues,
            ..SegmentOrigin::default()
        };
        let metadata = serde_json::to_vec(&origin).unwrap();
        let micros = i64::from(start) * 1_000_000;
        writer.start_segment(micros, &metadata).unwrap();
        append(writer, start, Entry::Keyframe { is_start: true });
        append(writer, start, Entry::KeyframeEnd);
        let removed = Entry::Removed {
            controller: "podgc".to_owned(),
        };
        append(writer, end, removed);
    }

    #[test]
    fn a_time_is_recorded_within_segments_and_where_one_continues_another() {
        let directory = tempfile::tempdir().unwrap();
        let (mut writer, _) = Writer::open(directory.path(), Settings::default(), 0).unwrap();
        for (start, end, continues) in [(10, 20, false), (30, 40, true), (50, 60, false)] {
            segment(&mut writer, start, end, continues);
        }
        writer.close().unwrap();
        let reader = Reader::open(directory.path()).unwrap();
        for (at, expected) in [
            (5, false),
            (10, true),
            (15, true),
            (20, true),
            (25, true),
            (35, true),
            (40, true),
            (45, false),
            (55, true),
            (60, true),
            (61, false),
        ] {
            assert_eq!(is_recorded(&reader, at * 1_000_000), expected, "{at}");
        }
    }
}
