//! The slow work beside requests: health checks of replicas, the question for one token, and reading
//! their engines' load.

use std::sync::{Arc, Weak};

use cleave_core::brain::Event;
use cleave_core::fleet::Probe;
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval, sleep};

use super::Router;
use crate::proxy::pool::{KeyUse, Member, Pool, Question};
use crate::replicas::{
    Finding, Listed, Target, Token, Trouble, ask_models, ask_report, ask_token, probe,
};

/// How much longer the pause between two looks at an engine's metrics may get while it shows none.
const REPORT_PAUSE_FACTOR_MAX: u32 = 32;

/// Models of a stranger that are named to operators.
const MODELS_NAMED: usize = 5;

impl Router {
    /// Probes one replica until it leaves.
    pub(super) async fn watch(self: Arc<Self>, pool: Arc<Pool>, member: Arc<Member>) {
        let gone = member.gone.clone();
        gone.run_until_cancelled(async {
            let settings = pool.probe_settings();
            let mut ticks = interval(settings.interval);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                tokio::select! {
                    _ = ticks.tick() => {}
                    () = member.probe_now.notified() => {}
                }
                self.probe_once(&pool, &member).await;
            }
        })
        .await;
    }

    /// Asks replicas for a token when the brain wants to know, for as long as the pool has an
    /// owner.
    pub(super) async fn put_questions(
        self: Arc<Self>,
        pool: Weak<Pool>,
        questions: Arc<tokio::sync::Mutex<mpsc::Receiver<Question>>>,
    ) {
        let mut questions = questions.lock().await;
        while let Some(Question { replica, limit }) = questions.recv().await {
            let Some(pool) = pool.upgrade() else { return };
            let Some(member) = pool.members().iter().find(|it| it.id == replica).cloned() else {
                continue;
            };
            let router = Arc::clone(&self);
            self.tasks.spawn(Arc::clone(&self).run_once(async move {
                let asked_at = router.clock.now();
                let model = pool.model_of(&member);
                let access = member.access();
                let at = Target { origin: &member.origin, access: &access };
                let (token, trouble) = ask_token(at, &model, limit).await;
                match (&trouble, token) {
                    (Some(it), _) => member.note_trouble(it),
                    (None, Token::Came) => member.on_connected(),
                    (None, _) => {}
                }
                let probe = match token {
                    Token::Came => Probe::Generated,
                    Token::Unable => Probe::Unable,
                    Token::Failed => Probe::Failed,
                    Token::Refused => Probe::Refused,
                    Token::Missed => Probe::Mute { asked_at, last_byte_at: member.last_byte_at() },
                };
                pool.tell(Event::Probed { replica, probe });
            }));
        }
    }

    /// Asks one replica's engine how loaded it is, until it leaves. One that does not say is asked less
    /// and less often.
    pub(super) async fn hear(self: Arc<Self>, pool: Arc<Pool>, member: Arc<Member>) {
        let gone = member.gone.clone();
        gone.run_until_cancelled(async {
            let mut factor = 1;
            loop {
                let settings = pool.probe_settings();
                sleep(settings.report_interval * factor).await;
                let asked_at = self.clock.now();
                let access = member.access();
                let at = Target { origin: &member.origin, access: &access };
                factor = match ask_report(at, settings.timeout, asked_at).await {
                    Some((report, birth)) => {
                        if birth.is_some_and(|it| member.is_reborn(it)) {
                            pool.tell(Event::Restarted { replica: member.id });
                        }
                        pool.tell(Event::Reported { replica: member.id, report });
                        1
                    }
                    None => REPORT_PAUSE_FACTOR_MAX.min(2 * factor),
                };
            }
        })
        .await;
    }

    async fn probe_once(&self, pool: &Pool, member: &Member) {
        if !member.is_ready() {
            pool.tell(Event::Probed { replica: member.id, probe: Probe::Unready });
            return;
        }
        let settings = pool.probe_settings();
        let asked_at = self.clock.now();
        let access = member.access();
        let at = Target { origin: &member.origin, access: &access };
        let (finding, trouble) = probe(at, &settings).await;
        let found = match finding {
            Finding::Passed => Probe::Passed,
            Finding::Failed => Probe::Failed,
            Finding::Refused => Probe::Refused,
            Finding::TimedOut => Probe::TimedOut { asked_at, last_byte_at: member.last_byte_at() },
            Finding::Nothing => return,
        };
        let (probe, trouble) = if found == Probe::Passed {
            self.on_listed(pool, member, ask_models(at, settings.timeout).await)
        } else {
            (found, trouble)
        };
        // Known before the brain acts on it: what it tells operators has the cause.
        pool.on_trouble(member, trouble.as_ref());
        pool.tell(Event::Probed { replica: member.id, probe });
    }

    /// Takes in what a healthy replica says of its models, and tells what that makes of the probe.
    fn on_listed(&self, pool: &Pool, member: &Member, listed: Listed) -> (Probe, Option<Trouble>) {
        let models = match listed {
            Listed::Models(models) => models,
            Listed::Silent => return (Probe::Passed, None),
            // It may ask each client for a key of its own.
            Listed::Unauthorized if pool.spec().passing.credentials => {
                return (Probe::Passed, None);
            }
            Listed::Unauthorized => {
                pool.on_denied(member, KeyUse::Models);
                let detail =
                    "it does not list its models: it refuses the router's key, or asks for one";
                return (Probe::Unauthorized, Some(Trouble::new("unauthorized", detail)));
            }
        };
        member.on_granted(KeyUse::Models);
        if !pool.is_served_by(member, &models) {
            let listed: Vec<&str> = models.iter().take(MODELS_NAMED).map(|it| &*it.id).collect();
            let detail =
                format!("it serves none of the pool's models; it lists {}", listed.join(", "));
            return (Probe::Stranger, Some(Trouble::new("wrong_model", detail)));
        }
        // Before it may be chosen, its models are known: no client gets a 404 because it came early.
        let before = member.models.swap(Arc::new(models));
        let ids = |it: &[cleave_core::protocol::Model]| {
            it.iter().map(|it| it.id.clone()).collect::<Vec<_>>()
        };
        if ids(&before) != ids(&member.models.load()) {
            self.rebuild_table();
        }
        (Probe::Passed, None)
    }
}
