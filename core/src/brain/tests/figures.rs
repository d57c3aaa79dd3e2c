//! Figures that make no sense: what an engine, a client or another router may say, and what it may not do.

use proptest::prelude::*;

use super::*;
use crate::domain::Report;
use crate::queue::{Limits, Tenant, Work};

use super::super::hostile;

fn said(input: u32, output: u32, cached: u32) -> Usage {
    Usage { input: Some(input), output: Some(output), cached: Some(cached) }
}

/// A body with `text_bytes` of text.
fn text(text_bytes: u32, streams: bool) -> Extent {
    let body_bytes = text_bytes + 60;
    Extent { model: 5, text_bytes, body_bytes, block_bytes: 256, streams, ..Extent::default() }
}

impl Bench {
    /// Sends a prompt of tenant 1, which has a contract.
    fn send_text(&mut self, extent: Extent) -> RequestId {
        let request = RequestId(self.requests);
        self.requests += 1;
        let claim = Claim { tenant: Tenant(1), ..Claim::default() };
        let outline = Outline::default();
        let key = SliceKey::new(1, "m", "s");
        let actions = self.tell(Event::Arrived { request, key, outline, extent, claim });
        target(&actions).expect("a replica takes it");
        request
    }

    fn contract(&mut self) {
        let limits = Limits {
            work_per_min: Some(Work::from_mu(1e6)),
            tokens_per_min: Some(1_000_000_000),
            ..Limits::default()
        };
        self.tell(Event::Contracted { limits: vec![(Tenant(1), limits)] });
    }

    /// Tokens and work that tenant 1 was charged.
    fn used(&self) -> (u64, f64) {
        let all = self.brain.tenants();
        let own = all.iter().find(|it| it.tenant == Tenant(1)).unwrap().usage;
        let sum =
            own.used.iter().fold((0, 0.0), |sum, it| (sum.0 + it.tokens, sum.1 + it.work.as_mu()));
        assert_eq!(own.reserved, 0);
        sum
    }

    fn skip(&mut self, ms: u64) {
        self.now = self.now + Duration::from_millis(ms);
    }
}

fn contracted() -> Bench {
    let mut bench = Bench::new(Settings::default(), &[1.0]);
    bench.contract();
    bench
}

#[test]
fn one_absurd_usage_costs_little_more_than_the_request_could_have() {
    let settled = |usage: Usage| {
        let mut bench = contracted();
        let request = bench.send_text(text(4_000, false));
        bench.skip(500);
        bench.tell(Event::Answering { request });
        bench.tell(Event::Ended { request, outcome: Outcome::Done, usage });
        bench.used()
    };
    let (tokens, mu) = settled(said(1_000, 50, 0));
    assert_eq!(tokens, 1_050);
    let (most, most_mu) = settled(said(u32::MAX, u32::MAX, 0));
    assert!(most < 20_000, "{most}");
    assert!(most_mu < 60.0 * mu, "{most_mu} MU against {mu}");
    let (least, _) = settled(said(0, 0, 0));
    assert!(125 <= least, "nothing is free: {least}");
}

#[test]
fn absurd_figures_teach_nothing_to_prompts_with_the_same_beginning() {
    let mut bench = Bench::new(Settings::default(), &[1.0, 1.0, 1.0]);
    let blocks: Arc<[u64]> = (0..64).collect();
    let arrive = |bench: &mut Bench, tenant| {
        let request = RequestId(bench.requests);
        bench.requests += 1;
        let outline = Outline { blocks: Arc::clone(&blocks), ..Outline::default() };
        let key = SliceKey::new(tenant, "m", "s");
        let (extent, claim) = (text(64 * 256, false), Claim::default());
        bench.tell(Event::Arrived { request, key, outline, extent, claim });
        let predicted = bench.brain.books.get(request).map(|it| it.outline.prompt_tokens);
        (request, predicted.unwrap())
    };
    let (_, before) = arrive(&mut bench, 2);
    for _ in 0..20 {
        let (request, _) = arrive(&mut bench, 1);
        bench.tell(Event::Answering { request });
        let usage = said(u32::MAX, u32::MAX, u32::MAX);
        bench.tell(Event::Ended { request, outcome: Outcome::Done, usage });
    }
    let (_, own) = arrive(&mut bench, 1);
    let (_, others) = arrive(&mut bench, 2);
    assert!(own <= 64 * 256 + 4_200, "{own}");
    assert!(others <= 2 * before, "{before}, then {others}");
}

