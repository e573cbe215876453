//! The state of the units, as systemd tells it.

use std::io;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;

use super::{Check, Report};

/// There is such a directory where systemd is the service manager.
const RUNNING: &str = "/run/systemd/system";

/// How long the service manager may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);

const SOCKETS: [&str; 4] = [
    "portsd-varlink.socket",
    "portsd-jsonrpc.socket",
    "portsd-admin-varlink.socket",
    "portsd-admin-jsonrpc.socket",
];
const SERVICE: &str = "portsd.service";

/// What is asked of each unit.
const PROPERTIES: &str =
    "--property=LoadState,ActiveState,SubState,UnitFileState,Result,NeedDaemonReload";

/// Whether the units are systemd's business here.
pub(super) fn runs_systemd() -> bool {
    Path::new(RUNNING).is_dir()
}

pub(super) fn check() -> Report {
    let mut report = Report::default();
    if !runs_systemd() {
        report.remark("systemd does not run here: units, and modes of sockets, are not looked at");
        return report;
    }
    let mut command = Command::new("systemctl");
    command.args(["show", "--no-pager", PROPERTIES]).args(SOCKETS).arg(SERVICE);
    match output(command, PATIENCE) {
        Ok(text) => report.add(judge_all(&text)),
        Err(error) => report.find(
            Check::Units,
            format!("systemd does not tell about the units: systemctl: {error}"),
            format!("try `systemctl status {SERVICE}`"),
        ),
    }
    report
}

/// What a program prints. It is killed if it has not ended in time.
fn output(mut command: Command, patience: Duration) -> io::Result<String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let output = command.stdin(Stdio::null()).kill_on_drop(true).output();
        let output = tokio::time::timeout(patience, output).await.map_err(|_| {
            io::Error::other(format!("no answer in {} seconds", patience.as_secs()))
        })??;
        if output.status.success() {
            Ok(String::from_utf8_lossy(&output.stdout).into_owned())
        } else {
            let said = String::from_utf8_lossy(&output.stderr);
            Err(io::Error::other(format!("{}: {}", output.status, said.trim())))
        }
    })
}

/// Judges what `systemctl show` prints: a block of lines for each unit, with a blank line between
/// two, in the order in which they were asked for.
fn judge_all(text: &str) -> Report {
    let mut report = Report::default();
    let names = SOCKETS.iter().chain([&SERVICE]);
    let blocks: Vec<_> = text.trim().split("\n\n").collect();
    if blocks.len() != SOCKETS.len() + 1 {
        report.find(
            Check::Units,
            format!("systemctl told of {} units, not of {}", blocks.len(), SOCKETS.len() + 1),
            format!("see `systemctl status {SERVICE}`"),
        );
        return report;
    }
    for (name, block) in names.zip(blocks) {
        let state = State::parse(block);
        for (problem, advice) in judge(name, &state) {
            report.find(Check::Units, format!("{name} {problem}"), advice);
        }
    }
    report
}

/// The properties of a unit. One that was not told is empty.
#[derive(Debug, Clone, Copy, Default)]
struct State<'a> {
    load: &'a str,
    active: &'a str,
    sub: &'a str,
    file: &'a str,
    result: &'a str,
    needs_reload: bool,
}

impl<'a> State<'a> {
    fn parse(block: &'a str) -> Self {
        let mut state = Self::default();
        for (key, value) in block.lines().filter_map(|line| line.split_once('=')) {
            match key {
                "LoadState" => state.load = value,
                "ActiveState" => state.active = value,
                "SubState" => state.sub = value,
                "UnitFileState" => state.file = value,
                "Result" => state.result = value,
                "NeedDaemonReload" => state.needs_reload = value == "yes",
                _ => {}
            }
        }
        state
    }
}

/// What is wrong with a unit, and what to do about it.
fn judge(name: &str, state: &State<'_>) -> Vec<(String, String)> {
    let is_socket = name != SERVICE;
    let mut problems = match state.load {
        "loaded" if is_socket => judge_socket(name, state),
        "loaded" => judge_service(state),
        "masked" => {
            let then = if is_socket {
                format!(" && systemctl enable --now {name}")
            } else {
                String::new()
            };
            vec![("is masked".to_owned(), format!("`systemctl unmask {name}{then}`"))]
        }
        "not-found" => vec![(
            "is not installed".to_owned(),
            format!(
                "install the units of portsd, then `systemctl daemon-reload && systemctl status {name}`"
            ),
        )],
        other => vec![(
            format!("can't be loaded ({other})"),
            format!("`systemctl status {name}` says what is wrong with the file"),
        )],
    };
    if state.needs_reload {
        problems.push((
            "has changed on the disk since it was loaded".to_owned(),
            "`systemctl daemon-reload`".to_owned(),
        ));
    }
    problems
}

fn judge_socket(name: &str, state: &State<'_>) -> Vec<(String, String)> {
    let mut problems = Vec::new();
    let is_enabled = state.file == "enabled";
    match state.active {
        "active" => {}
        "failed" => problems.push((
            format!("has failed ({})", state.result),
            format!("`systemctl status {name}` says why; then `systemctl restart {name}`"),
        )),
        // enabling it starts it too
        _ if !is_enabled => {}
        other => problems.push((format!("is {other}"), format!("`systemctl restart {name}`"))),
    }
    if !is_enabled {
        let active = if state.active == "active" { "" } else { " and not active" };
        problems.push((
            format!("is not enabled ({}){active}", state.file),
            format!("`systemctl enable --now {name}`"),
        ));
    }
    problems
}

