//! What Davit adds to CEL: comparisons with `now`, `condition(…)`, `finishedAt(…)`, and functions
//! that take what an object lacks.

use kube_cel::cel::IdedExpr;
use kube_cel::cel::common::ast::{Expr, LiteralValue, operators};

use super::expand::{call_of, node};
use super::lower::{Lowered, Lowering, string};
use super::lowered;
use super::path::Path;
use super::{Mistake, Slot, Type};

impl Lowering<'_> {
    /// The terms of `now - a + b`, with their signs; none if it is anything else.
    pub(super) fn terms_of_now<'e>(&self, expr: &'e IdedExpr) -> Option<Vec<(char, &'e IdedExpr)>> {
        match &expr.expr {
            Expr::Ident(name) if name == "now" && !self.is_local(name) => Some(Vec::new()),
            Expr::Call(call) => {
                let [left, right] = call.args.as_slice() else {
                    return None;
                };
                let sign = match call.func_name.as_str() {
                    operators::ADD => '+',
                    operators::SUBSTRACT => '-',
                    _ => return None,
                };
                let mut terms = self.terms_of_now(left)?;
                terms.push((sign, right));
                Some(terms)
            }
            _ => None,
        }
    }

    pub(super) fn is_local(&self, name: &str) -> bool {
        self.locals.iter().any(|local| local.name == name)
    }

    pub(super) fn clock(
        &mut self,
        operator: &str,
        terms: &[(char, &IdedExpr)],
        right: &IdedExpr,
    ) -> Result<Lowered, Mistake> {
        let signs: String = terms.iter().map(|(sign, _)| *sign).collect();
        let (right, right_type) = self.beside_now(right)?;
        let (mut is_duration, mut may_be_duration) = (false, false);
        let mut args = vec![string(operator.trim_matches('_')), string(&signs), right];
        for (sign, term) in terms {
            let (arg, result) = self.beside_now(term)?;
            match (sign, result) {
                ('-', Type::Time) if !is_duration => is_duration = true,
                ('-', Type::Any | Type::Null) => may_be_duration = true,
                (_, Type::Any | Type::Duration | Type::Null) => {}
                _ => {
                    let message = format!(
                        "it computes with now and {result}: only a time or a duration can be"
                    );
                    return Err(self.mistake_in(term, message));
                }
            }
            args.push(arg);
        }
        let fits = match right_type {
            Type::Any | Type::Null => true,
            Type::Duration => is_duration || may_be_duration,
            Type::Time => !is_duration,
            _ => false,
        };
        if !fits {
            let left = if is_duration { "a duration" } else { "a time" };
            return Err(self.mistake(format!("it compares {left} with {right_type}")));
        }
        Ok(Lowered::of(call_of(lowered::CLOCK, args), Type::Bool))
    }

    /// A time or a duration that stands beside `now`. A text is neither; the value of a field that
    /// Kubernetes does not declare as a time can be no more than a text.
    fn beside_now(&mut self, expr: &IdedExpr) -> Result<(IdedExpr, Type), Mistake> {
        let lowered = self.lower(expr)?;
        let origin = lowered.origin.as_ref();
        let is_undeclared = lowered.result == Type::Any && origin.is_some();
        let (value, result) = self.read(lowered, expr)?;
        if is_undeclared || result == Type::Text {
            let what = if is_undeclared {
                "a field that is not known to be a time"
            } else {
                "a text"
            };
            let message = format!("it compares now with {what}: write timestamp(…) or duration(…)");
            return Err(self.mistake_in(expr, message));
        }
        Ok((value, result))
    }

    pub(super) fn size(&mut self, of: &IdedExpr) -> Result<Lowered, Mistake> {
        let lowered = self.lower(of)?;
        let (value, result) = match lowered.list_of_objects() {
            Some(_) => self.materialized(lowered),
            None => self.read(lowered, of)?,
        };
        self.check_operand("size", of, result)?;
        Ok(Lowered::of(
            call_of(lowered::SIZE, vec![value]),
            Type::Number,
        ))
    }

    /// The first or last element. Of one that comes from an object, the fields are read that are
    /// named.
    pub(super) fn element(&mut self, function: &str, of: &IdedExpr) -> Result<Lowered, Mistake> {
        let lowered = self.lower(of)?;
        let elements = lowered.elements();
        self.check_operand(function.trim_start_matches('@'), of, lowered.result)?;
        if let Some(list) = lowered.origin.clone().filter(|it| it.schema.is_list()) {
            let (value, _) = self.materialized(lowered);
            let element = call_of(function, vec![value]);
            return Ok(Lowered::with(
                Some(element),
                Some(list.elements()),
                elements,
            ));
        }
        let (value, _) = self.read(lowered, of)?;
        Ok(Lowered::of(call_of(function, vec![value]), elements))
    }

    pub(super) fn condition(&mut self, of: &IdedExpr, kind: &IdedExpr) -> Result<Lowered, Mistake> {
        let of = self.lower(of)?;
        let status = self.field(of, "status")?;
        let conditions = self.field(status, "conditions")?;
        let Some(origin) = conditions.origin.clone() else {
            return Err(self.mistake("condition(…) takes an object"));
        };
        let elements = origin.elements();
        self.declare(&Slot {
            path: elements.path.key("type"),
            ..elements.clone()
        });
        let (name, result) = self.value(kind)?;
        if !result.meets(Type::Text) {
            let message = format!("condition takes the type as a text, not {result}");
            return Err(self.mistake_in(kind, message));
        }
        let (conditions, _) = self.materialized(conditions);
        let condition = call_of(lowered::CONDITION, vec![conditions, name]);
        Ok(Lowered::with(Some(condition), Some(elements), Type::Map))
    }

    pub(super) fn finished_at(&mut self, of: &IdedExpr) -> Result<Lowered, Mistake> {
        let of = self.lower(of)?;
        let Some(root) = of.origin.filter(|it| it.path.is_root()) else {
            return Err(self.mistake("finishedAt(…) takes an object"));
        };
        let Some(known) = root.schema.ends() else {
            return Err(self.mistake(
                "finishedAt(…) takes a pod or a job: compare the time of this kind itself",
            ));
        };
        let parts: [(&str, &[&str]); 5] = [
            ("phase", &[""]),
            // The name, so that a container without an end is an element too.
            (
                "containerStatuses",
                &["[*].name", "[*].state.terminated.finishedAt"],
            ),
            (
                "initContainerStatuses",
                &["[*].state.terminated.finishedAt"],
            ),
            ("completionTime", &[""]),
            (
                "conditions",
                &["[*].lastTransitionTime", "[*].status", "[*].type"],
            ),
        ];
        let status = Path::default().key("status");
        let mut args = Vec::new();
        for (name, below) in parts {
            if !known.contains(&name) {
                args.push(node(Expr::Literal(LiteralValue::Null)));
                continue;
            }
            let path = status.key(name);
            let schema = root.schema.field("status").and_then(|it| it.field(name));
            let declared = path.declared();
            let fields = self.fields.entry(root.binding.clone()).or_default();
            fields.extend(below.iter().map(|below| format!("{declared}{below}")));
            args.push(self.slot(Slot {
                binding: root.binding.clone(),
                path,
                schema: schema.unwrap_or_default(),
            }));
        }
        Ok(Lowered::of(call_of(lowered::FINISHED, args), Type::Time))
    }
}
