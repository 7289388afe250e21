//! The functions of the expressions: those of the library, and Davit's own.

use std::sync::{Arc, LazyLock};

use chrono::{DateTime, FixedOffset};
use kube_cel::KubeCelExt;
use kube_cel::cel::common::ast::{Expr, LiteralValue};
use kube_cel::cel::extractors::{Arguments, This};
use kube_cel::cel::objects::{Key, Map};
use kube_cel::cel::{Context, ExecutionError, IdedExpr, Value};

use super::arithmetic::{difference, duration, sum};
use super::schema::did_you_mean;
use super::{Type, budget, clock};

/// What an expression lowers to, beside the functions that a rule names.
pub(crate) mod lowered {
    /// A comparison with `now`: operator, signs, right side, terms.
    pub(crate) const CLOCK: &str = "@clock";
    /// A field of a value: `null` if it has none.
    pub(crate) const FIELD: &str = "@field";
    /// An element of a list, or the value of a key.
    pub(crate) const INDEX: &str = "@index";
    /// What a loop visits: counted, and in order.
    pub(crate) const RANGE: &str = "@range";
    /// The number of elements; 0 of what an object does not have.
    pub(crate) const SIZE: &str = "@size";
    /// Whether two values are equal; the library's operator never finds an integer equal to a
    /// number with a fraction.
    pub(crate) const EQUAL: &str = "@equal";
    /// Whether a list has an element, or a map a key, that is equal.
    pub(crate) const IN: &str = "@contains";
    /// The first or last element of a list; `null` of an empty one.
    pub(crate) const FIRST: &str = "@first";
    pub(crate) const LAST: &str = "@last";
    /// The length of a list that is to be made: bounded as what a loop visits.
    pub(crate) const LENGTH: &str = "@length";
    /// The condition of a type.
    pub(crate) const CONDITION: &str = "@condition";
    /// A sum, or a difference: of times, also.
    pub(crate) const ADD: &str = "@add";
    pub(crate) const SUBTRACT: &str = "@subtract";
    /// A value whose copy counts for what an evaluation may make.
    pub(crate) const PART: &str = "@part";
    /// The same of a text that is searched for many parts.
    pub(crate) const HAYSTACK: &str = "@haystack";
    /// The same of the text of a format.
    pub(crate) const TEMPLATE: &str = "@template";
    /// When a pod or a job ended.
    pub(crate) const FINISHED: &str = "@finishedAt";
}

