//! The one door: every call of either wire comes through [`Service::call`].
//!
//! The order is the same for every method: the wire has parsed and validated; here the caller is
//! resolved, the call authorised, carried out by the owning thread, written to the journal, and
//! answered.

use crate::allocator::bound::BoundPorts;
use crate::allocator::pool::Conditions;
use crate::allocator::{Allocator, Change, Outcome, State};
use crate::error::{Condition, Error};
use crate::model::{Allocation, ModuleId, Origin, Owner, Protocol, Timestamp, UserId};
use crate::peer::{Identity, Peer};
use crate::policy::{Authorization, Caller, Subject, authorize};
use crate::reply::{
    Allocated, CallerInfo, Deallocated, Ensured, Listed, ModuleEntry, ModuleRemoved, ModuleSet,
    Modules, Reply, Status,
};
use crate::request::{Method, Request};

/// What both front ends call.
#[derive(Clone)]
pub struct Service {
    allocator: Allocator,
}

impl Service {
    /// A service over what the allocator owns.
    #[must_use]
    pub const fn new(allocator: Allocator) -> Self {
        Self { allocator }
    }

    /// Carries out one call for the peer of a connection. What an error says is for the caller;
    /// its cause is in the journal.
    #[expect(
        clippy::redundant_closure_for_method_calls,
        reason = "a path to the method would fix the lifetime that a closure leaves open"
    )]
    pub async fn call(&self, peer: &Peer, request: Request) -> Result<Reply, Error> {
        let entry = JournalEntry::new(peer, &request);
        let result = match request {
            Request::WhoAmI => self.look(peer, request, |call| call.who_am_i()).await,
            Request::GetStatus => self.look(peer, request, |call| call.status()).await,
            Request::List { protocol, .. } => {
                self.look(peer, request, move |call| call.list(protocol)).await
            }
            Request::ListModules => self.look(peer, request, |call| call.list_modules()).await,
            Request::Allocate { .. }
            | Request::Ensure { .. }
            | Request::Deallocate { .. }
            | Request::SetModule { .. }
            | Request::RemoveModule { .. } => self.change(peer, request, &entry).await,
        };
        if let Err(error) = &result {
            entry.refused(error);
        }
        result
    }

    /// Tells the journal of a call that was refused for a parameter before it came to the door.
    pub fn refuse(&self, peer: &Peer, method: Method, parameter: &str) {
        let (uid, pid) = (peer.uid.0, peer.pid);
        let (method, outcome) = (method.name(), Condition::InvalidParameter.row().name);
        tracing::warn!(method, uid, pid, parameter, outcome, "{method} refused: {outcome}");
    }

    /// A call that changes nothing.
    async fn look(
        &self,
        peer: &Peer,
        request: Request,
        reply: impl FnOnce(&Authorized<'_>) -> Reply + Send + 'static,
    ) -> Result<Reply, Error> {
        let peer = peer.clone();
        self.allocator
            .read(move |state| Ok(reply(&Authorized::new(&peer, &request, state)?)))
            .await?
    }

    async fn change(
        &self,
        peer: &Peer,
        request: Request,
        entry: &JournalEntry,
    ) -> Result<Reply, Error> {
        let origin = Origin { uid: peer.uid, on_behalf_of: request.on_behalf_of().cloned() };
        let peer = peer.clone();
        let outcome = self
            .allocator
            .change(origin, move |state| Authorized::new(&peer, &request, state)?.change(&request))
            .await?;
        entry.changed(&outcome);
        reply(outcome)
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
        let owner = match &self.subject {
            Subject::Node => None,
            Subject::Owner { owner, .. } => Some(owner),
        };
        Reply::List(Listed { allocations: self.state.pool.list(owner, protocol) })
    }

    fn list_modules(&self) -> Reply {
        let modules = self.state.registry.all().into_iter().map(ModuleEntry::from).collect();
        Reply::ListModules(Modules { modules })
    }

    fn change(self, request: &Request) -> Result<Change, Error> {
        Ok(match (request, self.subject) {
            (
                Request::Allocate { ports, protocol, keep_existing, .. },
                Subject::Owner { owner, demand },
            ) => Change::Allocate {
                owner,
                protocol: *protocol,
                ports: *ports,
                keep_existing: *keep_existing,
                demand: demand.map(|demand| demand.of(*protocol)),
            },
            (
                Request::Ensure { name, ports, protocols, may_move, .. },
                Subject::Owner { owner, demand },
            ) => Change::Ensure {
                owner,
                name: name.clone(),
                ports: *ports,
                protocols: protocols.clone(),
                may_move: *may_move,
                demand,
            },
            (Request::Deallocate { protocol, part, .. }, Subject::Owner { owner, demand }) => {
                Change::Deallocate {
                    owner,
                    protocol: *protocol,
                    part: part.clone(),
                    // who has a demand is a module, and claims are not its own to free
                    may_free_claims: demand.is_none(),
                }
            }
            (Request::SetModule { module }, _) => Change::SetModule(module.clone()),
            (Request::RemoveModule { module_id }, _) => Change::RemoveModule(module_id.clone()),
            _ => return Err(Error::invalid("owner")),
        })
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
        Outcome::ModuleSet => Reply::SetModule(ModuleSet {}),
        Outcome::ModuleRemoved(freed) => Reply::RemoveModule(ModuleRemoved { freed }),
    })
}

