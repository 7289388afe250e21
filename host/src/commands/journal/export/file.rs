//! The Parquet file: its columns, and writing them in row groups.

use std::io::Write;
use std::mem;
use std::sync::Arc;

use davit_core::object::ObjectRef;
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;

use super::rows::{DecisionRow, PlanColumns};

/// How many rows a row group has: as many are kept in memory.
const GROUP: usize = 20_000;
/// How many bytes of text are kept in memory at most.
const MOST_BYTES: usize = 16 << 20;

/// The columns, in their order. A later version adds columns at the end.
pub(super) const SCHEMA: &str = "
message decisions {
  REQUIRED INT64 time (TIMESTAMP(MICROS,true));
  REQUIRED BYTE_ARRAY controller (STRING);
  REQUIRED BYTE_ARRAY revision (STRING);
  REQUIRED BYTE_ARRAY role (STRING);
  REQUIRED BYTE_ARRAY decision (STRING);
  REQUIRED BYTE_ARRAY queue (STRING);
  REQUIRED BYTE_ARRAY item (STRING);
  REQUIRED BYTE_ARRAY verdict (STRING);
  REQUIRED BOOLEAN is_void;
  OPTIONAL BYTE_ARRAY mode (STRING);
  OPTIONAL BYTE_ARRAY action (STRING);
  OPTIONAL BYTE_ARRAY api_group (STRING);
  OPTIONAL BYTE_ARRAY kind (STRING);
  OPTIONAL BYTE_ARRAY namespace (STRING);
  OPTIONAL BYTE_ARRAY name (STRING);
  OPTIONAL BYTE_ARRAY uid (STRING);
  OPTIONAL BYTE_ARRAY reason (STRING);
  OPTIONAL BYTE_ARRAY ruling (STRING);
  OPTIONAL BYTE_ARRAY grounds (STRING);
  OPTIONAL BYTE_ARRAY outcome (STRING);
  OPTIONAL INT32 outcome_code;
  OPTIONAL BYTE_ARRAY outcome_message (STRING);
  OPTIONAL INT64 outcome_micros;
}";

/// A file that is being written.
pub(super) struct DecisionFile<W: Write + Send> {
    writer: SerializedFileWriter<W>,
    columns: Columns,
    count: u64,
}

impl<W: Write + Send> DecisionFile<W> {
    pub(super) fn new(to: W) -> Result<Self, ParquetError> {
        let schema = Arc::new(parse_message_type(SCHEMA)?);
        let properties = WriterProperties::builder()
            .set_statistics_enabled(EnabledStatistics::Chunk)
            .set_created_by(format!("davit {}", env!("CARGO_PKG_VERSION")))
            .build();
        Ok(Self {
            writer: SerializedFileWriter::new(to, schema, Arc::new(properties))?,
            columns: Columns::default(),
            count: 0,
        })
    }

    pub(super) fn push(&mut self, row: DecisionRow) -> Result<(), ParquetError> {
        self.count += 1;
        self.columns.push(row);
        if self.columns.rows >= GROUP || self.columns.bytes >= MOST_BYTES {
            self.end_group()?;
        }
        Ok(())
    }

    /// Ends the file. Returns the number of its rows.
    pub(super) fn finish(mut self) -> Result<u64, ParquetError> {
        if self.columns.rows > 0 {
            self.end_group()?;
        }
        self.writer.close()?;
        Ok(self.count)
    }

    fn end_group(&mut self) -> Result<(), ParquetError> {
        let columns = mem::take(&mut self.columns);
        let mut group = self.writer.next_row_group()?;
        columns.write(&mut group)?;
        group.close()?;
        Ok(())
    }
}

/// Values of one optional column. A level is 1 for a value and 0 for none.
#[derive(Default)]
struct Optional<T> {
    values: Vec<T>,
    levels: Vec<i16>,
}

impl<T> Optional<T> {
    fn push(&mut self, value: Option<T>) {
        self.levels.push(i16::from(value.is_some()));
        self.values.extend(value);
    }
}

