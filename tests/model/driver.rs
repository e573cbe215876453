//! Makes the calls, holds what the daemon answers and stores against what is expected, and stops
//! and starts it in between.

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::thread;
use std::time::{Duration, SystemTime};

use fastrand::Rng;
use serde_json::{Value, json};

use super::naive::{Answer, Node, Verdict};
use super::steps::{self, Step};
use super::support::{ADMIN, Client, Daemon, PATIENCE, PORTS, Refusal, both_wires, varlink};

/// One in so many steps is followed by a look at everything.
const LOOK_EVERY: u32 = 25;
/// After so many steps, everybody leaves.
const EXODUS_EVERY: u32 = 400;
/// How many steps a failure shows.
const RECENT: usize = 12;
/// The longest that ports rest in this test, in seconds.
pub const DAY: u64 = 86_400;

/// How often what came of a call.
pub type Tally = BTreeMap<(&'static str, String), u32>;

/// A daemon, and what is expected of it.
pub struct Run {
    seed: u64,
    rng: Rng,
    daemon: Daemon,
    wires: [Box<dyn Client>; 2],
    /// Is told all that happens.
    monitor: varlink::Client,
    node: Node,
    /// What is to be done before anything random.
    planned: Vec<Step>,
    done: u32,
    recent: VecDeque<String>,
    pub tally: Tally,
}

impl Drop for Run {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("--- the last steps before the failure, seed {}:", self.seed);
            self.recent.iter().for_each(|step| eprintln!("{step}"));
            eprintln!("--- what the model holds of it:\n{}", self.node);
        }
    }
}

impl Run {
    /// Starts a daemon whose freed ports rest for so many seconds.
    pub fn start(seed: u64, rng: Rng, rest: u64) -> Self {
        use super::naive::{EXCLUDED, FIRST, LAST};
        let exclude = EXCLUDED.map(|(start, end)| format!("{start}-{end}"));
        // a day passes often here, and the past must not be forgotten for that
        let daemon = Daemon::with_config(&format!(
            "[pool]\nstart = {FIRST}\nend = {LAST}\nexclude = {exclude:?}\nquarantine = {rest}\n\
             skip_bound = false\n[history]\nkeep = \"40000d\"\n"
        ));
        let wires = both_wires(&daemon, true, None);
        let node = Node::new(rest, nix::unistd::Uid::effective().as_raw());
        let (planned, recent, tally) = (Vec::new(), VecDeque::new(), Tally::new());
        let monitor = daemon.admin();
        let mut run =
            Self { seed, rng, daemon, wires, monitor, node, planned, done: 0, recent, tally };
        run.monitor();
        run
    }

    /// Begins to monitor. What is held comes first.
    fn monitor(&mut self) {
        self.monitor = self.daemon.admin();
        self.monitor.send(&json!({ "method": format!("{PORTS}.Monitor"), "more": true }));
        let mut held = Vec::new();
        while let Some(allocation) = self.next_event("present") {
            held.push(allocation);
        }
        let expected = self.node.list(None, None);
        assert_eq!(json!({ "allocations": held }), expected, "{}: monitored", self.place());
    }

    /// The range that the next event is about, which has to be of that kind; `None` for one that
    /// is about none.
    fn next_event(&mut self, kind: &str) -> Option<Value> {
        let reply = self.monitor.receive().expect("an event");
        let event = &reply["parameters"]["event"];
        let is_end = event["allocation"].is_null() && event["kind"] != "lagged";
        let expected = if is_end { "ready" } else { kind };
        assert_eq!(event["kind"], expected, "{}: {reply}", self.place());
        Some(event["allocation"].clone()).filter(|allocation| !allocation.is_null())
    }

    /// What was told of a change is what the history has of it.
    fn compare_events(&mut self, events: usize) {
        let newest = self.node.newest(events);
        for event in newest["events"].as_array().unwrap().iter().take(events).rev() {
            let told = self.next_event(event["kind"].as_str().unwrap()).unwrap();
            for field in ["owner", "protocol", "name", "start", "end"] {
                assert_eq!(told[field], event[field], "{}: {told}", self.place());
            }
        }
    }

    /// A database that another process has changed sends those who monitor away.
    fn expect_to_lag(&mut self) {
        assert_eq!(self.ask("GetStatus"), self.node.status(), "{}", self.place());
        assert_eq!(self.next_event("lagged"), None);
        self.monitor();
    }

