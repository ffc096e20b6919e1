//! The hosts of a database's URL. All are asked at once, so one that is without power, or that accepts connections and
//! never answers, delays no other. Several may accept writes: a former primary that nobody stopped goes on. The true
//! primary is the one with the highest timeline of their cluster, because each promotion begins a new one
//! (https://www.postgresql.org/docs/15/continuous-archiving.html#BACKUP-TIMELINES).

use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::{ArcSwap, ArcSwapOption};
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use tokio_postgres::config::{Host, TargetSessionAttrs};
use tokio_postgres::error::SqlState;
use tokio_postgres::{Config, Error};

use super::epochs::FORGOTTEN;
use crate::config::hosts_with_ports;

/// The time for which other hosts may answer after the first one that accepts writes.
pub(super) const OTHERS: Duration = Duration::from_millis(500);
/// The time after which a host that may soon accept writes is asked again.
const ASK_AGAIN: Duration = Duration::from_millis(200);
/// The time for which a look at all hosts is good: a further connection takes the first host that is as new.
const LOOK_AGE: Duration = Duration::from_secs(2);

/// A timeline of a cluster of databases: the hosts that follow one primary, or followed it once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Timeline {
    /// The identifier of the cluster (`system_identifier`).
    pub(super) cluster: i64,
    /// The number of the timeline, from 1; 0 if it is unknown.
    pub(super) number: u32,
}

impl Timeline {
    /// Reads the decimal digits of a cluster's identifier and the hexadecimal ones of a timeline. What can't be read is 0.
    pub(super) fn read(cluster: &str, number: &str) -> Self {
        Self {
            cluster: cluster.parse().unwrap_or_default(),
            number: u32::from_str_radix(number, 16).unwrap_or_default(),
        }
    }

    /// True if a host was promoted between the other timeline and this one. Those of two clusters can't be compared.
    pub(super) fn is_after(self, other: Self) -> bool {
        self.cluster == other.cluster && self.number > other.number
    }
}

/// A host that has answered.
pub(super) struct Answer<C> {
    pub(super) connection: C,
    pub(super) accepts_writes: bool,
    /// Unknown if it was not asked, as that of a single host, or if the host is a standby.
    pub(super) timeline: Timeline,
}

/// The reason why a host can't be used.
#[derive(Debug)]
pub(super) enum Refused {
    /// The host has not answered in time.
    Late,
    /// The host accepts only reads.
    ReadOnly,
    /// The host accepts writes, but another one was promoted after it.
    Overtaken,
    /// Two hosts accept writes, and are of different clusters: two databases would give the same names out.
    TwoClusters,
    /// The connection could not be opened.
    Failed(Error),
}

impl Refused {
    /// The weight of this reason among those of several hosts: that of a host which answers tells most.
    fn weight(&self) -> u8 {
        match self {
            Self::TwoClusters => 5,
            Self::Failed(error) if error.code().is_some() => 4,
            Self::Overtaken => 3,
            Self::ReadOnly => 2,
            Self::Failed(_) => 1,
            Self::Late => 0,
        }
    }

    /// True if the host may soon accept writes: it is a standby, a former primary, or starts.
    fn may_change(&self) -> bool {
        match self {
            Self::ReadOnly | Self::Overtaken => true,
            Self::Failed(error) => error.code() == Some(&SqlState::CANNOT_CONNECT_NOW),
            Self::TwoClusters | Self::Late => false,
        }
    }

    /// True if the host is a server that refuses this one for a reason that stays.
    fn is_final(&self) -> bool {
        matches!(self, Self::Failed(error) if error.code().is_some_and(|code| *code != SqlState::CANNOT_CONNECT_NOW))
    }

    /// Returns the reason that tells more.
    fn max(self, other: Self) -> Self {
        if other.weight() >= self.weight() { other } else { self }
    }
}

/// The timelines that this server has seen, for all connections of a store.
#[derive(Debug, Default)]
pub(super) struct Timelines {
    /// The highest one of the cluster that was used last.
    highest: ArcSwap<Timeline>,
    looked_at: ArcSwapOption<Instant>,
    /// When a host of an earlier timeline was seen without one of the highest timeline; `None` if one is there.
    missed_since: ArcSwapOption<Instant>,
    /// True if a host of an earlier timeline must prove itself before it is used, so that a later one may be forgotten.
    forgets: bool,
}

impl Timelines {
    /// Returns timelines that are forgotten when their hosts are gone for long. The caller has each host prove that it is
    /// no former primary.
    pub(super) fn forgetting() -> Self {
        Self { forgets: true, ..Self::default() }
    }

