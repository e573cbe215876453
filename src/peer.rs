//! Who is at the other end of a connection, by the word of the kernel.
//!
//! Credentials are those of the moment of connecting. What the peer says of itself counts for
//! nothing, and nothing is read from a process that may have taken over the peer's pid.

mod cgroup;
pub(crate) mod subuid;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout};
use nix::sys::socket::{getsockopt, sockopt};
use nix::unistd::{Uid, User};

use crate::model::{ModuleId, UserId, UserName};

/// The peer of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// Its user id on the host, when it connected.
    pub uid: UserId,
    /// Its process id on the host, when it connected. For the journal only.
    pub pid: Option<i32>,
    /// Who that is.
    pub identity: Identity,
}

/// Who a peer is, before the registry is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Identity {
    /// The superuser, or the service's own user, on an admin socket.
    Administrator,
    /// The agent of a rootful module.
    Agent(ModuleId),
    /// A user of the host, in person or through a subordinate user id.
    User(UserName),
    /// Nobody that can be told.
    Anonymous,
}

/// Which kind of socket the peer came in by. The path alone decides what may be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scope {
    /// A socket for modules. Nobody there is an administrator.
    Module,
    /// A socket for administrators.
    Admin,
}

/// What the kernel recorded when the peer connected.
#[derive(Debug)]
pub struct Credentials {
    uid: UserId,
    pid: Option<i32>,
    process: Process,
}

/// How the peer's process can be told from another one that gets its pid.
#[derive(Debug)]
enum Process {
    /// By a descriptor that stands for it.
    Pidfd(OwnedFd),
    /// By its start time only: the kernel is older than 6.5.
    StartTime,
    /// Not at all: it has ended.
    Gone,
}

impl Credentials {
    /// Reads the peer credentials of a connected Unix socket.
    pub fn of(socket: &impl AsFd) -> nix::Result<Self> {
        let credentials = getsockopt(socket, sockopt::PeerCredentials)?;
        let process = match getsockopt(socket, sockopt::PeerPidfd) {
            Ok(fd) => Process::Pidfd(fd),
            Err(Errno::ENOPROTOOPT) => Process::StartTime,
            // kernels differ in how they say that nobody is there any more
            Err(Errno::EINVAL | Errno::ENODATA | Errno::ESRCH) => Process::Gone,
            Err(error) => return Err(error),
        };
        // 0: the peer lives in a pid namespace that can't be seen from here
        let pid = Some(credentials.pid()).filter(|pid| *pid > 0);
        Ok(Self { uid: UserId(credentials.uid()), pid, process })
    }

    /// The peer's user id on the host.
    #[must_use]
    pub const fn uid(&self) -> UserId {
        self.uid
    }

    /// The peer's process id on the host, if it can be seen from here.
    #[must_use]
    pub const fn pid(&self) -> Option<i32> {
        self.pid
    }

    /// The peer's cgroup membership as `/proc` has it, or `None` if the peer is gone or its pid
    /// may have become another process's.
    fn cgroup(&self) -> Option<String> {
        let pid = self.pid?;
        let read = || std::fs::read_to_string(format!("/proc/{pid}/cgroup")).ok();
        match &self.process {
            Process::Pidfd(pidfd) => read().filter(|_| is_alive(pidfd.as_fd())),
            Process::StartTime => {
                let started = start_time(pid)?;
                read().filter(|_| start_time(pid) == Some(started))
            }
            Process::Gone => None,
        }
    }
}

/// Whether the process behind `pidfd` has not ended yet, so that its pid is still its own.
fn is_alive(pidfd: BorrowedFd<'_>) -> bool {
    let mut polled = [PollFd::new(pidfd, PollFlags::POLLIN)];
    matches!(nix::poll::poll(&mut polled, PollTimeout::ZERO), Ok(0))
}

/// When the process began, in the kernel's clock ticks: the 22nd field of its `stat`, counted
/// from behind the command name, which may hold anything.
fn start_time(pid: i32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_ascii_whitespace().nth(19)?.parse().ok()
}

