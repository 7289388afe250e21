//! Expressions in CEL, as `kube-cel` evaluates them, over objects of which only the fields
//! that the expressions read are known.
//!
//! [`Expression::compile`] lowers a text: every read of an object (`object.status.phase`) becomes a
//! *slot*, whose path the watch declares, so that nothing is read that is not declared and no
//! object is converted as a whole. What an object lacks is `null`: it equals nothing but `null`,
//! and anything else that is done with it is an error. Comparisons with `now` note when their
//! result changes next ([`clock`]).

mod arguments;
mod arithmetic;
mod budget;
mod calls;
mod cause;
mod clock;
#[cfg(test)]
mod conformance;
mod conversions;
mod cost;
pub(crate) mod expand;
mod fields;
mod format;
pub(crate) mod functions;
mod helpers;
mod lists;
mod loops;
mod lower;
pub(crate) mod lowered;
mod networks;
mod operators;
pub(crate) mod path;
mod pattern;
pub(crate) mod place;
mod quantities;
#[cfg(test)]
mod random;
pub(crate) mod reads;
pub(crate) mod schema;
mod search;
mod signature;
#[cfg(test)]
mod tests;
pub(crate) mod text;
mod times;
mod token;
mod types;
mod unlinked;
mod urls;
pub(crate) mod value;
mod versions;
pub(crate) mod whole;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::OnceLock;

use chrono::{DateTime, FixedOffset};
use kube_cel::cel;
use kube_cel::cel::context::VariableResolver;
use kube_cel::cel::{IdedExpr, Value};

pub(crate) use lower::{NO_VERSION, Scope, VERSION};
pub(crate) use types::Type;

use davit_guest::dynamic;

use path::Path;
use schema::Schema;

/// How many elements the loops of one evaluation may visit together.
pub(crate) const MAX_ITERATIONS: usize = 10_000;

/// How many bytes of texts, lists and maps one evaluation may make.
pub(crate) const MAX_MADE: usize = 2 << 20;

/// How many steps one evaluation may take.
pub(crate) const MAX_STEPS: usize = 1_000_000;

/// How many bytes an expression may have.
pub(crate) const MAX_BYTES: usize = 4096;

/// How many nodes an expression may have after its variables were put in.
pub(crate) const MAX_NODES: usize = 5000;

/// The name of the object that a rule is about.
pub(crate) const OBJECT: &str = "object";

/// A mistake in an expression: where, and what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mistake {
    /// Counted from 1, in characters; 0 if it is the expression as a whole.
    pub(crate) column: usize,
    /// The variable in whose text it is; none if it is in the expression itself.
    pub(crate) variable: Option<String>,
    /// The expression in which it is, of a text that has several.
    pub(crate) embedded: Option<String>,
    pub(crate) message: String,
}

impl Mistake {
    pub(crate) fn whole(message: impl Into<String>) -> Self {
        Self::at_column(0, message)
    }

    pub(crate) fn at_column(column: usize, message: impl Into<String>) -> Self {
        Self {
            column,
            variable: None,
            embedded: None,
            message: message.into(),
        }
    }

    /// A mistake at a [`place`]. The variables are those of the rule.
    fn at(place: u64, variables: &expand::Variables, message: impl Into<String>) -> Self {
        let variable = place::variable(place).and_then(|index| variables.keys().nth(index));
        Self {
            variable: variable.cloned(),
            ..Self::at_column(place::column(place), message)
        }
    }
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(embedded) = &self.embedded {
            write!(f, "in ${{{embedded}}}: ")?;
        }
        if self.column > 0 {
            write!(f, "column {}: ", self.column)?;
        }
        f.write_str(&self.message)
    }
}

/// Something that an expression reads: a field of an object, or a number that the guest
/// counts.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Slot {
    /// `object`, `node`, …
    pub(crate) binding: String,
    pub(crate) path: Path,
    /// Which texts below the path are times.
    pub(crate) schema: Schema,
}

impl Slot {
    /// The elements of a list.
    fn elements(&self) -> Self {
        Self {
            binding: self.binding.clone(),
            path: self.path.elements(),
            schema: self.schema.element(),
        }
    }

