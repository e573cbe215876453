//! Puts the parts together: start, readiness, watchdog, signals, the end.

use std::path::PathBuf;
use std::thread::JoinHandle;
use std::time::Duration;

use clap::Parser;
use tokio::net::UnixListener;
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::activation::{self, ActivationError, BoundSocket, Listen, Socket};
use crate::allocator::{self, Allocator};
use crate::config::{self, Config, ConfigError};
use crate::listener::{Connections, Context, Listener};
use crate::protocol::jsonrpc::DispatcherError;
use crate::registry::Source;
use crate::service::Service;
use crate::store::{OpenError, Store};

/// Where the state is, unless the command line or the service manager says otherwise.
pub const DEFAULT_STATE_DIRECTORY: &str = "/var/lib/portsd";

/// How long a stop waits for calls that were accepted: longer than a call waits for the database.
const STOP_PATIENCE: Duration = Duration::from_secs(15);

/// The threads that serve connections. A call costs microseconds; the database has its own thread.
const WORKER_THREADS: usize = 2;

/// Threads that wait for the user database: one for each connection there may be, so that slow
/// look-ups hold up nobody else's.
const BLOCKING_THREADS_MAX: usize = 2048;

/// The command line.
#[derive(Debug, Parser)]
#[command(version, about = "Hands out TCP and UDP port ranges to the modules of this node")]
pub struct Options {
    /// The configuration file [default: /etc/portsd/portsd.toml, which may be absent]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Where the database is [default: `$STATE_DIRECTORY`, else /var/lib/portsd]
    #[arg(long, value_name = "DIR")]
    state_dir: Option<PathBuf>,
    /// Binds a socket instead of inheriting it. NAME is varlink, jsonrpc, admin-varlink or
    /// admin-jsonrpc
    #[arg(long, value_name = "NAME=PATH")]
    listen: Vec<Listen>,
    /// Ends when there has been no connection for so long [default: never]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..))]
    idle_exit: Option<u32>,
}

/// Why the service did not start, or did not go on.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// The configuration.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The sockets.
    #[error(transparent)]
    Activation(#[from] ActivationError),
    /// There is nothing to listen on.
    #[error(
        "no sockets: start portsd by its socket units, or name sockets with --listen NAME=PATH"
    )]
    NoSockets,
    /// The database.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The methods.
    #[error(transparent)]
    Methods(#[from] DispatcherError),
    /// The system.
    #[error("{0}")]
    Io(#[from] std::io::Error),
    /// The thread that owns the database ended.
    #[error("the allocator has stopped")]
    AllocatorStopped,
}

/// Runs the service until it is told to stop, or is idle for long enough.
pub fn run(options: Options) -> Result<(), DaemonError> {
    // before anything is opened that could get the number of a socket that was not passed
    let inherited = activation::inherited()?;
    let config = config::load(options.config.as_deref())?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(WORKER_THREADS)
        .max_blocking_threads(BLOCKING_THREADS_MAX)
        .enable_all()
        .build()?;
    // before there is anything that a sudden end would leave behind
    let signals = Signals::catch(&runtime)?;
    // before the database is touched: a second instance is refused by the sockets of the first
    let (sockets, bound) = sockets(inherited, &options.listen)?;
    let directory = state_directory(options.state_dir);
    let store = Store::open(&directory, config.pool.range)?;
    let (allocator, thread) = allocator::start(store, &config)
        .map_err(|source| OpenError::in_directory(&directory, source))?;
    let idle = options.idle_exit.map(|seconds| Duration::from_secs(seconds.into()));
    let source = {
        let _runtime = runtime.enter();
        Source::start(&config.registry)
    };
    let service = Service::new(allocator.clone(), source, directory);
    let result = runtime.block_on(serve(sockets, allocator, service, &config, signals, idle));
    // look-ups in a user database that does not answer must not hold up the end for long
    runtime.shutdown_timeout(Duration::from_secs(1));
    finish(thread, bound);
    result
}

/// The signals that end the service.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn catch(runtime: &Runtime) -> std::io::Result<Self> {
        let _guard = runtime.enter();
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }
}

/// The sockets that were inherited and those that are to be bound, with the files of the latter.
fn sockets(
    mut sockets: Vec<Socket>,
    listen: &[Listen],
) -> Result<(Vec<Socket>, Vec<BoundSocket>), DaemonError> {
    let mut bound = Vec::new();
    for listen in listen {
        let (socket, file) = activation::bind_socket(listen)?;
        sockets.push(socket);
        bound.push(file);
    }
    if sockets.is_empty() { Err(DaemonError::NoSockets) } else { Ok((sockets, bound)) }
}

fn state_directory(option: Option<PathBuf>) -> PathBuf {
    // the service manager's list has one entry, as the unit has one StateDirectory
    let managed = || std::env::var_os("STATE_DIRECTORY").filter(|path| !path.is_empty());
    option
        .or_else(|| managed().map(PathBuf::from))
        .unwrap_or_else(|| PathBuf::from(DEFAULT_STATE_DIRECTORY))
}