/// Who a peer is, and whom its connections count against.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identified {
    /// Who the peer is.
    pub identity: Identity,
    /// Who answers for it.
    pub account: Account,
}

/// Whom connections count against.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Account {
    /// A user of the host, in person or through a subordinate user id.
    User(UserId),
    /// All who are nobody in particular, together: a rootful container can take any number of user
    /// ids.
    Nobody,
}

/// Finds out who the peer is. Blocks: it reads files and asks the user database.
#[must_use]
pub fn identify(credentials: &Credentials, scope: Scope) -> Identified {
    let uid = credentials.uid();
    let nobody = Identified { identity: Identity::Anonymous, account: Account::Nobody };
    let known = |identity, uid| Identified { identity, account: Account::User(uid) };
    match scope {
        Scope::Admin if uid == UserId::ROOT || uid == own_uid() => {
            known(Identity::Administrator, uid)
        }
        Scope::Admin => nobody,
        Scope::Module if uid == overflow_uid() => nobody,
        Scope::Module => match credentials.cgroup().map(|text| cgroup::classify(&text)) {
            None | Some(cgroup::Place::RootfulContainer) => nobody,
            Some(cgroup::Place::Agent(id)) if uid == UserId::ROOT => {
                known(Identity::Agent(id), uid)
            }
            Some(_) if uid == UserId::ROOT => nobody,
            Some(_) => match user(uid, &HostUsers, subuid::read) {
                Some((name, owner)) => known(Identity::User(name), owner),
                None => nobody,
            },
        },
    }
}

fn own_uid() -> UserId {
    UserId(Uid::effective().as_raw())
}

/// The user id that the kernel shows for one it can't map; no user, whatever has that number.
fn overflow_uid() -> UserId {
    const DEFAULT: u32 = 65534;
    let text = std::fs::read_to_string("/proc/sys/kernel/overflowuid").unwrap_or_default();
    UserId(text.trim().parse().unwrap_or(DEFAULT))
}

/// The user database, as far as it matters here.
trait Users {
    fn by_uid(&self, uid: UserId) -> LookUp;
    fn by_name(&self, name: &str) -> LookUp;
}

/// What the user database says.
#[derive(Debug, Clone, PartialEq, Eq)]
enum LookUp {
    /// There is such a user.
    Known(UserId, UserName),
    /// There is such a user, of a name that no module can have.
    Foreign,
    /// There is no such user.
    Unknown,
    /// It can't be told. Whoever it is gets less, never more.
    Failed,
}

/// The host's user database, through NSS. Any call may block.
struct HostUsers;

impl Users for HostUsers {
    fn by_uid(&self, uid: UserId) -> LookUp {
        LookUp::from(User::from_uid(Uid::from_raw(uid.0)))
    }

    fn by_name(&self, name: &str) -> LookUp {
        LookUp::from(User::from_name(name))
    }
}

impl From<nix::Result<Option<User>>> for LookUp {
    fn from(found: nix::Result<Option<User>>) -> Self {
        match found {
            Ok(Some(user)) => match UserName::parse(&user.name) {
                Ok(name) => Self::Known(UserId(user.uid.as_raw()), name),
                Err(_) => Self::Foreign,
            },
            Ok(None) => Self::Unknown,
            Err(error) => {
                tracing::warn!(%error, "the user database can't be asked");
                Self::Failed
            }
        }
    }
}

