//! The thread that owns the database and the picture of it in memory.
//!
//! Calls arrive in a queue. The thread takes what is there, answers the reads from its picture,
//! and carries out the changes in one transaction: each in a savepoint of its own, one commit for
//! all. Only then are they answered, so that nothing is answered that a power cut could take back.
//! What a change may do is decided in its turn, against the picture of that moment: a role that
//! was revoked by an earlier change of the same batch is gone.

use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, oneshot};

use super::pool::{Plan, Pool, Step, Wish};
use crate::config::PoolConfig;
use crate::error::{Error, StorageReason};
use crate::model::{Allocation, Module, ModuleId, Owner, PortCount, Protocol, Timestamp};
use crate::registry::Registry;
use crate::store::{Batch, Contents, Edit, Store, StoreError};

/// How long a change waits for a process that keeps the database locked.
const LOCK_PATIENCE: Duration = Duration::from_secs(10);
/// How often a locked database is tried. Reads are answered in between.
const LOCK_RETRY: Duration = Duration::from_millis(5);
/// The most changes of one commit: the first of them waits for the last.
const BATCH_MAX: usize = 1024;

/// What is stored, in memory.
pub struct State {
    /// Who holds what.
    pub pool: Pool,
    /// Who is a module.
    pub registry: Registry,
}

/// A change that has been authorised.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Gives `owner` a range.
    Allocate {
        /// For whom.
        owner: Owner,
        /// Of which protocol.
        protocol: Protocol,
        /// How many ports.
        ports: PortCount,
        /// One more unnamed range, or the only one afterwards.
        keep_existing: bool,
        /// How many ports the owner may hold in that protocol; `None` for no check.
        demand: Option<u16>,
    },
    /// Frees what `owner` holds in one protocol, claims aside.
    Deallocate {
        /// Whose ranges.
        owner: Owner,
        /// The protocol.
        protocol: Protocol,
    },
    /// Registers a module.
    SetModule(Module),
    /// Takes a module away with all that it and its helpers hold.
    RemoveModule(ModuleId),
}

/// What a change has done, as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The range that the owner has now.
    Allocated(Allocation),
    /// The ranges that were freed.
    Deallocated(Vec<Allocation>),
    /// The module is registered.
    ModuleSet,
    /// The module is gone, and these ranges of it and its helpers.
    ModuleRemoved(Vec<Allocation>),
}

type Look = Box<dyn FnOnce(Result<&State, Error>) + Send>;
type Decide = Box<dyn FnOnce(&State) -> Result<Change, Error> + Send>;
type Answer = oneshot::Sender<Result<Outcome, Error>>;

enum Command {
    Read(Look),
    Change(Pending),
}

struct Pending {
    decide: Decide,
    answer: Answer,
    /// When waiting for the database's lock ends.
    patience_ends: Instant,
}

/// The way to the owning thread. Cheap to clone; the thread ends when the last one is dropped.
#[derive(Clone)]
pub struct Allocator {
    queue: mpsc::Sender<Command>,
}

/// Loads the database and starts the thread that owns it. At most `queue` calls wait for it; a
/// further one waits for its place among them.
pub fn start(
    mut store: Store,
    pool: PoolConfig,
    queue: usize,
) -> Result<(Allocator, JoinHandle<()>), StoreError> {
    let state = State::build(&pool, store.load()?)?;
    let (sender, receiver) = mpsc::channel(queue);
    let actor = Actor { store, pool, state, is_current: true, queue: receiver };
    let thread = thread::Builder::new()
        .name("allocator".to_owned())
        .spawn(move || actor.run())
        .map_err(|error| StoreError::Thread(error.to_string()))?;
    Ok((Allocator { queue: sender }, thread))
}

