//! Accepts connections: caps them, finds out who the peer is, and hands them to their wire.

mod connections;
mod stream;

use std::fmt;
use std::io;
use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use tokio::net::{UnixListener, UnixStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use connections::Connections;
pub use stream::{Received, TimedStream};

use crate::config::Limits;
use crate::peer::{self, Credentials, Identified, Peer, Scope};
use crate::protocol::{jsonrpc, varlink};
use crate::service::Service;

/// How long to leave the listener alone when no connection can be accepted, as when there are no
/// file descriptors left. Those who are connected are served meanwhile.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How long a stopping service still looks for messages that have arrived but were not yet read.
const LAST_LOOK: Duration = Duration::from_millis(100);

/// Returns when the service stops and what had arrived by then has been read. The same moment for
/// every connection: one that goes on sending does not keep the service.
pub async fn last_look(stopping: &CancellationToken) {
    stopping.cancelled().await;
    tokio::time::sleep(LAST_LOOK).await;
}

/// How long a caller's name may take to be found. Whoever has none by then is hung up on.
const LOOK_UP_MAX: Duration = Duration::from_secs(60);

/// The same once the service stops.
const LAST_LOOK_UP: Duration = Duration::from_secs(1);

/// What is spoken on a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wire {
    /// varlink
    Varlink,
    /// JSON-RPC 2.0 over HTTP/1.1
    JsonRpc,
}

/// What a listening socket is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Endpoint {
    /// What is spoken.
    pub wire: Wire,
    /// What may be asked.
    pub scope: Scope,
}

/// The names of the endpoints, as file descriptor names and on the command line.
const NAMES: [(&str, Endpoint); 4] = [
    ("varlink", Endpoint { wire: Wire::Varlink, scope: Scope::Module }),
    ("jsonrpc", Endpoint { wire: Wire::JsonRpc, scope: Scope::Module }),
    ("admin-varlink", Endpoint { wire: Wire::Varlink, scope: Scope::Admin }),
    ("admin-jsonrpc", Endpoint { wire: Wire::JsonRpc, scope: Scope::Admin }),
];

/// No endpoint has that name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is none of varlink, jsonrpc, admin-varlink, admin-jsonrpc")]
pub struct UnknownEndpoint(String);

impl FromStr for Endpoint {
    type Err = UnknownEndpoint;

    fn from_str(name: &str) -> Result<Self, UnknownEndpoint> {
        NAMES
            .into_iter()
            .find(|(known, _)| *known == name)
            .map(|(_, endpoint)| endpoint)
            .ok_or_else(|| UnknownEndpoint(name.to_owned()))
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = NAMES.iter().find(|(_, endpoint)| endpoint == self).map(|(name, _)| *name);
        f.write_str(name.unwrap_or_default())
    }
}

/// What every connection needs.
#[derive(Clone)]
pub struct Context {
    /// The one door.
    pub service: Service,
    /// Bounds on what a client can make the service hold.
    pub limits: Limits,
    /// The connections that are open.
    pub connections: Connections,
    /// The tasks that serve them.
    pub tasks: TaskTracker,
    /// Cancelled when the service stops.
    pub stopping: CancellationToken,
}

/// A connection whose peer is known.
pub struct Connection {
    /// The bytes.
    pub stream: TimedStream,
    /// Where the front end says that a message is complete.
    pub received: Received,
    /// Who is at the other end.
    pub peer: Peer,
}

/// What speaks on a socket.
#[derive(Clone)]
enum FrontEnd {
    Varlink(varlink::Dispatcher),
    JsonRpc(Arc<jsonrpc::Dispatcher>),
}

/// A listening socket and what speaks on it.
pub struct Listener {
    socket: UnixListener,
    endpoint: Endpoint,
    front_end: FrontEnd,
    context: Context,
}

impl Listener {
    /// Makes a listening socket ready to be served.
    pub fn new(
        socket: UnixListener,
        endpoint: Endpoint,
        context: Context,
    ) -> Result<Self, jsonrpc::DispatcherError> {
        let Endpoint { wire, scope } = endpoint;
        let (service, limits) = (&context.service, &context.limits);
        let front_end = match wire {
            Wire::Varlink => {
                FrontEnd::Varlink(varlink::Dispatcher::new(service.clone(), scope, limits))
            }
            Wire::JsonRpc => {
                FrontEnd::JsonRpc(Arc::new(jsonrpc::Dispatcher::new(service, scope, limits)?))
            }
        };
        Ok(Self { socket, endpoint, front_end, context })
    }

    /// Accepts connections until told to pause. Never ends for any other reason: an error of one
    /// moment must not make the socket deaf.
    pub async fn listen(self, pause: CancellationToken) -> Self {
        let Self { socket, endpoint, front_end, context } = &self;
        let endpoint = *endpoint;
        let mut is_failing = false;
        loop {
            let accepted = tokio::select! {
                biased;
                () = pause.cancelled() => return self,
                accepted = socket.accept() => accepted,
            };
            match accepted {
                Ok((stream, _)) => {
                    is_failing = false;
                    let (front_end, context) = (front_end.clone(), context.clone());
                    let tasks = context.tasks.clone();
                    tasks.spawn(async move {
                        let served = serve(stream, endpoint.scope, front_end, &context).await;
                        if let Err(error) = served {
                            // peers come and go; nothing is wrong with the service
                            tracing::debug!(%endpoint, %error, "the connection ended early");
                        }
                    });
                }
                Err(error) => {
                    if !is_failing {
                        tracing::warn!(%endpoint, %error, "no connection can be accepted");
                    }
                    is_failing = true;
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }
}

/// Returns when the user database has had time enough.
async fn give_up(stopping: &CancellationToken) {
    if tokio::time::timeout(LOOK_UP_MAX, stopping.cancelled()).await.is_ok() {
        tokio::time::sleep(LAST_LOOK_UP).await;
    }
}

async fn serve(
    stream: UnixStream,
    scope: Scope,
    front_end: FrontEnd,
    context: &Context,
) -> io::Result<()> {
    let credentials = credentials(&stream).await?;
    let (uid, pid) = (credentials.uid(), credentials.pid());
    let place = context.connections.enter(scope, uid)?;
    // the user database may take its time; nobody else waits for it. The place is taken for as long
    // as that lasts, whatever becomes of the connection: the thread is.
    let look_up = tokio::task::spawn_blocking(move || (peer::identify(&credentials, scope), place));
    let (Identified { identity, account }, mut place) = tokio::select! {
        biased;
        found = look_up => found?,
        () = give_up(&context.stopping) => return Err(io::ErrorKind::TimedOut.into()),
    };
    place.count_for(account)?;
    let peer = Peer { uid, pid, identity };
    let (stream, received) = TimedStream::new(stream, context.limits.clone());
    let connection = Connection { stream, received, peer };
    match front_end {
        FrontEnd::Varlink(dispatcher) => dispatcher.serve(connection, context).await,
        FrontEnd::JsonRpc(dispatcher) => dispatcher.serve(connection, context).await,
    }
}

/// Reads the credentials, for which a descriptor is needed: with none left, it waits a little for
/// one. Not for long, since it keeps one itself.
async fn credentials(stream: &UnixStream) -> io::Result<Credentials> {
    let patience_ends = Instant::now() + 10 * ACCEPT_PAUSE;
    loop {
        match Credentials::of(stream) {
            Err(Errno::EMFILE | Errno::ENFILE) if Instant::now() < patience_ends => {
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
            read => return Ok(read?),
        }
    }
}
