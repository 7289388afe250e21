//! The text of an expression: parsing, its clauses, and where a word stands in it.

mod hint;
mod quotes;

use kube_cel::cel::{IdedExpr, parser::Parser};

use super::token::Tokens;
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
    check_comments(source)?;
    check_nesting(source)?;
    check_signs(source)?;
    quotes::check(source)?;
    let parser = Parser::new().max_recursion_depth(MAX_DEPTH);
    parser.parse(source).map_err(|errors| {
        let Some(error) = errors.errors.first() else {
            return Mistake::whole("it is no expression");
        };
        hint::of(source, &error.msg).unwrap_or_else(|| {
            let (line, column) = error.pos;
            let column = column_in(source, line, column);
            Mistake::at_column(column, hint::in_words(&error.msg))
        })
    })
}

/// Refuses a comment that may hide a part of the expression. Lines that YAML folds (`>-`) are one,
/// with a line break at the end or at a blank line: a comment has the next line in it too.
fn check_comments(source: &str) -> Result<(), Mistake> {
    let is_one_line = !source.trim().contains('\n');
    let mut tokens = Tokens::new(source);
    while let Some(piece) = tokens.piece() {
        let hides = |sign: &str| piece.text.contains(sign);
        let is_last = piece.start + piece.text.len() == source.len();
        if piece.is_comment() && (is_one_line || is_last || hides("&&") || hides("||")) {
            let message = "a comment hides what stands behind it, and ends with its line: write \
                           it above the field, behind a #";
            return Err(Mistake::at_column(piece.column, message));
        }
    }
    Ok(())
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
    let mut clauses = Vec::new();
    // Where the clause starts and ends, without the comments around it.
    let mut clause: Option<(usize, usize)> = None;
    let text_of = |clause: Option<(usize, usize)>| {
        clause.map_or("", |(start, end)| {
            source.get(start..end).unwrap_or_default()
        })
    };
    for token in Tokens::new(source) {
        match token.text {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => depth -= 1,
            "||" | "?" if depth == 0 => return vec![source.trim()],
            "&&" if depth == 0 => {
                clauses.push(text_of(clause.take()));
                continue;
            }
            _ => {}
        }
        let start = clause.map_or(token.start, |(start, _)| start);
        clause = Some((start, token.start + token.text.len()));
    }
    clauses.push(text_of(clause));
    clauses
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
        assert_eq!(clauses("// x\na // y\n && b // z\n"), ["a", "b"]);
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
