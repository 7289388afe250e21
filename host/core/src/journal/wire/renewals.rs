//! The format of heartbeats.

use super::UnreadableEntry;
use super::reader::Reader;
use super::value::Wire;
use super::writer::Writer;
#[cfg(test)]
use super::{Sample, SampleSource};
use crate::store::{BytesPatch, FieldsId, Renewal, Renewals, Run, Slot};
use crate::time::Instant;

const UNEVEN: UnreadableEntry = UnreadableEntry::Damaged("columns differ in length");
const TOO_LARGE: UnreadableEntry = UnreadableEntry::Damaged("a number is too large");

/// In columns, because equal parts in a row take less when they are compressed:
///
/// - the time of the earliest renewal, in nanoseconds;
/// - the slots, each as the difference to the one before it;
/// - the fields that changed earlier, if there are any;
/// - the data, if they are whole, as in 0.1.0; otherwise nothing, and four more columns:
/// - the times, as differences to the earliest;
/// - the lengths of the data;
/// - the parts that changed: for each renewal how many there are, then how many bytes are left out
///   and how many replaced;
/// - what these bytes are, all in one.
///
/// The earlier columns of 0.1.0 differ in length for a reader that does not know the later ones: it
/// refuses the entry.
impl Wire for Renewals {
    fn write(&self, to: &mut Writer) {
        let all = || self.renewed.values();
        let count = self.renewed.len();
        let first = all().map(|one| one.at).min().unwrap_or(Instant::ZERO);
        to.list(8);
        first.write(to);
        to.list(count);
        let mut last = 0;
        for slot in self.renewed.keys() {
            (slot - last).write(to);
            last = *slot;
        }
        let have_earlier = all().any(|one| !one.earlier.is_empty());
        to.list(if have_earlier { count } else { 0 });
        all()
            .filter(|_| have_earlier)
            .for_each(|one| one.earlier.write(to));
        to.list(0);
        to.list(count);
        all().for_each(|one| to.unsigned(one.at.as_nanos() - first.as_nanos()));
        to.list(count);
        all().for_each(|one| one.patch.length.write(to));
        to.list(all().map(|one| 1 + 2 * one.patch.runs.len()).sum());
        for one in all() {
            to.unsigned(one.patch.runs.len() as u64);
            for run in &one.patch.runs {
                run.skip.write(to);
                run.length.write(to);
            }
        }
        let bytes: Vec<&[u8]> = all().map(|one| &*one.patch.bytes).collect();
        bytes.concat().write(to);
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, UnreadableEntry> {
        let more = from.fields(4)?;
        let first = Instant::read(from)?;
        let steps = Vec::<Slot>::read(from)?;
        let mut earlier = Vec::<Vec<(FieldsId, Instant)>>::read(from)?;
        let whole = Vec::<Vec<u8>>::read(from)?;
        if earlier.is_empty() {
            earlier.resize(steps.len(), Vec::new());
        }
        let (times, patches) = if let Some(more) = more.checked_sub(4) {
            let columns = (Vec::<u64>::read(from)?, read_patches(from)?);
            from.skip(more)?;
            columns
        } else {
            from.skip(more)?;
            let patches = whole.into_iter().map(BytesPatch::whole);
            let patches: Option<Vec<BytesPatch>> = patches.collect();
            (vec![0; steps.len()], patches.ok_or(TOO_LARGE)?)
        };
        if [earlier.len(), times.len(), patches.len()] != [steps.len(); 3] {
            return Err(UNEVEN);
        }
        let mut slot: Slot = 0;
        let mut renewals = Self::default();
        let columns = times.into_iter().zip(earlier).zip(patches);
        for (step, ((time, earlier), patch)) in steps.into_iter().zip(columns) {
            slot = slot.checked_add(step).ok_or(TOO_LARGE)?;
            let at = first.as_nanos().checked_add(time).ok_or(TOO_LARGE)?;
            let at = Instant::from_nanos(at);
            renewals
                .renewed
                .insert(slot, Renewal { at, earlier, patch });
        }
        Ok(renewals)
    }
}

fn read_patches(from: &mut Reader<'_>) -> Result<Vec<BytesPatch>, UnreadableEntry> {
    let lengths = Vec::<u32>::read(from)?;
    let mut parts = Vec::<u32>::read(from)?.into_iter();
    let bytes = from.bytes()?;
    let mut rest = bytes;
    let mut patches = Vec::new();
    for length in lengths {
        let mut patch = BytesPatch {
            length,
            ..BytesPatch::default()
        };
        for _ in 0..parts.next().ok_or(UNEVEN)? {
            let (skip, length) = (parts.next().ok_or(UNEVEN)?, parts.next().ok_or(UNEVEN)?);
            let (part, after) = rest.split_at_checked(length as usize).ok_or(UNEVEN)?;
            patch.runs.push(Run { skip, length });
            patch.bytes.extend_from_slice(part);
            rest = after;
        }
        patches.push(patch);
    }
    if !rest.is_empty() || parts.next().is_some() {
        return Err(UNEVEN);
    }
    Ok(patches)
}

#[cfg(test)]
impl Sample for Renewals {
    fn sample(source: &mut SampleSource<'_>) -> Self {
        let renewals = (0..source.below(4)).map(|_| {
            let renewal = Renewal {
                at: Sample::sample(source),
                earlier: Sample::sample(source),
                patch: Sample::sample(source),
            };
            (Sample::sample(source), renewal)
        });
        let renewed = renewals.collect();
        Self { renewed }
    }
}

#[cfg(test)]
impl Sample for BytesPatch {
    fn sample(source: &mut SampleSource<'_>) -> Self {
        let length = Sample::sample(source);
        let runs = (0..source.below(4)).map(|_| Run {
            skip: Sample::sample(source),
            length: [0, 1, 200][source.below(3)],
        });
        let runs: Vec<Run> = runs.collect();
        let bytes = runs.iter().map(|run| run.length as usize).sum();
        let bytes = vec![7; bytes];
        Self {
            length,
            runs,
            bytes,
        }
    }
}
