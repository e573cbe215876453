//! The README's examples, as a module's author would run them: as a module, on its socket.

mod support;

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use nix::unistd::{User, geteuid};
use support::{Daemon, M1};

const README: &str = include_str!("../README.md");

/// A daemon with one module that may have as much as the examples ask for.
struct Module {
    daemon: Daemon,
    /// The user that it runs as, where that is not who runs the tests.
    uid: Option<u32>,
}

impl Module {
    fn register() -> Self {
        let daemon = Daemon::start();
        let is_root = geteuid().is_root();
        let name = if is_root {
            "m1".to_owned()
        } else {
            User::from_uid(geteuid()).unwrap().expect("the user has a name").name
        };
        daemon.set_module(&name, 10, 40, true);
        // by another program, since one that this process has open for writing can't be started
        let copied = Command::new("cp")
            .arg(env!("CARGO_BIN_EXE_portsctl"))
            .arg(daemon.path("portsctl"))
            .status();
        assert!(copied.unwrap().success());
        Self { daemon, uid: is_root.then_some(M1) }
    }

    /// Runs a script by a shell in a directory of the module's.
    fn shell(&self, script: &str) -> String {
        let home = self.daemon.path("home");
        if !home.exists() {
            fs::create_dir(&home).unwrap();
            nix::unistd::chown(&home, self.uid.map(Into::into), None).unwrap();
        }
        let mut command = match self.uid {
            None => Command::new("sh"),
            Some(uid) => {
                let mut command = Command::new("setpriv");
                command.args([format!("--reuid={uid}").as_str(), "--clear-groups", "sh"]);
                command
            }
        };
        let path = std::env::var("PATH").unwrap();
        command.env("PATH", format!("{}:{path}", self.daemon.directory.path().display()));
        command.env("PORTSD_SOCKET", self.daemon.path("varlink"));
        stdout(command.args(["-c", script]).current_dir(home))
    }

    /// Runs a script by a Python that has the package, which is imported first: the module's user
    /// may not be able to read it. All that is changed in the script is the socket's path.
    fn python(&self, python: &Path, script: &str) -> String {
        let become_user = "import os, sys, varlink\n\
                           if sys.argv[1]: os.setresuid(*[int(sys.argv[1])] * 3)\n\
                           exec(sys.argv[2])";
        let given = "/run/portsd/{PORTS}";
        assert!(script.contains(given));
        let script = script.replace(given, &self.daemon.path("varlink").display().to_string());
        let uid = self.uid.map_or(String::new(), |uid| uid.to_string());
        stdout(Command::new(python).args(["-c", become_user, &uid, &script]))
    }

    fn rows(&self) -> Vec<(String, u16, u16)> {
        self.daemon.rows().into_iter().map(|(_, protocol, s, e)| (protocol, s, e)).collect()
    }
}

fn stdout(command: &mut Command) -> String {
    let Output { status, stdout, stderr } = command.output().unwrap();
    let said = String::from_utf8(stderr).unwrap();
    assert!(status.success() && said.is_empty(), "{command:?}: {status}, {said}");
    String::from_utf8(stdout).unwrap()
}

/// The blocks of that language, in their order.
fn blocks(language: &str) -> Vec<String> {
    let opening = format!("```{language}\n");
    let after = README.split(opening.as_str()).skip(1);
    after.map(|text| text.split("```").next().unwrap().to_owned()).collect()
}

/// The commands that are shown with what they print, in their order.
fn transcript() -> Vec<(String, String)> {
    let mut commands: Vec<(String, String)> = Vec::new();
    let mut is_inside = false;
    for line in README.lines() {
        match line.strip_prefix("    ") {
            Some(line) if line.starts_with("$ ") => {
                commands.push((line[2..].to_owned(), String::new()));
                is_inside = true;
            }
            Some(line) if is_inside => {
                let (_, printed) = commands.last_mut().unwrap();
                printed.push_str(line);
                printed.push('\n');
            }
            _ => is_inside = false,
        }
    }
    commands
}

#[test]
fn the_commands_print_what_is_shown() {
    let module = Module::register();
    // of what one section leaves, the next one goes on
    let commands = transcript();
    assert!(commands.len() >= 6, "{commands:?}");
    for (command, printed) in commands {
        assert_eq!(module.shell(&command), printed, "{command}");
    }
}

/// What the examples of a start leave behind, and print besides.
const HELD: [(&str, u16, u16); 4] =
    [("tcp", 20000, 20000), ("tcp", 20001, 20001), ("udp", 20001, 20001), ("udp", 20002, 20021)];
const SAID: &str = "web 20000, sip 20001, media 20002-20021\n";
const DOMAIN: &str = "ad.example.org at 20002\n";

fn held() -> Vec<(String, u16, u16)> {
    HELD.map(|(protocol, start, end)| (protocol.to_owned(), start, end)).into()
}

#[test]
fn a_module_starts_in_shell_any_number_of_times() {
    let module = Module::register();
    let [start, domain] = &blocks("sh")[..] else { panic!("two blocks of shell") };
    for _ in 0..3 {
        let printed = module.shell(start);
        assert_eq!(printed, format!("20000-20000\n20001-20001\n20002-20021\n{SAID}"));
        assert_eq!(module.rows(), held());
        assert_eq!(module.shell(domain), format!("{DOMAIN}20002-20002\n"));
        assert_eq!(module.rows(), held());
    }
}

#[test]
fn a_module_starts_in_python_any_number_of_times() {
    let Some(python) = std::env::var_os("PORTSD_TEST_PYTHON") else {
        eprintln!("left out: PORTSD_TEST_PYTHON names no Python that has the varlink package");
        return;
    };
    let module = Module::register();
    let [script] = &blocks("python")[..] else { panic!("one block of Python") };
    for _ in 0..3 {
        let printed = module.python(Path::new(&python), script);
        let refused = "the image asks for no more than 40\n";
        assert_eq!(printed, format!("{SAID}{DOMAIN}{refused}"));
        assert_eq!(module.rows(), held());
    }
}