/// The user with that id, or the one user to whom the id is subordinate, and that user's own id.
fn user(
    uid: UserId,
    users: &impl Users,
    subuid: impl FnOnce() -> Vec<u8>,
) -> Option<(UserName, UserId)> {
    match users.by_uid(uid) {
        LookUp::Known(uid, name) => return Some((name, uid)),
        LookUp::Foreign | LookUp::Failed => return None,
        LookUp::Unknown => {}
    }
    let text = subuid();
    let text = String::from_utf8_lossy(&text);
    let mut owners: Vec<LookUp> = subuid::owners(&text, uid)
        .map(|owner| match owner {
            subuid::Owner::Name(name) => users.by_name(name),
            subuid::Owner::Uid(uid) => users.by_uid(uid),
        })
        // lines of users that there are not say nothing
        .filter(|owner| *owner != LookUp::Unknown)
        .collect();
    owners.dedup();
    match &owners[..] {
        // the superuser's own ranges belong to rootful containers, which are nobody
        [LookUp::Known(owner, name)] if *owner != UserId::ROOT => Some((name.clone(), *owner)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Table(&'static [(u32, &'static str)]);

    impl Table {
        fn look_up(&self, wanted: impl Fn(u32, &str) -> bool) -> LookUp {
            match self.0.iter().find(|(uid, name)| wanted(*uid, name)) {
                Some((_, "broken")) => LookUp::Failed,
                Some((uid, name)) => UserName::parse(name)
                    .map_or(LookUp::Foreign, |name| LookUp::Known(UserId(*uid), name)),
                None => LookUp::Unknown,
            }
        }
    }

    impl Users for Table {
        fn by_uid(&self, uid: UserId) -> LookUp {
            self.look_up(|known, _| known == uid.0)
        }

        fn by_name(&self, name: &str) -> LookUp {
            self.look_up(|_, known| known == name)
        }
    }

    const USERS: Table = Table(&[
        (0, "root"),
        (1000, "m1"),
        (1001, "m2"),
        (100_050, "late"),
        (100_060, "bob@example.org"),
        (100_070, "broken"),
    ]);

    fn named(uid: u32, subuid: &str) -> Option<(String, u32)> {
        user(UserId(uid), &USERS, || subuid.as_bytes().to_vec())
            .map(|(name, owner)| (name.to_string(), owner.0))
    }

    #[test]
    fn users_come_before_subordinate_ranges() {
        let subuid = "m1:100000:65536\n";
        assert_eq!(named(1000, subuid), Some(("m1".into(), 1000)));
        assert_eq!(named(100_999, subuid), Some(("m1".into(), 1000)));
        assert_eq!(named(100_050, subuid), Some(("late".into(), 100_050)));
        assert_eq!(named(99_999, subuid), None);
        assert_eq!(named(165_535, subuid), Some(("m1".into(), 1000)));
        assert_eq!(named(165_536, subuid), None);
    }

    #[test]
    fn a_range_may_be_given_by_name_or_number() {
        assert_eq!(named(100_001, "1000:100000:10\n"), Some(("m1".into(), 1000)));
        assert_eq!(named(100_001, "1000:100000:10\nm1:100000:10\n"), Some(("m1".into(), 1000)));
    }

    #[test]
    fn a_range_of_two_owners_is_nobodys() {
        assert_eq!(named(100_005, "m1:100000:10\nm2:100005:10\n"), None);
        assert_eq!(named(100_005, "m1:100000:10\nm2:100005:10\nm1:100000:9\n"), None);
        assert_eq!(named(100_004, "m1:100000:10\nm2:100005:10\n"), Some(("m1".into(), 1000)));
    }

    #[test]
    fn ranges_of_strangers_are_skipped() {
        let found = Some(("m2".into(), 1001));
        assert_eq!(named(100_005, "ghost:100000:10\n4242:100000:10\nm2:100000:10\n"), found);
    }

    #[test]
    fn roots_ranges_are_nobodys() {
        assert_eq!(named(100_005, "root:100000:10\n"), None);
        assert_eq!(named(100_005, "0:100000:10\nm2:100000:10\n"), None);
    }

    #[test]
    fn a_user_who_cant_be_a_module_is_nobody_else() {
        // in person, whoever has the range around
        assert_eq!(named(100_060, "m1:100000:65536\n"), None);
        assert_eq!(named(100_070, "m1:100000:65536\n"), None);
        // and as one of two owners
        for owner in ["bob@example.org", "100060", "broken", "100070"] {
            let subuid = format!("{owner}:100000:10\nm1:100000:10\n");
            assert_eq!(named(100_005, &subuid), None, "{owner}");
        }
    }

    #[test]
    fn this_process_has_a_start_time() {
        let pid = i32::try_from(std::process::id()).unwrap();
        assert!(start_time(pid).unwrap() > 0);
        assert_eq!(start_time(pid), start_time(pid));
    }
}
