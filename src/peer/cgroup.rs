//! What a cgroup path tells of the process in it.

use crate::model::ModuleId;

/// Where a process runs, as far as it matters for who it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Place {
    /// A container that the superuser started: its user ids only look like those of the host's
    /// users.
    RootfulContainer,
    /// The agent service of a rootful module.
    Agent(ModuleId),
    /// Anywhere else, a rootless container included.
    Elsewhere,
}

/// Reads the text of `/proc/<pid>/cgroup`: the unified hierarchy and, where the host still has
/// it, the service manager's own.
pub(super) fn classify(text: &str) -> Place {
    let paths = || {
        text.lines().filter_map(|line| {
            line.strip_prefix("0::")
                .or_else(|| line.split_once(":name=systemd:").map(|(_, path)| path))
        })
    };
    if paths().any(is_rootful_container) {
        return Place::RootfulContainer;
    }
    paths().find_map(agent).map_or(Place::Elsewhere, Place::Agent)
}

fn is_rootful_container(path: &str) -> bool {
    let mut segments = path.split('/').filter(|segment| !segment.is_empty());
    if path.starts_with("/machine.slice/") {
        return true;
    }
    !is_of_a_user(path) && segments.any(is_container)
}

/// Whether an ordinary user's own service manager keeps this cgroup, and not only a login session of
/// that user, which may be the superuser's by now. The superuser has a manager too, and containers
/// in it are rootful all the same.
fn is_of_a_user(path: &str) -> bool {
    let parts = path
        .strip_prefix("/user.slice/user-")
        .and_then(|rest| rest.split_once(".slice/user@"))
        .and_then(|(slice, rest)| Some((slice, rest.split_once(".service")?.0)));
    parts.is_some_and(|(slice, manager)| {
        slice == manager && slice.parse::<u32>().is_ok_and(|uid| uid != 0)
    })
}

/// The names that container engines give: podman (scopes, `--cgroups=split` below a service, and
/// its parent without systemd), docker, CRI-O, containerd, LXC.
fn is_container(segment: &str) -> bool {
    let is_scope = segment.strip_suffix(".scope").is_some();
    let is_service = segment.strip_suffix(".service").is_some();
    (segment.starts_with("libpod") && !is_service)
        || segment == "docker"
        || segment.starts_with("lxc.payload")
        || (is_scope
            && ["docker-", "crio-", "cri-containerd-"]
                .iter()
                .any(|engine| segment.starts_with(engine)))
}

/// The module whose agent runs here. Only the system's own manager can place a process there: below
/// its slices, but not below a service, which may keep cgroups of its own choice. The core's two agents
/// are not modules.
fn agent(path: &str) -> Option<ModuleId> {
    let mut segments = path.strip_prefix("/system.slice/")?.split('/');
    let unit = segments.next_back()?;
    if !segments.all(|segment| segment.strip_suffix(".slice").is_some()) {
        return None;
    }
    let id = unit.strip_prefix("agent@")?.strip_suffix(".service")?;
    if matches!(id, "node" | "cluster") {
        return None;
    }
    ModuleId::parse(id).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(path: &str) -> Place {
        classify(&format!("0::{path}\n"))
    }

    #[test]
    fn rootful_containers_are_found() {
        for path in [
            "/machine.slice/libpod-0123abcd.scope",
            "/machine.slice/libpod-0123abcd.scope/container",
            "/machine.slice/machine-web.scope/payload",
            "/libpod_parent/libpod-0123abcd",
            "/system.slice/web.service/libpod-payload-0123abcd",
            "/user.slice/user-0.slice/user@0.service/user.slice/libpod-0123abcd.scope",
            "/user.slice/user-1000.slice/session-3.scope/libpod-payload-0123abcd",
            "/user.slice/user-1000.slice/user@1001.service/user.slice/libpod-0123abcd.scope",
            "/system.slice/docker-0123abcd.scope",
            "/docker/0123abcd",
        ] {
            assert_eq!(place(path), Place::RootfulContainer, "{path}");
        }
    }

    #[test]
    fn rootless_containers_and_services_are_elsewhere() {
        for path in [
            "/",
            "/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-0123abcd.scope",
            "/user.slice/user-1000.slice/user@1000.service/app.slice/web.service/libpod-payload-01",
            "/user.slice/user-1000.slice/session-3.scope",
            "/system.slice/postfix.service",
            "/system.slice/docker-registry.service",
            "/system.slice/libpod-cleaner.service",
        ] {
            assert_eq!(place(path), Place::Elsewhere, "{path}");
        }
    }

    #[test]
    fn agents_of_rootful_modules_are_found() {
        let samba = Place::Agent(ModuleId::parse("samba1").unwrap());
        assert_eq!(place("/system.slice/system-agent.slice/agent@samba1.service"), samba);
        assert_eq!(place("/system.slice/agent@samba1.service"), samba);
        for path in [
            "/system.slice/system-agent.slice/agent@node.service",
            "/system.slice/system-agent.slice/agent@cluster.service",
            "/system.slice/system-agent.slice/agent@.service",
            "/system.slice/system-agent.slice/agent@a b.service",
            "/system.slice/system-agent.slice/agent@samba1.service/child",
            "/system.slice/any.service/agent@samba1.service",
            "/system.slice/any.service/payload/system.slice/agent@samba1.service",
            "/system.slice/any.service/any.slice/agent@samba1.service",
            "/system.slice/system-agent.slice/agent@samba1.scope",
            "/system.slice/myagent@samba1.service",
            "/user.slice/user-1000.slice/user@1000.service/app.slice/agent@samba1.service",
        ] {
            assert_eq!(place(path), Place::Elsewhere, "{path}");
        }
    }

    #[test]
    fn both_hierarchies_count() {
        let text = "12:pids:/x\n1:name=systemd:/machine.slice/libpod-01.scope\n0::/\n";
        assert_eq!(classify(text), Place::RootfulContainer);
        let text = "4:memory:/machine.slice/libpod-01.scope\n0::/system.slice/agent@a1.service\n";
        assert_eq!(classify(text), Place::Agent(ModuleId::parse("a1").unwrap()));
        assert_eq!(classify(""), Place::Elsewhere);
    }
}
