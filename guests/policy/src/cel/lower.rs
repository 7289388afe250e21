//! Lowers an expression: reads of objects become slots, comparisons with `now` become calls that
//! know when they change, and whatever an object lacks becomes `null`.

use std::collections::{BTreeMap, BTreeSet};

use davit_guest::covers;
use kube_cel::cel::IdedExpr;
use kube_cel::cel::common::ast::{
    CallExpr, EntryExpr, Expr, IdedEntryExpr, ListExpr, LiteralValue, MapEntryExpr, MapExpr,
    SelectExpr, operators,
};

use super::expand::{Variables, call_of, ident, node};
use super::lowered;
use super::operators::{is_operator, swapped, type_of};
use super::path::Path;
use super::schema::{Schema, did_you_mean};
use super::{Expression, Mistake, OBJECT, Slot, Type, place};

/// A field that the host gives nobody.
pub(crate) const VERSION: &str = "metadata.resourceVersion";

/// Why it is refused.
pub(crate) const NO_VERSION: &str =
    "the resource version changes with each write: rules do not read it";

/// What an expression may read.
pub(crate) struct Scope<'a> {
    /// The objects by name, with what is known of them.
    pub(crate) bindings: BTreeMap<&'a str, Schema>,
    /// The rule's variables.
    pub(crate) variables: &'a Variables,
}

/// A lowered expression. Without `expr` it is a path that nothing has read yet.
pub(super) struct Lowered {
    pub(super) expr: Option<IdedExpr>,
    pub(super) origin: Option<Slot>,
    pub(super) result: Type,
    /// The type of its elements, if it has no origin that says so.
    elements: Type,
}

impl Lowered {
    pub(super) fn of(expr: IdedExpr, result: Type) -> Self {
        Self::with(Some(expr), None, result)
    }

    pub(super) fn with(expr: Option<IdedExpr>, origin: Option<Slot>, result: Type) -> Self {
        Self {
            expr,
            origin,
            result,
            elements: Type::Any,
        }
    }

    /// A list whose elements have a type.
    pub(super) fn list(expr: IdedExpr, elements: Type) -> Self {
        Self {
            elements,
            ..Self::of(expr, Type::List)
        }
    }

    /// The list of whole objects that it is.
    pub(super) fn list_of_objects(&self) -> Option<Slot> {
        let origin = self.origin.clone();
        origin.filter(Slot::is_list_of_objects)
    }

    /// Whether it is a field that Kubernetes declares as a quantity.
    pub(super) fn is_quantity(&self) -> bool {
        let origin = self.origin.as_ref();
        origin.is_some_and(|origin| origin.schema.is_quantity())
    }

    /// The type of the elements of a list, or of the keys of a map.
    pub(super) fn elements(&self) -> Type {
        match &self.origin {
            Some(origin) if origin.schema.is_list() => origin.schema.element().result(),
            // The API's maps have texts as keys.
            Some(_) if self.result == Type::Map => Type::Text,
            Some(_) => Type::Any,
            None => self.elements,
        }
    }
}

/// The variable of a loop.
pub(super) struct Local {
    pub(super) name: String,
    /// Where the elements come from.
    pub(super) origin: Option<Slot>,
    /// Their type, if no origin says so.
    pub(super) result: Type,
}

/// Lowers an expression whose text starts at a column.
pub(super) fn lower(
    expr: &IdedExpr,
    start: usize,
    scope: &Scope<'_>,
) -> Result<Expression, Mistake> {
    let mut lowering = Lowering::new(expr, scope);
    let (ast, result) = lowering.value(expr)?;
    Ok(Expression {
        ast,
        slots: lowering.slots,
        fields: lowering.fields,
        result,
        start,
        is_periodic: lowering.is_periodic,
    })
}

/// Checks an expression that may be a whole object.
pub(super) fn check(expr: &IdedExpr, scope: &Scope<'_>) -> Result<(), Mistake> {
    Lowering::new(expr, scope).lower(expr).map(|_| ())
}

pub(super) struct Lowering<'a> {
    /// Where the expression stands that is being lowered.
    pub(super) place: u64,
    scope: &'a Scope<'a>,
    /// The variables of the loops around.
    pub(super) locals: Vec<Local>,
    slots: Vec<Slot>,
    pub(super) fields: BTreeMap<String, BTreeSet<String>>,
    is_periodic: bool,
}

