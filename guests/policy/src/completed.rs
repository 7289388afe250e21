//! Whether an object has what a patch gives it, though the API server writes it in other words: it
//! adds defaults to the elements of lists, and has one form of each quantity. A rule that patched
//! such an object again would never come to rest.

use davit_guest::dynamic::Value;

/// Where everything is what it is: the API server adds nothing, and there are no quantities. The last
/// three are of `ConfigMap`s and Secrets.
const EXACT: [&str; 4] = ["metadata", "data", "stringData", "binaryData"];

/// Whether a value has everything of another one. Both are in this field of an object.
pub(crate) fn has(value: &Value, wanted: &Value, root: Option<&str>) -> bool {
    if value == wanted || root.is_some_and(|root| EXACT.contains(&root)) {
        return value == wanted;
    }
    match (value, wanted) {
        (value, Value::Map(entries)) => entries
            .iter()
            .all(|(key, wanted)| value.get(key).is_some_and(|value| has(value, wanted, root))),
        (Value::List(values), Value::List(wanted)) => {
            let mut pairs = values.iter().zip(wanted);
            values.len() == wanted.len() && pairs.all(|(value, wanted)| has(value, wanted, root))
        }
        (value, wanted) => {
            let nanos = |value: &Value| match value {
                Value::Text(text) => nanos(text),
                // A quantity may be written as a number.
                Value::Int(number) => nanos(&number.to_string()),
                _ => None,
            };
            is_canonical(value) && nanos(value).is_some_and(|number| Some(number) == nanos(wanted))
        }
    }
}

/// Whether the API server may have written a value as a quantity: without a fraction. `1.1` is some
/// other text, such as a version, and another one than `1.10`.
fn is_canonical(value: &Value) -> bool {
    let Value::Text(text) = value else {
        return true;
    };
    let digits = text.trim_start_matches('-');
    !text.contains('.') && (digits == "0" || !digits.starts_with('0'))
}

/// A quantity in units of 10⁻⁹; none for what is none, or too large or too fine.
fn nanos(text: &str) -> Option<i128> {
    let (sign, text) = match text.strip_prefix('-') {
        Some(text) => (-1, text),
        None => (1, text),
    };
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.');
    let (number, suffix) = text.split_at(end.unwrap_or(text.len()));
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let mantissa: i128 = format!("{whole}{fraction}").parse().ok()?;
    let (factor, exponent) = factor(suffix)?;
    let exponent = exponent
        .checked_add(9)?
        .checked_sub(i32::try_from(fraction.len()).ok()?)?;
    let power = 10_i128.checked_pow(exponent.unsigned_abs())?;
    let value = mantissa.checked_mul(factor)?;
    if exponent >= 0 {
        return value.checked_mul(power)?.checked_mul(sign);
    }
    (value % power == 0).then(|| sign * (value / power))
}

/// By what a suffix multiplies: a factor, and a power of ten.
fn factor(suffix: &str) -> Option<(i128, i32)> {
    let binary = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"].iter().zip(1_u32..);
    let mut binary = binary.filter(|(name, _)| **name == suffix);
    if let Some((_, power)) = binary.next() {
        return Some((1024_i128.pow(power), 0));
    }
    let exponent = match suffix {
        "n" => -9,
        "u" => -6,
        "m" => -3,
        "" => 0,
        "k" => 3,
        "M" => 6,
        "G" => 9,
        "T" => 12,
        "P" => 15,
        "E" => 18,
        _ => suffix.strip_prefix(['e', 'E'])?.parse().ok()?,
    };
    Some((1, exponent))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_quantity_equals_its_other_forms_and_nothing_else() {
        let equal = |a: &str, b: &str| nanos(a).is_some_and(|a| Some(a) == nanos(b));
        for (a, b) in [
            ("0.5", "500m"),
            ("1000m", "1"),
            ("1024Ki", "1Mi"),
            ("1.5Gi", "1536Mi"),
            ("1e3", "1k"),
            ("1E3", "1000"),
            ("-2", "-2000m"),
            ("5.0", "5"),
            ("100u", "0.1m"),
        ] {
            assert!(equal(a, b), "{a} {b}");
        }
        for (a, b) in [
            ("1", "1m"),
            ("1M", "1Mi"),
            ("", ""),
            ("1 ", "1"),
            ("x", "x"),
            ("1e999", "1e999"),
            ("1.2.3", "1.2.3"),
            ("0.1n", "0.1n"),
        ] {
            assert!(!equal(a, b), "{a} {b}");
        }
    }

    #[test]
    fn what_the_server_adds_to_an_element_is_no_difference_and_what_it_lacks_is_one() {
        let has =
            |value, wanted, root: &str| has(&Value::of(&value), &Value::of(&wanted), Some(root));
        let ports = json!([{"port": 80, "protocol": "TCP"}]);
        assert!(has(ports.clone(), json!([{"port": 80}]), "spec"));
        assert!(!has(ports.clone(), json!([{"port": 81}]), "spec"));
        assert!(!has(ports, json!([{"port": 80}, {"port": 81}]), "spec"));
        assert!(!has(json!([1, 2]), json!([2, 1]), "spec"));
        assert!(has(json!({"cpu": "500m"}), json!({"cpu": "0.5"}), "spec"));
        assert!(has(json!("2"), json!(2), "spec"));
        let labels = json!({"a": "2", "b": "c"});
        assert!(!has(labels.clone(), json!({"a": "2"}), "metadata"));
        assert!(has(labels.clone(), labels, "metadata"));
        assert!(!has(json!("2"), json!("2.0"), "metadata"));
        for (value, wanted) in [("1.1", "1.10"), ("007", "7"), ("0.5", "500m")] {
            assert!(
                !has(json!(value), json!(wanted), "spec"),
                "{value} {wanted}"
            );
        }
        assert!(has(json!("0"), json!("0.0"), "spec"));
        assert!(!has(
            json!({"version": "1.1"}),
            json!({"version": "1.10"}),
            "data"
        ));
    }
}
