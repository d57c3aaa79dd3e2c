//! How long a sound inside a body lasts, as far as that shows without decoding it: a WAV file says in
//! its first bytes how many make a second, and others are taken for what speech is commonly packed
//! into. Engines price sounds by the second and not by the byte.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use memchr::{memchr, memmem, memrchr};

/// How far back the quote is looked for that opens the data, and what stands before it.
const BACK_BYTES: usize = 512;
/// What names the data stands this close before it, as in `"input_audio": {"data": `.
const LABEL_BYTES: usize = 64;
/// 128 kbit a second, as MP3 and its kin have it.
const BYTES_PER_SECOND: u32 = 16_000;
/// What a WAV file may say of itself; all else is a lie or a fault.
const BYTES_PER_SECOND_BELIEVED: std::ops::RangeInclusive<u32> = 1_000..=2_000_000;
/// The letters that hold a WAV file's head, and where in it the bytes of a second stand.
const HEAD_LETTERS: usize = 44;
const HEAD_RATE: std::ops::Range<usize> = 28..32;

/// Measures the attachment whose data is going on at `at` of the prompt; `None` if it is no sound.
pub(super) fn lasts_ms(prompt: &[u8], at: usize) -> Option<u32> {
    let start = at - at.min(BACK_BYTES);
    let quote = start + memrchr(b'"', prompt.get(start..at)?)?;
    let label = &prompt[quote.saturating_sub(LABEL_BYTES)..quote];
    let rest = &prompt[quote + 1..];
    let data = &rest[..memchr(b'"', rest).unwrap_or(rest.len())];
    if memmem::find(label, b"audio").is_none() && !data.starts_with(b"data:audio/") {
        return None;
    }
    let letters = &data[memchr(b',', data).map_or(0, |it| it + 1)..];
    let bytes = u64::try_from(letters.len() / 4 * 3).ok()?;
    let per_second = bytes_per_second(letters).unwrap_or(BYTES_PER_SECOND);
    Some(u32::try_from(bytes * 1_000 / u64::from(per_second)).unwrap_or(u32::MAX))
}

/// Reads how many bytes of a WAV file make a second.
fn bytes_per_second(letters: &[u8]) -> Option<u32> {
    let head = STANDARD.decode(letters.get(..HEAD_LETTERS)?).ok()?;
    let rate = head.starts_with(b"RIFF").then(|| head.get(HEAD_RATE))??;
    let rate = u32::from_le_bytes(rate.try_into().ok()?);
    BYTES_PER_SECOND_BELIEVED.contains(&rate).then_some(rate)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A WAV file of the given length at 16 kHz with two bytes a sample.
    fn wav(seconds: usize) -> String {
        let mut file = b"RIFF\0\0\0\0WAVEfmt \x10\0\0\0\x01\0\x01\0\x80\x3e\0\0".to_vec();
        file.extend_from_slice(&32_000_u32.to_le_bytes());
        file.resize(44 + 32_000 * seconds, 0);
        STANDARD.encode(file)
    }

    fn measured(before: &str, data: &str) -> Option<u32> {
        let prompt = format!("{before}\"{data}\", \"more\": 1}}");
        lasts_ms(prompt.as_bytes(), before.len() + 100)
    }

    #[test]
    fn a_wav_file_lasts_as_long_as_its_head_says() {
        let lasts = measured(r#"{"type":"input_audio","input_audio":{"data":"#, &wav(3));
        assert!(lasts.is_some_and(|it| (3_000..3_010).contains(&it)), "{lasts:?}");
        let lasts = measured(r#"{"url":"#, &format!("data:audio/wav;base64,{}", wav(2)));
        assert!(lasts.is_some_and(|it| (2_000..2_010).contains(&it)), "{lasts:?}");
    }

    #[test]
    fn other_sounds_are_taken_for_speech_as_it_is_commonly_packed() {
        let data = "A".repeat(64_000);
        assert_eq!(measured(r#"{"input_audio":{"format":"mp3","data":"#, &data), Some(3_000));
        // A head that lies is not believed.
        let mut lie = wav(1);
        lie.replace_range(36..44, "AAAAAAAA");
        assert!(measured(r#"{"input_audio":{"data":"#, &lie).is_some_and(|it| it < 2_100));
    }

    #[test]
    fn an_image_is_no_sound_and_neither_is_a_word_without_quotes() {
        assert_eq!(measured(r#"{"image_url":{"url":"#, &wav(1)), None);
        assert_eq!(lasts_ms("A".repeat(2_000).as_bytes(), 1_500), None);
        assert_eq!(lasts_ms(b"", 0), None);
    }
}
