//! Where the parts of an expression stand in its text.
//!
//! The parser forgets the places of a text that has no syntax error. They are found again: the
//! nodes are visited in the order of the text, and each is looked for among the tokens behind
//! the one before it. From then on the id of a node is its place; 0 if it stands nowhere, as
//! what a macro adds.

use kube_cel::cel::IdedExpr;
use kube_cel::cel::common::ast::{CallExpr, ComprehensionExpr, EntryExpr, Expr, operators};

use super::expand::is_ident;
use super::token::{Token, Tokens};

/// The macros that become loops.
pub(super) const LOOPS: [&str; 6] = ["all", "exists", "exists_one", "existsOne", "filter", "map"];

/// A place has the column in its low half, and in its high half the number of the variable
/// (from 1) whose text it is in; 0 for the expression itself.
const HALF: u32 = 32;

/// The column of a place, in characters from 1; 0 if it is none.
pub(super) fn column(place: u64) -> usize {
    usize::try_from(place & u64::from(u32::MAX)).unwrap_or_default()
}

/// The number of the variable, from 0, in whose text a place is.
pub(super) fn variable(place: u64) -> Option<usize> {
    usize::try_from(place >> HALF).ok()?.checked_sub(1)
}

/// The place at which an expression starts.
pub(super) fn start(expr: &IdedExpr) -> u64 {
    let first = match &expr.expr {
        Expr::Select(select) => Some(&*select.operand),
        Expr::Comprehension(it) => Some(&it.iter_range),
        Expr::Call(call) if is_infix(&call.func_name) => call.args.first(),
        Expr::Call(call) => call.target.as_deref(),
        _ => None,
    };
    match first.map_or(0, start) {
        0 => expr.id,
        place => place,
    }
}

/// Makes the id of each node its place. `variable` is the number of the variable whose text it
/// is; none for an expression itself.
pub(super) fn locate(expr: &mut IdedExpr, source: &str, variable: Option<usize>) {
    clear(expr);
    let number = variable.map_or(0, |index| index + 1);
    let mut search = Search {
        tokens: Tokens::new(source).collect(),
        next: 0,
        text: u64::try_from(number).unwrap_or_default() << HALF,
    };
    search.visit(expr);
}

fn clear(expr: &mut IdedExpr) {
    expr.id = 0;
    match &mut expr.expr {
        Expr::Select(select) => clear(&mut select.operand),
        Expr::Call(call) => {
            call.target.iter_mut().for_each(|it| clear(it));
            call.args.iter_mut().for_each(clear);
        }
        Expr::List(list) => list.elements.iter_mut().for_each(clear),
        Expr::Map(map) => {
            for entry in &mut map.entries {
                if let EntryExpr::MapEntry(it) = &mut entry.expr {
                    clear(&mut it.key);
                    clear(&mut it.value);
                }
            }
        }
        Expr::Comprehension(it) => {
            clear(&mut it.iter_range);
            clear(&mut it.accu_init);
            clear(&mut it.loop_cond);
            clear(&mut it.loop_step);
            clear(&mut it.result);
        }
        Expr::Ident(_) | Expr::Literal(_) | Expr::Struct(_) | Expr::Unspecified => {}
    }
}

struct Search<'a> {
    tokens: Vec<Token<'a>>,
    /// The first token that no node was found at.
    next: usize,
    /// The high half of the places.
    text: u64,
}

impl Search<'_> {
    fn visit(&mut self, expr: &mut IdedExpr) {
        expr.id = match &mut expr.expr {
            Expr::Ident(name) => self.word(name.trim_start_matches('.')),
            Expr::Literal(_) => self.find(is_literal),
            Expr::Select(select) => {
                self.visit(&mut select.operand);
                self.word(&select.field)
            }
            Expr::Call(call) => self.call(call),
            Expr::List(list) => {
                let place = self.word("[");
                self.visit_all(&mut list.elements);
                place
            }
            Expr::Map(map) => {
                let place = self.word("{");
                for entry in &mut map.entries {
                    if let EntryExpr::MapEntry(it) = &mut entry.expr {
                        self.visit(&mut it.key);
                        self.visit(&mut it.value);
                    }
                }
                place
            }
            Expr::Comprehension(it) => self.comprehension(it),
            Expr::Struct(it) => {
                let name = it.type_name.trim_start_matches('.');
                self.word(name.split('.').next().unwrap_or(name))
            }
            Expr::Unspecified => 0,
        };
    }

    fn visit_all(&mut self, all: &mut [IdedExpr]) {
        for one in all {
            self.visit(one);
        }
    }

    fn call(&mut self, call: &mut CallExpr) -> u64 {
        let sign = sign_of(&call.func_name);
        match (sign, call.args.as_mut_slice()) {
            (Some(sign), [left, rest @ ..]) if is_infix(&call.func_name) => {
                self.visit(left);
                let place = self.word(sign);
                self.visit_all(rest);
                place
            }
            (sign, args) => {
                if let Some(target) = &mut call.target {
                    self.visit(target);
                }
                let place = self.word(sign.unwrap_or(&call.func_name));
                self.visit_all(args);
                place
            }
        }
    }

    fn comprehension(&mut self, it: &mut ComprehensionExpr) -> u64 {
        self.visit(&mut it.iter_range);
        let place = self.find(|token| LOOPS.contains(&token));
        self.word(&it.iter_var);
        let Expr::Call(step) = &mut it.loop_step.expr else {
            return place;
        };
        match step.args.as_mut_slice() {
            // `map` appends what it makes of an element.
            [_, appended] if step.func_name == operators::ADD => self.appended(appended, ""),
            // `all` and `exists` combine the condition with what they had before.
            [_, condition] => self.visit(condition),
            // `filter`, `exists_one`, and `map` with a condition.
            [condition, then, _] => {
                self.visit(condition);
                if let Expr::Call(append) = &mut then.expr
                    && let [_, appended] = append.args.as_mut_slice()
                {
                    self.appended(appended, &it.iter_var);
                }
            }
            _ => {}
        }
        place
    }

    /// What a loop appends to its result, but for the element itself: `filter` adds that.
    fn appended(&mut self, appended: &mut IdedExpr, element: &str) {
        if let Expr::List(list) = &mut appended.expr {
            for it in &mut list.elements {
                if !is_ident(it, element) {
                    self.visit(it);
                }
            }
        }
    }

    fn word(&mut self, word: &str) -> u64 {
        self.find(|token| token == word)
    }

    /// The place of the next such token.
    fn find(&mut self, fits: impl Fn(&str) -> bool) -> u64 {
        let rest = self.tokens.get(self.next..).unwrap_or_default();
        let Some(at) = rest.iter().position(|token| fits(token.text)) else {
            return 0;
        };
        let column = rest.get(at).map_or(0, |token| token.column);
        self.next += at + 1;
        self.text | u64::try_from(column).unwrap_or_default()
    }
}