/// The names that a rule may call, with the type of the result.
const KNOWN: &[(&str, Type)] = &[
    ("contains", Type::Bool),
    ("startsWith", Type::Bool),
    ("endsWith", Type::Bool),
    ("matches", Type::Bool),
    ("string", Type::Text),
    ("bytes", Type::Any),
    ("double", Type::Number),
    ("int", Type::Number),
    ("uint", Type::Number),
    ("duration", Type::Duration),
    ("timestamp", Type::Time),
    ("getFullYear", Type::Number),
    ("getMonth", Type::Number),
    ("getDayOfYear", Type::Number),
    ("getDayOfMonth", Type::Number),
    ("getDate", Type::Number),
    ("getDayOfWeek", Type::Number),
    ("getHours", Type::Number),
    ("getMinutes", Type::Number),
    ("getSeconds", Type::Number),
    ("getMilliseconds", Type::Number),
    ("max", Type::Any),
    ("min", Type::Any),
    ("indexOf", Type::Number),
    ("lastIndexOf", Type::Number),
    ("isGreaterThan", Type::Bool),
    ("isLessThan", Type::Bool),
    ("compareTo", Type::Number),
    ("ip", Type::Any),
    ("reverse", Type::Any),
    ("base64.decode", Type::Any),
    ("base64.encode", Type::Text),
    ("format", Type::Text),
    ("isIP", Type::Bool),
    ("ip.isCanonical", Type::Bool),
    ("family", Type::Number),
    ("isLoopback", Type::Bool),
    ("isUnspecified", Type::Bool),
    ("isLinkLocalMulticast", Type::Bool),
    ("isLinkLocalUnicast", Type::Bool),
    ("isGlobalUnicast", Type::Bool),
    ("cidr", Type::Any),
    ("isCIDR", Type::Bool),
    ("containsIP", Type::Bool),
    ("containsCIDR", Type::Bool),
    ("prefixLength", Type::Number),
    ("masked", Type::Any),
    ("jsonpatch.escapeKey", Type::Text),
    ("isSorted", Type::Bool),
    ("sum", Type::Any),
    ("slice", Type::List),
    ("sort", Type::List),
    ("flatten", Type::List),
    ("distinct", Type::List),
    ("first", Type::Any),
    ("last", Type::Any),
    ("lists.range", Type::List),
    ("math.ceil", Type::Number),
    ("math.floor", Type::Number),
    ("math.round", Type::Number),
    ("math.trunc", Type::Number),
    ("math.abs", Type::Number),
    ("math.sign", Type::Number),
    ("math.isInf", Type::Bool),
    ("math.isNaN", Type::Bool),
    ("math.isFinite", Type::Bool),
    ("math.sqrt", Type::Number),
    ("math.greatest", Type::Number),
    ("math.least", Type::Number),
    ("quantity", Type::Any),
    ("isQuantity", Type::Bool),
    ("isInteger", Type::Bool),
    ("asInteger", Type::Number),
    ("asApproximateFloat", Type::Number),
    ("sign", Type::Number),
    ("add", Type::Any),
    ("sub", Type::Any),
    ("find", Type::Text),
    ("findAll", Type::List),
    ("semver", Type::Any),
    ("isSemver", Type::Bool),
    ("major", Type::Number),
    ("minor", Type::Number),
    ("patch", Type::Number),
    ("sets.contains", Type::Bool),
    ("sets.equivalent", Type::Bool),
    ("sets.intersects", Type::Bool),
    ("charAt", Type::Text),
    ("lowerAscii", Type::Text),
    ("upperAscii", Type::Text),
    ("replace", Type::Text),
    ("split", Type::List),
    ("substring", Type::Text),
    ("trim", Type::Text),
    ("join", Type::Text),
    ("strings.quote", Type::Text),
    ("url", Type::Any),
    ("isURL", Type::Bool),
    ("getScheme", Type::Text),
    ("getHost", Type::Text),
    ("getHostname", Type::Text),
    ("getPort", Type::Text),
    ("getEscapedPath", Type::Text),
    ("getQuery", Type::Map),
];

/// The functions whose argument is a regular expression.
const PATTERNS: [&str; 3] = ["matches", "find", "findAll"];

/// The type of a function's result; none if no function has this name.
pub(super) fn result_of(name: &str) -> Option<Type> {
    KNOWN
        .iter()
        .find(|(known, _)| *known == name)
        .map(|(_, result)| *result)
}

/// What else may be called, and how: with other arguments, it is no call of these.
const CALLS: [(&str, &str); 11] = [
    ("age", "age(object)"),
    ("all", "list.all(x, CONDITION)"),
    ("condition", "condition(object, 'TYPE')"),
    ("exists", "list.exists(x, CONDITION)"),
    ("exists_one", "list.exists_one(x, CONDITION)"),
    ("filter", "list.filter(x, CONDITION)"),
    ("finishedAt", "finishedAt(object)"),
    ("has", "has(object.FIELD)"),
    ("map", "list.map(x, EXPRESSION)"),
    ("now", "now, without brackets"),
    ("size", "size(list)"),
];

/// The names that a rule may call.
#[cfg(test)]
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    let own = ["age", "condition", "finishedAt", "size", "has"];
    KNOWN.iter().map(|(name, _)| *name).chain(own)
}

