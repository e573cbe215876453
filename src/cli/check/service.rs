//! What the service says, asked once for all checks that need it.

use std::path::Path;

use serde_json::json;

use super::super::failure::Failure;
use super::super::session::Session;
use super::super::socket::ADMIN_SOCKET;
use super::{Check, Finding};
use crate::error::Condition;
use crate::model::Allocation;
use crate::reply::{
    CallerInfo, CallerKind, Listed, ModuleEntry, Modules, PoolStatus, Reclaimed, Status,
};
use crate::request::Method;

/// The service's answers.
pub(super) struct Answers {
    pub(super) pools: Vec<PoolStatus>,
    pub(super) allocations: Vec<Allocation>,
    pub(super) modules: Vec<ModuleEntry>,
    /// What is held for modules that are not registered; nothing where no module is registered, and
    /// nobody can tell who is gone.
    pub(super) gone: Option<Vec<Allocation>>,
}

/// Asks the service. All calls together take no longer than one client may.
pub(super) fn ask(socket: &Path) -> Result<Answers, Finding> {
    let mut session = Session::connect(socket, false).map_err(|error| unanswered(&error))?;
    let caller: CallerInfo =
        session.call(Method::WhoAmI, &json!({})).map_err(|error| unanswered(&error))?;
    match caller.caller {
        CallerKind::Administrator => answers(&mut session).map_err(|error| unanswered(&error)),
        CallerKind::Module | CallerKind::Anonymous => Err(unprivileged(socket)),
    }
}

fn answers(session: &mut Session) -> Result<Answers, Failure> {
    let status: Status = session.call(Method::GetStatus, &json!({}))?;
    let held: Listed = session.call(Method::List, &json!({}))?;
    let registered: Modules = session.call(Method::ListModules, &json!({}))?;
    let gone = session.call::<Reclaimed>(Method::Reclaim, &json!({ "dryRun": true }));
    let gone = match gone {
        Ok(reclaimed) => Some(reclaimed.freed),
        Err(failure) if failure.condition() == Some(Condition::RegistryUnavailable) => None,
        Err(failure) => return Err(failure),
    };
    Ok(Answers {
        pools: status.pools,
        allocations: held.allocations,
        modules: registered.modules,
        gone,
    })
}

fn unanswered(failure: &Failure) -> Finding {
    let (reason, advice) = failure.parts();
    Finding {
        check: Check::Service,
        message: format!("portsd can't be asked: {reason}"),
        advice: advice.unwrap_or_else(|| "`journalctl -u portsd` has the cause".to_owned()),
    }
}

fn unprivileged(socket: &Path) -> Finding {
    Finding {
        check: Check::Service,
        message: format!(
            "this user is no administrator on {}, and is not told what there is to check",
            socket.display()
        ),
        advice: format!("run this as root, with --socket {ADMIN_SOCKET}"),
    }
}
