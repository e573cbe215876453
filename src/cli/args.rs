//! The command line. Options that are parameters of a method serialise to them.

use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Parser, Subcommand};
use serde::Serialize;

use super::labels::{Label, Source};
use crate::daemon::DEFAULT_STATE_DIRECTORY;
use crate::model::{ModuleId, Owner, PortCount, Protocol, Protocols, RangeName, UserName};

const EXIT_STATUS: &str = "\
Exit status: 0 done, 2 used wrongly, 3 not allowed, 4 more than the module's demand, 5 no room, \
6 no such module or range, 7 the service can't be reached or can't work, 1 anything else.";

/// The command line.
#[derive(Debug, Parser)]
#[command(
    name = "portsctl",
    version,
    about = "Allocates TCP and UDP port ranges on this node, and shows who holds them",
    after_help = EXIT_STATUS
)]
pub(super) struct Options {
    /// The service's socket [default: `$PORTSD_SOCKET`, else
    /// /run/portsd-admin/org.nethserver.Ports for root, else /run/portsd/org.nethserver.Ports]
    #[arg(long, global = true, value_name = "PATH")]
    pub(super) socket: Option<PathBuf>,
    /// Print the reply as JSON
    #[arg(long, global = true)]
    pub(super) json: bool,
    #[command(subcommand)]
    pub(super) command: Command,
}

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Get a range of ports, or change the size of the one there is
    ///
    /// Afterwards the owner has exactly one unnamed range of the protocol, of that size. One that
    /// has the size already stays as it is.
    Allocate(Allocate),
    /// Get a named range, or make it the size it has to be; safe to repeat
    Ensure(Ensure),
    /// Free ports of a protocol: all of them, or a part
    Deallocate(Deallocate),
    /// List the ranges that are held: a module's own, or all for an administrator
    List(List),
    /// Print what is held, then every change, a line each, until interrupted
    ///
    /// `present` lines come first, then `ready`, then `allocated` and `deallocated` as it happens. A
    /// range that gets other ports or another owner is deallocated and allocated. With --json, a reply
    /// a line.
    Monitor,
    /// Show who you are to the service
    Whoami,
    /// Show how full the pools are, in numbers and as a map
    Status,
    /// Print the ports as shell environment lines
    ///
    /// For each protocol with an unnamed range: `TCP_PORT` is its first port; `TCP_PORTS_RANGE`
    /// stands there for more than one port, `TCP_PORTS` for 2 to 8. The same with `UDP_`.
    Env {
        /// Whose ports; an administrator has to say
        #[arg(long)]
        owner: Option<Owner>,
    },
    /// Register a module, or replace its entry
    SetModule(SetModule),
    /// List the registered modules
    ListModules,
    /// Remove a module's entry, and free its ranges and those of its helper owners
    RemoveModule(RemoveModule),
    /// Give an owner ports of fixed numbers, inside or outside the pool
    Claim(Claim),
    /// Give everything that an owner holds to another one
    Transfer(Transfer),
    /// Free what is held for modules that are no longer registered
    Reclaim(Reclaim),
    /// Take over the ports that NS8's own allocator has handed out
    ///
    /// All of them or, if there is any problem, none; safe to repeat. Every problem is told. Exit
    /// status 0: everything is imported or was there already.
    #[command(subcommand)]
    Import(Import),
    /// Carry out an action of NS8's node agent, as a step that the agent starts
    ///
    /// Reads the task's data from standard input and prints the action's result as JSON.
    /// `AGENT_TASK_USER` says who asks: nobody by name for the node itself, `module/ID` for a module,
    /// whose role and demand then count. Exit status: 10, 32 and 33 for refusals, with their list
    /// printed as NS8 does, and 1 for everything else.
    #[command(subcommand)]
    Ns8Action(Ns8Action),
    /// Show who held which ports, when, and who changed it
    History(History),
    /// Tell what is wrong with this node, and what to do about it; as root
    ///
    /// Looks at the units, the SELinux labels, the database, whether outgoing connections may take
    /// ports of the pool, ports that another user has bound than the one they are allocated to, and
    /// ports of modules that are not registered. Prints one line for each finding. The exit status
    /// is 0 if there is none, 1 otherwise. Changes nothing. With --json, prints an object with the
    /// array `findings`, each with `check`, `message` and `advice`.
    Check {
        /// Where the database is
        #[arg(long, value_name = "DIR", default_value = DEFAULT_STATE_DIRECTORY)]
        state_dir: PathBuf,
    },
    /// Copy the database, under the state directory and to FILE
    Backup {
        /// Where to copy it to; the file must not exist
        file: Option<PathBuf>,
    },
}

