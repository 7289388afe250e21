//! Regular expressions as CEL has them, in RE2, written for the library: its `\d`, `\w`, `\s` and
//! `\b` are those of Unicode, and its classes nest. What cannot be written is refused.

use std::str::Chars;

/// The characters that one stands for that is a class of ASCII, such as `\w`.
const SHORT: usize = 4;

/// The same of a point, and of a class that is negated.
const NEGATED: usize = 20;

/// The same of a class of Unicode, such as `\pL`.
const PROPERTY: usize = 250;

/// How often RE2 repeats a part at most, with the repetitions around it.
const REPETITIONS: usize = 1000;

/// The classes that have a name, as in `[[:alpha:]]`.
const NAMED: [&str; 14] = [
    "alnum", "alpha", "ascii", "blank", "cntrl", "digit", "graph", "lower", "print", "punct",
    "space", "upper", "word", "xdigit",
];

/// A pattern as the library reads it.
#[derive(Debug)]
pub(super) struct Pattern {
    pub(super) text: String,
    /// Its characters, with those that are repeated: `a{3}` has three.
    pub(super) characters: usize,
}

/// Translates a pattern. What is no pattern at all is left to the library.
pub(super) fn translated(pattern: &str) -> Result<Pattern, String> {
    let mut translation = Translation {
        rest: pattern.chars(),
        text: String::new(),
        groups: vec![Size::of(0)],
        last: Size::of(0),
        before: Before::Part,
    };
    while let Some(c) = translation.rest.next() {
        translation.part(c)?;
    }
    let groups = translation.groups.iter().map(|it| it.characters);
    Ok(Pattern {
        characters: groups.fold(0, usize::saturating_add),
        text: translation.text,
    })
}

fn not_supported(what: &str) -> String {
    format!("\"{what}\" is not supported in a regular expression")
}

struct Translation<'p> {
    rest: Chars<'p>,
    text: String,
    /// That of the pattern, and of each open group.
    groups: Vec<Size>,
    /// That of the part before.
    last: Size,
    before: Before,
}

/// What the compilation makes of a part.
#[derive(Clone, Copy, Debug)]
struct Size {
    characters: usize,
    /// How often what is repeated most in it is repeated, by all repetitions around that.
    copies: usize,
}

impl Size {
    fn of(characters: usize) -> Self {
        Self {
            characters,
            copies: 1,
        }
    }
}

/// What stands before a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Before {
    /// No repetition.
    Part,
    /// One that a question mark may make lazy.
    Repetition,
    /// One that is lazy.
    Lazy,
}