    /// True if no host of this cluster that accepts writes has had a higher timeline, or that host is gone for long: it was
    /// promoted by mistake, or the cluster was restored to an earlier time. A cluster may be restored or upgraded into another
    /// one, whose timelines begin anew.
    pub(super) fn is_current(&self, timeline: Timeline) -> bool {
        !self.highest.load().is_after(timeline) || self.is_forgotten()
    }

    fn is_forgotten(&self) -> bool {
        self.forgets && self.missed_since.load().as_deref().is_some_and(|since| since.elapsed() > FORGOTTEN)
    }

    /// Notes that a host of an earlier timeline accepts writes.
    fn miss(&self) {
        let now = Arc::new(Instant::now());
        self.missed_since.rcu(|since| since.clone().unwrap_or_else(|| now.clone()));
    }

    /// True if the timeline is of the cluster that was used last, and no earlier one.
    fn is_as_new(&self, timeline: Timeline) -> bool {
        let highest = **self.highest.load();
        highest.cluster == timeline.cluster && !highest.is_after(timeline)
    }

    /// True if all hosts were asked within this time.
    pub(super) fn is_known(&self, age: Duration) -> bool {
        self.looked_at.load().as_deref().is_some_and(|at| at.elapsed() < age)
    }

    /// Notes the timeline of a host that accepts writes.
    fn note(&self, timeline: Timeline) {
        let is_forgotten = self.is_forgotten();
        // Another look may have noted a later one.
        let stays = |highest: &Timeline| highest.is_after(timeline) && !is_forgotten;
        let former = self.highest.rcu(|highest| if stays(highest) { **highest } else { timeline });
        if stays(&former) {
            return;
        }
        self.missed_since.store(None);
        if former.number > 0 && timeline.is_after(*former) {
            tracing::warn!(
                timeline = timeline.number,
                "another host of the database was promoted: connections to hosts of earlier timelines are closed"
            );
        } else if former.is_after(timeline) {
            tracing::warn!(
                timeline = timeline.number,
                later = former.number,
                "the host of a later timeline is gone, so the one of an earlier timeline is asked again"
            );
        }
    }
}

/// Returns the host with the highest timeline of those that accept writes. `ask` asks the host of a number, on the
/// connection of its last answer if there is one. Hosts that may soon accept writes are asked again, until `limit` ends and
/// some host has answered. After the first host that accepts writes, the others are waited for until `patience` ends.
///
/// # Errors
/// No host accepts writes, or only hosts of earlier timelines do, or hosts of two clusters do.
pub(super) async fn choose<'a, C: 'a>(
    count: usize,
    ask: impl Fn(usize, Option<C>) -> BoxFuture<'a, Result<Answer<C>, Refused>>,
    seen: &Timelines,
    patience: impl Future<Output = ()>,
    limit: impl Future<Output = ()>,
) -> Result<Answer<C>, Refused> {
    let asked = |host, connection, pause| {
        let answer = ask(host, connection);
        async move {
            tokio::time::sleep(pause).await;
            (host, answer.await)
        }
    };
    let mut answers: FuturesUnordered<_> = (0..count).map(|host| asked(host, None, Duration::ZERO)).collect();
    let (mut heard, mut refused, mut may_change) = (BTreeSet::new(), Refused::Late, false);
    let (mut limit, mut patience) = (pin!(limit), pin!(patience));
    let mut best = loop {
        let next = tokio::select! {
            biased;
            next = answers.next() => next,
            () = &mut limit, if !heard.is_empty() => None,
        };
        let Some((host, answer)) = next else { return Err(refused) };
        heard.insert(host);
        let (cause, connection) = match usable(answer, seen) {
            Ok(answer) => break answer,
            Err(refusal) => refusal,
        };
        may_change |= cause.may_change();
        refused = refused.max(cause);
        if heard.len() == count && (refused.is_final() || !may_change) {
            return Err(refused);
        }
        answers.push(asked(host, connection, ASK_AGAIN));
    };
    let is_known = seen.is_known(LOOK_AGE) && seen.is_as_new(best.timeline);
    while !is_known && heard.len() < count {
        let next = tokio::select! {
            biased;
            next = answers.next() => next,
            () = &mut patience => None,
        };
        let Some((host, answer)) = next else { break };
        heard.insert(host);
        match usable(answer, seen) {
            Ok(answer) if answer.timeline.cluster != best.timeline.cluster => return Err(Refused::TwoClusters),
            Ok(answer) if answer.timeline.is_after(best.timeline) => best = answer,
            _ => {}
        }
    }
    seen.note(best.timeline);
    if !is_known {
        seen.looked_at.store(Some(Instant::now().into()));
    }
    Ok(best)
}

