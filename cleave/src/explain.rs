//! `cleave explain`: asks a running router why a request went where it went, and shows it as tables.
//! It reads the admin port and nothing else, so it shows what an operator may see.

use std::fmt::Write as _;
use std::io::Write as _;

use anyhow::Context as _;
use bytes::Bytes;
use cleave_core::domain::whole;
use cleave_io::admin::{
    Candidate, Explained, LifeStage, LineSeen, OutcomeSeen, RouterShare, Terms, Try,
};
use comfy_table::{CellAlignment, Table, presets};

use crate::admin::AdminPort;

/// Explain why a request went where it went
///
/// Without an id, lists the latest decisions that are kept: those of requests that failed, were tried again, were
/// slow, held or moved, of one request in a hundred (`explain.sample`), and of every request whose header
/// `x-cleave-explain` asks for it.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// The request's id, as in `x-request-id` of its answer and in the access log
    #[arg(value_name = "REQUEST_ID")]
    request: Option<String>,
    /// List only those kept for this: failed, retried, slow, held, moved, asked or lot
    #[arg(long, value_name = "KIND", conflicts_with = "request")]
    kept_for: Option<String>,
    #[command(flatten)]
    port: AdminPort,
    /// Print the answer as it came, for machines
    #[arg(long)]
    json: bool,
}

impl Args {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let body = runtime.block_on(self.fetch())?;
        let text = if self.json {
            String::from_utf8_lossy(&body).into_owned() + "\n"
        } else if self.request.is_some() {
            page(&serde_json::from_slice(&body).context("the answer is of another version")?)
        } else {
            list(&serde_json::from_slice::<Vec<Explained>>(&body)?)
        };
        // A reader that has seen enough closes the pipe; that is no failure.
        _ = std::io::stdout().write_all(text.as_bytes());
        Ok(())
    }

    async fn fetch(&self) -> anyhow::Result<Bytes> {
        let id = self.request.as_ref().map_or(String::new(), |it| format!("/{it}"));
        let kind = self.kept_for.as_ref().map_or(String::new(), |it| format!("?kept_for={it}"));
        self.port.client()?.read(&format!("/explain{id}{kind}")).await
    }
}

/// Shows one request.
fn page(it: &Explained) -> String {
    let mut text = format!(
        "request {} in pool {}, {} ago\n",
        it.request_id,
        it.pool,
        humantime::format_duration(std::time::Duration::from_secs(whole(it.age_seconds.floor())))
    );
    if let Some(router) = &it.router {
        writeln!(text, "decided by router {router}").expect("text grows");
    }
    if let Some(verdict) = &it.verdict {
        writeln!(text, "verdict: {verdict}").expect("text grows");
    }
    if let Some(line) = &it.line {
        text.push_str(&waited(line));
    }
    if !it.life.is_empty() {
        writeln!(text, "\n{}", life(&it.life)).expect("text grows");
    }
    for (at, one) in it.tries.iter().enumerate() {
        write_try(&mut text, at + 1, one);
    }
    if let Some(refusal) = &it.refusal {
        writeln!(text, "refused: {refusal}").expect("text grows");
    }
    match &it.outcome {
        None => text.push_str("it is still running\n"),
        Some(outcome) => text.push_str(&came(outcome, it.tries.last())),
    }
    text
}

/// Shows what happened from its arrival on, each beside its expectation.
fn life(stages: &[LifeStage]) -> Table {
    let mut table = table(&["stage", "at ms", "took ms", "expected ms", "what"], 1);
    for it in stages {
        table.add_row([
            it.stage.clone(),
            number(Some(it.at_ms)),
            number(it.took_ms),
            number(it.expected_ms),
            it.detail.clone(),
        ]);
    }
    if let Some(words) = table.column_mut(4) {
        words.set_cell_alignment(CellAlignment::Left);
    }
    table
}

/// Says what it went through before it was sent or refused.
fn waited(it: &LineSeen) -> String {
    let mut text = format!("class {}, tenant {}\n", it.class, it.tenant);
    if let Some(contract) = &it.contract {
        writeln!(text, "refused by its contract: {}", contract.because).expect("text grows");
    } else if let Some(because) = &it.because {
        writeln!(
            text,
            "waited {:.1} ms, {:.1} ms expected behind {:.2} MU: {because}",
            it.waited_ms, it.wait_expected_ms, it.ahead_mu
        )
        .expect("text grows");
    }
    if let Some(within) = it.first_token_within_ms {
        writeln!(
            text,
            "first token due {within:.1} ms after its arrival; expected {:.1} ms after it is sent",
            it.first_token_expected_ms
        )
        .expect("text grows");
    }
    text
}

fn write_try(text: &mut String, number: usize, it: &Try) {
    if it.candidates.is_empty() && it.policy.is_empty() {
        return write_unexplained(text, number, it);
    }
    let Try { replica, because, policy, prompt_tokens, workload, .. } = it;
    let expected =
        it.output_tokens_expected.map_or("an unknown number of".to_owned(), |it| it.to_string());
    write!(
        text,
        "\ntry {number}: {replica} by {policy}: {because}\n{}{}\
         workload {workload}, prompt of {prompt_tokens} tokens, answer of {expected} expected\n{}\n",
        beyond(it),
        moved(it),
        candidates(it)
    )
    .expect("text grows");
    for candidate in &it.candidates {
        text.push_str(&elsewhere(candidate));
    }
    let hidden = it.candidates_total.saturating_sub(it.candidates.len());
    if 0 < hidden {
        writeln!(text, "and {hidden} more that cost no less").expect("text grows");
    }
    if !it.what_if.is_empty() {
        writeln!(text, "what others would have done\n{}", what_if(it)).expect("text grows");
    }
}

