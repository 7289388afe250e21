//! The functions that a rule may call: how they are called, what they take, and the types of their
//! results. What is not known of an operand is accepted.

use super::Type;
use super::operators::Misfit;

const ANY: &[Type] = &[Type::Any];
const TEXT: &[Type] = &[Type::Text];
const BOOL: &[Type] = &[Type::Bool];
const NUMBER: &[Type] = &[Type::Number];
const LIST: &[Type] = &[Type::List];
const TIME: &[Type] = &[Type::Time];
const TIME_OR_DURATION: &[Type] = &[Type::Time, Type::Duration];
const NUMBER_OR_TEXT: &[Type] = &[Type::Number, Type::Text];
const TEXT_OR_LIST: &[Type] = &[Type::Text, Type::List];
const COLLECTION: &[Type] = &[Type::Text, Type::List, Type::Map];
const QUANTITY: &[Type] = &[Type::Quantity];
const VERSION: &[Type] = &[Type::Version];
const ADDRESS: &[Type] = &[Type::Address];
const NETWORK: &[Type] = &[Type::Network];
const URL: &[Type] = &[Type::Url];
const ORDERED: &[Type] = &[Type::Quantity, Type::Version];

/// How a function is called.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Style {
    /// `f(x)`
    Function,
    /// `x.f()`
    Method,
    Either,
}

/// A function.
pub(super) struct Signature {
    pub(super) name: &'static str,
    style: Style,
    /// What it takes: first what stands before the dot, if it is called so.
    operands: &'static [&'static [Type]],
    /// How many of the operands may be left out.
    optional: usize,
    /// Whether the last operand may be repeated.
    is_variadic: bool,
    pub(super) result: Type,
}

type Operands = &'static [&'static [Type]];

const fn signature(
    style: Style,
    name: &'static str,
    operands: Operands,
    result: Type,
) -> Signature {
    Signature {
        name,
        style,
        operands,
        optional: 0,
        is_variadic: false,
        result,
    }
}

const fn function(name: &'static str, operands: Operands, result: Type) -> Signature {
    signature(Style::Function, name, operands, result)
}

const fn method(name: &'static str, operands: Operands, result: Type) -> Signature {
    signature(Style::Method, name, operands, result)
}

const fn either(name: &'static str, operands: Operands, result: Type) -> Signature {
    signature(Style::Either, name, operands, result)
}

impl Signature {
    const fn optional(self, optional: usize) -> Self {
        Self { optional, ..self }
    }

    const fn variadic(self) -> Self {
        Self {
            is_variadic: true,
            ..self
        }
    }
}

