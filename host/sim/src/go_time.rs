//! Times as Go's `time.Parse` reads them, for the words in which it complains.

/// Go's message about a time that it cannot parse. `micro` selects the layout of
/// `metav1.MicroTime`, which demands six digits of a second's fraction; that of
/// `metav1.Time` takes any number of digits.
pub(crate) fn error(text: &str, micro: bool) -> Option<String> {
    let fraction = if micro { ".000000" } else { "" };
    let layout = format!("2006-01-02T15:04:05{fraction}Z07:00");
    let why = match parse(text, micro) {
        Ok(()) => return None,
        Err(Problem::Syntax(rest, element)) => format!("cannot parse {rest:?} as {element:?}"),
        Err(Problem::Range(what)) => {
            return Some(format!("parsing time {text:?}: {what} out of range"));
        }
        Err(Problem::Extra(rest)) => {
            return Some(format!("parsing time {text:?}: extra text: {rest:?}"));
        }
    };
    Some(format!("parsing time {text:?} as {layout:?}: {why}"))
}

enum Problem<'a> {
    Syntax(&'a str, &'static str),
    Range(&'static str),
    Extra(&'a str),
}

/// An element of the layout: its name, its digits, its range.
type Element = (&'static str, usize, Option<(&'static str, u32, u32)>);

fn parse(text: &str, micro: bool) -> Result<(), Problem<'_>> {
    const ELEMENTS: [Element; 11] = [
        ("2006", 4, None),
        ("-", 0, None),
        ("01", 2, Some(("month", 1, 12))),
        ("-", 0, None),
        ("02", 2, None),
        ("T", 0, None),
        ("15", 2, Some(("hour", 0, 23))),
        (":", 0, None),
        ("04", 2, Some(("minute", 0, 59))),
        (":", 0, None),
        ("05", 2, Some(("second", 0, 59))),
    ];
    let mut rest = text;
    for (element, digits, range) in ELEMENTS {
        rest = if digits == 0 {
            let after = rest.strip_prefix(element);
            after.ok_or(Problem::Syntax(rest, element))?
        } else {
            let (number, after) = number(rest, digits).ok_or(Problem::Syntax(rest, element))?;
            match range {
                Some((what, least, most)) if !(least..=most).contains(&number) => {
                    return Err(Problem::Range(what));
                }
                _ => after,
            }
        };
    }
    rest = fraction(rest, micro)?;
    rest = zone(rest)?;
    if !rest.is_empty() {
        return Err(Problem::Extra(rest));
    }
    // The only error left is a day that its month does not have.
    text.parse::<jiff::Timestamp>()
        .map(drop)
        .map_err(|_| Problem::Range("day"))
}

fn number(text: &str, digits: usize) -> Option<(u32, &str)> {
    let (number, rest) = text.split_at_checked(digits)?;
    let all_digits = number.bytes().all(|byte| byte.is_ascii_digit());
    all_digits
        .then(|| number.parse().ok())?
        .map(|number| (number, rest))
}

fn fraction(text: &str, micro: bool) -> Result<&str, Problem<'_>> {
    const LAYOUT: &str = ".000000";
    if micro {
        let after = text.strip_prefix('.').and_then(|rest| number(rest, 6));
        return after
            .map(|(_, rest)| rest)
            .ok_or(Problem::Syntax(text, LAYOUT));
    }
    let Some(digits) = text.strip_prefix(['.', ',']) else {
        return Ok(text);
    };
    let rest = digits.trim_start_matches(|c: char| c.is_ascii_digit());
    Ok(if rest.len() == digits.len() {
        text
    } else {
        rest
    })
}

fn zone(text: &str) -> Result<&str, Problem<'_>> {
    let failed = || Problem::Syntax(text, "Z07:00");
    if let Some(rest) = text.strip_prefix('Z') {
        return Ok(rest);
    }
    let digits = text.strip_prefix(['+', '-']).ok_or_else(failed)?;
    let (_, minutes) = number(digits, 2).ok_or_else(failed)?;
    let minutes = minutes.strip_prefix(':').ok_or_else(failed)?;
    let (_, rest) = number(minutes, 2).ok_or_else(failed)?;
    Ok(rest)
}

#[cfg(test)]
mod tests {
    use super::error;

    #[test]
    fn the_words_are_gos() {
        for (text, micro, expected) in [
            ("2026-01-02T03:04:05Z", false, None),
            ("2026-01-02T03:04:05.5+01:00", false, None),
            ("2026-01-02T03:04:05.123456Z", true, None),
            ("2026-01-02T03:04:05.123456-07:30", true, None),
            (
                "yesterday",
                false,
                Some(r#" as "2006-01-02T15:04:05Z07:00": cannot parse "yesterday" as "2006""#),
            ),
            (
                "2026-1-2",
                false,
                Some(r#" as "2006-01-02T15:04:05Z07:00": cannot parse "1-2" as "01""#),
            ),
            (
                "2026-01-02",
                false,
                Some(r#" as "2006-01-02T15:04:05Z07:00": cannot parse "" as "T""#),
            ),
            (
                "2026-01-02T03:04:05Z",
                true,
                Some(r#" as "2006-01-02T15:04:05.000000Z07:00": cannot parse "Z" as ".000000""#),
            ),
            (
                "2026-01-02T03:04:05.1234567Z",
                true,
                Some(r#" as "2006-01-02T15:04:05.000000Z07:00": cannot parse "7Z" as "Z07:00""#),
            ),
            ("2026-13-02T03:04:05Z", false, Some(": month out of range")),
            ("2026-02-30T03:04:05Z", false, Some(": day out of range")),
            ("2026-01-02T03:04:05Z?", false, Some(r#": extra text: "?""#)),
        ] {
            let expected = expected.map(|rest| format!("parsing time {text:?}{rest}"));
            assert_eq!(error(text, micro), expected);
        }
    }
}
