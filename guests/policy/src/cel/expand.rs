//! Puts the variables of a rule, and what is short for something else, into an expression.

use std::collections::BTreeMap;

use kube_cel::cel::IdedExpr;
use kube_cel::cel::common::ast::{
    CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedEntryExpr, ListExpr, MapEntryExpr, MapExpr,
    SelectExpr, operators,
};

use super::{MAX_NODES, Mistake};

/// How deep an expression may nest after its variables were put in: what walks it has the stack
/// of a guest.
const MAX_DEPTH: usize = 150;

/// A rule's variables, parsed.
pub(crate) type Variables = BTreeMap<String, IdedExpr>;

/// Replaces `variables.x` with its expression, and `age(x)` with `now - x`'s creation time.
pub(crate) fn expand(expr: IdedExpr, variables: &Variables) -> Result<IdedExpr, Mistake> {
    let mut expansion = Expansion {
        variables,
        stack: Vec::new(),
        nodes: 0,
        depth: 0,
    };
    expansion.expr(expr)
}

struct Expansion<'a> {
    variables: &'a Variables,
    stack: Vec<String>,
    nodes: usize,
    depth: usize,
}

impl Expansion<'_> {
    fn expr(&mut self, expr: IdedExpr) -> Result<IdedExpr, Mistake> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(Mistake::whole(format!(
                "with its variables it nests deeper than {MAX_DEPTH}"
            )));
        }
        let expanded = self.parts(expr);
        self.depth -= 1;
        expanded
    }

    fn parts(&mut self, expr: IdedExpr) -> Result<IdedExpr, Mistake> {
        self.nodes += 1;
        if self.nodes > MAX_NODES {
            return Err(Mistake::whole(format!(
                "with its variables it has more than {MAX_NODES} parts"
            )));
        }
        let id = expr.id;
        let expanded = match expr.expr {
            Expr::Select(select) if !select.test && is_ident(&select.operand, "variables") => {
                return self.variable(&select.field, id);
            }
            Expr::Select(select) => Expr::Select(SelectExpr {
                operand: Box::new(self.expr(*select.operand)?),
                ..select
            }),
            Expr::Call(call) if call.func_name == "age" && call.target.is_none() => {
                return self.age(call, id);
            }
            Expr::Call(call) => Expr::Call(self.call(call)?),
            Expr::Comprehension(comprehension) => {
                Expr::Comprehension(Box::new(self.comprehension(*comprehension)?))
            }
            Expr::List(list) => Expr::List(ListExpr {
                elements: self.exprs(list.elements)?,
                ..list
            }),
            Expr::Map(map) => Expr::Map(self.map(map)?),
            other @ (Expr::Ident(_) | Expr::Literal(_) | Expr::Struct(_) | Expr::Unspecified) => {
                other
            }
        };
        Ok(IdedExpr { id, expr: expanded })
    }

    fn exprs(&mut self, exprs: Vec<IdedExpr>) -> Result<Vec<IdedExpr>, Mistake> {
        exprs.into_iter().map(|expr| self.expr(expr)).collect()
    }

    fn call(&mut self, call: CallExpr) -> Result<CallExpr, Mistake> {
        let target = match call.target {
            Some(target) => Some(Box::new(self.expr(*target)?)),
            None => None,
        };
        Ok(CallExpr {
            func_name: call.func_name,
            target,
            args: self.exprs(call.args)?,
        })
    }

    fn comprehension(&mut self, it: ComprehensionExpr) -> Result<ComprehensionExpr, Mistake> {
        Ok(ComprehensionExpr {
            iter_range: self.expr(it.iter_range)?,
            accu_init: self.expr(it.accu_init)?,
            loop_cond: self.expr(it.loop_cond)?,
            loop_step: self.expr(it.loop_step)?,
            result: self.expr(it.result)?,
            ..it
        })
    }

    fn map(&mut self, map: MapExpr) -> Result<MapExpr, Mistake> {
        let mut entries = Vec::new();
        for entry in map.entries {
            let EntryExpr::MapEntry(it) = entry.expr else {
                return Err(Mistake::whole("messages cannot be built here"));
            };
            entries.push(IdedEntryExpr {
                id: entry.id,
                expr: EntryExpr::MapEntry(MapEntryExpr {
                    key: self.expr(it.key)?,
                    value: self.expr(it.value)?,
                    optional: it.optional,
                }),
            });
        }
        Ok(MapExpr { entries })
    }

    fn variable(&mut self, name: &str, place: u64) -> Result<IdedExpr, Mistake> {
        let Some(expr) = self.variables.get(name) else {
            let known = self.variables.keys().map(String::as_str);
            let hint = super::schema::did_you_mean(name, known);
            return Err(self.mistake(place, format!("the rule has no variable \"{name}\"{hint}")));
        };
        if self.stack.iter().any(|it| it == name) {
            return Err(self.mistake(place, format!("the variable \"{name}\" contains itself")));
        }
        self.stack.push(name.to_owned());
        let expanded = self.expr(expr.clone());
        self.stack.pop();
        expanded
    }

    fn age(&mut self, call: CallExpr, id: u64) -> Result<IdedExpr, Mistake> {
        let [of] = <[IdedExpr; 1]>::try_from(call.args)
            .map_err(|_| self.mistake(id, "age takes one object: age(object)"))?;
        let of = self.expr(of)?;
        let created = select(select(of, "metadata"), "creationTimestamp");
        Ok(IdedExpr {
            id,
            ..call_of(operators::SUBSTRACT, vec![ident("now"), created])
        })
    }

    fn mistake(&self, place: u64, message: impl Into<String>) -> Mistake {
        Mistake::at(place, self.variables, message)
    }
}

pub(crate) fn is_ident(expr: &IdedExpr, name: &str) -> bool {
    matches!(&expr.expr, Expr::Ident(it) if it == name)
}

pub(crate) fn node(expr: Expr) -> IdedExpr {
    IdedExpr { id: 0, expr }
}

pub(crate) fn ident(name: &str) -> IdedExpr {
    node(Expr::Ident(name.to_owned()))
}

pub(crate) fn select(operand: IdedExpr, field: &str) -> IdedExpr {
    node(Expr::Select(SelectExpr {
        operand: Box::new(operand),
        field: field.to_owned(),
        test: false,
    }))
}

pub(crate) fn call_of(name: &str, args: Vec<IdedExpr>) -> IdedExpr {
    node(Expr::Call(CallExpr {
        func_name: name.to_owned(),
        target: None,
        args,
    }))
}
