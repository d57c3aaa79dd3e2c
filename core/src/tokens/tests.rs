//! What lengths promise: what is known is kept, what is not is learned, all of it bounded.

use super::*;

const KEY: SliceKey = SliceKey(0x1234_5678_9abc_def0);

fn extent(text_bytes: u32) -> Extent {
    Extent { model: 7 << 40, text_bytes, block_bytes: 256, ..Extent::default() }
}

fn completed(lengths: &Lengths, extent: &Extent, blocks: usize) -> Outline {
    let mut outline = Outline { blocks: vec![0; blocks].into(), ..Outline::default() };
    lengths.complete(KEY, extent, &mut outline);
    outline
}

/// Teaches `count` answers to prompts at `bytes_per_token`.
fn teach(lengths: &mut Lengths, count: u32, bytes_per_token: u32, output: u32) {
    for _ in 0..count {
        let extent = extent(1000 * bytes_per_token);
        let outline = completed(lengths, &extent, 0);
        let usage = Usage { input: Some(1000), output: Some(output), cached: None };
        lengths.on_ended(KEY, &extent, &outline, usage, true);
    }
}

#[test]
fn what_is_unknown_is_filled_and_what_is_known_is_kept() {
    let lengths = Lengths::default();
    let outline = completed(&lengths, &extent(25_600), 100);
    assert_eq!((outline.prompt_tokens, outline.block_tokens), (6400, 64));
    assert_eq!(outline.output_tokens, Some(256));
    let known = Outline {
        blocks: vec![1, 2].into(),
        block_tokens: 16,
        prompt_tokens: 40,
        output_tokens: Some(9),
        ..Outline::default()
    };
    let mut outline = known.clone();
    lengths.complete(KEY, &extent(5000), &mut outline);
    assert_eq!(outline, known);
    let mut nothing = Outline::default();
    lengths.complete(KEY, &Extent::default(), &mut nothing);
    assert_eq!(nothing, Outline::default());
}

#[test]
fn predictions_come_to_what_engines_report() {
    let mut lengths = Lengths::default();
    teach(&mut lengths, 100, 3, 80);
    let outline = completed(&lengths, &extent(30_000), 10);
    assert!((9_900..10_300).contains(&outline.prompt_tokens), "{outline:?}");
    assert!((84..=86).contains(&outline.block_tokens), "{outline:?}");
    assert!(outline.output_tokens.is_some_and(|it| (80..90).contains(&it)), "{outline:?}");
    let other = Extent { model: 1, ..extent(40_000) };
    assert_eq!(completed(&lengths, &other, 0).prompt_tokens, 10_000, "models learn apart");
}

/// A prompt of `blocks` blocks of a conversation, and half a block more.
fn turn(conversation: u64, blocks: u32) -> (Extent, Outline) {
    let hashes = (0..u64::from(blocks)).map(|it| conversation << 32 | it);
    let outline = Outline { blocks: hashes.collect(), ..Outline::default() };
    (extent(256 * blocks + 128), outline)
}

#[test]
fn of_a_later_turn_only_the_end_is_estimated() {
    let mut lengths = Lengths::default();
    // The model's prompts come to four bytes a token, this conversation's to two.
    teach(&mut lengths, 100, 4, 80);
    let (extent, outline) = turn(1, 1000);
    let usage = Usage { input: Some(128_000), ..Usage::default() };
    lengths.on_ended(KEY, &extent, &outline, usage, true);
    let predict = |conversation, blocks| {
        let (extent, mut outline) = turn(conversation, blocks);
        lengths.complete(KEY, &extent, &mut outline);
        outline.prompt_tokens
    };
    // The ratio has moved a little by what it was taught.
    let (next, strange) = (predict(1, 1010), predict(2, 1010));
    assert!((127_500..130_000).contains(&next), "{next}");
    assert!((60_000..75_000).contains(&strange), "{strange}");
    assert!((127_000..200_000).contains(&predict(1, 2000)), "a long turn is found too");
    assert!(predict(1, 500) < 70_000, "nothing is known of a shorter one");
}

#[test]
fn an_image_breaks_off_what_is_known() {
    let mut lengths = Lengths::default();
    let ((plain, outline), (_, unknown)) = (turn(1, 100), turn(2, 100));
    let usage = Usage { input: Some(20_000), ..Usage::default() };
    lengths.on_ended(KEY, &plain, &outline, usage, true);
    let image = Extent { attachments: 1, attachment_bytes: 10_000, ..plain };
    let estimate = |extent: &Extent, outline: &Outline| {
        let mut outline = Outline { prompt_tokens: 0, ..outline.clone() };
        lengths.complete(KEY, extent, &mut outline);
        outline.prompt_tokens
    };
    assert_ne!(estimate(&plain, &outline), estimate(&plain, &unknown));
    assert_eq!(estimate(&image, &outline), estimate(&image, &unknown));
}

#[test]
fn another_workload_of_the_model_starts_from_the_model_s_answers() {
    let mut lengths = Lengths::default();
    teach(&mut lengths, 300, 4, 900);
    let mut outline = Outline::default();
    lengths.complete(SliceKey(1 << 40), &extent(4000), &mut outline);
    assert!(outline.output_tokens.is_some_and(|it| (850..900).contains(&it)), "{outline:?}");
}

#[test]
fn a_cap_caps_and_nothing_is_expected_where_nothing_is_generated() {
    let lengths = Lengths::default();
    let capped = |cap| Extent { output_tokens_max: Some(cap), ..extent(4000) };
    assert_eq!(completed(&lengths, &capped(30), 0).output_tokens, Some(30));
    assert_eq!(completed(&lengths, &capped(0), 0).output_tokens, Some(0));
}

