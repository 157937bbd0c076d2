//! Several servers behind one URL, of which one takes writes: which one, and when it is another.
//!
//! The driver knows one host. A watcher asks the chosen server twice a second whether it still takes writes, and now and then
//! the others, because one may have been promoted without the chosen one's knowledge; when it does not answer, became read-only
//! or is no more the newest, all servers are asked at once and the one that takes writes is chosen for every new connection.
//! *Invariant:* of two servers that take writes the one with the newer timeline is right, and a pool never goes back to an
//! older timeline than it has seen, or another pool of its program: that would be an old primary that woke.

use std::sync::Arc;
use std::time::{Duration, Instant};

use sqlx::postgres::{PgConnectOptions, PgConnection, PgPool};
use sqlx::{ConnectOptions as _, Connection as _};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};

use crate::Error;

/// How often the chosen server is asked.
const EVERY: Duration = Duration::from_millis(500);
/// How often the others are asked, too.
const OTHERS: Duration = Duration::from_secs(5);
/// Name that Postgres shows for the connections by which servers are watched.
const WATCHER: &str = "slipway watch";
/// Patience with one server, opening the connection included.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long to wait when no server takes writes; short, because everything waits for this.
const AGAIN: Duration = Duration::from_millis(250);

/// Answers null where nothing can be written, else the timeline, which sorts as text.
const TIMELINE: &str = "select case when pg_is_in_recovery() or current_setting('transaction_read_only')::boolean \
                        then null else substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8) end";

/// The parameter by which other clients choose a server of a list; here it is always the one that takes writes.
const ATTRIBUTES: &str = "target_session_attrs";

/// The newest timeline that any pool of a program has seen; empty where there is one server only, of which nothing is expected.
/// Clones are the same one.
#[derive(Debug, Clone, Default)]
pub(crate) struct Newest(Arc<watch::Sender<String>>);

impl Newest {
    fn saw(&self, timeline: &str) {
        self.0.send_if_modified(|newest| {
            let newer = timeline > newest.as_str();
            if newer {
                timeline.clone_into(newest);
            }
            newer
        });
    }

    /// Waits until a newer one was seen.
    async fn outdoes(&self, timeline: &str) {
        let mut newest = self.0.subscribe();
        // It fails only once nobody is left who could tell, and this is one.
        drop(newest.wait_for(|newest| newest.as_str() > timeline).await);
    }

    fn get(&self) -> String {
        self.0.borrow().clone()
    }
}

/// Which server was chosen, as far as connections have to know it.
#[derive(Debug, Clone)]
pub(crate) struct Choice {
    state: Arc<watch::Sender<State>>,
    newest: Newest,
}

#[derive(Debug, Default)]
struct State {
    /// Whether any was: before that nobody knows whether a server is the right one.
    made: bool,
    /// When it last changed, or was seen to be wrong: connections older than that go to the wrong server.
    changed: Option<Instant>,
}

impl Choice {
    /// A choice between so many servers; between one there is none.
    pub(crate) fn between(servers: usize, newest: Newest) -> Self {
        let state = State { made: servers < 2, ..State::default() };
        Self { state: Arc::new(watch::Sender::new(state)), newest }
    }

    /// Whether a connection of this age was made before the last change.
    fn outdates(&self, age: Duration) -> bool {
        self.state.borrow().changed.is_some_and(|changed| age >= changed.elapsed())
    }

    /// Whether a server of this timeline may be the chosen one; waits a little for the first choice.
    async fn allows(&self, timeline: &str) -> bool {
        let mut state = self.state.subscribe();
        let made = tokio::time::timeout(PATIENCE, state.wait_for(|state| state.made)).await;
        matches!(made, Ok(Ok(_))) && timeline >= self.newest.get().as_str()
    }

    fn make(&self, changed: bool) {
        self.state.send_modify(|state| {
            state.made = true;
            if changed {
                state.changed = Some(Instant::now());
            }
        });
    }
}

/// Watches while it lives.
#[derive(Debug)]
pub(crate) struct Watch(AbortHandle);

