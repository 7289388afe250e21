//! Times as Kubernetes writes them.

use jiff::Timestamp;

use crate::time::Wall;

/// A time as Kubernetes writes it: to the second.
pub(crate) fn time(at: Wall) -> String {
    timestamp(at).strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// A time that identifies something: to the millisecond.
pub(crate) fn precise_time(at: Wall) -> String {
    let at = timestamp(at);
    at.strftime("%Y-%m-%dT%H:%M:%S.%3fZ").to_string()
}

/// A `MicroTime`: Kubernetes reads it with exactly six digits.
pub(crate) fn micro_time(at: Wall) -> String {
    let at = timestamp(at);
    at.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
}

/// Parses a time; none if the text is not a time.
pub(crate) fn read(text: &str) -> Option<Wall> {
    let at: Timestamp = text.parse().ok()?;
    Some(Wall(at.as_millisecond()))
}

fn timestamp(at: Wall) -> Timestamp {
    Timestamp::from_millisecond(at.0).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_read_as_it_is_written() {
        let at = Wall(1_795_176_000_123);
        assert_eq!(precise_time(at), "2026-11-20T12:00:00.123Z");
        assert_eq!(read(&precise_time(at)), Some(at));
        assert_eq!(time(at), "2026-11-20T12:00:00Z");
        assert_eq!(micro_time(at), "2026-11-20T12:00:00.123000Z");
        assert_eq!(read(&micro_time(at)), Some(at));
        assert_eq!(read("noon"), None);
    }
}
