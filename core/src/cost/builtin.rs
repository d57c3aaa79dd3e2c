//! Coefficients for replicas that were never calibrated. Two model sizes are fitted on the built-in
//! table. Any other size is a power law through those two, times the ratio of memory bandwidths,
//! and is marked as a guess: it knows nothing of quantisation, tensor parallelism, experts or the
//! engine. A router that starts with a guess is right about which of two requests is the larger,
//! and learns the rest.

use super::{
    Coefficients, Fit, H200_TABLE, KneePoint, Mix, Origin, RequestCost, StepTimes, fit,
    read_samples,
};

/// The day on which the built-in table was measured.
const TABLE_DATE: &str = "2026-11-15";
/// The memory bandwidth of the GPU in the built-in table.
pub const H200_MEMORY_TB_S: f64 = 4.8;

/// GPUs that need no measurement to begin with, and their memory bandwidth in TB/s as their makers
/// give it. All times are scaled by it, which is right for decoding and rough for prefill.
pub const GPUS: [(&str, f64); 7] = [
    ("b200", 8.0),
    ("mi300x", 5.3),
    ("h200", H200_MEMORY_TB_S),
    ("h100", 3.35),
    ("a100", 2.04),
    ("l40s", 0.864),
    ("l4", 0.3),
];

/// Billions of parameters, what the table calls it, and its step times.
const SIZES: [(f64, &str, StepTimes); 2] =
    [(8.03, "llama-8b", StepTimes::LLAMA_8B), (70.6, "llama-70b-tp1-of-80", StepTimes::LLAMA_70B)];
/// Sizes this close to a measured one are taken for it.
const SIZE_TOLERANCE: f64 = 0.05;

/// Returns what is known without measuring: one H200 and a model whose size its name tells; nothing
/// when the name tells none.
pub fn built_in(model: &str) -> Option<Coefficients> {
    let billions = billions_in(model)?;
    let near = |it: &&(f64, &str, StepTimes)| (billions / it.0 - 1.0).abs() <= SIZE_TOLERANCE;
    let Some((_, row, times)) = SIZES.iter().find(near) else {
        return Some(guess(model, billions, H200_MEMORY_TB_S));
    };
    let error = read_samples(H200_TABLE).ok().and_then(|it| Some(fit(it.get(*row)?)));
    Some(Coefficients {
        model: model.to_owned(),
        class: "h200".to_owned(),
        origin: Origin::Table,
        source: format!("built-in table, {row}"),
        error: error.map(|it| it.error_held_out),
        ..predicted(*times)
    })
}

/// Guesses what a model costs on a GPU that is built in, by its name in [`GPUS`]; a model whose name
/// tells no size is taken for one of eight billion parameters. `None` for another GPU.
pub fn built_in_on(model: &str, gpu: &str) -> Option<Coefficients> {
    let (name, memory_tb_s) = GPUS.iter().find(|it| it.0 == gpu)?;
    if *name == "h200"
        && let Some(known) = built_in(model)
    {
        return Some(known);
    }
    let billions = billions_in(model).unwrap_or(SIZES[0].0);
    Some(Coefficients { class: gpu.to_owned(), ..guess(model, billions, *memory_tb_s) })
}

/// Turns a fit on a table of bare steps into coefficients; the knee is predicted.
pub fn from_table(model: &str, fit: &Fit, source: &str, date: &str) -> Coefficients {
    Coefficients {
        model: model.to_owned(),
        source: source.to_owned(),
        date: date.to_owned(),
        error: Some(fit.error_held_out),
        ..predicted(fit.times)
    }
}

/// Guesses what a dense model in bf16 costs on a GPU of this memory bandwidth.
pub fn guess(model: &str, billions: f64, memory_tb_s: f64) -> Coefficients {
    let [(small, _, low), (large, _, high)] = SIZES;
    let place = (billions / small).ln() / (large / small).ln();
    let slowness = H200_MEMORY_TB_S / memory_tb_s;
    let scale = |low: f64, high: f64| slowness * low * (high / low).powf(place);
    let times = StepTimes {
        floor_ms: scale(low.floor_ms, high.floor_ms),
        new_token_ms: scale(low.new_token_ms, high.new_token_ms),
        attention_ms: scale(low.attention_ms, high.attention_ms),
        context_ms: scale(low.context_ms, high.context_ms),
    };
    Coefficients {
        model: model.to_owned(),
        class: format!("{memory_tb_s}tb"),
        origin: Origin::Guess,
        source: format!("scaled to {billions}b at {memory_tb_s} TB/s"),
        capacity_mu_per_min: 100.0 / slowness,
        ..predicted(times)
    }
}

