//! The operators of CEL, and the types of their results.

use kube_cel::cel::IdedExpr;
use kube_cel::cel::common::ast::{Expr, LiteralValue, operators};

use super::Type;

pub(super) fn type_of(literal: &LiteralValue) -> Type {
    match literal {
        LiteralValue::Boolean(_) => Type::Bool,
        LiteralValue::Bytes(_) => Type::Any,
        LiteralValue::Double(_) | LiteralValue::Int(_) | LiteralValue::UInt(_) => Type::Number,
        LiteralValue::Null => Type::Null,
        LiteralValue::String(_) => Type::Text,
    }
}

pub(super) fn swapped(operator: &str) -> &'static str {
    match operator {
        operators::LESS => operators::GREATER,
        operators::LESS_EQUALS => operators::GREATER_EQUALS,
        operators::GREATER => operators::LESS,
        _ => operators::LESS_EQUALS,
    }
}

pub(super) fn is_operator(name: &str) -> bool {
    matches!(
        name,
        operators::CONDITIONAL
            | operators::LOGICAL_AND
            | operators::LOGICAL_OR
            | operators::LOGICAL_NOT
            | operators::ADD
            | operators::SUBSTRACT
            | operators::MULTIPLY
            | operators::DIVIDE
            | operators::MODULO
            | operators::NEGATE
            | operators::IN
    )
}

/// Why the operands of an operator do not fit.
pub(super) struct Misfit {
    /// The operand that does not; none if they do not fit together.
    pub(super) operand: Option<usize>,
    pub(super) message: String,
}

/// The type of an operator's result, or why its operands do not fit.
pub(super) fn operator_result(name: &str, operands: &[Type]) -> Result<Type, Misfit> {
    match (name, operands) {
        (operators::LOGICAL_AND | operators::LOGICAL_OR | operators::LOGICAL_NOT, _) => {
            all_of(Type::Bool, operands)
        }
        (operators::IN, [_, Type::Any | Type::List | Type::Map | Type::Null]) => Ok(Type::Bool),
        (operators::IN, [_, other]) => Err(Misfit {
            operand: Some(1),
            message: format!("\"in\" looks into a list, not into {other}"),
        }),
        (operators::CONDITIONAL, [condition, one, other]) => {
            all_of(Type::Bool, &[*condition])?;
            Ok(match (one, other) {
                (Type::Null, it) | (it, Type::Null) => *it,
                (one, other) if one == other => *one,
                _ => Type::Any,
            })
        }
        (operators::MULTIPLY | operators::DIVIDE | operators::MODULO | operators::NEGATE, _) => {
            all_of(Type::Number, operands)
        }
        (operators::ADD | operators::SUBSTRACT, [one, other]) => sum(name, *one, *other),
        _ => Ok(Type::Any),
    }
}

/// This type, if all operands may have it.
fn all_of(wanted: Type, operands: &[Type]) -> Result<Type, Misfit> {
    let mut each = operands.iter().enumerate();
    match each.find(|(_, it)| !it.meets(wanted)) {
        Some((index, other)) => Err(Misfit {
            operand: Some(index),
            message: format!("it takes {other} for {wanted}"),
        }),
        None => Ok(wanted),
    }
}

fn sum(name: &str, one: Type, other: Type) -> Result<Type, Misfit> {
    Ok(match (one, other) {
        (Type::Time, Type::Duration) | (Type::Duration, Type::Time) if name == operators::ADD => {
            Type::Time
        }
        (Type::Time, Type::Duration) => Type::Time,
        (Type::Time, Type::Time) if name == operators::SUBSTRACT => Type::Duration,
        (Type::Any | Type::Null, _) | (_, Type::Any | Type::Null) => Type::Any,
        (one, other) if one == other => one,
        (one, other) => {
            return Err(Misfit {
                operand: None,
                message: format!("it computes with {one} and {other}"),
            });
        }
    })
}

/// How many parts an expression has between its outermost `&&`.
pub(super) fn conjuncts(expr: &IdedExpr) -> usize {
    match &expr.expr {
        Expr::Call(call) if call.func_name == operators::LOGICAL_AND => {
            call.args.iter().map(conjuncts).sum()
        }
        _ => 1,
    }
}
