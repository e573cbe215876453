//! What a change does: planned against the picture, carried out on the database.

use std::collections::HashSet;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use super::bound::BoundPorts;
use super::pool::{self, Conditions, NamedWish, Plan, Release, Wish};
use super::state::{Effect, State};
use crate::error::Error;
use crate::model::{
    Allocation, Demand, HistoryKind, Module, ModuleId, Origin, Owner, Part, PortCount, PortRange,
    Protocol, Protocols, RangeName, Timestamp, UserName,
};
use crate::registry::{Asked, Registry};
use crate::reply::{Imported, Problem};
use crate::request::ImportedRange;
use crate::store::{Edit, StoreError};

/// What Reclaim frees: what is held for modules that are not there.
#[derive(Debug, Clone)]
pub struct Gone {
    /// The modules that are there by the word of the registry's source, one at least, and then no other
    /// entry stays; `None` if all that are registered are.
    pub present: Option<HashSet<ModuleId>>,
    /// For how long it has to have been held. Zero: however short.
    pub older_than: Duration,
}

/// A change that has been authorised.
#[derive(Debug, Clone)]
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
    /// Gives `owner` a range of that name.
    Ensure {
        /// For whom.
        owner: Owner,
        /// The range's name.
        name: RangeName,
        /// How many ports.
        ports: PortCount,
        /// In which protocols, at the same numbers.
        protocols: Protocols,
        /// Whether it may get other numbers.
        may_move: bool,
        /// How many ports the owner may hold; `None` for no check.
        demand: Option<Demand>,
    },
    /// Frees ports that `owner` holds in one protocol.
    Deallocate {
        /// Whose ports.
        owner: Owner,
        /// The protocol.
        protocol: Protocol,
        /// Which of them.
        part: Part,
        /// Whether a claim may be named.
        may_free_claims: bool,
    },
    /// Registers a module.
    SetModule(Module),
    /// Takes over what the cluster says of a module, unless something newer has been. What it holds
    /// stays.
    Refresh {
        /// Its Unix user, whose name is its id.
        user: UserName,
        /// Its entry; `None` if there is no such module.
        entry: Option<Module>,
        /// When the cluster was asked.
        asked: Asked,
    },
    /// Takes a module away with all that it and its helpers hold.
    RemoveModule(ModuleId),
    /// Gives `owner` ports of fixed numbers.
    Claim {
        /// For whom.
        owner: Owner,
        /// The ports.
        range: PortRange,
        /// In which protocols.
        protocols: Protocols,
        /// The name of the range.
        name: Option<RangeName>,
    },
    /// Gives all that one owner holds to another.
    Transfer {
        /// Who gives.
        from: Owner,
        /// Who gets.
        to: Owner,
    },
    /// Frees what modules hold that are no longer there.
    Reclaim(Gone),
    /// Takes over what others have handed out before.
    Import {
        /// The ranges, as they were kept.
        ranges: Arc<[ImportedRange]>,
        /// Takes over the others where some can't be.
        skip_invalid: bool,
    },
}

/// A change that has been carried out. Made of the stored rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Changed {
    /// What the caller wants to know.
    pub outcome: Outcome,
    /// All that has happened, in this order.
    pub effects: Arc<[Effect]>,
}

/// What a change has done, as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The range that the owner has now.
    Allocated(Allocation),
    /// The ranges of that name that the owner has now, and whether anything is new about them.
    Ensured {
        /// One for each protocol, at the same numbers.
        held: Vec<Allocation>,
        /// False if all of them were there.
        changed: bool,
    },
    /// The ports that were freed, with whose they were.
    Deallocated(Vec<Allocation>),
    /// The module is registered.
    ModuleSet,
    /// The module's entry is what the source says.
    Refreshed,
    /// The module is gone, and these ranges of it and its helpers.
    ModuleRemoved(Vec<Allocation>),
    /// The ranges with fixed numbers, one for each protocol.
    Claimed(Vec<Allocation>),
    /// The ranges, with their new owner.
    Transferred(Vec<Allocation>),
    /// The ranges of modules that are no longer there.
    Reclaimed(Vec<Allocation>),
    /// The number of ranges that were taken over, of those that were there, and the others.
    Imported(Imported),
}

