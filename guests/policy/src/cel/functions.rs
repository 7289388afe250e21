//! The functions of the expressions: those of the library, and Davit's own.

use std::cmp::Ordering;
use std::sync::{Arc, LazyLock};

use chrono::{DateTime, FixedOffset};
use kube_cel::KubeCelExt;
use kube_cel::cel::common::ast::{CallExpr, Expr, LiteralValue};
use kube_cel::cel::objects::{Key, Map};
use kube_cel::cel::{Context, ExecutionError, FunctionContext, IdedExpr, Value};

use super::arguments::{operands, wrong};
use super::expand::{call_of, ident, node};
use super::schema::did_you_mean;
use super::{
    arithmetic, budget, clock, conversions, format, lists, loops, lowered, networks, quantities,
    search, signature, times, urls, versions,
};

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
    signature::ALL.iter().map(|it| it.name).chain(own)
}

/// What is wrong with a call of a function that there is not.
pub(super) fn unknown(name: &str) -> String {
    if let Some((_, call)) = CALLS.iter().find(|(known, _)| *known == name) {
        return format!("\"{name}\" is not called so: write {call}");
    }
    let known = signature::ALL.iter().map(|it| it.name);
    let known = known.chain(CALLS.iter().map(|(name, _)| *name));
    format!(
        "there is no function \"{name}\"{}",
        did_you_mean(name, known)
    )
}

/// The functions.
pub(super) static ALL: LazyLock<Context<'static>> = LazyLock::new(context);

/// A function of the values that it is called with, first of what stands before the dot.
type Function = fn(&[Value]) -> Result<Value, ExecutionError>;

/// Those that replace the library's own, and those that it does not have.
const FUNCTIONS: &[(&str, Function)] = &[
    (lowered::CLOCK, compare),
    (lowered::FIELD, field),
    (lowered::INDEX, index),
    (lowered::SIZE, size),
    (lowered::EQUAL, equal),
    (lowered::IN, is_in),
    (lowered::FIRST, |it| end_of(it, <[Value]>::first)),
    (lowered::LAST, |it| end_of(it, <[Value]>::last)),
    (lowered::LENGTH, length),
    (lowered::CONDITION, condition),
    (lowered::FINISHED, finished),
    (lowered::ADD, arithmetic::sum),
    (lowered::SUBTRACT, arithmetic::difference),
    (lowered::NEGATE, arithmetic::negation),
    (lowered::PART, budget::part),
    (lowered::HAYSTACK, budget::haystack),
    (lowered::OPERAND, budget::operand),
    (lowered::SEARCHED, search::searched),
    (lowered::PATTERN, search::pattern),
    (lowered::TEXT, conversions::text),
    (lowered::QUANTITY, quantities::bounded),
    (lowered::IS_QUANTITY, quantities::candidate),
    (lowered::VERSION, versions::text),
    (lowered::BASE64, conversions::base64),
    (lowered::NETWORK, networks::strict),
    (lowered::IS_NETWORK, networks::candidate),
    // The library's own accept more than they should, or have another result than CEL.
    ("duration", arithmetic::duration),
    ("timestamp", times::timestamp),
    ("int", conversions::int),
    ("uint", conversions::uint),
    ("bool", conversions::boolean),
    ("isInteger", is_integer),
    ("format", format::format),
    ("contains", contains),
    ("indexOf", lists::index_of),
    ("lastIndexOf", lists::last_index_of),
    ("sum", lists::sum),
    ("min", |it| lists::extreme("min", it, Ordering::Less)),
    ("max", |it| lists::extreme("max", it, Ordering::Greater)),
    ("math.least", |it| {
        lists::extreme_number("math.least", it, Ordering::Less)
    }),
    ("math.greatest", |it| {
        lists::extreme_number("math.greatest", it, Ordering::Greater)
    }),
    // The library's own have the parts of another text than the one that they take.
    ("url", urls::url),
    ("isURL", urls::is_url),
    ("getScheme", urls::scheme),
    ("getHost", urls::host),
    ("getHostname", urls::hostname),
    ("getPort", urls::port),
    ("getEscapedPath", urls::escaped_path),
    ("getQuery", urls::query),
    // The library's own compare everything with everything.
    ("sort", lists::sort),
    ("distinct", lists::distinct),
    ("sets.contains", lists::set_contains),
    ("sets.equivalent", lists::set_equivalent),
    ("sets.intersects", lists::set_intersects),
];

