//! `davit get`: Controllers, and the rollout of one of them.

use std::io::IsTerminal as _;
use std::time::Duration;

use anyhow::{Result, anyhow};
use hyper::{Request, header};
use jiff::Timestamp;
use kube::Client;
use kube::api::ListParams;
use kube::core::{DynamicObject, TypeMeta};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::print::{out_to_reader, part, serialized, table, text_at};
use super::{Found, status_of, tree};
use crate::cli::{Format, GetFormat};
use crate::resource::Controller;
use crate::resource::{controllers, describe};

/// How often a Controller is read that is being watched.
const PERIOD: Duration = Duration::from_secs(1);
/// Clears a terminal.
const CLEAR: &str = "\x1b[2J\x1b[H";

/// What is shown.
pub struct Shown<'a> {
    /// The Controller; all of them if none.
    pub name: Option<&'a str>,
    /// How it is printed.
    pub format: GetFormat,
}

/// What `davit get` prints.
pub async fn get(client: &Client, shown: &Shown<'_>) -> Result<String> {
    match (shown.name, shown.format) {
        (None, format @ (GetFormat::Text | GetFormat::Wide)) => {
            columns(client, format == GetFormat::Wide).await
        }
        (None, format) => objects(client, format).await,
        (Some(name), format) => {
            let found = Found::read(client, name).await?;
            one(name, found.object, format)
        }
    }
}

/// Prints what `davit get` shows, and prints it again whenever it changes.
pub async fn watch(client: &Client, shown: &Shown<'_>) -> Result<()> {
    let mut printed = get(client, shown).await?;
    let is_terminal = std::io::stdout().is_terminal();
    let show = |text: &str, first: bool| match (is_terminal, first) {
        (true, _) => out_to_reader(&format!("{CLEAR}{text}")),
        (false, true) => out_to_reader(text),
        (false, false) => out_to_reader(&format!("\n{text}")),
    };
    if !show(&printed, true)? {
        return Ok(());
    }
    let mut told = None;
    loop {
        sleep(PERIOD).await;
        match get(client, shown).await {
            Ok(text) => {
                told = None;
                if text != printed {
                    if !show(&text, false)? {
                        return Ok(());
                    }
                    printed = text;
                }
            }
            Err(error) => {
                // It may come back. Each cause is told once.
                let error = format!("{error:#}");
                if told.as_ref() != Some(&error) {
                    eprintln!("davit: {error}; trying again every second");
                    told = Some(error);
                }
            }
        }
    }
}

fn one(name: &str, object: DynamicObject, format: GetFormat) -> Result<String> {
    match format {
        GetFormat::Text | GetFormat::Wide => {
            let status = status_of(name, &object)?;
            let is_wide = format == GetFormat::Wide;
            Ok(tree::draw(&object, &status, Timestamp::now(), is_wide))
        }
        GetFormat::Name => Ok(full_name(&object)),
        GetFormat::Json => serialized(&presentable(object), Format::Json),
        GetFormat::Yaml => serialized(&presentable(object), Format::Yaml),
    }
}

async fn objects(client: &Client, format: GetFormat) -> Result<String> {
    let listed = controllers(client.clone())
        .list(&ListParams::default())
        .await;
    let items = listed.map_err(|error| unlisted(&error))?.items;
    if format == GetFormat::Name {
        let names: Vec<String> = items.iter().map(full_name).collect();
        return Ok(names.join("\n"));
    }
    let items: Vec<DynamicObject> = items.into_iter().map(presentable).collect();
    let list = json!({"apiVersion": "v1", "kind": "List", "metadata": {}, "items": items});
    let format = match format {
        GetFormat::Yaml => Format::Yaml,
        _ => Format::Json,
    };
    serialized(&list, format)
}

/// The columns that the definition declares, as kubectl shows them.
async fn columns(client: &Client, wide: bool) -> Result<String> {
    const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
    let path = controllers(client.clone()).resource_url().to_owned();
    let request = Request::get(path)
        .header(header::ACCEPT, TABLE)
        .body(Vec::new())?;
    let answer: Value = client
        .request(request)
        .await
        .map_err(|error| unlisted(&error))?;
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let definitions = list(part(&answer, "/columnDefinitions"));
    let is_shown = |index: usize| {
        let definition = definitions.get(index);
        wide || definition.is_none_or(|one| part(one, "/priority").as_i64().unwrap_or(0) == 0)
    };
    let titles = definitions
        .iter()
        .map(|one| text_at(one, "/name").to_uppercase());
    let rows = list(part(&answer, "/rows"));
    if rows.is_empty() {
        return Ok(
            "There are no Controllers: kubectl apply -k deploy/controllers/podgc creates one"
                .to_owned(),
        );
    }
    let rows = rows.iter().map(|row| {
        let cells = list(part(row, "/cells"));
        cells.iter().map(text).collect::<Vec<String>>()
    });
    let rows = std::iter::once(titles.collect())
        .chain(rows)
        .map(|row: Vec<String>| {
            let cells = row.into_iter().enumerate();
            cells
                .filter_map(|(index, cell)| is_shown(index).then_some(cell))
                .collect()
        });
    Ok(table(&rows.collect::<Vec<Vec<String>>>()))
}

fn text(cell: &Value) -> String {
    match cell {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn unlisted(error: &kube::Error) -> anyhow::Error {
    let advice = match error {
        kube::Error::Api(status) if status.code == 404 => ": apply deploy/crds first",
        _ => "",
    };
    anyhow!(
        "the Controllers cannot be listed: {}{advice}",
        describe(error)
    )
}

fn full_name(object: &DynamicObject) -> String {
    let name = object.metadata.name.as_deref().unwrap_or_default();
    format!("controller.davit.dev/{name}")
}

/// As kubectl prints an object: with its type, and without who set which field.
fn presentable(mut object: DynamicObject) -> DynamicObject {
    object.types = Some(TypeMeta::resource::<Controller>());
    object.metadata.managed_fields = None;
    object
}
