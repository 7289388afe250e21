//! The formats of texts that a schema may demand.

use std::net::{Ipv4Addr, Ipv6Addr};

use base64::alphabet::STANDARD;
use base64::engine::general_purpose::{GeneralPurpose, PAD};
use base64::prelude::Engine as _;

use crate::time::Time;

/// Whether a text has a format. Every text has a format that the server does not know
/// or that is not modelled.
#[must_use]
pub(super) fn fits(format: &str, text: &str) -> bool {
    match format.replace('-', "").as_str() {
        "datetime" => Time::parse(text).is_some(),
        "date" => is_date(text),
        "duration" => is_duration(text),
        "ipv4" => text.parse::<Ipv4Addr>().is_ok(),
        "ipv6" => text.parse::<Ipv6Addr>().is_ok(),
        "cidr" => is_cidr(text),
        "uuid" => is_uuid(text, None),
        "uuid3" => is_uuid(text, Some('3')),
        "uuid4" => is_uuid(text, Some('4')),
        "uuid5" => is_uuid(text, Some('5')),
        "hostname" => is_host(text),
        "email" => is_email(text),
        "uri" => is_uri(text),
        "mac" => is_mac(text),
        "byte" => is_base64(text),
        "k8sshortname" => text.len() <= 63 && is_label(&text.to_lowercase()),
        "k8slongname" => text.len() <= 253 && text.to_lowercase().split('.').all(is_label),
        _ => true,
    }
}

fn digits(text: &str, count: usize) -> bool {
    text.len() == count && text.bytes().all(|c| c.is_ascii_digit())
}

fn is_date(text: &str) -> bool {
    let parts: Vec<&str> = text.split('-').collect();
    let [year, month, day] = parts.as_slice() else {
        return false;
    };
    digits(year, 4)
        && digits(month, 2)
        && digits(day, 2)
        && text.parse::<jiff::civil::Date>().is_ok()
}

/// Numbers with units: `1h30m`, `22 ns`, `-1.5s`; or a bare 0.
fn is_duration(text: &str) -> bool {
    const UNITS: [&str; 26] = [
        "ns",
        "nano",
        "nanosecond",
        "nanoseconds",
        "nanos",
        "us",
        "µs",
        "μs",
        "micro",
        "micros",
        "microsecond",
        "microseconds",
        "ms",
        "milli",
        "millis",
        "millisecond",
        "milliseconds",
        "s",
        "sec",
        "second",
        "m",
        "min",
        "minute",
        "h",
        "hour",
        "d",
    ];
    let mut rest = text.trim_start_matches(['+', '-']);
    if rest == "0" {
        return true;
    }
    while !rest.is_empty() {
        let number = rest.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
        if number.len() == rest.len() {
            return false;
        }
        let unit = number.trim_start();
        let end = unit
            .find(|c: char| !c.is_alphabetic())
            .unwrap_or(unit.len());
        let Some((unit, after)) = unit.split_at_checked(end) else {
            return false;
        };
        if !UNITS.contains(&unit) && !UNITS.contains(&unit.trim_end_matches('s')) {
            return false;
        }
        rest = after;
    }
    !text.is_empty()
}

fn is_cidr(text: &str) -> bool {
    let Some((address, bits)) = text.split_once('/') else {
        return false;
    };
    let most = match (address.parse::<Ipv4Addr>(), address.parse::<Ipv6Addr>()) {
        (Ok(_), _) => 32,
        (_, Ok(_)) => 128,
        _ => return false,
    };
    bits.parse::<u8>().is_ok_and(|bits| bits <= most)
}

fn is_uuid(text: &str, version: Option<char>) -> bool {
    let hex: Vec<char> = text.chars().filter(|c| *c != '-').collect();
    hex.len() == 32
        && hex.iter().all(char::is_ascii_hexdigit)
        && version.is_none_or(|version| hex.get(12) == Some(&version))
}

fn is_label(text: &str) -> bool {
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    !text.is_empty() && text.chars().all(fits) && !text.starts_with('-') && !text.ends_with('-')
}

fn is_host(text: &str) -> bool {
    let text = text.strip_suffix('.').unwrap_or(text);
    text.len() <= 253
        && text
            .split('.')
            .all(|part| part.len() <= 63 && is_label(&part.to_lowercase()))
}

fn is_email(text: &str) -> bool {
    text.rsplit_once('@').is_some_and(|(user, host)| {
        !user.is_empty() && !user.contains(char::is_whitespace) && is_host(host)
    })
}

/// As Go's `ParseRequestURI`: absolute, or a path from the root.
fn is_uri(text: &str) -> bool {
    text.starts_with('/')
        || text.split_once(':').is_some_and(|(scheme, rest)| {
            let letter = |c: char| c.is_ascii_alphanumeric() || "+-.".contains(c);
            scheme.starts_with(|c: char| c.is_ascii_alphabetic())
                && scheme.chars().all(letter)
                && !rest.is_empty()
        })
}

fn is_mac(text: &str) -> bool {
    let parts: Vec<&str> = text.split([':', '-']).collect();
    [6, 8, 20].contains(&parts.len())
        && parts
            .iter()
            .all(|part| part.len() == 2 && part.bytes().all(|c| c.is_ascii_hexdigit()))
}

/// The server matches the characters and the padding only: bits that stand for no byte
/// may be set.
fn is_base64(text: &str) -> bool {
    let lenient = PAD.with_decode_allow_trailing_bits(true);
    GeneralPurpose::new(&STANDARD, lenient).decode(text).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_have_formats() {
        for (format, good, bad) in [
            ("date-time", "2026-01-02T03:04:05Z", "yesterday"),
            ("date", "2026-01-31", "2026-02-31"),
            ("duration", "1h30m", "long"),
            ("ipv4", "10.0.0.1", "10.0.0"),
            ("ipv6", "::1", "10.0.0.1"),
            ("cidr", "10.0.0.0/8", "10.0.0.0/33"),
            ("uuid", "11111111-1111-1111-1111-111111111111", "1"),
            (
                "uuid4",
                "11111111-1111-4111-8111-111111111111",
                "11111111-1111-1111-1111-111111111111",
            ),
            ("hostname", "a.example.com", "-a"),
            ("email", "me@example.com", "me"),
            ("uri", "https://example.com/a", "example"),
            ("mac", "00:11:22:33:44:55", "00:11"),
            ("byte", "YQ==", "a"),
            ("k8s-short-name", "abc", "a.b"),
        ] {
            assert!(fits(format, good), "{format}: {good}");
            assert!(!fits(format, bad), "{format}: {bad}");
        }
        assert!(fits("byte", "YR=="));
        assert!(fits("of-my-own", "anything"));
    }
}