#[test]
fn an_image_counts_for_itself_and_teaches_nothing() {
    let mut lengths = Lengths::default();
    let image = Extent { attachments: 2, attachment_bytes: 2_000_000, ..extent(4000) };
    let outline = completed(&lengths, &image, 7800);
    assert_eq!((outline.prompt_tokens, outline.block_tokens), (3048, 1));
    let usage = Usage { input: Some(200), ..Usage::default() };
    lengths.on_ended(KEY, &image, &outline, usage, true);
    assert_eq!(completed(&lengths, &extent(4000), 0).prompt_tokens, 1000);
}

#[test]
fn answers_that_broke_off_do_not_count() {
    let mut lengths = Lengths::default();
    let outline = completed(&lengths, &extent(4000), 0);
    let usage = Usage { output: Some(1), ..Usage::default() };
    for _ in 0..100 {
        lengths.on_ended(KEY, &extent(4000), &outline, usage, false);
    }
    assert_eq!(completed(&lengths, &extent(4000), 0).output_tokens, Some(256));
    assert_eq!(lengths.misses(), TokenErrors::default());
}

#[test]
fn the_error_is_kept_for_both_kinds() {
    let mut lengths = Lengths::default();
    let outline = Outline { prompt_tokens: 90, output_tokens: Some(20), ..Outline::default() };
    for (input, output) in [(100, 5), (80, 30)] {
        let usage = Usage { input: Some(input), output: Some(output), cached: None };
        lengths.on_ended(KEY, &extent(400), &outline, usage, true);
    }
    let TokenErrors { input, output } = lengths.misses();
    assert_eq!((input.predicted_tokens, input.missed_tokens), (180, 20));
    assert_eq!((output.predicted_tokens, output.missed_tokens), (40, 25));
}

/// A prompt in one tenant's words, and what is expected of it.
fn expected(lengths: &Lengths, key: SliceKey, extent: &Extent, blocks: usize) -> (u32, u32) {
    let mut outline = Outline { blocks: vec![7; blocks].into(), ..Outline::default() };
    lengths.complete(key, extent, &mut outline);
    (outline.prompt_tokens, outline.output_tokens.unwrap())
}

#[test]
fn a_liar_moves_what_is_expected_of_others_by_no_more_than_a_bound() {
    let (honest, other, liar) = (KEY, SliceKey(1 << 40), SliceKey(2 << 40));
    let lies = [0, 1, 1 << 12, 1 << 20, TOKENS_MAX, u32::MAX];
    for (lie, times) in lies.into_iter().flat_map(|lie| [1, 1_000].map(|times| (lie, times))) {
        let mut lengths = Lengths::default();
        teach(&mut lengths, 100, 4, 200);
        let before = [honest, other].map(|it| expected(&lengths, it, &extent(40_000), 32));
        let usage = Usage { input: Some(lie), output: Some(lie), cached: Some(lie) };
        for size in [40_000, 1_000_000, 64] {
            let outline = Outline { blocks: vec![7; 32].into(), ..Outline::default() };
            for _ in 0..times {
                lengths.on_ended(liar, &extent(size), &outline, usage, true);
            }
        }
        let after = [honest, other].map(|it| expected(&lengths, it, &extent(40_000), 32));
        for (before, after) in before.into_iter().zip(after) {
            let close = |factor: u32| after.0 <= before.0 * factor && before.0 <= after.0 * factor;
            assert!(close(2), "{lie} said {times} times: {before:?}, then {after:?}");
        }
        // A workload with answers of its own hardly leans on others.
        assert!(after[0].1 <= 2 * before[0].1, "{lie}: {before:?}, then {after:?}");
        if times == 1 {
            assert!(after[1].1 <= 2 * before[1].1, "{lie}: {before:?}, then {after:?}");
        }
    }
}

#[test]
fn text_without_blanks_is_text_and_no_estimate_falls_below_a_share_of_the_bytes() {
    let lengths = Lengths::default();
    let dense = Extent { dense_bytes: 3_000_000, ..extent(3_000_400) };
    let (tokens, _) = expected(&lengths, KEY, &dense, 0);
    assert!((2_000_000..2_000_200).contains(&tokens), "{tokens}");
    let hidden = Extent { body_bytes: 640_000, ..Extent::default() };
    let mut outline = Outline::default();
    lengths.complete(KEY, &hidden, &mut outline);
    assert_eq!(outline.prompt_tokens, 20_000, "whatever field it stands in");
    // A workload that shows that its text has few tokens is believed to a point.
    let mut lengths = Lengths::default();
    teach(&mut lengths, 1_000, 32, 1);
    let (tokens, _) = expected(&lengths, KEY, &extent(3_200_000), 0);
    assert!((100_000..110_000).contains(&tokens), "{tokens}");
}

#[test]
fn what_an_outline_says_is_bounded_too() {
    let mut absurd = Outline {
        blocks: vec![1].into(),
        block_tokens: u32::MAX,
        prompt_tokens: u32::MAX,
        output_tokens: Some(u32::MAX),
        ..Outline::default()
    };
    Lengths::default().complete(KEY, &Extent::default(), &mut absurd);
    let all = [absurd.block_tokens, absurd.prompt_tokens, absurd.output_tokens.unwrap()];
    assert_eq!(all, [TOKENS_MAX; 3]);
}
