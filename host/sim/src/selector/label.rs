//! Label selectors: `app=x,tier in (a, b),!canary`. The grammar, the order of
//! its checks and their messages follow `k8s.io/apimachinery/pkg/labels`.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::name;
use crate::status::{Result, Status};

/// A conjunction of requirements on labels.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LabelSelector {
    requirements: Vec<Requirement>,
}

#[derive(Clone, Debug, PartialEq)]
struct Requirement {
    key: String,
    test: Test,
}

#[derive(Clone, Debug, PartialEq)]
enum Test {
    Exists,
    Missing,
    In(BTreeSet<String>),
    NotIn(BTreeSet<String>),
    Greater(i64),
    Less(i64),
    /// Nothing matches (an empty `metav1.LabelSelector` with that meaning).
    Never,
}

impl LabelSelector {
    /// Parses the textual form.
    pub fn parse(text: &str) -> Result<Self> {
        Parser::new(text).selector().map_err(Status::bad_request)
    }

    /// Reads a `metav1.LabelSelector` (`matchLabels`, `matchExpressions`). A
    /// missing one selects nothing, an empty one everything.
    #[must_use]
    pub fn from_json(selector: Option<&Value>) -> Self {
        let Some(Value::Object(selector)) = selector else {
            return LabelSelector::never();
        };
        let mut requirements = Vec::new();
        if let Some(Value::Object(labels)) = selector.get("matchLabels") {
            for (key, value) in labels {
                let value = value.as_str().unwrap_or_default().to_owned();
                requirements.push(Requirement {
                    key: key.clone(),
                    test: Test::In(BTreeSet::from([value])),
                });
            }
        }
        let expressions = selector.get("matchExpressions").and_then(Value::as_array);
        for expression in expressions.into_iter().flatten() {
            requirements.push(expression_requirement(expression));
        }
        LabelSelector { requirements }
    }

    /// Whether every object is selected.
    #[must_use]
    pub fn is_everything(&self) -> bool {
        self.requirements.is_empty()
    }

    /// Whether an object with these labels is selected.
    #[must_use]
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.requirements
            .iter()
            .all(|requirement| requirement.matches(labels))
    }

    fn never() -> Self {
        LabelSelector {
            requirements: vec![Requirement {
                key: String::new(),
                test: Test::Never,
            }],
        }
    }
}

fn expression_requirement(expression: &Value) -> Requirement {
    let text = |name: &str| {
        expression
            .get(name)
            .and_then(Value::as_str)
            .unwrap_or_default()
    };
    let values = || {
        expression
            .get("values")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(|value| value.as_str().map(str::to_owned))
            .collect()
    };
    Requirement {
        key: text("key").to_owned(),
        test: match text("operator") {
            "In" => Test::In(values()),
            "NotIn" => Test::NotIn(values()),
            "Exists" => Test::Exists,
            "DoesNotExist" => Test::Missing,
            _ => Test::Never,
        },
    }
}

impl Requirement {
    fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        let value = labels.get(&self.key);
        let number = || value.and_then(|text| text.parse::<i64>().ok());
        match &self.test {
            Test::Exists => value.is_some(),
            Test::Missing => value.is_none(),
            Test::In(set) => value.is_some_and(|value| set.contains(value)),
            Test::NotIn(set) => value.is_none_or(|value| !set.contains(value)),
            Test::Greater(bound) => number().is_some_and(|number| number > *bound),
            Test::Less(bound) => number().is_some_and(|number| number < *bound),
            Test::Never => false,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Token<'a> {
    Open,
    Close,
    Comma,
    Not,
    Equals,
    DoubleEquals,
    NotEquals,
    Greater,
    Less,
    In,
    NotIn,
    Word(&'a str),
    End,
}

struct Parser<'a> {
    tokens: Vec<(Token<'a>, &'a str)>,
    at: usize,
}

type ParseResult<T> = std::result::Result<T, String>;

impl<'a> Parser<'a> {
    fn new(text: &'a str) -> Self {
        Parser {
            tokens: scan(text),
            at: 0,
        }
    }