/// What is wrong with a call of a function that there is not.
pub(super) fn unknown(name: &str) -> String {
    if let Some((_, call)) = CALLS.iter().find(|(known, _)| *known == name) {
        return format!("\"{name}\" is not called so: write {call}");
    }
    let known = KNOWN.iter().map(|(name, _)| *name);
    let known = known.chain(CALLS.iter().map(|(name, _)| *name));
    format!(
        "there is no function \"{name}\"{}",
        did_you_mean(name, known)
    )
}

/// The functions.
pub(super) static ALL: LazyLock<Context<'static>> = LazyLock::new(context);

fn context() -> Context<'static> {
    let mut context = Context::default().with_all();
    context.add_function(lowered::CLOCK, compare);
    context.add_function(lowered::FIELD, |Arguments(args): Arguments| field(&args));
    context.add_function(lowered::INDEX, |Arguments(args): Arguments| index(&args));
    context.add_function(lowered::RANGE, |Arguments(args): Arguments| range(&args));
    context.add_function(lowered::SIZE, |Arguments(args): Arguments| size(&args));
    context.add_function(lowered::EQUAL, |Arguments(args): Arguments| equal(&args));
    context.add_function(lowered::IN, |Arguments(args): Arguments| is_in(&args));
    context.add_function(lowered::FIRST, |Arguments(args): Arguments| {
        end_of(&args, <[Value]>::first)
    });
    context.add_function(lowered::LAST, |Arguments(args): Arguments| {
        end_of(&args, <[Value]>::last)
    });
    context.add_function(lowered::LENGTH, |Arguments(args): Arguments| length(&args));
    context.add_function(lowered::CONDITION, |Arguments(args): Arguments| {
        condition(&args)
    });
    context.add_function(lowered::FINISHED, |Arguments(args): Arguments| {
        finished(&args)
    });
    context.add_function(lowered::ADD, |Arguments(args): Arguments| sum(&args));
    context.add_function(lowered::SUBTRACT, |Arguments(args): Arguments| {
        difference(&args)
    });
    context.add_function(lowered::PART, |Arguments(args): Arguments| {
        budget::part(&args)
    });
    context.add_function(lowered::HAYSTACK, |Arguments(args): Arguments| {
        budget::haystack(&args)
    });
    context.add_function(lowered::TEMPLATE, |Arguments(args): Arguments| {
        budget::template(&args)
    });
    // The library's own make texts of any size.
    context.add_function("replace", budget::replace);
    context.add_function("join", budget::join);
    context.add_function("split", budget::split);
    // The library's own accept more than they should.
    context.add_function("duration", |Arguments(args): Arguments| duration(&args));
    context.add_function("contains", contains);
    context
}

/// Evaluates a call whose arguments are constants: a mistake in it is one of the configuration.
pub(super) fn check_constant(expr: &IdedExpr) -> Result<(), String> {
    let Expr::Call(call) = &expr.expr else {
        return Ok(());
    };
    let is_constant = |expr: &IdedExpr| matches!(expr.expr, Expr::Literal(_));
    let is_namespace =
        |expr: &IdedExpr| matches!(&expr.expr, Expr::Ident(name) if !name.starts_with('@'));
    if !call.args.iter().all(is_constant) {
        return Ok(());
    }
    let mut call = call.clone();
    if let Some(target) = &mut call.target {
        if PATTERNS.contains(&call.func_name.as_str()) {
            // A pattern is right or wrong whatever it is matched with.
            target.expr = Expr::Literal(LiteralValue::String(String::new().into()));
        } else if !is_constant(target) && !is_namespace(target) {
            return Ok(());
        }
    }
    let expr = IdedExpr {
        id: 0,
        expr: Expr::Call(call),
    };
    let _clock = clock::start(0, super::MAX_ITERATIONS);
    budget::start();
    let result = Value::resolve(&expr, &ALL);
    result.map(|_| ()).map_err(|error| error.to_string())
}

fn wrong(function: &str, message: impl ToString) -> ExecutionError {
    ExecutionError::function_error(function.trim_start_matches('@'), message)
}