#[test]
fn who_leaves_before_the_first_byte_pays_for_what_was_computed() {
    let cancelled = |streams: bool, after_ms: u64| {
        let mut bench = contracted();
        let request = bench.send_text(text(40_000, streams));
        bench.skip(after_ms);
        bench.tell(ended(request, Outcome::Cancelled));
        bench.used().0
    };
    // A prompt of ten thousand tokens takes about 0.3 s to read.
    assert!((1..5_000).contains(&cancelled(true, 0)), "{}", cancelled(true, 0));
    assert!((1_000..9_000).contains(&cancelled(true, 100)), "{}", cancelled(true, 100));
    assert_eq!(cancelled(true, 10_000), 10_000, "a stream shows what it writes");
    let whole = cancelled(false, 10_300);
    assert!((11_000..14_000).contains(&whole), "ten seconds of an answer: {whole}");
    assert!((17_000..=18_192).contains(&cancelled(false, 600_000)), "no answer is endless");
}

#[test]
fn a_cancelled_stream_pays_for_its_prompt_and_for_what_streamed() {
    let mut bench = contracted();
    let request = bench.send_text(text(4_000, true));
    bench.skip(100);
    bench.tell(Event::Answering { request });
    bench.tell(Event::Streamed { request, output_tokens: 64 });
    bench.skip(60_000);
    bench.tell(ended(request, Outcome::Cancelled));
    assert_eq!(bench.used().0, 1_064);
    // One that shows nothing, and goes on for long, does not write nothing.
    let request = bench.send_text(text(4_000, true));
    bench.skip(100);
    bench.tell(Event::Answering { request });
    bench.skip(10_000);
    bench.tell(Event::Ended { request, outcome: Outcome::Cancelled, usage: said(1_000, 0, 0) });
    let more = bench.used().0 - 1_064;
    assert!((1_500..4_000).contains(&more), "{more}");
}

#[test]
fn a_tenant_that_comes_back_while_it_has_requests_in_flight_keeps_books_in_order() {
    let mut bench = contracted();
    let old = bench.send_text(text(4_000, false));
    bench.tell(Event::Contracted { limits: Vec::new() });
    bench.contract();
    let new = bench.send_text(text(4_000, false));
    for request in [old, new] {
        bench.tell(Event::Answering { request });
        let usage = said(1_000, 10, 0);
        bench.tell(Event::Ended { request, outcome: Outcome::Done, usage });
    }
    assert!(bench.brain.tenants().iter().all(|it| it.usage.reserved == 0));
    assert_eq!(bench.used().0, 1_010, "the new one only");
}

#[test]
fn what_engines_and_routers_report_is_bounded_before_it_is_added_up() {
    let mut bench = Bench::new(Settings::default(), &[1.0, 1.0, 1.0]);
    for number in 0..3 {
        let report = Report {
            taken_at: bench.now,
            waiting: u32::MAX,
            running: u32::MAX,
            waiting_tokens: Some(u64::MAX),
            kv_used_share: f64::NAN,
            kv_tokens_max: Some(u64::MAX),
        };
        bench.tell(Event::Reported { replica: ReplicaId(number), report });
    }
    bench.wait(2);
    bench.time();
    assert!((0..20).all(|session| bench.served(session).0 < 3));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn no_figure_and_no_order_of_events_breaks_the_books(
        bytes in prop::collection::vec(any::<u8>(), 0..3_000),
    ) {
        hostile::drive(&bytes);
    }
}
