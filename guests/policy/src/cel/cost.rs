//! Where a lowered expression counts what it takes ([`budget`](super::budget)).
//!
//! Slots count themselves when they are read, and most of the lowered functions count what they make
//! of their operands. What is left are the variables of loops, which each turn may read often, and
//! the parts of the expression itself, which each turn evaluates again.

use kube_cel::cel::IdedExpr;
use kube_cel::cel::common::ast::{CallExpr, EntryExpr, Expr, LiteralValue, operators};

use super::budget;
use super::expand::call_of;
use super::loops;
use super::lowered;

/// Puts the counting into a lowered expression.
pub(super) fn account(expr: &mut IdedExpr) {
    let mut accounting = Accounting { locals: Vec::new() };
    accounting.visit(expr);
}

struct Accounting {
    /// The variables of the loops around.
    locals: Vec<String>,
}

impl Accounting {
    /// Returns the steps that one evaluation takes by itself, without the turns of its loops.
    fn visit(&mut self, expr: &mut IdedExpr) -> usize {
        let steps = match &mut expr.expr {
            Expr::Literal(LiteralValue::String(text)) => {
                return budget::steps_of(text.inner().len());
            }
            Expr::Literal(LiteralValue::Bytes(bytes)) => {
                return budget::steps_of(bytes.inner().len());
            }
            Expr::Call(call) if loops::is_loop(&call.func_name) => self.of_loop(call),
            Expr::Call(call) => self.of_call(call),
            Expr::List(list) => list.elements.iter_mut().map(|it| self.visit(it)).sum(),
            Expr::Map(map) => {
                let entries = map.entries.iter_mut().map(|entry| match &mut entry.expr {
                    EntryExpr::MapEntry(it) => self.visit(&mut it.key) + self.visit(&mut it.value),
                    EntryExpr::StructField(_) => 0,
                });
                entries.sum()
            }
            _ => 0,
        };
        steps + 1
    }

    fn of_loop(&mut self, call: &mut CallExpr) -> usize {
        let [range, variable, _, parts @ ..] = call.args.as_mut_slice() else {
            return 0;
        };
        let before = self.visit(range);
        self.count_local(range);
        if let Expr::Literal(LiteralValue::String(name)) = &variable.expr {
            self.locals.push(name.inner().to_owned());
        }
        let steps = parts.iter_mut().map(|it| self.visit(it)).sum();
        self.locals.pop();
        for part in parts {
            self.count_local(part);
        }
        loops::set_steps(call, steps);
        before
    }

    fn of_call(&mut self, call: &mut CallExpr) -> usize {
        let counts_itself = counts_itself(call);
        let mut steps = 0;
        if let Some(receiver) = call.target.as_deref_mut() {
            steps += self.visit(receiver);
            self.count_local(receiver);
        }
        for operand in &mut call.args {
            steps += self.visit(operand);
            if !counts_itself {
                self.count_local(operand);
            }
        }
        steps
    }

    /// Counts a loop's variable that is an operand.
    fn count_local(&self, operand: &mut IdedExpr) {
        if matches!(&operand.expr, Expr::Ident(name) if self.locals.contains(name)) {
            let inner = std::mem::take(operand);
            *operand = call_of(lowered::OPERAND, vec![inner]);
        }
    }
}

/// Whether a call counts its operands, or takes no more of them than a constant has.
fn counts_itself(call: &CallExpr) -> bool {
    match call.func_name.as_str() {
        lowered::FIELD
        | lowered::INDEX
        | lowered::PART
        | lowered::HAYSTACK
        | lowered::SEARCHED
        | operators::LOGICAL_AND
        | operators::LOGICAL_OR
        | operators::LOGICAL_NOT => true,
        operators::EQUALS
        | operators::NOT_EQUALS
        | operators::LESS
        | operators::LESS_EQUALS
        | operators::GREATER
        | operators::GREATER_EQUALS
        | operators::IN
        | lowered::EQUAL
        | lowered::IN => call.args.iter().any(is_constant),
        _ => false,
    }
}

fn is_constant(expr: &IdedExpr) -> bool {
    match &expr.expr {
        Expr::Literal(_) => true,
        Expr::List(list) => list.elements.iter().all(is_constant),
        _ => false,
    }
}