/// Serves until there is a reason to end, then finishes what was accepted.
async fn serve(
    sockets: Vec<Socket>,
    allocator: Allocator,
    service: Service,
    config: &Config,
    mut signals: Signals,
    idle: Option<Duration>,
) -> Result<(), DaemonError> {
    let limits = &config.limits;
    let context = Context {
        service,
        limits: limits.clone(),
        connections: Connections::new(limits.connections, limits.connections_per_uid),
        tasks: TaskTracker::new(),
        stopping: CancellationToken::new(),
    };
    let mut listeners = Vec::new();
    for Socket { endpoint, listener } in sockets {
        let socket = UnixListener::from_std(listener)?;
        listeners.push(Listener::new(socket, endpoint, context.clone())?);
    }
    let watchdog = tokio::spawn(watchdog::run(allocator.clone()));
    let result = accept(listeners, &context, &allocator, &mut signals, idle).await;
    notify("STOPPING");
    context.stopping.cancel();
    context.tasks.close();
    if tokio::time::timeout(STOP_PATIENCE, context.tasks.wait()).await.is_err() {
        tracing::warn!(connections = context.tasks.len(), "stopped with connections open");
    }
    // what is still queued has nobody left to answer to
    allocator.stop();
    watchdog.abort();
    result.map(|reason| tracing::info!("{reason}, ended"))
}

/// Accepts connections until there is a reason to end.
async fn accept(
    mut listeners: Vec<Listener>,
    context: &Context,
    allocator: &Allocator,
    signals: &mut Signals,
    idle: Option<Duration>,
) -> Result<&'static str, DaemonError> {
    let mut is_ready = false;
    loop {
        let pause = CancellationToken::new();
        let mut accepting = JoinSet::new();
        for listener in listeners.drain(..) {
            accepting.spawn(listener.listen(pause.clone()));
        }
        if !std::mem::replace(&mut is_ready, true) {
            notify("READY");
        }
        let reason = tokio::select! {
            _ = signals.terminate.recv() => Ok("told to stop"),
            _ = signals.interrupt.recv() => Ok("interrupted"),
            () = idleness(&context.connections, idle) => Ok(IDLE),
            () = allocator.closed() => Err(DaemonError::AllocatorStopped),
        };
        pause.cancel();
        listeners.extend(accepting.join_all().await);
        // somebody may have come in at the last moment; later callers wait in the queue for the
        // next start
        if matches!(reason, Ok(IDLE)) && !context.tasks.is_empty() {
            continue;
        }
        return reason;
    }
}

/// The reason to end that somebody who comes in at the last moment undoes.
const IDLE: &str = "idle";

/// Returns when there has been no connection for `time`; never without a `time`.
async fn idleness(connections: &Connections, time: Option<Duration>) {
    let Some(time) = time else { return std::future::pending().await };
    let mut total = connections.total();
    // the sender lives in `connections`, so that neither wait can fail
    while total.wait_for(|total| *total == 0).await.is_ok() {
        if tokio::time::timeout(time, total.wait_for(|total| *total > 0)).await.is_err() {
            return;
        }
    }
}

/// Ends what is left when the last connection has been served: the database is closed by the
/// thread that owns it, and the socket files that were made here go.
fn finish(thread: JoinHandle<()>, bound: Vec<BoundSocket>) {
    if thread.join().is_err() {
        tracing::error!("the allocator has panicked");
    }
    drop(bound);
}

/// Tells the service manager, if there is one.
fn notify(state: &str) {
    if let Err(error) = systemd::daemon::notify([(state, "1")].iter()) {
        tracing::warn!(%error, "the service manager can't be told {state}");
    }
}

/// Sends the log to the journal with its fields, or to standard error when this is no service.
/// `$PORTSD_LOG` is the level: error, warn, info (the default), debug or trace.
pub fn log_to_journal() {
    use tracing_subscriber::filter::LevelFilter;
    use tracing_subscriber::layer::SubscriberExt;
    use tracing_subscriber::util::SubscriberInitExt;

    let level = std::env::var("PORTSD_LOG").ok().and_then(|level| level.parse().ok());
    let registry = tracing_subscriber::registry().with(level.unwrap_or(LevelFilter::INFO));
    // set by the service manager where standard error is the journal
    let is_service = std::env::var_os("JOURNAL_STREAM").is_some();
    match tracing_journald::layer() {
        Ok(journal) if is_service => {
            registry.with(journal.with_field_prefix(Some("PORTSD".to_owned()))).init();
        }
        _ => registry
            .with(tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_ansi(false))
            .init(),
    }
}

mod watchdog {
    //! Shows the service manager that the service still works, not only that it exists.

    use std::time::{Duration, Instant};

    use crate::allocator::Allocator;

    /// Pings the watchdog four times in each of its intervals, as long as the owning thread has
    /// answered within the last one. Returns at once when nobody watches.
    pub(super) async fn run(allocator: Allocator) {
        let interval = match systemd::daemon::watchdog_enabled() {
            Ok(0) => return,
            Ok(microseconds) => Duration::from_micros(microseconds),
            Err(error) => {
                tracing::warn!(%error, "watchdog settings can't be read");
                return;
            }
        };
        let mut ticks = tokio::time::interval(interval / 4);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let ask = || Box::pin(async { allocator.read(|_| ()).await });
        let mut probe = ask();
        let mut asked = Instant::now();
        loop {
            tokio::select! {
                _ = &mut probe => {
                    ticks.tick().await;
                    probe = ask();
                    asked = Instant::now();
                }
                _ = ticks.tick() => {}
            }
            if asked.elapsed() < interval {
                super::notify("WATCHDOG");
            }
        }
    }
}
