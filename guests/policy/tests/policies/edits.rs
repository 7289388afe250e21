//! Changes of a text, each in one place: of an expression, and of a duration.

use std::collections::BTreeSet;
use std::ops::Range;
use std::time::Duration;

use davit_guest::duration;

/// A changed text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Edit {
    /// The smallest operand around the change, before and after it.
    pub(crate) change: String,
    pub(crate) text: String,
}

/// What replaces each operator. The longer ones come first.
const OPERATORS: [(&str, &[&str]); 10] = [
    ("&&", &["||"]),
    ("||", &["&&"]),
    ("==", &["!="]),
    ("!=", &["=="]),
    ("<=", &[">", "<"]),
    (">=", &["<", ">"]),
    ("<", &[">=", "<="]),
    (">", &["<=", ">="]),
    (".exists(", &[".all("]),
    (".all(", &[".exists("]),
];

/// Every change of an expression.
pub(crate) fn of_expression(text: &str) -> Vec<Edit> {
    let source = Source::new(text);
    let mut edits = source.removals();
    edits.extend(source.operators());
    edits.extend(source.words());
    edits.extend(source.quoted_texts());
    edits
}

/// The changes of the quoted texts in a template: `ended by ${condition(object, 'Ready').reason}`.
pub(crate) fn of_template(text: &str) -> Vec<Edit> {
    Source::new(text).quoted_texts()
}

/// Other durations than that of a text.
pub(crate) fn durations(text: &str) -> Option<BTreeSet<String>> {
    let value = duration::parse(text)?;
    let unit = text.trim_start_matches(|c: char| c.is_ascii_digit());
    let unit = duration::parse(&format!("1{unit}")).unwrap_or(Duration::from_secs(1));
    let others = [
        value * 2,
        value / 2,
        value + unit,
        value.saturating_sub(unit),
    ];
    let others = others.into_iter().filter(|it| *it != value);
    Some(others.map(duration::text).collect())
}

/// A text that means something else.
pub(crate) fn other(text: &str) -> String {
    format!("{text}-other")
}

/// An expression, and its parts by their places.
struct Source<'a> {
    text: &'a str,
    /// The text, with each quoted character blank.
    code: String,
    /// The places between the quotes.
    quoted: Vec<Range<usize>>,
    /// The operands of a chain of `&&` or `||`, and the elements of a list.
    chains: Vec<Vec<Range<usize>>>,
    /// Every operand, also one alone.
    operands: Vec<Range<usize>>,
}

impl<'a> Source<'a> {
    fn new(text: &'a str) -> Self {
        assert!(text.is_ascii(), "{text}");
        let quoted = quoted(text);
        let mut code = text.to_owned();
        for range in &quoted {
            code.replace_range(range.clone(), &"_".repeat(range.len()));
        }
        let mut source = Self {
            text,
            code,
            quoted,
            chains: Vec::new(),
            operands: Vec::new(),
        };
        source.divide(0..text.len());
        source
    }

    /// Finds the operands of an expression, and those within them.
    fn divide(&mut self, range: Range<usize>) {
        let disjuncts = self.split(range, "||");
        for disjunct in &disjuncts {
            let conjuncts = self.split(disjunct.clone(), "&&");
            for conjunct in &conjuncts {
                self.operands.push(conjunct.clone());
                for bracket in self.brackets(conjunct.clone()) {
                    self.divide_bracket(bracket);
                }
            }
            self.chains.push(conjuncts);
        }
        self.operands.extend(disjuncts.iter().cloned());
        self.chains.push(disjuncts);
    }

    fn divide_bracket(&mut self, inner: Range<usize>) {
        let parts = self.split(inner.clone(), ",");
        for part in &parts {
            self.divide(part.clone());
        }
        let is_list = |before: &str| before.ends_with([' ', '(']);
        if self.code[..inner.start]
            .strip_suffix('[')
            .is_some_and(is_list)
        {
            self.chains.push(parts);
        }
    }

    /// The parts between separators that stand in no bracket.
    fn split(&self, range: Range<usize>, separator: &str) -> Vec<Range<usize>> {
        let mut parts = Vec::new();
        let mut start = range.start;
        for at in self.outside(range.clone()) {
            if self.code[at..range.end].starts_with(separator) {
                parts.push(self.trimmed(start..at));
                start = at + separator.len();
            }
        }
        parts.push(self.trimmed(start..range.end));
        parts
    }

