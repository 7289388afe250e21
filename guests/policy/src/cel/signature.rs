//! What functions take: the types of their operands, as far as they are plain. What is not known of
//! an operand is accepted.

use super::Type;
use super::operators::Misfit;

const ANY: &[Type] = &[Type::Any];
const TEXT: &[Type] = &[Type::Text];
const NUMBER: &[Type] = &[Type::Number];
const LIST: &[Type] = &[Type::List];
const TIME: &[Type] = &[Type::Time];
const TIME_OR_DURATION: &[Type] = &[Type::Time, Type::Duration];
const NUMBER_OR_TEXT: &[Type] = &[Type::Number, Type::Text];
const TEXT_OR_LIST: &[Type] = &[Type::Text, Type::List];

/// What a function takes: first what stands before the dot, if it is called so.
const OPERANDS: &[(&[&str], &[&[Type]])] = &[
    (
        &["startsWith", "endsWith", "matches", "find"],
        &[TEXT, TEXT],
    ),
    (&["findAll", "split"], &[TEXT, TEXT, NUMBER]),
    (&["replace"], &[TEXT, TEXT, TEXT, NUMBER]),
    (&["charAt"], &[TEXT, NUMBER]),
    (&["substring"], &[TEXT, NUMBER, NUMBER]),
    (&["lowerAscii", "upperAscii", "trim", "bytes"], &[TEXT]),
    (&["strings.quote", "jsonpatch.escapeKey"], &[TEXT]),
    (&["format"], &[TEXT, LIST]),
    (&["join"], &[LIST, TEXT]),
    (&["contains"], &[&[Type::Text, Type::List, Type::Map], ANY]),
    (&["indexOf", "lastIndexOf"], &[TEXT_OR_LIST, ANY, NUMBER]),
    (&["reverse"], &[TEXT_OR_LIST]),
    (&["size"], &[&[Type::Text, Type::List, Type::Map]]),
    (
        &["first", "last", "sort", "distinct", "isSorted", "sum"],
        &[LIST],
    ),
    (&["flatten"], &[LIST, NUMBER]),
    (&["slice"], &[LIST, NUMBER, NUMBER]),
    (&["lists.range"], &[NUMBER]),
    (
        &["sets.contains", "sets.equivalent", "sets.intersects"],
        &[LIST, LIST],
    ),
    (&["int", "uint", "double"], &[NUMBER_OR_TEXT]),
    (&["duration"], &[&[Type::Text, Type::Duration]]),
    (&["timestamp"], &[&[Type::Text, Type::Time]]),
    (
        &[
            "getFullYear",
            "getMonth",
            "getDayOfYear",
            "getDayOfMonth",
            "getDate",
            "getDayOfWeek",
        ],
        &[TIME],
    ),
    (
        &["getHours", "getMinutes", "getSeconds", "getMilliseconds"],
        &[TIME_OR_DURATION],
    ),
    (
        &[
            "math.ceil",
            "math.floor",
            "math.round",
            "math.trunc",
            "math.abs",
            "math.sign",
            "math.isInf",
            "math.isNaN",
            "math.isFinite",
            "math.sqrt",
        ],
        &[NUMBER],
    ),
];

/// Checks the operands of a function. `elements` is the type of the first one's elements.
pub(super) fn check(name: &str, operands: &[Type], elements: Type) -> Result<(), Misfit> {
    let Some((_, accepted)) = OPERANDS.iter().find(|(names, _)| names.contains(&name)) else {
        return Ok(());
    };
    for (index, (operand, accepted)) in operands.iter().zip(*accepted).enumerate() {
        if !accepted.iter().any(|it| it.meets(*operand)) {
            let accepted: Vec<String> = accepted.iter().map(ToString::to_string).collect();
            let accepted = accepted.join(" or ");
            return Err(Misfit {
                operand: Some(index),
                message: format!("{name} takes {accepted}, not {operand}"),
            });
        }
    }
    // What is looked for is of the type of what it is looked for in.
    if let ("contains" | "indexOf" | "lastIndexOf", [within, sought, ..]) = (name, operands) {
        let part = match within {
            Type::Text | Type::Map => Type::Text,
            Type::List => elements,
            _ => Type::Any,
        };
        if !sought.meets(part) {
            return Err(Misfit {
                operand: Some(1),
                message: format!("{name} looks for {sought}, where only {part} can be"),
            });
        }
    }
    Ok(())
}
