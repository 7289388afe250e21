//! The text of an expression: parsing, its clauses, and where a word stands in it.

use kube_cel::cel::{IdedExpr, parser::Parser};

use super::{Mistake, place};

/// How deep an expression may nest.
const MAX_DEPTH: u16 = 48;

/// How many operators may nest, with the brackets around them.
const MAX_OPERATORS: usize = 120;

/// Parses a text. The id of each node is its [`place`].
pub(crate) fn parse(source: &str) -> Result<IdedExpr, Mistake> {
    let mut parsed = parse_anywhere(source)?;
    place::locate(&mut parsed, source, None);
    Ok(parsed)
}

/// Parses the text of the variable with this number, from 0.
pub(crate) fn parse_variable(source: &str, number: usize) -> Result<IdedExpr, Mistake> {
    let mut parsed = parse_anywhere(source)?;
    place::locate(&mut parsed, source, Some(number));
    Ok(parsed)
}

fn parse_anywhere(source: &str) -> Result<IdedExpr, Mistake> {
    if source.trim().is_empty() {
        return Err(Mistake::whole("it is empty"));
    }
    check_nesting(source)?;
    check_signs(source)?;
    let parser = Parser::new().max_recursion_depth(MAX_DEPTH);
    parser.parse(source).map_err(|errors| {
        let Some(error) = errors.errors.first() else {
            return Mistake::whole("it is no expression");
        };
        let (line, column) = error.pos;
        Mistake::at_column(column_in(source, line, column), first_line(&error.msg))
    })
}

/// Nesting is bounded before the parser sees the text: its own bound comes too late for the
/// stack of a guest. Operators nest as brackets do: `1 + 1 + 1` is `(1 + 1) + 1`.
fn check_nesting(source: &str) -> Result<(), Mistake> {
    // For each open bracket, the operators that nest at this place, and the ands and ors.
    let mut levels = vec![(0_usize, 0_usize)];
    for token in Tokens::new(source) {
        match token.text {
            "(" | "[" | "{" => levels.push((0, 0)),
            ")" | "]" | "}" if levels.len() > 1 => drop(levels.pop()),
            _ => {}
        }
        if let Some((chain, logical)) = levels.last_mut() {
            match token.text {
                "," => (*chain, *logical) = (0, 0),
                "&&" | "||" => (*chain, *logical) = (0, *logical + 1),
                "+" | "-" | "*" | "/" | "%" | "!" | "." | "?" | "in" | "<" | ">" | "=" => {
                    *chain += 1;
                }
                "(" | "[" | "{" => *chain += 1,
                _ => {}
            }
        }
        let operators: usize = levels.iter().map(|(chain, logical)| chain + logical).sum();
        let message = if levels.len() > usize::from(MAX_DEPTH) + 1 {
            format!("brackets nest deeper than {MAX_DEPTH}")
        } else if operators > MAX_OPERATORS {
            format!("more than {MAX_OPERATORS} operators nest")
        } else {
            continue;
        };
        return Err(Mistake::at_column(token.column, message));
    }
    Ok(())
}

/// Doubled signs are refused: the library drops one of the two, so that `!!a` would be `!a`.
fn check_signs(source: &str) -> Result<(), Mistake> {
    let (mut before, mut last) = ("", "");
    for token in Tokens::new(source) {
        let is_doubled = match (last, token.text) {
            ("!", "!") => true,
            // The first one may be a difference: `a - -1`.
            ("-", "-") => !ends_value(before),
            _ => false,
        };
        if is_doubled {
            let message = format!("write \"{0}\" once or not at all", token.text);
            return Err(Mistake::at_column(token.column, message));
        }
        (before, last) = (last, token.text);
    }
    Ok(())
}

fn ends_value(token: &str) -> bool {
    let ends = |c: char| c.is_ascii_alphanumeric() || "_'\")]}".contains(c);
    token != "in" && token.ends_with(ends)
}

fn column_in(source: &str, line: isize, column: isize) -> usize {
    let before: usize = source
        .lines()
        .take(usize::try_from(line - 1).unwrap_or_default())
        .map(|line| line.chars().count() + 1)
        .sum();
    before + usize::try_from(column).unwrap_or_default()
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().to_owned()
}

/// The column of the first occurrence of a word outside of texts; 0 if it has none.
pub(crate) fn column_of(source: &str, word: &str) -> usize {
    Tokens::new(source)
        .find(|token| token.text == word || token.text.trim_matches(['\'', '"']) == word)
        .map_or(0, |token| token.column)
}

