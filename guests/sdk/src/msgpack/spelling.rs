//! The field that was probably meant.
//!
//! The names are ASCII, and the edits are counted in bytes: the tables of other scripts would be in
//! every component.

/// `; did you mean "namespaces"?`, if a known name is near enough for a typing error: two edits
/// for five letters, and one for a shorter name.
pub(super) fn hint(name: &str, known: &[&str]) -> String {
    let distances = known.iter().map(|one| (distance(name, one), one));
    match distances.min_by_key(|(distance, _)| *distance) {
        Some((distance, nearest)) if !name.is_empty() && distance <= limit(name, nearest) => {
            format!("; did you mean \"{nearest}\"?")
        }
        _ => String::new(),
    }
}

fn limit(name: &str, nearest: &str) -> usize {
    (name.len().max(nearest.len()) * 2 / 5).max(1)
}

/// How many letters must be inserted, removed or replaced. The case of a letter does not count.
fn distance(one: &str, other: &str) -> usize {
    if other.is_empty() {
        return one.len();
    }
    let mut line: Vec<usize> = (0..=other.len()).collect();
    for (row, letter) in one.bytes().enumerate() {
        let mut left = row + 1;
        let mut diagonal = row;
        for (place, wanted) in line.iter_mut().skip(1).zip(other.bytes()) {
            let replaced = diagonal + usize::from(!letter.eq_ignore_ascii_case(&wanted));
            diagonal = *place;
            *place = replaced.min(diagonal + 1).min(left + 1);
            left = *place;
        }
    }
    line.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_distance_counts_edits() {
        for (one, other, edits) in [
            ("", "abc", 3),
            ("abc", "", 3),
            ("abc", "abc", 0),
            ("abc", "ABC", 0),
            ("namespace", "namespaces", 1),
            ("kitten", "sitting", 3),
        ] {
            assert_eq!(distance(one, other), edits, "{one} {other}");
            assert_eq!(distance(other, one), edits, "{other} {one}");
        }
    }

    #[test]
    fn only_a_near_name_is_a_hint() {
        let known = ["resource", "namespaces", "labelSelector"];
        assert_eq!(hint("namespace", &known), "; did you mean \"namespaces\"?");
        assert_eq!(
            hint("labelselectors", &known),
            "; did you mean \"labelSelector\"?"
        );
        assert_eq!(hint("kinds", &known), "");
        assert_eq!(hint("", &["a"]), "");
        assert_eq!(hint("é", &[]), "");
    }
}