    /// Whether it is a list of whole objects.
    fn is_list_of_objects(&self) -> bool {
        self.path.is_root() && self.schema.is_list()
    }
}

/// An expression that is ready to be evaluated.
#[derive(Clone, Debug)]
pub(crate) struct Expression {
    ast: IdedExpr,
    slots: Vec<Slot>,
    /// The fields that it reads, by binding, as paths of a watch.
    pub(crate) fields: BTreeMap<String, BTreeSet<String>>,
    pub(crate) result: Type,
    /// The column at which its text starts.
    pub(crate) start: usize,
    /// Whether its result can change with time in another way than by a comparison with
    /// `now`: then it has to be evaluated again and again.
    pub(crate) is_periodic: bool,
}

/// Why an evaluation has no result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// It compares or computes with something that the object does not have: its path.
    Absent(String),
    /// Anything else.
    Error(String),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Absent(path) => write!(f, "{path} is not set"),
            Self::Error(message) => f.write_str(message),
        }
    }
}

/// The objects of one evaluation, by binding. A binding without an object is `null`.
#[derive(Debug, Default)]
pub(crate) struct Objects<'a> {
    /// That of [`OBJECT`], which every evaluation of a rule has.
    object: Option<&'a dynamic::Value>,
    related: BTreeMap<&'a str, Option<&'a dynamic::Value>>,
}

impl<'a> Objects<'a> {
    /// The object of a rule, and nothing that is related to it.
    pub(crate) fn of(object: &'a dynamic::Value) -> Self {
        Self {
            object: Some(object),
            related: BTreeMap::new(),
        }
    }

    pub(crate) fn insert(&mut self, binding: &'a str, object: Option<&'a dynamic::Value>) {
        self.related.insert(binding, object);
    }

    pub(crate) fn get(&self, binding: &str) -> Option<&'a dynamic::Value> {
        match binding {
            OBJECT => self.object,
            _ => self.related.get(binding).copied().flatten(),
        }
    }
}

impl Expression {
    /// Compiles a text. The scope says which objects it may read.
    pub(crate) fn compile(source: &str, scope: &Scope<'_>) -> Result<Self, Mistake> {
        if source.len() > MAX_BYTES {
            return Err(Mistake::whole(format!(
                "it is longer than {MAX_BYTES} bytes"
            )));
        }
        let parsed = text::parse(source)?;
        let start = place::column(place::start(&parsed));
        let expanded = expand::expand(parsed, scope.variables)?;
        let mut expression = lower::lower(&expanded, start, scope)?;
        cost::account(&mut expression.ast);
        Ok(expression)
    }

    /// The field that a text names, and nothing else than that: `object.metadata.name`.
    /// None if it is another expression.
    pub(crate) fn field(source: &str, object: Schema) -> Result<Option<Slot>, Mistake> {
        let variables = BTreeMap::new();
        let scope = Scope {
            bindings: BTreeMap::from([(OBJECT, object)]),
            variables: &variables,
        };
        let mut expression = Self::compile(source, &scope)?;
        let is_a_field = expression.is_a_field() && expression.slots.len() == 1;
        Ok(expression.slots.pop().filter(|_| is_a_field))
    }

    /// Checks a text that may be about a whole object, such as a variable.
    pub(crate) fn check(source: &str, scope: &Scope<'_>) -> Result<(), Mistake> {
        let expanded = expand::expand(text::parse(source)?, scope.variables)?;
        lower::check(&expanded, scope)
    }

    /// Evaluates it at a time (milliseconds since the epoch). Also returns when the result can
    /// change next; none if only a change of an object changes it.
    pub(crate) fn evaluate(
        &self,
        objects: &Objects<'_>,
        now: i64,
    ) -> (Result<Value, Failure>, Option<i64>) {
        self.resolve(&self.reader(objects, now), now, || None)
    }