impl Allocator {
    /// Looks at what is stored.
    pub async fn read<T: Send + 'static>(
        &self,
        look: impl FnOnce(&State) -> T + Send + 'static,
    ) -> Result<T, Error> {
        let (sender, receiver) = oneshot::channel();
        let look: Look = Box::new(move |state| {
            // a caller that is gone needs no answer
            let _ = sender.send(state.map(look));
        });
        self.ask(Command::Read(look), receiver).await
    }

    /// Carries out the change that `decide` makes of what is stored at that moment. The answer
    /// comes when the change is on the disk. Once queued, it is carried out even if the caller
    /// stops waiting.
    pub async fn change(
        &self,
        decide: impl FnOnce(&State) -> Result<Change, Error> + Send + 'static,
    ) -> Result<Outcome, Error> {
        let (answer, receiver) = oneshot::channel();
        let patience_ends = Instant::now() + LOCK_PATIENCE;
        let pending = Pending { decide: Box::new(decide), answer, patience_ends };
        self.ask(Command::Change(pending), receiver).await
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
    pool: PoolConfig,
    state: State,
    /// Whether `state` is what the database holds, as far as this process knows.
    is_current: bool,
    queue: mpsc::Receiver<Command>,
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

    /// Answers the reads that wait and takes in the changes, up to a batch. With nothing to do it
    /// sleeps. False when there is nothing left and nobody can ask any more.
    fn collect(&mut self, pending: &mut Vec<Pending>) -> bool {
        if pending.is_empty() {
            match self.queue.blocking_recv() {
                Some(command) => self.take(command, pending),
                None => return false,
            }
        }
        while pending.len() < BATCH_MAX {
            match self.queue.try_recv() {
                Ok(command) => self.take(command, pending),
                Err(_) => break,
            }
        }
        true
    }

    fn take(&mut self, command: Command, pending: &mut Vec<Pending>) {
        match command {
            Command::Change(change) => pending.push(change),
            Command::Read(look) => match self.refresh() {
                Ok(()) => look(Ok(&self.state)),
                Err(error) => look(Err(storage_failure(&error))),
            },
        }
    }

    /// Reads the database again if another process has changed it, or if this one may have lost
    /// track of it.
    fn refresh(&mut self) -> Result<(), StoreError> {
        if !self.is_current || self.store.changed_elsewhere()? {
            self.is_current = false;
            self.state = State::build(&self.pool, self.store.load()?)?;
            self.is_current = true;
        }
        Ok(())
    }

    /// Carries out the changes in one transaction and answers them. Returns those that have to
    /// wait because another process keeps the database locked.
    fn write(&mut self, pending: Vec<Pending>) -> Vec<Pending> {
        let batch = match self.store.begin() {
            Ok(batch) => batch,
            Err(error) if error.reason() == StorageReason::Busy => {
                let now = Instant::now();
                let (waiting, expired): (Vec<_>, Vec<_>) =
                    pending.into_iter().partition(|change| change.patience_ends > now);
                if !expired.is_empty() {
                    answer_all(expired.into_iter().map(|change| change.answer), &error);
                }
                thread::sleep(LOCK_RETRY);
                return waiting;
            }
            Err(error) => {
                answer_all(pending.into_iter().map(|change| change.answer), &error);
                return Vec::new();
            }
        };
        let (decisions, answers): (Vec<_>, Vec<_>) =
            pending.into_iter().map(|change| (change.decide, change.answer)).unzip();
        match carry_out(batch, &mut self.state, &self.pool, &mut self.is_current, decisions) {
            Ok(results) => {
                for (answer, result) in answers.into_iter().zip(results) {
                    // a caller that is gone needs no answer
                    let _ = answer.send(result);
                }
            }
            Err(error) => {
                self.is_current = false;
                answer_all(answers.into_iter(), &error);
            }
        }
        Vec::new()
    }
}

/// One transaction. On an error nothing of it is stored, and `state` may be wrong.
fn carry_out(
    mut batch: Batch<'_>,
    state: &mut State,
    pool: &PoolConfig,
    is_current: &mut bool,
    decisions: Vec<Decide>,
) -> Result<Vec<Result<Outcome, Error>>, StoreError> {
    if !*is_current || batch.changed_elsewhere() {
        *is_current = false;
        *state = State::build(pool, batch.load()?)?;
        *is_current = true;
    }
    let mut results = Vec::with_capacity(decisions.len());
    let mut has_changed = false;
    for decide in decisions {
        let change = match decide(state) {
            Ok(change) => change,
            Err(refusal) => {
                results.push(Err(refusal));
                continue;
            }
        };
        let edit = batch.edit()?;
        match apply(&edit, state, change) {
            Ok((outcome, effects)) => {
                edit.keep()?;
                has_changed |= !effects.is_empty();
                state.follow(effects)?;
                results.push(Ok(outcome));
            }
            Err(Failure::Refused(refusal)) => results.push(Err(refusal)),
            Err(Failure::Store(error)) => return Err(error),
        }
    }
    if has_changed {
        batch.commit()?;
    }
    Ok(results)
}

fn answer_all(answers: impl Iterator<Item = Answer>, error: &StoreError) {
    let failure = storage_failure(error);
    for answer in answers {
        // a caller that is gone needs no answer
        let _ = answer.send(Err(failure.clone()));
    }
}