impl Translation<'_> {
    fn starts_with(&self, text: &str) -> bool {
        self.rest.as_str().starts_with(text)
    }

    /// Copies so many bytes.
    fn copy(&mut self, bytes: usize) {
        let (copied, rest) = self.rest.as_str().split_at(bytes);
        self.text.push_str(copied);
        self.rest = rest.chars();
    }

    /// Copies all up to a character, with it.
    fn copy_through(&mut self, end: char) {
        let rest = self.rest.as_str();
        let end = rest.find(end).map_or(rest.len(), |at| at + end.len_utf8());
        self.copy(end);
    }

    fn part(&mut self, c: char) -> Result<(), String> {
        self.before = self.repeated(c)?;
        let added = match c {
            '(' => return self.group(),
            '{' => self.repetition()?,
            // What repeats adds to what it repeats.
            '*' | '+' | '?' => {
                self.text.push(c);
                1
            }
            _ => {
                self.last = self.single(c)?;
                self.last.characters
            }
        };
        if let Some(group) = self.groups.last_mut() {
            group.characters = group.characters.saturating_add(added);
            group.copies = group.copies.max(self.last.copies);
        }
        Ok(())
    }

    /// What stands before the next part. RE2 repeats no repetition.
    fn repeated(&self, c: char) -> Result<Before, String> {
        let repeats = match c {
            '*' | '+' | '?' => true,
            '{' => repetitions(self.rest.as_str()).is_some(),
            _ => false,
        };
        match (repeats, self.before, c) {
            (false, ..) => Ok(Before::Part),
            (true, Before::Part, _) => Ok(Before::Repetition),
            (true, Before::Repetition, '?') => Ok(Before::Lazy),
            _ => Err(not_supported(&format!("a repetition, {c}"))),
        }
    }

    /// The size of a part that others may repeat.
    fn single(&mut self, c: char) -> Result<Size, String> {
        match c {
            '\\' => return self.escape().map(Size::of),
            '[' => return self.class().map(Size::of),
            _ => self.text.push(c),
        }
        let group = match c {
            ')' if self.groups.len() > 1 => self.groups.pop(),
            _ => None,
        };
        let characters = if c == '.' { NEGATED } else { 1 };
        Ok(group.unwrap_or(Size::of(characters)))
    }

    /// The start of a group, with its name or its flags.
    fn group(&mut self) -> Result<(), String> {
        self.text.push('(');
        self.groups.push(Size::of(0));
        if self.starts_with("?P<") || self.starts_with("?<") {
            self.copy_through('>');
        } else if self.starts_with("?") {
            let flags = self.rest.as_str().chars().skip(1);
            let mut flags = flags.take_while(|c| c.is_ascii_alphabetic() || *c == '-');
            // They change how the library reads what follows, and RE2 has none of them.
            if let Some(flag) = flags.find(|c| "xuR".contains(*c)) {
                return Err(not_supported(&format!("(?{flag})")));
            }
        }
        Ok(())
    }

    /// What a repetition adds to the part before it. A brace that starts none is a character.
    fn repetition(&mut self) -> Result<usize, String> {
        let Some(most) = repetitions(self.rest.as_str()) else {
            self.text.push_str(r"\{");
            self.last = Size::of(1);
            return Ok(1);
        };
        self.text.push('{');
        self.copy_through('}');
        let Size { characters, copies } = self.last;
        self.last = Size {
            characters: characters.max(characters.saturating_mul(most)),
            copies: copies.saturating_mul(most.max(1)),
        };
        if self.last.copies > REPETITIONS {
            return Err(format!(
                "a regular expression repeats a part {REPETITIONS} times at most"
            ));
        }
        Ok(self.last.characters - characters)
    }

    fn escape(&mut self) -> Result<usize, String> {
        let Some(c) = self.rest.next() else {
            self.text.push('\\');
            return Ok(1);
        };
        let (text, characters) = match c {
            'd' => ("[0-9]", SHORT),
            'w' => ("[0-9A-Za-z_]", SHORT),
            's' => (r"[\t\n\f\r\x20]", SHORT),
            'D' => ("[^0-9]", NEGATED),
            'W' => ("[^0-9A-Za-z_]", NEGATED),
            'S' => (r"[^\t\n\f\r\x20]", NEGATED),
            'b' => (r"(?-u:\b)", 1),
            'B' => return Err(not_supported(r"\B")),
            'p' | 'P' => return Ok(self.property(c)),
            _ => return self.escaped(c).map(|()| 1),
        };
        self.text.push_str(text);
        Ok(characters)
    }

    /// A character behind a backslash that stands for one, or for an end of the text.
    fn escaped(&mut self, c: char) -> Result<(), String> {
        if c.is_ascii_alphanumeric() && !"aftnrvxAz".contains(c) {
            return Err(not_supported(&format!(r"\{c}")));
        }
        // To the library, these are the ends of a word.
        if !matches!(c, '<' | '>') {
            self.text.push('\\');
        }
        self.text.push(c);
        if c == 'x' && self.starts_with("{") {
            self.copy_through('}');
        }
        Ok(())
    }

    /// A class of Unicode, whose name is one letter, or in braces.
    fn property(&mut self, c: char) -> usize {
        self.text.extend(['\\', c]);
        if self.starts_with("{") {
            self.copy_through('}');
        } else if let Some(name) = self.rest.next() {
            self.text.push(name);
        }
        PROPERTY
    }

    fn class(&mut self) -> Result<usize, String> {
        self.text.push('[');
        let is_negated = self.starts_with("^");
        if is_negated {
            self.copy(1);
        }
        let mut characters = 0;
        let mut is_first = true;
        while !self.rest.as_str().is_empty() {
            // A bracket that comes first is one of the class.
            if !is_first && self.starts_with("]") {
                self.copy(1);
                break;
            }
            is_first = false;
            characters += self.item()?;
        }
        let least = if is_negated { NEGATED } else { 0 };
        Ok(characters.max(least))
    }

    /// A part of a class: a class, a range or a character.
    fn item(&mut self) -> Result<usize, String> {
        if let Some(name) = self.name()? {
            self.copy(name);
            return Ok(NEGATED);
        }
        if let Some(class) = self.class_ahead() {
            self.rest.nth(1);
            let text = match class {
                'd' => "0-9",
                'w' => "0-9A-Za-z_",
                's' => r"\t\n\f\r\x20",
                'p' | 'P' => return Ok(self.property(class)),
                _ => return Err(not_supported(&format!(r"[\{class}]"))),
            };
            self.text.push_str(text);
            return Ok(SHORT);
        }
        self.check_operation()?;
        self.member()?;
        let is_range = self.starts_with("-") && !self.starts_with("-]");
        if !is_range || self.rest.as_str().len() == 1 {
            return Ok(1);
        }
        self.check_operation()?;
        self.copy(1);
        if let Some(class) = self.class_ahead() {
            return Err(not_supported(&format!(r"-\{class}")));
        }
        self.member()?;
        Ok(3)
    }

    /// The library would take the characters for an operation of classes.
    fn check_operation(&self) -> Result<(), String> {
        let mut operations = ["&&", "--", "~~"].into_iter();
        match operations.find(|it| self.starts_with(it)) {
            Some(operation) => Err(not_supported(&format!("[{operation}]"))),
            None => Ok(()),
        }
    }

    /// The length of the class that has a name here.
    fn name(&self) -> Result<Option<usize>, String> {
        let rest = self.rest.as_str().strip_prefix("[:");
        let Some((name, _)) = rest.and_then(|rest| rest.split_once(":]")) else {
            return Ok(None);
        };
        if NAMED.contains(&name.strip_prefix('^').unwrap_or(name)) {
            return Ok(Some(name.len() + "[::]".len()));
        }
        Err(not_supported(&format!("[:{name}:]")))
    }

    /// The letter of the class that is here behind a backslash.
    fn class_ahead(&self) -> Option<char> {
        let rest = self.rest.as_str().strip_prefix('\\')?;
        rest.chars().next().filter(|c| "dDwWsSpP".contains(*c))
    }

    /// A character of a class.
    fn member(&mut self) -> Result<(), String> {
        match self.rest.next() {
            Some('\\') => match self.rest.next() {
                Some(c) => self.escaped(c)?,
                None => self.text.push('\\'),
            },
            Some(c) => {
                if "[]^-&~".contains(c) {
                    self.text.push('\\');
                }
                self.text.push(c);
            }
            None => {}
        }
        Ok(())
    }
}

