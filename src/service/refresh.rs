//! What is known of a caller, refreshed before the caller is judged.
//!
//! Where the cluster says which modules there are, it is asked about a module with each of its
//! calls, and the answer is stored before the call goes on. All this happens in the caller's own
//! time: others don't wait, and the owning thread only sees what has come of it. While the cluster
//! can't be asked, what is stored counts.

use std::collections::HashSet;
use std::time::Instant;

use super::Service;
use crate::allocator::{Change, Effect, State};
use crate::error::Error;
use crate::model::{ModuleId, Origin, UserName};
use crate::peer::{Identity, Peer};
use crate::registry::{Answer, Cluster, Present, Unavailable};
use crate::request::Request;

/// Whether it is worth waiting for a module that the cluster does not know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Patience {
    /// The news of it may be on their way.
    WithNewcomers,
    /// It was known before.
    None,
}

impl Service {
    /// Finds out what there is to know for a call, or why it can't be judged.
    pub(super) async fn refresh(
        &self,
        peer: &Peer,
        request: &Request,
        patience: Patience,
        patience_ends: Instant,
    ) -> Result<(), Error> {
        let Some(cluster) = self.source.cluster() else { return Ok(()) };
        if let Request::SetModule { .. } = request {
            // the module's next call would undo it
            return Err(Error::PermissionDenied { owner: None });
        }
        let Some(user) = concerned(peer, request) else { return Ok(()) };
        if cluster.is_unknown(&user) {
            return Ok(());
        }
        match self.ask(cluster, &user, patience).await? {
            Some(answer) => self.take_over(peer, user, answer, patience_ends).await,
            None => Ok(()),
        }
    }

    /// What the cluster says of the module; `None` if it can't be asked and what is stored counts.
    async fn ask(
        &self,
        cluster: &Cluster,
        user: &UserName,
        patience: Patience,
    ) -> Result<Option<Answer>, Error> {
        let is_patient = patience == Patience::WithNewcomers;
        let answer = match cluster.look_up(user).await {
            Ok(first)
                if is_patient && first.entry.is_none() && !self.is_registered(user).await? =>
            {
                cluster.look_up_newcomer(user, first).await
            }
            answer => answer,
        };
        match answer {
            Ok(answer) => {
                cluster.remember(user, false);
                Ok(Some(answer))
            }
            Err(unavailable) if self.is_registered(user).await? => {
                cluster.remember(user, unavailable == Unavailable::Unreadable);
                Ok(None)
            }
            Err(_) => Err(Error::RegistryUnavailable {}),
        }
    }

    /// Whether there is an entry as the cluster gives them: of a module that has its user's name.
    async fn is_registered(&self, user: &UserName) -> Result<bool, Error> {
        let user = user.clone();
        let look = move |state: &State| {
            let module = state.registry.by_user(&user);
            module.is_some_and(|module| module.id.as_str() == user.as_str())
        };
        self.allocator.read(look).await
    }

    /// Stores what the cluster said, unless it is stored, or something newer is.
    async fn take_over(
        &self,
        peer: &Peer,
        user: UserName,
        Answer { entry, asked }: Answer,
        patience_ends: Instant,
    ) -> Result<(), Error> {
        let has_it = {
            let (user, entry, asked) = (user.clone(), entry.clone(), asked.clone());
            move |state: &State| {
                let has_it = state.registry.has(&user, entry.as_ref());
                if has_it {
                    // nothing older comes in its place; if it is older itself, that is no matter
                    let _ = asked.take(&user);
                }
                has_it
            }
        };
        if self.allocator.read(has_it).await? {
            return Ok(());
        }
        let origin = Origin { uid: peer.uid, on_behalf_of: None };
        let refresh = Change::Refresh { user, entry, asked };
        let decide = move |_: &State| Ok(refresh.clone());
        let changed = self.allocator.change(origin, patience_ends, decide).await?;
        tell(&changed.effects);
        Ok(())
    }

    /// The modules of this node by the word of the cluster, where that is the source. Not for
    /// everybody: the call is authorised first.
    pub(super) async fn present(
        &self,
        peer: &Peer,
        request: &Request,
    ) -> Result<Option<Reading>, Error> {
        let Some(cluster) = self.source.cluster() else { return Ok(None) };
        self.look(peer, request.clone(), |_| ()).await?;
        let present = cluster.present().await;
        present.map(|present| Some(Reading(present))).map_err(|_| Error::RegistryUnavailable {})
    }
}

/// The Unix user of the module that a call is judged by, if it is judged by one.
fn concerned(peer: &Peer, request: &Request) -> Option<UserName> {
    let of = |id: &ModuleId| UserName::parse(id.as_str()).ok();
    match &peer.identity {
        Identity::Administrator => request.on_behalf_of().and_then(of),
        Identity::Agent(id) => of(id),
        Identity::User(name) => Some(name.clone()),
        Identity::Anonymous => None,
    }
}

/// Tells the journal what the cluster has changed.
fn tell(effects: &[Effect]) {
    for effect in effects {
        match effect {
            Effect::Registered(module) => tracing::info!(
                owner = %module.id,
                portsadm = module.portsadm,
                tcp = module.demand.tcp,
                udp = module.demand.udp,
                "by the cluster, module {} has portsadm {}, {} tcp, {} udp",
                module.id,
                module.portsadm,
                module.demand.tcp,
                module.demand.udp
            ),
            Effect::Unregistered(id) => {
                tracing::info!(owner = %id, "by the cluster, there is no module {id} on this node");
            }
            Effect::Freed(_) | Effect::Held(_) => {}
        }
    }
}

/// Which modules the cluster had on this node at one moment.
pub(super) struct Reading(Present);

impl Reading {
    /// The modules that are there: those that were read, and those of which something newer is
    /// stored.
    pub(super) fn ids(&self, state: &State) -> HashSet<ModuleId> {
        let Self(Present { ids, asked }) = self;
        let registered = state.registry.all().into_iter();
        let newer = registered.filter(|module| asked.is_outdated(&module.unix_user));
        ids.iter().chain(newer.map(|module| &module.id)).cloned().collect()
    }
}