impl Drop for Watch {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// One URL for each host of `user:password@first:5432,second:5432/database`.
pub(crate) fn split(url: &str) -> Result<Vec<String>, Error> {
    let Some((scheme, rest)) = url.split_once("://") else { return Ok(vec![url.to_owned()]) };
    let (authority, tail) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    let (login, hosts) = authority.rfind('@').map_or(("", authority), |at| authority.split_at(at + 1));
    let hosts: Vec<&str> = hosts.split(',').map(str::trim).collect();
    if hosts.len() > 1 && hosts.contains(&"") {
        let reason = "the list of hosts has an empty one".into();
        return Err(Error::ParseUrl(sqlx::Error::Configuration(reason)));
    }
    let tail = without_attributes(tail);
    Ok(hosts.into_iter().map(|host| format!("{scheme}://{login}{host}{tail}")).collect())
}

fn without_attributes(tail: &str) -> String {
    let Some((path, query)) = tail.split_once('?') else { return tail.to_owned() };
    let kept: Vec<&str> =
        query.split('&').filter(|pair| pair.split('=').next() != Some(ATTRIBUTES)).collect();
    if kept.is_empty() { path.to_owned() } else { format!("{path}?{}", kept.join("&")) }
}

/// Watches over `hosts`, of which the pool begins with the first. The watch ends with its handle.
pub(crate) fn watch_over(hosts: Vec<PgConnectOptions>, pool: PgPool, choice: Choice) -> Watch {
    let watcher = Watcher { hosts, pool, choice, chosen: 0, timeline: String::new(), alone: false };
    Watch(tokio::spawn(watcher.run()).abort_handle())
}

struct Watcher {
    hosts: Vec<PgConnectOptions>,
    pool: PgPool,
    choice: Choice,
    chosen: usize,
    /// The timeline by which that one was chosen; empty before any was.
    timeline: String,
    /// Whether it was said that no server takes writes.
    alone: bool,
}

impl Watcher {
    async fn run(mut self) {
        while !self.pool.is_closed() {
            match self.find().await {
                Some(connection) => {
                    self.stay(connection).await;
                    self.leave();
                }
                None => tokio::time::sleep(AGAIN).await,
            }
        }
    }

    /// Stays with the chosen server until it takes no writes any more, or another one does that is newer. The others are asked
    /// meanwhile and not in between: they may be slow to answer, and who uses the chosen one waits for what is found here.
    async fn stay(&self, connection: PgConnection) {
        tokio::select! {
            () = self.until_refused(connection) => {}
            () = self.until_outdone() => {}
        }
    }

    /// Asks the chosen server until it takes no writes any more.
    async fn until_refused(&self, mut connection: PgConnection) {
        while let Some(timeline) = timeline(&mut connection).await {
            self.choice.newest.saw(&timeline);
            tokio::time::sleep(EVERY).await;
        }
    }

    /// Asks the others now and then until one takes writes on a newer timeline than the chosen one's, or another pool saw that.
    async fn until_outdone(&self) {
        tokio::select! {
            () = self.choice.newest.outdoes(&self.timeline) => {}
            () = self.ask_others() => {}
        }
    }

    /// Asks the others now and then, without an end.
    async fn ask_others(&self) {
        loop {
            tokio::time::sleep(OTHERS).await;
            self.ask(|number| number != self.chosen).await;
        }
    }

    /// Asks these servers at once. Gives those that take writes, with their timelines: none that is older is chosen any more, even
    /// if the newest does not answer when it is asked again.
    async fn ask(&self, these: impl Fn(usize) -> bool) -> Vec<(usize, String, PgConnection)> {
        let mut asked = JoinSet::new();
        for (number, host) in self.hosts.iter().cloned().enumerate().filter(|(number, _)| these(*number)) {
            asked.spawn(async move { (number, probe(host).await) });
        }
        let answers = asked.join_all().await.into_iter();
        let writable =
            answers.filter_map(|(number, answer)| answer.map(|(timeline, it)| (number, timeline, it)));
        writable.inspect(|(_, timeline, _)| self.choice.newest.saw(timeline)).collect()
    }

    /// Asks all servers and chooses.
    async fn find(&mut self) -> Option<PgConnection> {
        let writable = self.ask(|_| true).await;
        let timelines: Vec<(usize, &str)> =
            writable.iter().map(|(number, timeline, _)| (*number, timeline.as_str())).collect();
        let Some(number) = choose(&timelines, self.chosen, &self.choice.newest.get()) else {
            self.leave();
            self.say_alone(!timelines.is_empty());
            return None;
        };
        self.alone = false;
        if number == self.chosen {
            self.choice.make(false);
        } else {
            self.switch(number);
        }
        let (_, timeline, connection) = writable.into_iter().find(|(other, ..)| *other == number)?;
        self.timeline = timeline;
        Some(connection)
    }

