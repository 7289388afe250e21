//! The part of `JMESPath` that has a translation: paths, literals, comparisons, `!`, `&&`, `||` and
//! calls of functions. Anything else is refused with its text.

use serde_json::Value;

/// An expression.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Jmes {
    /// `metadata.labels."app.kubernetes.io/name"`
    Path(Vec<String>),
    /// `metadata.ownerReferences[]`
    Flatten(Vec<String>),
    Literal(Value),
    Not(Box<Jmes>),
    And(Box<Jmes>, Box<Jmes>),
    Or(Box<Jmes>, Box<Jmes>),
    /// `==`, `!=`, `<`, `<=`, `>`, `>=`
    Compare(&'static str, Box<Jmes>, Box<Jmes>),
    Call(String, Vec<Jmes>),
}

/// How deep expressions may nest.
const MAX_DEPTH: usize = 32;

#[derive(Clone, Debug, PartialEq)]
enum Token {
    Word(String),
    /// `"a b"`: a name, whatever it is.
    Name(String),
    Literal(Value),
    Sign(&'static str),
}

/// The longest first.
const SIGNS: [&str; 17] = [
    "[]", "||", "&&", "==", "!=", "<=", ">=", ".", "(", ")", ",", "!", "<", ">", "[", "]", "|",
];

/// Reads an expression.
pub(super) fn parse(text: &str) -> Result<Jmes, String> {
    let tokens = tokens(text)?;
    let mut parser = Parser {
        tokens: &tokens,
        depth: 0,
    };
    let parsed = parser.or()?;
    match parser.tokens.first() {
        None => Ok(parsed),
        Some(token) => Err(format!("{} has no translation in \"{text}\"", named(token))),
    }
}

fn named(token: &Token) -> String {
    match token {
        Token::Word(text) | Token::Name(text) => format!("\"{text}\""),
        Token::Literal(value) => format!("the literal {value}"),
        Token::Sign(sign) => format!("\"{sign}\""),
    }
}

fn tokens(text: &str) -> Result<Vec<Token>, String> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let length = match first {
            '\'' | '"' | '`' => {
                let (inner, length) = quoted(rest, first)
                    .ok_or_else(|| format!("\"{text}\" has a {first} without its end"))?;
                tokens.push(match first {
                    '\'' => Token::Literal(Value::from(inner.replace("\\'", "'"))),
                    '"' => Token::Name(
                        serde_json::from_str(&format!("\"{inner}\""))
                            .map_err(|error| format!("\"{text}\": {error}"))?,
                    ),
                    _ => Token::Literal(
                        serde_json::from_str(&inner.replace("\\`", "`"))
                            .map_err(|error| format!("\"{text}\": {error}"))?,
                    ),
                });
                length
            }
            c if c.is_ascii_alphabetic() || c == '_' => {
                let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
                let length = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
                tokens.push(Token::Word(
                    rest.get(..length).unwrap_or_default().to_owned(),
                ));
                length
            }
            c => {
                let sign = SIGNS.iter().find(|sign| rest.starts_with(**sign));
                let sign =
                    sign.ok_or_else(|| format!("\"{c}\" has no translation in \"{text}\""))?;
                tokens.push(Token::Sign(sign));
                sign.len()
            }
        };
        rest = rest.get(length..).unwrap_or_default().trim_start();
    }
    Ok(tokens)
}

/// The text between two quotes, and its length with them.
fn quoted(rest: &str, quote: char) -> Option<(&str, usize)> {
    let mut is_escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            c if c == quote => return Some((rest.get(1..at)?, at + 1)),
            _ => {}
        }
    }
    None
}

struct Parser<'t> {
    tokens: &'t [Token],
    depth: usize,
}