#[derive(Debug, Args, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Allocate {
    /// How many ports, 1 to 65535
    #[arg(value_parser = port_count, allow_negative_numbers = true)]
    ports: PortCount,
    #[arg(value_parser = protocols(), help = "The protocol")]
    protocol: Protocol,
    /// Get one more range instead of changing the one there is
    #[arg(long)]
    keep_existing: bool,
    #[command(flatten)]
    #[serde(flatten)]
    target: Target,
}

#[derive(Debug, Args, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Ensure {
    /// The range's name, such as db
    name: RangeName,
    /// How many ports, 1 to 65535
    #[arg(value_parser = port_count, allow_negative_numbers = true)]
    ports: PortCount,
    /// tcp, udp, or tcp,udp for the same numbers in both
    protocols: Protocols,
    /// Let the range move to a new place where it can't grow
    #[arg(long)]
    may_move: bool,
    #[command(flatten)]
    #[serde(flatten)]
    target: Target,
}

#[derive(Debug, Args, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Deallocate {
    #[arg(value_parser = protocols(), help = "The protocol")]
    protocol: Protocol,
    /// Free only the range of this name
    #[arg(long, conflicts_with_all = ["start", "end"])]
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<RangeName>,
    /// Free only the ports from here on, to --end
    #[arg(long, value_name = "PORT", requires = "end", value_parser = clap::value_parser!(u16).range(1..))]
    #[serde(skip_serializing_if = "Option::is_none")]
    start: Option<u16>,
    /// The last port to free
    #[arg(long, value_name = "PORT", requires = "start", value_parser = clap::value_parser!(u16).range(1..))]
    #[serde(skip_serializing_if = "Option::is_none")]
    end: Option<u16>,
    #[command(flatten)]
    #[serde(flatten)]
    target: Target,
}

/// Whom a call is about.
#[derive(Debug, Args, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Target {
    /// Whose ports: a module id, a helper such as `mail1_rsync`, or host/NAME. An administrator has
    /// to say, here or with --on-behalf-of
    #[arg(long)]
    #[serde(skip_serializing_if = "Option::is_none")]
    owner: Option<Owner>,
    /// For administrators: call as this module would, so that its role and its demand count
    #[arg(long, value_name = "MODULE_ID")]
    #[serde(skip_serializing_if = "Option::is_none")]
    on_behalf_of: Option<ModuleId>,
}

#[derive(Debug, Args, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct List {
    /// Only the ranges of this owner
    #[arg(long)]
    #[serde(skip_serializing_if = "Option::is_none")]
    owner: Option<Owner>,
    #[arg(long, value_parser = protocols(), help = "Only the ranges of this protocol")]
    #[serde(skip_serializing_if = "Option::is_none")]
    protocol: Option<Protocol>,
}

#[derive(Debug, Args)]
pub(super) struct SetModule {
    /// The module's id
    pub(super) module_id: ModuleId,
    /// The Unix user that the module's processes run as [default: the module id]
    #[arg(long, value_name = "USER")]
    pub(super) unix_user: Option<UserName>,
    /// A label of the module's image; may be given several times, and counts more than
    /// --labels-from
    #[arg(long, value_name = "KEY=VALUE")]
    pub(super) label: Vec<Label>,
    /// A file with the output of `podman image inspect`, or with an object of labels; - for
    /// standard input
    #[arg(long, value_name = "FILE")]
    pub(super) labels_from: Option<Source>,
}

#[derive(Debug, Args, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RemoveModule {
    /// The module's id
    module_id: ModuleId,
}

#[derive(Debug, Args, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Claim {
    /// The lowest port
    #[arg(value_parser = clap::value_parser!(u16).range(1..))]
    start: u16,
    /// The highest port
    #[arg(value_parser = clap::value_parser!(u16).range(1..))]
    end: u16,
    /// tcp, udp, or tcp,udp
    protocols: Protocols,
    /// A module id, a helper such as `mail1_rsync`, or host/NAME
    owner: Owner,
    /// The name of the range
    #[arg(long)]
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<RangeName>,
}

#[derive(Debug, Args, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Transfer {
    /// Who gives
    from_owner: Owner,
    /// Who gets
    to_owner: Owner,
}

#[derive(Debug, Args, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Reclaim {
    /// Only show what would be freed
    #[arg(long)]
    dry_run: bool,
    /// Spare what has been held for less than this time, such as 1h: a module that is being installed
    /// has its ports before it is registered
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    #[serde(skip_serializing_if = "Option::is_none")]
    older_than: Option<u32>,
}

/// A time such as `1h` or `90s`, in whole seconds.
fn seconds(text: &str) -> Result<u32, String> {
    let time = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    u32::try_from(time.as_secs()).map_err(|_| "too long a time".to_owned())
}

