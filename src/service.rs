//! The one door: every call of either wire comes through [`Service::call`].
//!
//! The order is the same for every method: the wire has parsed and validated; here what is known of
//! the caller is refreshed where others know it better, the caller is resolved, the call authorised,
//! carried out by the owning thread, written to the journal, and answered. A call that is answered again and again comes through [`Service::monitor`].

mod monitor;
mod refresh;

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use tokio::sync::Mutex;

use crate::allocator::bound::BoundPorts;
use crate::allocator::pool::{Conditions, Edit, Import};
use crate::allocator::{Allocator, Change, Gone, Outcome, State, plan_reclaim};
use crate::error::{Error, StorageReason};
use crate::journal::{Entry, Journal};
use crate::model::{Demand, HistoryQuery, ModuleId, Origin, Owner, Protocol, Timestamp};
use crate::peer::{Identity, Peer};
use crate::policy::{Authorization, Caller, Subject, authorize};
use crate::registry::Source;
use crate::reply::{
    Allocated, BackedUp, CallerInfo, Claimed, Deallocated, Ensured, Imported, Listed, ModuleEntry,
    ModuleRemoved, ModuleSet, Modules, Past, Reclaimed, Reply, Status, Transferred,
};
use crate::request::{ImportedRange, Method, Request};
use crate::store::backup;

pub use monitor::Subscription;
use refresh::{Patience, Reading};

/// What both front ends call.
#[derive(Clone)]
pub struct Service {
    allocator: Allocator,
    /// Who says which modules there are.
    source: Source,
    journal: Arc<Journal>,
    /// Where the database is, and its copies.
    directory: PathBuf,
    /// Whoever makes a copy.
    copying: Arc<Mutex<()>>,
}

impl Service {
    /// A service over what the allocator owns, in the state directory.
    #[must_use]
    pub fn new(allocator: Allocator, source: Source, directory: PathBuf) -> Self {
        let (journal, copying) = <_>::default();
        Self { allocator, source, journal, directory, copying }
    }

    /// Carries out one call for the peer of a connection. What an error says is for the caller;
    /// its cause is in the journal. A change waits for a locked database until `patience_ends`.
    pub async fn call(
        &self,
        peer: &Peer,
        request: Request,
        patience_ends: Instant,
    ) -> Result<Reply, Error> {
        let entry = Entry::new(peer, &request);
        let result =
            match self.refresh(peer, &request, Patience::WithNewcomers, patience_ends).await {
                Ok(()) => self.carry_out(peer, request, &entry, patience_ends).await,
                Err(error) => Err(error),
            };
        if let Err(error) = &result {
            self.journal.refused(&entry, error);
        }
        result
    }

