//! The store that routers may share: it says which of them leads, and keeps the plan and the orders of operators over a
//! restart of all. What to ask and what an answer means is `core/cluster/tenure.rs`; here it is asked, and what the leader
//! knows is written. Nothing in a request's way waits for any of this, and a store that is gone stops nothing.

mod client;
mod etcd;
mod kubernetes;
mod messages;
mod settings;

use std::collections::BTreeMap;
use std::time::Duration;

use cleave_core::cluster::{
    Hello, News, StoreAnswer, StoreQuestion, StoreWord, Tenure, read_record, write_record,
};
use cleave_core::domain::Moment;
use tokio::time::{sleep, timeout};
use tracing::{info, warn};

use super::Cluster;
use crate::proxy::{Pool, StoreStanding};
use crate::telemetry::Incident;
use client::{StoreClient, StoreError};

pub use settings::{EtcdSettings, EtcdUser, KubernetesStoreSettings, StoreSettings};

/// How long giving back the lease may take at the end.
const REVOKE_MAX: Duration = Duration::from_millis(500);

/// What is kept of a pool, below the prefix.
fn name_of(pool: &Pool, what: &str) -> String {
    format!("pools/{}/{what}", pool.name)
}

/// This router's part at the store.
struct StoreTask<'a> {
    cluster: &'a Cluster,
    client: StoreClient,
    tenure: Tenure,
    /// No question takes longer.
    patience: Duration,
    standing: StoreStanding,
    /// What the store keeps, as far as is known since this router leads.
    kept: BTreeMap<String, Vec<u8>>,
    /// What there is no room for.
    unkept: BTreeMap<String, Vec<u8>>,
    /// What the others were told of the store last.
    word: (StoreWord, bool),
}

impl Cluster {
    /// Asks the store until this router leaves, and gives its lease back then.
    pub(super) async fn keep_store(&self, settings: StoreSettings) {
        let now = self.router.now();
        info!(store = %settings, "shares a store");
        let lease = settings.lease();
        let mut task = StoreTask {
            cluster: self,
            tenure: Tenure::new(now, self.hello.router, lease),
            patience: lease / 3,
            client: StoreClient::new(settings),
            standing: StoreStanding::default(),
            kept: BTreeMap::new(),
            unkept: BTreeMap::new(),
            word: (StoreWord::Silent, false),
        };
        task.publish();
        _ = self.leave.run_until_cancelled(Box::pin(task.run())).await;
        if let Some(lease) = task.tenure.lease() {
            // Another router leads at once, and not after the time of the lease.
            _ = timeout(REVOKE_MAX, task.client.revoke(lease)).await;
        }
    }
}