/// The parts of a text between the `&&` that bind weakest, also those of a part in brackets; the
/// whole text if it has none, or something that binds weaker still.
pub(crate) fn clauses(source: &str) -> Vec<&str> {
    let parts = conjuncts(source).into_iter();
    let nested = parts.flat_map(|part| match enclosed(part).map(clauses) {
        Some(nested) if nested.len() > 1 => nested,
        _ => vec![part],
    });
    nested.collect()
}

/// What is within the brackets around a whole text.
fn enclosed(source: &str) -> Option<&str> {
    let inner = source.strip_prefix('(')?.strip_suffix(')')?;
    let mut depth = 0_i32;
    for token in Tokens::new(inner) {
        match token.text {
            "(" => depth += 1,
            ")" => depth -= 1,
            _ => {}
        }
        // The first bracket ends before the last one.
        if depth < 0 {
            return None;
        }
    }
    Some(inner)
}

fn conjuncts(source: &str) -> Vec<&str> {
    let mut depth = 0_i32;
    let mut cuts = Vec::new();
    for token in Tokens::new(source) {
        match token.text {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => depth -= 1,
            "&&" if depth == 0 => cuts.push(token.start),
            "||" | "?" if depth == 0 => return vec![source.trim()],
            _ => {}
        }
    }
    let mut from = 0;
    let mut clauses = Vec::new();
    for cut in cuts {
        clauses.push(source[from..cut].trim());
        from = cut + 2;
    }
    clauses.push(source[from..].trim());
    clauses
}

/// A piece of a text: a word, a number, a text in quotes, a sign.
pub(super) struct Token<'a> {
    pub(super) text: &'a str,
    /// In bytes.
    start: usize,
    /// In characters, from 1.
    pub(super) column: usize,
}

pub(super) struct Tokens<'a> {
    source: &'a str,
    at: usize,
}

impl<'a> Tokens<'a> {
    pub(super) fn new(source: &'a str) -> Self {
        Self { source, at: 0 }
    }

    fn length(rest: &str) -> usize {
        let bytes = rest.as_bytes();
        let prefix = bytes.iter().take_while(|it| b"rRbB".contains(it)).count();
        if let Some(&quote @ (b'\'' | b'"')) = bytes.get(prefix)
            && prefix <= 2
        {
            let is_raw = bytes.iter().take(prefix).any(|it| b"rR".contains(it));
            return prefix + quoted(bytes.get(prefix..).unwrap_or_default(), quote, is_raw);
        }
        match bytes.first() {
            Some(b'/') if bytes.get(1) == Some(&b'/') => rest.find('\n').unwrap_or(rest.len()),
            Some(b'&' | b'|') if bytes.get(1) == bytes.first() => 2,
            Some(byte) if byte.is_ascii_digit() => number(rest),
            Some(byte) if byte.is_ascii_alphabetic() || *byte == b'_' => {
                let word = rest
                    .find(|c: char| !c.is_ascii_alphanumeric() && c != '_')
                    .unwrap_or(rest.len());
                word + raw_text(rest, word)
            }
            _ => rest.chars().next().map_or(0, char::len_utf8),
        }
    }
}

/// The length of a number: `12`, `0x1F`, `1.5`, `1e-5`, `3u`.
fn number(rest: &str) -> usize {
    let word = |from: usize| {
        let after = rest.get(from..).unwrap_or_default();
        let end = after.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        from + end.unwrap_or(after.len())
    };
    let digit_at = |at: usize| rest.as_bytes().get(at).is_some_and(u8::is_ascii_digit);
    let mut end = word(0);
    if rest.as_bytes().get(end) == Some(&b'.') && digit_at(end + 1) {
        end = word(end + 1);
    }
    let has_exponent = rest.get(..end).is_some_and(|it| it.ends_with(['e', 'E']));
    let is_signed = matches!(rest.as_bytes().get(end), Some(b'+' | b'-'));
    if has_exponent && is_signed && digit_at(end + 1) && !rest.starts_with("0x") {
        end = word(end + 1);
    }
    end
}

/// The length of the text without escapes that a word such as `r` starts; 0 if it starts none.
fn raw_text(rest: &str, word: usize) -> usize {
    let (prefix, after) = rest.split_at(word);
    let is_raw = matches!(
        prefix,
        "r" | "R" | "br" | "bR" | "Br" | "BR" | "rb" | "rB" | "Rb" | "RB"
    );
    let quote = after
        .chars()
        .next()
        .filter(|c| is_raw && matches!(c, '\'' | '"'));
    let Some(quote) = quote else { return 0 };
    let triple: String = [quote; 3].iter().collect();
    let end = if after.starts_with(&triple) {
        triple
    } else {
        quote.to_string()
    };
    let inner = after.get(end.len()..).unwrap_or_default();
    inner
        .find(&end)
        .map_or(after.len(), |at| at + 2 * end.len())
}