impl<'a> Lowering<'a> {
    fn new(expr: &IdedExpr, scope: &'a Scope<'a>) -> Self {
        Self {
            place: expr.id,
            scope,
            locals: Vec::new(),
            slots: Vec::new(),
            fields: BTreeMap::new(),
            is_periodic: false,
        }
    }
}

impl Lowering<'_> {
    /// A mistake in the expression that is being lowered.
    pub(super) fn mistake(&self, message: impl Into<String>) -> Mistake {
        Mistake::at(self.place, self.scope.variables, message)
    }

    /// A mistake in a part of it. That of a variable is in what uses the variable.
    pub(super) fn mistake_in(&self, part: &IdedExpr, message: impl Into<String>) -> Mistake {
        let start = place::start(part);
        let is_of_text = start > 0 && place::variable(start) == place::variable(self.place);
        let place = if is_of_text { start } else { self.place };
        Mistake::at(place, self.scope.variables, message)
    }

    /// Checks the name of a loop's variable: it would hide what else has the name.
    pub(super) fn check_local(&self, name: &str) -> Result<(), Mistake> {
        let hidden = match name {
            "now" => "the time",
            "variables" => "what the rule's variables are read from",
            _ if self.scope.bindings.contains_key(name) => "an object",
            _ => return Ok(()),
        };
        Err(self.mistake(format!(
            "\"{name}\" is {hidden} here: give the loop's variable another name"
        )))
    }

    /// Lowers an expression that is read as a value.
    pub(super) fn value(&mut self, expr: &IdedExpr) -> Result<(IdedExpr, Type), Mistake> {
        let lowered = self.lower(expr)?;
        self.read(lowered, expr)
    }

    /// Reads a value: whatever is below its path is declared.
    pub(super) fn read(
        &mut self,
        lowered: Lowered,
        expr: &IdedExpr,
    ) -> Result<(IdedExpr, Type), Mistake> {
        let Some(origin) = &lowered.origin else {
            let expr = lowered.expr.unwrap_or_default();
            return Ok((expr, lowered.result));
        };
        if origin.path.is_object() {
            return Err(self.mistake_in(expr, whole(origin)));
        }
        self.declare(&origin.clone());
        Ok(self.materialized(lowered))
    }

    /// The expression of a value, without declaring what is below its path.
    pub(super) fn materialized(&mut self, lowered: Lowered) -> (IdedExpr, Type) {
        match (lowered.expr, lowered.origin) {
            (Some(expr), _) => (expr, lowered.result),
            (None, Some(origin)) => (self.slot(origin), lowered.result),
            (None, None) => (IdedExpr::default(), lowered.result),
        }
    }

    pub(super) fn slot(&mut self, slot: Slot) -> IdedExpr {
        let known = self.slots.iter().position(|it| *it == slot);
        let index = known.unwrap_or_else(|| {
            self.slots.push(slot);
            self.slots.len() - 1
        });
        ident(&format!("@{index}"))
    }

    pub(super) fn declare(&mut self, origin: &Slot) {
        let fields = self.fields.entry(origin.binding.clone()).or_default();
        let path = origin.path.declared();
        if fields.iter().any(|field| covers(field, &path)) {
            return;
        }
        fields.retain(|field| !covers(&path, field));
        fields.insert(path);
    }

    pub(super) fn lower(&mut self, expr: &IdedExpr) -> Result<Lowered, Mistake> {
        let around = self.place;
        if expr.id > 0 {
            self.place = expr.id;
        }
        let lowered = self.lower_here(expr);
        self.place = around;
        lowered
    }

    fn lower_here(&mut self, expr: &IdedExpr) -> Result<Lowered, Mistake> {
        match &expr.expr {
            Expr::Literal(literal) => Ok(Lowered::of(expr.clone(), type_of(literal))),
            Expr::Ident(name) => self.ident(name),
            Expr::Select(select) => self.select(select),
            Expr::Call(call) => self.call(call),
            Expr::Comprehension(comprehension) => self.comprehension(comprehension),
            Expr::List(list) => Ok(self.list(&list.elements)?.0),
            Expr::Map(map) => self.map(map),
            Expr::Struct(_) | Expr::Unspecified => {
                Err(self.mistake("messages cannot be built here"))
            }
        }
    }

    /// A list, with the types of its elements.
    pub(super) fn list(&mut self, elements: &[IdedExpr]) -> Result<(Lowered, Vec<Type>), Mistake> {
        let mut lowered = Vec::new();
        let mut types = Vec::new();
        for element in elements {
            let (element, result) = self.value(element)?;
            lowered.push(counted(element));
            types.push(result);
        }
        let list = node(Expr::List(ListExpr::new(lowered)));
        Ok((Lowered::list(list, common(&types)), types))
    }

    fn map(&mut self, map: &MapExpr) -> Result<Lowered, Mistake> {
        let mut entries = Vec::new();
        for entry in &map.entries {
            let EntryExpr::MapEntry(it) = &entry.expr else {
                return Err(self.mistake("messages cannot be built here"));
            };
            entries.push(IdedEntryExpr {
                id: entry.id,
                expr: EntryExpr::MapEntry(MapEntryExpr {
                    key: counted(self.value(&it.key)?.0),
                    value: counted(self.value(&it.value)?.0),
                    optional: false,
                }),
            });
        }
        Ok(Lowered::of(node(Expr::Map(MapExpr { entries })), Type::Map))
    }

    /// Where a name belongs that is like none of those that there are.
    fn hint_of_name(&self, name: &str) -> &'static str {
        match name {
            "counts" => "; only hold reads counts",
            _ if self.scope.bindings.contains_key(OBJECT) => {
                "; what is related to the object needs an entry in related"
            }
            _ => "",
        }
    }

    fn ident(&mut self, name: &str) -> Result<Lowered, Mistake> {
        let local = self.locals.iter().rev().find(|local| local.name == name);
        if let Some(local) = local {
            let origin = local.origin.clone();
            let result = origin.as_ref().map(|it| it.schema.result());
            let result = result.unwrap_or(local.result);
            return Ok(Lowered::with(Some(ident(name)), origin, result));
        }
        if name == "now" {
            self.is_periodic = true;
            return Ok(Lowered::of(ident("@now"), Type::Time));
        }
        let Some(schema) = self.scope.bindings.get(name) else {
            let locals = self.locals.iter().map(|local| local.name.as_str());
            let known = self.scope.bindings.keys().copied();
            let known = known.chain(locals.filter(|it| !it.starts_with('@')));
            let hint = did_you_mean(name, known.chain(["now", "variables"]));
            let hint = match hint.as_str() {
                "" => self.hint_of_name(name),
                _ => &hint,
            };
            return Err(self.mistake(format!("there is no \"{name}\" here{hint}")));
        };
        let origin = Slot {
            binding: name.to_owned(),
            path: Path::default(),
            schema: schema.clone(),
        };
        let result = if origin.schema.is_list() {
            Type::List
        } else {
            Type::Map
        };
        Ok(Lowered::with(None, Some(origin), result))
    }

    fn select(&mut self, select: &SelectExpr) -> Result<Lowered, Mistake> {
        let operand = self.lower(&select.operand)?;
        let field = self.field(operand, &select.field)?;
        if !select.test {
            return Ok(field);
        }
        let (value, _) = self.read(field, &select.operand)?;
        let null = node(Expr::Literal(LiteralValue::Null));
        Ok(Lowered::of(
            call_of(operators::NOT_EQUALS, vec![value, null]),
            Type::Bool,
        ))
    }

    fn call(&mut self, call: &CallExpr) -> Result<Lowered, Mistake> {
        let args = &call.args;
        match (call.func_name.as_str(), args.as_slice(), &call.target) {
            (operators::INDEX, [operand, index], None) => self.index(operand, index),
            (
                name @ (operators::LESS
                | operators::LESS_EQUALS
                | operators::GREATER
                | operators::GREATER_EQUALS),
                [left, right],
                None,
            ) => self.comparison(name, left, right),
            (name @ (operators::EQUALS | operators::NOT_EQUALS), [left, right], None) => {
                self.equality(name, left, right)
            }
            (operators::OPT_INDEX | operators::OPT_SELECT, ..) => {
                Err(self
                    .mistake("what an object lacks is null here: write \".\" instead of \".?\""))
            }
            (operators::IN, [element, list], None) => self.membership(element, list),
            (name, ..) if is_operator(name) => self.operator(call),
            ("size", [of], None) => self.size(of),
            ("size", [], Some(of)) => self.size(of),
            ("first", [], Some(of)) => self.element(lowered::FIRST, of),
            ("last", [], Some(of)) => self.element(lowered::LAST, of),
            ("condition", [of, kind], None) => self.condition(of, kind),
            ("finishedAt", [of], None) => self.finished_at(of),
            ("dyn", [of], None) => Ok(Lowered::of(self.value(of)?.0, Type::Any)),
            _ => self.function(call),
        }
    }

    /// `object == null` asks whether there is an object; anything else compares values.
    fn equality(
        &mut self,
        name: &str,
        one: &IdedExpr,
        other: &IdedExpr,
    ) -> Result<Lowered, Mistake> {
        let left = self.lower(one)?;
        let right = self.lower(other)?;
        self.check_quantity(left.is_quantity(), right.result)?;
        self.check_quantity(right.is_quantity(), left.result)?;
        let (right, right_type) = self.read(right, other)?;
        let is_object = left.origin.as_ref().is_some_and(|it| it.path.is_object());
        let (left, left_type) = if is_object && right_type == Type::Null {
            self.materialized(left)
        } else {
            self.read(left, one)?
        };
        if !left_type.meets(right_type) {
            return Err(self.mistake(format!("it compares {left_type} with {right_type}")));
        }
        if !left_type.may_hold_numbers() || !right_type.may_hold_numbers() {
            return Ok(Lowered::of(call_of(name, vec![left, right]), Type::Bool));
        }
        let equal = call_of(lowered::EQUAL, vec![left, right]);
        let equal = match name {
            operators::EQUALS => equal,
            _ => call_of(operators::LOGICAL_NOT, vec![equal]),
        };
        Ok(Lowered::of(equal, Type::Bool))
    }

    /// Refuses a comparison of a quantity with anything but null: it has many texts, and as a
    /// text 9Mi is more than 10Gi.
    pub(super) fn check_quantity(&self, is_quantity: bool, with: Type) -> Result<(), Mistake> {
        if !is_quantity || with == Type::Null {
            return Ok(());
        }
        Err(self.mistake(
            "it compares the text of a quantity: write quantity(…).isGreaterThan(quantity('1Gi')), \
             isLessThan, or quantity(…) == quantity('1Gi')",
        ))
    }

    fn comparison(
        &mut self,
        name: &str,
        left: &IdedExpr,
        right: &IdedExpr,
    ) -> Result<Lowered, Mistake> {
        if let Some(terms) = self.terms_of_now(left) {
            return self.clock(name, &terms, right);
        }
        if let Some(terms) = self.terms_of_now(right) {
            return self.clock(swapped(name), &terms, left);
        }
        let (one, other) = (self.lower(left)?, self.lower(right)?);
        self.check_quantity(one.is_quantity(), other.result)?;
        self.check_quantity(other.is_quantity(), one.result)?;
        let (left, left_type) = self.read(one, left)?;
        let (right, right_type) = self.read(other, right)?;
        let is_ordered = left_type.is_ordered() && right_type.is_ordered();
        if !left_type.meets(right_type) || !is_ordered {
            return Err(self.mistake(format!("it compares {left_type} with {right_type}")));
        }
        Ok(Lowered::of(call_of(name, vec![left, right]), Type::Bool))
    }
}

/// A part of a list or a map: its copy counts. Constants are bounded by the text.
fn counted(part: IdedExpr) -> IdedExpr {
    match part.expr {
        Expr::Literal(_) => part,
        _ => call_of(lowered::PART, vec![part]),
    }
}

/// Why an object is no value: only the fields of it that a rule names are read.
fn whole(origin: &Slot) -> String {
    let name = &origin.binding;
    if origin.schema.is_list() {
        return format!(
            "\"{name}\" is a list of whole objects: ask for its size, or name a field of its \
             elements, as in {name}.map(it, it.metadata.name)"
        );
    }
    let what = if origin.path.is_root() {
        format!("\"{name}\"")
    } else {
        format!("an element of \"{name}\"")
    };
    format!("{what} is a whole object: name a field of it, or compare it with null")
}

/// The type that all have.
fn common(types: &[Type]) -> Type {
    match types {
        [first, rest @ ..] if rest.iter().all(|it| it == first) => *first,
        _ => Type::Any,
    }
}

pub(super) fn string(text: &str) -> IdedExpr {
    node(Expr::Literal(LiteralValue::String(text.to_owned().into())))
}
