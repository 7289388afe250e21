//! What a text reads, as it stands there: for texts that were written for other tools, where a
//! read of what an object lacks is an error.

use std::collections::BTreeSet;

use kube_cel::cel::IdedExpr;
use kube_cel::cel::common::ast::{CallExpr, EntryExpr, Expr, LiteralValue, operators};

use super::Mistake;
use super::expand::{Variables, expand};
use super::path::Path;
use super::text;

/// The fields that a text reads of objects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reads {
    /// As they stand in an expression: `object.metadata.labels["app"]`.
    pub fields: BTreeSet<String>,
    /// Those that it tests with `has()`.
    pub tested: BTreeSet<String>,
    /// Whether it has a loop, `||` or `?`, so that it may have a result although a field is
    /// missing.
    pub may_do_without: bool,
    /// Whether it has a loop that reads a field of an element: one that the element lacks is an
    /// error in the API server's CEL.
    pub reads_elements: bool,
}

/// What a text reads of `object` and `namespaceObject`.
pub(crate) fn of(source: &str, variables: &Variables) -> Result<Reads, Mistake> {
    let expr = expand(text::parse(source)?, variables)?;
    let mut reads = Reads::default();
    reads.walk(&expr);
    Ok(reads)
}

impl Reads {
    fn walk(&mut self, expr: &IdedExpr) {
        if let Some(field) = field_of(expr) {
            self.fields.insert(field);
            return;
        }
        match &expr.expr {
            Expr::Select(select) if select.test => {
                if let Some((root, path)) = path_of(&select.operand) {
                    let tested = path.key(&select.field);
                    self.tested.insert(format!("{root}{}", tested.below()));
                }
                self.walk(&select.operand);
            }
            Expr::Select(select) => {
                self.reads_elements = true;
                self.walk(&select.operand);
            }
            Expr::Call(call) => {
                self.reads_elements |= is_element_by_key(call);
                self.may_do_without |= matches!(
                    call.func_name.as_str(),
                    operators::LOGICAL_OR | operators::CONDITIONAL
                );
                call.target.iter().for_each(|it| self.walk(it));
                call.args.iter().for_each(|it| self.walk(it));
            }
            Expr::Comprehension(it) => {
                self.may_do_without = true;
                self.walk(&it.iter_range);
                self.walk(&it.loop_step);
                self.walk(&it.result);
            }
            Expr::List(list) => list.elements.iter().for_each(|it| self.walk(it)),
            Expr::Map(map) => {
                for entry in &map.entries {
                    if let EntryExpr::MapEntry(entry) = &entry.expr {
                        self.walk(&entry.key);
                        self.walk(&entry.value);
                    }
                }
            }
            Expr::Ident(_) | Expr::Literal(_) | Expr::Struct(_) | Expr::Unspecified => {}
        }
    }
}

/// Whether a call reads a key of what is neither an object nor below one.
fn is_element_by_key(call: &CallExpr) -> bool {
    let is_key = call.func_name == operators::INDEX;
    is_key && matches!(call.args.first(), Some(of) if matches!(of.expr, Expr::Ident(_)))
}

/// The field that an expression is, if it is one below an object.
fn field_of(expr: &IdedExpr) -> Option<String> {
    let (root, path) = path_of(expr)?;
    (!path.is_root()).then(|| format!("{root}{}", path.below()))
}

fn path_of(expr: &IdedExpr) -> Option<(&str, Path)> {
    match &expr.expr {
        Expr::Ident(name) if matches!(name.as_str(), "object" | "namespaceObject") => {
            Some((name, Path::default()))
        }
        Expr::Select(select) if !select.test => {
            let (root, path) = path_of(&select.operand)?;
            Some((root, path.key(&select.field)))
        }
        Expr::Call(call) if call.func_name == operators::INDEX => {
            let [operand, key] = call.args.as_slice() else {
                return None;
            };
            let Expr::Literal(LiteralValue::String(key)) = &key.expr else {
                return None;
            };
            let (root, path) = path_of(operand)?;
            Some((root, path.key(key.inner())))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reads(source: &str) -> Reads {
        of(source, &Variables::new()).unwrap()
    }

    #[test]
    fn a_text_reads_fields_and_tests_others() {
        let reads = reads(
            "has(object.metadata.labels.old) && object.metadata.labels['a/b'] == 'x' && \
             namespaceObject.metadata.name != 'y'",
        );
        let fields: Vec<&str> = reads.fields.iter().map(String::as_str).collect();
        assert_eq!(
            fields,
            [
                "namespaceObject.metadata.name",
                "object.metadata.labels",
                "object.metadata.labels[\"a/b\"]",
            ]
        );
        assert!(reads.tested.contains("object.metadata.labels.old"));
        assert!(!reads.may_do_without);
    }

    #[test]
    fn a_loop_reads_its_list() {
        let plain = reads("object.metadata.finalizers.exists(f, f == 'a')");
        assert!(plain.may_do_without && !plain.reads_elements);
        assert!(reads("object.spec.containers.all(c, c['image'] != 'a')").reads_elements);
        assert!(!reads("object.metadata.labels['a'] == 'b'").reads_elements);
        let reads = reads("object.spec.containers.exists(c, c.image == object.spec.nodeName)");
        assert!(reads.reads_elements);
        assert!(reads.fields.contains("object.spec.containers"));
        assert!(reads.fields.contains("object.spec.nodeName"));
    }
}