fn is_literal(token: &str) -> bool {
    token.starts_with(|c: char| c.is_ascii_digit())
        || token.contains(['\'', '"'])
        || matches!(token, "true" | "false" | "null")
}

/// Whether an operator stands behind its first operand.
fn is_infix(name: &str) -> bool {
    sign_of(name).is_some() && !matches!(name, operators::LOGICAL_NOT | operators::NEGATE)
}

/// The first token of an operator.
fn sign_of(name: &str) -> Option<&'static str> {
    Some(match name {
        operators::ADD => "+",
        operators::SUBSTRACT | operators::NEGATE => "-",
        operators::MULTIPLY => "*",
        operators::DIVIDE => "/",
        operators::MODULO => "%",
        operators::EQUALS => "=",
        operators::NOT_EQUALS | operators::LOGICAL_NOT => "!",
        operators::LESS | operators::LESS_EQUALS => "<",
        operators::GREATER | operators::GREATER_EQUALS => ">",
        operators::LOGICAL_AND => "&&",
        operators::LOGICAL_OR => "||",
        operators::IN => "in",
        operators::INDEX => "[",
        operators::CONDITIONAL => "?",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::super::text;
    use super::*;

    /// The words of an expression's nodes, each with the text at its place.
    fn places(source: &str) -> Vec<(String, String)> {
        let mut found = Vec::new();
        collect(&text::parse(source).unwrap(), source, &mut found);
        found
    }

    fn collect(expr: &IdedExpr, source: &str, found: &mut Vec<(String, String)>) {
        let mut note = |name: &str, id: u64| {
            let rest: String = source
                .chars()
                .skip(column(id).wrapping_sub(1))
                .take(name.len())
                .collect();
            found.push((name.to_owned(), rest));
        };
        match &expr.expr {
            Expr::Ident(name) if !name.starts_with('@') && expr.id > 0 => note(name, expr.id),
            Expr::Select(select) => {
                note(&select.field, expr.id);
                collect(&select.operand, source, found);
            }
            Expr::Call(call) => {
                match sign_of(&call.func_name) {
                    Some(sign) if expr.id > 0 => note(sign, expr.id),
                    None if !call.func_name.starts_with('@') => note(&call.func_name, expr.id),
                    _ => {}
                }
                let parts = call.target.iter().map(|it| &**it).chain(&call.args);
                parts.for_each(|it| collect(it, source, found));
            }
            Expr::List(list) => {
                for it in &list.elements {
                    collect(it, source, found);
                }
            }
            Expr::Comprehension(it) => {
                collect(&it.iter_range, source, found);
                collect(&it.loop_step, source, found);
            }
            _ => {}
        }
    }

    #[test]
    fn each_part_is_found_where_it_stands() {
        for source in [
            "object.a == 'a' && object.a.b != object.b.a || !(object.b < 1.5 + 2)",
            "object.list.exists(x, x.a == 'a' || x.b) || object.other.all(x, x.c && x.a)",
            "object.list.filter(x, x.a > 1).map(y, y.b + y.c).exists_one(z, z == 1) && object.x",
            "object.list.map(x, x.a, x.b + 1)[0] == -object.z ? object.y : object.x in [1, 2]",
            "has(object.a.b) && size(object.a) >= 1e-5 && sets.contains([1], object.n['a'].b)",
            "math.greatest(object.a, 2) == 1 // object.b\n || object.b.startsWith('object.b')",
        ] {
            let found = places(source);
            assert!(found.len() > 8, "{source}: {found:?}");
            for (word, at) in found {
                assert_eq!(word, at, "{source}");
            }
        }
    }

    #[test]
    fn columns_are_counted_in_characters() {
        let parsed = text::parse("'ä' == object.a").unwrap();
        let Expr::Call(call) = &parsed.expr else {
            panic!("{parsed:?}");
        };
        assert_eq!(column(parsed.id), 5);
        assert_eq!(column(call.args[1].id), 15);
        assert_eq!(column(start(&call.args[1])), 8);
        assert_eq!(column(start(&parsed)), 1);
        assert_eq!(variable(parsed.id), None);
    }

    #[test]
    fn a_place_in_a_variable_says_which() {
        let parsed = text::parse_variable("1 + object.a", 2).unwrap();
        assert_eq!((column(parsed.id), variable(parsed.id)), (3, Some(2)));
    }
}
