//! The parts of `when`, and what an index finds by them.

use std::collections::BTreeSet;
use std::sync::Arc;

use davit_guest::ConfigError;

use super::boolean;
use crate::cel::{Expression, OBJECT, Scope, text};
use crate::simple::Simple;

/// A part of `when`: all of them have to be true.
#[derive(Clone, Debug)]
pub(crate) struct Clause {
    pub(crate) text: Arc<str>,
    pub(crate) expression: Expression,
    /// Whether it reads other objects than the one that the rule is about.
    pub(crate) reads_others: bool,
    pub(crate) simple: Option<Simple>,
}

/// A field of the object that has to have one of some texts. An index over it leads to every
/// object for which all clauses are true.
#[derive(Clone, Debug)]
pub(crate) struct Lead {
    /// The path of the field, as a watch declares it.
    pub(crate) path: String,
    pub(crate) values: BTreeSet<String>,
}

/// The parts of an expression.
pub(super) fn compile(
    field: &str,
    when: &str,
    scope: &Scope<'_>,
) -> Result<Vec<Clause>, ConfigError> {
    // A mistake's column counts from the start of `when`, not of the clause.
    let whole = boolean(field, when, scope)?;
    let mut texts = text::clauses(when);
    let mut parts = Vec::new();
    for text in &texts {
        parts.extend(boolean(field, text, scope).ok());
    }
    // The text is cut where the parser would cut it, or not at all.
    let conjuncts: usize = parts.iter().map(Expression::conjuncts).sum();
    if parts.len() != texts.len() || conjuncts != whole.conjuncts() {
        texts = vec![when.trim()];
        parts = vec![whole];
    }
    let mut clauses = Vec::new();
    for (text, expression) in texts.into_iter().zip(parts) {
        let reads_others = expression.bindings().any(|it| it != OBJECT);
        clauses.push(Clause {
            text: text.into(),
            reads_others,
            simple: Simple::of(&expression),
            expression,
        });
    }
    // Their order does not change the result: what costs least comes first, and what reads
    // only the object comes before what reads other objects.
    clauses.sort_by_key(|clause| (clause.simple.is_none(), clause.reads_others));
    Ok(clauses)
}

/// What leads to the objects for which all clauses are true, if a clause asks for a text.
pub(super) fn lead(clauses: &[Clause]) -> Option<Lead> {
    let mut simple = clauses.iter().filter_map(|it| it.simple.as_ref());
    let (path, values) = simple.find_map(Simple::texts)?;
    Some(Lead {
        path: path.declared(),
        values,
    })
}
