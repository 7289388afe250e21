//! A directory with a file for each controller.
//!
//! One thread reads and writes the files, in the order of the calls: a slow disk delays
//! no other work of the host, and a write whose caller timed out never replaces a later
//! one.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;

use davit_core::record::{ControllerRecord, Owner, Record};
use davit_engine::cache_files::{drop_abandoned, write_whole};
use tokio::sync::oneshot;

use super::RecordError;

/// A directory with a file `NAME.json` for each controller.
pub struct Directory {
    path: PathBuf,
    /// The thread's queue. The thread ends when the directory is dropped.
    jobs: mpsc::Sender<Job>,
}

type Job = Box<dyn FnOnce() + Send>;

impl Directory {
    /// Creates the directory if it does not exist, for this user only.
    pub(super) fn open(path: PathBuf) -> Result<Self, RecordError> {
        let mut builder = DirBuilder::new();
        let made = builder.recursive(true).mode(0o700).create(&path);
        if made.is_ok() {
            drop_abandoned(&path);
        }
        let (jobs, queue) = mpsc::channel();
        let thread = thread::Builder::new().name("records".to_owned());
        let started = made.and_then(|()| thread.spawn(move || work(&queue)));
        match started {
            Ok(_) => Ok(Self { path, jobs }),
            Err(source) => Err(file_error("make", path, source)),
        }
    }

    /// Reads a controller's record, after all writes that were called before; an empty
    /// record if there is no file.
    pub(super) fn read(
        &self,
        owner: &Owner,
    ) -> impl Future<Output = Result<ControllerRecord, RecordError>> + use<> {
        self.submit(owner, read)
    }

    /// Writes a file, unless it already holds the record.
    pub(super) fn write(
        &self,
        owner: &Owner,
        record: Record,
    ) -> impl Future<Output = Result<(), RecordError>> + use<> {
        self.submit(owner, move |path| write(path, record))
    }

    /// Queues a job on a controller's file, at once. The thread skips a job whose caller
    /// no longer waits.
    fn submit<T, J>(
        &self,
        owner: &Owner,
        job: J,
    ) -> impl Future<Output = Result<T, RecordError>> + use<T, J>
    where
        T: Send + 'static,
        J: FnOnce(&Path) -> Result<T, RecordError> + Send + 'static,
    {
        let name = owner.name.clone();
        let path = self.path.join(format!("{name}.json"));
        let (answer, result) = oneshot::channel();
        let job = Box::new(move || {
            if !answer.is_closed() {
                // The caller may be gone.
                let _ = answer.send(job(&path));
            }
        });
        // Without a thread there is no answer.
        let _ = self.jobs.send(job);
        async move {
            let result = result.await;
            result.unwrap_or_else(|_| Err(RecordError::Panicked { name }))
        }
    }
}

fn work(jobs: &mpsc::Receiver<Job>) {
    for job in jobs {
        // The caller learns of a panic by the lack of an answer.
        let _ = catch_unwind(AssertUnwindSafe(job));
    }
}

fn read(path: &Path) -> Result<ControllerRecord, RecordError> {
    let text = match fs::read(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Ok(ControllerRecord::default());
        }
        Err(source) => return Err(file_error("read", path.to_owned(), source)),
    };
    serde_json::from_slice(&text).map_err(|error| RecordError::Unreadable {
        place: path.display().to_string(),
        reason: error.to_string(),
    })
}

fn write(path: &Path, record: Record) -> Result<(), RecordError> {
    let before = read(path)?;
    let mut after = before.clone();
    after.write(record);
    if after == before {
        return Ok(());
    }
    let text = serde_json::to_vec_pretty(&after).map_err(io::Error::from);
    let written = text.and_then(|text| write_whole(path, &text));
    written.map_err(|source| file_error("write", path.to_owned(), source))
}

fn file_error(verb: &'static str, path: PathBuf, source: io::Error) -> RecordError {
    RecordError::File { verb, path, source }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner() -> Owner {
        Owner::named("podgc")
    }

    fn paused(
        directory: &Directory,
        paused: bool,
    ) -> impl Future<Output = Result<(), RecordError>> {
        directory.write(&owner(), Record::Paused(paused))
    }

    /// Blocks the thread until the sender is dropped.
    fn block(directory: &Directory) -> mpsc::Sender<()> {
        let (release, released) = mpsc::channel::<()>();
        let job = Box::new(move || {
            let _ = released.recv();
        });
        directory.jobs.send(job).unwrap();
        release
    }

    #[tokio::test]
    async fn reads_and_writes_take_place_in_the_order_of_the_calls() {
        let place = tempfile::tempdir().unwrap();
        let directory = Directory::open(place.path().to_owned()).unwrap();
        let release = block(&directory);
        let first = paused(&directory, true);
        let between = directory.read(&owner());
        let second = paused(&directory, false);
        drop(release);
        second.await.unwrap();
        assert!(between.await.unwrap().paused);
        first.await.unwrap();
        assert!(!directory.read(&owner()).await.unwrap().paused);
    }

    /// The disk hangs and the caller times out.
    #[tokio::test]
    async fn a_write_whose_caller_has_gone_does_not_start() {
        let place = tempfile::tempdir().unwrap();
        let directory = Directory::open(place.path().to_owned()).unwrap();
        let release = block(&directory);
        drop(paused(&directory, true));
        drop(release);
        assert!(!directory.read(&owner()).await.unwrap().paused);
    }

    #[tokio::test]
    async fn a_panic_is_an_error_and_the_next_job_runs() {
        let place = tempfile::tempdir().unwrap();
        let directory = Directory::open(place.path().to_owned()).unwrap();
        let panics = directory.submit(&owner(), |path| {
            assert_eq!(path, Path::new("/"), "a test");
            Ok(())
        });
        let error = panics.await.unwrap_err().to_string();
        assert_eq!(
            error,
            "cannot use the record of podgc: the thread of the records panicked"
        );
        paused(&directory, true).await.unwrap();
        assert!(directory.read(&owner()).await.unwrap().paused);
    }
}
