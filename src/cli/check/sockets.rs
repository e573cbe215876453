//! The sockets of the socket units and their directories: that they are there, and who may use
//! them.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};

use super::units;
use super::{Check, Report};

/// A socket or a directory as it should be.
#[derive(Debug, Clone, Copy)]
struct Expected {
    path: &'static str,
    kind: Kind,
    /// The permission bits. The owner is root.
    mode: u32,
    /// The command that makes it.
    remedy: &'static str,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Directory,
    Socket,
    Other,
}

impl Kind {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Directory => "directory",
            Self::Socket => "socket",
            Self::Other => "file",
        }
    }
}

const DIRECTORY_REMEDY: &str = "systemd-tmpfiles --create portsd.conf";

/// What the units and the file in tmpfiles.d make.
const EXPECTED: [Expected; 6] = [
    Expected { path: "/run/portsd", kind: Kind::Directory, mode: 0o755, remedy: DIRECTORY_REMEDY },
    Expected {
        path: "/run/portsd-admin",
        kind: Kind::Directory,
        mode: 0o700,
        remedy: DIRECTORY_REMEDY,
    },
    Expected {
        path: "/run/portsd/org.nethserver.Ports",
        kind: Kind::Socket,
        mode: 0o666,
        remedy: "systemctl restart portsd-varlink.socket",
    },
    Expected {
        path: "/run/portsd/jsonrpc.sock",
        kind: Kind::Socket,
        mode: 0o666,
        remedy: "systemctl restart portsd-jsonrpc.socket",
    },
    Expected {
        path: "/run/portsd-admin/org.nethserver.Ports",
        kind: Kind::Socket,
        mode: 0o600,
        remedy: "systemctl restart portsd-admin-varlink.socket",
    },
    Expected {
        path: "/run/portsd-admin/jsonrpc.sock",
        kind: Kind::Socket,
        mode: 0o600,
        remedy: "systemctl restart portsd-admin-jsonrpc.socket",
    },
];

/// Where they are.
pub(super) fn paths() -> impl Iterator<Item = &'static str> {
    EXPECTED.iter().map(|expected| expected.path)
}

/// Looks at them where the units make them: where systemd does not run, the sockets are wherever
/// the service was told to bind them.
pub(super) fn check() -> Report {
    let mut report = Report::default();
    if !units::runs_systemd() {
        return report;
    }
    for expected in EXPECTED {
        match look(expected.path) {
            Ok(found) => report.add(judge(expected, found)),
            Err(error) => {
                report.remark(format!("{} can't be looked at: {error}", expected.path));
            }
        }
    }
    report
}

/// A socket or a directory as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Found {
    kind: Kind,
    owner: u32,
    mode: u32,
}

fn look(path: &str) -> io::Result<Option<Found>> {
    match fs::symlink_metadata(path) {
        Ok(found) => {
            let kind = found.file_type();
            let kind = match (kind.is_dir(), kind.is_socket()) {
                (true, _) => Kind::Directory,
                (_, true) => Kind::Socket,
                _ => Kind::Other,
            };
            Ok(Some(Found { kind, owner: found.uid(), mode: found.mode() & 0o7777 }))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn judge(expected: Expected, found: Option<Found>) -> Report {
    let mut report = Report::default();
    let Expected { path, kind, mode, remedy } = expected;
    let remedy = format!("`{remedy}`");
    match found {
        None => {
            report.find(Check::Units, format!("the {} {path} is missing", kind.as_str()), remedy);
        }
        Some(found) if found.kind != kind => report.find(
            Check::Units,
            format!("{path} is a {} and should be a {}", found.kind.as_str(), kind.as_str()),
            format!("move it away, then {remedy}"),
        ),
        Some(found) if (found.owner, found.mode) != (0, mode) => report.find(
            Check::Units,
            format!(
                "{path} belongs to uid {} with mode {:04o}, and should to root with {mode:04o}",
                found.owner, found.mode
            ),
            remedy,
        ),
        Some(_) => {}
    }
    report
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(expected: Expected, found: Option<Found>) -> Option<String> {
        let report = judge(expected, found);
        report.findings.first().map(|one| format!("{}: {}", one.message, one.advice))
    }

    #[test]
    fn kind_owner_and_mode_count() {
        for expected in EXPECTED {
            let Expected { path, kind, mode, remedy } = expected;
            let sound = Found { kind, owner: 0, mode };
            assert_eq!(said(expected, Some(sound)), None);
            let wrong = [
                None,
                Some(Found { kind: Kind::Other, ..sound }),
                Some(Found { owner: 7, ..sound }),
                Some(Found { mode: 0o777, ..sound }),
                Some(Found { mode: mode | 0o1000, ..sound }),
            ];
            for found in wrong {
                let said = said(expected, found).unwrap();
                assert!(said.contains(path) && said.contains(remedy), "{said}");
            }
        }
    }

    #[test]
    fn the_units_have_the_same_paths_and_modes() {
        let units = [
            include_str!("../../../systemd/portsd-varlink.socket"),
            include_str!("../../../systemd/portsd-jsonrpc.socket"),
            include_str!("../../../systemd/portsd-admin-varlink.socket"),
            include_str!("../../../systemd/portsd-admin-jsonrpc.socket"),
        ];
        let sockets: Vec<_> =
            EXPECTED.iter().filter(|expected| expected.kind == Kind::Socket).collect();
        assert_eq!(sockets.len(), units.len());
        for (unit, socket) in units.iter().zip(sockets) {
            let has = |line: String| assert!(unit.lines().any(|one| one == line), "{line}");
            has(format!("ListenStream={}", socket.path));
            has(format!("SocketMode={:04o}", socket.mode));
        }
        let directories = include_str!("../../../systemd/tmpfiles.d/portsd.conf");
        for expected in EXPECTED.iter().filter(|expected| expected.kind == Kind::Directory) {
            let mode = format!("{:04o}", expected.mode);
            let line = ["d", expected.path, &mode, "root", "root"];
            let is_there =
                directories.lines().any(|one| one.split_ascii_whitespace().take(5).eq(line));
            assert!(is_there, "{line:?}");
        }
    }

    #[test]
    fn files_are_told_apart() {
        let directory = tempfile::TempDir::new().unwrap();
        let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
        let kind = |name: &str| look(&path(name)).unwrap().map(|found| found.kind);
        let _listener = std::os::unix::net::UnixListener::bind(path("socket")).unwrap();
        fs::write(path("file"), "").unwrap();
        std::os::unix::fs::symlink(path("socket"), path("link")).unwrap();
        assert_eq!(kind("."), Some(Kind::Directory));
        assert_eq!(kind("socket"), Some(Kind::Socket));
        assert_eq!(kind("file"), Some(Kind::Other));
        assert_eq!(kind("link"), Some(Kind::Other));
        assert_eq!(kind("none"), None);
        let own = nix::unistd::geteuid().as_raw();
        assert_eq!(look(&path("file")).unwrap().unwrap().owner, own);
    }
}