impl Parser<'_> {
    fn takes(&mut self, sign: &str) -> bool {
        let is_next = matches!(self.tokens.first(), Some(Token::Sign(it)) if *it == sign);
        if is_next {
            self.tokens = self.tokens.get(1..).unwrap_or_default();
        }
        is_next
    }

    fn expects(&mut self, sign: &str) -> Result<(), String> {
        if self.takes(sign) {
            return Ok(());
        }
        let found = self.tokens.first().map_or("the end".to_owned(), named);
        Err(format!("\"{sign}\" was expected, not {found}"))
    }

    fn or(&mut self) -> Result<Jmes, String> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(format!("it nests deeper than {MAX_DEPTH}"));
        }
        let mut left = self.and()?;
        while self.takes("||") {
            left = Jmes::Or(Box::new(left), Box::new(self.and()?));
        }
        self.depth -= 1;
        Ok(left)
    }

    fn and(&mut self) -> Result<Jmes, String> {
        let mut left = self.comparison()?;
        while self.takes("&&") {
            left = Jmes::And(Box::new(left), Box::new(self.comparison()?));
        }
        Ok(left)
    }

    fn comparison(&mut self) -> Result<Jmes, String> {
        let left = self.unary()?;
        for operator in ["==", "!=", "<=", ">=", "<", ">"] {
            if self.takes(operator) {
                let right = self.unary()?;
                return Ok(Jmes::Compare(operator, Box::new(left), Box::new(right)));
            }
        }
        Ok(left)
    }

    fn unary(&mut self) -> Result<Jmes, String> {
        if self.takes("!") {
            // `!` binds closer than the dot: `!a.b` is the field b of `!a`, which never has one.
            if let [
                Token::Word(_) | Token::Name(_),
                Token::Sign("." | "[" | "[]"),
                ..,
            ] = self.tokens
            {
                let message = "\"!\" before a path negates its first name alone: write !(a.b)";
                return Err(message.to_owned());
            }
            self.depth += 1;
            if self.depth > MAX_DEPTH {
                return Err(format!("it nests deeper than {MAX_DEPTH}"));
            }
            let negated = self.unary()?;
            self.depth -= 1;
            return Ok(Jmes::Not(Box::new(negated)));
        }
        if self.takes("(") {
            let inner = self.or()?;
            self.expects(")")?;
            return match self.tokens.first() {
                Some(Token::Sign("." | "[" | "[]")) => {
                    Err("a part of the result of brackets has no translation".to_owned())
                }
                _ => Ok(inner),
            };
        }
        let Some((token, rest)) = self.tokens.split_first() else {
            return Err("it ends too early".to_owned());
        };
        self.tokens = rest;
        match token {
            Token::Literal(value) => Ok(Jmes::Literal(value.clone())),
            Token::Word(name) if self.takes("(") => self.call(name),
            Token::Word(name) | Token::Name(name) => self.path(name),
            token @ Token::Sign(_) => Err(format!("{} has no translation", named(token))),
        }
    }

    fn call(&mut self, name: &str) -> Result<Jmes, String> {
        let mut arguments = Vec::new();
        if !self.takes(")") {
            loop {
                arguments.push(self.or()?);
                if !self.takes(",") {
                    break;
                }
            }
            self.expects(")")?;
        }
        Ok(Jmes::Call(name.to_owned(), arguments))
    }

    fn path(&mut self, first: &str) -> Result<Jmes, String> {
        let mut keys = vec![first.to_owned()];
        while self.takes(".") {
            match self.tokens.split_first() {
                Some((Token::Word(key) | Token::Name(key), rest)) => {
                    keys.push(key.clone());
                    self.tokens = rest;
                }
                Some((token, _)) => return Err(format!("{} has no translation", named(token))),
                None => return Err("it ends too early".to_owned()),
            }
        }
        if self.takes("[]") {
            return match self.tokens.first() {
                Some(Token::Sign("." | "[" | "[]")) => {
                    Err("fields of the elements of a list have no translation".to_owned())
                }
                _ => Ok(Jmes::Flatten(keys)),
            };
        }
        Ok(Jmes::Path(keys))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn path(keys: &[&str]) -> Jmes {
        Jmes::Path(keys.iter().map(|it| (*it).to_owned()).collect())
    }

    #[test]
    fn operators_bind_as_in_jmespath() {
        assert_eq!(
            parse("!(a.\"b c\") && d == `2` || starts_with(e, 'x')").unwrap(),
            Jmes::Or(
                Box::new(Jmes::And(
                    Box::new(Jmes::Not(Box::new(path(&["a", "b c"])))),
                    Box::new(Jmes::Compare(
                        "==",
                        Box::new(path(&["d"])),
                        Box::new(Jmes::Literal(json!(2)))
                    )),
                )),
                Box::new(Jmes::Call(
                    "starts_with".to_owned(),
                    vec![path(&["e"]), Jmes::Literal(json!("x"))]
                )),
            )
        );
    }

    #[test]
    fn what_has_no_translation_is_refused() {
        for text in [
            "spec.containers[?name == 'a']",
            "spec.containers[0].image",
            "spec.containers[*].image",
            "spec.containers[].image",
            "a | b",
            "{a: b}",
            "@",
            "a.",
            "'x",
            "(a || b).c",
            "!a.b",
            "!!a.b",
            "!a[]",
            "",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
        assert!(parse(&"!".repeat(10_000)).is_err());
        assert!(parse(&"(".repeat(10_000)).is_err());
    }
}