fn compare(Arguments(args): Arguments) -> Result<Value, ExecutionError> {
    match &args[..] {
        [
            Value::String(operator),
            Value::String(signs),
            right,
            terms @ ..,
        ] => clock::compare(operator, signs, right, terms).map(Value::Bool),
        _ => Err(wrong(lowered::CLOCK, "wrong arguments")),
    }
}

#[allow(
    clippy::needless_pass_by_value,
    reason = "the library gives arguments as values"
)]
fn contains(This(this): This<Value>, element: Value) -> Result<Value, ExecutionError> {
    let found = match (&this, &element) {
        (Value::String(text), Value::String(part)) => text.contains(part.as_str()),
        (Value::List(list), element) => list.contains(element),
        (Value::Map(map), Value::String(key)) => lookup(map, key).is_some(),
        _ => return Err(wrong("contains", "it looks into a text, a list or a map")),
    };
    Ok(Value::Bool(found))
}

fn lookup<'a>(map: &'a Map, name: &Arc<String>) -> Option<&'a Value> {
    map.map.get(&Key::String(Arc::clone(name)))
}

fn field(args: &[Value]) -> Result<Value, ExecutionError> {
    match args {
        [Value::Null, _] => Ok(Value::Null),
        [Value::Map(map), Value::String(name)] => {
            Ok(lookup(map, name).cloned().unwrap_or(Value::Null))
        }
        [_, Value::String(name)] => Err(wrong(
            "field",
            format!("only an object has a field \"{name}\""),
        )),
        _ => Err(wrong("field", "wrong arguments")),
    }
}

fn index(args: &[Value]) -> Result<Value, ExecutionError> {
    match args {
        [Value::Null, _] => Ok(Value::Null),
        [Value::Map(map), Value::String(name)] => {
            Ok(lookup(map, name).cloned().unwrap_or(Value::Null))
        }
        [Value::List(list), Value::Int(at)] => usize::try_from(*at)
            .ok()
            .and_then(|at| list.get(at))
            .cloned()
            .ok_or_else(|| wrong("[]", format!("the list has no element {at}"))),
        _ => Err(wrong("[]", "only lists and maps have elements")),
    }
}

/// The elements of a list, or the keys of a map in their order.
fn range(args: &[Value]) -> Result<Value, ExecutionError> {
    let list = match args {
        [Value::Null] => Arc::default(),
        [Value::List(list)] => Arc::clone(list),
        [Value::Map(map)] => {
            let mut keys: Vec<&Key> = map.map.keys().collect();
            keys.sort();
            Arc::new(keys.into_iter().map(Value::from).collect())
        }
        _ => return Err(wrong("loop", "only lists and maps have elements")),
    };
    clock::count(list.len())?;
    Ok(Value::List(list))
}

fn size(args: &[Value]) -> Result<Value, ExecutionError> {
    let size = match args {
        [Value::Null] => 0,
        [Value::List(list)] => list.len(),
        [Value::Map(map)] => map.map.len(),
        [Value::String(text)] => text.chars().count(),
        [Value::Bytes(bytes)] => bytes.len(),
        _ => return Err(wrong("size", "only lists, maps and texts have a size")),
    };
    Ok(Value::Int(i64::try_from(size).unwrap_or(i64::MAX)))
}

fn equal(args: &[Value]) -> Result<Value, ExecutionError> {
    match args {
        [one, other] => Ok(Value::Bool(one == other)),
        _ => Err(wrong("==", "wrong arguments")),
    }
}

fn is_in(args: &[Value]) -> Result<Value, ExecutionError> {
    match args {
        [element, Value::List(list)] => Ok(Value::Bool(list.contains(element))),
        [element, Value::Map(map)] => {
            let mut keys = map.map.keys().map(Value::from);
            Ok(Value::Bool(keys.any(|key| key == *element)))
        }
        _ => Err(wrong("in", "only lists and maps have elements")),
    }
}