/// The largest number of a repetition as RE2 has it: `n}`, `n,}` or `n,m}`.
fn repetitions(rest: &str) -> Option<usize> {
    let (counts, _) = rest.split_once('}')?;
    match counts.split_once(',') {
        None => count(counts),
        Some((least, "")) => count(least),
        Some((least, most)) => Some(count(least)?.max(count(most)?)),
    }
}

/// A number without zeros before it.
fn count(text: &str) -> Option<usize> {
    let is_number = !text.is_empty() && text.bytes().all(|it| it.is_ascii_digit());
    let is_number = is_number && (text == "0" || !text.starts_with('0'));
    is_number.then(|| text.parse().unwrap_or(usize::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_characters_of_a_pattern_are_those_that_are_compiled() {
        for (pattern, expected) in [
            ("", 0),
            ("^abc$", 5),
            ("[0-9]{4}-[0-9]{2}", 3 * 4 + 1 + 3 * 2),
            ("(ab{2}){3}", 9),
            ("((a{10}){10}){10}", 1000),
            ("((a{10})+){10}", 110),
            ("(a{0}){1000}", 1000),
            ("a{01}", 5),
            (r"\w\.", 5),
            (r"^pr-\d+\n\b", 11),
            (r".[^a]\D", 60),
            (r"\pL{1000}", 250_000),
            (r"\p{Greek}{3}a", 751),
            (r"[\pL]", 250),
            (r"\p", 250),
            ("[]a]b", 3),
            ("[^a]{2}", 40),
            ("a{,}", 4),
            ("a)b(", 3),
            ("[a", 1),
        ] {
            let characters = translated(pattern).unwrap().characters;
            assert_eq!(characters, expected, "{pattern}");
        }
    }

    #[test]
    fn a_pattern_is_written_for_the_library() {
        for (pattern, expected) in [
            (r"^\w+\d\s$", r"^[0-9A-Za-z_]+[0-9][\t\n\f\r\x20]$"),
            (r"\W\D\S\b", r"[^0-9A-Za-z_][^0-9][^\t\n\f\r\x20](?-u:\b)"),
            (r"[\w.-]", r"[0-9A-Za-z_.\-]"),
            (r"[\w-x]", r"[0-9A-Za-z_\-x]"),
            (r"[^\s\d]", r"[^\t\n\f\r\x200-9]"),
            (r"[a[bc]]", r"[a\[bc]]"),
            (r"[[:alpha:][:^digit:]]", r"[[:alpha:][:^digit:]]"),
            (r"[]a-z-]", r"[\]a-z\-]"),
            (r"[^]^&]", r"[^\]\^\&]"),
            (r"[\x00-\x1f\x{2d}]", r"[\x00-\x1f\x{2d}]"),
            (r"\<\>[\<]", "<>[<]"),
            (r"(?i)(?P<a>x)(?:y){2,3}?", r"(?i)(?P<a>x)(?:y){2,3}?"),
            (r"\p{Greek}\pL\\d\.", r"\p{Greek}\pL\\d\."),
            ("[a-", r"[a\-"),
            ("a{b}{,2}{02}{ 2}{2", r"a\{b}\{,2}\{02}\{ 2}\{2"),
            (r"\A\x61\n\z", r"\A\x61\n\z"),
            (r"a\", r"a\"),
        ] {
            assert_eq!(translated(pattern).unwrap().text, expected, "{pattern}");
        }
    }

    #[test]
    fn what_cannot_be_written_is_refused() {
        for pattern in [
            r"\B",
            r"[\D]",
            r"[^\W]",
            r"[a\S]",
            "[a&&b]",
            "[a--b]",
            "[+--]",
            "[a~~b]",
            r"[+-\d]",
            "[[:foo:]]",
            "(?x)a",
            "(?i-u:a)",
            "a**",
            "a+*?",
            "a??+",
            "a{2}{3}",
            "(a)*{2}",
            r"\u0061",
            r"\U{61}",
            r"[\u0061]",
            r"[a-\u0062]",
            r"\012",
            r"\Qa\E",
            r"\C",
        ] {
            let refused = translated(pattern).unwrap_err();
            assert!(refused.contains("is not supported"), "{pattern}: {refused}");
        }
    }

    /// The product counts of repetitions within each other, and not that of those side by side.
    #[test]
    fn a_part_is_repeated_a_thousand_times_at_most() {
        for pattern in [
            "a{1000}",
            "a{1000}b{1000}",
            "(a{100}|b{100}){10}",
            "((a{10}){10}){10}",
            "(a{1000})+",
            "a{1000,}",
        ] {
            assert!(translated(pattern).is_ok(), "{pattern}");
        }
        for pattern in [
            "a{1001}",
            "a{1001,}",
            "a{0,1001}",
            "a{99999999999999999999999}",
            "(a{100}){11}",
            "(a{11}b)+{0}|(?:x(a{100}b)y){11}",
            "((a{10}){10}){11}",
        ] {
            assert!(translated(pattern).is_err(), "{pattern}");
        }
    }
}