/// The moment of a call: its time, and which ports are bound then.
pub(super) struct Moment<'a> {
    pub(super) now: Timestamp,
    pub(super) kernel: &'a mut Kernel,
}

/// What the kernel says of ports, asked once for many calls at the most.
#[derive(Default)]
pub(super) struct Kernel {
    bound: Option<BoundPorts>,
    is_failing: bool,
}

impl Kernel {
    /// What the kernel said is old.
    pub(super) fn forget(&mut self) {
        self.bound = None;
    }

    /// The ports that are bound. Where the kernel can't be asked, no port is left out for it, and
    /// the journal is told once.
    fn bound(&mut self) -> &BoundPorts {
        let Self { bound, is_failing } = self;
        bound.get_or_insert_with(|| {
            let asked = BoundPorts::read();
            tell(asked.as_ref().err(), is_failing);
            asked.unwrap_or_else(|_| BoundPorts::none())
        })
    }
}

fn tell(error: Option<&io::Error>, is_failing: &mut bool) {
    if let (Some(error), false) = (error, *is_failing) {
        tracing::warn!(%error, "it is not known which ports are bound; none is left out for it");
    }
    *is_failing = error.is_some();
}

impl Moment<'_> {
    /// Plans, and asks the kernel only if it matters: a repeat of a call costs nothing.
    fn plan(
        &mut self,
        state: &State,
        plan: impl Fn(Conditions<'_>) -> Result<Plan, Error>,
    ) -> Result<Plan, Error> {
        let none = BoundPorts::none();
        let planned = plan(Conditions { now: self.now, bound: &none });
        match planned {
            Ok(planned) if !planned.takes_ports() => Ok(planned),
            planned if !state.pool.skips_bound() => planned,
            _ => plan(Conditions { now: self.now, bound: self.kernel.bound() }),
        }
    }
}

/// A change that can be carried out as it is.
pub(super) struct Work {
    plan: Plan,
    registry: Vec<RegistryEdit>,
    kind: Kind,
}

enum RegistryEdit {
    Set(Module),
    Remove(ModuleId),
}

/// What the outcome is about.
enum Kind {
    Allocate,
    Ensure,
    Deallocate,
    SetModule,
    Refresh,
    RemoveModule,
    Claim,
    Transfer,
    Reclaim,
    Import { unchanged: usize, problems: Vec<Problem> },
}

