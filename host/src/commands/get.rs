//! `davit get`: lists Controllers, or shows the rollout of one of them.

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
use super::{ControllerObject, status_of, tree};
use crate::cli::{Format, GetFormat};
use crate::resource::Controller;
use crate::resource::{controllers, describe};

/// How often `--watch` reads the Controllers.
const PERIOD: Duration = Duration::from_secs(1);
/// Clears the terminal.
const CLEAR: &str = "\x1b[2J\x1b[H";

/// What `davit get` prints, and how.
pub struct GetOptions<'a> {
    /// The name of the Controller; all of them if none.
    pub name: Option<&'a str>,
    /// The output format.
    pub format: GetFormat,
}

/// The output of `davit get`.
pub async fn get(client: &Client, options: &GetOptions<'_>) -> Result<String> {
    match (options.name, options.format) {
        (None, format @ (GetFormat::Text | GetFormat::Wide)) => {
            columns(client, format == GetFormat::Wide).await
        }
        (None, format) => objects(client, format).await,
        (Some(name), format) => {
            let found = ControllerObject::read(client, name).await?;
            one(name, found.object, format)
        }
    }
}

/// Prints the output of `davit get`, and again after every change.
pub async fn watch(client: &Client, options: &GetOptions<'_>) -> Result<()> {
    let mut printed = get(client, options).await?;
    let is_terminal = std::io::stdout().is_terminal();
    let show = |text: &str, first: bool| match (is_terminal, first) {
        (true, _) => out_to_reader(&format!("{CLEAR}{text}")),
        (false, true) => out_to_reader(text),
        (false, false) => out_to_reader(&format!("\n{text}")),
    };
    if !show(&printed, true)? {
        return Ok(());
    }
    let mut reported = None;
    loop {
        sleep(PERIOD).await;
        match get(client, options).await {
            Ok(text) => {
                reported = None;
                if text != printed {
                    if !show(&text, false)? {
                        return Ok(());
                    }
                    printed = text;
                }
            }
            Err(error) => {
                // The API server may answer again. Each cause is printed once.
                let error = format!("{error:#}");
                if reported.as_ref() != Some(&error) {
                    eprintln!("davit: {error}; will retry every second");
                    reported = Some(error);
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
    let items = listed.map_err(|error| list_error(&error))?.items;
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

/// The columns of the definition, as kubectl shows them.
async fn columns(client: &Client, wide: bool) -> Result<String> {
    const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
    let path = controllers(client.clone()).resource_url().to_owned();
    let request = Request::get(path)
        .header(header::ACCEPT, TABLE)
        .body(Vec::new())?;
    let answer: Value = client
        .request(request)
        .await
        .map_err(|error| list_error(&error))?;
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

fn list_error(error: &kube::Error) -> anyhow::Error {
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

/// The object as kubectl prints it: with its type, without managed fields.
fn presentable(mut object: DynamicObject) -> DynamicObject {
    object.types = Some(TypeMeta::resource::<Controller>());
    object.metadata.managed_fields = None;
    object
}