    fn reader<'a>(&'a self, objects: &'a Objects<'a>, now: i64) -> Reader<'a> {
        Reader {
            slots: &self.slots,
            objects,
            now,
            values: self.slots.iter().map(|_| OnceLock::new()).collect(),
        }
    }

    /// Evaluates it with what a reader finds. `known` is asked first why it fails.
    fn resolve(
        &self,
        reader: &dyn VariableResolver,
        now: i64,
        known: impl FnOnce() -> Option<Failure>,
    ) -> (Result<Value, Failure>, Option<i64>) {
        let clock = clock::start(now);
        budget::start();
        let mut context = functions::ALL.new_inner_scope();
        context.set_variable_resolver(reader);
        let result = cel::Value::resolve(&self.ast, &context);
        let next = clock.next_change();
        let exceeded = || budget::check().map_err(|error| Failure::Error(in_words(&error)));
        let result = result.map_err(|error| {
            if let Err(failure) = exceeded() {
                return failure;
            }
            known().unwrap_or_else(|| {
                // What fails is evaluated again, and is bounded as before.
                budget::start();
                let _clock = clock::start(now);
                let failure = self.failure(&error, &context);
                exceeded().err().unwrap_or(failure)
            })
        });
        (result, next)
    }

    fn name_of(&self, slot: usize) -> String {
        let slot = self.slots.get(slot);
        slot.map(|slot| format!("{}{}", slot.binding, slot.path.below()))
            .unwrap_or_default()
    }

    /// The objects that it reads: `object`, `node`, …
    pub(crate) fn bindings(&self) -> impl Iterator<Item = &str> {
        self.slots.iter().map(|slot| slot.binding.as_str())
    }

    /// Whether it reads this object.
    pub(crate) fn reads(&self, binding: &str) -> bool {
        self.bindings().any(|it| it == binding)
    }

    /// Whether it is one field of an object and nothing else.
    fn is_a_field(&self) -> bool {
        matches!(&self.ast.expr, cel::common::ast::Expr::Ident(name) if name == "@0")
    }

    /// How many parts its outermost `&&` has.
    pub(crate) fn conjuncts(&self) -> usize {
        operators::conjuncts(&self.ast)
    }

    pub(crate) fn ast(&self) -> &IdedExpr {
        &self.ast
    }

    pub(crate) fn slots(&self) -> &[Slot] {
        &self.slots
    }
}

/// The number of the slot that a name stands for, as in `@0`.
pub(crate) fn slot_number(name: &str) -> Option<usize> {
    name.strip_prefix('@')?.parse().ok()
}

/// The library's text, without its type names.
fn in_words(error: &cel::ExecutionError) -> String {
    let mut text = error.to_string();
    if text.len() > 200 {
        let end = (0..=200).rev().find(|&at| text.is_char_boundary(at));
        text.truncate(end.unwrap_or_default());
        text.push('…');
    }
    text
}

/// Reads the slots of an expression. The library wants resolvers that threads may share; an
/// evaluation has one thread.
struct Reader<'a> {
    slots: &'a [Slot],
    objects: &'a Objects<'a>,
    now: i64,
    /// What was read already, with the steps that a reading takes.
    values: Vec<OnceLock<(Value, usize)>>,
}

impl VariableResolver for Reader<'_> {
    fn resolve(&self, name: &str) -> Option<Value> {
        if name == "@now" {
            return Some(Value::Timestamp(at(self.now)));
        }
        let index = slot_number(name)?;
        let slot = self.slots.get(index)?;
        let (value, steps) = self.values.get(index)?.get_or_init(|| self.read(slot));
        // Without a value, the evaluation fails.
        budget::steps(*steps).ok()?;
        Some(value.clone())
    }
}

impl Reader<'_> {
    fn read(&self, slot: &Slot) -> (Value, usize) {
        let object = self.objects.get(&slot.binding);
        let found = object.and_then(|object| object.at(slot.path.keys()));
        let value = match found {
            None | Some(dynamic::Value::Null) => Value::Null,
            Some(found) => value::to_cel(found, &slot.schema),
        };
        let steps = budget::weight(&value);
        (value, steps)
    }
}

/// A time of CEL from milliseconds since the epoch.
pub(crate) fn at(millis: i64) -> DateTime<FixedOffset> {
    DateTime::from_timestamp_millis(millis)
        .unwrap_or_default()
        .fixed_offset()
}
