//! Quantities, which the library computes with in 128 bits: those that do not fit are refused.

use kube_cel::cel::{ExecutionError, Value};

use super::arguments::{or_empty, wrong};

/// How many digits a quantity may have before its point, and behind it. Kubernetes has 19 and 9.
const WHOLE_DIGITS: i64 = 20;
const FRACTION_DIGITS: i64 = 15;

/// The digits of a suffix, and whether they move the point: those of a power of two do not.
const SUFFIXES: [(&str, i64, bool); 16] = [
    ("n", -9, true),
    ("u", -6, true),
    ("m", -3, true),
    ("", 0, true),
    ("k", 3, true),
    ("M", 6, true),
    ("G", 9, true),
    ("T", 12, true),
    ("P", 15, true),
    ("E", 18, true),
    ("Ki", 4, false),
    ("Mi", 7, false),
    ("Gi", 10, false),
    ("Ti", 13, false),
    ("Pi", 16, false),
    ("Ei", 19, false),
];

/// The text of a quantity that is no larger and no finer than the library can compare and add.
pub(super) fn bounded(operands: &[Value]) -> Result<Value, ExecutionError> {
    match operands {
        [Value::String(text)] if text.trim() != text.as_str() => Err(wrong(
            "quantity",
            format!("\"{text}\" starts or ends with a space"),
        )),
        [Value::String(text)] if !fits(text) => Err(wrong(
            "quantity",
            format!("\"{text}\" is larger or finer than quantities are"),
        )),
        [value] => Ok(value.clone()),
        _ => Err(wrong("quantity", "it takes a text")),
    }
}

/// The text of what may be a quantity; an empty one, which is none, for what is refused.
pub(super) fn candidate(operands: &[Value]) -> Result<Value, ExecutionError> {
    or_empty("isQuantity", operands, bounded)
}

/// Whether a quantity fits. What is none is left to the library.
fn fits(text: &str) -> bool {
    let end = text.find(|c: char| !c.is_ascii_digit() && !"+-.".contains(c));
    let (number, suffix) = text.split_at(end.unwrap_or(text.len()));
    let number = number.trim_start_matches(['+', '-']);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits = |text: &str| i64::try_from(text.len()).unwrap_or(i64::MAX);
    let (whole, fraction) = (
        digits(whole.trim_start_matches('0')),
        digits(fraction.trim_end_matches('0')),
    );
    let (exponent, moves) = match SUFFIXES.iter().find(|(name, ..)| *name == suffix) {
        Some((_, exponent, moves)) => (*exponent, *moves),
        None => match suffix.strip_prefix(['e', 'E']).map(str::parse) {
            Some(Ok(exponent)) => (exponent, true),
            // An exponent that is no number, or another suffix.
            _ => return suffix.len() <= 2 || !suffix.starts_with(['e', 'E']),
        },
    };
    let finer = if moves { exponent } else { 0 };
    whole.saturating_add(exponent) <= WHOLE_DIGITS
        && fraction.saturating_sub(finer) <= FRACTION_DIGITS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantity_fits_if_the_library_can_compute_with_it() {
        for text in [
            "0",
            "1",
            "-1.5Gi",
            "100m",
            "1n",
            "9223372036854775807",
            "8Ei",
            "1e3",
            "1E3",
            "5E",
            "1.000000000",
            "0.1",
            "1e-9",
            "many",
            "1x",
            "1ei",
            "",
            "0000000000000000000000001",
        ] {
            assert!(fits(text), "{text}");
        }
        for text in [
            "1e40",
            "1E40",
            "1e-40",
            "1e99999999999",
            "100000000000000000000000",
            "0.1e-2147483648",
            "0.0000000000000000000000000001",
            "99999E",
            "1000000Ei",
            "0.1234567890123456n",
        ] {
            assert!(!fits(text), "{text}");
        }
    }
}
