//! The text of the data, and the search in it.
//!
//! Three parts, with an empty line between them:
//!
//! - The header: comments, then `kubernetes VERSION`.
//! - A line for each kind: `API_VERSION PLURAL KIND SCOPE TYPE`, in the order of group,
//!   plural and version. The newest stable version is first.
//! - A block for each type, in the order of their names: a line `PACKAGE.NAME`, then a
//!   line for each field with a space before it, ` NAME TYPE`.

/// ASCII: each byte is a character.
const TEXT: &str = include_str!("kinds.txt");

/// Where the empty lines are: a search for them would cost each look more than itself.
const EMPTY_LINES: [usize; 2] = empty_lines(TEXT.as_bytes());

#[allow(clippy::indexing_slicing, reason = "evaluated when it is compiled")]
const fn empty_lines(text: &[u8]) -> [usize; 2] {
    let (mut lines, mut found, mut at) = ([0; 2], 0, 1);
    while found < lines.len() {
        if text[at - 1] == b'\n' && text[at] == b'\n' {
            lines[found] = at;
            found += 1;
        }
        at += 1;
    }
    lines
}

fn part(number: usize) -> &'static str {
    let [first, second] = EMPTY_LINES;
    let of = match number {
        0 => 0..first,
        1 => first + 1..second,
        _ => second + 1..TEXT.len(),
    };
    TEXT.get(of).unwrap_or_default()
}

pub(crate) fn version() -> &'static str {
    let mut lines = part(0).lines();
    let version = lines.find_map(|line| line.strip_prefix("kubernetes "));
    version.unwrap_or_default()
}

/// The lines of the kinds.
pub(crate) fn kinds() -> impl Iterator<Item = &'static str> {
    part(1).lines()
}

/// The name of a type and the lines of its fields.
pub(crate) fn object(name: &str) -> Option<(&'static str, &'static str)> {
    find(part(2), name)
}

/// Every type, as [`object`] returns it.
pub(crate) fn objects() -> impl Iterator<Item = (&'static str, &'static str)> {
    let text = part(2);
    let mut start = 0;
    std::iter::from_fn(move || {
        let end = block_end(text, start);
        let block = text.get(start..end)?.split_once('\n')?;
        start = end;
        Some(block)
    })
}

/// A binary search over the blocks of a text.
fn find<'a>(text: &'a str, name: &str) -> Option<(&'a str, &'a str)> {
    let (mut low, mut high) = (0, text.len());
    while low < high {
        let start = block_start(text, usize::midpoint(low, high));
        let end = block_end(text, start);
        let block = text.get(start..end)?.split_once('\n')?;
        match block.0.cmp(name) {
            std::cmp::Ordering::Less => low = end,
            std::cmp::Ordering::Greater => high = start,
            std::cmp::Ordering::Equal => return Some(block),
        }
    }
    None
}

/// The start of the block that this position is in.
fn block_start(text: &str, position: usize) -> usize {
    let mut candidates = (0..=position).rev();
    let start = candidates.find(|candidate| is_start(text, *candidate));
    start.unwrap_or_default()
}

/// The end of the block that starts here.
fn block_end(text: &str, start: usize) -> usize {
    let mut candidates = start + 1..text.len();
    let end = candidates.find(|candidate| is_start(text, *candidate));
    end.unwrap_or(text.len())
}

fn is_start(text: &str, position: usize) -> bool {
    let text = text.as_bytes();
    let before = position.checked_sub(1).and_then(|before| text.get(before));
    let is_line = before.is_none_or(|before| *before == b'\n');
    is_line && text.get(position) != Some(&b' ')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_block_is_found_and_nothing_else() {
        let text = "a.B\n x string\nb.A\nb.C\n y time\n z []C\n";
        assert_eq!(find(text, "a.B"), Some(("a.B", " x string\n")));
        assert_eq!(find(text, "b.A"), Some(("b.A", "")));
        assert_eq!(find(text, "b.C"), Some(("b.C", " y time\n z []C\n")));
        for other in ["", "a", "a.C", "b.B", "c", "x", " x"] {
            assert_eq!(find(text, other), None, "{other}");
        }
        assert_eq!(find("", "a"), None);
    }

    #[test]
    fn every_type_of_the_data_is_found() {
        assert!(TEXT.is_ascii());
        assert!(objects().count() > 500);
        for (name, fields) in objects() {
            assert_eq!(object(name), Some((name, fields)));
        }
    }
}