    /// The places that stand in no bracket of a part.
    fn outside(&self, range: Range<usize>) -> Vec<usize> {
        let mut depth = 0_u32;
        let places = range.filter(|at| {
            match self.code.as_bytes()[*at] {
                b'(' | b'[' => depth += 1,
                b')' | b']' => depth -= 1,
                _ => return depth == 0,
            }
            false
        });
        places.collect()
    }

    /// What is in the outermost brackets of a part.
    fn brackets(&self, range: Range<usize>) -> Vec<Range<usize>> {
        let (mut depth, mut start) = (0_u32, 0);
        let mut brackets = Vec::new();
        for at in range {
            match self.code.as_bytes()[at] {
                b'(' | b'[' => {
                    depth += 1;
                    if depth == 1 {
                        start = at + 1;
                    }
                }
                b')' | b']' => {
                    depth -= 1;
                    if depth == 0 {
                        brackets.push(start..at);
                    }
                }
                _ => {}
            }
        }
        brackets
    }

    fn trimmed(&self, range: Range<usize>) -> Range<usize> {
        let part = &self.text[range.clone()];
        let start = range.start + (part.len() - part.trim_start().len());
        start..start + part.trim().len()
    }

    /// Each operand of a chain away, and each element of a list.
    fn removals(&self) -> Vec<Edit> {
        let chains = self.chains.iter().filter(|it| it.len() > 1);
        let removals = chains.flat_map(|chain| {
            let indexes = 0..chain.len();
            indexes.map(|index| self.removal(chain, index))
        });
        removals.collect()
    }

    fn removal(&self, chain: &[Range<usize>], index: usize) -> Edit {
        let operand = chain[index].clone();
        let removed = match index {
            0 => operand.start..chain[1].start,
            _ => chain[index - 1].end..operand.end,
        };
        Edit {
            change: format!("without {}", words(&self.text[operand])),
            text: replaced(self.text, &removed, ""),
        }
    }

    /// Each operator another one.
    fn operators(&self) -> Vec<Edit> {
        let mut edits = Vec::new();
        let mut at = 0;
        while at < self.code.len() {
            let rest = &self.code[at..];
            let found = OPERATORS.iter().find(|(it, _)| rest.starts_with(it));
            let Some((operator, others)) = found else {
                at += 1;
                continue;
            };
            let range = at..at + operator.len();
            let others = others.iter().filter(|it| self.is_other(&range, it));
            edits.extend(others.map(|it| self.edit(&range, it)));
            at = range.end;
        }
        edits
    }

    /// Whether an operator can have another result: a comparison of times with and without
    /// equality differs in a moment that no object has.
    fn is_other(&self, range: &Range<usize>, other: &str) -> bool {
        let operand = &self.code[self.around(range)];
        let is_of_time = operand.contains("now") || operand.contains("age(");
        let operator = &self.code[range.clone()];
        !is_of_time || other.starts_with(operator) == operator.starts_with(other)
    }

    /// Each number one more and one less, each truth the other one.
    fn words(&self) -> Vec<Edit> {
        let is_of_word = |c: char| c.is_ascii_alphanumeric() || "_.'".contains(c);
        let mut edits = Vec::new();
        let mut start = 0;
        for word in self.code.split(|c| !is_of_word(c)) {
            let range = start..start + word.len();
            start = range.end + 1;
            edits.extend(others_of(word).iter().map(|it| self.edit(&range, it)));
        }
        edits
    }

    /// Each quoted text another one.
    fn quoted_texts(&self) -> Vec<Edit> {
        let mut edits = Vec::new();
        for range in &self.quoted {
            let text = &self.text[range.clone()];
            let is_duration = self.code[..range.start].ends_with("duration('");
            let durations = durations(text).filter(|_| is_duration);
            let others = durations.unwrap_or_else(|| BTreeSet::from([other(text)]));
            edits.extend(others.iter().map(|it| self.edit(range, it)));
        }
        edits
    }

