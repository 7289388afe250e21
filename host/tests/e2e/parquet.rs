//! Exported decisions as other programs read them.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::stored_journal::StoredJournal;

/// Runs a query of the standard input, and prints a list of JSON for each row, all values as
/// text. DuckDB itself converts them: Python's types would need other modules.
const PROGRAM: &str = "import duckdb, json, sys\n\
    rows = duckdb.sql(sys.stdin.read().strip().rstrip(';'))\n\
    texts = duckdb.sql('select columns(*)::varchar from rows')\n\
    for row in [rows.columns, [str(it) for it in rows.types]] + texts.fetchall():\n    \
        print(json.dumps(row))\n";

/// The names of the columns, their types, and the rows.
struct Answer {
    columns: Vec<Value>,
    types: Vec<Value>,
    rows: Vec<Vec<Value>>,
}

/// What DuckDB answers in this directory.
fn duckdb(directory: &Path, query: &str) -> Answer {
    use std::io::Write as _;
    let mut python = Command::new("python3");
    python.args(["-c", PROGRAM]).current_dir(directory);
    python.env("TZ", "UTC");
    python.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut python = python.stderr(Stdio::piped()).spawn().unwrap();
    let mut input = python.stdin.take().unwrap();
    input.write_all(query.as_bytes()).unwrap();
    drop(input);
    let output = python.wait_with_output().unwrap();
    assert!(output.status.success(), "{query}: {output:?}");
    let lines = String::from_utf8(output.stdout).unwrap();
    let rows = lines.lines().map(serde_json::from_str);
    let mut rows: Vec<Vec<Value>> = rows.map(Result::unwrap).collect();
    let values = rows.split_off(2);
    let types = rows.pop().unwrap();
    Answer {
        columns: rows.pop().unwrap(),
        types,
        rows: values,
    }
}

/// The section of the documentation about exported decisions.
fn section() -> String {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/journal.md");
    let page = fs::read_to_string(page).unwrap();
    let mut sections = page.split("\n## ");
    let section = sections.find(|it| it.starts_with("Decisions as Parquet"));
    section.unwrap().to_owned()
}

/// The columns of the table in the documentation, with DuckDB's names of their types.
fn documented() -> Vec<(Value, Value)> {
    let section = section();
    let rows = section.lines().filter(|line| line.starts_with("| `"));
    let mut columns = Vec::new();
    for row in rows {
        let mut cells = row.trim_matches('|').split('|').map(str::trim);
        let (names, kind) = (cells.next().unwrap(), cells.next().unwrap());
        let kind = match kind.split(',').next().unwrap() {
            "timestamp" => "TIMESTAMP WITH TIME ZONE",
            "text" => "VARCHAR",
            "boolean" => "BOOLEAN",
            "32-bit integer" => "INTEGER",
            "64-bit integer" => "BIGINT",
            other => panic!("the type {other}"),
        };
        let names = names.split(", ").map(|name| name.trim_matches('`'));
        columns.extend(names.map(|name| (json!(name), json!(kind))));
    }
    columns
}

/// With the Python module `duckdb` installed.
#[test]
fn the_queries_of_the_page_on_the_journal_run_in_duckdb() {
    let section = section();
    let blocks = section.split("```").skip(1).step_by(2);
    let queries: Vec<&str> = blocks.filter_map(|it| it.strip_prefix("sql\n")).collect();
    let [by_reason, worst_minute, refused, revisions] = queries[..] else {
        panic!("{} queries", queries.len());
    };
    let journal = StoredJournal::open("0.1.0");
    let output = ["--decisions", "--output", "decisions.parquet"];
    journal.printed(&["journal", "export"], &output);
    let mut python = Command::new("python3");
    let python = python.args(["-c", "import duckdb"]).stderr(Stdio::null());
    if !python.status().is_ok_and(|status| status.success()) {
        println!("skipped: python3 has no module duckdb");
        return;
    }
    let query = |query| duckdb(journal.directory(), query);

    let all = query("select * from 'decisions.parquet'");
    let columns: Vec<(Value, Value)> = all.columns.into_iter().zip(all.types).collect();
    assert_eq!(columns, documented());

    let found = query(by_reason);
    let executed: Vec<&Vec<Value>> = found.rows.iter().filter(|row| row[3] == "ok").collect();
    let expected = [
        json!(["podgc", "terminated", "admitted", "ok", "3"]),
        json!(["taint-eviction", "not-tolerated", "admitted", "ok", "2"]),
        json!(["podgc", "orphaned", "admitted", "ok", "1"]),
    ];
    assert_eq!(json!(executed), json!(expected));
    let minute = &query(worst_minute).rows[0];
    let deletions: u32 = minute[1].as_str().unwrap().parse().unwrap();
    assert!((2..=6).contains(&deletions), "{minute:?}");
    assert_eq!(query(refused).rows, Vec::<Vec<Value>>::new());
    let controllers = query(revisions).rows.into_iter().map(|row| row[0].clone());
    let mut controllers: Vec<Value> = controllers.collect();
    controllers.sort_by_key(ToString::to_string);
    assert_eq!(controllers, ["podgc", "podgc", "taint-eviction"]);
}