/// The length of a text in quotes, also of one in three quotes.
fn quoted(bytes: &[u8], quote: u8, is_raw: bool) -> usize {
    let end = if bytes.starts_with(&[quote; 3]) {
        &[quote; 3][..]
    } else {
        &[quote; 1][..]
    };
    let mut at = end.len();
    while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
        if rest.starts_with(end) {
            return at + end.len();
        }
        let is_escape = !is_raw && rest.starts_with(b"\\");
        at += if is_escape { 2 } else { 1 };
    }
    bytes.len()
}

impl<'a> Iterator for Tokens<'a> {
    type Item = Token<'a>;

    fn next(&mut self) -> Option<Token<'a>> {
        loop {
            let rest = &self.source[self.at..];
            let space = rest.len() - rest.trim_start().len();
            self.at += space;
            let rest = &self.source[self.at..];
            if rest.is_empty() {
                return None;
            }
            let length = Self::length(rest);
            let start = self.at;
            self.at += length;
            let text = &self.source[start..self.at];
            if !text.starts_with("//") {
                let column = self.source[..start].chars().count() + 1;
                return Some(Token {
                    text,
                    start,
                    column,
                });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clauses_are_the_parts_between_the_outermost_ands() {
        assert_eq!(
            clauses("a == 'x && y' && (b && c) && d"),
            ["a == 'x && y'", "b", "c", "d"]
        );
        assert_eq!(clauses("((a && (b || c)) && d)"), ["a", "(b || c)", "d"]);
        assert_eq!(clauses("(a) && (b && c).x"), ["(a)", "(b && c).x"]);
        assert_eq!(clauses("(a && b) == (c && d)"), ["(a && b) == (c && d)"]);
        assert_eq!(clauses("(a == ')' && b)"), ["a == ')'", "b"]);
        assert_eq!(clauses("a && b || c"), ["a && b || c"]);
        assert_eq!(clauses("a ? b : c && d"), ["a ? b : c && d"]);
        assert_eq!(clauses("a.exists(x, x && y)"), ["a.exists(x, x && y)"]);
    }

    #[test]
    fn a_backslash_escapes_nothing_in_a_raw_text() {
        assert_eq!(
            clauses(r"a == r'\' && b == 'c' && d"),
            [r"a == r'\'", "b == 'c'", "d"]
        );
        assert_eq!(clauses(r"a == '\' && b' && c"), [r"a == '\' && b'", "c"]);
    }

    #[test]
    fn a_syntax_error_names_its_column() {
        let mistake = parse("object.a == ").unwrap_err();
        assert!(mistake.column >= 12, "{mistake}");
        assert!(parse(&"(".repeat(100)).is_err());
        assert!(parse(" ").is_err());
    }

    #[test]
    fn a_doubled_sign_is_refused() {
        for (source, column) in [
            ("!!true", 2),
            ("a == 1 && ! !b", 13),
            ("--1 < 0", 2),
            ("a in --b", 7),
            ("a - - -1", 7),
        ] {
            let mistake = parse(source).unwrap_err();
            assert_eq!(mistake.column, column, "{source}: {mistake}");
            assert!(mistake.message.contains("once or not at all"), "{mistake}");
        }
        for source in ["a - -1 > 0", "a != !b", "a[0] - -b", "!(!a)", "'!!' == a"] {
            assert!(parse(source).is_ok(), "{source}");
        }
    }

    #[test]
    fn a_number_is_one_token() {
        for (source, expected) in [
            ("1.5+2", vec!["1.5", "+", "2"]),
            ("1e-5-3u", vec!["1e-5", "-", "3u"]),
            ("0x1e-5", vec!["0x1e", "-", "5"]),
            ("a[0].b", vec!["a", "[", "0", "]", ".", "b"]),
        ] {
            let tokens: Vec<&str> = Tokens::new(source).map(|it| it.text).collect();
            assert_eq!(tokens, expected, "{source}");
        }
    }

    #[test]
    fn a_word_is_found_outside_of_texts() {
        assert_eq!(column_of("'phase x' == object.phase", "phase"), 21);
        assert_eq!(column_of("a // phase\n + phase", "phase"), 15);
    }
}
