//! Operators and functions: their operands are checked, and what they make is counted.

use kube_cel::cel::IdedExpr;
use kube_cel::cel::common::ast::{CallExpr, Expr, LiteralValue, operators};

use super::expand::{call_of, node};
use super::lower::{Lowered, Lowering};
use super::operators::{Misfit, operator_result};
use super::schema::Schema;
use super::{Mistake, Type, search, signature, times};
use super::{functions, lowered};

/// The namespaces of functions: `sets.contains` is one name.
const NAMESPACES: [&str; 8] = [
    "base64",
    "format",
    "ip",
    "jsonpatch",
    "lists",
    "math",
    "sets",
    "strings",
];

/// The functions that make a text or a list as large as what stands before the dot, or as the
/// argument.
const COPIES: [&str; 15] = [
    "bytes",
    "base64.encode",
    "reverse",
    "jsonpatch.escapeKey",
    "slice",
    "sort",
    "flatten",
    "distinct",
    "sum",
    "lowerAscii",
    "upperAscii",
    "substring",
    "trim",
    "strings.quote",
    "url",
];

/// The functions whose result is a list of the same elements, whatever these are.
const PARTS: [&str; 2] = ["reverse", "slice"];

impl Lowering<'_> {
    /// A mistake in an operand, or in the whole if it is none in particular.
    fn misfit(&self, misfit: Misfit, operands: &[&IdedExpr]) -> Mistake {
        match misfit.operand.and_then(|index| operands.get(index)) {
            Some(operand) => self.mistake_in(operand, misfit.message),
            None => self.mistake(misfit.message),
        }
    }

    pub(super) fn operator(&mut self, call: &CallExpr) -> Result<Lowered, Mistake> {
        let mut args = Vec::new();
        let mut results = Vec::new();
        for arg in &call.args {
            let (arg, result) = self.value(arg)?;
            args.push(arg);
            results.push(result);
        }
        let name = call.func_name.as_str();
        let result = operator_result(name, &results)
            .map_err(|misfit| self.misfit(misfit, &call.args.iter().collect::<Vec<_>>()))?;
        let are_numbers = results.iter().all(|it| *it == Type::Number);
        let name = match name {
            // The library's own addition of times ends the call if the result is out of range.
            operators::ADD if !are_numbers => lowered::ADD,
            operators::SUBSTRACT if !are_numbers => lowered::SUBTRACT,
            // The library's own has a wrong result for the smallest integer.
            operators::NEGATE => lowered::NEGATE,
            _ => name,
        };
        Ok(Lowered::of(call_of(name, args), result))
    }

    /// `element in list`: an element can only be in a list of such, as with `==`.
    pub(super) fn membership(
        &mut self,
        element: &IdedExpr,
        list: &IdedExpr,
    ) -> Result<Lowered, Mistake> {
        let operand = self.lower(element)?;
        let is_quantity = operand.is_quantity();
        let (element, sought) = self.read(operand, element)?;
        let within = match &list.expr {
            Expr::List(of) => {
                let (within, types) = self.list(&of.elements)?;
                let mut elements = of.elements.iter().zip(types);
                if let Some((it, found)) = elements.find(|(_, found)| !sought.meets(*found)) {
                    let message = format!("it compares {sought} with {found}");
                    return Err(self.mistake_in(it, message));
                }
                within
            }
            _ => self.lower(list)?,
        };
        let elements = within.elements();
        let origin = within.origin.clone();
        self.check_quantity(is_quantity, elements)?;
        let (within, result) = self.read(within, list)?;
        let result = operator_result(operators::IN, &[sought, result])
            .map_err(|misfit| self.misfit(misfit, &[list, list]))?;
        if !sought.meets(elements) {
            return Err(self.mistake(format!(
                "it looks for {sought}, where only {elements} can be"
            )));
        }
        if let (Some(origin), Expr::Literal(LiteralValue::String(name))) = (origin, &element.expr)
            && !origin.schema.is_list()
        {
            self.place = element.id;
            self.known(&origin, name.inner(), Schema::field)?;
        }
        let is_of_texts = is_list_of_texts(&within);
        let name = if sought.may_hold_numbers() && !is_of_texts {
            lowered::IN
        } else {
            operators::IN
        };
        Ok(Lowered::of(call_of(name, vec![element, within]), result))
    }

    pub(super) fn function(&mut self, call: &CallExpr) -> Result<Lowered, Mistake> {
        let namespace = call.target.as_ref().and_then(|target| match &target.expr {
            Expr::Ident(name) if NAMESPACES.contains(&name.as_str()) => Some(name.as_str()),
            _ => None,
        });
        let name = match namespace {
            Some(namespace) if !self.is_local(namespace) => {
                format!("{namespace}.{}", call.func_name)
            }
            _ => call.func_name.clone(),
        };
        let Some(signature) = signature::of(&name) else {
            return Err(self.mistake(functions::unknown(&name)));
        };
        let receiver = call.target.as_deref().filter(|_| name == call.func_name);
        let is_method = receiver.is_some();
        let operands: Vec<&IdedExpr> = receiver.into_iter().chain(&call.args).collect();
        let mut values = Vec::new();
        let mut types = Vec::new();
        let mut elements = Type::Any;
        let mut list = None;
        for (index, operand) in operands.iter().enumerate() {
            let lowered = self.lower(operand)?;
            if index == 0 {
                elements = lowered.elements();
                list = lowered.origin.clone().filter(|it| it.schema.is_list());
                list = list.filter(|_| PARTS.contains(&name.as_str()));
            }
            let (value, result) = if index == 0 && list.is_some() {
                self.materialized(lowered)
            } else {
                self.read(lowered, operand)?
            };
            values.push(value);
            types.push(result);
        }
        signature
            .check(&types, elements, is_method)
            .map_err(|misfit| self.misfit(misfit, &operands))?;
        // A time of a time is itself, as CEL says.
        if name == "timestamp" && types == [Type::Time] {
            return Ok(Lowered::of(values.remove(0), Type::Time));
        }
        self.check_zone(&name, &operands)?;
        if let [_, pattern, ..] = operands[..] {
            search::check(&name, pattern).map_err(|it| self.mistake_in(pattern, it))?;
        }
        let mut call = CallExpr {
            func_name: call.func_name.clone(),
            target: call.target.clone(),
            args: values,
        };
        if is_method {
            call.target = Some(Box::new(call.args.remove(0)));
        }
        if let Some(mut constant) = functions::constant(&call, is_method) {
            count(&name, &mut constant);
            functions::check_constant(constant).map_err(|message| self.mistake(message))?;
        }
        count(&name, &mut call);
        let call = node(Expr::Call(call));
        Ok(match name.as_str() {
            "split" | "findAll" => Lowered::list(call, Type::Text),
            _ if list.is_some() => Lowered::with(Some(call), list, Type::List),
            "sort" | "distinct" => Lowered::list(call, elements),
            _ if PARTS.contains(&name.as_str()) && types.first() == Some(&Type::List) => {
                Lowered::list(call, elements)
            }
            _ => Lowered::of(call, signature.result),
        })
    }

    /// Checks the zone in which a part of a time is asked for, if it is a constant.
    fn check_zone(&self, name: &str, operands: &[&IdedExpr]) -> Result<(), Mistake> {
        let [_, zone] = operands else { return Ok(()) };
        match &zone.expr {
            Expr::Literal(LiteralValue::String(text)) if times::takes_zone(name) => {
                let known = times::zone_of(text.inner());
                known
                    .map(|_| ())
                    .map_err(|message| self.mistake_in(zone, message))
            }
            _ => Ok(()),
        }
    }

    /// Checks the operand of a function that has a name of its own when it is lowered.
    pub(super) fn check_operand(
        &self,
        name: &str,
        operand: &IdedExpr,
        result: Type,
    ) -> Result<(), Mistake> {
        signature::check_operand(name, result).map_err(|misfit| self.misfit(misfit, &[operand]))
    }
}

