//! Which socket to call, and what to do about one that can't be called.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use nix::unistd::geteuid;

/// Where modules call.
pub(super) const MODULE_SOCKET: &str = "/run/portsd/org.nethserver.Ports";
/// Where administrators call.
pub(super) const ADMIN_SOCKET: &str = "/run/portsd-admin/org.nethserver.Ports";

/// Names a socket for every call of an environment.
const VARIABLE: &str = "PORTSD_SOCKET";

/// The socket that the command line names, else the environment, else the one for this user.
pub(super) fn choose(option: Option<PathBuf>) -> PathBuf {
    decide(option, std::env::var_os(VARIABLE), geteuid().is_root())
}

fn decide(option: Option<PathBuf>, variable: Option<OsString>, is_root: bool) -> PathBuf {
    let default = if is_root { ADMIN_SOCKET } else { MODULE_SOCKET };
    option
        .or_else(|| variable.filter(|path| !path.is_empty()).map(PathBuf::from))
        .unwrap_or_else(|| PathBuf::from(default))
}

/// What to do where there is no socket.
pub(super) fn missing(path: &Path) -> String {
    match unit(path) {
        Some(unit) if path == Path::new(ADMIN_SOCKET) => format!(
            "start it with `systemctl restart {unit}`. This is where administrators call; modules, \
             as root too, call with --socket {MODULE_SOCKET}"
        ),
        Some(unit) => format!(
            "start it with `systemctl restart {unit}`. In a container, the host's directory \
             /run/portsd has to be mounted in the same place"
        ),
        None => "check the path, and whether portsd runs".to_owned(),
    }
}

/// What to do where nobody listens.
pub(super) fn dead(path: &Path) -> String {
    match unit(path) {
        Some(unit) => format!(
            "start it anew with `systemctl restart {unit}`, and see `journalctl -u portsd` for why \
             it ended. In a container, mount the directory /run/portsd, not the socket in it"
        ),
        None => "the file was left over when portsd ended; start portsd again".to_owned(),
    }
}

/// What to do where this user may not connect.
pub(super) fn forbidden(path: &Path) -> String {
    if path == Path::new(MODULE_SOCKET) {
        "everybody may by its mode: check the modes with `ls -la /run/portsd`, and the audit log \
         for a denial by SELinux"
            .to_owned()
    } else {
        format!(
            "administrators' sockets are root's: try again as root, or, as a module, with --socket \
             {MODULE_SOCKET}"
        )
    }
}

/// The unit that makes a socket.
fn unit(path: &Path) -> Option<&'static str> {
    match path.to_str()? {
        MODULE_SOCKET => Some("portsd-varlink.socket"),
        ADMIN_SOCKET => Some("portsd-admin-varlink.socket"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_choice_counts() {
        let choose = |option: Option<&str>, variable: Option<&str>, is_root| {
            let path = decide(option.map(PathBuf::from), variable.map(OsString::from), is_root);
            path.to_str().unwrap().to_owned()
        };
        assert_eq!(choose(Some("a"), Some("b"), true), "a");
        assert_eq!(choose(None, Some("b"), true), "b");
        for variable in [None, Some("")] {
            assert_eq!(choose(None, variable, true), ADMIN_SOCKET);
            assert_eq!(choose(None, variable, false), MODULE_SOCKET);
        }
    }
}
