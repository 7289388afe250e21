//! The name that was probably meant.

/// The nearest of these names, if it is near enough for a typing error: two edits for five
/// letters, and one for a shorter name. Of several as near, the first.
pub fn nearest<'a>(name: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let distances = names.map(|one| (distance(name, one), one));
    let (distance, nearest) = distances.min_by_key(|(distance, _)| *distance)?;
    let letters = name.len().max(nearest.len());
    (distance <= (letters * 2 / 5).max(1)).then_some(nearest)
}

/// How many characters must be inserted, removed, replaced or swapped with their
/// neighbour to make one name from the other. An upper-case letter is the same as its
/// lower-case one.
fn distance(one: &str, other: &str) -> usize {
    let lower = |name: &str| -> Vec<char> { name.to_lowercase().chars().collect() };
    let (one, other) = (lower(one), lower(other));
    let mut before = Vec::new();
    let mut last: Vec<usize> = (0..=other.len()).collect();
    for (row, letter) in one.iter().enumerate() {
        let mut next = vec![row + 1];
        for (column, wanted) in other.iter().enumerate() {
            let at =
                |line: &[usize], column: usize| line.get(column).copied().unwrap_or(usize::MAX);
            let replaced = at(&last, column) + usize::from(letter != wanted);
            let edited = at(&last, column + 1).min(at(&next, column)) + 1;
            let mut best = replaced.min(edited);
            if is_swap(&one, row, &other, column) {
                best = best.min(at(&before, column - 1) + 1);
            }
            next.push(best);
        }
        before = std::mem::replace(&mut last, next);
    }
    last.last().copied().unwrap_or_default()
}

/// Whether the letters at these places and before them are each other's.
fn is_swap(one: &[char], row: usize, other: &[char], column: usize) -> bool {
    let pair = |letters: &[char], end: usize| {
        let before = end.checked_sub(1)?;
        Some((*letters.get(before)?, *letters.get(end)?))
    };
    let (one, other) = (pair(one, row), pair(other, column));
    one.is_some() && one == other.map(|(first, second)| (second, first))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_distance_counts_edits_and_swaps() {
        for (one, other, edits) in [
            ("", "", 0),
            ("", "abc", 3),
            ("phase", "phase", 0),
            ("nodename", "nodeName", 0),
            ("fase", "phase", 2),
            ("statsu", "status", 1),
            ("stauts", "status", 1),
            ("ab", "ba", 1),
            ("kitten", "sitting", 3),
        ] {
            assert_eq!(distance(one, other), edits, "{one} {other}");
            assert_eq!(distance(other, one), edits, "{other} {one}");
        }
    }

    #[test]
    fn a_name_that_is_not_near_is_not_suggested() {
        let names = ["metadata", "spec", "status"];
        let nearest = |name| nearest(name, names.into_iter());
        assert_eq!(nearest("statsu"), Some("status"));
        assert_eq!(nearest("spce"), Some("spec"));
        assert_eq!(nearest("containers"), None);
        assert_eq!(nearest(""), None);
    }
}