/// The rows of the next row group, by column.
#[derive(Default)]
struct Columns {
    rows: usize,
    bytes: usize,
    times: Vec<i64>,
    /// From `controller` to `verdict`.
    texts: [Vec<ByteArray>; 7],
    void: Vec<bool>,
    /// From `mode` to `outcome`.
    optional: [Optional<ByteArray>; 11],
    code: Optional<i32>,
    message: Optional<ByteArray>,
    after: Optional<i64>,
}

impl Columns {
    fn push(&mut self, row: DecisionRow) {
        self.rows += 1;
        self.times.push(row.time);
        self.void.push(row.is_void);
        let texts = [
            row.controller,
            row.revision,
            row.role.to_owned(),
            row.decision,
            row.queue,
            row.item,
            row.verdict,
        ];
        for (column, text) in self.texts.iter_mut().zip(texts) {
            self.bytes += text.len();
            column.push(bytes(text));
        }
        self.push_plan(row.mode, row.plan);
    }

    fn push_plan(&mut self, mode: Option<&'static str>, plan: Option<PlanColumns>) {
        let mut texts: [Option<String>; 11] = Default::default();
        let mut outcome = None;
        if let Some(plan) = plan {
            let ObjectRef {
                api_version,
                kind,
                namespace,
                name,
                uid,
            } = plan.target;
            let group = api_version.split_once('/').map(|(group, _)| group);
            let (ruling, grounds) = plan.ruling.unzip();
            outcome = plan.outcome;
            texts = [
                None,
                Some(plan.action),
                Some(group.unwrap_or_default().to_owned()),
                Some(kind),
                Some(namespace),
                Some(name),
                Some(uid),
                Some(plan.reason),
                ruling.map(str::to_owned),
                grounds,
                outcome.as_ref().map(|outcome| outcome.result.to_owned()),
            ];
        }
        let [first, ..] = &mut texts;
        *first = mode.map(str::to_owned);
        for (column, text) in self.optional.iter_mut().zip(texts) {
            self.bytes += text.as_ref().map_or(0, String::len);
            column.push(text.map(bytes));
        }
        let outcome = outcome.map(|outcome| (outcome.code, outcome.message, outcome.after_micros));
        let (code, message, after) = match outcome {
            Some((code, message, after)) => (code, message, Some(after)),
            None => (None, None, None),
        };
        self.bytes += message.as_ref().map_or(0, String::len);
        self.code.push(code);
        self.message.push(message.map(bytes));
        self.after.push(after);
    }

    /// Writes the columns in the order of [`SCHEMA`].
    fn write<W: Write + Send>(
        &self,
        group: &mut SerializedRowGroupWriter<'_, W>,
    ) -> Result<(), ParquetError> {
        column::<Int64Type, W>(group, &self.times, None)?;
        for texts in &self.texts {
            column::<ByteArrayType, W>(group, texts, None)?;
        }
        column::<BoolType, W>(group, &self.void, None)?;
        for texts in &self.optional {
            column::<ByteArrayType, W>(group, &texts.values, Some(&texts.levels))?;
        }
        column::<Int32Type, W>(group, &self.code.values, Some(&self.code.levels))?;
        column::<ByteArrayType, W>(group, &self.message.values, Some(&self.message.levels))?;
        column::<Int64Type, W>(group, &self.after.values, Some(&self.after.levels))
    }
}

/// Writes the next column. Without levels, it has a value for each row.
fn column<T: DataType, W: Write + Send>(
    group: &mut SerializedRowGroupWriter<'_, W>,
    values: &[T::T],
    levels: Option<&[i16]>,
) -> Result<(), ParquetError> {
    let column = group.next_column()?;
    let mut column = column.ok_or_else(|| ParquetError::General("a column is missing".into()))?;
    column.typed::<T>().write_batch(values, levels, None)?;
    column.close()
}

fn bytes(text: String) -> ByteArray {
    ByteArray::from(text.into_bytes())
}
