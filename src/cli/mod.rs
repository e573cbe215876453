//! `portsctl`: the methods of the service as commands.
//!
//! A command makes its calls and gives back what to print; nothing is printed on the way, but by
//! `monitor`. Texts are for people, `--json` is the reply as it came.

mod args;
mod backup;
mod check;
mod env;
mod failure;
mod import;
mod labels;
mod map;
mod monitor;
mod ns8;
mod output;
mod replies;
mod session;
mod socket;
mod status;
mod table;

use std::process::ExitCode;

use clap::Parser;
use serde_json::json;

use crate::reply::{
    Allocated, CallerInfo, Claimed, Deallocated, Ensured, Listed, ModuleRemoved, ModuleSet,
    Modules, Past, Reclaimed, Transferred,
};
use crate::request::Method;
use args::{Command, Import, Options, SetModule};
use failure::Failure;
use output::Output;
use session::Session;

/// Carries out the command line of this process. The exit status says how it went: 0 done, 2 used
/// wrongly, 7 the service can't be reached, another number for a refusal (the table in
/// [`crate::error`]), 1 for anything else, such as something that `check` has found.
#[must_use]
pub fn main() -> ExitCode {
    let outcome = run(Options::parse());
    outcome.and_then(Output::deliver).unwrap_or_else(|failure| failure.report())
}

fn run(options: Options) -> Result<Output, Failure> {
    let Options { socket, json, command } = options;
    let socket = socket::choose(socket);
    let connect = || Session::connect(&socket, json);
    match command {
        Command::Allocate(args) => connect()?.show::<Allocated>(Method::Allocate, &args),
        Command::Ensure(args) => connect()?.show::<Ensured>(Method::Ensure, &args),
        Command::Deallocate(args) => connect()?.show::<Deallocated>(Method::Deallocate, &args),
        Command::List(args) => connect()?.show::<Listed>(Method::List, &args),
        Command::Whoami => connect()?.show::<CallerInfo>(Method::WhoAmI, &json!({})),
        Command::Monitor => monitor::show(&mut connect()?),
        Command::Status => status::show(&mut connect()?),
        Command::Env { owner } => env::show(&mut connect()?, owner),
        Command::SetModule(args) => {
            // before there is a connection: standard input may take its time
            let parameters = set_module(args)?;
            connect()?.show::<ModuleSet>(Method::SetModule, &parameters)
        }
        Command::ListModules => connect()?.show::<Modules>(Method::ListModules, &json!({})),
        Command::Claim(args) => connect()?.show::<Claimed>(Method::Claim, &args),
        Command::Transfer(args) => connect()?.show::<Transferred>(Method::Transfer, &args),
        Command::Reclaim(args) => connect()?.show::<Reclaimed>(Method::Reclaim, &args),
        Command::History(args) => connect()?.show::<Past>(Method::History, &args),
        Command::Check { state_dir } => Ok(check::show(&socket, state_dir, json)),
        Command::Import(Import::Sqlite(args)) => import::sqlite(&args, connect),
        Command::Import(Import::Redis(args)) => import::redis(&args, connect),
        Command::Ns8Action(action) => Ok(ns8::run(action, connect)),
        Command::Backup { file } => backup::show(&mut connect()?, file.as_deref()),
        Command::RemoveModule(args) => {
            connect()?.show::<ModuleRemoved>(Method::RemoveModule, &args)
        }
    }
}

fn set_module(args: SetModule) -> Result<serde_json::Value, Failure> {
    let SetModule { module_id, unix_user, label, labels_from } = args;
    let labels = labels::gather(labels_from, label)?;
    Ok(match unix_user {
        Some(user) => json!({ "moduleId": module_id, "unixUser": user, "labels": labels }),
        None => json!({ "moduleId": module_id, "labels": labels }),
    })
}
