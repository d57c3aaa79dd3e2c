//! Session lines: one JSON object per session (Claude Code, tau-bench). A turn is a difference: `keep`
//! leading blocks of the previous turn of its stream, then runs `[first_id, count]`. Only whole
//! blocks are listed. An element with `sub` is a sub-agent with turns of its own. Its `t` is taken for
//! the moment of its last answer: less the length of its own recording, it falls 1 to 8 seconds after the
//! end of the turn before it in 44 of the 46 sub-agents at hand (the other two come at the end of
//! a session, a day later). So it starts after that turn, beside other sub-agents, and the turn
//! that follows it in the list waits for it.

use std::num::NonZeroU32;
use std::time::Duration;

use serde::Deserialize;

use super::super::draw;
use super::super::lines::{Lines, TraceError};
use super::super::prompt::{Run, Runs, mix, named};
use super::super::request::{Session, Turn};
use super::iterate_reader;
use super::names::Names;

/// Spaces of block ids: one per session, one per length of shared tool definitions, one for all.
const LOCAL: u64 = named("session blocks");
const TOOLS: u64 = named("tool blocks");
const GLOBAL: u64 = named("global blocks");

#[derive(Deserialize)]
struct SessionLine {
    block: NonZeroU32,
    #[serde(default)]
    tool: u32,
    #[serde(default)]
    scope: Scope,
    reqs: Vec<Element>,
}

#[derive(Clone, Copy, Default, Deserialize, PartialEq)]
#[serde(rename_all = "lowercase")]
enum Scope {
    #[default]
    Session,
    Global,
}

/// A turn or, where `sub` is given, a sub-agent. One struct, because an untagged choice would
/// hide which field was wrong.
#[derive(Deserialize)]
struct Element {
    #[serde(default = "untimed")]
    t: f64,
    sub: Option<String>,
    #[serde(default)]
    tool: u32,
    #[serde(default)]
    reqs: Vec<Element>,
    #[serde(default, rename = "in")]
    input: u32,
    #[serde(default)]
    out: u32,
    #[serde(default)]
    keep: u32,
    #[serde(default)]
    add: Vec<(u32, u32)>,
    model: Option<String>,
    #[serde(default)]
    api: f64,
    think: Option<f64>,
}

/// Stands for a moment that was not recorded; as a time it counts as nothing.
fn untimed() -> f64 {
    f64::NAN
}

pub(in super::super) struct SessionLines {
    lines: Lines,
    models: Names,
    share_tools: bool,
    sessions: u64,
}

/// Where and in which spaces a stream's turns go.
struct Build<'a> {
    lines: &'a Lines,
    models: &'a mut Names,
    session: Session,
    streams: u32,
    block: NonZeroU32,
    space: u64,
    share_tools: bool,
}

impl SessionLines {
    pub(in super::super) fn new(lines: Lines, share_tools: bool) -> Self {
        Self { lines, models: Names::default(), share_tools, sessions: 0 }
    }

    fn read(&mut self) -> Result<Option<Session>, TraceError> {
        let Some(line) = self.lines.next_json::<SessionLine>()? else { return Ok(None) };
        self.sessions += 1;
        let id = mix(LOCAL, self.sessions);
        let timed = line.reqs.iter().all(|element| element.t.is_finite());
        let mut build = Build {
            lines: &self.lines,
            models: &mut self.models,
            session: Session { id, timed, ..Session::default() },
            streams: 0,
            block: line.block,
            space: if line.scope == Scope::Global { GLOBAL } else { id },
            share_tools: self.share_tools,
        };
        let (base, first_think) = (Duration::ZERO, Duration::ZERO);
        let main = RecordedStream { elements: &line.reqs, tool: line.tool, base, first_think };
        build.stream(&main, Vec::new())?;
        Ok(Some(build.session))
    }
}