/// The answer, or the reason why the host can't be used, with its connection.
fn usable<C>(answer: Result<Answer<C>, Refused>, seen: &Timelines) -> Result<Answer<C>, (Refused, Option<C>)> {
    match answer {
        Ok(answer) if !answer.accepts_writes => Err((Refused::ReadOnly, Some(answer.connection))),
        Ok(answer) if !seen.is_current(answer.timeline) => {
            seen.miss();
            Err((Refused::Overtaken, Some(answer.connection)))
        }
        Ok(answer) => Ok(answer),
        Err(refused) => Err((refused, None)),
    }
}

/// Returns the settings of a connection to each host.
pub(super) fn each(config: &Config) -> Vec<Config> {
    let count = config.get_hosts().len().max(config.get_hostaddrs().len());
    (0..count).map(|index| one(config, index)).collect()
}

/// Returns the settings of a connection to the host with this number. The library can't remove a host from its settings,
/// so all others are copied.
fn one(config: &Config, index: usize) -> Config {
    let mut one = Config::new();
    one.ssl_mode(config.get_ssl_mode())
        .ssl_negotiation(config.get_ssl_negotiation())
        .channel_binding(config.get_channel_binding())
        .load_balance_hosts(config.get_load_balance_hosts())
        .target_session_attrs(TargetSessionAttrs::Any);
    copy_address(config, index, &mut one);
    copy_identity(config, &mut one);
    copy_timeouts(config, &mut one);
    one
}

/// Returns the address of a connection to one host, for people.
pub(super) fn shown(config: &Config) -> String {
    let shown = hosts_with_ports(config).into_iter().next();
    shown.map_or_else(|| "a host without a name".into(), |host| format!("`{host}`"))
}

fn copy_address(config: &Config, index: usize, one: &mut Config) {
    match config.get_hosts().get(index) {
        Some(Host::Tcp(name)) => drop(one.host(name)),
        Some(Host::Unix(path)) => drop(one.host_path(path)),
        None => {}
    }
    if let Some(address) = config.get_hostaddrs().get(index) {
        one.hostaddr(*address);
    }
    // A single port is that of all hosts.
    let ports = config.get_ports();
    if let Some(port) = ports.get(index).or(ports.first()) {
        one.port(*port);
    }
}

fn copy_identity(config: &Config, one: &mut Config) {
    if let Some(user) = config.get_user() {
        one.user(user);
    }
    if let Some(password) = config.get_password() {
        one.password(password);
    }
    if let Some(name) = config.get_dbname() {
        one.dbname(name);
    }
    if let Some(options) = config.get_options() {
        one.options(options);
    }
    if let Some(name) = config.get_application_name() {
        one.application_name(name);
    }
}