impl Work {
    /// How to carry out a change, or why it is refused.
    pub(super) fn plan(
        change: Change,
        state: &State,
        moment: &mut Moment<'_>,
    ) -> Result<Self, Error> {
        let pool = &state.pool;
        let on_ports = |plan, kind| Self { plan, registry: Vec::new(), kind };
        let on_registry = |registry, kind| Self { plan: Plan::default(), registry, kind };
        Ok(match change {
            Change::Allocate { owner, protocol, ports, keep_existing, demand } => {
                let wish = Wish { owner: &owner, protocol, ports, keep_existing, demand };
                let plan = moment.plan(state, |conditions| pool.plan_allocate(wish, conditions))?;
                on_ports(plan, Kind::Allocate)
            }
            Change::Ensure { owner, name, ports, protocols, may_move, demand } => {
                let (owner, name, protocols) = (&owner, &name, protocols.as_slice());
                let wish = NamedWish { owner, name, ports, protocols, may_move, demand };
                let plan = moment.plan(state, |conditions| pool.plan_ensure(wish, conditions))?;
                on_ports(plan, Kind::Ensure)
            }
            Change::Deallocate { owner, protocol, part, may_free_claims } => {
                let release = Release { owner: &owner, protocol, part: &part, may_free_claims };
                on_ports(pool.plan_deallocate(release)?, Kind::Deallocate)
            }
            Change::SetModule(module) => {
                state.registry.check(&module).map_err(|_| Error::invalid("unixUser"))?;
                let is_new = state.registry.get(&module.id) != Some(&module);
                let edit = is_new.then_some(RegistryEdit::Set(module));
                on_registry(edit.into_iter().collect(), Kind::SetModule)
            }
            Change::Refresh { user, entry, asked } => {
                let is_newest = asked.take(&user);
                let edits = is_newest.then(|| refresh(&state.registry, &user, entry));
                on_registry(edits.unwrap_or_default(), Kind::Refresh)
            }
            Change::RemoveModule(id) => {
                let plan = pool.plan_removal(|one| state.registry.belongs_to(&one.owner, &id));
                let edit = state.registry.get(&id).is_some().then_some(RegistryEdit::Remove(id));
                Self { plan, registry: edit.into_iter().collect(), kind: Kind::RemoveModule }
            }
            Change::Claim { owner, range, protocols, name } => {
                let (protocols, name) = (protocols.as_slice(), name.as_ref());
                let claim = pool::Claim { owner: &owner, range, protocols, name };
                on_ports(pool.plan_claim(claim)?, Kind::Claim)
            }
            Change::Transfer { from, to } => {
                on_ports(pool.plan_transfer(&from, &to)?, Kind::Transfer)
            }
            Change::Reclaim(gone) => Self {
                plan: plan_reclaim(state, &gone, moment.now)?,
                registry: absent(&state.registry, gone.present.as_ref()),
                kind: Kind::Reclaim,
            },
            Change::Import { ranges, skip_invalid } => {
                let import = pool.plan_import(&ranges, skip_invalid);
                let pool::Import { plan, unchanged, problems } = import;
                on_ports(plan, Kind::Import { unchanged, problems })
            }
        })
    }

    /// Stores the change, as a part of a batch that is not yet committed.
    pub(super) fn carry_out(self, edit: &Edit<'_>, now: Timestamp) -> Result<Changed, StoreError> {
        let Self { plan, registry, kind } = self;
        let changed = !plan.edits.is_empty();
        let mut ledger = Ledger { held: plan.kept, freed: Vec::new(), effects: Vec::new() };
        for step in plan.edits {
            ledger.carry_out(step, edit, now)?;
        }
        for entry in registry {
            ledger.effects.push(match entry {
                RegistryEdit::Set(module) => {
                    edit.set_module(&module)?;
                    Effect::Registered(module)
                }
                RegistryEdit::Remove(id) => {
                    edit.delete_module(&id)?;
                    Effect::Unregistered(id)
                }
            });
        }
        let Ledger { mut held, freed, effects } = ledger;
        let outcome = match kind {
            Kind::Allocate => Outcome::Allocated(held.pop().ok_or_else(nothing_given)?),
            Kind::Ensure => Outcome::Ensured { held, changed },
            Kind::Deallocate => Outcome::Deallocated(freed),
            Kind::SetModule => Outcome::ModuleSet,
            Kind::Refresh => Outcome::Refreshed,
            Kind::RemoveModule => Outcome::ModuleRemoved(freed),
            Kind::Claim => Outcome::Claimed(held),
            Kind::Transfer => Outcome::Transferred(held),
            Kind::Reclaim => Outcome::Reclaimed(freed),
            Kind::Import { unchanged, problems } => {
                Outcome::Imported(Imported { imported: held.len(), unchanged, problems })
            }
        };
        Ok(Changed { outcome, effects: effects.into() })
    }
}

/// What Reclaim frees. A registry without any module says nothing about who is gone.
pub(crate) fn plan_reclaim(state: &State, gone: &Gone, now: Timestamp) -> Result<Plan, Error> {
    let present = gone.present.as_ref();
    let is_registered = |id: &ModuleId| state.registry.get(id).is_some();
    let is_there =
        |id: &ModuleId| present.map_or_else(|| is_registered(id), |present| present.contains(id));
    if present.is_none() && state.registry.is_empty() {
        return Err(Error::RegistryUnavailable {});
    }
    let newest = now.before(gone.older_than);
    // a clock that was put back spares nothing where nothing is to be spared
    let is_old = |one: &Allocation| gone.older_than.is_zero() || one.allocated_at <= newest;
    Ok(state.pool.plan_removal(|one| Registry::is_gone(&one.owner, is_there) && is_old(one)))
}