impl StoreTask<'_> {
    async fn run(&mut self) {
        loop {
            let asked = self.now();
            if let Some(question) = self.tenure.next(asked) {
                let answer = self.ask(question).await;
                let now = self.now();
                let cluster = self.cluster;
                self.tenure.on_answer(asked, now, answer, |it| cluster.members.is_present(it));
                self.publish();
                continue;
            }
            self.publish();
            self.write_changes().await;
            let pause = self.tenure.next_wakeup().since(self.now());
            sleep(pause.clamp(Duration::from_millis(5), self.client.look())).await;
        }
    }

    fn now(&self) -> Moment {
        self.cluster.router.now()
    }

    async fn ask(&mut self, question: StoreQuestion) -> StoreAnswer {
        let Self { client, cluster, .. } = self;
        let asking = async {
            match question {
                StoreQuestion::Grant { ttl } => client.grant(ttl).await,
                StoreQuestion::Renew { lease } => client.renew(lease).await,
                StoreQuestion::Campaign { lease } => {
                    let Hello { router, address, .. } = &cluster.hello;
                    client.campaign(*router, address, lease, || cluster.router.now()).await
                }
                StoreQuestion::Read => {
                    self.kept = client.read().await?.into_iter().collect();
                    self.unkept.clear();
                    Ok(StoreAnswer::Read)
                }
            }
        };
        let answer = timeout(self.patience, asking).await.unwrap_or(Err(StoreError::Late));
        match self.note(answer) {
            Some(StoreAnswer::Read) => {
                self.take_in();
                StoreAnswer::Read
            }
            Some(answer) => answer,
            None => StoreAnswer::Failed,
        }
    }

    /// Notes whether the store answers.
    fn note<T>(&mut self, answer: Result<T, StoreError>) -> Option<T> {
        match answer {
            Ok(answer) => {
                self.standing.answered_at = Some(self.now());
                Some(answer)
            }
            Err(error) => {
                if matches!(error, StoreError::Late) {
                    self.client.reset();
                }
                self.standing.failures += 1;
                self.standing.trouble = Some(error.to_string());
                None
            }
        }
    }

    /// Takes in what is kept of the pools that are here.
    fn take_in(&self) {
        for pool in self.cluster.router.pools().iter() {
            for what in ["orders", "plan"] {
                let name = name_of(pool, what);
                let Some(bytes) = self.kept.get(&name) else { continue };
                match read_record(bytes) {
                    Ok(news) => self.cluster.router.on_kept(pool, news),
                    Err(error) => {
                        warn!(name, %error, "what the store keeps is not taken up");
                    }
                }
            }
        }
        if !self.cluster.settings.expects_others() {
            self.cluster.sharing.set_joining(false);
        }
    }

    /// Writes what has changed, where this router leads.
    async fn write_changes(&mut self) {
        let router = &self.cluster.router;
        for pool in router.pools().iter() {
            let (orders, plan) = pool.lasting();
            let plan = (!plan.is_empty()).then_some(News::Assigned(plan));
            for (what, news) in [("orders", orders), ("plan", plan.into_iter().collect())] {
                let Some(fence) = self.tenure.fence(self.now()) else { return };
                let name = name_of(pool, what);
                if news.is_empty() && !self.kept.contains_key(&name) {
                    continue;
                }
                let value = write_record(&news);
                if [&self.kept, &self.unkept].iter().any(|it| it.get(&name) == Some(&value)) {
                    continue;
                }
                if !self.write(fence, name, value).await {
                    return;
                }
            }
        }
    }

    /// Writes one value; tells whether more can be written.
    async fn write(&mut self, fence: i64, name: String, value: Vec<u8>) -> bool {
        if let Some(full) = self.client.overflow(&self.kept, &name, &value) {
            if self.unkept.insert(name.clone(), value).is_none() {
                self.cluster.router.events.publish(Incident {
                    kind: "cluster",
                    state: "store_full",
                    detail: Some(format!("{name} is not kept: {full}")),
                    alert: true,
                    ..Incident::default()
                });
            }
            return true;
        }
        self.unkept.remove(&name);
        let writing = self.client.write(fence, &name, value.clone());
        let written = timeout(self.patience, writing).await.unwrap_or(Err(StoreError::Late));
        match self.note(written) {
            Some(true) => {
                self.standing.writes += 1;
                self.kept.insert(name, value);
                true
            }
            Some(false) => {
                self.standing.fenced += 1;
                self.tenure.on_fenced_out(self.now());
                self.publish();
                false
            }
            None => false,
        }
    }

    /// Tells the rest of this router, and through it the others, what the store says.
    fn publish(&mut self) {
        let now = self.now();
        let word = (self.tenure.word(now), self.tenure.is_waiting(now));
        let is_answering = word.0 != StoreWord::Silent;
        if is_answering {
            self.standing.trouble = None;
        }
        let was_answering = std::mem::replace(&mut self.standing.is_answering, is_answering);
        self.cluster.sharing.set_store(self.standing.clone());
        if std::mem::replace(&mut self.word, word) != word {
            self.cluster.elect(|it| it.on_store(word.0, word.1));
        }
        if was_answering != is_answering {
            self.cluster.router.events.publish(self.incident(is_answering));
        }
    }

    fn incident(&self, is_answering: bool) -> Incident {
        let trouble = self.standing.trouble.as_deref().unwrap_or("it does not answer");
        let silent = format!(
            "{trouble}; the majority of routers says which one leads, and orders are kept in memory"
        );
        Incident {
            kind: "cluster",
            state: if is_answering { "store_answers" } else { "store_silent" },
            detail: (!is_answering).then_some(silent),
            alert: !is_answering,
            ..Incident::default()
        }
    }
}