    fn peek(&self) -> (Token<'a>, &'a str) {
        self.tokens
            .get(self.at)
            .copied()
            .unwrap_or((Token::End, ""))
    }

    /// The next token where a value is expected: operators are words there.
    fn peek_value(&self) -> (Token<'a>, &'a str) {
        match self.peek() {
            (Token::In | Token::NotIn, text) => (Token::Word(text), text),
            other => other,
        }
    }

    fn next(&mut self) -> (Token<'a>, &'a str) {
        let token = self.peek();
        self.at += 1;
        token
    }

    fn selector(&mut self) -> ParseResult<LabelSelector> {
        let mut requirements = Vec::new();
        loop {
            match self.peek_value() {
                (Token::Word(_) | Token::Not, _) => {
                    let requirement = self
                        .requirement()
                        .map_err(|error| format!("unable to parse requirement: {error}"))?;
                    requirements.push(requirement);
                    match self.next() {
                        (Token::End, _) => break,
                        (Token::Comma, _) => {
                            let (token, text) = self.peek_value();
                            if !matches!(token, Token::Word(_) | Token::Not) {
                                return Err(format!(
                                    "found '{text}', expected: identifier after ','"
                                ));
                            }
                        }
                        (_, text) => {
                            return Err(format!(
                                "found '{text}', expected: ',' or 'end of string'"
                            ));
                        }
                    }
                }
                (Token::End, _) => break,
                (_, text) => {
                    return Err(format!(
                        "found '{text}', expected: !, identifier, or 'end of string'"
                    ));
                }
            }
        }
        Ok(LabelSelector { requirements })
    }

    fn requirement(&mut self) -> ParseResult<Requirement> {
        let negated = self.peek().0 == Token::Not;
        if negated {
            self.next();
        }
        let (Token::Word(key), _) = self.peek_value() else {
            return Err(format!("found '{}', expected: identifier", self.peek().1));
        };
        self.next();
        let problems = name::qualified(key);
        if !problems.is_empty() {
            let problems = problems.join("; ");
            return Err(format!("<nil>: Invalid value: {key:?}: {problems}"));
        }
        let test = if negated {
            Test::Missing
        } else if matches!(self.peek().0, Token::End | Token::Comma) {
            Test::Exists
        } else {
            self.comparison(key)?
        };
        Ok(Requirement {
            key: key.to_owned(),
            test,
        })
    }

    fn comparison(&mut self, key: &str) -> ParseResult<Test> {
        let (operator, text) = self.next();
        match operator {
            Token::In => Ok(Test::In(self.set(key)?)),
            Token::NotIn => Ok(Test::NotIn(self.set(key)?)),
            Token::Equals | Token::DoubleEquals => Ok(Test::In(BTreeSet::from([self.value(key)?]))),
            Token::NotEquals => Ok(Test::NotIn(BTreeSet::from([self.value(key)?]))),
            Token::Greater => Ok(Test::Greater(self.number(key)?)),
            Token::Less => Ok(Test::Less(self.number(key)?)),
            _ => Err(format!(
                "found '{text}', expected: in, notin, =, ==, !=, gt, lt"
            )),
        }
    }

    fn value(&mut self, key: &str) -> ParseResult<String> {
        match self.peek_value() {
            (Token::End | Token::Comma, _) => Ok(String::new()),
            (Token::Word(value), _) => {
                self.next();
                checked(key, value)
            }
            (_, text) => Err(format!("found '{text}', expected: identifier")),
        }
    }

    fn number(&mut self, key: &str) -> ParseResult<i64> {
        let value = self.value(key)?;
        value.parse().map_err(|_| {
            format!(
                "values[0][{key}]: Invalid value: {value:?}: for 'Gt', 'Lt' operators, the value must be an integer"
            )
        })
    }

