//! The SELinux labels of what belongs to the service.

use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::lgetxattr;
use rustix::io::Errno;

use super::sockets;
use super::{Check, Report};
use crate::daemon::DEFAULT_STATE_DIRECTORY;
use crate::store;

/// There is such a file where SELinux is enabled.
const ENABLED: &str = "/sys/fs/selinux/enforce";

/// Where the policy has the program that becomes the service.
const PROGRAM: &str = "/usr/sbin/portsd";

/// Which labels there should be, as the policy module says it.
const CONTEXTS: &str = include_str!("../../../selinux/portsd.fc");

/// The longest label that is read. The kernel's own limit is a page.
const LABEL_BYTES_MAX: usize = 4096;

pub(super) fn check(state: &Path) -> Report {
    let mut report = Report::default();
    if !Path::new(ENABLED).exists() {
        report.remark("SELinux is off here: labels are not looked at");
        return report;
    }
    for subject in subjects(state) {
        match read(&subject.path) {
            Ok(Some(label)) => report.add(judge(&subject, &label)),
            Ok(None) => {}
            Err(error) => report
                .remark(format!("the label of {} can't be read: {error}", subject.path.display())),
        }
    }
    report
}

/// A file whose label matters.
#[derive(Debug)]
struct Subject {
    path: PathBuf,
    /// The path under which the policy knows it.
    known_as: PathBuf,
}

/// Everything that may be there. A state directory in another place is for the policy what the one
/// in the usual place would be.
fn subjects(state: &Path) -> Vec<Subject> {
    let usual = Path::new(DEFAULT_STATE_DIRECTORY);
    let mut subjects = vec![Subject { path: state.to_owned(), known_as: usual.to_owned() }];
    for suffix in ["", "-wal", "-shm"] {
        let name = format!("{}{suffix}", store::FILE_NAME);
        subjects.push(Subject { path: state.join(&name), known_as: usual.join(&name) });
    }
    let elsewhere = sockets::paths().chain([PROGRAM]).map(PathBuf::from);
    subjects.extend(elsewhere.map(|path| Subject { known_as: path.clone(), path }));
    subjects
}

/// The label of a file; nothing where there is no such file. A file without a label has an empty
/// one.
fn read(path: &Path) -> io::Result<Option<Vec<u8>>> {
    let mut label = vec![0; LABEL_BYTES_MAX];
    match lgetxattr(path, "security.selinux", &mut label[..]) {
        Ok(length) => {
            label.truncate(length);
            Ok(Some(label))
        }
        Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(Some(Vec::new())),
        Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn judge(subject: &Subject, label: &[u8]) -> Report {
    let mut report = Report::default();
    let found = type_of(label);
    let Some(expected) = expected(&subject.known_as) else { return report };
    if found.as_deref() != Some(expected) {
        let found = found.map_or("no label".to_owned(), |found| format!("the label {found}"));
        report.find(
            Check::Labels,
            format!("{} has {found} instead of {expected}", subject.path.display()),
            subject.remedy(),
        );
    }
    report
}

impl Subject {
    fn remedy(&self) -> String {
        format!(
            "{}`restorecon -Rv {}`; if that changes nothing, the policy module is not loaded: \
             `semodule -i portsd.pp`, and again",
            self.equivalence().unwrap_or_default(),
            self.path.display()
        )
    }

    /// What makes a state directory in another place known to the policy.
    fn equivalence(&self) -> Option<String> {
        if self.path == self.known_as {
            return None;
        }
        let is_directory = self.known_as == Path::new(DEFAULT_STATE_DIRECTORY);
        let state = if is_directory { &self.path } else { self.path.parent()? };
        Some(format!(
            "`semanage fcontext -a -e {DEFAULT_STATE_DIRECTORY} {}`, then ",
            state.display()
        ))
    }
}

/// The type in `user:role:type:level`, which the kernel may end with a zero byte.
fn type_of(label: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(label);
    text.trim_end_matches('\0').split(':').nth(2).map(str::to_owned)
}

/// The type that the policy has for a path.
fn expected(path: &Path) -> Option<&'static str> {
    CONTEXTS
        .lines()
        .filter_map(Context::parse)
        .find(|context| context.covers(path))
        .map(|context| context.kind)
}

/// A line of the policy's file of contexts.
#[derive(Debug, PartialEq, Eq)]
struct Context<'a> {
    path: &'a str,
    /// Whether what is under the path has the same label.
    is_tree: bool,
    /// The type.
    kind: &'a str,
}

impl<'a> Context<'a> {
    /// Takes the two kinds of pattern that the file has: a path, and a path with all that is under
    /// it. Comments and blank lines are none.
    fn parse(line: &'a str) -> Option<Self> {
        let pattern = line.split_ascii_whitespace().next().filter(|word| word.starts_with('/'))?;
        let (_, context) = line.split_once("gen_context(")?;
        let kind = context.split(':').nth(2)?;
        let kind = kind.split([',', ')']).next()?;
        let tree = pattern.strip_suffix("(/.*)?");
        Some(Self { path: tree.unwrap_or(pattern), is_tree: tree.is_some(), kind })
    }