/// Counts what a function makes, before it makes it.
fn count(name: &str, call: &mut CallExpr) {
    let wrap = |of: &mut IdedExpr, function: &str| {
        let inner = std::mem::take(of);
        *of = call_of(function, vec![inner]);
    };
    if search::PATTERNS.contains(&name) {
        return search::count(name, call);
    }
    if matches!(name, "semver" | "isSemver") {
        return join(call, lowered::VERSION);
    }
    let is_namespaced = name != call.func_name;
    let first = match &mut call.target {
        Some(target) if !is_namespaced => Some(&mut **target),
        _ => call.args.first_mut(),
    };
    let Some(first) = first else { return };
    match name {
        "string" => wrap(first, lowered::TEXT),
        "quantity" => wrap(first, lowered::QUANTITY),
        "isQuantity" => wrap(first, lowered::IS_QUANTITY),
        "cidr" => wrap(first, lowered::NETWORK),
        "isCIDR" => wrap(first, lowered::IS_NETWORK),
        "base64.decode" => wrap(first, lowered::BASE64),
        // The length of the list is bounded as what a loop visits.
        "lists.range" => wrap(first, lowered::LENGTH),
        _ if COPIES.contains(&name) => wrap(first, lowered::PART),
        _ => {}
    }
}

/// Makes one operand of all of them, by a function.
fn join(call: &mut CallExpr, function: &str) {
    let receiver = call.target.take().map(|it| *it);
    let arguments = std::mem::take(&mut call.args);
    let operands = receiver.into_iter().chain(arguments).collect();
    call.args = vec![call_of(function, operands)];
}

/// Whether it is a list of texts, as it stands.
fn is_list_of_texts(expr: &IdedExpr) -> bool {
    let Expr::List(list) = &expr.expr else {
        return false;
    };
    let mut elements = list.elements.iter();
    elements.all(|it| matches!(&it.expr, Expr::Literal(LiteralValue::String(_))))
}