/// The service is started by calls, so that an inactive one is no problem. One that fails is started
/// again and again, and is hardly ever seen as failed.
fn judge_service(state: &State<'_>) -> Vec<(String, String)> {
    let fails = state.active == "failed" || state.sub == "auto-restart";
    let problem = || {
        (
            format!("fails ({})", state.result),
            format!(
                "`journalctl -u {SERVICE}` says why; it starts by itself once that is mended, or \
                 with `systemctl restart {SERVICE}`"
            ),
        )
    };
    fails.then(problem).into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOUND: State<'_> = State {
        load: "loaded",
        active: "active",
        sub: "listening",
        file: "enabled",
        result: "success",
        needs_reload: false,
    };

    fn said(name: &str, state: State<'_>) -> Vec<String> {
        let problems = judge(name, &state);
        problems.into_iter().map(|(problem, advice)| format!("{problem}: {advice}")).collect()
    }

    #[test]
    fn each_state_of_a_socket_has_its_command() {
        let socket = |state| said("a.socket", state);
        assert!(socket(SOUND).is_empty());
        assert!(socket(State { sub: "running", ..SOUND }).is_empty());
        for (state, expected) in [
            (
                State { load: "masked", active: "inactive", ..SOUND },
                "is masked: `systemctl unmask a.socket && systemctl enable --now a.socket`",
            ),
            (State { active: "inactive", ..SOUND }, "is inactive: `systemctl restart a.socket`"),
            (
                State { file: "disabled", ..SOUND },
                "is not enabled (disabled): `systemctl enable --now a.socket`",
            ),
            (
                State { file: "disabled", active: "inactive", ..SOUND },
                "is not enabled (disabled) and not active: `systemctl enable --now a.socket`",
            ),
            (
                State { needs_reload: true, ..SOUND },
                "has changed on the disk since it was loaded: `systemctl daemon-reload`",
            ),
        ] {
            assert_eq!(socket(state), [expected]);
        }
        let failed = State { active: "failed", result: "service-start-limit-hit", ..SOUND };
        assert!(socket(failed)[0].contains("has failed (service-start-limit-hit)"));
        assert_eq!(socket(State { file: "disabled", ..failed }).len(), 2);
        let absent = State { load: "not-found", active: "inactive", file: "", ..SOUND };
        assert!(socket(absent)[0].contains("not installed"));
        let bad = State { load: "bad-setting", ..SOUND };
        assert!(socket(bad)[0].contains("bad-setting"));
    }

    #[test]
    fn the_service_may_be_idle_but_not_failing() {
        let service = |state| said(SERVICE, state);
        let sound = State { sub: "running", file: "static", ..SOUND };
        assert!(service(sound).is_empty());
        assert!(service(State { active: "inactive", sub: "dead", ..sound }).is_empty());
        assert!(service(State { active: "activating", sub: "start", ..sound }).is_empty());
        for failing in [
            State { active: "failed", sub: "failed", result: "exit-code", ..sound },
            State { active: "activating", sub: "auto-restart", result: "exit-code", ..sound },
        ] {
            let said = service(failing);
            assert!(said[0].contains("fails (exit-code)") && said[0].contains("journalctl"));
        }
        let masked = State { load: "masked", active: "inactive", ..sound };
        assert_eq!(service(masked), ["is masked: `systemctl unmask portsd.service`"]);
    }

    fn block(state: &str, file: &str) -> String {
        format!(
            "Result=success\nLoadState=loaded\nActiveState={state}\nSubState=listening\n\
             UnitFileState={file}\nNeedDaemonReload=no\n"
        )
    }

    #[test]
    fn blocks_belong_to_the_units_in_their_order() {
        let with = |second: &str| {
            let blocks = [
                &block("active", "enabled"),
                second,
                &block("active", "enabled"),
                &block("active", "enabled"),
                &block("inactive", "static"),
            ];
            judge_all(&blocks.join("\n"))
        };
        assert_eq!(with(&block("active", "enabled")), Report::default());
        let found = with(&block("inactive", "enabled")).findings;
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].message, "portsd-jsonrpc.socket is inactive");
        assert!(judge_all("").findings[0].message.contains("not of 5"));
    }

    #[test]
    fn a_program_that_hangs_or_fails_is_no_answer() {
        let shell = |script: &str, patience| {
            let mut command = Command::new("sh");
            command.args(["-c", script]);
            output(command, patience).map_err(|error| error.to_string())
        };
        assert_eq!(shell("echo a", PATIENCE), Ok("a\n".to_owned()));
        let failed = shell("echo no such thing >&2; exit 3", PATIENCE).unwrap_err();
        assert!(failed.contains('3') && failed.contains("no such thing"), "{failed}");
        let stuck = shell("exec sleep 1000", Duration::from_millis(50)).unwrap_err();
        assert!(stuck.contains("no answer"), "{stuck}");
        let absent = output(Command::new("/nonexistent/program"), PATIENCE).unwrap_err();
        assert_eq!(absent.kind(), io::ErrorKind::NotFound);
    }
}