/// The entries of modules that are not `present`.
fn absent(registry: &Registry, present: Option<&HashSet<ModuleId>>) -> Vec<RegistryEdit> {
    let Some(present) = present else { return Vec::new() };
    let ids = registry.all().into_iter().map(|module| module.id.clone());
    ids.filter(|id| !present.contains(id)).map(RegistryEdit::Remove).collect()
}

/// What makes `entry` the entry of the module whose Unix user is `user`, and of no other.
fn refresh(registry: &Registry, user: &UserName, entry: Option<Module>) -> Vec<RegistryEdit> {
    let outdated = registry.outdated(user, entry.as_ref());
    // an entry that gets other values is replaced
    let of_entry = |id: &ModuleId| entry.as_ref().is_some_and(|entry| entry.id == *id);
    let mut edits: Vec<_> =
        outdated.into_iter().filter(|id| !of_entry(id)).map(RegistryEdit::Remove).collect();
    if let Some(entry) = entry.filter(|entry| registry.get(&entry.id) != Some(entry)) {
        edits.push(RegistryEdit::Set(entry));
    }
    edits
}

fn nothing_given() -> StoreError {
    StoreError::Contradiction("a plan to allocate has given nothing".to_owned())
}

impl Changed {
    /// Adds what has happened to the history. Gives the number of events.
    pub(super) fn record(
        &self,
        edit: &Edit<'_>,
        now: Timestamp,
        origin: &Origin,
    ) -> Result<usize, StoreError> {
        let mut events = 0;
        for effect in self.effects.iter() {
            let (kind, allocation) = match effect {
                Effect::Freed(allocation) => (HistoryKind::Deallocated, allocation),
                Effect::Held(allocation) => (HistoryKind::Allocated, allocation),
                Effect::Registered(_) | Effect::Unregistered(_) => continue,
            };
            edit.record(kind, allocation, now, origin)?;
            events += 1;
        }
        Ok(events)
    }
}

/// What has come of a plan so far.
struct Ledger {
    held: Vec<Allocation>,
    freed: Vec<Allocation>,
    effects: Vec<Effect>,
}

impl Ledger {
    fn carry_out(
        &mut self,
        step: pool::Edit,
        edit: &Edit<'_>,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        match step {
            pool::Edit::Free(allocation) => {
                let freed = edit.delete(&allocation)?;
                self.effects.push(Effect::Freed(freed.clone()));
                self.freed.push(freed);
            }
            pool::Edit::Resize(from, to) => {
                let resized = edit.resize(&from, to)?;
                self.effects.push(Effect::Freed(from));
                self.hold(resized);
            }
            pool::Edit::Cut(from, part) => self.cut(&from, part, edit)?,
            pool::Edit::Place { owner, protocol, name, range, claimed } => {
                let placed =
                    Allocation { owner, protocol, name, range, claimed, allocated_at: now };
                self.hold(edit.insert(&placed)?);
            }
            pool::Edit::Give(from, to) => {
                let given = edit.give(&from, &to)?;
                self.effects.push(Effect::Freed(from));
                self.hold(given);
            }
        }
        Ok(())
    }

    fn hold(&mut self, allocation: Allocation) {
        self.effects.push(Effect::Held(allocation.clone()));
        self.held.push(allocation);
    }

    /// Takes `part` out of a range; what is left of it below and above stays held.
    fn cut(
        &mut self,
        from: &Allocation,
        part: PortRange,
        edit: &Edit<'_>,
    ) -> Result<(), StoreError> {
        self.effects.push(Effect::Freed(from.clone()));
        let mut rest = from.range.without(part).into_iter();
        match rest.next() {
            Some(first) => self.hold(edit.resize(from, first)?),
            None => drop(edit.delete(from)?),
        }
        for other in rest {
            self.hold(edit.insert(&Allocation { range: other, ..from.clone() })?);
        }
        self.freed.push(Allocation { range: part, ..from.clone() });
        Ok(())
    }
}