/// The functions, but for those that are lowered by themselves.
pub(super) const ALL: &[Signature] = &[
    // Texts.
    either("contains", &[COLLECTION, ANY], Type::Bool),
    either("startsWith", &[TEXT, TEXT], Type::Bool),
    either("endsWith", &[TEXT, TEXT], Type::Bool),
    either("matches", &[TEXT, TEXT], Type::Bool),
    either("find", &[TEXT, TEXT], Type::Text),
    method("findAll", &[TEXT, TEXT, NUMBER], Type::List).optional(1),
    either("charAt", &[TEXT, NUMBER], Type::Text),
    method("indexOf", &[TEXT_OR_LIST, ANY, NUMBER], Type::Number).optional(1),
    method("lastIndexOf", &[TEXT_OR_LIST, ANY, NUMBER], Type::Number).optional(1),
    either("lowerAscii", &[TEXT], Type::Text),
    either("upperAscii", &[TEXT], Type::Text),
    method("replace", &[TEXT, TEXT, TEXT, NUMBER], Type::Text).optional(1),
    method("split", &[TEXT, TEXT, NUMBER], Type::List).optional(1),
    method("substring", &[TEXT, NUMBER, NUMBER], Type::Text).optional(1),
    either("trim", &[TEXT], Type::Text),
    method("join", &[LIST, TEXT], Type::Text).optional(1),
    either("reverse", &[TEXT_OR_LIST], Type::Any),
    method("format", &[TEXT, LIST], Type::Text),
    function("strings.quote", &[TEXT], Type::Text),
    function("base64.encode", &[ANY], Type::Text),
    function("base64.decode", &[TEXT], Type::Any),
    function("jsonpatch.escapeKey", &[TEXT], Type::Text),
    // Conversions.
    either("string", &[ANY], Type::Text),
    function("bytes", &[TEXT], Type::Any),
    either(
        "int",
        &[&[Type::Number, Type::Text, Type::Time]],
        Type::Number,
    ),
    either("uint", &[NUMBER_OR_TEXT], Type::Number),
    either("double", &[NUMBER_OR_TEXT], Type::Number),
    function("bool", &[&[Type::Text, Type::Bool]], Type::Bool),
    function("duration", &[&[Type::Text, Type::Duration]], Type::Duration),
    function(
        "timestamp",
        &[&[Type::Text, Type::Time, Type::Number]],
        Type::Time,
    ),
    function("dyn", &[ANY], Type::Any),
    // Lists.
    either("isSorted", &[LIST], Type::Bool),
    either("sum", &[LIST], Type::Any),
    either("min", &[ANY], Type::Any).variadic(),
    either("max", &[ANY], Type::Any).variadic(),
    either("slice", &[LIST, NUMBER, NUMBER], Type::List),
    either("sort", &[LIST], Type::List),
    method("flatten", &[LIST, NUMBER], Type::List).optional(1),
    either("distinct", &[LIST], Type::List),
    method("first", &[LIST], Type::Any),
    method("last", &[LIST], Type::Any),
    function("lists.range", &[NUMBER], Type::List),
    function("sets.contains", &[LIST, LIST], Type::Bool),
    function("sets.equivalent", &[LIST, LIST], Type::Bool),
    function("sets.intersects", &[LIST, LIST], Type::Bool),
    // Times. The last operand is the zone.
    method("getFullYear", &[TIME, TEXT], Type::Number).optional(1),
    method("getMonth", &[TIME, TEXT], Type::Number).optional(1),
    method("getDayOfYear", &[TIME, TEXT], Type::Number).optional(1),
    method("getDayOfMonth", &[TIME, TEXT], Type::Number).optional(1),
    method("getDate", &[TIME, TEXT], Type::Number).optional(1),
    method("getDayOfWeek", &[TIME, TEXT], Type::Number).optional(1),
    method("getHours", &[TIME_OR_DURATION, TEXT], Type::Number).optional(1),
    method("getMinutes", &[TIME_OR_DURATION, TEXT], Type::Number).optional(1),
    method("getSeconds", &[TIME_OR_DURATION, TEXT], Type::Number).optional(1),
    method("getMilliseconds", &[TIME_OR_DURATION, TEXT], Type::Number).optional(1),
    // Numbers.
    function("math.ceil", &[NUMBER], Type::Number),
    function("math.floor", &[NUMBER], Type::Number),
    function("math.round", &[NUMBER], Type::Number),
    function("math.trunc", &[NUMBER], Type::Number),
    function("math.abs", &[NUMBER], Type::Number),
    function("math.sign", &[NUMBER], Type::Number),
    function("math.sqrt", &[NUMBER], Type::Number),
    function("math.isInf", &[NUMBER], Type::Bool),
    function("math.isNaN", &[NUMBER], Type::Bool),
    function("math.isFinite", &[NUMBER], Type::Bool),
    function(
        "math.greatest",
        &[&[Type::Number, Type::List]],
        Type::Number,
    )
    .variadic(),
    function("math.least", &[&[Type::Number, Type::List]], Type::Number).variadic(),
    // Quantities and versions.
    function("quantity", &[TEXT], Type::Quantity),
    function("isQuantity", &[TEXT], Type::Bool),
    either("isInteger", &[QUANTITY], Type::Bool),
    either("asInteger", &[QUANTITY], Type::Number),
    either("asApproximateFloat", &[QUANTITY], Type::Number),
    either("sign", &[QUANTITY], Type::Number),
    method(
        "add",
        &[QUANTITY, &[Type::Quantity, Type::Number]],
        Type::Quantity,
    ),
    method(
        "sub",
        &[QUANTITY, &[Type::Quantity, Type::Number]],
        Type::Quantity,
    ),
    method("compareTo", &[ORDERED, ORDERED], Type::Number),
    method("isGreaterThan", &[ORDERED, ORDERED], Type::Bool),
    method("isLessThan", &[ORDERED, ORDERED], Type::Bool),
    either("semver", &[TEXT, BOOL], Type::Version).optional(1),
    either("isSemver", &[TEXT, BOOL], Type::Bool).optional(1),
    either("major", &[VERSION], Type::Number),
    either("minor", &[VERSION], Type::Number),
    either("patch", &[VERSION], Type::Number),
    // Addresses.
    either("ip", &[&[Type::Text, Type::Network]], Type::Address),
    function("isIP", &[TEXT], Type::Bool),
    function("ip.isCanonical", &[TEXT], Type::Bool),
    either("family", &[ADDRESS], Type::Number),
    either("isLoopback", &[ADDRESS], Type::Bool),
    either("isUnspecified", &[ADDRESS], Type::Bool),
    either("isLinkLocalMulticast", &[ADDRESS], Type::Bool),
    either("isLinkLocalUnicast", &[ADDRESS], Type::Bool),
    either("isGlobalUnicast", &[ADDRESS], Type::Bool),
    function("cidr", &[TEXT], Type::Network),
    function("isCIDR", &[TEXT], Type::Bool),
    either(
        "containsIP",
        &[NETWORK, &[Type::Text, Type::Address]],
        Type::Bool,
    ),
    either(
        "containsCIDR",
        &[NETWORK, &[Type::Text, Type::Network]],
        Type::Bool,
    ),
    either("prefixLength", &[NETWORK], Type::Number),
    either("masked", &[NETWORK], Type::Network),
    // URLs.
    function("url", &[TEXT], Type::Url),
    function("isURL", &[TEXT], Type::Bool),
    either("getScheme", &[URL], Type::Text),
    either("getHost", &[URL], Type::Text),
    either("getHostname", &[URL], Type::Text),
    either("getPort", &[URL], Type::Text),
    either("getEscapedPath", &[URL], Type::Text),
    either("getQuery", &[URL], Type::Map),
];

