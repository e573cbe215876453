//! Ports that another user has bound than the one they are allocated to.

use std::collections::HashMap;
use std::ops::RangeInclusive;

use nix::unistd::{Uid, User};

use super::{Check, Report};
use crate::allocator::bound::{self, BoundSocket};
use crate::model::{Allocation, ModuleId, Owner, Protocol, UserId, UserName};
use crate::peer::subuid;
use crate::reply::ModuleEntry;

/// The user ids that a module's processes may have.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Ids(Vec<RangeInclusive<u32>>);

impl Ids {
    /// Where nobody can tell.
    fn all() -> Self {
        Self(vec![0..=u32::MAX])
    }

    fn has(&self, uid: UserId) -> bool {
        self.0.iter().any(|range| range.contains(&uid.0))
    }
}

/// Blocks: the user database is asked.
pub(super) fn check(allocations: &[Allocation], modules: &[ModuleEntry]) -> Report {
    let mut report = Report::default();
    let sockets = match bound::sockets() {
        Ok(sockets) => sockets,
        Err(error) => {
            report.remark(format!("the kernel does not tell which ports are bound: {error}"));
            return report;
        }
    };
    let subuid = subuid::read();
    let subuid = String::from_utf8_lossy(&subuid);
    let mut ids = HashMap::new();
    for module in modules {
        let found = User::from_name(module.unix_user.as_str());
        let of_module = found.map(|user| {
            ids_of(&module.unix_user, user.map(|user| UserId(user.uid.as_raw())), &subuid)
        });
        ids.insert(
            module.module_id.clone(),
            of_module.unwrap_or_else(|error| {
                let user = &module.unix_user;
                report.remark(format!("the user database does not tell who {user} is: {error}"));
                Ids::all()
            }),
        );
    }
    for one in foreign(allocations, &sockets, &ids) {
        report.find(Check::Foreign, one.message(&name(one.uid, &subuid)), one.advice());
    }
    report
}

/// The ids of a module with this Unix user. One whose user does not exist is rootful, and the
/// processes in its containers have any id of the host.
fn ids_of(name: &UserName, uid: Option<UserId>, subuid: &str) -> Ids {
    let Some(uid) = uid else { return Ids::all() };
    let mut ids = vec![uid.0..=uid.0];
    ids.extend(subuid::ids(subuid, name.as_str(), uid));
    Ids(ids)
}

/// A port that has been bound by somebody who does not hold it.
#[derive(Debug, PartialEq, Eq)]
struct Foreign<'a> {
    protocol: Protocol,
    port: u16,
    owner: &'a Owner,
    uid: UserId,
}

impl Foreign<'_> {
    fn message(&self, user: &str) -> String {
        let Self { protocol, port, owner, .. } = self;
        format!("{protocol} port {port}, which {owner} holds, is bound by {user}")
    }

    fn advice(&self) -> String {
        let option = match self.protocol {
            Protocol::Tcp => "-tlnp",
            Protocol::Udp => "-uanp",
        };
        format!(
            "`ss {option} 'sport = :{}'` shows the process: end it, or give it a port that nobody \
             holds",
            self.port
        )
    }
}

/// The sockets in allocated ranges whose users have no part in them.
fn foreign<'a>(
    allocations: &'a [Allocation],
    sockets: &[BoundSocket],
    ids: &HashMap<ModuleId, Ids>,
) -> Vec<Foreign<'a>> {
    let mut found = Vec::new();
    for BoundSocket { protocol, port, uid } in sockets.iter().copied() {
        let holds = |one: &&Allocation| one.protocol == protocol && one.range.has(port);
        if let Some(Allocation { owner, .. }) = allocations.iter().find(holds)
            && !may_bind(owner, uid, ids)
        {
            found.push(Foreign { protocol, port, owner, uid });
        }
    }
    found.sort_by_key(|one| (one.protocol, one.port, one.uid.0));
    // bound in both families
    found.dedup();
    found
}

/// Whether a user's processes may have ports of `owner`.
fn may_bind(owner: &Owner, uid: UserId, ids: &HashMap<ModuleId, Ids>) -> bool {
    let own = ModuleId::parse(owner.as_str()).ok();
    if let Some(ids) = own.and_then(|id| ids.get(&id)) {
        return ids.has(uid);
    }
    match owner.possible_modules().find_map(|id| ids.get(&id)) {
        // under such a name the node itself works for a module
        Some(ids) => uid == UserId::ROOT || ids.has(uid),
        // software outside the modules may be anybody's; an owner without a module is a finding of
        // another check
        None => true,
    }
}