fn end_of(
    args: &[Value],
    end: impl Fn(&[Value]) -> Option<&Value>,
) -> Result<Value, ExecutionError> {
    match args {
        [Value::Null] => Ok(Value::Null),
        [Value::List(list)] => Ok(end(list).cloned().unwrap_or(Value::Null)),
        _ => Err(wrong("first", "only a list has a first and a last element")),
    }
}

fn length(args: &[Value]) -> Result<Value, ExecutionError> {
    match args {
        [Value::Int(length)] => {
            clock::count(usize::try_from(*length).unwrap_or_default())?;
            Ok(Value::Int(*length))
        }
        _ => Err(wrong("lists.range", "it takes a whole number")),
    }
}

fn text_of<'a>(element: &'a Value, name: &str) -> Option<&'a Value> {
    match element {
        Value::Map(map) => map.map.get(&Key::String(Arc::new(name.to_owned()))),
        _ => None,
    }
}

fn condition(args: &[Value]) -> Result<Value, ExecutionError> {
    match args {
        [Value::Null, Value::String(_)] => Ok(Value::Null),
        [Value::List(conditions), Value::String(kind)] => Ok(conditions
            .iter()
            .find(|it| text_of(it, "type") == Some(&Value::String(Arc::clone(kind))))
            .cloned()
            .unwrap_or(Value::Null)),
        _ => Err(wrong(
            "condition",
            "it takes an object and the type of a condition",
        )),
    }
}

/// When a pod or a job ended; `null` while it has not, or if nothing says when.
///
/// Of a pod, the latest end of a container. The kubelet does not know when a container ended
/// that it has lost, and one of an evicted pod may never have run: then the latest transition
/// of a condition counts too. An init container alone ends no pod. Of a job, its completion, or
/// since when it has failed.
fn finished(args: &[Value]) -> Result<Value, ExecutionError> {
    let [phase, containers, init_containers, completion, conditions] = args else {
        return Err(wrong("finishedAt", "it takes one object"));
    };
    let is_pod = *phase != Value::Null;
    let has_ended = ["Succeeded", "Failed"]
        .iter()
        .any(|ended| *phase == Value::from(*ended));
    if is_pod && !has_ended {
        return Ok(Value::Null);
    }
    let containers = elements(containers);
    let mut ends = times(containers.iter().map(end_of_container))?;
    let has_each_end = !ends.is_empty() && ends.len() == containers.len();
    ends.extend(times(
        elements(init_containers).iter().map(end_of_container),
    )?);
    ends.extend(times([Some(completion)])?);
    if !has_each_end && *completion == Value::Null {
        let transitions = elements(conditions);
        let transitions = transitions
            .iter()
            .filter(|it| is_pod || is_end_of_job(it))
            .map(|it| text_of(it, "lastTransitionTime"));
        let transitions = times(transitions)?;
        if transitions.is_empty() {
            return Ok(Value::Null);
        }
        ends.extend(transitions);
    }
    Ok(ends.into_iter().max().map_or(Value::Null, Value::Timestamp))
}

fn elements(list: &Value) -> &[Value] {
    match list {
        Value::List(list) => list,
        _ => &[],
    }
}

fn end_of_container(container: &Value) -> Option<&Value> {
    let terminated = text_of(container, "state").and_then(|it| text_of(it, "terminated"));
    terminated.and_then(|it| text_of(it, "finishedAt"))
}

/// Those of the times that are set.
fn times<'a>(
    found: impl IntoIterator<Item = Option<&'a Value>>,
) -> Result<Vec<DateTime<FixedOffset>>, ExecutionError> {
    let found = found.into_iter().flatten();
    let found = found.filter(|time| **time != Value::Null);
    found.map(clock::time).collect()
}

fn is_end_of_job(condition: &Value) -> bool {
    let is = |name, text: &str| text_of(condition, name) == Some(&Value::from(text));
    is("status", "True") && ["Complete", "Failed"].iter().any(|end| is("type", end))
}