    /// Takes so many steps, and gives back what the next daemon needs.
    pub fn take(mut self, steps: u32) -> (Rng, Tally) {
        for number in 1..=steps {
            self.disturb();
            if number % EXODUS_EVERY == 0 {
                self.planned = steps::exodus(&mut self.rng, &self.node);
            }
            let step = if self.planned.is_empty() {
                steps::random(&mut self.rng, &self.node)
            } else {
                self.planned.remove(0)
            };
            self.step(step);
            if self.rng.u32(0..LOOK_EVERY) == 0 {
                self.look_at_everything();
            }
        }
        self.restart(false);
        (self.rng.clone(), std::mem::take(&mut self.tally))
    }

    /// Makes a call over one wire, and looks over the other at what has come of it.
    fn step(&mut self, step: Step) {
        self.note(&format!("{step:?}"));
        let wire = self.rng.usize(0..2);
        let got = self.wires[wire].call(step.interface(), step.method(), step.parameters());
        let expected = self.node.judge(&step);
        let replied = expected.as_ref().map(|answer| answer.reply.clone()).map_err(Clone::clone);
        assert_eq!(got, replied, "{}: {step:?}", self.place());
        let outcome = outcome(&step, &expected);
        if let Ok(answer) = expected
            && answer.is_change()
        {
            let at = self.stored_at(&answer);
            self.node.apply(&answer, step.on_behalf_of(), at);
            self.compare_history(answer.edits.len());
            self.compare_events(answer.edits.len());
        }
        self.count(step.method(), outcome);
        self.compare_list(1 - wire);
    }

    /// Something that happens to a daemon between calls, now and then.
    fn disturb(&mut self) {
        match self.rng.u32(0..600) {
            0..3 => self.restart(false),
            3..6 => self.restart(true),
            6..9 => self.lose_an_answer(),
            9..28 => {
                let seconds = self.rng.u64(1..1000);
                self.pass(seconds);
            }
            28..32 => self.pass(2 * DAY),
            _ => {}
        }
    }

    /// Stops or kills the daemon and starts it again. Everything is as it was.
    fn restart(&mut self, kills: bool) {
        self.note(&format!("restart, kills: {kills}"));
        if kills {
            self.daemon.kill();
        } else {
            assert!(self.daemon.stop().success(), "{}", self.place());
        }
        self.daemon.restart();
        self.wires = both_wires(&self.daemon, true, None);
        self.count("restart", if kills { "killed" } else { "stopped" }.to_owned());
        self.monitor();
        self.look_at_everything();
        self.compare_stored_history();
    }

    /// Kills the daemon while it may be at a call. The call is carried out as a whole, or not at
    /// all.
    fn lose_an_answer(&mut self) {
        let (step, answer) = self.random_change();
        self.note(&format!("the answer is lost: {step:?}"));
        let method = format!("{}.{}", step.interface(), step.method());
        let message = json!({ "method": method, "parameters": step.parameters() });
        let mut client = self.daemon.admin();
        client.send(&message);
        thread::sleep(Duration::from_micros(self.rng.u64(0..1000)));
        self.daemon.kill();
        self.daemon.restart();
        self.wires = both_wires(&self.daemon, true, None);
        let mut after = self.node.clone();
        after.apply(&answer, step.on_behalf_of(), self.stored_at(&answer));
        let events = answer.edits.len();
        let is_done = self.newest(events) == after.newest(events)
            && self.ask("ListModules") == after.list_modules();
        if is_done {
            self.node = after;
        }
        let outcome = if is_done { "carried out" } else { "not carried out" };
        self.count("lost answer", outcome.to_owned());
        self.monitor();
        self.look_at_everything();
        self.compare_stored_history();
    }

    /// A call that is going to change something.
    fn random_change(&mut self) -> (Step, Answer) {
        loop {
            let step = steps::random(&mut self.rng, &self.node);
            if let Ok(answer) = self.node.judge(&step)
                && answer.is_change()
            {
                return (step, answer);
            }
        }
    }

    /// Makes everything that has happened older, as another process may, so that ports have been
    /// resting for different times. It makes the daemon read the database again, too.
    fn pass(&mut self, seconds: u64) {
        self.note(&format!("{seconds} seconds pass"));
        let database = open(&self.daemon.database());
        let older = "UPDATE history SET at = max(0, at - ?1)";
        let changed = database.execute(older, [i64::try_from(seconds).unwrap()]).unwrap();
        self.node.pass(seconds);
        // where nothing has happened yet, nothing is written
        if changed > 0 {
            self.expect_to_lag();
        }
        let outcome = if seconds < DAY { "some time" } else { "more than a day" };
        self.count("time passes", outcome.to_owned());
    }

