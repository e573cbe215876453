//! The connection to Redis, and the task that keeps it.
//!
//! One task owns the connection. It takes the questions that wait, sends them in one pipeline, and
//! hands out the replies: one round trip at a time, for everybody who waits. Whoever asks waits
//! [`PATIENCE`] at the most. A connection that is lost or does not answer in that time is given up;
//! until the task has a better one, every question is answered at once with [`Unavailable::Away`],
//! so that an outage costs a caller nothing once it is known. A server without the cluster's keys
//! can't answer a question either, but may at the next one: a new cluster gets its first module.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Cmd, Pipeline, Value};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{sleep, timeout};

use super::Unavailable;
use super::entry::MODULE_NODE;
use super::order::{Asked, Order};
use crate::redis_stream::{Allowance, connect};
use crate::redis_url::RedisUrl;

/// How long somebody who asks waits, in all. Redis is on this node and answers in a fraction of a
/// millisecond.
pub const PATIENCE: Duration = Duration::from_secs(1);
/// How long Redis is left alone after it has failed, at first and at the most.
const RETRY_MIN: Duration = Duration::from_millis(100);
const RETRY_MAX: Duration = Duration::from_secs(2);
/// So many questions wait at the most; a further one waits for its place among them.
const QUEUE: usize = 1024;
/// So many questions share a round trip.
const ROUND_QUESTIONS_MAX: usize = 64;
/// So many bytes may come in reply to each question. The longest reply, all modules of a cluster
/// with their nodes, has some 30 for each module.
const REPLY_BYTES_MAX: usize = 1024 * 1024;

/// What somebody wants to know.
struct Question {
    commands: Vec<Cmd>,
    answer: oneshot::Sender<Replies>,
}

/// What Redis has replied to a question.
pub struct Replies {
    /// One for each command, which may be an error of its own.
    pub values: Vec<Value>,
    /// When it was asked.
    pub asked: Asked,
}

/// Whether Redis answers, as far as it is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Health {
    /// It has not been reached yet: questions wait.
    Starting,
    /// It answers.
    Up,
    /// It answers, but has nothing of a cluster.
    Empty,
    /// It does not: questions are not asked.
    Away,
}

/// The way to the task that keeps the connection. The task ends when the last one is dropped.
#[derive(Clone)]
pub struct Link {
    questions: mpsc::Sender<Question>,
    health: watch::Receiver<Health>,
}

impl Link {
    /// Starts the task that keeps the connection. Runs in a tokio runtime.
    pub fn start(url: &RedisUrl, order: Arc<Order>) -> Self {
        let (sender, questions) = mpsc::channel(QUEUE);
        let (health, watched) = watch::channel(Health::Starting);
        let keeper = Keeper { url: url.clone(), order, questions, health, pause: RETRY_MIN };
        tokio::spawn(keeper.run());
        Self { questions: sender, health: watched }
    }

    /// Whether Redis is known to have no answers.
    pub fn is_silent(&self) -> bool {
        matches!(*self.health.borrow(), Health::Away | Health::Empty)
    }

    /// The replies to the commands.
    pub async fn ask(&self, commands: Vec<Cmd>) -> Result<Replies, Unavailable> {
        if *self.health.borrow() == Health::Away {
            return Err(Unavailable::Away);
        }
        let (answer, receiver) = oneshot::channel();
        let asked = async {
            self.questions
                .send(Question { commands, answer })
                .await
                .map_err(|_| Unavailable::Away)?;
            receiver.await.map_err(|_| Unavailable::Away)
        };
        timeout(PATIENCE, asked).await.unwrap_or(Err(Unavailable::Away))
    }
}

/// Nobody can ask any more.
struct Unwanted;

/// Why Redis can't be asked, for people.
type Cause = String;

/// Why a connection is given up.
enum End {
    /// Nobody can ask any more.
    Unwanted,
    /// The other end has hung up while nobody asked anything.
    HungUp,
    /// A question was not answered.
    Failed(Cause),
}

struct Keeper {
    url: RedisUrl,
    order: Arc<Order>,
    questions: mpsc::Receiver<Question>,
    health: watch::Sender<Health>,
    /// How long Redis is left alone when it fails the next time.
    pause: Duration,
}

impl Keeper {
    async fn run(mut self) {
        loop {
            let cause = match in_time(Connection::open(&self.url, &self.order)).await {
                Ok(connection) => {
                    let opened = Instant::now();
                    match self.serve(connection).await {
                        End::Unwanted => return,
                        // Redis may be told to close connections that are idle: that is no outage
                        End::HungUp if opened.elapsed() > RETRY_MAX => continue,
                        End::HungUp => "it has hung up".to_owned(),
                        End::Failed(cause) => cause,
                    }
                }
                Err(cause) => cause,
            };
            self.set_silent(Health::Away, cause);
            if let Some(Unwanted) = self.refuse_for(self.pause).await {
                return;
            }
            self.pause = (self.pause * 2).min(RETRY_MAX);
        }
    }