fn predicted(step: StepTimes) -> Coefficients {
    Coefficients {
        model: String::new(),
        class: "table".to_owned(),
        origin: Origin::Table,
        source: String::new(),
        date: TABLE_DATE.to_owned(),
        capacity_mu_per_min: 100.0,
        overhead_ms: 0.0,
        image_ms: 0.0,
        audio_second_ms: 0.0,
        adapter_ms: RequestCost::ADAPTER_MS_UNKNOWN,
        step,
        knee: KneePoint::predict(&step, Mix::USUAL),
        error: None,
    }
}

/// Finds the size in a model's name, in billions of parameters: 8 in `Meta-Llama-3-8B-Instruct`.
fn billions_in(model: &str) -> Option<f64> {
    let words = model.split(|it: char| !it.is_ascii_alphanumeric() && it != '.');
    let sizes = words.filter_map(|word| {
        let digits = word.strip_suffix(['b', 'B'])?;
        let billions: f64 = digits.parse().ok()?;
        (0.05..=5_000.0).contains(&billions).then_some(billions)
    });
    sizes.max_by(f64::total_cmp)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_is_read_from_the_name() {
        let cases = [
            ("meta-llama/Meta-Llama-3-8B-Instruct", Some(8.0)),
            ("Qwen2.5-0.5b", Some(0.5)),
            ("qwen3:32b", Some(32.0)),
            ("Qwen3-30B-A3B", Some(30.0)),
            ("gpt-4o", None),
            ("b", None),
            ("infb-nanb", None),
        ];
        for (name, wanted) in cases {
            assert_eq!(billions_in(name), wanted, "{name}");
        }
    }

    #[test]
    fn measured_sizes_are_as_measured_and_others_are_marked() {
        let eight = built_in("llama-3.1-8b-instruct").unwrap();
        assert_eq!((eight.origin, eight.step), (Origin::Table, StepTimes::LLAMA_8B));
        assert!(eight.error.is_some());
        let between = built_in("some-32b").unwrap();
        assert_eq!((between.origin, between.error), (Origin::Guess, None));
        assert!(eight.step.floor_ms < between.step.floor_ms);
        assert!(between.step.floor_ms < StepTimes::LLAMA_70B.floor_ms);
        assert_eq!(built_in("gpt-4o"), None);
    }

    #[test]
    fn a_guess_at_a_measured_size_is_what_was_measured() {
        let times = guess("m", 70.6, H200_MEMORY_TB_S).step;
        assert!((times.floor_ms / StepTimes::LLAMA_70B.floor_ms - 1.0).abs() < 1e-9);
        assert!((times.context_ms / StepTimes::LLAMA_70B.context_ms - 1.0).abs() < 1e-9);
    }

    #[test]
    fn a_gpu_is_known_by_its_name_and_a_slower_one_takes_longer() {
        let floor = |gpu| built_in_on("llama-3-8b", gpu).map(|it| it.step.floor_ms);
        assert_eq!(floor("h200"), Some(StepTimes::LLAMA_8B.floor_ms));
        assert!(floor("h200") < floor("h100") && floor("h100") < floor("l4"));
        assert_eq!(floor("abacus"), None);
        assert!(built_in_on("gpt-4o", "h100").is_some(), "a size is assumed");
        assert_eq!(built_in_on("", "l4").map(|it| it.class), Some("l4".to_owned()));
    }

    #[test]
    fn half_the_bandwidth_does_half_the_work() {
        let slow = guess("m", 8.03, H200_MEMORY_TB_S / 2.0);
        let fast = guess("m", 8.03, H200_MEMORY_TB_S);
        assert!((slow.knee.requests_per_min / fast.knee.requests_per_min - 0.5).abs() < 1e-9);
        assert!((slow.capacity_mu_per_min - 50.0).abs() < 1e-9);
    }
}