impl Build<'_> {
    /// Appends the turns of one stream, of which the first waits for the given turns, and returns the
    /// last one, if there is any.
    fn stream(
        &mut self,
        stream: &RecordedStream<'_>,
        after: Vec<u32>,
    ) -> Result<Option<u32>, TraceError> {
        let number = self.streams;
        self.streams += 1;
        let mut runs = Runs::default();
        let mut last: Option<(&Element, u32)> = None;
        let mut waits = after;
        // When the last sub-agent since the last turn of this stream ended.
        let mut joined: Option<f64> = None;
        for element in stream.elements {
            if element.sub.is_some() {
                let parent = last.map(|(_, turn)| turn).into_iter().collect();
                if let Some(end) = self.stream(&stream.sub(element, last), parent)? {
                    waits.push(end);
                    joined = Some(element.t.max(joined.unwrap_or(0.0)));
                }
                continue;
            }
            self.advance(&mut runs, element, stream.tool)?;
            let think = match (joined.take(), last) {
                (Some(ended), _) => draw::seconds(element.t - ended),
                (None, Some((last, _))) => think(element, last),
                (None, None) => stream.first_think,
            };
            let prompt = runs.prompt(element.input, self.block);
            let at = stream.base + draw::seconds(element.t);
            let mut turn = Turn::new(at, think, prompt, element.out);
            turn.stream = number;
            turn.model = element.model.as_deref().map(|name| self.models.get(name));
            let pushed = self.session.push(turn, &waits);
            waits = vec![pushed];
            last = Some((element, pushed));
        }
        Ok(last.map(|(_, turn)| turn))
    }

    /// Applies one difference to the blocks of the stream.
    fn advance(&self, runs: &mut Runs, element: &Element, tool: u32) -> Result<(), TraceError> {
        if !runs.keep(element.keep) {
            return Err(self
                .lines
                .complain(format!("keep {} exceeds the turn before", element.keep)));
        }
        let whole = element.input / self.block;
        let shared = if self.share_tools { tool / self.block } else { 0 };
        let tools = mix(TOOLS, u64::from(tool));
        for &(first, count) in &element.add {
            let position = runs.blocks();
            if whole < position || whole - position < count || first.checked_add(count).is_none() {
                break;
            }
            let inside = shared.saturating_sub(position).min(count);
            runs.push(Run { space: tools, first: position, count: inside });
            runs.push(Run { space: self.space, first: first + inside, count: count - inside });
        }
        if runs.blocks() != whole {
            let problem = format!("a prompt of {} tokens needs {whole} blocks", element.input);
            return Err(self.lines.complain(problem));
        }
        Ok(())
    }
}

/// One stream of a recording.
struct RecordedStream<'a> {
    elements: &'a [Element],
    tool: u32,
    /// Time of its first request since the start of the session.
    base: Duration,
    first_think: Duration,
}

impl<'a> RecordedStream<'a> {
    /// Places a sub-agent that was started after the last turn of this stream.
    fn sub(&self, element: &'a Element, last: Option<(&Element, u32)>) -> Self {
        let start = element.t - lasted(&element.reqs);
        let asked = last.map_or(start, |(last, _)| last.t + last.api);
        Self {
            elements: &element.reqs,
            tool: element.tool,
            base: self.base + draw::seconds(start),
            first_think: draw::seconds(start - asked),
        }
    }
}

/// Seconds from the first request of a stream to its last answer.
fn lasted(elements: &[Element]) -> f64 {
    elements.last().map_or(0.0, |last| last.t + last.api)
}

/// The recorded think time; where it is missing, the pause after the answer before.
fn think(element: &Element, last: &Element) -> Duration {
    draw::seconds(element.think.unwrap_or(element.t - last.t - last.api))
}

iterate_reader!(SessionLines => Session);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agents_next_turn_waits_for_its_sub_agents() {
        let path = std::env::temp_dir().join(format!("cleave-sub-{}.jsonl", std::process::id()));
        let text = r#"{"id":"a","block":64,"tool":128,"reqs":[
            {"t":0,"in":200,"out":5,"keep":0,"add":[[1,3]],"api":2},
            {"t":20,"sub":"x","tool":64,"reqs":[
                {"t":0,"in":70,"out":1,"keep":0,"add":[[50,1]],"api":1},
                {"t":6,"in":140,"out":1,"keep":1,"add":[[51,1]],"api":4,"think":5}]},
            {"t":30,"sub":"y","tool":64,"reqs":[
                {"t":0,"in":70,"out":1,"keep":0,"add":[[60,1]],"api":25}]},
            {"t":33,"in":260,"out":5,"keep":3,"add":[[4,1]],"think":31}]}"#;
        std::fs::write(&path, text.replace('\n', " ")).unwrap();
        let lines = Lines::open(&path).unwrap();
        let session = SessionLines::new(lines, true).next().unwrap().unwrap();
        std::fs::remove_file(&path).unwrap();
        let streams: Vec<_> = session.turns.iter().map(|turn| turn.stream).collect();
        assert_eq!(streams, [0, 1, 1, 2, 0]);
        assert_eq!(session.turns[0].then, [1, 3, 4]);
        assert_eq!(session.turns[4].waits_for, 3);
        assert_eq!(session.turns[4].think, Duration::from_secs(3));
        assert_eq!(session.turns[1].at, Duration::from_secs(10));
        assert_eq!(session.turns[1].think, Duration::from_secs(8));
        assert_eq!(session.turns[0].prompt.runs().len(), 2, "tools are shared, the rest is not");
    }
}