    /// When the change that was just made was stored. One that left no event in the history was
    /// about modules, and its moment does not matter.
    fn stored_at(&mut self, answer: &Answer) -> u64 {
        if answer.edits.is_empty() {
            return 0;
        }
        let newest = self.newest(1);
        newest["events"][0]["at"].as_str().map_or(0, |text| {
            let time = humantime::parse_rfc3339(text).unwrap();
            time.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs()
        })
    }

    fn newest(&mut self, limit: usize) -> Value {
        let limit = json!({ "limit": limit.max(1) });
        self.wires[0].call(ADMIN, "History", limit).unwrap()
    }

    fn ask(&mut self, method: &str) -> Value {
        let interface = if method == "ListModules" { ADMIN } else { PORTS };
        let wire = self.rng.usize(0..2);
        self.wires[wire].call(interface, method, json!({})).unwrap()
    }

    fn compare_history(&mut self, events: usize) {
        let (told, expected) = (self.newest(events), self.node.newest(events));
        assert_eq!(told, expected, "{}: the history", self.place());
    }

    fn compare_list(&mut self, wire: usize) {
        let listed = self.wires[wire].call(PORTS, "List", json!({})).unwrap();
        let expected = self.node.list(None, None);
        assert_eq!(listed, expected, "{}: what is held", self.place());
    }

    /// All that the daemon tells, and what is held by the database.
    fn look_at_everything(&mut self) {
        self.compare_list(0);
        self.compare_history(100);
        assert_eq!(self.ask("GetStatus"), self.node.status(), "{}", self.place());
        assert_eq!(self.ask("ListModules"), self.node.list_modules(), "{}", self.place());
        let held = self.node.allocation_rows();
        let backup = self.wires[0].call(ADMIN, "Backup", json!({})).unwrap();
        for database in [&self.daemon.database(), Path::new(backup["path"].as_str().unwrap())] {
            let stored = rows(
                database,
                r#"SELECT json_array(owner, protocol, name, start, "end", claimed, allocated_at)
                   FROM allocations ORDER BY protocol, start"#,
            );
            assert_eq!(stored, held, "{}: the rows of {}", self.place(), database.display());
        }
    }

    /// The whole past, which decides where owners return to and what rests.
    fn compare_stored_history(&mut self) {
        let stored = rows(
            &self.daemon.database(),
            r#"SELECT json_array(at, kind, owner, protocol, name, start, "end", claimed, uid,
                   on_behalf_of) FROM history ORDER BY id"#,
        );
        assert_eq!(stored, self.node.history_rows(), "{}: the stored history", self.place());
    }

    fn note(&mut self, text: &str) {
        self.done += 1;
        if self.recent.len() == RECENT {
            self.recent.pop_front();
        }
        self.recent.push_back(format!("{}: {text}", self.done));
    }

    fn count(&mut self, what: &'static str, outcome: String) {
        *self.tally.entry((what, outcome)).or_default() += 1;
    }

    fn place(&self) -> String {
        format!("seed {}, step {} of this daemon", self.seed, self.done)
    }
}

/// What came of a call, for the summary.
fn outcome(step: &Step, verdict: &Verdict) -> String {
    match (step, verdict) {
        (_, Ok(answer)) => answer.how.clone(),
        (Step::Deallocate { target, .. }, Err(Refusal { condition, .. }))
            if condition == "PermissionDenied" && target.owner.is_none() =>
        {
            "PermissionDenied for a claim".to_owned()
        }
        (_, Err(Refusal { condition, .. })) => condition.clone(),
    }
}

/// Another process's way to the database.
fn open(database: &Path) -> rusqlite::Connection {
    let connection = rusqlite::Connection::open(database).unwrap();
    connection.busy_timeout(PATIENCE).unwrap();
    connection
}

/// The rows that a query of one column gives.
fn rows(database: &Path, query: &str) -> Vec<String> {
    let connection = open(database);
    let mut statement = connection.prepare(query).unwrap();
    statement.query_map([], |row| row.get(0)).unwrap().collect::<Result<_, _>>().unwrap()
}