    /// Carries out a call for which all is known that there is to know.
    #[expect(
        clippy::redundant_closure_for_method_calls,
        reason = "a path to the method would fix the lifetime that a closure leaves open"
    )]
    async fn carry_out(
        &self,
        peer: &Peer,
        request: Request,
        entry: &Entry,
        patience_ends: Instant,
    ) -> Result<Reply, Error> {
        match request {
            Request::WhoAmI => self.look(peer, request, |call| call.who_am_i()).await,
            Request::GetStatus => self.look(peer, request, |call| call.status()).await,
            Request::List { protocol, .. } => {
                self.look(peer, request, move |call| call.list(protocol)).await
            }
            Request::ListModules => {
                let source = self.source.clone();
                self.look(peer, request, move |call| call.list_modules(&source)).await
            }
            Request::Reclaim { dry_run, older_than } => {
                let present = self.present(peer, &request).await?;
                if !dry_run {
                    return self.change(peer, request, present, entry, patience_ends).await;
                }
                let reply = self.look(peer, request, move |call| {
                    let present = present.map(|present| present.ids(call.state));
                    call.reclaimable(&Gone { present, older_than })
                });
                reply.await?
            }
            Request::Import { ref ranges, dry_run: true, skip_invalid } => {
                let ranges = Arc::clone(ranges);
                self.look(peer, request, move |call| call.importable(&ranges, skip_invalid)).await
            }
            Request::History(ref query) => self.history(peer, query.clone(), request).await,
            Request::Backup => self.backup(peer, request).await,
            Request::Allocate { .. }
            | Request::Ensure { .. }
            | Request::Deallocate { .. }
            | Request::SetModule { .. }
            | Request::RemoveModule { .. }
            | Request::Claim { .. }
            | Request::Transfer { .. }
            | Request::Import { dry_run: false, .. } => {
                self.change(peer, request, None, entry, patience_ends).await
            }
            // has more than one answer
            Request::Monitor => Err(Error::invalid("method")),
        }
    }

    /// Tells the journal of a call that was refused for a parameter before it came to the door.
    pub fn refuse(&self, peer: &Peer, method: Method, parameter: &str) {
        self.journal.misspelt(peer, method, parameter);
    }

    /// A call that changes nothing.
    async fn look<T: Send + 'static>(
        &self,
        peer: &Peer,
        request: Request,
        reply: impl FnOnce(&Authorized<'_>) -> T + Send + 'static,
    ) -> Result<T, Error> {
        let peer = peer.clone();
        self.allocator
            .read(move |state| Ok(reply(&Authorized::new(&peer, &request, state)?)))
            .await?
    }

    async fn history(
        &self,
        peer: &Peer,
        query: HistoryQuery,
        request: Request,
    ) -> Result<Reply, Error> {
        let peer = peer.clone();
        let may_look = move |state: &State| Authorized::new(&peer, &request, state).map(|_| ());
        let events = self.allocator.history(query, may_look).await?;
        Ok(Reply::History(Past { events }))
    }

    /// Copies the database on a thread of its own, once it is clear that the caller may ask for it.
    async fn backup(&self, peer: &Peer, request: Request) -> Result<Reply, Error> {
        self.look(peer, request, |_| ()).await?;
        let directory = self.directory.clone();
        let _one_at_a_time = self.copying.lock().await;
        let copied = tokio::task::spawn_blocking(move || backup(&directory)).await;
        match copied {
            Ok(Ok(path)) => {
                tracing::info!(path = %path.display(), "the database was copied");
                Ok(Reply::Backup(BackedUp { path: path.display().to_string() }))
            }
            Ok(Err(error)) => {
                tracing::error!(%error, "the database can't be copied");
                Err(Error::StorageFailure { reason: error.reason() })
            }
            Err(error) => {
                tracing::error!(%error, "the copy was not finished");
                Err(Error::StorageFailure { reason: StorageReason::Other })
            }
        }
    }

    async fn change(
        &self,
        peer: &Peer,
        request: Request,
        reading: Option<Reading>,
        entry: &Entry,
        patience_ends: Instant,
    ) -> Result<Reply, Error> {
        let origin = Origin { uid: peer.uid, on_behalf_of: request.on_behalf_of().cloned() };
        let peer = peer.clone();
        let changed = self
            .allocator
            .change(origin, patience_ends, move |state| {
                let present = reading.as_ref().map(|reading| reading.ids(state));
                Authorized::new(&peer, &request, state)?.change(&request, present)
            })
            .await?;
        self.journal.changed(entry, &changed.effects);
        reply(changed.outcome)
    }
}

/// A call that has been authorised against what is stored at this moment.
struct Authorized<'a> {
    peer: &'a Peer,
    caller: Caller,
    subject: Subject,
    state: &'a State,
}

impl<'a> Authorized<'a> {
    fn new(peer: &'a Peer, request: &Request, state: &'a State) -> Result<Self, Error> {
        let caller = Caller::resolve(peer, &state.registry);
        match authorize(&caller, request, &state.registry) {
            Authorization::Granted(subject) => Ok(Self { peer, caller, subject, state }),
            Authorization::Forbidden(reason) => Err(reason),
        }
    }

    fn who_am_i(&self) -> Reply {
        let module = match &self.caller {
            Caller::Module(module) => Some(module),
            Caller::Anonymous | Caller::Administrator => None,
        };
        Reply::WhoAmI(CallerInfo {
            uid: self.peer.uid,
            caller: self.caller.kind(),
            module_id: module.map(|module| module.id.clone()),
            unix_user: match &self.peer.identity {
                Identity::User(name) => Some(name.clone()),
                Identity::Agent(_) | Identity::Administrator | Identity::Anonymous => None,
            },
            portsadm: module.is_some_and(|module| module.portsadm),
            tcp_ports_demand: module.map(|module| module.demand.tcp),
            udp_ports_demand: module.map(|module| module.demand.udp),
        })
    }

    fn status(&self) -> Reply {
        let bound = BoundPorts::read().unwrap_or_else(|error| {
            tracing::warn!(%error, "it is not known which ports are bound");
            BoundPorts::none()
        });
        let conditions = Conditions { now: Timestamp::now(), bound: &bound };
        let pools = Protocol::ALL.map(|protocol| self.state.pool.status(protocol, conditions));
        Reply::GetStatus(Status { pools: pools.into() })
    }

    fn list(&self, protocol: Option<Protocol>) -> Reply {
        Reply::List(Listed { allocations: self.state.pool.list(self.only_owner(), protocol) })
    }

    /// Whose ranges the call is about; `None` for everybody's.
    const fn only_owner(&self) -> Option<&Owner> {
        match &self.subject {
            Subject::Node => None,
            Subject::Owner { owner, .. } => Some(owner),
        }
    }

