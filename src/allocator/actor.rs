//! The thread that owns the database and the picture of it in memory.
//!
//! Calls arrive in a queue. The thread takes what is there, answers the reads from its picture,
//! and carries out the changes in one transaction: each in a savepoint of its own, one commit for
//! all. Only then are they answered, so that nothing is answered that a power cut could take back.
//! What a change may do is decided in its turn, against the picture of that moment: a role that
//! was revoked by an earlier change of the same batch is gone.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, oneshot};

use super::change::{Change, Changed, Kernel, Moment, Work};
use super::state::{Effects, Picture, Rules, State};
use crate::config::Config;
use crate::error::{Error, StorageReason};
use crate::model::{HistoryEvent, HistoryQuery, Origin, Timestamp};
use crate::store::{Batch, Store, StoreError};

/// How long a request waits for a process that keeps the database locked, a batch as a whole.
pub const LOCK_PATIENCE: Duration = Duration::from_secs(10);
/// How often a locked database is tried. Reads are answered in between.
const LOCK_RETRY: Duration = Duration::from_millis(5);
/// After so many events of the history, those that are too old are forgotten.
const FORGET_EVERY: usize = 1000;
/// So many events are kept at the most, however young: some 10 MiB.
const HISTORY_ROWS_MAX: u32 = 100_000;

type Look = Box<dyn FnOnce(Result<&Picture, Error>, &Store) + Send>;
type Decide = Box<dyn Fn(&State) -> Result<Change, Error> + Send>;
type Answer = oneshot::Sender<Result<Changed, Error>>;

enum Command {
    Read(Look),
    Change(Pending),
}

struct Pending {
    decide: Decide,
    origin: Origin,
    answer: Answer,
    /// When waiting for the database's lock ends.
    patience_ends: Instant,
}

/// The way to the owning thread. Cheap to clone; the thread ends when the last one is dropped.
#[derive(Clone)]
pub struct Allocator {
    queue: mpsc::Sender<Command>,
    is_stopping: Arc<AtomicBool>,
}

/// Loads the database and starts the thread that owns it. At most as many calls as the limits say
/// wait for it; a further one waits for its place among them.
pub fn start(mut store: Store, config: &Config) -> Result<(Allocator, JoinHandle<()>), StoreError> {
    let rules = Rules { pool: config.pool.clone(), history: config.history.clone() };
    let picture = Picture::read(rules, |since| store.load(since))?;
    let (sender, receiver) = mpsc::channel(config.limits.queue);
    let actor = Actor {
        store,
        picture,
        kernel: Kernel::default(),
        recorded: FORGET_EVERY,
        reading: Failing::default(),
        writing: Failing::default(),
        queue: receiver,
        is_stopping: Arc::default(),
    };
    let is_stopping = Arc::clone(&actor.is_stopping);
    let thread = thread::Builder::new()
        .name("allocator".to_owned())
        .spawn(move || actor.run())
        .map_err(|error| StoreError::Thread(error.to_string()))?;
    Ok((Allocator { queue: sender, is_stopping }, thread))
}