/// An action of NS8's node agent.
#[derive(Debug, Clone, Copy, Subcommand)]
pub(super) enum Ns8Action {
    /// Allocate ports: prints `[START, END]`
    AllocatePorts,
    /// Free all ports of a protocol: prints `[[START, END], …]`
    DeallocatePorts,
    /// Free all that a module that was removed and its helpers hold; prints nothing
    RemoveModule,
}

/// What to import from.
#[derive(Debug, Subcommand)]
pub(super) enum Import {
    /// Import from the file of NS8's allocator, ports.sqlite
    ///
    /// The file is only read, and stays as it is.
    Sqlite(ImportSqlite),
    /// Import what the modules of a node have in NS8's Redis
    ///
    /// That is `TCP_PORTS_RANGE` or `TCP_PORT`, and the same with `UDP_`, in the environment of each
    /// module. It also tells which ports NS8's counters have passed that no module accounts for.
    Redis(ImportRedis),
}

#[derive(Debug, Args)]
pub(super) struct ImportSqlite {
    /// The file; NS8 has it in /var/lib/nethserver/node/state
    #[arg(value_name = "FILE")]
    pub(super) file: PathBuf,
    #[command(flatten)]
    pub(super) mode: ImportMode,
}

const REDIS_URL: &str = "\
redis://[USER[:PASSWORD]@]HOST[:PORT][/DATABASE], or \
unix:///PATH[?db=DATABASE&user=USER&pass=PASSWORD]. A password in it can be seen by everybody on this \
machine: use --password-file or `$PORTSD_REDIS_PASSWORD` instead";

#[derive(Debug, Args)]
pub(super) struct ImportRedis {
    #[arg(value_name = "URL", help = REDIS_URL)]
    pub(super) url: String,
    /// The node's number in the cluster
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) node_id: u32,
    /// A file with the password [default: the one in the URL, else `$PORTSD_REDIS_PASSWORD`]
    #[arg(long, value_name = "FILE")]
    pub(super) password_file: Option<PathBuf>,
    /// Then remove the counters, `node/N/tcp_ports_sequence` and `node/N/udp_ports_sequence`. Not if
    /// nothing was imported because of problems
    #[arg(long)]
    pub(super) remove_sequences: bool,
    #[command(flatten)]
    pub(super) mode: ImportMode,
}

/// How much is imported.
#[derive(Debug, Clone, Copy, Args)]
pub(super) struct ImportMode {
    /// Only show what would be imported, and every problem
    #[arg(long)]
    pub(super) dry_run: bool,
    /// Import what is sound where there are problems; exit status 1 says that some was left out
    #[arg(long)]
    pub(super) skip_invalid: bool,
}

#[derive(Debug, Args, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct History {
    /// Only the events of this owner
    #[arg(long)]
    #[serde(skip_serializing_if = "Option::is_none")]
    owner: Option<Owner>,
    #[arg(long, value_parser = protocols(), help = "Only the events of this protocol")]
    #[serde(skip_serializing_if = "Option::is_none")]
    protocol: Option<Protocol>,
    /// Only the events of ranges that have this port
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    #[serde(skip_serializing_if = "Option::is_none")]
    port: Option<u16>,
    /// So many events at most, the newest [default: 100]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    #[serde(skip_serializing_if = "Option::is_none")]
    limit: Option<u32>,
}

fn port_count(text: &str) -> Result<PortCount, &'static str> {
    let count = text.parse::<u16>().ok().and_then(|count| PortCount::try_from(count).ok());
    count.ok_or("not a count of ports from 1 to 65535")
}

