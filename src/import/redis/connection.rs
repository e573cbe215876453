//! A connection that waits for nothing longer than [`PATIENCE`].

use std::collections::BTreeMap;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, ErrorKind, FromRedisValue, Pipeline, RedisError, ServerError,
    ServerErrorKind, Value,
};
use tokio::time::{Instant, sleep, timeout_at};

use crate::import::{Unreadable, shown_up_to};
use crate::redis_stream::{Allowance, connect};
use crate::redis_url::{RedisUrl, nobody};

/// How long it may take until the connection is there or the next data come.
const PATIENCE: Duration = Duration::from_secs(5);

/// So many bytes are read of an answer. Those about a module are of four values, those about all
/// modules of a cluster have some 30 for each.
pub(super) const REPLY_BYTES_MAX: usize = 8 * 1024 * 1024;

/// How long a server that loads its data is left alone.
const LOADING_PAUSE: Duration = Duration::from_millis(100);

const SILENT: &str = "no answer within 5 seconds: is this Redis, and does it work?";
const LOST: &str = "the connection ended before the answer: is this Redis, and one without TLS?";
const LOADING: &str = "it still loads its data: try again later";
const TOO_LONG: &str = "the answer is longer than anything that NS8 has there";
const STRANGE: &str = "the answer can't be understood: is this Redis, and that of NS8?";

/// The fields of a hash, in order, and their values.
pub(super) type Hash = BTreeMap<Vec<u8>, Vec<u8>>;

/// A connection to a Redis, as the user who asks.
pub(super) struct Connection {
    link: MultiplexedConnection,
    allowance: Allowance,
    place: String,
    deadline: Instant,
}

impl Connection {
    pub(super) async fn open(url: &RedisUrl) -> Result<Self, Unreadable> {
        let place = place(url);
        let deadline = Instant::now() + PATIENCE;
        let unreadable = |reason: String| Unreadable::new(place.clone(), reason);
        // the time is kept here, over all attempts
        let config = AsyncConnectionConfig::new().set_response_timeout(None);
        let connect = async {
            let (stream, allowance) = connect(url.address()).await?;
            // names and passwords are sent from here, so that an error is told apart
            let settings = nobody();
            let opened = MultiplexedConnection::new_with_config(&settings, stream, config).await;
            let (link, driver) = opened?;
            // moves the bytes; ends with the connection
            tokio::spawn(Box::pin(driver));
            Ok::<_, RedisError>((link, allowance))
        };
        let connected = timeout_at(deadline, connect).await;
        let (link, allowance) = connected
            .map_err(|_| unreadable("it can't be reached within 5 seconds".to_owned()))?
            .map_err(|error| unreadable(explain(&error)))?;
        let mut connection = Self { link, allowance, place, deadline };
        connection.log_in(url).await?;
        Ok(connection)
    }

    async fn log_in(&mut self, url: &RedisUrl) -> Result<(), Unreadable> {
        let mut pipeline = Pipeline::new();
        let (login, database) = (url.login(), url.database());
        if let Some((user, password)) = login {
            pipeline.cmd("AUTH").arg(user).arg(password);
        }
        if database != 0 {
            pipeline.cmd("SELECT").arg(database);
        }
        let mut replies = self.ask(&mut pipeline).await?.into_iter();
        if let Some(Err(error)) = login.and_then(|_| replies.next()) {
            return Err(self.unreadable(refusal_of_login(&error)));
        }
        match replies.next() {
            Some(Err(error)) => Err(self.refused("SELECT", &database.to_string(), &error)),
            _ => Ok(()),
        }
    }

    /// Sends commands together and gives their replies. A server that still loads its data is asked
    /// again for a while.
    pub(super) async fn ask(
        &mut self,
        pipeline: &mut Pipeline,
    ) -> Result<Vec<Result<Value, ServerError>>, Unreadable> {
        if pipeline.is_empty() {
            return Ok(Vec::new());
        }
        pipeline.ignore_errors();
        loop {
            self.allowance.set(REPLY_BYTES_MAX);
            let answer = pipeline.query_async::<Vec<Value>>(&mut self.link);
            let values = timeout_at(self.deadline, answer)
                .await
                .map_err(|_| self.unreadable(SILENT.to_owned()))?
                .map_err(|error| self.unreadable(self.explain(&error)))?;
            let replies: Vec<_> = values.into_iter().map(told_apart).collect();
            if !replies.iter().any(is_loading) {
                self.deadline = Instant::now() + PATIENCE;
                return Ok(replies);
            }
            if Instant::now() + LOADING_PAUSE >= self.deadline {
                return Err(self.unreadable(LOADING.to_owned()));
            }
            sleep(LOADING_PAUSE).await;
        }
    }