impl Allocator {
    /// Looks at what is stored.
    pub async fn read<T: Send + 'static>(
        &self,
        look: impl FnOnce(&State) -> T + Send + 'static,
    ) -> Result<T, Error> {
        let (sender, receiver) = oneshot::channel();
        let look: Look = Box::new(move |picture, _| {
            // a caller that is gone needs no answer
            let _ = sender.send(picture.map(|picture| look(&picture.state)));
        });
        self.ask(Command::Read(look), receiver).await
    }

    /// Looks at what is stored, and gives the effects of everything that is stored from that moment
    /// on: nothing comes between the two, and nothing is in both.
    pub async fn follow<T: Send + 'static>(
        &self,
        look: impl FnOnce(&State) -> Result<T, Error> + Send + 'static,
    ) -> Result<(T, Effects), Error> {
        let (sender, receiver) = oneshot::channel();
        let look: Look = Box::new(move |picture, _| {
            let seen = picture.and_then(|picture| Ok((look(&picture.state)?, picture.subscribe())));
            // a caller that is gone needs no answer
            let _ = sender.send(seen);
        });
        self.ask(Command::Read(look), receiver).await
    }

    /// The newest events that match, if `may_look` does not refuse by what is stored now.
    pub async fn history(
        &self,
        query: HistoryQuery,
        may_look: impl FnOnce(&State) -> Result<(), Error> + Send + 'static,
    ) -> Result<Vec<HistoryEvent>, Error> {
        let (sender, receiver) = oneshot::channel();
        let look: Look = Box::new(move |picture, store| {
            let events = picture.and_then(|picture| {
                may_look(&picture.state)?;
                store.history(&query).map_err(|error| Failing::default().tell(&error))
            });
            // a caller that is gone needs no answer
            let _ = sender.send(events);
        });
        self.ask(Command::Read(look), receiver).await
    }

    /// Carries out the change that `decide` makes of what is stored at that moment. It is asked
    /// when the call arrives, so that a refusal waits for nothing, and again in its turn, which
    /// counts. The answer comes when the change is on the disk. Once queued, it is carried out
    /// even if the caller stops waiting. For a locked database it waits until `patience_ends`.
    pub async fn change(
        &self,
        origin: Origin,
        patience_ends: Instant,
        decide: impl Fn(&State) -> Result<Change, Error> + Send + 'static,
    ) -> Result<Changed, Error> {
        let (answer, receiver) = oneshot::channel();
        let pending = Pending { decide: Box::new(decide), origin, answer, patience_ends };
        self.ask(Command::Change(pending), receiver).await
    }

    /// Has every change refused that is not being committed. For the end, when there is nobody left
    /// to answer to.
    pub fn stop(&self) {
        self.is_stopping.store(true, Ordering::Relaxed);
    }

    /// Returns when the owning thread has ended.
    pub async fn closed(&self) {
        self.queue.closed().await;
    }

    async fn ask<T>(
        &self,
        command: Command,
        answer: oneshot::Receiver<Result<T, Error>>,
    ) -> Result<T, Error> {
        self.queue.send(command).await.map_err(|_| Error::ShuttingDown {})?;
        answer.await.map_err(|_| Error::ShuttingDown {})?
    }
}

struct Actor {
    store: Store,
    picture: Picture,
    kernel: Kernel,
    /// How many events were recorded since old ones were forgotten.
    recorded: usize,
    /// What the journal knows of reads that fail, and of changes.
    reading: Failing,
    writing: Failing,
    queue: mpsc::Receiver<Command>,
    is_stopping: Arc<AtomicBool>,
}

impl Actor {
    fn run(mut self) {
        let mut pending = Vec::new();
        while self.collect(&mut pending) {
            if !pending.is_empty() {
                pending = self.write(pending);
            }
        }
    }

    /// Answers the reads and the refusals that wait and takes in the changes. With nothing to do it
    /// sleeps. False when there is nothing left and nobody can ask any more.
    fn collect(&mut self, pending: &mut Vec<Pending>) -> bool {
        if pending.is_empty() {
            match self.queue.blocking_recv() {
                Some(command) => self.take(command, pending),
                None => return false,
            }
        }
        while let Ok(command) = self.queue.try_recv() {
            self.take(command, pending);
        }
        true
    }

    fn take(&mut self, command: Command, pending: &mut Vec<Pending>) {
        let refreshed = self.refresh().map_err(|error| self.reading.tell(&error));
        match (command, refreshed) {
            (Command::Read(look), Ok(())) => look(Ok(&self.picture), &self.store),
            (Command::Read(look), Err(error)) => look(Err(error), &self.store),
            (Command::Change(change), Ok(())) => match (change.decide)(&self.picture.state) {
                Ok(_) => pending.push(change),
                Err(refusal) => answer(change.answer, Err(refusal)),
            },
            (Command::Change(change), Err(error)) => answer(change.answer, Err(error)),
        }
    }

    /// Reads the database again if another process has changed it, or if this one may have lost
    /// track of it.
    fn refresh(&mut self) -> Result<(), StoreError> {
        if !self.picture.is_current || self.store.changed_elsewhere()? {
            self.picture.reload(|since| self.store.load(since))?;
        }
        self.reading = Failing::default();
        Ok(())
    }