fn copy_timeouts(config: &Config, one: &mut Config) {
    if let Some(timeout) = config.get_connect_timeout() {
        one.connect_timeout(*timeout);
    }
    if let Some(timeout) = config.get_tcp_user_timeout() {
        one.tcp_user_timeout(*timeout);
    }
    one.keepalives(config.get_keepalives()).keepalives_idle(config.get_keepalives_idle());
    if let Some(interval) = config.get_keepalives_interval() {
        one.keepalives_interval(interval);
    }
    if let Some(retries) = config.get_keepalives_retries() {
        one.keepalives_retries(retries);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::sync::Mutex;

    use futures_util::future::{FutureExt, pending, ready};

    use super::*;

    type Asked = BoxFuture<'static, Result<Answer<char>, Refused>>;

    /// The timeline with this number of the cluster that most tests have.
    fn timeline(number: u32) -> Timeline {
        Timeline { cluster: 7, number }
    }

    fn host(connection: char, accepts_writes: bool, timeline: Timeline) -> Asked {
        ready(Ok(Answer { connection, accepts_writes, timeline })).boxed()
    }

    fn primary(connection: char, number: u32) -> Asked {
        host(connection, true, timeline(number))
    }

    fn standby(connection: char) -> Asked {
        host(connection, false, Timeline::default())
    }

    /// Ends after this time from now.
    fn elapsed(time: Duration) -> impl Future<Output = ()> {
        tokio::time::timeout(time, pending::<()>()).map(drop)
    }

    /// The host answers after those that do at once.
    fn later(asked: Asked) -> Asked {
        after(Duration::from_millis(1), asked)
    }

    fn after(time: Duration, asked: Asked) -> Asked {
        async move {
            elapsed(time).await;
            asked.await
        }
        .boxed()
    }

    /// Chooses among hosts, each with its answers. A host without a further answer is silent.
    async fn chosen<const N: usize>(
        seen: &Timelines,
        answers: [Vec<Asked>; N],
        patience: Duration,
        limit: Duration,
    ) -> Result<char, Refused> {
        let answers = Mutex::new(answers.map(VecDeque::from));
        let ask = |host: usize, _| answers.lock().unwrap()[host].pop_front().unwrap_or_else(|| pending().boxed());
        let (patience, limit) = (elapsed(patience), elapsed(limit));
        choose(N, ask, seen, patience, limit).await.map(|answer| answer.connection)
    }

    const SOON: Duration = Duration::from_millis(50);
    const LIMIT: Duration = Duration::from_secs(1);
    const NEVER: Duration = Duration::from_secs(86_400);

    #[tokio::test]
    async fn a_host_that_never_answers_delays_no_other() {
        let seen = Timelines::default();
        let answers = || [vec![], vec![primary('b', 1)]];
        assert_eq!(chosen(&seen, answers(), SOON, NEVER).await.unwrap(), 'b');
        // Soon after, the others are not waited for.
        assert_eq!(chosen(&seen, answers(), NEVER, NEVER).await.unwrap(), 'b');
    }

    #[tokio::test]
    async fn the_highest_timeline_wins() {
        let seen = Timelines::default();
        let answers = [vec![primary('a', 3)], vec![standby('b')], vec![later(primary('c', 4))], vec![primary('d', 2)]];
        assert_eq!(chosen(&seen, answers, NEVER, NEVER).await.unwrap(), 'c');
        assert!(seen.is_current(timeline(4)) && !seen.is_current(timeline(3)));
        let answers = [vec![primary('a', 3)], vec![later(primary('c', 4))]];
        assert_eq!(chosen(&seen, answers, NEVER, NEVER).await.unwrap(), 'c');
        let refused = chosen(&seen, [vec![primary('a', 3)], vec![standby('b')]], NEVER, LIMIT).await.unwrap_err();
        assert!(matches!(refused, Refused::Overtaken), "{refused:?}");
    }

    /// A standby that was promoted by mistake, and taken back, must not keep the primary out for ever.
    #[tokio::test]
    async fn a_later_timeline_whose_host_is_gone_is_forgotten() {
        let seen = Timelines::forgetting();
        let former = || [vec![primary('a', 3)], vec![standby('c')]];
        assert_eq!(chosen(&seen, [vec![primary('a', 3)], vec![primary('c', 4)]], NEVER, NEVER).await.unwrap(), 'c');
        chosen(&seen, former(), NEVER, LIMIT).await.unwrap_err();
        let long_ago = Instant::now().checked_sub(FORGOTTEN + LIMIT).unwrap();
        seen.missed_since.store(Some(long_ago.into()));
        // One look finds the host of the later timeline.
        assert_eq!(chosen(&seen, [vec![primary('a', 3)], vec![primary('c', 4)]], NEVER, NEVER).await.unwrap(), 'c');
        chosen(&seen, former(), NEVER, LIMIT).await.unwrap_err();
        seen.missed_since.store(Some(long_ago.into()));
        assert_eq!(chosen(&seen, former(), NEVER, LIMIT).await.unwrap(), 'a');
        assert!(seen.is_current(timeline(3)));
    }

    /// A database that is restored or upgraded is another cluster.
    #[tokio::test]
    async fn timelines_of_another_cluster_begin_anew() {
        let other = |number| host('o', true, Timeline { cluster: -8, number });
        let seen = Timelines::default();
        assert_eq!(chosen(&seen, [vec![primary('a', 5)]], NEVER, NEVER).await.unwrap(), 'a');
        seen.looked_at.store(None);
        assert_eq!(chosen(&seen, [vec![other(1)]], NEVER, NEVER).await.unwrap(), 'o');
        assert!(seen.is_current(Timeline { cluster: -8, number: 1 }));
        assert_eq!(chosen(&seen, [vec![other(2)]], NEVER, NEVER).await.unwrap(), 'o');
        assert!(!seen.is_current(Timeline { cluster: -8, number: 1 }));
    }

    /// Two copies of one database would give the same names out.
    #[tokio::test]
    async fn hosts_of_two_clusters_are_refused() {
        let other = || host('o', true, Timeline { cluster: -8, number: 9 });
        let seen = Timelines::default();
        for _ in 0..2 {
            for answers in [[other(), later(primary('a', 5))], [primary('a', 5), later(other())]] {
                let refused = chosen(&seen, answers.map(|answer| vec![answer]), NEVER, NEVER).await.unwrap_err();
                assert!(matches!(refused, Refused::TwoClusters), "{refused:?}");
            }
            // A look at all hosts before changes nothing.
            assert_eq!(chosen(&seen, [vec![primary('a', 5)]], NEVER, NEVER).await.unwrap(), 'a');
            seen.looked_at.store(None);
        }
        // A standby of another cluster gives nothing out.
        assert_eq!(chosen(&seen, [vec![primary('a', 5)], vec![standby('o')]], NEVER, NEVER).await.unwrap(), 'a');
    }

    #[tokio::test]
    async fn a_look_at_all_hosts_is_good_for_a_short_time() {
        let seen = Timelines::default();
        let answers = || [vec![primary('a', 3)], vec![later(primary('b', 4))]];
        assert_eq!(chosen(&seen, [vec![primary('a', 3)]], NEVER, NEVER).await.unwrap(), 'a');
        assert_eq!(chosen(&seen, answers(), NEVER, NEVER).await.unwrap(), 'a');
        let before = Instant::now().checked_sub(LOOK_AGE).unwrap();
        seen.looked_at.store(Some(before.into()));
        assert_eq!(chosen(&seen, answers(), NEVER, NEVER).await.unwrap(), 'b');
        // A newer host is noted also if the others are not waited for.
        assert_eq!(chosen(&seen, [vec![primary('c', 5)]], NEVER, NEVER).await.unwrap(), 'c');
        assert!(!seen.is_current(timeline(4)));
    }

    #[tokio::test]
    async fn a_standby_is_asked_again_and_waited_for_only_once() {
        let seen = Timelines::default();
        let answers = [vec![standby('a'), primary('a', 2)], vec![]];
        assert_eq!(chosen(&seen, answers, SOON, LIMIT).await.unwrap(), 'a');
        let seen = Timelines::default();
        let answers = [vec![standby('a')], vec![primary('b', 2)]];
        assert_eq!(chosen(&seen, answers, NEVER, NEVER).await.unwrap(), 'b');
    }

    #[tokio::test]
    async fn without_a_host_that_accepts_writes_the_cause_is_that_of_a_host_that_answers() {
        let seen = Timelines::default();
        let late = || ready(Err(Refused::Late)).boxed();
        let refused = chosen(&seen, [vec![late()], vec![standby('b')]], NEVER, LIMIT).await.unwrap_err();
        assert!(matches!(refused, Refused::ReadOnly), "{refused:?}");
        let refused = chosen(&seen, [vec![late()]], NEVER, NEVER).await.unwrap_err();
        assert!(matches!(refused, Refused::Late), "{refused:?}");
        // A host without power is not waited for, also if the standby has answered after the limit.
        for time in [Duration::ZERO, LIMIT + SOON] {
            let start = Instant::now();
            let answers = [vec![], vec![after(time, standby('b'))]];
            let refused = chosen(&seen, answers, NEVER, LIMIT).await.unwrap_err();
            assert!(matches!(refused, Refused::ReadOnly), "{refused:?}");
            assert!(start.elapsed() < LIMIT * 2, "{:?}", start.elapsed());
        }
    }

    /// All settings of a URL are those of each host.
    #[test]
    fn each_host_has_the_settings_of_the_url() {
        let settings = "user=u password=p dbname=d options='-c a=b' application_name=n sslmode=require \
             sslnegotiation=direct connect_timeout=7 tcp_user_timeout=8000 keepalives_idle=9 keepalives_interval=10 \
             keepalives_retries=11 channel_binding=require load_balance_hosts=random";
        let parse = |hosts: &str| format!("{hosts} {settings}").parse::<Config>().unwrap();
        let all = parse("host=a,/run/b,c hostaddr=10.0.0.1,10.0.0.2,10.0.0.3 port=1,2,3");
        let single = [
            "host=a hostaddr=10.0.0.1 port=1",
            "host=/run/b hostaddr=10.0.0.2 port=2",
            "host=c hostaddr=10.0.0.3 port=3",
        ];
        assert_eq!(each(&all), single.map(parse));
        assert_eq!(each(&parse("host=a,b port=5")), ["host=a port=5", "host=b port=5"].map(parse));
        assert_eq!(each(&parse("hostaddr=10.0.0.1,10.0.0.2")), ["hostaddr=10.0.0.1", "hostaddr=10.0.0.2"].map(parse));
    }
}