    /// What Reclaim would free.
    fn reclaimable(&self, gone: &Gone) -> Result<Reply, Error> {
        let plan = plan_reclaim(self.state, gone, Timestamp::now())?;
        let freed = plan.edits.into_iter().filter_map(|edit| match edit {
            Edit::Free(allocation) => Some(allocation),
            _ => None,
        });
        Ok(Reply::Reclaim(Reclaimed { freed: freed.collect() }))
    }

    /// What Import would take over.
    fn importable(&self, ranges: &[ImportedRange], skip_invalid: bool) -> Reply {
        let Import { plan, unchanged, problems } =
            self.state.pool.plan_import(ranges, skip_invalid);
        Reply::Import(Imported { imported: plan.edits.len(), unchanged, problems })
    }

    fn list_modules(&self, source: &Source) -> Reply {
        let modules = self.state.registry.all().into_iter().map(|module| ModuleEntry {
            stale: source.is_stale(&module.unix_user),
            ..ModuleEntry::from(module)
        });
        Reply::ListModules(Modules { modules: modules.collect() })
    }

    /// The change that the call asks for. Where others say which modules there are, these are
    /// `present`.
    fn change(
        self,
        request: &Request,
        present: Option<HashSet<ModuleId>>,
    ) -> Result<Change, Error> {
        Ok(match request {
            Request::Allocate { ports, protocol, keep_existing, .. } => {
                let (owner, demand) = self.owner()?;
                Change::Allocate {
                    owner,
                    protocol: *protocol,
                    ports: *ports,
                    keep_existing: *keep_existing,
                    demand: demand.map(|demand| demand.of(*protocol)),
                }
            }
            Request::Ensure { name, ports, protocols, may_move, .. } => {
                let (owner, demand) = self.owner()?;
                Change::Ensure {
                    owner,
                    name: name.clone(),
                    ports: *ports,
                    protocols: protocols.clone(),
                    may_move: *may_move,
                    demand,
                }
            }
            Request::Deallocate { protocol, part, .. } => {
                let (owner, demand) = self.owner()?;
                Change::Deallocate {
                    owner,
                    protocol: *protocol,
                    part: part.clone(),
                    // who has a demand is a module, and claims are not its own to free
                    may_free_claims: demand.is_none(),
                }
            }
            Request::SetModule { module } => Change::SetModule(module.clone()),
            Request::RemoveModule { module_id } => Change::RemoveModule(module_id.clone()),
            Request::Claim { range, protocols, owner, name } => Change::Claim {
                owner: owner.clone(),
                range: *range,
                protocols: protocols.clone(),
                name: name.clone(),
            },
            Request::Transfer { from, to } => {
                Change::Transfer { from: from.clone(), to: to.clone() }
            }
            Request::Reclaim { older_than, .. } => {
                Change::Reclaim(Gone { present, older_than: *older_than })
            }
            Request::Import { ranges, skip_invalid, .. } => {
                Change::Import { ranges: Arc::clone(ranges), skip_invalid: *skip_invalid }
            }
            // these go another way, and change nothing
            Request::List { .. }
            | Request::Monitor
            | Request::WhoAmI
            | Request::GetStatus
            | Request::ListModules
            | Request::History(_)
            | Request::Backup => return Err(Error::invalid("method")),
        })
    }

    /// Whose ports the call is about, and how many they may be.
    fn owner(self) -> Result<(Owner, Option<Demand>), Error> {
        match self.subject {
            Subject::Owner { owner, demand } => Ok((owner, demand)),
            Subject::Node => Err(Error::invalid("owner")),
        }
    }
}

/// The reply to a change, made of what was stored.
fn reply(outcome: Outcome) -> Result<Reply, Error> {
    Ok(match outcome {
        Outcome::Allocated(allocation) => Reply::Allocate(Allocated { range: allocation.range }),
        Outcome::Ensured { held, changed } => {
            let range = held.first().map(|one| one.range);
            // a list of protocols is never empty
            Reply::Ensure(Ensured {
                range: range.ok_or_else(|| Error::invalid("protocols"))?,
                changed,
            })
        }
        Outcome::Deallocated(freed) => {
            Reply::Deallocate(Deallocated { ranges: freed.iter().map(|one| one.range).collect() })
        }
        Outcome::ModuleSet | Outcome::Refreshed => Reply::SetModule(ModuleSet {}),
        Outcome::ModuleRemoved(freed) => Reply::RemoveModule(ModuleRemoved { freed }),
        Outcome::Claimed(_) => Reply::Claim(Claimed {}),
        Outcome::Transferred(moved) => Reply::Transfer(Transferred { moved }),
        Outcome::Imported(imported) => Reply::Import(imported),
        Outcome::Reclaimed(freed) => Reply::Reclaim(Reclaimed { freed }),
    })
}
