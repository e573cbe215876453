//! Who may do what. Pure: no clock, no file, no database.
//!
//! | | anonymous | module without portsadm | module with portsadm | administrator |
//! | --- | --- | --- | --- | --- |
//! | `WhoAmI` | yes | yes | yes | yes |
//! | `List`, `Monitor` | no | own | own | all |
//! | `Allocate`, `Ensure`, `Deallocate` | no | `MissingRole` | own, within demand | any owner, no demand check |
//! | `GetStatus` | no | yes | yes | yes |
//! | `SetModule`, `ListModules`, `RemoveModule`, `Claim`, `Transfer`, `Reclaim`, `Import`, `History`, `Backup` | no | no | no | yes |

use crate::error::Error;
use crate::model::{Demand, Module, Owner};
use crate::peer::{Identity, Peer};
use crate::registry::{PORTSADM, Registry};
use crate::reply::CallerKind;
use crate::request::Request;

/// Who is calling, once the registry has been asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Caller {
    /// Nobody that portsd knows.
    Anonymous,
    /// A process of a registered module.
    Module(Module),
    /// The superuser, or the service's own user, on an admin socket.
    Administrator,
}

impl Caller {
    /// Who `peer` is by the registry as it stands. Asked for each call, so that a removed module
    /// or a revoked role counts at once, on open connections too.
    #[must_use]
    pub fn resolve(peer: &Peer, registry: &Registry) -> Self {
        let module = match &peer.identity {
            Identity::Administrator => return Self::Administrator,
            Identity::Anonymous => None,
            Identity::User(name) => registry.by_user(name),
            Identity::Agent(id) => registry.get(id),
        };
        module.map_or(Self::Anonymous, |module| Self::Module(module.clone()))
    }

    /// What the caller counts as, without the particulars.
    #[must_use]
    pub const fn kind(&self) -> CallerKind {
        match self {
            Self::Anonymous => CallerKind::Anonymous,
            Self::Module(_) => CallerKind::Module,
            Self::Administrator => CallerKind::Administrator,
        }
    }
}

/// The answer to whether a caller may make a call.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub enum Authorization {
    /// It may, on this subject.
    Granted(Subject),
    /// It may not, for this reason.
    Forbidden(Error),
}

/// What a granted call may touch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Subject {
    /// The whole node, or nothing that belongs to anybody.
    Node,
    /// One owner, who may hold `demand` ports; `None` means no check.
    Owner {
        /// The owner.
        owner: Owner,
        /// What the owner may hold.
        demand: Option<Demand>,
    },
}

/// Decides whether `caller` may make `request`, and on what subject.
///
/// A call on behalf of a module is judged exactly as if that module had made it, once it is clear
/// that the caller is an administrator.
pub fn authorize(caller: &Caller, request: &Request, registry: &Registry) -> Authorization {
    let acting = match request.on_behalf_of() {
        None => Ok(caller.clone()),
        Some(id) if *caller == Caller::Administrator => registry
            .get(id)
            .map(|module| Caller::Module(module.clone()))
            .ok_or_else(|| Error::UnknownModule { module_id: id.clone() }),
        Some(id) => Err(Error::PermissionDenied { owner: Some(Owner::from(id)) }),
    };
    match acting.and_then(|acting| subject(&acting, request)) {
        Ok(subject) => Authorization::Granted(subject),
        Err(reason) => Authorization::Forbidden(reason),
    }
}