    /// Answers questions until there is a reason not to.
    async fn serve(&mut self, mut connection: Connection) -> End {
        let mut round = Vec::new();
        loop {
            // the first round has no question: it shows what the server has. Questions that are not
            // answered are dropped, and whoever asks learns it by that
            match in_time(connection.answer(round.drain(..))).await {
                Ok(Contents::Cluster) => self.set_up(),
                Ok(Contents::Nothing) => {
                    self.set_silent(Health::Empty, format!("it has no key {MODULE_NODE}"));
                }
                Err(cause) => return End::Failed(cause),
            }
            self.pause = RETRY_MIN;
            let is_empty = *self.health.borrow() == Health::Empty;
            tokio::select! {
                count = self.questions.recv_many(&mut round, ROUND_QUESTIONS_MAX) => {
                    if count == 0 {
                        return End::Unwanted;
                    }
                }
                () = connection.lost() => return End::HungUp,
                () = sleep(RETRY_MAX), if is_empty => {}
            }
        }
    }

    /// Leaves Redis alone for a while.
    async fn refuse_for(&mut self, pause: Duration) -> Option<Unwanted> {
        let refuse = async {
            while let Some(question) = self.questions.recv().await {
                drop(question);
            }
            Unwanted
        };
        tokio::select! {
            unwanted = refuse => Some(unwanted),
            () = sleep(pause) => None,
        }
    }

    fn set_up(&self) {
        let before = self.health.send_replace(Health::Up);
        let redis = self.url.address();
        match before {
            Health::Starting => tracing::info!(%redis, "the cluster's modules are known"),
            Health::Away | Health::Empty => {
                tracing::info!(%redis, "the cluster's modules are known again");
            }
            Health::Up => {}
        }
    }

    /// Says so once, whatever the further attempts meet.
    fn set_silent(&self, health: Health, cause: Cause) {
        if let Health::Starting | Health::Up = self.health.send_replace(health) {
            let redis = self.url.address();
            let cause = self.url.without_password(cause);
            tracing::warn!(
                %redis,
                cause,
                "Redis can't be asked who is a module; what was known last counts meanwhile"
            );
        }
    }
}

/// What comes of it within [`PATIENCE`].
async fn in_time<T>(work: impl Future<Output = Result<T, Cause>>) -> Result<T, Cause> {
    timeout(PATIENCE, work).await.unwrap_or_else(|_| Err(format!("no answer in {PATIENCE:?}")))
}

/// What a server has.
enum Contents {
    /// The cluster's keys.
    Cluster,
    /// None of them. A replica that has never been in touch with its leader, or a Redis of something
    /// else: that says nothing about anybody.
    Nothing,
}

/// A connection.
struct Connection {
    order: Arc<Order>,
    redis: MultiplexedConnection,
    allowance: Allowance,
    /// Moves the bytes; ends when the connection does.
    driver: Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl Connection {
    async fn open(url: &RedisUrl, order: &Arc<Order>) -> Result<Self, Cause> {
        let (stream, allowance) =
            connect(url.address()).await.map_err(|error| error.to_string())?;
        allowance.set(REPLY_BYTES_MAX);
        // who asks waits no longer than PATIENCE; the library's own bound would be another one
        let config = AsyncConnectionConfig::new().set_response_timeout(None);
        let settings = url.settings();
        let opened = MultiplexedConnection::new_with_config(&settings, stream, config).await;
        let (redis, driver) = opened.map_err(|error| error.to_string())?;
        Ok(Self { order: Arc::clone(order), redis, allowance, driver: Box::pin(driver) })
    }

    /// Answers the questions in one round trip, if the server has answers.
    async fn answer(
        &mut self,
        questions: impl Iterator<Item = Question>,
    ) -> Result<Contents, Cause> {
        // numbered as they are sent: Redis answers them in this order
        let questions: Vec<_> = questions.map(|question| (question, self.order.now())).collect();
        let mut pipeline = Pipeline::new();
        pipeline.cmd("EXISTS").arg(MODULE_NODE);
        for command in questions.iter().flat_map(|(question, _)| &question.commands) {
            pipeline.add_command(command.clone());
        }
        self.allowance.set(REPLY_BYTES_MAX * (questions.len() + 1));
        let replies = self.round_trip(&pipeline).await?;
        let mut replies = replies.into_iter();
        self.allowance.set(REPLY_BYTES_MAX);
        if let Contents::Nothing = contents(replies.next())? {
            return Ok(Contents::Nothing);
        }
        for (Question { commands, answer }, asked) in questions {
            let values = replies.by_ref().take(commands.len()).collect();
            // whoever has stopped waiting needs no answer
            let _ = answer.send(Replies { values, asked });
        }
        Ok(Contents::Cluster)
    }

    async fn round_trip(&mut self, pipeline: &Pipeline) -> Result<Vec<Value>, Cause> {
        let count = pipeline.len();
        let replies = tokio::select! {
            replies = self.redis.send_packed_commands(pipeline, 0, count) => replies,
            () = &mut self.driver => return Err("it has hung up".to_owned()),
        };
        let replies = replies.map_err(|error| error.to_string())?;
        if replies.len() == count { Ok(replies) } else { Err("replies are missing".to_owned()) }
    }

    /// Returns when the other end has hung up.
    async fn lost(&mut self) {
        (&mut self.driver).await;
    }
}

/// What the server has, by its reply to whether there is the key of all modules.
fn contents(exists: Option<Value>) -> Result<Contents, Cause> {
    match exists {
        Some(Value::Int(0)) => Ok(Contents::Nothing),
        Some(Value::Int(_)) => Ok(Contents::Cluster),
        Some(Value::ServerError(error)) => Err(error.to_string()),
        _ => Err("it does not answer as Redis does".to_owned()),
    }
}