    /// Of an old primary no connection is used any more, whether the newer one answers or not. A server that only does not answer
    /// keeps its connections: it may be busy.
    fn leave(&self) {
        if self.choice.newest.get() > self.timeline {
            self.choice.make(true);
        }
    }

    fn switch(&mut self, number: usize) {
        let host = &self.hosts[number];
        tracing::warn!(
            postgres.host = host.get_host(),
            postgres.port = host.get_port(),
            "another Postgres server takes the writes now"
        );
        self.chosen = number;
        self.pool.set_connect_options(host.clone());
        self.choice.make(true);
    }

    fn say_alone(&mut self, old_primary: bool) {
        if !std::mem::replace(&mut self.alone, true) {
            let servers = self.hosts.len();
            tracing::error!(
                servers,
                old_primary,
                "no Postgres server takes writes as the newest of its kind"
            );
        }
    }
}

/// The server to use: of those that take writes the one with the newest timeline, but none that is older than what was
/// seen; where two are equal, the one in use.
fn choose(writable: &[(usize, &str)], chosen: usize, newest: &str) -> Option<usize> {
    let right = writable.iter().filter(|(_, timeline)| *timeline >= newest);
    right.max_by_key(|(number, timeline)| (*timeline, *number == chosen)).map(|(number, _)| *number)
}

/// A connection to a server that takes writes, with its timeline.
async fn probe(host: PgConnectOptions) -> Option<(String, PgConnection)> {
    let host = host.application_name(WATCHER);
    let mut connection = tokio::time::timeout(PATIENCE, host.connect()).await.ok()?.ok()?;
    let timeline = timeline(&mut connection).await?;
    Some((timeline, connection))
}

/// The timeline of a server that takes writes.
async fn timeline(connection: &mut PgConnection) -> Option<String> {
    let answer = sqlx::query_scalar(TIMELINE).fetch_one(&mut *connection);
    let answer: Option<String> = tokio::time::timeout(PATIENCE, answer).await.ok()?.ok()?;
    answer
}

/// Whether a pooled connection may be used: it answers, its server takes writes, and it is the chosen one's.
pub(crate) async fn usable(
    connection: &mut PgConnection,
    age: Duration,
    choice: &Choice,
) -> Result<bool, sqlx::Error> {
    if choice.outdates(age) {
        return Ok(false);
    }
    let read_only = read_only(connection).await?;
    Ok(!read_only)
}

/// Whether a connection that was given back is still of use: whatever it was given back in the middle of, it answers in
/// time. The driver would wait for that answer without end, and a server that fell silent would keep the places of all
/// connections that were in use at that moment: of the pool nothing would be left, however soon another server takes over.
pub(crate) async fn returned(connection: &mut PgConnection, patience: Duration) -> Result<bool, sqlx::Error> {
    match tokio::time::timeout(patience, connection.ping()).await {
        Ok(answer) => answer.map(|()| true),
        // An error, so that nobody says farewell to a server that does not listen.
        Err(_) => Err(silent(patience)),
    }
}

/// The server does not answer any more.
pub(crate) fn silent(patience: Duration) -> sqlx::Error {
    let said = format!("no answer within {patience:?}");
    sqlx::Error::Io(std::io::Error::new(std::io::ErrorKind::TimedOut, said))
}

/// Refuses a new connection to a server that was not chosen, or that takes no writes: after a failover an old primary may
/// still take connections.
pub(crate) async fn welcome(connection: &mut PgConnection, choice: &Choice) -> Result<(), sqlx::Error> {
    let refuse = |reason| Err(sqlx::Error::Io(std::io::Error::other(reason)));
    let timeline: Option<String> = sqlx::query_scalar(TIMELINE).fetch_one(connection).await?;
    match timeline {
        None => refuse("the server is read-only: not the primary"),
        Some(timeline) if !choice.allows(&timeline).await => {
            refuse("the server is an old primary, or nobody knows yet which is the new one")
        }
        Some(_) => Ok(()),
    }
}

async fn read_only(connection: &mut PgConnection) -> Result<bool, sqlx::Error> {
    sqlx::query_scalar("select pg_is_in_recovery() or current_setting('transaction_read_only')::boolean")
        .fetch_one(connection)
        .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_hosts_is_one_url_each() {
        let table: &[(&str, &[&str])] = &[
            ("postgres://u:p@a:1/d", &["postgres://u:p@a:1/d"]),
            (
                "postgres://u:p@a:1,b:2/d?sslmode=disable",
                &["postgres://u:p@a:1/d?sslmode=disable", "postgres://u:p@b:2/d?sslmode=disable"],
            ),
            ("postgres://a,b/d?target_session_attrs=read-write", &["postgres://a/d", "postgres://b/d"]),
            (
                "postgres://u@a,b?x=1&target_session_attrs=any&y=2",
                &["postgres://u@a?x=1&y=2", "postgres://u@b?x=1&y=2"],
            ),
            ("postgres://u:p@a:1, b:2/d", &["postgres://u:p@a:1/d", "postgres://u:p@b:2/d"]),
            ("nonsense", &["nonsense"]),
        ];
        for (url, expected) in table {
            assert_eq!(split(url).unwrap(), *expected, "{url}");
        }
        for bad in ["postgres://u@a,,b/d", "postgres://u@a, /d", "postgres://,a/d"] {
            assert!(matches!(split(bad), Err(Error::ParseUrl(_))), "{bad}");
        }
    }

    #[test]
    fn the_newest_timeline_is_right_and_an_old_primary_never() {
        type Case = (&'static [(usize, &'static str)], usize, &'static str, Option<usize>);
        let table: &[Case] = &[
            (&[], 0, "", None),
            (&[(0, "00000001")], 0, "", Some(0)),
            (&[(0, "00000001"), (1, "00000002")], 0, "", Some(1)),
            (&[(0, "00000001")], 1, "00000002", None),
            (&[(0, "00000002"), (1, "00000002")], 1, "00000001", Some(1)),
            (&[(0, "00000002"), (1, "00000002")], 0, "00000001", Some(0)),
            (&[(0, "0000000A"), (1, "00000009")], 1, "00000009", Some(0)),
        ];
        for (writable, chosen, newest, expected) in table {
            assert_eq!(choose(writable, *chosen, newest), *expected, "{writable:?} {chosen} {newest}");
        }
    }