fn subject(caller: &Caller, request: &Request) -> Result<Subject, Error> {
    let denied = || Error::PermissionDenied { owner: request.named_owner().cloned() };
    match (request, caller) {
        (Request::WhoAmI, _) => Ok(Subject::Node),
        (_, Caller::Anonymous) => Err(denied()),
        (Request::GetStatus, _) => Ok(Subject::Node),
        (Request::List { owner, .. }, Caller::Administrator) => Ok(match owner {
            Some(owner) => Subject::Owner { owner: owner.clone(), demand: None },
            None => Subject::Node,
        }),
        (Request::Monitor, Caller::Administrator) => Ok(Subject::Node),
        (Request::List { .. } | Request::Monitor, Caller::Module(module)) => {
            own(module, request, denied)
        }
        (
            Request::Allocate { target, .. }
            | Request::Ensure { target, .. }
            | Request::Deallocate { target, .. },
            Caller::Administrator,
        ) => match &target.owner {
            Some(owner) => Ok(Subject::Owner { owner: owner.clone(), demand: None }),
            None => Err(Error::invalid("owner")),
        },
        (
            Request::Allocate { .. } | Request::Ensure { .. } | Request::Deallocate { .. },
            Caller::Module(module),
        ) => {
            let subject = own(module, request, denied)?;
            if module.portsadm {
                Ok(subject)
            } else {
                Err(Error::MissingRole { module_id: module.id.clone(), role: PORTSADM })
            }
        }
        (
            Request::SetModule { .. }
            | Request::ListModules
            | Request::RemoveModule { .. }
            | Request::Claim { .. }
            | Request::Transfer { .. }
            | Request::Reclaim { .. }
            | Request::Import { .. }
            | Request::History(_)
            | Request::Backup,
            caller,
        ) => match caller {
            Caller::Administrator => Ok(Subject::Node),
            Caller::Module(_) | Caller::Anonymous => Err(denied()),
        },
    }
}

