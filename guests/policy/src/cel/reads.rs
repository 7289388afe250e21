//! What a text reads, as it stands there: for texts that were written for other tools, where a
//! read of what an object lacks is an error.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use kube_cel::cel::IdedExpr;
use kube_cel::cel::common::ast::{CallExpr, EntryExpr, Expr, LiteralValue, SelectExpr, operators};

use super::Mistake;
use super::expand::{Variables, expand};
use super::path::Path;
use super::text;

/// The fields that a text reads of objects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reads {
    /// As they stand in an expression: `object.metadata.labels["app"]`. One that a `has()` or an
    /// `in` guards is not among them: that is a part of an `&&` in which the field is read.
    pub fields: BTreeSet<String>,
    /// Those that it reads as they are: neither in `timestamp(…)`, nor to compare them with `null`.
    pub plain: BTreeSet<String>,
    /// Those that it tests with `has()`.
    pub tested: BTreeSet<String>,
    /// Whether it has a loop, `||` or `?`, so that it may have a result although a field is
    /// missing.
    pub may_do_without: bool,
    /// Whether it reads a field of an element, or a key that is computed: one that is missing is
    /// an error in the API server's CEL.
    pub reads_elements: bool,
}

/// What a text reads of `object` and `namespaceObject`.
pub(crate) fn of(source: &str, variables: &Variables) -> Result<Reads, Mistake> {
    let expr = expand(text::parse(source)?, variables)?;
    let mut walk = Walk::default();
    walk.walk(&expr);
    Ok(walk.reads)
}

#[derive(Default)]
struct Walk {
    reads: Reads,
    /// The fields that the `&&` around test. Without one of them, an `&&` is false whatever its
    /// other parts are.
    guarded: Vec<String>,
}

