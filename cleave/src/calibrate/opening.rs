//! The first words with a replica: is it there, is it free, which model, by which path, how long are its
//! tokens and about how fast is it? All that a plan must know, and every reason not to begin.

use anyhow::{Context as _, bail, ensure};
use serde::Deserialize;

use super::client::{Api, Question, QuestionError, ReplicaClient, RequestForm, opening_words};
use super::engine_metrics::EngineCounters;
use super::grid::{GridSize, Limits};
use super::prompts::Prompts;
use crate::stream::{Answer, ms_between};

const DIALECTS: [RequestForm; 4] = [
    RequestForm { api: Api::Completions, ignore_eos: true },
    RequestForm { api: Api::Completions, ignore_eos: false },
    RequestForm { api: Api::Chat, ignore_eos: true },
    RequestForm { api: Api::Chat, ignore_eos: false },
];
const PILOT_PROMPT_TOKENS: u32 = 256;
const PILOT_OUTPUT_TOKENS: u32 = 32;
/// Where the replica does not say.
const CONTEXT_TOKENS: u32 = 8_192;
const KV_TOKENS: u32 = 131_072;

/// A replica that can be measured.
#[derive(Debug)]
pub(super) struct Subject {
    pub(super) client: ReplicaClient,
    pub(super) model: String,
    pub(super) dialect: RequestForm,
    pub(super) limits: Limits,
    pub(super) prompts: Prompts,
    /// What the engine reported after the first words.
    pub(super) report: EngineCounters,
}

#[derive(Deserialize)]
struct ModelList {
    data: Vec<Model>,
}

#[derive(Clone, Deserialize)]
struct Model {
    id: String,
    max_model_len: Option<u32>,
}

/// Opens the talk with a replica.
pub(super) async fn open(
    client: ReplicaClient,
    model: Option<&str>,
    pace: GridSize,
    force: bool,
    seed: u64,
) -> anyhow::Result<Subject> {
    let model = choose_model(&client, model).await?;
    let before = EngineCounters::fetch(&client).await?;
    if !force {
        refuse_busy(&before)?;
    }
    let mut prompts = Prompts::new(seed);
    let (dialect, _) = find_dialect(&client, &model.id, &mut prompts).await?;
    // The first answer may have paid for a cold start; the second one is as all others will be.
    let (_, second) = try_dialect(&client, &model.id, dialect, &mut prompts)
        .await
        .map_err(QuestionError::into_error)?;
    let report = EngineCounters::fetch(&client).await?;
    let limits = limits(pace, &model, &report, &second);
    Ok(Subject { client, model: model.id, dialect, limits, prompts, report })
}

async fn choose_model(client: &ReplicaClient, wanted: Option<&str>) -> anyhow::Result<Model> {
    let (status, body) = client.get("/v1/models").await?;
    let listed = if status.is_success() {
        serde_json::from_slice::<ModelList>(&body).map(|it| it.data).unwrap_or_default()
    } else {
        Vec::new()
    };
    let names: Vec<&str> = listed.iter().map(|it| it.id.as_str()).collect();
    match (wanted, listed.as_slice()) {
        (None, [only]) => Ok(only.clone()),
        (None, []) if !status.is_success() => bail!(
            "{} answered {status} to /v1/models: {}; name the model with --model, or check the address",
            client.base(),
            opening_words(&body)
        ),
        (None, []) => bail!(
            "{} lists no model on /v1/models; name it with --model, or check the address",
            client.base()
        ),
        (None, _) => bail!("the replica serves {}; say which with --model", names.join(", ")),
        (Some(wanted), []) => Ok(Model { id: wanted.to_owned(), max_model_len: None }),
        (Some(wanted), _) => listed
            .iter()
            .find(|it| it.id == wanted)
            .cloned()
            .with_context(|| format!("the replica serves {}, not {wanted}", names.join(", "))),
    }
}

fn refuse_busy(report: &EngineCounters) -> anyhow::Result<()> {
    let (running, waiting) = (report.running.unwrap_or(0.0), report.waiting.unwrap_or(0.0));
    ensure!(
        running + waiting < 0.5,
        "the replica is serving others ({running} running, {waiting} waiting), so times would mean \
         nothing; take it out of rotation and wait until it is idle, or give --force"
    );
    Ok(())
}

/// Finds a way in which the replica answers, and returns its first answer.
async fn find_dialect(
    client: &ReplicaClient,
    model: &str,
    prompts: &mut Prompts,
) -> anyhow::Result<(RequestForm, Answer)> {
    let mut refusals = Vec::new();
    for dialect in DIALECTS {
        match try_dialect(client, model, dialect, prompts).await {
            Ok((prompt, answer)) => {
                prompts.learn(&prompt, answer.prompt_tokens);
                return Ok((dialect, answer));
            }
            Err(QuestionError::Broken(error)) => return Err(error),
            Err(QuestionError::Refused { status, words }) => {
                refusals.push(format!("{:?}: {status} {words}", dialect.api));
            }
        }
    }
    refusals.dedup();
    bail!("the replica answers neither completions nor chats: {}", refusals.join("; "))
}

async fn try_dialect(
    client: &ReplicaClient,
    model: &str,
    dialect: RequestForm,
    prompts: &mut Prompts,
) -> Result<(String, Answer), QuestionError> {
    let prompt = prompts.write(PILOT_PROMPT_TOKENS);
    let ask = Question { prompt, output_tokens: PILOT_OUTPUT_TOKENS };
    let answer = client.ask(model, dialect, &ask).await?;
    Ok((ask.prompt, answer))
}

/// Keeps every request to a few seconds, as far as one answer can tell.
fn limits(pace: GridSize, model: &Model, report: &EngineCounters, pilot: &Answer) -> Limits {
    let bearable_ms = match pace {
        GridSize::Full => 8_000.0,
        GridSize::Quick => 2_000.0,
    };
    let token_ms = pilot.ttft_ms() / f64::from(pilot.prompt_tokens.max(1));
    let last = pilot.pieces_at.last().copied().unwrap_or(pilot.sent_at);
    let written_ms = ms_between(pilot.pieces_at[0], last);
    let gap_ms = written_ms / f64::from(pilot.output_tokens.saturating_sub(1).max(1));
    Limits {
        context_tokens: model.max_model_len.unwrap_or(CONTEXT_TOKENS),
        kv_tokens: report.kv_tokens.map_or(KV_TOKENS, whole),
        // A long prompt is read at least twice as fast a token as a short one, overhead included.
        prompt_tokens: whole(2.0 * bearable_ms / token_ms.max(1e-3)),
        output_tokens: whole(bearable_ms / gap_ms.max(1e-3)),
    }
}

/// Rounds down to what fits.
pub(super) fn whole(count: f64) -> u32 {
    #[expect(
        clippy::as_conversions,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "clamped to the range before"
    )]
    let whole = count.clamp(0.0, 1e9) as u32;
    whole
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replica_that_serves_others_is_refused_with_a_remedy() {
        let busy =
            EngineCounters { running: Some(2.0), waiting: Some(1.0), ..EngineCounters::default() };
        let error = refuse_busy(&busy).unwrap_err().to_string();
        assert!(error.contains("2 running, 1 waiting") && error.contains("--force"), "{error}");
        assert!(refuse_busy(&EngineCounters { running: Some(0.0), ..busy }).is_err());
        assert!(refuse_busy(&EngineCounters::default()).is_ok());
    }
}