/// The module itself as the subject, unless the request names another owner.
fn own(module: &Module, request: &Request, denied: impl Fn() -> Error) -> Result<Subject, Error> {
    let owner = Owner::from(&module.id);
    match request.named_owner() {
        Some(named) if *named != owner => Err(denied()),
        _ => Ok(Subject::Owner { owner, demand: Some(module.demand) }),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::model::{ModuleId, Part, PortCount, Protocol, RangeName, UserId, UserName};
    use crate::request::Target;

    fn module(id: &str, portsadm: bool) -> Module {
        Module {
            id: ModuleId::parse(id).unwrap(),
            unix_user: UserName::parse(id).unwrap(),
            portsadm,
            demand: Demand { tcp: 4, udp: 2 },
        }
    }

    fn registry() -> Registry {
        let mut registry = Registry::default();
        registry.set(module("plain", false)).unwrap();
        registry.set(module("adm", true)).unwrap();
        registry
    }

    fn owner(name: &str) -> Owner {
        Owner::parse(name).unwrap()
    }

    fn allocate(owner: Option<&str>, on_behalf_of: Option<&str>) -> Request {
        Request::Allocate {
            ports: PortCount::try_from(1).unwrap(),
            protocol: Protocol::Tcp,
            keep_existing: false,
            target: Target {
                owner: owner.map(self::owner),
                on_behalf_of: on_behalf_of.map(|id| ModuleId::parse(id).unwrap()),
            },
        }
    }

    fn list(owner: Option<&str>) -> Request {
        Request::List { owner: owner.map(self::owner), protocol: None }
    }

    fn denied(name: Option<&str>) -> Authorization {
        Authorization::Forbidden(Error::PermissionDenied { owner: name.map(owner) })
    }

    fn granted(name: &str, demand: Option<Demand>) -> Authorization {
        Authorization::Granted(Subject::Owner { owner: owner(name), demand })
    }

    /// Every cell of the table above.
    #[test]
    #[allow(clippy::too_many_lines, reason = "a table is as long as it is")]
    fn the_table() {
        let registry = registry();
        let (anonymous, administrator) = (Caller::Anonymous, Caller::Administrator);
        let plain = Caller::Module(module("plain", false));
        let adm = Caller::Module(module("adm", true));
        let demand = Some(Demand { tcp: 4, udp: 2 });
        let node = || Authorization::Granted(Subject::Node);
        let missing = || {
            Authorization::Forbidden(Error::MissingRole {
                module_id: ModuleId::parse("plain").unwrap(),
                role: PORTSADM,
            })
        };
        let set = Request::SetModule { module: module("x", true) };
        let remove = Request::RemoveModule { module_id: ModuleId::parse("plain").unwrap() };
        let free = Request::Deallocate {
            protocol: Protocol::Tcp,
            part: Part::All,
            target: Target::default(),
        };
        let ensure = Request::Ensure {
            name: RangeName::parse("db").unwrap(),
            ports: PortCount::try_from(1).unwrap(),
            protocols: "tcp".parse().unwrap(),
            may_move: false,
            target: Target::default(),
        };
        let no_owner = || Authorization::Forbidden(Error::invalid("owner"));
        let rows = [
            (Request::WhoAmI, [node(), node(), node(), node()]),
            (Request::GetStatus, [denied(None), node(), node(), node()]),
            (list(None), [denied(None), granted("plain", demand), granted("adm", demand), node()]),
            (
                Request::Monitor,
                [denied(None), granted("plain", demand), granted("adm", demand), node()],
            ),
            (
                list(Some("plain")),
                [
                    denied(Some("plain")),
                    granted("plain", demand),
                    denied(Some("plain")),
                    granted("plain", None),
                ],
            ),
            (allocate(None, None), [denied(None), missing(), granted("adm", demand), no_owner()]),
            (
                allocate(Some("adm"), None),
                [
                    denied(Some("adm")),
                    denied(Some("adm")),
                    granted("adm", demand),
                    granted("adm", None),
                ],
            ),
            (
                allocate(Some("adm_rsync"), None),
                [
                    denied(Some("adm_rsync")),
                    denied(Some("adm_rsync")),
                    denied(Some("adm_rsync")),
                    granted("adm_rsync", None),
                ],
            ),
            (
                allocate(None, Some("adm")),
                [
                    denied(Some("adm")),
                    denied(Some("adm")),
                    denied(Some("adm")),
                    granted("adm", demand),
                ],
            ),
            (free, [denied(None), missing(), granted("adm", demand), no_owner()]),
            (ensure, [denied(None), missing(), granted("adm", demand), no_owner()]),
            (set, [denied(None), denied(None), denied(None), node()]),
            (Request::ListModules, [denied(None), denied(None), denied(None), node()]),
            (remove, [denied(None), denied(None), denied(None), node()]),
            (
                Request::Claim {
                    range: "7".parse().unwrap(),
                    protocols: "tcp".parse().unwrap(),
                    owner: owner("adm"),
                    name: None,
                },
                [denied(Some("adm")), denied(Some("adm")), denied(Some("adm")), node()],
            ),
            (
                Request::Transfer { from: owner("adm"), to: owner("plain") },
                [denied(Some("adm")), denied(Some("adm")), denied(Some("adm")), node()],
            ),
            (
                Request::Import { ranges: [].into(), dry_run: false, skip_invalid: false },
                [denied(None), denied(None), denied(None), node()],
            ),
            (Request::Backup, [denied(None), denied(None), denied(None), node()]),
            (
                Request::Reclaim { dry_run: true, older_than: Duration::ZERO },
                [denied(None), denied(None), denied(None), node()],
            ),
        ];
        for (request, expected) in rows {
            for (caller, expected) in
                [&anonymous, &plain, &adm, &administrator].iter().zip(expected)
            {
                let decision = authorize(caller, &request, &registry);
                assert_eq!(decision, expected, "{caller:?} asks {request:?}");
            }
        }
    }

    #[test]
    fn on_behalf_of_is_the_module_itself() {
        let registry = registry();
        let decide =
            |owner, id| authorize(&Caller::Administrator, &allocate(owner, Some(id)), &registry);
        let module_id = ModuleId::parse("plain").unwrap();
        let missing = Error::MissingRole { module_id, role: PORTSADM };
        assert_eq!(decide(None, "plain"), Authorization::Forbidden(missing));
        assert_eq!(decide(Some("plain"), "adm"), denied(Some("plain")));
        let module_id = ModuleId::parse("gone").unwrap();
        assert_eq!(
            decide(None, "gone"),
            Authorization::Forbidden(Error::UnknownModule { module_id })
        );
    }

    #[test]
    fn callers_are_who_the_registry_says() {
        let registry = registry();
        let resolve =
            |identity| Caller::resolve(&Peer { uid: UserId(7), pid: None, identity }, &registry);
        let user = |name| Identity::User(UserName::parse(name).unwrap());
        let agent = |id| Identity::Agent(ModuleId::parse(id).unwrap());
        assert_eq!(resolve(user("adm")), Caller::Module(module("adm", true)));
        assert_eq!(resolve(agent("plain")), Caller::Module(module("plain", false)));
        assert_eq!(resolve(user("stranger")), Caller::Anonymous);
        assert_eq!(resolve(agent("stranger")), Caller::Anonymous);
        assert_eq!(resolve(Identity::Anonymous), Caller::Anonymous);
        assert_eq!(resolve(Identity::Administrator), Caller::Administrator);
    }
}
