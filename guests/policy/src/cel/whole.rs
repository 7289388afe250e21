//! Arithmetic with whole numbers. CEL divides them without a fraction, so that 2 / 3 is 0, and it
//! computes nothing of a whole number and one with a fraction.

use kube_cel::cel::IdedExpr;
use kube_cel::cel::common::ast::{
    CallExpr, ComprehensionExpr, EntryExpr, Expr, LiteralValue, operators,
};

use super::expand::{Variables, expand, is_ident};
use super::{Mistake, text};

/// What is known of a number before it exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Number {
    /// A count, or a whole number that is made of counts.
    Count,
    /// Another whole number.
    Whole,
    /// One with a fraction.
    Fraction,
    /// It may be any, or is none.
    Unknown,
}

/// The functions whose result has a fraction.
const FRACTIONS: [&str; 7] = [
    "double",
    "ceil",
    "floor",
    "round",
    "trunc",
    "sqrt",
    "asApproximateFloat",
];

/// The operators whose result is no number.
const TESTS: [&str; 11] = [
    operators::EQUALS,
    operators::NOT_EQUALS,
    operators::LESS,
    operators::LESS_EQUALS,
    operators::GREATER,
    operators::GREATER_EQUALS,
    operators::LOGICAL_AND,
    operators::LOGICAL_OR,
    operators::LOGICAL_NOT,
    operators::IN,
    operators::NOT_STRICTLY_FALSE,
];

/// Checks the arithmetic of an expression in which every value below a binding is a count.
pub(crate) fn check(
    source: &str,
    binding: &'static str,
    variables: &Variables,
) -> Result<(), Mistake> {
    let expr = expand(text::parse(source)?, variables)?;
    let mut check = Check {
        binding,
        variables,
        locals: Vec::new(),
    };
    check.number(&expr).map(|_| ())
}

struct Check<'a> {
    binding: &'static str,
    variables: &'a Variables,
    /// The variables of the loops around, with what is known of them.
    locals: Vec<(&'a str, Number)>,
}

impl<'a> Check<'a> {
    fn number(&mut self, expr: &'a IdedExpr) -> Result<Number, Mistake> {
        if self.count_of(expr).is_some() {
            return Ok(Number::Count);
        }
        match &expr.expr {
            Expr::Literal(LiteralValue::Int(_) | LiteralValue::UInt(_)) => Ok(Number::Whole),
            Expr::Literal(LiteralValue::Double(_)) => Ok(Number::Fraction),
            Expr::Ident(name) => {
                let local = self.locals.iter().rev().find(|(local, _)| local == name);
                Ok(local.map_or(Number::Unknown, |(_, number)| *number))
            }
            Expr::Select(select) => self.number(&select.operand).map(|_| Number::Unknown),
            Expr::Call(call) => self.call(call, expr.id),
            Expr::List(list) => self.common(&list.elements),
            Expr::Map(map) => {
                for entry in &map.entries {
                    if let EntryExpr::MapEntry(it) = &entry.expr {
                        self.number(&it.key)?;
                        self.number(&it.value)?;
                    }
                }
                Ok(Number::Unknown)
            }
            Expr::Comprehension(it) => self.comprehension(it),
            Expr::Literal(_) | Expr::Struct(_) | Expr::Unspecified => Ok(Number::Unknown),
        }
    }

