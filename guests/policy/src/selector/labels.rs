//! Label selectors: `app=web,tier in (a, b),!canary`.

use crate::cel::Mistake;
use crate::names;

/// The characters that end a word.
const SIGNS: &str = "=!(),<>";

/// Checks a label selector by the grammar of the API server. An empty one is none.
pub(crate) fn check(selector: &str) -> Result<(), Mistake> {
    if selector.is_empty() {
        return Ok(());
    }
    let mut parser = Parser {
        rest: selector,
        column: 1,
    };
    loop {
        parser.requirement()?;
        if parser.peek().is_empty() {
            return Ok(());
        }
        if !parser.takes(",") {
            return Err(parser.mistake("write \",\" between two requirements"));
        }
    }
}

struct Parser<'a> {
    rest: &'a str,
    /// In characters, from 1.
    column: usize,
}

impl<'a> Parser<'a> {
    /// The next sign or word; empty at the end.
    fn peek(&mut self) -> &'a str {
        let rest = self.rest.trim_start();
        self.column += self.rest.chars().count() - rest.chars().count();
        self.rest = rest;
        let length = match rest.chars().next() {
            Some(first) if SIGNS.contains(first) => {
                1 + usize::from(rest.starts_with("==") || rest.starts_with("!="))
            }
            _ => rest.find(ends_word).unwrap_or(rest.len()),
        };
        rest.get(..length).unwrap_or_default()
    }

    fn skip(&mut self) {
        let next = self.peek();
        self.column += next.chars().count();
        self.rest = self.rest.get(next.len()..).unwrap_or_default();
    }

    fn takes(&mut self, sign: &str) -> bool {
        let is_next = self.peek() == sign;
        if is_next {
            self.skip();
        }
        is_next
    }

    /// The next word, before it is taken; none if there is a sign, or the end.
    fn word(&mut self) -> Option<&'a str> {
        Some(self.peek()).filter(|next| !next.is_empty() && !next.starts_with(ends_word))
    }

    fn mistake(&self, message: impl Into<String>) -> Mistake {
        Mistake::at_column(self.column, message)
    }

    fn requirement(&mut self) -> Result<(), Mistake> {
        let is_absence = self.takes("!");
        let Some(key) = self.word() else {
            return Err(self.mistake("a label stands here, as in app=web"));
        };
        names::key(key).map_err(|message| self.mistake(message))?;
        self.skip();
        if is_absence || matches!(self.peek(), "" | ",") {
            return Ok(());
        }
        let operator = self.peek();
        let column = self.column;
        self.skip();
        match operator {
            "in" | "notin" => self.set(key, operator),
            "=" | "==" | "!=" => self.value(),
            ">" | "<" => self.number(),
            _ => Err(Mistake::at_column(
                column,
                "behind a label stands in, notin, =, ==, !=, > or <",
            )),
        }
    }

    /// A value, which may be empty.
    fn value(&mut self) -> Result<(), Mistake> {
        if let Some(value) = self.word() {
            names::value(value).map_err(|message| self.mistake(message))?;
            self.skip();
        }
        Ok(())
    }

    fn number(&mut self) -> Result<(), Mistake> {
        if self.peek().parse::<i64>().is_err() {
            return Err(self.mistake("a whole number stands here"));
        }
        self.skip();
        Ok(())
    }

    /// Values in brackets.
    fn set(&mut self, key: &str, operator: &str) -> Result<(), Mistake> {
        if !self.takes("(") {
            let value = self.word().unwrap_or("a, b");
            let message = format!("write the values in brackets: {key} {operator} ({value})");
            return Err(self.mistake(message));
        }
        loop {
            self.value()?;
            if self.takes(")") {
                return Ok(());
            }
            if !self.takes(",") {
                return Err(self.mistake("\",\" or \")\" stands behind a value"));
            }
        }
    }
}

fn ends_word(c: char) -> bool {
    c.is_whitespace() || SIGNS.contains(c)
}