    /// Chose between servers that nobody reaches, by the first timeline.
    fn watcher(choice: &Choice) -> Watcher {
        let pool = PgPool::connect_lazy("postgres://nobody@127.0.0.1:1/nothing").unwrap();
        let (choice, timeline) = (choice.clone(), "00000001".to_owned());
        choice.newest.saw(&timeline);
        choice.make(false);
        Watcher { hosts: Vec::new(), pool, choice, chosen: 0, timeline, alone: false }
    }

    #[tokio::test]
    async fn an_old_primary_is_left_although_the_newer_one_does_not_answer() {
        let choice = Choice::between(2, Newest::default());
        let watcher = watcher(&choice);
        watcher.leave();
        assert!(!choice.outdates(Duration::from_hours(1)), "it is the newest that was seen");
        choice.newest.saw("00000002");
        watcher.leave();
        assert!(choice.outdates(Duration::from_hours(1)), "writes to it would be lost");
    }

    #[tokio::test]
    async fn what_one_pool_sees_holds_for_the_other() {
        let newest = Newest::default();
        let [one, other] = [2, 2].map(|servers| Choice::between(servers, newest.clone()));
        let watcher = watcher(&other);
        assert!(other.allows("00000001").await);
        one.newest.saw("00000002");
        assert!(!other.allows("00000001").await);
        let left = tokio::time::timeout(PATIENCE, watcher.until_outdone()).await;
        assert!(left.is_ok(), "it looks again at once, and not when the others are asked the next time");
    }

    #[tokio::test]
    async fn connections_from_before_a_change_are_outdated() {
        let choice = Choice::between(2, Newest::default());
        assert!(!choice.allows("00000001").await, "nobody chose yet");
        choice.newest.saw("00000001");
        choice.make(false);
        assert!(choice.allows("00000001").await && !choice.outdates(Duration::from_hours(1)));
        choice.newest.saw("00000002");
        choice.make(true);
        assert!(!choice.allows("00000001").await && choice.allows("00000002").await);
        assert!(choice.outdates(Duration::from_hours(1)) && !choice.outdates(Duration::ZERO));
        let alone = Choice::between(1, Newest::default());
        assert!(alone.allows("00000001").await, "one server is always the chosen one");
    }
}