    /// Another text at a place.
    fn edit(&self, range: &Range<usize>, other: &str) -> Edit {
        let around = self.around(range);
        let within = range.start - around.start..range.end - around.start;
        let before = &self.text[around];
        let after = replaced(before, &within, other);
        Edit {
            change: format!("{} -> {}", words(before), words(&after)),
            text: replaced(self.text, range, other),
        }
    }

    /// The smallest operand around a place.
    fn around(&self, range: &Range<usize>) -> Range<usize> {
        let operands = self.operands.iter();
        let around = operands.filter(|it| it.start <= range.start && range.end <= it.end);
        let smallest = around.min_by_key(|it| it.len());
        smallest.cloned().unwrap_or(0..self.text.len())
    }
}

/// The places between the quotes of a text.
fn quoted(text: &str) -> Vec<Range<usize>> {
    let quotes: Vec<usize> = text.match_indices('\'').map(|(at, _)| at).collect();
    let pairs = quotes.chunks_exact(2);
    pairs.map(|pair| pair[0] + 1..pair[1]).collect()
}

fn others_of(word: &str) -> Vec<String> {
    match word {
        "true" => vec!["false".to_owned()],
        "false" => vec!["true".to_owned()],
        _ => match word.parse::<i64>() {
            Ok(number) => vec![(number + 1).to_string(), (number - 1).to_string()],
            Err(_) => Vec::new(),
        },
    }
}

fn replaced(text: &str, range: &Range<usize>, other: &str) -> String {
    format!("{}{other}{}", &text[..range.start], &text[range.end..])
}

/// A text in one line.
fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn an_expression_is_changed_in_each_place() {
    let text = "a['x'] in ['y', 'z'] &&\n (b.exists(t, t > 1) || c == true)";
    let edits: Vec<String> = of_expression(text).into_iter().map(|it| it.text).collect();
    let edits: Vec<String> = edits.iter().map(|it| words(it)).collect();
    let expected = [
        "a['x'] in ['z'] && (b.exists(t, t > 1) || c == true)",
        "a['x'] in ['y'] && (b.exists(t, t > 1) || c == true)",
        "a['x'] in ['y', 'z'] && (c == true)",
        "a['x'] in ['y', 'z'] && (b.exists(t, t > 1))",
        "(b.exists(t, t > 1) || c == true)",
        "a['x'] in ['y', 'z']",
        "a['x'] in ['y', 'z'] || (b.exists(t, t > 1) || c == true)",
        "a['x'] in ['y', 'z'] && (b.all(t, t > 1) || c == true)",
        "a['x'] in ['y', 'z'] && (b.exists(t, t <= 1) || c == true)",
        "a['x'] in ['y', 'z'] && (b.exists(t, t >= 1) || c == true)",
        "a['x'] in ['y', 'z'] && (b.exists(t, t > 1) && c == true)",
        "a['x'] in ['y', 'z'] && (b.exists(t, t > 1) || c != true)",
        "a['x'] in ['y', 'z'] && (b.exists(t, t > 2) || c == true)",
        "a['x'] in ['y', 'z'] && (b.exists(t, t > 0) || c == true)",
        "a['x'] in ['y', 'z'] && (b.exists(t, t > 1) || c == false)",
        "a['x-other'] in ['y', 'z'] && (b.exists(t, t > 1) || c == true)",
        "a['x'] in ['y-other', 'z'] && (b.exists(t, t > 1) || c == true)",
        "a['x'] in ['y', 'z-other'] && (b.exists(t, t > 1) || c == true)",
    ];
    assert_eq!(edits, expected);
}

#[test]
fn a_change_names_the_smallest_operand_around_it() {
    let edits = of_expression("a > duration('1h') && b");
    let changes: Vec<&str> = edits.iter().map(|it| &*it.change).collect();
    let expected = [
        "without a > duration('1h')",
        "without b",
        "a > duration('1h') -> a <= duration('1h')",
        "a > duration('1h') -> a >= duration('1h')",
        "a > duration('1h') && b -> a > duration('1h') || b",
        "'1h' -> '0s'",
        "'1h' -> '2h'",
        "'1h' -> '30m'",
    ];
    assert_eq!(changes, expected);
}