/// What the journal gets to know of a call: one line for each change and each refusal.
struct JournalEntry {
    method: Method,
    uid: UserId,
    pid: Option<i32>,
    owner: Option<Owner>,
    on_behalf_of: Option<ModuleId>,
}

impl JournalEntry {
    fn new(peer: &Peer, request: &Request) -> Self {
        Self {
            method: request.method(),
            uid: peer.uid,
            pid: peer.pid,
            owner: request
                .named_owner()
                .cloned()
                .or_else(|| request.named_module().map(Owner::from)),
            on_behalf_of: request.on_behalf_of().cloned(),
        }
    }

    fn changed(&self, outcome: &Outcome) {
        match outcome {
            Outcome::Allocated(allocation) => self.range("allocated", allocation),
            Outcome::Ensured { changed: false, .. } => {}
            Outcome::Ensured { held, .. } => {
                for allocation in held {
                    self.range("allocated", allocation);
                }
            }
            Outcome::Deallocated(freed) | Outcome::ModuleRemoved(freed) => {
                for allocation in freed {
                    self.range("freed", allocation);
                }
            }
            Outcome::ModuleSet => {}
        }
        if matches!(outcome, Outcome::ModuleSet | Outcome::ModuleRemoved(_)) {
            tracing::info!(
                method = self.method.name(),
                owner = self.owner.as_ref().map(tracing::field::display),
                uid = self.uid.0,
                pid = self.pid,
                outcome = "done",
                "{} done",
                self.method.name()
            );
        }
    }

    fn range(&self, outcome: &'static str, allocation: &Allocation) {
        tracing::info!(
            method = self.method.name(),
            owner = %allocation.owner,
            uid = self.uid.0,
            pid = self.pid,
            on_behalf_of = self.on_behalf_of.as_ref().map(tracing::field::display),
            protocol = %allocation.protocol,
            start = allocation.range.start(),
            end = allocation.range.end(),
            outcome,
            "{outcome} {} {} of {}",
            allocation.protocol,
            allocation.range,
            allocation.owner
        );
    }

    fn refused(&self, error: &Error) {
        let outcome = error.condition().row().name;
        tracing::warn!(
            method = self.method.name(),
            owner = self.owner.as_ref().map(tracing::field::display),
            uid = self.uid.0,
            pid = self.pid,
            on_behalf_of = self.on_behalf_of.as_ref().map(tracing::field::display),
            outcome,
            "{} refused: {outcome}",
            self.method.name()
        );
    }
}