/// Shows a try whose reasons were not written down.
fn write_unexplained(text: &mut String, number: usize, it: &Try) {
    let Try { replica, because, prompt_tokens, ttft_ms, .. } = it;
    writeln!(
        text,
        "\ntry {number}: {replica}: {because}\n{}\
         prompt of {prompt_tokens} tokens, first token expected after {ttft_ms:.1} ms",
        moved(it)
    )
    .expect("text grows");
}

/// Says why it could leave its subset.
fn beyond(it: &Try) -> String {
    let why = it.beyond.as_ref();
    why.map_or_else(String::new, |why| format!("beyond its subset, because {why}\n"))
}

/// Says where its session was, and why it is not there any more.
fn moved(it: &Try) -> String {
    let (Some(home), Some(because)) = (&it.home, &it.moved_because) else { return String::new() };
    let by = it.moved_for_ms.map_or_else(String::new, |ms| format!(", by {ms:.1} ms"));
    format!("its session was at {home}, and left because {because}{by}\n")
}

fn candidates(it: &Try) -> Table {
    let names = [
        "",
        "replica",
        "price ms",
        "ttft ms",
        "wait",
        "prefill",
        "late",
        "evict",
        "crowd",
        "slow",
        "weight",
        "cached",
        "in flight",
        "share",
        "beyond",
    ];
    let mut table = table(&names, 2);
    for candidate in &it.candidates {
        let mark = if candidate.replica == it.replica { "→" } else { "" };
        let term = |of: fn(&Terms) -> f64| number(candidate.terms.as_ref().map(of));
        let cached = candidate.terms.map_or("-".to_owned(), |it| it.cached_tokens.to_string());
        table.add_row([
            mark.to_owned(),
            candidate.replica.clone(),
            term(|it| it.price_ms),
            term(|it| it.ttft_ms),
            term(|it| it.wait_ms),
            term(|it| it.prefill_ms),
            term(|it| it.late_ms),
            term(|it| it.evict_ms),
            term(|it| it.crowd_ms),
            term(|it| it.slow_ms),
            term(|it| it.weight_ms),
            cached,
            candidate.in_flight.to_string(),
            candidate.weight.to_string(),
            candidate.beyond.clone().unwrap_or_default(),
        ]);
    }
    table
}

/// Says which other routers had booked work at a replica.
fn elsewhere(it: &Candidate) -> String {
    let part = |by: &RouterShare| {
        let RouterShare { router, in_flight, work_ms, share } = by;
        let percent = 100.0 * share;
        format!("router {router} {percent:.0}% ({in_flight} in flight, {work_ms:.0} ms)")
    };
    if it.elsewhere.is_empty() {
        return String::new();
    }
    let parts: Vec<String> = it.elsewhere.iter().map(part).collect();
    format!("of the work booked at {}: {}\n", it.replica, parts.join(", "))
}

fn what_if(it: &Try) -> Table {
    let mut table = table(&["policy", "replica", "ttft ms", "against ours"], 2);
    for other in &it.what_if {
        let more = other.ttft_ms.map(|theirs| theirs - it.ttft_ms);
        let more = more.map_or("-".to_owned(), |it| format!("{it:+.1}"));
        table.add_row([other.policy.clone(), other.replica.clone(), number(other.ttft_ms), more]);
    }
    table
}

/// Says what came of it, beside what was expected.
fn came(it: &OutcomeSeen, last: Option<&Try>) -> String {
    let tokens = |it: Option<u32>| it.map_or("?".to_owned(), |it| it.to_string());
    let predicted = last.map(|it| it.ttft_ms);
    format!(
        "came to: {}, status {}, {:.1} ms in all\n\
         first token after {} ms, predicted {} ms\n\
         tokens: {} in the prompt, {} of them cached, {} in the answer\n",
        it.outcome,
        it.status,
        it.total_ms,
        number(it.ttft_ms),
        number(predicted),
        tokens(it.input_tokens),
        tokens(it.cached_tokens),
        tokens(it.output_tokens),
    )
}

/// Shows many requests, a line each.
fn list(all: &[Explained]) -> String {
    let names =
        ["request", "kept for", "replica", "tries", "ttft ms", "predicted", "total ms", "verdict"];
    let mut table = table(&names, 3);
    for it in all {
        let last = it.tries.last();
        table.add_row([
            it.request_id.clone(),
            it.kept_for.clone(),
            last.map_or("-".to_owned(), |it| it.replica.clone()),
            it.tries.len().to_string(),
            number(it.outcome.as_ref().and_then(|it| it.ttft_ms)),
            number(last.map(|it| it.ttft_ms)),
            number(it.outcome.as_ref().map(|it| it.total_ms)),
            it.verdict.clone().unwrap_or_else(|| "it is still running".to_owned()),
        ]);
    }
    if let Some(words) = table.column_mut(7) {
        words.set_cell_alignment(CellAlignment::Left);
    }
    format!("{table}\n")
}

/// Makes a table whose columns from `numbers` on are numbers.
fn table(names: &[&str], numbers: usize) -> Table {
    let mut table = Table::new();
    table.load_style(presets::UTF8_HORIZONTAL_ONLY).set_header(names.to_vec());
    for column in table.column_iter_mut().skip(numbers) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

fn number(value: Option<f64>) -> String {
    value.map_or("-".to_owned(), |it| format!("{it:.1}"))
}