/// Reads a protocol; the help and the refusal of others name those there are.
fn protocols() -> impl TypedValueParser<Value = Protocol> {
    PossibleValuesParser::new(Protocol::ALL.map(Protocol::as_str))
        .try_map(|text| text.parse::<Protocol>())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn the_definition_is_sound() {
        Options::command().debug_assert();
    }

    fn parameters(line: &str) -> Value {
        let options = Options::try_parse_from(line.split(' ')).unwrap();
        match options.command {
            Command::Allocate(args) => serde_json::to_value(args).unwrap(),
            Command::Ensure(args) => serde_json::to_value(args).unwrap(),
            Command::Deallocate(args) => serde_json::to_value(args).unwrap(),
            Command::List(args) => serde_json::to_value(args).unwrap(),
            Command::RemoveModule(args) => serde_json::to_value(args).unwrap(),
            Command::Claim(args) => serde_json::to_value(args).unwrap(),
            Command::Transfer(args) => serde_json::to_value(args).unwrap(),
            Command::Reclaim(args) => serde_json::to_value(args).unwrap(),
            Command::History(args) => serde_json::to_value(args).unwrap(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn options_become_parameters() {
        assert_eq!(
            parameters("portsctl allocate 4 tcp"),
            json!({"ports": 4, "protocol": "tcp", "keepExisting": false})
        );
        assert_eq!(
            parameters("portsctl allocate 1 udp --keep-existing --owner a_b --on-behalf-of a"),
            json!({"ports": 1, "protocol": "udp", "keepExisting": true, "owner": "a_b", "onBehalfOf": "a"})
        );
        assert_eq!(
            parameters("portsctl deallocate udp --owner host/x"),
            json!({"protocol": "udp", "owner": "host/x"})
        );
        assert_eq!(
            parameters("portsctl deallocate udp --start 20000 --end 20003"),
            json!({"protocol": "udp", "start": 20000, "end": 20003})
        );
        assert_eq!(
            parameters("portsctl deallocate tcp --name db"),
            json!({"protocol": "tcp", "name": "db"})
        );
        assert_eq!(
            parameters("portsctl ensure sip 1 tcp,udp --may-move --owner a"),
            json!({"name": "sip", "ports": 1, "protocols": ["tcp", "udp"], "mayMove": true, "owner": "a"})
        );
        assert_eq!(parameters("portsctl list"), json!({}));
        assert_eq!(
            parameters("portsctl list --protocol tcp --owner a"),
            json!({"owner": "a", "protocol": "tcp"})
        );
        assert_eq!(parameters("portsctl remove-module a"), json!({"moduleId": "a"}));
        assert_eq!(
            parameters("portsctl claim 21115 21119 tcp,udp host/rustdesk --name relay"),
            json!({"start": 21115, "end": 21119, "protocols": ["tcp", "udp"],
                   "owner": "host/rustdesk", "name": "relay"})
        );
        assert_eq!(
            parameters("portsctl transfer mail1 mail2"),
            json!({"fromOwner": "mail1", "toOwner": "mail2"})
        );
        assert_eq!(parameters("portsctl reclaim --dry-run"), json!({"dryRun": true}));
        assert_eq!(parameters("portsctl reclaim"), json!({"dryRun": false}));
        assert_eq!(
            parameters("portsctl reclaim --older-than 90m"),
            json!({"dryRun": false, "olderThan": 5400})
        );
        assert_eq!(parameters("portsctl history"), json!({}));
        assert_eq!(
            parameters("portsctl history --port 20017 --protocol tcp --owner a --limit 5"),
            json!({"port": 20017, "protocol": "tcp", "owner": "a", "limit": 5})
        );
    }

    #[test]
    fn wrong_values_are_refused_here() {
        for line in [
            "portsctl",
            "portsctl allocate",
            "portsctl allocate 0 tcp",
            "portsctl allocate 65536 tcp",
            "portsctl allocate -1 tcp",
            "portsctl allocate 1.5 tcp",
            "portsctl allocate x tcp",
            "portsctl allocate 1 sctp",
            "portsctl allocate 1 TCP",
            "portsctl allocate tcp 1",
            "portsctl allocate 1 tcp --owner a/b",
            "portsctl allocate 1 tcp --on-behalf-of host/x",
            "portsctl deallocate",
            "portsctl deallocate tcp --start 20000",
            "portsctl deallocate tcp --end 20000",
            "portsctl deallocate tcp --start 0 --end 20000",
            "portsctl deallocate tcp --name db --start 20000 --end 20000",
            "portsctl ensure db 1",
            "portsctl ensure db 1 tcp,tcp",
            "portsctl ensure db 1 tcp,",
            "portsctl ensure _ 1 tcp",
            "portsctl list --protocol x",
            "portsctl set-module",
            "portsctl set-module _x",
            "portsctl set-module x --label y",
            "portsctl set-module x --label =y",
            "portsctl set-module x --unix-user a:b",
            "portsctl remove-module",
            "portsctl claim 0 5 tcp host/x",
            "portsctl claim 5 65536 tcp host/x",
            "portsctl claim 5 6 tcp",
            "portsctl transfer mail1",
            "portsctl reclaim x",
            "portsctl reclaim --older-than 90",
            "portsctl reclaim --older-than -1s",
            "portsctl reclaim --older-than 200years",
            "portsctl import",
            "portsctl import sqlite",
            "portsctl import ports.sqlite",
            "portsctl import redis redis://127.0.0.1:6379",
            "portsctl import redis --node-id 1",
            "portsctl import redis redis://127.0.0.1 --node-id 0",
            "portsctl import redis redis://127.0.0.1 --node-id x",
            "portsctl ns8-action",
            "portsctl ns8-action add-module",
            "portsctl ns8-action allocate-ports 4",
            "portsctl whoami x",
            "portsctl monitor x",
            "portsctl check x",
            "portsctl check --state-dir",
            "portsctl frobnicate",
        ] {
            let error = Options::try_parse_from(line.split(' ')).unwrap_err();
            assert_eq!(error.exit_code(), 2, "{line}");
        }
    }
}
