//! Ages as people read them.

use serde_json::Value;

use crate::object::Object;
use crate::time::Time;

/// The age of an object.
pub(super) fn of_object(object: &Object, now: Time) -> Value {
    since(object.metadata.creation_timestamp, now).into()
}

/// The time since the time in a field.
pub(super) fn of_value(value: Option<&Value>, now: Time) -> Value {
    match value.and_then(Value::as_str) {
        None => "<unknown>".into(),
        Some(text) => match Time::parse(text) {
            Some(at) => since(Some(at), now).into(),
            None => "<invalid>".into(),
        },
    }
}

/// The time between two points, in the two largest units that matter.
pub(super) fn since(at: Option<Time>, now: Time) -> String {
    let Some(at) = at else {
        return "<unknown>".to_owned();
    };
    human(now.unix().saturating_sub(at.unix()))
}

/// A duration in seconds, as kubectl writes it.
pub(super) fn human(seconds: i64) -> String {
    let two = |large: i64, unit: &str, small: i64, small_unit: &str| {
        if small == 0 {
            format!("{large}{unit}")
        } else {
            format!("{large}{unit}{small}{small_unit}")
        }
    };
    let (minutes, hours) = (seconds / 60, seconds / 3600);
    let (days, years) = (hours / 24, hours / 24 / 365);
    match seconds {
        ..-1 => "<invalid>".to_owned(),
        -1..0 => "0s".to_owned(),
        _ if seconds < 120 => format!("{seconds}s"),
        _ if minutes < 10 => two(minutes, "m", seconds % 60, "s"),
        _ if minutes < 180 => format!("{minutes}m"),
        _ if hours < 8 => two(hours, "h", minutes % 60, "m"),
        _ if hours < 48 => format!("{hours}h"),
        _ if days < 8 => two(days, "d", hours % 24, "h"),
        _ if days < 730 => format!("{days}d"),
        _ if years < 8 => two(years, "y", days % 365, "d"),
        _ => format!("{years}y"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_kubectl_writes_them() {
        for (seconds, text) in [
            (-5, "<invalid>"),
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (125, "2m5s"),
            (660, "11m"),
            (3 * 3600, "3h"),
            (3 * 3600 + 60, "3h1m"),
            (9 * 3600, "9h"),
            (49 * 3600, "2d1h"),
            (9 * 86400, "9d"),
            (731 * 86400, "2y1d"),
        ] {
            assert_eq!(human(seconds), text, "{seconds}");
        }
    }
}