    /// All fields of a hash; none if it is not there.
    pub(super) async fn hash(&mut self, key: &str) -> Result<Hash, Unreadable> {
        let mut pipeline = Pipeline::new();
        pipeline.cmd("HGETALL").arg(key);
        match self.ask(&mut pipeline).await?.pop() {
            Some(Ok(value)) => self.understand(value),
            Some(Err(error)) => Err(self.refused("HGETALL", key, &error)),
            None => Err(self.strange()),
        }
    }

    pub(super) fn strange(&self) -> Unreadable {
        self.unreadable(STRANGE.to_owned())
    }

    /// A reply as the type that it has to have.
    pub(super) fn understand<T: FromRedisValue>(&self, value: Value) -> Result<T, Unreadable> {
        T::from_redis_value(value).map_err(|_| self.strange())
    }

    /// The error for a command that was refused.
    pub(super) fn refused(&self, command: &str, key: &str, error: &ServerError) -> Unreadable {
        self.unreadable(format!("{command} {key} was refused: {}", refusal(error)))
    }

    /// Whether the last answer was longer than what is read. The connection is gone then.
    pub(super) fn is_flooded(&self) -> bool {
        self.allowance.is_used_up()
    }

    fn explain(&self, error: &RedisError) -> String {
        if self.is_flooded() { TOO_LONG.to_owned() } else { explain(error) }
    }

    pub(super) fn unreadable(&self, reason: String) -> Unreadable {
        Unreadable::new(self.place.clone(), reason)
    }
}

/// The address, for messages.
pub(super) fn place(url: &RedisUrl) -> String {
    format!("Redis at {}", url.address())
}

fn told_apart(value: Value) -> Result<Value, ServerError> {
    match value {
        Value::ServerError(error) => Err(error),
        value => Ok(value),
    }
}

fn is_loading(reply: &Result<Value, ServerError>) -> bool {
    let kind = reply.as_ref().err().and_then(ServerError::kind);
    kind == Some(ServerErrorKind::BusyLoading)
}

/// Why there is no connection or no answer.
fn explain(error: &RedisError) -> String {
    match error.kind() {
        ErrorKind::Io if error.is_connection_refusal() => shown_bare(&error.to_string()),
        ErrorKind::Io if error.is_connection_dropped() => LOST.to_owned(),
        ErrorKind::Parse | ErrorKind::UnexpectedReturnType => STRANGE.to_owned(),
        _ => shown_bare(&error.to_string()),
    }
}

/// So much of an error is shown, in bytes.
const ERROR_BYTES_MAX: usize = 300;

/// What a server or the system says, harmless and short. A server is only as trustworthy as whoever
/// runs it.
fn shown_bare(text: &str) -> String {
    shown_up_to(ERROR_BYTES_MAX, text.as_bytes()).trim_matches('"').to_owned()
}

const NO_LOGIN: &str = "give a user and a password that it knows";

fn refusal(error: &ServerError) -> String {
    match error.code() {
        "NOPERM" => "this user may not do that".to_owned(),
        "NOAUTH" => format!("it wants a password; {NO_LOGIN}"),
        "WRONGTYPE" => "this is of another type than NS8 has there".to_owned(),
        code => shown_bare(&format!("{code} {}", error.details().unwrap_or_default())),
    }
}

/// Of a login, the code is all that is told: a server may repeat what it was sent.
fn refusal_of_login(error: &ServerError) -> String {
    match error.code() {
        "WRONGPASS" => format!("it refuses the user or the password; {NO_LOGIN}"),
        code => format!("it refuses to let the user in ({}); {NO_LOGIN}", shown_bare(code)),
    }
}

/// Why a key could not be removed.
pub(super) fn refusal_to_write(error: &ServerError) -> String {
    match error.kind() {
        Some(ServerErrorKind::ReadOnly) => {
            "this Redis is a replica, remove it on the leader".to_owned()
        }
        Some(ServerErrorKind::NoPerm) => {
            "this user may not, a user who may has to remove it".to_owned()
        }
        _ => refusal(error),
    }
}
