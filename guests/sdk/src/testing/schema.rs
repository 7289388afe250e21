//! The schema of a configuration, generated from its struct.

use std::path::Path;

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

/// Set it to write the schemas instead of comparing them.
const UPDATE: &str = "DAVIT_UPDATE_SCHEMAS";

/// Asserts that `config.schema.json` in the directory of a crate of this name is the schema of
/// its configuration `C`, without references. With `DAVIT_UPDATE_SCHEMAS` set, writes the file.
///
/// # Panics
///
/// If it is not, with the command that renews it.
pub fn assert_config_schema_is_current<C: JsonSchema>(directory: &str, name: &str) {
    let settings = SchemaSettings::draft2020_12().with(|it| it.inline_subschemas = true);
    let generated = settings.into_generator().into_root_schema_for::<C>();
    let mut generated = generated.to_value();
    tidy(&mut generated);
    if let Value::Object(fields) = &mut generated {
        fields.insert("title".to_owned(), json!(name));
        fields.entry("properties").or_insert_with(|| json!({}));
    }
    let path = Path::new(directory).join("config.schema.json");
    if std::env::var_os(UPDATE).is_some() {
        let text = serde_json::to_string_pretty(&generated).expect("a schema in JSON") + "\n";
        std::fs::write(&path, text).expect("the schema can be written");
        return;
    }
    let text = std::fs::read_to_string(&path).expect("the schema can be read");
    let current: Value = serde_json::from_str(&text).expect("the schema is JSON");
    assert_eq!(
        current, generated,
        "config.schema.json is not the schema of the configuration: \
         {UPDATE}=1 cargo test -p {name} config_schema_is_current writes it"
    );
}

/// What people read: descriptions on one line, words as a list.
fn tidy(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            fields.values_mut().for_each(tidy);
            tidy_fields(fields);
        }
        Value::Array(elements) => elements.iter_mut().for_each(tidy),
        _ => {}
    }
}

fn tidy_fields(fields: &mut Map<String, Value>) {
    if let Some(Value::String(text)) = fields.get_mut("description") {
        *text = text
            .replace('`', "")
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ");
    }
    let Some(words) = fields.get("oneOf").and_then(words) else {
        return;
    };
    fields.remove("oneOf");
    let texts = words.iter().filter(|(_, text)| !text.is_empty());
    let texts: Vec<String> = texts
        .map(|(word, text)| format!("{word}: {text}"))
        .collect();
    let own = fields.get("description").and_then(Value::as_str);
    let own = own.map(str::to_owned);
    let description: Vec<String> = own.into_iter().chain(texts).collect();
    fields.insert("description".to_owned(), json!(description.join(" ")));
    fields.insert("type".to_owned(), json!("string"));
    let words: Vec<String> = words.into_iter().map(|(word, _)| word).collect();
    fields.insert("enum".to_owned(), json!(words));
}

/// The words of an enum, each with its description.
fn words(choice: &Value) -> Option<Vec<(String, String)>> {
    let words = choice.as_array()?.iter().map(|it| {
        let word = it.get("const")?.as_str()?;
        let text = it.get("description").and_then(Value::as_str);
        Some((word.to_owned(), text.unwrap_or_default().to_owned()))
    });
    words.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schema_is_made_readable() {
        let mut schema = json!({"properties": {
            "period": {"description": "A\n`pause`.", "type": "string"},
            "mode": {"description": "How.", "oneOf": [
                {"type": "string", "const": "a", "description": "One."}, {"type": "string", "const": "b"},
            ]},
        }});
        tidy(&mut schema);
        assert_eq!(
            schema["properties"],
            json!({
                "period": {"description": "A pause.", "type": "string"},
                "mode": {"description": "How. a: One.", "type": "string", "enum": ["a", "b"]},
            })
        );
    }
}