impl Walk {
    fn walk(&mut self, expr: &IdedExpr) {
        if let Some(field) = field_of(expr) {
            self.reads.plain.insert(field.clone());
            self.read(field);
            return;
        }
        if let Some(field) = not_plain(expr) {
            self.read(field);
            return;
        }
        match &expr.expr {
            Expr::Select(select) if select.test => {
                self.reads.tested.extend(tested(select));
                self.walk(&select.operand);
            }
            Expr::Select(select) => {
                self.reads.reads_elements = true;
                self.walk(&select.operand);
            }
            Expr::Call(call) => {
                self.reads.reads_elements |= is_unknown_key(call);
                self.reads.may_do_without |= matches!(
                    call.func_name.as_str(),
                    operators::LOGICAL_OR | operators::CONDITIONAL
                );
                let around = self.guarded.len();
                tests_of(call, &mut self.guarded);
                call.target.iter().for_each(|it| self.walk(it));
                call.args.iter().for_each(|it| self.walk(it));
                self.guarded.truncate(around);
            }
            Expr::Comprehension(it) => {
                self.reads.may_do_without = true;
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

    fn read(&mut self, field: String) {
        if !self.guarded.contains(&field) {
            self.reads.fields.insert(field);
        }
    }
}

/// The field that `timestamp(…)` reads, or that is compared with `null`.
fn not_plain(expr: &IdedExpr) -> Option<String> {
    let Expr::Call(call) = &expr.expr else {
        return None;
    };
    let is_null = |it: &IdedExpr| matches!(it.expr, Expr::Literal(LiteralValue::Null));
    match (call.func_name.as_str(), call.args.as_slice()) {
        ("timestamp", [of]) if call.target.is_none() => field_of(of),
        (operators::EQUALS | operators::NOT_EQUALS, [one, other]) if is_null(other) => {
            field_of(one)
        }
        (operators::EQUALS | operators::NOT_EQUALS, [one, other]) if is_null(one) => {
            field_of(other)
        }
        _ => None,
    }
}

/// Whether a call reads a key that is computed, or one of what is neither an object nor below one.
/// A place that a list does not have is an error here too.
fn is_unknown_key(call: &CallExpr) -> bool {
    let is_place = |key: &IdedExpr| matches!(key.expr, Expr::Literal(LiteralValue::Int(_)));
    call.func_name == operators::INDEX && !call.args.get(1).is_some_and(is_place)
}

/// Adds the fields that parts of an `&&` test with `has()`, or with `in`.
fn tests_of(call: &CallExpr, found: &mut Vec<String>) {
    if call.func_name != operators::LOGICAL_AND {
        return;
    }
    for part in &call.args {
        match &part.expr {
            Expr::Select(select) if select.test => found.extend(tested(select)),
            Expr::Call(call) => {
                found.extend(sought(call));
                tests_of(call, found);
            }
            _ => {}
        }
    }
}

/// The field whose key an `in` looks for, if it is one below an object: `'app' in
/// object.metadata.labels`.
fn sought(call: &CallExpr) -> Option<String> {
    let [key, map] = call.args.as_slice() else {
        return None;
    };
    match &key.expr {
        Expr::Literal(LiteralValue::String(key)) if call.func_name == operators::IN => {
            let (root, path) = path_of(map)?;
            Some(written(root, &path.key(key.inner())))
        }
        _ => None,
    }
}

/// The field that a `has()` tests, if it is one below an object.
fn tested(select: &SelectExpr) -> Option<String> {
    let (root, path) = path_of(&select.operand)?;
    Some(written(root, &path.key(&select.field)))
}

/// The field that an expression is, if it is one below an object.
fn field_of(expr: &IdedExpr) -> Option<String> {
    let (root, path) = path_of(expr)?;
    (!path.is_root()).then(|| written(root, &path))
}

/// A field as it stands in an expression, where `.a-b` is a difference.
fn written(root: &str, path: &Path) -> String {
    let mut text = root.to_owned();
    for key in path.keys() {
        let is_name = key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        let is_name = is_name && !key.starts_with(|c: char| c.is_ascii_digit());
        // Writing to a text does not fail.
        let _ = if is_name {
            write!(text, ".{key}")
        } else {
            write!(text, "[{key:?}]")
        };
    }
    text
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
    fn a_test_guards_what_is_read_beside_it() {
        let is_guarded = |source: &str| !reads(source).fields.contains("object.spec.a");
        for source in [
            "has(object.spec.a) && object.spec.a == 'x'",
            "object.spec.a == 'x' && object.spec.b == 'y' && has(object.spec.a)",
            "!(has(object.spec.a) && object.spec.a == 'x')",
            "has(object.spec.a) && !(object.spec.a == 'x')",
            "!has(object.spec.a)",
            "!('a' in object.spec && object.spec['a'] == 'x')",
            "'a' in object.spec && object.spec.b == 'y' && object.spec.a != 'x'",
        ] {
            assert!(is_guarded(source), "{source}");
        }
        for source in [
            "!has(object.spec.a) && object.spec.a != 'x'",
            "!(has(object.spec.a) && object.spec.b == 'x') && object.spec.a != 'x'",
            "has(object.spec.a.b) && object.spec.a != 'x'",
            "!('a' in object.spec) && object.spec.a != 'x'",
            "('a' in object.spec || object.spec.b == 'x') && object.spec.a != 'x'",
            "'b' in object.spec && object.spec.a != 'x'",
            "'a' in object.metadata.labels && object.spec.a != 'x'",
            "object.spec.b in ['a'] && object.spec.a != 'x'",
        ] {
            assert!(!is_guarded(source), "{source}");
        }
    }

    #[test]
    fn a_field_is_written_as_an_expression_reads_it() {
        let fields = reads("object.metadata.labels['a-b'] == object.metadata.labels['1']").fields;
        let fields: Vec<&str> = fields.iter().map(String::as_str).collect();
        assert_eq!(
            fields,
            [
                "object.metadata.labels[\"1\"]",
                "object.metadata.labels[\"a-b\"]"
            ]
        );
    }

    #[test]
    fn a_field_is_plain_beside_anything_but_null_and_timestamp() {
        for source in [
            "timestamp(object.spec.a) < now",
            "now - timestamp(object.spec.a) > duration('1h') && object.spec.a != null",
            "null == object.spec.a",
            "has(object.spec.a)",
        ] {
            assert!(!reads(source).plain.contains("object.spec.a"), "{source}");
        }
        for source in [
            "now - object.spec.a > duration('1h')",
            "timestamp(object.spec.a) < now && object.spec.a < now",
            "object.spec.a == 'x'",
            "timestamp(object.spec.a + 'Z') < now",
            "has(object.spec.a) && object.spec.a.getHours() == 3",
        ] {
            assert!(reads(source).plain.contains("object.spec.a"), "{source}");
        }
        let guarded = reads("has(object.spec.a) && timestamp(object.spec.a) < now");
        assert!(!guarded.fields.contains("object.spec.a"));
        assert!(
            reads("timestamp(object.spec.a) < now")
                .fields
                .contains("object.spec.a")
        );
    }

    #[test]
    fn a_key_that_is_computed_may_be_missing() {
        for source in [
            "object.metadata.annotations[object.metadata.name] != 'keep'",
            "object.metadata.annotations['a/' + 'b'] != 'keep'",
            "object.spec.containers[0]['image'] != 'a'",
        ] {
            assert!(reads(source).reads_elements, "{source}");
        }
        assert!(!reads("object.metadata.finalizers[0] == 'a'").reads_elements);
        // A test of the key is none of what it is in.
        let reads = reads("'a' in object.spec && object.spec.a == 'x'");
        assert!(reads.fields.contains("object.spec"));
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