fn context() -> Context<'static> {
    let mut context = Context::default().with_all();
    for &(name, function) in FUNCTIONS {
        let of_values = move |call: &FunctionContext<'_, '_>| function(&operands(call)?);
        context.add_function(name, of_values);
    }
    times::register(&mut context);
    context.add_function(lowered::EXISTS, loops::exists);
    context.add_function(lowered::ALL, loops::all);
    context.add_function(lowered::EXISTS_ONE, loops::exists_one);
    context.add_function(lowered::FILTER, loops::filter);
    context.add_function(lowered::MAP, loops::map);
    // The library's own make texts of any size.
    context.add_function("replace", budget::replace);
    context.add_function("join", budget::join);
    context.add_function("split", budget::split);
    context
}

/// A call whose arguments are constants, as it is evaluated to find a mistake in it. `is_method`
/// says whether what stands before the dot is a value.
pub(super) fn constant(call: &CallExpr, is_method: bool) -> Option<CallExpr> {
    let is_constant = |expr: &IdedExpr| matches!(expr.expr, Expr::Literal(_));
    if !call.args.iter().all(is_constant) {
        return None;
    }
    let mut call = call.clone();
    let is_pattern = search::PATTERNS.contains(&call.func_name.as_str());
    match call.target.as_mut().filter(|_| is_method) {
        // A pattern is right or wrong whatever it is matched with.
        Some(target) if is_pattern => {
            target.expr = Expr::Literal(LiteralValue::String(String::new().into()));
        }
        Some(target) if !is_constant(target) => return None,
        _ => {}
    }
    Some(call)
}

/// Evaluates such a call: a mistake in it is one of the configuration.
pub(super) fn check_constant(call: CallExpr) -> Result<(), String> {
    let _clock = clock::start(0);
    budget::start();
    let result = Value::resolve(&node(Expr::Call(call)), &ALL);
    result.map(|_| ()).map_err(|error| error.to_string())
}

fn compare(args: &[Value]) -> Result<Value, ExecutionError> {
    match args {
        [
            Value::String(operator),
            Value::String(signs),
            right,
            terms @ ..,
        ] => clock::compare(operator, signs, right, terms).map(Value::Bool),
        _ => Err(wrong(lowered::CLOCK, "wrong arguments")),
    }
}

fn contains(args: &[Value]) -> Result<Value, ExecutionError> {
    let found = match args {
        [Value::String(text), Value::String(part)] => text.contains(part.as_str()),
        [Value::List(list), element] => list.contains(element),
        [Value::Map(map), Value::String(key)] => lookup(map, key).is_some(),
        _ => return Err(wrong("contains", "it looks into a text, a list or a map")),
    };
    Ok(Value::Bool(found))
}

fn lookup<'a>(map: &'a Map, name: &Arc<String>) -> Option<&'a Value> {
    map.map.get(&Key::String(Arc::clone(name)))
}

fn field(args: &[Value]) -> Result<Value, ExecutionError> {
    args.first().map_or(Ok(()), budget::touch)?;
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
    args.first().map_or(Ok(()), budget::touch)?;
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

/// Whether a quantity is a whole number of 64 bits: the library's own has one of any size.
fn is_integer(args: &[Value]) -> Result<Value, ExecutionError> {
    let [Value::Opaque(quantity)] = args else {
        return Err(wrong("isInteger", "it takes a quantity"));
    };
    let mut context = ALL.new_inner_scope();
    context.add_variable_from_value("it", Value::Opaque(Arc::clone(quantity)));
    let whole = Value::resolve(&call_of("asInteger", vec![ident("it")]), &context);
    Ok(Value::Bool(whole.is_ok()))
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
            budget::elements(usize::try_from(*length).unwrap_or_default())?;
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
    found.map(time).collect()
}

fn time(value: &Value) -> Result<DateTime<FixedOffset>, ExecutionError> {
    match value {
        Value::Timestamp(time) => Ok(*time),
        _ => Err(wrong("finishedAt", "the end of a container is no time")),
    }
}

fn is_end_of_job(condition: &Value) -> bool {
    let is = |name, text: &str| text_of(condition, name) == Some(&Value::from(text));
    is("status", "True") && ["Complete", "Failed"].iter().any(|end| is("type", end))
}