    /// Carries out the changes in one transaction and answers them. Returns those that have to
    /// wait because another process keeps the database locked.
    fn write(&mut self, pending: Vec<Pending>) -> Vec<Pending> {
        if self.is_stopping.load(Ordering::Relaxed) {
            let answers = pending.into_iter().map(|change| change.answer);
            answers.for_each(|one| answer(one, Err(Error::ShuttingDown {})));
            return Vec::new();
        }
        let batch = match self.store.begin() {
            Ok(batch) => batch,
            Err(error) if error.reason() == StorageReason::Busy => {
                let now = Instant::now();
                let (waiting, expired): (Vec<_>, Vec<_>) =
                    pending.into_iter().partition(|change| change.patience_ends > now);
                if !expired.is_empty() {
                    self.writing.answer(expired.into_iter().map(|change| change.answer), &error);
                }
                thread::sleep(LOCK_RETRY);
                return waiting;
            }
            Err(error) => {
                self.writing.answer(pending.into_iter().map(|change| change.answer), &error);
                return Vec::new();
            }
        };
        let (calls, answers): (Vec<_>, Vec<_>) = pending
            .into_iter()
            .map(|change| ((change.decide, change.origin), change.answer))
            .unzip();
        self.kernel.forget();
        let turn = Turn {
            batch,
            picture: &mut self.picture,
            moment: Moment { now: Timestamp::now(), kernel: &mut self.kernel },
            has_changed: false,
            recorded: &mut self.recorded,
        };
        match turn.run(calls) {
            Ok(results) => {
                self.writing = Failing::default();
                for (one, result) in answers.into_iter().zip(results) {
                    answer(one, result);
                }
            }
            Err(error) => {
                self.picture.is_current = false;
                self.writing.answer(answers, &error);
            }
        }
        Vec::new()
    }
}

/// One transaction. After an error nothing of it is stored, and the picture may be wrong.
struct Turn<'a> {
    batch: Batch<'a>,
    picture: &'a mut Picture,
    moment: Moment<'a>,
    has_changed: bool,
    /// How many events were recorded since old ones were forgotten.
    recorded: &'a mut usize,
}

impl Turn<'_> {
    /// Carries out the calls and commits. What it gives is for the callers, in their order.
    fn run(
        mut self,
        calls: Vec<(Decide, Origin)>,
    ) -> Result<Vec<Result<Changed, Error>>, StoreError> {
        if !self.picture.is_current || self.batch.changed_elsewhere() {
            self.picture.reload(|since| self.batch.load(since))?;
        }
        let results: Vec<Result<Changed, Error>> = calls
            .into_iter()
            .map(|(decide, origin)| self.carry_out(&decide, &origin))
            .collect::<Result<_, _>>()?;
        if self.has_changed {
            self.forget()?;
            self.batch.commit()?;
            for changed in results.iter().flatten() {
                self.picture.publish(&changed.effects);
            }
        }
        Ok(results)
    }

    /// Carries out one call in a savepoint of its own.
    fn carry_out(
        &mut self,
        decide: &Decide,
        origin: &Origin,
    ) -> Result<Result<Changed, Error>, StoreError> {
        let state = &mut self.picture.state;
        let planned = decide(state).and_then(|change| Work::plan(change, state, &mut self.moment));
        let work = match planned {
            Ok(work) => work,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let now = self.moment.now;
        let edit = self.batch.edit()?;
        let changed = work.carry_out(&edit, now)?;
        if !self.picture.rules.history.keep.is_zero() {
            *self.recorded += changed.record(&edit, now, origin)?;
        }
        edit.keep()?;
        self.has_changed |= !changed.effects.is_empty();
        changed.effects.iter().try_for_each(|effect| state.follow(effect, now))?;
        Ok(Ok(changed))
    }

    /// Forgets old events, now and then.
    fn forget(&mut self) -> Result<(), StoreError> {
        if *self.recorded >= FORGET_EVERY {
            let before = self.moment.now.before(self.picture.rules.history.keep);
            self.batch.forget(before, HISTORY_ROWS_MAX)?;
            *self.recorded = 0;
        }
        Ok(())
    }
}

/// What the journal was told of the database last, while it can't be used.
#[derive(Default)]
struct Failing(Option<StorageReason>);

impl Failing {
    /// The journal learns the cause, once until it is another or mended, and the client the
    /// condition.
    fn tell(&mut self, error: &StoreError) -> Error {
        let reason = error.reason();
        if self.0.replace(reason) != Some(reason) {
            tracing::error!(%error, ?reason, "the database can't be used");
        }
        Error::StorageFailure { reason }
    }

    fn answer(&mut self, callers: impl IntoIterator<Item = Answer>, error: &StoreError) {
        let failure = self.tell(error);
        for caller in callers {
            answer(caller, Err(failure.clone()));
        }
    }
}

fn answer(to: Answer, result: Result<Changed, Error>) {
    // a caller that is gone needs no answer
    let _ = to.send(result);
}
