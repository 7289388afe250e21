//! Parts of values: fields, the values of keys, and elements of lists.

use kube_cel::cel::IdedExpr;
use kube_cel::cel::common::ast::{Expr, LiteralValue};

use super::expand::{call_of, node};
use super::lower::{Lowered, Lowering, NO_VERSION, VERSION, string};
use super::lowered;
use super::schema::Schema;
use super::{Mistake, OBJECT, Slot, Type};

impl Lowering<'_> {
    /// A field of a value.
    pub(super) fn field(&mut self, operand: Lowered, name: &str) -> Result<Lowered, Mistake> {
        self.part(operand, name, Schema::field)
    }

    /// A field of a value, or the value of a literal key; `find` says what is known of it.
    fn part(
        &mut self,
        operand: Lowered,
        name: &str,
        find: fn(&Schema, &str) -> Result<Schema, String>,
    ) -> Result<Lowered, Mistake> {
        let key = || node(Expr::Literal(LiteralValue::String(name.to_owned().into())));
        let Some(origin) = operand.origin else {
            if !operand.result.meets(Type::Map) {
                let message = format!("{} has no field \"{name}\"", operand.result);
                return Err(self.mistake(message));
            }
            let expr = operand.expr.unwrap_or_default();
            return Ok(Lowered::of(
                call_of(lowered::FIELD, vec![expr, key()]),
                Type::Any,
            ));
        };
        if let Some(text) = origin.schema.of_every_object(name) {
            return self.same_of_all(&origin, &text);
        }
        let schema = self.known(&origin, name, find)?;
        let result = schema.result();
        let origin = Slot {
            binding: origin.binding,
            path: origin.path.key(name),
            schema,
        };
        // Of an object, or of one in a list.
        let field = origin.path.declared();
        if field.strip_prefix("[*].").unwrap_or(&field) == VERSION {
            return Err(self.mistake(NO_VERSION));
        }
        let expr = operand
            .expr
            .map(|expr| call_of(lowered::FIELD, vec![expr, key()]));
        Ok(Lowered::with(expr, Some(origin), result))
    }

    /// What is known of a field of a value; an unknown one is refused.
    pub(super) fn known(
        &self,
        of: &Slot,
        name: &str,
        find: fn(&Schema, &str) -> Result<Schema, String>,
    ) -> Result<Schema, Mistake> {
        find(&of.schema, name).map_err(|suggestion| {
            let of = format!("{}{}", of.binding, of.path.below());
            self.mistake(format!("{of} has no field \"{name}\"{suggestion}"))
        })
    }

    /// What is the same of all objects of a resource: its kind, and its version. The objects of a
    /// list do not have it.
    fn same_of_all(&self, origin: &Slot, text: &str) -> Result<Lowered, Mistake> {
        let (name, is_related) = (&origin.binding, origin.path.is_root());
        if is_related && name != OBJECT {
            return Err(self.mistake(format!(
                "it is always \"{text}\": to find out whether there is one, compare {name} with null"
            )));
        }
        Ok(Lowered::of(string(text), Type::Text))
    }

    /// An element of a list, or the value of a key that an expression computes.
    pub(super) fn index(&mut self, of: &IdedExpr, index: &IdedExpr) -> Result<Lowered, Mistake> {
        let operand = self.lower(of)?;
        if let Expr::Literal(LiteralValue::String(key)) = &index.expr {
            self.place = index.id;
            return self.part(operand, key.inner(), Schema::key);
        }
        let (index, _) = self.value(index)?;
        let origin = match operand.origin.clone() {
            Some(origin) if origin.schema.is_list() => Some(origin.elements()),
            Some(_) => {
                let (expr, _) = self.read(operand, of)?;
                return Ok(Lowered::of(
                    call_of(lowered::INDEX, vec![expr, index]),
                    Type::Any,
                ));
            }
            None => None,
        };
        let result = operand.elements();
        let (expr, _) = self.materialized(operand);
        let expr = call_of(lowered::INDEX, vec![expr, index]);
        Ok(Lowered::with(Some(expr), origin, result))
    }
}