    /// The name of a count, if it is one: `counts.nodes`, `counts["nodes"]`.
    fn count_of<'e>(&self, expr: &'e IdedExpr) -> Option<&'e str> {
        match &expr.expr {
            Expr::Select(select) if !select.test && is_ident(&select.operand, self.binding) => {
                Some(&select.field)
            }
            Expr::Call(call) if call.func_name == operators::INDEX => match call.args.as_slice() {
                [of, key] if is_ident(of, self.binding) => match &key.expr {
                    Expr::Literal(LiteralValue::String(name)) => Some(name.inner()),
                    _ => None,
                },
                _ => None,
            },
            _ => None,
        }
    }

    fn call(&mut self, call: &'a CallExpr, place: u64) -> Result<Number, Mistake> {
        let name = call.func_name.as_str();
        match (name, call.args.as_slice()) {
            (
                operators::ADD
                | operators::SUBSTRACT
                | operators::MULTIPLY
                | operators::DIVIDE
                | operators::MODULO,
                [left, right],
            ) => self.arithmetic(name, left, right, place),
            (operators::CONDITIONAL, [condition, then, otherwise]) => {
                self.number(condition)?;
                self.common([then, otherwise])
            }
            _ => {
                let of_parts = self.common(call.target.as_deref().into_iter().chain(&call.args))?;
                Ok(match name {
                    _ if TESTS.contains(&name) => Number::Unknown,
                    _ if FRACTIONS.contains(&name) => Number::Fraction,
                    operators::NEGATE => of_parts,
                    // What is made of a count is taken for one.
                    _ if of_parts == Number::Count => Number::Count,
                    "int" | "uint" | "size" => Number::Whole,
                    _ => Number::Unknown,
                })
            }
        }
    }

    fn comprehension(&mut self, it: &'a ComprehensionExpr) -> Result<Number, Mistake> {
        let range = self.number(&it.iter_range)?;
        self.locals.push((it.accu_var.as_str(), Number::Unknown));
        self.locals.push((it.iter_var.as_str(), range));
        let parts = [&it.accu_init, &it.loop_cond, &it.loop_step, &it.result];
        let made = self.common(parts);
        self.locals.truncate(self.locals.len().saturating_sub(2));
        made.map(|made| match made {
            Number::Count => Number::Count,
            _ => Number::Unknown,
        })
    }

    /// What is known of a value that is one of these, or is made of them.
    fn common(&mut self, parts: impl IntoIterator<Item = &'a IdedExpr>) -> Result<Number, Mistake> {
        let mut common = None;
        for part in parts {
            let number = self.number(part)?;
            common = Some(match common {
                None => number,
                Some(before) => joined(before, number),
            });
        }
        Ok(common.unwrap_or(Number::Unknown))
    }

    fn arithmetic(
        &mut self,
        operator: &str,
        left: &'a IdedExpr,
        right: &'a IdedExpr,
        place: u64,
    ) -> Result<Number, Mistake> {
        let (one, other) = (self.number(left)?, self.number(right)?);
        let whole = match (one, other) {
            (Number::Count | Number::Whole, Number::Fraction) => Some(left),
            (Number::Fraction, Number::Count | Number::Whole) => Some(right),
            _ => None,
        };
        if let Some(whole) = whole {
            let message = format!(
                "CEL computes with whole numbers or with fractions, not with both: write {}",
                self.as_fraction(whole)
            );
            return Err(Mistake::at(place, self.variables, message));
        }
        let is_of_count = one == Number::Count || other == Number::Count;
        if is_of_count && operator == operators::DIVIDE {
            let binding = self.binding;
            let message = format!(
                "{binding} are whole numbers, and so is their quotient: write {binding}.a * 10 > \
                 {binding}.b * 3 or double({binding}.a) / double({binding}.b) > 0.3"
            );
            return Err(Mistake::at(place, self.variables, message));
        }
        Ok(joined(one, other))
    }

    /// How a whole number is written as one with a fraction.
    fn as_fraction(&self, whole: &IdedExpr) -> String {
        if let Expr::Literal(LiteralValue::Int(number)) = &whole.expr {
            return format!("{}.0", number.inner());
        }
        match self.count_of(whole) {
            Some(name) => format!("double({}.{name})", self.binding),
            None => "double(…) around the whole number".to_owned(),
        }
    }
}

/// What is known of a value that is one of two, or is made of both.
fn joined(one: Number, other: Number) -> Number {
    match (one, other) {
        (Number::Count, _) | (_, Number::Count) => Number::Count,
        (one, other) if one == other => one,
        _ => Number::Unknown,
    }
}