/// What `size` takes.
const SIZE: Signature = either("size", &[COLLECTION], Type::Number);

/// The function of a name.
pub(super) fn of(name: &str) -> Option<&'static Signature> {
    ALL.iter().find(|it| it.name == name)
}

/// Checks the operand of a function that is lowered by itself.
pub(super) fn check_operand(name: &str, operand: Type) -> Result<(), Misfit> {
    let size = (name == SIZE.name).then_some(&SIZE);
    match size.or_else(|| of(name)) {
        Some(signature) => signature.check_types(&[operand], Type::Any),
        None => Ok(()),
    }
}

impl Signature {
    /// Checks how the function is called, its operands, and that they are as many as it takes.
    /// `elements` is the type of the first one's elements.
    pub(super) fn check(
        &self,
        operands: &[Type],
        elements: Type,
        is_method: bool,
    ) -> Result<(), Misfit> {
        let misfit = |message| Misfit {
            operand: None,
            message,
        };
        let name = self.name;
        match self.style {
            Style::Function if is_method => {
                return Err(misfit(format!("{name} is no method: write {name}(…)")));
            }
            Style::Method if !is_method => {
                return Err(misfit(format!("{name} is a method: write VALUE.{name}(…)")));
            }
            _ => {}
        }
        let receivers = usize::from(is_method);
        let least = self.operands.len() - self.optional;
        let is_enough = operands.len() >= least;
        if !is_enough || (operands.len() > self.operands.len() && !self.is_variadic) {
            let takes = self.takes(receivers);
            let arguments = operands.len() - receivers;
            return Err(misfit(format!("{name} takes {takes}, not {arguments}")));
        }
        self.check_types(operands, elements)
    }

    /// How many arguments it takes, in words.
    fn takes(&self, receivers: usize) -> String {
        let most = self.operands.len().saturating_sub(receivers);
        let least = most.saturating_sub(self.optional);
        let plural = |number: usize| if number == 1 { "" } else { "s" };
        match (least, most) {
            _ if self.is_variadic => format!("{least} argument{} or more", plural(least)),
            (_, 0) => "no argument".to_owned(),
            (0, most) => format!("{most} argument{} at most", plural(most)),
            (least, most) if least == most => format!("{most} argument{}", plural(most)),
            (least, most) => format!("{least} or {most} arguments"),
        }
    }

    fn check_types(&self, operands: &[Type], elements: Type) -> Result<(), Misfit> {
        let name = self.name;
        for (index, operand) in operands.iter().enumerate() {
            let accepted = self.operands.get(index).or(self.operands.last());
            let accepted = accepted.copied().unwrap_or_default();
            if !accepted.iter().any(|it| it.meets(*operand)) {
                let accepted: Vec<String> = accepted.iter().map(ToString::to_string).collect();
                let accepted = accepted.join(" or ");
                return Err(Misfit {
                    operand: Some(index),
                    message: format!("{name} takes {accepted}, not {operand}"),
                });
            }
        }
        self.check_pair(operands, elements)
    }

    /// Checks the types of two operands that go together.
    fn check_pair(&self, operands: &[Type], elements: Type) -> Result<(), Misfit> {
        let [first, second, ..] = operands else {
            return Ok(());
        };
        let misfit = |message| Misfit {
            operand: Some(1),
            message,
        };
        let name = self.name;
        match name {
            // What is looked for is of the type of what it is looked for in.
            "contains" | "indexOf" | "lastIndexOf" => {
                let part = match first {
                    Type::Text | Type::Map => Type::Text,
                    Type::List => elements,
                    _ => Type::Any,
                };
                if second.meets(part) {
                    return Ok(());
                }
                Err(misfit(format!(
                    "{name} looks for {second}, where only {part} can be"
                )))
            }
            "compareTo" | "isGreaterThan" | "isLessThan" if !first.meets(*second) => {
                Err(misfit(format!("{name} compares {first} with {second}")))
            }
            _ if *first == Type::Duration && name.starts_with("get") => {
                Err(misfit(format!("{name} takes no zone of a duration")))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