/// Who that is, for people.
fn name(uid: UserId, subuid: &str) -> String {
    match User::from_uid(Uid::from_raw(uid.0)) {
        Ok(Some(user)) => format!("user {} (uid {uid})", user.name),
        _ => match subuid::owners(subuid, uid).next() {
            Some(subuid::Owner::Name(owner)) => format!("uid {uid}, subordinate to user {owner}"),
            Some(subuid::Owner::Uid(owner)) => format!("uid {uid}, subordinate to uid {owner}"),
            None => format!("uid {uid}"),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::held;
    use super::*;

    const SUBUID: &str = "m1:100000:65536\n1002:200000:65536\nroot:300000:10\n";

    fn user(name: &str, uid: Option<u32>) -> Ids {
        ids_of(&UserName::parse(name).unwrap(), uid.map(UserId), SUBUID)
    }

    fn modules() -> HashMap<ModuleId, Ids> {
        [
            ("mail1", user("m1", Some(1001))),
            ("mail1_x", user("m2", Some(1002))),
            ("traefik1", user("traefik1", None)),
            ("unknown1", Ids::all()),
        ]
        .into_iter()
        .map(|(id, ids)| (ModuleId::parse(id).unwrap(), ids))
        .collect()
    }

    #[test]
    fn a_user_has_its_own_id_and_its_subordinate_ones() {
        assert_eq!(user("m1", Some(1001)), Ids(vec![1001..=1001, 100_000..=165_535]));
        assert_eq!(user("m2", Some(1002)), Ids(vec![1002..=1002, 200_000..=265_535]));
        assert_eq!(user("m3", Some(1003)), Ids(vec![1003..=1003]));
        assert_eq!(user("traefik1", None), Ids::all());
    }

    #[test]
    fn owners_have_their_users() {
        let ids = modules();
        let may = |owner: &str, uid| may_bind(&Owner::parse(owner).unwrap(), UserId(uid), &ids);
        for (owner, own, others) in [
            ("mail1", &[1001, 100_000, 165_535][..], &[0, 1002, 99_999, 165_536, 200_000][..]),
            // a helper of the module with the longest name
            ("mail1_rsync", &[0, 1001, 100_000], &[1002, 200_000]),
            ("mail1_x_rsync", &[0, 1002, 200_000], &[1001]),
            // a module, whatever its name looks like
            ("mail1_x", &[1002], &[0, 1001]),
            ("traefik1", &[0, 8, 1001], &[]),
            ("traefik1_rsync", &[0, 8, 1001], &[]),
            ("unknown1", &[0, 7, u32::MAX], &[]),
            ("host/x", &[0, 7], &[]),
            ("host/mail1_x", &[0, 7], &[]),
            ("ghost1", &[0, 7], &[]),
            ("ghost1_rsync", &[0, 7], &[]),
        ] {
            for uid in own {
                assert!(may(owner, *uid), "{owner} {uid}");
            }
            for uid in others {
                assert!(!may(owner, *uid), "{owner} {uid}");
            }
        }
    }

    #[test]
    fn only_sockets_in_ranges_of_others_are_found_each_once() {
        let allocations = held(&[
            ("mail1", "tcp", 20000, 20003),
            ("mail1_x", "udp", 20000, 20003),
            ("host/a", "tcp", 20004, 20004),
        ]);
        let socket = |protocol, port, uid| BoundSocket { protocol, port, uid: UserId(uid) };
        let (tcp, udp) = (Protocol::Tcp, Protocol::Udp);
        let sockets = [
            socket(udp, 20001, 1001),
            socket(tcp, 20003, 0),
            socket(tcp, 20003, 1001),
            socket(tcp, 20000, 1002),
            socket(tcp, 20003, 0),
            socket(tcp, 20004, 7),
            socket(tcp, 19999, 7),
            socket(udp, 20004, 7),
        ];
        let found = foreign(&allocations, &sockets, &modules());
        let found: Vec<_> =
            found.iter().map(|one| one.message(&format!("uid {}", one.uid))).collect();
        assert_eq!(
            found,
            [
                "tcp port 20000, which mail1 holds, is bound by uid 1002",
                "tcp port 20003, which mail1 holds, is bound by uid 0",
                "udp port 20001, which mail1_x holds, is bound by uid 1001",
            ]
        );
    }

    #[test]
    fn users_are_named() {
        assert_eq!(name(UserId(0), SUBUID), "user root (uid 0)");
        let unknown = 4_000_000_000;
        assert_eq!(name(UserId(unknown), SUBUID), "uid 4000000000");
        let subuid = format!("{unknown}:{unknown}:1\nm1:{}:1\n", unknown + 1);
        assert_eq!(name(UserId(unknown), &subuid), "uid 4000000000, subordinate to uid 4000000000");
        assert_eq!(name(UserId(unknown + 1), &subuid), "uid 4000000001, subordinate to user m1");
    }
}