/// The journal learns the cause, the client the condition.
fn storage_failure(error: &StoreError) -> Error {
    let reason = error.reason();
    tracing::error!(%error, ?reason, "the database can't be used");
    Error::StorageFailure { reason }
}

enum Failure {
    Refused(Error),
    Store(StoreError),
}

impl From<Error> for Failure {
    fn from(refusal: Error) -> Self {
        Self::Refused(refusal)
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

/// What a stored change means for the picture in memory.
enum Effect {
    Freed(Allocation),
    Held(Allocation),
    Registered(Module),
    Unregistered(ModuleId),
}

impl State {
    fn build(pool: &PoolConfig, contents: Contents) -> Result<Self, StoreError> {
        let mut state = Self { pool: Pool::new(pool.clone()), registry: Registry::default() };
        state.follow(contents.allocations.into_iter().map(Effect::Held))?;
        state.follow(contents.modules.into_iter().map(Effect::Registered))?;
        Ok(state)
    }

    fn follow(&mut self, effects: impl IntoIterator<Item = Effect>) -> Result<(), StoreError> {
        let contradiction = |text: String| StoreError::Contradiction(text);
        for effect in effects {
            match effect {
                Effect::Freed(allocation) => self.pool.remove(&allocation),
                Effect::Held(allocation) => {
                    self.pool
                        .insert(allocation)
                        .map_err(|error| contradiction(error.to_string()))?;
                }
                Effect::Registered(module) => {
                    self.registry.set(module).map_err(|error| contradiction(error.to_string()))?;
                }
                Effect::Unregistered(id) => drop(self.registry.remove(&id)),
            }
        }
        Ok(())
    }
}

/// Stores one change. What it returns is made of the stored rows.
fn apply(
    edit: &Edit<'_>,
    state: &State,
    change: Change,
) -> Result<(Outcome, Vec<Effect>), Failure> {
    match change {
        Change::Allocate { owner, protocol, ports, keep_existing, demand } => {
            let wish = Wish { owner: &owner, protocol, ports, keep_existing, demand };
            allocate(edit, wish, state.pool.plan(wish)?)
        }
        Change::Deallocate { owner, protocol } => {
            let held = state.pool.list(Some(&owner), Some(protocol));
            let freed = free(edit, held.iter().filter(|allocation| !allocation.claimed))?;
            let effects = freed.iter().cloned().map(Effect::Freed).collect();
            Ok((Outcome::Deallocated(freed), effects))
        }
        Change::SetModule(module) => {
            state.registry.check(&module).map_err(|_| Error::invalid("unixUser"))?;
            if state.registry.get(&module.id) == Some(&module) {
                return Ok((Outcome::ModuleSet, Vec::new()));
            }
            edit.set_module(&module)?;
            Ok((Outcome::ModuleSet, vec![Effect::Registered(module)]))
        }
        Change::RemoveModule(id) => {
            let held = state.pool.list(None, None);
            let belongs = |one: &&Allocation| state.registry.belongs_to(&one.owner, &id);
            let freed = free(edit, held.iter().filter(belongs))?;
            let mut effects: Vec<_> = freed.iter().cloned().map(Effect::Freed).collect();
            if state.registry.get(&id).is_some() {
                edit.delete_module(&id)?;
                effects.push(Effect::Unregistered(id));
            }
            Ok((Outcome::ModuleRemoved(freed), effects))
        }
    }
}

fn allocate(
    edit: &Edit<'_>,
    wish: Wish<'_>,
    plan: Plan,
) -> Result<(Outcome, Vec<Effect>), Failure> {
    let freed = free(edit, &plan.freed)?;
    let mut effects: Vec<_> = freed.into_iter().map(Effect::Freed).collect();
    let allocation = match plan.step {
        Step::Keep(kept) => return Ok((Outcome::Allocated(kept), effects)),
        Step::Resize(from, to) => {
            let resized = edit.resize(&from, to)?;
            effects.push(Effect::Freed(from));
            resized
        }
        Step::Place(range) => edit.insert(&Allocation {
            owner: wish.owner.clone(),
            protocol: wish.protocol,
            name: None,
            range,
            claimed: false,
            allocated_at: Timestamp::now(),
        })?,
    };
    effects.push(Effect::Held(allocation.clone()));
    Ok((Outcome::Allocated(allocation), effects))
}

/// Frees the ranges, and returns them as they were stored.
fn free<'a>(
    edit: &Edit<'_>,
    allocations: impl IntoIterator<Item = &'a Allocation>,
) -> Result<Vec<Allocation>, StoreError> {
    allocations.into_iter().map(|allocation| edit.delete(allocation)).collect()
}