    fn set(&mut self, key: &str) -> ParseResult<BTreeSet<String>> {
        if self.peek().0 != Token::Open {
            return Err(format!("found '{}' expected: '('", self.peek().1));
        }
        self.next();
        let mut values = BTreeSet::new();
        loop {
            match self.peek_value() {
                (Token::Word(value), _) => {
                    self.next();
                    values.insert(checked(key, value)?);
                    match self.next() {
                        (Token::Comma, _) => {
                            if self.peek().0 == Token::Close {
                                self.next();
                                values.insert(String::new());
                                return Ok(values);
                            }
                        }
                        (Token::Close, _) => return Ok(values),
                        (_, text) => {
                            return Err(format!("found '{text}', expected: ',' or ')'"));
                        }
                    }
                }
                (Token::Comma, _) => {
                    self.next();
                    values.insert(String::new());
                    if self.peek().0 == Token::Close {
                        self.next();
                        return Ok(values);
                    }
                }
                (Token::Close, _) => {
                    self.next();
                    values.insert(String::new());
                    return Ok(values);
                }
                (_, text) => {
                    return Err(format!("found '{text}', expected: ',', ')' or identifier"));
                }
            }
        }
    }
}

fn checked(key: &str, value: &str) -> ParseResult<String> {
    let problems = name::label_value(value);
    if problems.is_empty() {
        return Ok(value.to_owned());
    }
    Err(format!(
        "values[0][{key}]: Invalid value: {value:?}: {}",
        problems.join("; ")
    ))
}

fn scan(text: &str) -> Vec<(Token<'_>, &str)> {
    let mut tokens = Vec::new();
    let mut rest = text;
    loop {
        rest = rest.trim_start_matches([' ', '\t', '\r', '\n']);
        let Some(first) = rest.chars().next() else {
            return tokens;
        };
        let length = if is_symbol(first) {
            match rest.get(..2) {
                Some("==" | "!=") => 2,
                _ => 1,
            }
        } else {
            rest.find(|c| is_symbol(c) || " \t\r\n".contains(c))
                .unwrap_or(rest.len())
        };
        let (word, after) = rest.split_at(length);
        tokens.push((classify(word), word));
        rest = after;
    }
}

fn is_symbol(c: char) -> bool {
    "=!(),<>".contains(c)
}

fn classify(word: &str) -> Token<'_> {
    match word {
        "(" => Token::Open,
        ")" => Token::Close,
        "," => Token::Comma,
        "!" => Token::Not,
        "=" => Token::Equals,
        "==" => Token::DoubleEquals,
        "!=" => Token::NotEquals,
        ">" => Token::Greater,
        "<" => Token::Less,
        "in" => Token::In,
        "notin" => Token::NotIn,
        word => Token::Word(word),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selects(selector: &str, labels: &[(&str, &str)]) -> bool {
        let labels = labels
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect();
        LabelSelector::parse(selector)
            .expect(selector)
            .matches(&labels)
    }

    #[test]
    fn every_operator() {
        let labels = [("app", "x"), ("n", "5")];
        for selector in [
            "",
            "app",
            "app=x",
            "app==x",
            "app in (x, y)",
            "!tier",
            "tier!=a",
            "tier notin (a)",
            "n>4",
            "n<6",
            "app in (x),n",
            "in notin (q)",
        ] {
            assert!(selects(selector, &labels), "{selector}");
        }
        for selector in [
            "tier",
            "app!=x",
            "app in ()",
            "!app",
            "n>5",
            "n<5",
            "app=",
            "app notin (x)",
        ] {
            assert!(!selects(selector, &labels), "{selector}");
        }
    }

    #[test]
    fn errors_are_worded_as_the_server_does() {
        let error = |text| LabelSelector::parse(text).expect_err(text).message;
        assert_eq!(
            error("app within x"),
            "unable to parse requirement: found 'within', expected: in, notin, =, ==, !=, gt, lt"
        );
        assert_eq!(error("a,"), "found '', expected: identifier after ','");
        assert_eq!(
            error("=a"),
            "found '=', expected: !, identifier, or 'end of string'"
        );
        assert!(error("a in (b").contains("expected: ',' or ')'"));
        assert!(error("a=b c").contains("expected: ',' or 'end of string'"));
    }

    #[test]
    fn a_missing_json_selector_selects_nothing_and_an_empty_one_everything() {
        assert!(!LabelSelector::from_json(None).matches(&BTreeMap::new()));
        let empty = serde_json::json!({});
        assert!(LabelSelector::from_json(Some(&empty)).matches(&BTreeMap::new()));
    }
}