    fn covers(&self, path: &Path) -> bool {
        path == Path::new(self.path) || self.is_tree && path.starts_with(self.path)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use tempfile::TempDir;

    use super::*;

    #[test]
    fn every_line_of_the_policy_is_understood() {
        let lines = CONTEXTS.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        for line in lines {
            let context = Context::parse(line).unwrap_or_else(|| panic!("{line}"));
            let is_plain = |c: char| c.is_ascii_alphanumeric() || "/-_".contains(c);
            assert!(context.path.chars().all(is_plain), "{line}");
            assert!(context.kind.ends_with("_t"), "{line}");
        }
    }

    #[test]
    fn everything_that_is_looked_at_has_a_label_in_the_policy() {
        for subject in subjects(Path::new("/elsewhere")) {
            assert!(expected(&subject.known_as).is_some(), "{subject:?}");
        }
        let expected = |path| expected(Path::new(path));
        assert_eq!(expected("/usr/sbin/portsd"), Some("portsd_exec_t"));
        assert_eq!(expected("/var/lib/portsd"), Some("portsd_var_lib_t"));
        assert_eq!(expected("/var/lib/portsd/ports.sqlite-wal"), Some("portsd_var_lib_t"));
        assert_eq!(expected("/run/portsd/jsonrpc.sock"), Some("portsd_var_run_t"));
        assert_eq!(expected("/run/portsd-admin"), Some("portsd_admin_var_run_t"));
        assert_eq!(expected("/run/portsd-admin/jsonrpc.sock"), Some("portsd_admin_var_run_t"));
        for stranger in ["/usr/sbin/portsd/x", "/usr/sbin/portsdx", "/var/lib/portsd2", "/run"] {
            assert_eq!(expected(stranger), None, "{stranger}");
        }
    }

    #[test]
    fn types_are_read_out_of_labels() {
        assert_eq!(type_of(b"system_u:object_r:var_run_t:s0\0").as_deref(), Some("var_run_t"));
        assert_eq!(type_of(b"u:r:t:s0-s0:c0.c1023").as_deref(), Some("t"));
        assert_eq!(type_of(b"u:r:t").as_deref(), Some("t"));
        assert_eq!(type_of(b""), None);
        assert_eq!(type_of(b"u:r"), None);
    }

    fn said(path: &str, known_as: &str, label: &[u8]) -> Option<String> {
        let report = judge(&Subject { path: path.into(), known_as: known_as.into() }, label);
        report.findings.first().map(|one| format!("{}. {}", one.message, one.advice))
    }

    #[test]
    fn wrong_labels_are_told_with_the_command_that_mends_them() {
        let path = "/run/portsd/jsonrpc.sock";
        assert_eq!(said(path, path, b"system_u:object_r:portsd_var_run_t:s0\0"), None);
        let wrong = said(path, path, b"system_u:object_r:var_run_t:s0\0").unwrap();
        assert!(wrong.contains("the label var_run_t instead of portsd_var_run_t. `restorecon -Rv /run/portsd/jsonrpc.sock`"), "{wrong}");
        assert!(said(path, path, b"").unwrap().contains("no label"));
        for (path, known_as) in
            [("/data", "/var/lib/portsd"), ("/data/ports.sqlite", "/var/lib/portsd/ports.sqlite")]
        {
            let wrong = said(path, known_as, b"u:r:default_t:s0").unwrap();
            assert!(wrong.contains("`semanage fcontext -a -e /var/lib/portsd /data`"), "{wrong}");
        }
    }

    #[test]
    fn root_labels_are_read_from_files() {
        if !nix::unistd::geteuid().is_root() {
            eprintln!("left out: needs root");
            return;
        }
        let directory = TempDir::new().unwrap();
        let path = |name: &str| directory.path().join(name);
        let set = |path: &Path, label: &[u8]| {
            use rustix::fs::{XattrFlags, lsetxattr};
            lsetxattr(path, "security.selinux", label, XattrFlags::empty()).unwrap();
        };
        assert_eq!(read(&path("none")).unwrap(), None);
        assert_eq!(read(&path("none/none")).unwrap(), None);
        fs::write(path("file"), "").unwrap();
        set(&path("file"), b"system_u:object_r:portsd_var_lib_t:s0\0");
        let label = read(&path("file")).unwrap().unwrap();
        assert_eq!(type_of(&label).as_deref(), Some("portsd_var_lib_t"));
        // a link has a label of its own
        std::os::unix::fs::symlink(path("file"), path("link")).unwrap();
        set(&path("link"), b"system_u:object_r:tmp_t:s0\0");
        let label = read(&path("link")).unwrap().unwrap();
        assert_eq!(type_of(&label).as_deref(), Some("tmp_t"));
    }
}
